"""Are BriefContext's answers to open questions better? (BriefContext, Results: MedQ, 48 questions, three experts.)

Both arms answer with the pipeline's own retrieval; their answers are compared blind, by people and by models
(`evaluation.judging`). The paper names no test; its 14 better and 6 worse of 48 are none by a sign test (errata B11).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from epicrisis.errors import InputError
from epicrisis.evaluation.analysis.agreement import RaterAgreement, agreement
from epicrisis.evaluation.analysis.sample_size import ALPHA
from epicrisis.evaluation.analysis.statistics import Mean, holm, mean_of, sign_test
from epicrisis.evaluation.analysis.table import Cell, Table
from epicrisis.evaluation.grading import blind_pairs, human_verdicts, preference
from epicrisis.evaluation.grading.blind_pairs import Paired
from epicrisis.evaluation.grading.human_verdicts import HumanVerdict, PreferredAnswer
from epicrisis.evaluation.grading.preference import PairJudgement
from epicrisis.evaluation.runs.case import Case
from epicrisis.overrides import RunOverrides
from epicrisis.types import Question, StrategyName

NAME = "open-ended"
RIVAL: StrategyName = "rag"
OURS: StrategyName = "brief-context"
ARMS = (RIVAL, OURS)
PUBLISHED = ("open-ended",)
"""Tables of `published` to set beside these."""

JUDGING = "judging"
"""The folder beside a run's records that its pairs and their verdicts lie in."""
PEOPLE, MODELS = "verdicts-*", "judged-*.jsonl"

STATES = ("answered", "abstained", "unparsed", "failed", blind_pairs.NOT_ASKED)

_VERDICTS = (
    "Better, same, worse: BriefContext's answer against RAG's; answers of the same words are the same for every judge, "
    "and shown to none. Not judged, and in none of these: no verdict, or none that can be read. Intervals are 95 % "
    "(Wilson); p by the exact sign test, ties left out, corrected by Holm for this table's {n} tests.",
    "Of several reviewers the majority counts, and a pair without one is a tie; what each says alone is not tested.",
    "A model judges each pair in both orders; where they disagree it is a tie.",
)
_AGREEMENT = (
    "Over the pairs that at least two of them judged, by the answer preferred; a model's disagreement with itself is a "
    "tie. Intervals are 95 %, by a bootstrap of the pairs; none where every resample gives the same. No coefficient "
    "where all that was said is one word.",
)
_POSITION = (
    "Which place wins, whatever stands there: each arm stands first in half of the pairs. Share first: of the pairs "
    "that prefer a place; p by the exact sign test over these, corrected by Holm for this table's {n} tests.",
    "Of a model the replies in both orders are counted, and a pair prefers the place that more of its two prefer; "
    "consistent, inconsistent, unparsed and failed are counts of pairs.",
)


@dataclass(frozen=True, slots=True)
class Judging:
    """The pairs of one run, and whatever was said of them."""

    paired: Paired
    people: tuple[HumanVerdict, ...] = ()
    models: Mapping[str, Mapping[str, PairJudgement]] = field(default_factory=dict)
    """By the judge's name: its verdicts by pair."""


@dataclass(frozen=True, slots=True)
class _Rater:
    name: str
    choices: Mapping[str, PreferredAnswer]
    """By pair."""
    tested: bool = True
    """False: one of several whose majority counts."""


def cases(questions: Sequence[Question], *, preflight: bool = False) -> tuple[Case, ...]:
    """Each question by both arms, condition `arm`; retrieval, k and all else are as the settings say.

    Without its preflight check BriefContext reads every question in parts; with it some of its answers are plain RAG's.
    Raises InputError where there is no question.
    """
    if not questions:
        raise InputError("there is no question to ask: draw at least one")
    return tuple(
        Case(question, {"arm": arm}, RunOverrides(strategy=arm, preflight=preflight))
        for question in questions
        for arm in ARMS
    )


def read_judging(folder: Path, people: Sequence[Path] = (), models: Sequence[Path] = ()) -> Judging:
    """The pairs of a folder that `pairs.write` wrote, with the verdicts in these files. Raises InputError."""
    paired = blind_pairs.read(folder)
    judges: dict[str, Mapping[str, PairJudgement]] = {}
    for path in models:
        made, judged = preference.read_judged(path, paired.pairs)
        name = str(made["judge"]["name"])
        judges[f"{name} ({path.name})" if name in judges else name] = judged
    return Judging(paired, human_verdicts.read_verdicts(people, {pair.id for pair in paired.pairs}), judges)


def read_judging_folder(folder: Path) -> Judging:
    """As `read_judging`, with all files of verdicts that lie in the folder by the names that PEOPLE and MODELS say."""
    return read_judging(folder, sorted(folder.glob(PEOPLE)), sorted(folder.glob(MODELS)))


