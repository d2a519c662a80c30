"""What do drafts, critique and rewards bring to open answers? (The context-retrieval study, section 5: Tables 10 to 12,
Figures 5 and 6.)

One draft without and with solved questions, and the same questions with their options by next token; ensemble refining
and self-reflection over a growing number of drafts and rounds, and over a growing number of examples. Open answers are
marked afterwards (`epicrisis grade correctness`), and these tables read the marks. The drafts of a smaller number are
among those of a larger one, so they come from the cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Literal

from epicrisis.core.errors import InputError
from epicrisis.core.printable import count_noun
from epicrisis.core.types import DraftSelection, Examples, Question
from epicrisis.evaluation.analysis.grouping import SHARE_COLUMN, Group, make_accuracy_table
from epicrisis.evaluation.analysis.table import SHARES, PlotSpec, Table, line_plot, points_plot
from epicrisis.evaluation.experiments import outcome_groups, vote_sampling
from epicrisis.evaluation.experiments.arms import ExampleFinder, check_names
from epicrisis.evaluation.experiments.definition import CaseInputs, Experiment, Grid, Runs
from epicrisis.evaluation.grading.correctness import correctness_remarks as marking_remarks
from epicrisis.evaluation.grading.correctness import read_correctness
from epicrisis.evaluation.runs.outcomes import Outcome, score_record
from epicrisis.pipeline.overrides import RunOverrides
from epicrisis.pipeline.recording.case import Case, Condition
from epicrisis.settings.tables import RefineSettings

NAME = "openmedprompt"
NS, KS = (3, 5, 7, 10, 15, 20), (0, 1, 3, 5)
"""Drafts or rounds at K = 5 as printed; the examples at N = 5 are ours, since Figure 5 prints no grid."""
N, K = 5, 5
ONE, REFINING, LAST, BEST = "one-draft", "ensemble-refining", "self-reflection", "self-reflection+best"
CHOICE = "multiple-choice"
"""The questions with options, by next token."""
ARMS = (CHOICE, ONE, REFINING, LAST, BEST)

_NOTES = (
    f"{LAST}: the last draft is the answer, as published; {BEST}: the one of highest reward, as corrected (errata P8). "
    "Without a reward model both are the last.",
    "Drafts of a smaller number are the first of a larger one, so rows are not independent of each other.",
    f"{CHOICE}: the most probable next token of the same questions with their options, as in the study; the other arms "
    "are open answers that a judge marks, so their difference is not tested (errata P10).",
)


@dataclass(frozen=True, slots=True)
class Sizes:
    """`ns`: drafts or rounds at K examples; `ks`: examples at N drafts or rounds.

    Where K or N is not among them, the largest of them replaces it.
    """

    ns: Sequence[int] = NS
    ks: Sequence[int] = KS

    @property
    def k(self) -> int:
        """Examples of the rows over drafts and rounds, and of the one draft."""
        return vote_sampling.preferred_size(K, self.ks)

    @property
    def n(self) -> int:
        """Drafts or rounds of the rows over examples."""
        return vote_sampling.preferred_size(N, self.ns)

    def pairs(self) -> list[tuple[int, int]]:
        """Return the pairs (n, k), the largest n first, which fills the cache for the others."""
        pairs = {*product(self.ns, (self.k,)), *product((self.n,), self.ks)}
        return sorted(pairs, key=lambda pair: (-pair[0], pair[1]))


def build_cases(inputs: CaseInputs) -> tuple[Case, ...]:
    """Build the cases. Conditions: `arm`, `examples` (the source's name, or `none`), `k` examples, `n` drafts or
    rounds, `repeat`. A question with options is asked by the arm CHOICE alone, an open one by the others.

    Raises InputError for an unknown arm or one without examples, a question without gold, or a source with too few
    examples.
    """
    arms, sources, sizes = inputs.grid.arms, inputs.study.examples, Sizes(inputs.grid.votes, inputs.grid.ks)
    check_names(arms, ARMS)
    for question in inputs.all_questions():
        if question.gold is None:
            raise InputError(
                f"question {question.id!r} has no answer to mark by: take another question set, such as medqa/open-test"
            )
    if not sources and {*arms} - {ONE, CHOICE}:
        raise InputError(
            "this experiment shows solved questions: give a library of them with --examples NAME=LIBRARY, or ask "
            f"--arm {ONE} alone"
        )
    # The default sets hold the same questions twice, so they share one set of tables.
    are_same = {*inputs.questions} == {*EXPERIMENT.sets}
    built: list[Case] = []
    for question, of_set in inputs.questions_with_set():
        shared: Condition = {} if are_same else of_set
        if question.options:
            if CHOICE in arms:
                by_options: Condition = {**shared, "arm": CHOICE, "examples": vote_sampling.NO_EXAMPLES, "k": 0}
                built += inputs.repeat(question, by_options, RunOverrides(options={"strategy": "zero-shot"}))
            continue
        for condition, overrides in _variants(question, sources, sizes, arms):
            built += inputs.repeat(question, {**shared, **condition}, overrides)
    return tuple(built)


def _variants(
    question: Question, sources: Mapping[str, ExampleFinder], sizes: Sizes, arms: Sequence[str]
) -> Iterator[tuple[Condition, RunOverrides]]:
    """Yield the conditions of one question with their overrides."""
    if ONE in arms:
        yield _one_draft(vote_sampling.NO_EXAMPLES, 0, Examples(()))
    for name, find in sources.items():
        examples = find(question)
        if ONE in arms:
            yield _one_draft(name, sizes.k, _first(examples, sizes.k))
        for arm in arms:
            keep: DraftSelection = "best" if arm == BEST else "last"
            strategy: str = "ensemble-refining" if arm == REFINING else "self-reflection"
            for n, k in sizes.pairs() if arm not in (ONE, CHOICE) else ():
                refining = RefineSettings(drafts=n, rounds=n, keep=keep)
                overrides = RunOverrides(
                    options={"strategy": strategy, "refine": refining}, examples=_first(examples, k)
                )
                yield {"arm": arm, "examples": name, "k": k, "n": n}, overrides


def _one_draft(name: str, k: int, examples: Examples) -> tuple[Condition, RunOverrides]:
    overrides = RunOverrides(
        options={"strategy": "self-reflection", "refine": RefineSettings(rounds=0, keep="last")}, examples=examples
    )
    return {"arm": ONE, "examples": name, "k": k}, overrides


def _first(examples: Examples, k: int) -> Examples:
    n = len(examples.examples)
    if n < k:
        raise InputError(f"a library has {count_noun(n, 'solved question')} to show of {k}: give less with -k")
    return replace(examples, examples=examples.examples[:k])


def tables(runs: outcome_groups.OutcomesByModel, *, remarks: Sequence[str] = ()) -> tuple[Table, ...]:
    """Build the tables of finished and marked runs: options and one draft (Table 10), drafts and rounds (Tables 11 and
    12, Figure 6), and examples (Figure 5) where their number was varied.
    """
    one_draft = outcome_groups.collect_groups(runs, _one_draft_groups)
    by_drafts = outcome_groups.collect_groups(runs, partial(_size_groups, size="n"))
    by_examples = outcome_groups.collect_groups(runs, partial(_size_groups, size="k"))
    build = partial(make_accuracy_table, remarks=(*_NOTES, *remarks))
    labels = ("model", "arm", "examples")
    title, baseline = "Accuracy by the number of drafts or rounds", "one draft with the same examples"
    built = [
        build("One draft", ("model", "arm", "examples", "k"), one_draft, baseline="no examples"),
        build(title, (*labels, "n"), by_drafts, baseline=baseline),
    ]
    if by_examples:
        baseline = "one draft with the same library"
        built.append(build("Accuracy by the number of examples", (*labels, "k"), by_examples, baseline=baseline))
    return tuple(built)


def _one_draft_groups(model: str, outcomes: Sequence[Outcome]) -> Iterator[Group]:
    if choices := outcome_groups.select(outcomes, arm=CHOICE):
        yield Group((model, CHOICE, vote_sampling.NO_EXAMPLES, 0), choices, (), ("repeat",))
    ones = outcome_groups.select(outcomes, arm=ONE)
    without = outcome_groups.select(ones, examples=vote_sampling.NO_EXAMPLES)
    for (name, k), here in outcome_groups.group_conditions(ones, "examples", "k").items():
        yield Group((model, ONE, name, k), here, () if name == vote_sampling.NO_EXAMPLES else without, ("repeat",))


def _size_groups(model: str, outcomes: Sequence[Outcome], size: Literal["n", "k"]) -> Iterator[Group]:
    """Yield each number of drafts, or of examples, with the other one as the run's sizes say."""
    drafts = [outcome for outcome in outcomes if outcome.condition["arm"] not in (ONE, CHOICE)]
    # With one number of examples, the rows over drafts and rounds are the same.
    if not drafts or (size == "k" and len(outcome_groups.values_of(drafts, "k")) < 2):
        return
    sizes = Sizes(outcome_groups.numbers_of(drafts, "n"), outcome_groups.numbers_of(drafts, "k"))
    rows = outcome_groups.select(drafts, k=sizes.k) if size == "n" else outcome_groups.select(drafts, n=sizes.n)
    for (arm, name), of_arm in outcome_groups.group_conditions(rows, "arm", "examples").items():
        rivals = outcome_groups.select(outcomes, arm=ONE, examples=name)
        for value in outcome_groups.numbers_of(of_arm, size):
            here = outcome_groups.select(of_arm, **{size: value})
            yield Group((model, arm, name, value), here, rivals, ("repeat",))


def _tables_of_runs(runs: Runs, remarks: Sequence[str]) -> tuple[Table, ...]:
    """Build the tables from the marks next to the records; of an unmarked run its usage, and what to do."""
    outcomes: dict[str, list[Outcome]] = {}
    notes = dict.fromkeys(remarks)
    unmarked: list[str] = []
    for run in runs:
        marking = read_correctness(run.path.parent)
        if marking.judges:
            choices = [score_record(record) for record in run.records() if record.answer.question.options]
            outcomes[run.name] = vote_sampling.sort_outcomes(run, (*choices, *marking.outcomes()))
            notes |= dict.fromkeys(marking_remarks(marking))
        else:
            unmarked.append(
                f"{run.name}: these open answers are not marked yet, so nothing says which are right: `epicrisis "
                "grade correctness FOLDER --model MODEL` with the run's folder, then `epicrisis report` or the same "
                "command again."
            )
    built = tables(vote_sampling.split_sets(outcomes), remarks=tuple(notes)) if outcomes else ()
    usage = vote_sampling.usage_of_runs(runs, ("arm", "examples", "k", "n"))
    return (*built, replace(usage, notes=(*unmarked, *usage.notes)))


def _size_plots(size: str, unit: str) -> tuple[PlotSpec, ...]:
    """Return the plots over the number of drafts or examples."""
    axis, panel = f"{unit} ({size.upper()})", ("model", "examples")
    share, difference = f"Share right by {unit}", f"Differences to one draft by {unit}"
    return (
        line_plot(share, SHARE_COLUMN, along=(size,), series=("arm",), panel=panel, axis_title=axis),
        line_plot(
            difference, "difference to one draft *", along=(size,), series=("arm",), panel=panel, axis_title=axis
        ),
    )


EXPERIMENT = Experiment(
    name=NAME,
    question="What do drafts, critique and rewards bring to open answers? (Context retrieval, Tables 10 to 12)",
    cases=build_cases,
    tables=_tables_of_runs,
    sets=("medqa/open-test", "medqa/test"),
    grid=Grid(ARMS, KS, votes=NS),
    published=("open-baseline", "openmedprompt-refining", "openmedprompt-reflection"),
    plots=(
        (
            SHARES,
            points_plot("Differences to no examples", "difference to no examples", panel=("model",)),
        ),
        _size_plots("n", "drafts or rounds"),
        _size_plots("k", "examples"),
        vote_sampling.usage_plots(along=("examples", "k", "n"), series=("arm",), panel=("model", "arm")),
    ),
    strategy="self-reflection",
    places_documents=False,
    shows_examples=True,
    by_settings=True,
)
