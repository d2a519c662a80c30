"""Are BriefContext's answers to open questions better? (BriefContext, Results: MedQ, 48 questions, three experts.)

Both arms answer with the pipeline's own retrieval, and people and models compare their answers blind
(`evaluation.grading`). The paper names no test: its 14 better and 6 worse of 48 are no difference by a sign test
(errata B11).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, product, starmap
from pathlib import Path
from statistics import fmean
from typing import Any

from epicrisis.core.errors import InputError
from epicrisis.core.printable import count_noun
from epicrisis.evaluation.analysis.agreement import (
    RaterAgreement,
    describe_agreement,
    make_agreement_table,
    measure_agreement,
)
from epicrisis.evaluation.analysis.grouping import correct_p_values
from epicrisis.evaluation.analysis.sample_size import ALPHA
from epicrisis.evaluation.analysis.statistics import Mean, estimate_mean, sign_test
from epicrisis.evaluation.analysis.table import Cell, Table, bars_plot
from epicrisis.evaluation.experiments.definition import CaseInputs, Experiment, Runs
from epicrisis.evaluation.grading import blind_pairs, human_verdicts, preference
from epicrisis.evaluation.grading.blind_pairs import BlindPairs
from epicrisis.evaluation.grading.human_verdicts import HumanVerdict, PreferredAnswer
from epicrisis.evaluation.grading.preference import PairVerdict
from epicrisis.evaluation.grading.review_file import read_review
from epicrisis.pipeline.overrides import RunOverrides
from epicrisis.pipeline.recording.case import Case

NAME = "open-ended"
RIVAL: str = "rag"
OURS: str = "brief-context"
ARMS = (RIVAL, OURS)

JUDGING = "judging"
"""Folder of a run's pairs and their verdicts, next to its records."""
PEOPLE, MODELS = "verdicts-*", "judged-*.jsonl"
"""Patterns of the files of verdicts in that folder."""

STATES = ("answered", "abstained", "unparsed", "failed", blind_pairs.NOT_ASKED)

_VERDICT_NOTES = (
    "Better, same, worse: {ours} answer against {rival}; identical answers count as the same for every judge, "
    "and are not shown. Not judged: no verdict, or none that can be parsed; such pairs are in no other column. "
    "Intervals are 95 % (Wilson); p by the exact sign test, ties left out, corrected by Holm for this table's {n} "
    "tests.",
    (
        "With several reviewers the majority counts, and a pair without a majority is a tie; single reviewers are not "
        "tested."
    ),
    "A model judges each pair in both orders; if the two verdicts disagree, it is a tie.",
)
_CRITERIA_NOTE = (
    "By criterion: the choices that reviewers made beside the one on the whole answer, read as in the table above; p "
    "corrected by Holm for this table's {n} tests."
)
_CATEGORY_NOTE = (
    "By the category of the question, which in MedQ is the specialty; read as in the table above; p corrected by Holm "
    "for this table's {n} tests."
)
_AGREEMENT_NOTE = (
    "Over the pairs that at least two of them judged, by the answer preferred; a model's disagreement with itself is a "
    "tie. Intervals are 95 %, by a bootstrap of the pairs; none where every resample gives the same. No coefficient "
    "where all verdicts are the same word."
)
_PLACE_NOTES = (
    "Which place wins, whatever answer it shows: each arm is first in about half of the pairs. Share first: of the "
    "pairs with a preferred place; p by the exact sign test over these, corrected by Holm for this table's {n} tests.",
    "Of a model the replies in both orders are counted, and a pair prefers the place that more of its two prefer; "
    "consistent, inconsistent, unparsed and failed are counts of pairs.",
)


_ARM_NAMES: Mapping[str, str] = {RIVAL: "RAG", OURS: "BriefContext"}


