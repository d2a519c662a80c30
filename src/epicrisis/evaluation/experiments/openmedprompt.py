"""What do drafts, critique and rewards bring to open answers? (The context-retrieval study, section 5: Tables 10 to 12,
Figures 5 and 6.)

One draft without and with solved questions; ensemble refining and self-reflection over a growing number of drafts and
rounds, and over a growing number of examples. Answers are marked afterwards (`epicrisis open-ended mark`): these tables
take the marks. The drafts of a smaller number are among those of a larger one, so they come out of the cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from epicrisis.answering.refining import Refining
from epicrisis.errors import InputError
from epicrisis.evaluation.analysis.grouping import AccuracyMeasure, Group, table
from epicrisis.evaluation.analysis.table import Table
from epicrisis.evaluation.experiments.arms import ExampleFinder
from epicrisis.evaluation.experiments.ensembles import VoteSampling, of, preferred_size
from epicrisis.evaluation.experiments.medprompt import NONE
from epicrisis.evaluation.runs.case import Case, Condition
from epicrisis.evaluation.runs.outcomes import Outcome
from epicrisis.overrides import RunOverrides
from epicrisis.types import DraftSelection, Examples, Question, StrategyName

NAME = "openmedprompt"
NS, KS = (3, 5, 7, 10, 15, 20), (0, 1, 3, 5)
"""Drafts or rounds at K = 5 as printed; the examples at N = 5 are ours, for Figure 5 prints no grid."""
N, K = 5, 5
ONE, REFINING, LAST, BEST = "one-draft", "ensemble-refining", "self-reflection", "self-reflection+best"
ARMS = (ONE, REFINING, LAST, BEST)
PUBLISHED = ("open-baseline", "openmedprompt-refining", "openmedprompt-reflection")

_STRATEGIES: Mapping[str, StrategyName] = {
    ONE: "self-reflection",
    REFINING: "ensemble-refining",
    LAST: "self-reflection",
    BEST: "self-reflection",
}
_NOTES = (
    f"{LAST}: the last draft is the answer, as published; {BEST}: the one of highest reward, as corrected (errata P8). "
    "Without a reward model both are the last.",
    "Drafts of a smaller number are the first of a larger one, so rows are not independent of each other.",
    "The study sets open answers against a next-token figure of the same questions with options (errata P10): here all "
    "are open.",
)


@dataclass(frozen=True, slots=True)
class Sizes:
    """`ns`: drafts or rounds at K examples; `ks`: examples at N drafts or rounds. Where K or N is none of them, the
    largest that is takes its place."""

    ns: Sequence[int] = NS
    ks: Sequence[int] = KS

    @property
    def k(self) -> int:
        """Examples of the rows over drafts and rounds, and of the one draft."""
        return preferred_size(K, self.ks)

    @property
    def n(self) -> int:
        """Drafts or rounds of the rows over examples."""
        return preferred_size(N, self.ns)

    def pairs(self) -> list[tuple[int, int]]:
        """(n, k), the largest n first, so that the rest is there."""
        pairs = {(n, self.k) for n in self.ns} | {(self.n, k) for k in self.ks}
        return sorted(pairs, key=lambda pair: (-pair[0], pair[1]))


def cases(
    questions: Sequence[Question],
    drawing: VoteSampling,
    sources: Mapping[str, ExampleFinder],
    *,
    sizes: Sizes = Sizes(),
    arms: Sequence[str] = ARMS,
) -> tuple[Case, ...]:
    """Conditions: `arm`, `examples` (the source's name, or `none`), `k` examples, `n` drafts or rounds, `repeat`.

    Raises InputError for an arm that is not known or has no examples to show, a question that is not open or has no
    reference, or a source with fewer examples than are to be shown.
    """
    if unknown := [arm for arm in arms if arm not in ARMS]:
        raise InputError(f"no arm is called {unknown[0]}: known are {', '.join(ARMS)}")
    for question in questions:
        if question.options or question.gold is None:
            raise InputError(
                f"question {question.id!r} has options, or no answer to mark by: this experiment asks open questions, "
                "such as medq/... or medqa/open-test"
            )
    if not sources and {*arms} != {ONE}:
        raise InputError(
            "this experiment shows solved questions: name a library of them with --examples NAME=LIBRARY, or ask "
            f"--arm {ONE} alone"
        )
    made: list[Case] = []
    for question in questions:
        for condition, treatment in _treated(question, sources, sizes, arms):
            made += drawing.cases(question, condition, treatment)
    return tuple(made)


def _treated(
    question: Question, sources: Mapping[str, ExampleFinder], sizes: Sizes, arms: Sequence[str]
) -> Iterator[tuple[Condition, RunOverrides]]:
    none = Examples(())
    if ONE in arms:
        yield _one(NONE, 0, none)
    for name, find in sources.items():
        found = find(question)
        if ONE in arms:
            yield _one(name, sizes.k, _first(found, sizes.k))
        for arm in arms:
            for n, k in sizes.pairs() if arm != ONE else ():
                keep: DraftSelection = "best" if arm == BEST else "last"
                treatment = RunOverrides(
                    _STRATEGIES[arm], refining=Refining(drafts=n, rounds=n, keep=keep), examples=_first(found, k)
                )
                yield {"arm": arm, "examples": name, "k": k, "n": n}, treatment


def _one(name: str, k: int, examples: Examples) -> tuple[Condition, RunOverrides]:
    treatment = RunOverrides(_STRATEGIES[ONE], refining=Refining(rounds=0, keep="last"), examples=examples)
    return {"arm": ONE, "examples": name, "k": k}, treatment


def _first(examples: Examples, k: int) -> Examples:
    if len(examples.shown) < k:
        raise InputError(f"a library has {len(examples.shown)} solved questions to show of {k}: give less with -k")
    return replace(examples, shown=examples.shown[:k])


def tables(
    runs: Mapping[str, Sequence[Outcome]],
    *,
    measure: AccuracyMeasure = "right",
    remarks: Sequence[str] = (),
    seed: int = 0,
) -> tuple[Table, ...]:
    """Of finished and marked runs, by the name of their model: one draft (Table 10), drafts and rounds (Tables 11 and
    12, Figure 6), examples (Figure 5) where their number was varied."""
    told = (*_NOTES, *remarks)
    by_examples = [group for model, found in runs.items() if _varied(found) for group in _by(model, found, "k")]

    def made(title: str, labels: Sequence[str], groups: Sequence[Group], baseline: str) -> Table:
        return table(title, labels, groups, baseline=baseline, measure=measure, remarks=told, seed=seed)

    return (
        made(
            "One draft",
            ("model", "examples", "k"),
            [group for model, found in runs.items() for group in _one_draft(model, found)],
            "no examples",
        ),
        made(
            "Accuracy by the number of drafts or rounds",
            ("model", "arm", "examples", "n"),
            [group for model, found in runs.items() for group in _by(model, found, "n")],
            "one draft with the same examples",
        ),
        *(
            [
                made(
                    "Accuracy by the number of examples",
                    ("model", "arm", "examples", "k"),
                    by_examples,
                    "one draft with the same library",
                )
            ]
            if by_examples
            else ()
        ),
    )


def _varied(outcomes: Sequence[Outcome]) -> bool:
    """Whether there is more than one number of examples: else its rows are those over drafts and rounds."""
    return len({each.condition["k"] for each in outcomes if each.condition["arm"] != ONE}) > 1


def _one_draft(model: str, outcomes: Sequence[Outcome]) -> list[Group]:
    ones = of(outcomes, arm=ONE)
    none = of(ones, examples=NONE)
    return [
        Group((model, name, k), of(ones, examples=name, k=k), () if name == NONE else none, ("repeat",))
        for name, k in dict.fromkeys((each.condition["examples"], each.condition["k"]) for each in ones)
    ]


def _by(model: str, outcomes: Sequence[Outcome], size: Literal["n", "k"]) -> list[Group]:
    """Each number of drafts, or of examples, the other being as the run's sizes say."""
    several = [each for each in outcomes if each.condition["arm"] != ONE]
    if not several:
        return []
    ns, ks = ({int(str(each.condition[name])) for each in several} for name in ("n", "k"))
    sizes = Sizes(tuple(ns), tuple(ks))
    rows = of(several, k=sizes.k) if size == "n" else of(several, n=sizes.n)
    labels = dict.fromkeys((each.condition["arm"], each.condition["examples"]) for each in rows)
    groups = []
    for arm, name in labels:
        here = of(rows, arm=arm, examples=name)
        against = of(outcomes, arm=ONE, examples=name)
        for value in sorted({int(str(each.condition[size])) for each in here}):
            groups.append(Group((model, arm, name, value), of(here, **{size: value}), against, ("repeat",)))
    return groups