def tables(judgings: Mapping[str, Judging], *, remarks: Sequence[str] = (), seed: int = 0) -> tuple[Table, ...]:
    """Of judged runs, by the name of their model: what was answered; the verdicts of people and models; how far these
    agree; and what the place of an answer does."""
    made = [_answers(judgings, remarks)]
    if any(_raters(each) for each in judgings.values()):
        made += [_verdicts(judgings, remarks), _agreements(judgings, seed), _positions(judgings)]
    return tuple(made)


def conclusions(judgings: Mapping[str, Judging], *, seed: int = 0) -> tuple[str, ...]:
    """Plain sentences: what the verdicts come to, how far the judges agree, and whether the place decides."""
    said = []
    for model, judge, n, _, better, same, worse, _, _, p in _verdicts(judgings, ()).rows:
        if isinstance(p, float):
            said.append(
                f"{model}, judged by {judge}: of {n} questions BriefContext's answer is better in {better}, worse in "
                f"{worse} and the same in {same}: {_found(p, 'a difference')}."
            )
    for model, judges, _, n, raw, _, _, alpha, _ in _agreements(judgings, seed).rows:
        if isinstance(raw, Mean):
            coefficient = "not defined" if alpha is None else f"{alpha:.2f}"
            said.append(
                f"{model}: {judges} agree in {100 * raw.value:.1f} % of {n} pairs (Krippendorff's alpha {coefficient})."
            )
    for model, judge, first, _, second, _, consistent, changed, _, _, p in _positions(judgings).rows:
        orders = "" if changed is None else f" Of its verdicts {changed} change with the order, {consistent} do not."
        if isinstance(p, float):
            said.append(
                f"{model}, judged by {judge}: the first place wins {first} times, the second {second} times: "
                f"{_found(p, 'a preference')}.{orders}"
            )
    return (*said, *_of_themselves(judgings))


def _found(p: float, what: str) -> str:
    told = "p < 0.001" if p < 0.001 else f"p = {p:.3f}"
    return f"{what} is {'shown' if p <= ALPHA else 'not shown'} (exact sign test, {told} corrected)"


def _raters(judging: Judging) -> list[_Rater]:
    reviewers = human_verdicts.by_reviewer(judging.people)
    raters = [_Rater(name, choices, len(reviewers) == 1) for name, choices in reviewers.items()]
    if len(reviewers) > 1:
        raters.append(_Rater(f"majority of {len(reviewers)} reviewers", human_verdicts.joined(reviewers.values())))
    return raters + _models(judging)


def _models(judging: Judging) -> list[_Rater]:
    return [
        _Rater(name, {pair: each.choice for pair, each in judged.items() if each.choice is not None})
        for name, judged in judging.models.items()
    ]


# -- what was answered ------------------------------------------------------------------------------------------------