@dataclass(frozen=True, slots=True)
class Judging:
    """The pairs of one run or of two, and all verdicts on them."""

    paired: BlindPairs
    people: tuple[HumanVerdict, ...] = ()
    models: Mapping[str, Mapping[str, PairVerdict]] = field(default_factory=dict)
    """By the judge's name: its verdicts by pair."""

    @property
    def names(self) -> tuple[str, str]:
        """The names of the rival and of ours, for sentences."""
        rival, ours = self.paired.key.arms
        return _ARM_NAMES.get(rival, rival), _ARM_NAMES.get(ours, ours)

    def under(self, criterion: str) -> Judging:
        """Return the verdicts of people under a criterion alone."""
        people: list[HumanVerdict] = []
        for verdict in self.people:
            if (choice := verdict.under(criterion)) is not None:
                people.append(choice)
        return replace(self, people=tuple(people), models={})

    def of_category(self, category: str) -> Judging:
        """Return the verdicts on questions of a category alone."""
        paired = self.paired.of_category(category)
        models: dict[str, Mapping[str, PairVerdict]] = {}
        for name, verdicts in self.models.items():
            models[name] = {pair: verdict for pair, verdict in verdicts.items() if pair in paired.key.first}
        people = tuple(verdict for verdict in self.people if verdict.pair in paired.key.first)
        return Judging(paired, people, models)


def build_cases(inputs: CaseInputs) -> tuple[Case, ...]:
    """Build each question by both arms, condition `arm`; retrieval, k and all else are those of the settings.

    Without its preflight check BriefContext reads every question in parts; with it some of its answers would be plain
    RAG's. Raises InputError without questions.
    """
    questions = inputs.all_questions()
    if not questions:
        raise InputError("there is no question to ask: draw at least one")
    built: list[Case] = []
    for question, arm in product(questions, ARMS):
        built.append(Case(question, {"arm": arm}, RunOverrides(options={"strategy": arm}, preflight=False)))
    return tuple(built)


def read_judging(path: Path, people: Sequence[Path] = (), models: Sequence[Path] = ()) -> Judging:
    """Read the pairs of a folder or of a review's file, with the verdicts in these files. Raises InputError.

    A review's own verdicts count unless `people` has others.
    """
    review_verdicts: tuple[HumanVerdict, ...] = ()
    if path.is_file():
        paired, review_verdicts = read_review(path)
    else:
        paired = blind_pairs.read_pairs(path)
    judges: dict[str, Mapping[str, PairVerdict]] = {}
    for path in models:
        recipe, verdicts = preference.read_pair_verdicts(path, paired.pairs)
        name = str(recipe["judge"]["name"])
        judges[f"{name} ({path.name})" if name in judges else name] = verdicts
    pair_ids = {pair.id for pair in paired.pairs}
    return Judging(paired, human_verdicts.read_verdicts(people, pair_ids) if people else review_verdicts, judges)


def read_judging_folder(folder: Path) -> Judging:
    """Read the pairs of a folder with all verdicts in it, by the patterns PEOPLE and MODELS, or a review's file.

    Raises InputError.
    """
    if folder.is_file():
        return read_judging(folder)
    return read_judging(folder, sorted(folder.glob(PEOPLE)), sorted(folder.glob(MODELS)))


def tables(judgings: Mapping[str, Judging], *, remarks: Sequence[str] = ()) -> tuple[Table, ...]:
    """Build the tables of judged runs by model: the answers, the verdicts of people and models, how far these agree,
    the verdicts by specialty and by criterion, and the effect of an answer's place."""
    answers = _answers_table(judgings, remarks)
    if not any(judging.people or judging.models for judging in judgings.values()):
        return (answers,)
    verdicts = _verdicts_table(judgings, remarks)
    return answers, verdicts, _agreement_table(judgings), *_part_tables(judgings), _place_table(judgings)


def conclusions(judgings: Mapping[str, Judging]) -> tuple[str, ...]:
    """Return sentences on the verdicts, the judges' agreement, and the effect of the place."""
    sentences: list[str] = []
    ours, _ = _possessives(judgings)
    for model, judge, n, _, better, same, worse, _, _, p in _verdicts_table(judgings, ()).rows:
        if isinstance(p, float):
            sentences.append(
                f"{model}, judged by {judge}: of {n} questions {ours} answer is better in {better}, worse in "
                f"{worse} and the same in {same}: {_describe_test(p, 'a difference')}."
            )
    sentences.extend(describe_agreement(_agreement_table(judgings), "agree in"))
    for model, judge, first, _, second, _, consistent, changed, _, _, p in _place_table(judgings).rows:
        orders = "" if changed is None else f" Of its verdicts {changed} change with the order, {consistent} do not."
        if isinstance(p, float):
            sentences.append(
                f"{model}, judged by {judge}: the first place wins {first} times, the second {second} times: "
                f"{_describe_test(p, 'a preference')}.{orders}"
            )
    return (*sentences, *_self_judge_notes(judgings))


