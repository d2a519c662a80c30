"""From outcomes to the rows of a table: means with intervals, states counted apart, paired differences to a baseline.

Whatever is compared, questions are the clusters (errata B9) and the p values of one table are corrected together
(Holm). Knows no experiment: which outcomes make a row, and with what they are compared, it is told.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Literal, TypeAlias

from epicrisis.evaluation.analysis.statistics import Difference, Mean, holm, mean_of, paired_difference
from epicrisis.evaluation.analysis.table import Cell, Table
from epicrisis.evaluation.runs.outcomes import Outcome

AccuracyMeasure: TypeAlias = Literal["right", "right-of-answered"]
"""`right`: of all that were asked and did not fail, an answer that abstains or cannot be read being none that is right;
`right-of-answered`: of those that state a choice."""

PairingKey: TypeAlias = tuple[Hashable, ...]
"""A question's key, then its conditions in which the two of a pair are alike."""

STATES = ("right", "wrong", "abstained", "unparsed", "failed")
_NOT_ASKED = "over-window"
"""Stands among the failed here: it has no score either. Tables about patients' records count it apart."""
SHARE, P = "share right", "p (Holm)"
FIGURES = (SHARE, *STATES)

_MEASURES: Mapping[AccuracyMeasure, str] = {
    "right": "Share right: of all cases that did not fail; abstained and unparsed ones are not right, and stand apart.",
    "right-of-answered": "Share right: of the cases that state a choice; all others are not scored, and stand apart.",
}
INTERVALS = "Intervals are 95 %: Wilson's where each question stands once, else a bootstrap of whole questions."
_TEST = (
    "Differences are paired by question and condition, over the pairs that both have scored; p by flipping the signs "
    "of whole questions (McNemar's exact test where each stands once)"
)


@dataclass(frozen=True, slots=True)
class Group:
    """One row: its outcomes, and those of its baseline where it has one."""

    labels: tuple[Cell, ...]
    outcomes: Sequence[Outcome]
    against: Sequence[Outcome] = ()
    pair: tuple[str, ...] = ()
    """Conditions in which the two of a pair are alike, beside the question; where several outcomes are alike in them,
    their mean is taken."""
    more: tuple[Cell, ...] = ()
    """Cells between the figures and the difference."""
    tested: bool = True
    """False: the difference is shown and is no hypothesis, as that of an upper bound."""


def score(outcome: Outcome, measure: AccuracyMeasure) -> float | None:
    """1 right, 0 not, `None` not scored."""
    if outcome.state == "answered":
        return float(bool(outcome.right))
    return 0.0 if measure == "right" and outcome.state not in ("failed", _NOT_ASKED) else None


def rows_of(groups: Sequence[Group], measure: AccuracyMeasure, seed: int = 0) -> tuple[tuple[Cell, ...], ...]:
    """Labels, the FIGURES, what more there is, the difference to the baseline and its corrected p."""
    differences = [difference(group, measure, seed) for group in groups]
    corrected = corrected_p([found if group.tested else None for group, found in zip(groups, differences, strict=True)])
    return tuple(
        (*group.labels, mean(group.outcomes, measure, seed), *counts(group.outcomes), *group.more, found, p)
        for group, found, p in zip(groups, differences, corrected, strict=True)
    )


def mean(outcomes: Sequence[Outcome], measure: AccuracyMeasure, seed: int = 0) -> Mean:
    """Of the scores, clustered where a question stands there more than once."""
    questions = [outcome.question for outcome in outcomes]
    once = len(set(questions)) == len(questions)
    return mean_of([score(outcome, measure) for outcome in outcomes], None if once else questions, seed=seed)


def counts(outcomes: Iterable[Outcome]) -> tuple[int, ...]:
    """How many ended how, in the order of STATES."""
    ended = [_mark(outcome) for outcome in outcomes]
    return tuple(ended.count(state) for state in STATES)


def _mark(outcome: Outcome) -> str:
    if outcome.state == "answered":
        return "right" if outcome.right else "wrong"
    return "failed" if outcome.state == _NOT_ASKED else outcome.state


def difference(group: Group, measure: AccuracyMeasure, seed: int = 0) -> Difference | None:
    """The row's to its baseline; `None` without one, or without a pair that has scores on both sides."""
    first, second = (by_pair(each, group.pair, measure) for each in (group.outcomes, group.against))
    if not first.keys() & second.keys():
        return None
    return paired_difference(first, second, {pair: pair[0] for pair in first}, seed=seed)


def by_pair(outcomes: Iterable[Outcome], pair: Sequence[str], measure: AccuracyMeasure) -> dict[PairingKey, float]:
    """The mean score by (question, its conditions named in `pair`), of what is scored."""
    scores: dict[PairingKey, list[float]] = defaultdict(list)
    for outcome in outcomes:
        if (value := score(outcome, measure)) is not None:
            scores[(outcome.question, *(outcome.condition.get(name) for name in pair))].append(value)
    return {key: fmean(values) for key, values in scores.items()}


def corrected_p(differences: Sequence[Difference | None]) -> list[float | None]:
    """Holm's p of each difference there is, in their order."""
    corrected = iter(holm([each.p for each in differences if each is not None]))
    return [None if each is None else next(corrected) for each in differences]


def spread(outcomes: Iterable[Outcome], over: str, measure: AccuracyMeasure) -> float | None:
    """The standard deviation (n - 1) of the means at each value of a condition; `None` where it has but one value."""
    scores: dict[Hashable, list[float]] = defaultdict(list)
    for outcome in outcomes:
        if (value := score(outcome, measure)) is not None:
            scores[outcome.condition.get(over)].append(value)
    return stdev(map(fmean, scores.values())) if len(scores) > 1 else None


def chance(outcomes: Iterable[Outcome]) -> tuple[str, ...]:
    """A note: what guessing would get; none without a question."""
    shares = {outcome.question: outcome.chance for outcome in outcomes if outcome.chance is not None}
    if not shares:
        return ()
    value = 100 * fmean(shares.values())
    return (f"Guessing among the options would be right in {value:.1f} % of the {len(shares):,} questions.",)


def left_out(outcomes: Iterable[Outcome]) -> tuple[str, ...]:
    """A note where cases were answered from less than they were given."""
    partly = sum(outcome.state != "failed" and outcome.failed_parts > 0 for outcome in outcomes)
    if not partly:
        return ()
    return (
        f"Of {partly} cases some parts could not be read and were left out; they are scored by what came of the rest.",
    )


def notes(measure: AccuracyMeasure, comparisons: int, more: Sequence[str] = ()) -> tuple[str, ...]:
    """What a reader needs beside any such table, `comparisons` of it tested."""
    corrected = f", corrected by Holm for this table's {comparisons} comparisons" if comparisons > 1 else ""
    test = (f"{_TEST}{corrected}.",) if comparisons else ()
    return (_MEASURES[measure], INTERVALS, *test, *more)


def table(
    title: str,
    labels: Sequence[str],
    groups: Sequence[Group],
    *,
    baseline: str,
    measure: AccuracyMeasure,
    more: Sequence[str] = (),
    remarks: Sequence[str] = (),
    seed: int = 0,
) -> Table:
    """One row a group. `labels` and `more` head the cells that each group brings; `baseline` names what the
    differences are to."""
    rows = rows_of(groups, measure, seed)
    compared = sum(row[-1] is not None for row in rows)
    everyone = [outcome for group in groups for outcome in group.outcomes]
    columns = (*labels, *FIGURES, *more, f"difference to {baseline}", P)
    return Table(title, columns, rows, notes(measure, compared, (*chance(everyone), *left_out(everyone), *remarks)))