def _answers(judgings: Mapping[str, Judging], remarks: Sequence[str]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    notes: list[str] = []
    for model, judging in judgings.items():
        paired, key = judging.paired, judging.paired.key
        for arm in key.arms:
            ended = Counter(states[arm] for states in key.left_out.values())
            ended["answered"] += len(paired.pairs) + len(key.same)
            lengths = [len(text.split()) for text in paired.answers(arm)]
            rows.append(
                (model, arm, key.asked, *(ended[state] for state in STATES), fmean(lengths) if lengths else None)
            )
        notes.append(
            f"{model}: {len(paired.pairs)} pairs to judge, {len(key.same)} of the same words (ties, shown to nobody), "
            f"{len(key.left_out)} questions without a pair because an arm did not answer."
        )
        if paired.telling:
            notes.append(
                f"{model}: in {paired.telling} pairs one answer alone speaks of documents, findings, passages or "
                "readers, which may tell a reviewer how it was made; citations and their labels are taken out of all."
            )
    columns = ("model", "arm", "asked", *STATES, "words of an answer shown")
    return Table("What was answered", columns, tuple(rows), (*notes, *remarks))


# -- verdicts ---------------------------------------------------------------------------------------------------------


def _verdicts(judgings: Mapping[str, Judging], remarks: Sequence[str]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    p_values: list[float | None] = []
    for model, judging in judgings.items():
        paired = judging.paired
        for rater in _raters(judging):
            arms = [paired.key.preferred(pair, choice) for pair, choice in rater.choices.items()]
            better, worse = arms.count(OURS), arms.count(RIVAL)
            same = arms.count(None) + len(paired.key.same)
            left = len(paired.pairs) - len(arms)
            scores = [1.0] * better + [0.0] * (same + worse) + [None] * left
            decided = _mean([1.0] * better + [0.0] * worse)
            rows.append((model, rater.name, better + same + worse, left, better, same, worse, _mean(scores), decided))
            p_values.append(sign_test(better, worse) if rater.tested else None)
    columns = (
        "model",
        "judge",
        "judged",
        "not judged",
        "better",
        "same",
        "worse",
        "share better",
        "share of decided",
        "p (Holm)",
    )
    tested = sum(p is not None for p in p_values)
    notes = (_VERDICTS[0].format(n=tested), *_VERDICTS[1:], *_of_themselves(judgings), *remarks)
    with_p = tuple((*row, p) for row, p in zip(rows, _corrected(p_values), strict=True))
    return Table("BriefContext's answer against RAG's", columns, with_p, notes)


def _of_themselves(judgings: Mapping[str, Judging]) -> tuple[str, ...]:
    """A note for each judge that wrote the answers, by the name of the model."""
    return tuple(
        f"{judge} wrote the answers that it judges: a model may prefer its own words; let another one judge as well."
        for judge in dict.fromkeys(
            name for judging in judgings.values() for name in judging.models if name in judging.paired.key.writers
        )
    )


def _corrected(p_values: Sequence[float | None]) -> list[float | None]:
    corrected = iter(holm([p for p in p_values if p is not None]))
    return [None if p is None else next(corrected) for p in p_values]


# -- agreement --------------------------------------------------------------------------------------------------------


def _agreements(judgings: Mapping[str, Judging], seed: int) -> Table:
    rows = tuple(
        (model, *_agreement_cells(name, agreement(raters, seed)))
        for model, judging in judgings.items()
        for name, raters in _compared(judging)
    )
    columns = (
        "model",
        "judges",
        "n judges",
        "pairs",
        "agreement",
        "Cohen's kappa",
        "kappa interval",
        "Krippendorff's alpha",
        "alpha interval",
    )
    return Table("How far the judges agree", columns, rows, _AGREEMENT)


def _compared(judging: Judging) -> list[tuple[str, list[Mapping[str, Any]]]]:
    """People among each other, each model with their majority, and each two models."""
    key = judging.paired.key

    def by_arm(choices: Mapping[str, PreferredAnswer]) -> Mapping[str, str | None]:
        return {pair: key.preferred(pair, choice) for pair, choice in choices.items()}

    people = [by_arm(choices) for choices in human_verdicts.by_reviewer(judging.people).values()]
    models = [(rater.name, by_arm(rater.choices)) for rater in _models(judging)]
    found = [("people", people)] if len(people) > 1 else []
    if people:
        joined = by_arm(human_verdicts.joined(human_verdicts.by_reviewer(judging.people).values()))
        found += [(f"people and {name}", [joined, choices]) for name, choices in models]
    return found + [
        (f"{name} and {other}", [mine, theirs])
        for place, (name, mine) in enumerate(models)
        for other, theirs in models[place + 1 :]
    ]


def _agreement_cells(name: str, found: RaterAgreement) -> tuple[Cell, ...]:
    kappa, alpha = found.kappa, found.alpha
    of_two = (None, None) if kappa is None else (kappa.value, kappa.interval)
    return (name, found.raters, found.units, found.raw if found.units else None, *of_two, alpha.value, alpha.interval)


# -- position ---------------------------------------------------------------------------------------------------------


def _positions(judgings: Mapping[str, Judging]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    p_values: list[float | None] = []
    for model, judging in judgings.items():
        for name, choices in human_verdicts.by_reviewer(judging.people).items():
            cells, p = _place_cells(list(choices.items()))
            rows.append((model, name, *cells, None, None, None, None))
            p_values.append(p)
        for name, judged in judging.models.items():
            cells, p = _place_cells(
                [
                    (pair, reply.choice)
                    for pair, each in judged.items()
                    for reply in (each.shown, each.swapped)
                    if each.state == "judged" and reply.choice is not None
                ]
            )
            consistent = [each.consistent for each in judged.values()]
            ended = Counter(each.state for each in judged.values())
            counts = (consistent.count(True), consistent.count(False), ended["unparsed"], ended["failed"])
            rows.append((model, name, *cells, *counts))
            p_values.append(p)
    columns = (
        "model",
        "judge",
        "first better",
        "tie",
        "second better",
        "share first",
        "consistent",
        "inconsistent",
        "unparsed",
        "failed",
        "p (Holm)",
    )
    with_p = tuple((*row, p) for row, p in zip(rows, _corrected(p_values), strict=True))
    return Table("Does the place decide?", columns, with_p, (_POSITION[0].format(n=len(rows)), *_POSITION[1:]))


def _place_cells(replies: Sequence[tuple[str, PreferredAnswer]]) -> tuple[tuple[Cell, ...], float]:
    """How often each place wins, the share of pairs that lean to the first of those that lean, and the test of that."""
    said = Counter(choice for _, choice in replies)
    leaning: Counter[str] = Counter()
    for pair, choice in replies:
        leaning[pair] += {"1": 1, "2": -1, "tie": 0}[choice]
    first, second = (sum(sign * each > 0 for each in leaning.values()) for sign in (1, -1))
    return (said["1"], said["tie"], said["2"], _mean([1.0] * first + [0.0] * second)), sign_test(first, second)


def _mean(scores: Sequence[float | None]) -> Mean | None:
    """`None` where nothing is scored."""
    found = mean_of(scores)
    return found if found.n else None