def _describe_test(p: float, effect: str) -> str:
    value = "p < 0.001" if p < 0.001 else f"p = {p:.3f}"
    return f"{effect} is {'shown' if p <= ALPHA else 'not shown'} (exact sign test, {value} corrected)"


def _raters(judging: Judging) -> Iterator[tuple[str, Mapping[str, PreferredAnswer], bool]]:
    """Yield all raters with their choices by pair, and whether these are tested: reviewers, their majority, models.

    One of several reviewers is not tested, because their majority counts.
    """
    reviewers = human_verdicts.choices_by_reviewer(judging.people)
    for name, choices in reviewers.items():
        yield name, choices, len(reviewers) == 1
    if len(reviewers) > 1:
        yield f"majority of {len(reviewers)} reviewers", human_verdicts.majority_choices(reviewers.values()), True
    for name, choices in _model_choices(judging).items():
        yield name, choices, True


def _model_choices(judging: Judging) -> dict[str, dict[str, PreferredAnswer]]:
    """Return the choices of each judge by pair, without the pairs on which it made none."""
    by_judge: dict[str, dict[str, PreferredAnswer]] = {}
    for name, verdicts in judging.models.items():
        choices = by_judge.setdefault(name, {})
        for pair, verdict in verdicts.items():
            if verdict.choice is not None:
                choices[pair] = verdict.choice
    return by_judge


def _answers_table(judgings: Mapping[str, Judging], remarks: Sequence[str]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    notes: list[str] = []
    for model, judging in judgings.items():
        paired, key = judging.paired, judging.paired.key
        for arm in key.arms:
            endings = Counter(item[arm] for item in key.left_out.values())
            endings["answered"] += len(paired.pairs) + len(key.same)
            lengths = list(map(len, map(str.split, paired.answers(arm))))
            counts = (endings[state] for state in STATES)
            rows.append((model, arm, key.asked, *counts, fmean(lengths) if lengths else None))
        notes.append(
            f"{model}: {count_noun(len(paired.pairs), 'pair')} to judge, {len(key.same)} of the same words (ties, not "
            "shown), "
            f"{count_noun(len(key.left_out), 'question')} without a pair because an arm did not answer."
        )
        if paired.revealing:
            notes.append(
                f"{model}: in {count_noun(paired.revealing, 'pair')} only one answer mentions documents, findings, "
                "passages or "
                "readers, which may reveal its author to a reviewer; citations and their labels are removed from all."
            )
    columns = ("model", "arm", "asked", *STATES, "words of an answer shown")
    return Table("What was answered", columns, tuple(rows), (*notes, *remarks))


def _verdicts_table(judgings: Mapping[str, Judging], remarks: Sequence[str]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    p_values: list[float | None] = []
    for model, judging in judgings.items():
        paired = judging.paired
        rival, ours = paired.key.arms
        for name, choices, is_tested in _raters(judging):
            arms = list(starmap(paired.key.preferred, choices.items()))
            better, worse = arms.count(ours), arms.count(rival)
            same = arms.count(None) + len(paired.key.same)
            unjudged = len(paired.pairs) - len(arms)
            share = _mean([1.0] * better + [0.0] * (same + worse) + [None] * unjudged)
            decided = _mean([1.0] * better + [0.0] * worse)
            rows.append((model, name, better + same + worse, unjudged, better, same, worse, share, decided))
            p_values.append(sign_test(better, worse) if is_tested else None)
    counts = ("judged", "not judged", "better", "same", "worse")
    columns = ("model", "judge", *counts, "share better", "share of decided", "p (Holm)")
    tested = len(p_values) - p_values.count(None)
    ours_of, rivals = _possessives(judgings)
    first_note = _VERDICT_NOTES[0].format(ours=ours_of, rival=rivals, n=tested)
    notes = (first_note, *_VERDICT_NOTES[1:], *_self_judge_notes(judgings), *remarks)
    return Table(f"{ours_of} answer against {rivals}", columns, _add_p(rows, p_values), notes)


def _possessives(judgings: Mapping[str, Judging]) -> tuple[str, str]:
    """Return the names of ours and of the rival with 's. All judgings of a table have the same arms."""
    for judging in judgings.values():
        rival, ours = judging.names
        return f"{ours}'s", f"{rival}'s"
    return f"{_ARM_NAMES[OURS]}'s", f"{_ARM_NAMES[RIVAL]}'s"


def _part_tables(judgings: Mapping[str, Judging]) -> Iterator[Table]:
    """Yield the verdicts by the category of the question (the specialty in MedQ), if there are several, and the
    verdicts and the agreement by criterion, if there are verdicts by criteria."""
    by_category: dict[str, Judging] = {}
    by_criterion: dict[str, Judging] = {}
    for model, judging in judgings.items():
        suffix = "" if len(judgings) == 1 else f", {model}"
        for category in sorted(set(judging.paired.key.categories.values())):
            by_category[f"{category}{suffix}"] = judging.of_category(category)
        for criterion in human_verdicts.CRITERIA:
            judging_of_one = judging.under(criterion)
            if judging_of_one.people:
                by_criterion[f"{criterion}{suffix}"] = judging_of_one
    if len(by_category) > 1:
        yield _verdicts_by_part(by_category, "specialty", _CATEGORY_NOTE)
    if by_criterion:
        yield _verdicts_by_part(by_criterion, "criterion", _CRITERIA_NOTE)
        agreement = _agreement_table(by_criterion)
        if agreement.rows:
            columns = ("criterion", *agreement.columns[1:])
            yield replace(agreement, title="How far the judges agree, by criterion", columns=columns)


def _verdicts_by_part(parts: Mapping[str, Judging], label: str, note: str) -> Table:
    verdicts = _verdicts_table(parts, ())
    tested = len(verdicts.rows) - verdicts.column("p (Holm)").count(None)
    columns = (label, *verdicts.columns[1:])
    return replace(verdicts, title=f"By {label}", columns=columns, notes=(note.format(n=tested),))


def _self_judge_notes(judgings: Mapping[str, Judging]) -> tuple[str, ...]:
    """Return a note for each judge that wrote the answers, by the name of the model."""
    judges: dict[str, None] = {}
    for judging in judgings.values():
        judges |= dict.fromkeys(model for model in judging.models if model in judging.paired.key.writers)
    advice = "a model may prefer its own words; let another one judge as well."
    return tuple(f"{judge} wrote the answers that it judges: {advice}" for judge in judges)


def _add_p(rows: Sequence[tuple[Cell, ...]], p_values: Sequence[float | None]) -> tuple[tuple[Cell, ...], ...]:
    """Return each row with its p, corrected by Holm, at the end."""
    return tuple((*row, p) for row, p in zip(rows, correct_p_values(p_values), strict=True))


def _agreement_table(judgings: Mapping[str, Judging]) -> Table:
    agreements: list[tuple[str, str, RaterAgreement]] = []
    for model, judging in judgings.items():
        for name, raters in _rater_groups(judging):
            agreements.append((model, name, measure_agreement(raters)))
    return make_agreement_table(agreements, "pairs", (_AGREEMENT_NOTE,))


def _rater_groups(judging: Judging) -> Iterator[tuple[str, list[Mapping[str, Any]]]]:
    """Yield the groups whose agreement is shown: people, each model with their majority, and each two models."""
    key = judging.paired.key

    def by_arm(choices: Mapping[str, PreferredAnswer]) -> Mapping[str, str | None]:
        return {pair: key.preferred(pair, choice) for pair, choice in choices.items()}

    reviewers = list(human_verdicts.choices_by_reviewer(judging.people).values())
    models = {name: by_arm(choices) for name, choices in _model_choices(judging).items()}
    if len(reviewers) > 1:
        yield "people", list(map(by_arm, reviewers))
    if reviewers:
        majority = by_arm(human_verdicts.majority_choices(reviewers))
        for name, choices in models.items():
            yield f"people and {name}", [majority, choices]
    for (name, mine), (other, theirs) in combinations(models.items(), 2):
        yield f"{name} and {other}", [mine, theirs]


def _place_table(judgings: Mapping[str, Judging]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    p_values: list[float | None] = []
    for model, judging in judgings.items():
        places: dict[str, list[tuple[str, PreferredAnswer]]] = {}
        for verdict in judging.people:
            places.setdefault(verdict.reviewer, []).append((verdict.pair, verdict.place))
        for name, choices in places.items():
            cells, p = _place_cells(choices)
            rows.append((model, name, *cells, None, None, None, None))
            p_values.append(p)
        for name, verdicts in judging.models.items():
            replies: list[tuple[str, PreferredAnswer]] = []
            for pair, judgement in verdicts.items():
                for reply in (judgement.original, judgement.swapped):
                    if judgement.state == "judged" and reply.choice is not None:
                        replies.append((pair, reply.choice))
            cells, p = _place_cells(replies)
            consistent = [verdict.consistent for verdict in verdicts.values()]
            states = Counter(verdict.state for verdict in verdicts.values())
            counts = (consistent.count(True), consistent.count(False), states["unparsed"], states["failed"])
            rows.append((model, name, *cells, *counts))
            p_values.append(p)
    counts_of = ("consistent", "inconsistent", "unparsed", "failed")
    columns = ("model", "judge", "first better", "tie", "second better", "share first", *counts_of, "p (Holm)")
    notes = (_PLACE_NOTES[0].format(n=len(rows)), *_PLACE_NOTES[1:])
    return Table("Does the place decide?", columns, _add_p(rows, p_values), notes)


_LEANING: Mapping[PreferredAnswer, int] = {"1": 1, "2": -1, "tie": 0}


def _place_cells(replies: Sequence[tuple[str, PreferredAnswer]]) -> tuple[tuple[Cell, ...], float]:
    """Return how often each place wins, the share of pairs that lean to the first, and its p."""
    counts = Counter(reply[1] for reply in replies)
    leaning: Counter[str] = Counter()
    for pair, choice in replies:
        leaning[pair] += _LEANING[choice]
    first = sum(value > 0 for value in leaning.values())
    second = sum(value < 0 for value in leaning.values())
    share = _mean([1.0] * first + [0.0] * second)
    return (counts["1"], counts["tie"], counts["2"], share), sign_test(first, second)


def _mean(scores: Sequence[float | None]) -> Mean | None:
    """Return the mean of the scores, or None without one."""
    mean = estimate_mean(scores)
    return mean if mean.n else None


def _read_judgings(runs: Runs) -> dict[str, Judging]:
    """Read the pairs of runs with their verdicts; before any were written, return their pairs."""
    judgings: dict[str, Judging] = {}
    for run in runs:
        folder = run.path.parent / JUDGING
        if folder.is_dir():
            judgings[run.name] = read_judging_folder(folder)
        else:
            judgings[run.name] = Judging(blind_pairs.make_pairs(run.records(), ARMS, 0))
    return judgings


EXPERIMENT = Experiment(
    name=NAME,
    question="Which answer to an open question is better, judged blindly? (BriefContext, on MedQ)",
    cases=build_cases,
    tables=lambda runs, remarks: tables(_read_judgings(runs), remarks=remarks),
    sets=("medq",),
    published=("open-ended",),
    plots=(
        (bars_plot("Better, same, worse", "better", "same", "worse", along=("judge",)),),
        (bars_plot("By the place of the answer", "first better", "tie", "second better", along=("judge",)),),
    ),
    conclude=lambda runs, _: conclusions(_read_judgings(runs)),
    whole_sets=True,
    places_documents=False,
    by_settings=True,
)
