"""Tables of accuracy from outcomes: means with intervals, counts of states, and paired differences to a baseline.

Questions are the clusters of every comparison (errata B9). The p values of one table are corrected together (Holm).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import add
from statistics import fmean, stdev
from typing import Literal, TypeAlias, TypeVar

from epicrisis.core.printable import agree, count_noun
from epicrisis.evaluation.analysis.statistics import (
    Difference,
    Interval,
    Mean,
    estimate_mean,
    holm,
    paired_difference,
)
from epicrisis.evaluation.analysis.table import Cell, Table
from epicrisis.evaluation.runs.outcomes import Outcome

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

AccuracyMeasure: TypeAlias = Literal["right", "right-of-answered"]
"""`right`: the share right of all cases; abstained, unparsed and failed ones are not right.
`right-of-answered`: the share right of the cases with a choice."""

PairingKey: TypeAlias = tuple[Hashable, ...]
"""The key of a question, then the conditions that the two cases of a pair share."""

STATES = ("right", "wrong", "abstained", "unparsed", "failed")
_OVER_WINDOW = "over-window"
"""Counted as failed here, as no call was made. Tables about patient records count it separately."""
FAILED_SHARE = 0.01
"""A larger share of failed cases is shown with bounds: a lost reply may have been right or wrong."""
SHARE_BOUNDS, DIFFERENCE_BOUNDS = "share right, bounds", "difference, bounds"
SHARE_COLUMN = "share right"
P_COLUMN = "p (Holm)"
FIGURES = (SHARE_COLUMN, *STATES)

_MEASURES: Mapping[AccuracyMeasure, str] = {
    "right": "Share right: of all cases. Abstained, unparsed and failed ones are not right, and are counted "
    "separately.",
    "right-of-answered": "Share right: of the cases with a choice. All others have no score, and are counted "
    "separately.",
}
INTERVALS = "Intervals are 95 %: Wilson's if each question occurs once, otherwise a bootstrap of questions."
_TEST = (
    "Differences are paired by question and condition, over the cases that both were asked; p by flipping the signs of "
    "questions (McNemar's exact test if each question occurs once)"
)
_BOUNDS = (
    "Bounds: the figure if the replies of all failed calls had been wrong, and if they had been right; of a difference "
    "the lowest and the highest. They are given where more than 1 % of the cases failed."
)


@dataclass(frozen=True, slots=True)
class Group:
    """The outcomes of one row of a table, and those of its baseline."""

    labels: tuple[Cell, ...]
    outcomes: Sequence[Outcome]
    against: Sequence[Outcome] = ()
    pair: tuple[str, ...] = ()
    """Conditions that the two cases of a pair share, besides the question. If several outcomes share them, their mean
    counts."""
    extra_cells: tuple[Cell, ...] = ()
    """Cells between the figures and the difference."""
    tested: bool = True
    """False for a difference that is displayed and not tested, such as that of an upper bound."""


def score_outcome(outcome: Outcome, measure: AccuracyMeasure = "right") -> float | None:
    """Return 1 for right, 0 for not right, or None for a case without a score.

    A case without an answer is not right, whatever the reason, so that every arm has all of its cases in its share.
    Under `right-of-answered` it has no score, and neither has an answer that no judge has marked.
    """
    if outcome.is_unmarked:
        return None
    if outcome.state == "answered":
        return float(bool(outcome.right))
    return 0.0 if measure == "right" else None


def mean_score(outcomes: Sequence[Outcome], measure: AccuracyMeasure = "right") -> Mean:
    """Return the mean score, clustered by question if a question occurs more than once."""
    questions = [outcome.question for outcome in outcomes]
    clusters = None if len(set(questions)) == len(questions) else questions
    return estimate_mean(list(map(partial(score_outcome, measure=measure), outcomes)), clusters)


def count_endings(outcomes: Iterable[Outcome]) -> tuple[int, ...]:
    """Return the number of cases in each of the STATES."""
    counts: Counter[str] = Counter()
    for outcome in outcomes:
        if outcome.state == "answered":
            counts["right" if outcome.right else "wrong"] += 1
        else:
            counts["failed" if outcome.state == _OVER_WINDOW else outcome.state] += 1
    return tuple(counts[state] for state in STATES)


def compare_to_baseline(group: Group, measure: AccuracyMeasure = "right") -> Difference | None:
    """Return the difference of a group to its baseline, or None if no pair has two scores."""
    first = mean_by_pair(group.outcomes, group.pair, measure)
    second = mean_by_pair(group.against, group.pair, measure)
    if not first.keys() & second.keys():
        return None
    return paired_difference(first, second, dict(zip(first, (item[0] for item in first), strict=True)))


def assume_replies(outcomes: Sequence[Outcome], *, right: bool) -> list[Outcome]:
    """Return the outcomes as they would be if the lost replies of all failed cases had been right, or wrong."""
    return [replace(outcome, state="answered", right=right) if outcome.is_lost else outcome for outcome in outcomes]


def exceed_failed_share(*sides: Sequence[bool]) -> bool:
    """Return whether the shares of failed cases of these sides, True for a failed one, exceed FAILED_SHARE together."""
    return sum(sum(side) / max(1, len(side)) for side in sides) > FAILED_SHARE


def has_bounds(*sides: Sequence[Outcome]) -> bool:
    """Return whether so many cases failed that their figures are given with bounds."""
    return exceed_failed_share(*([outcome.is_lost for outcome in outcomes] for outcomes in sides))


def bound_share(outcomes: Sequence[Outcome], mean: Callable[[Sequence[Outcome]], Mean] = mean_score) -> Interval | None:
    """Return the share right if all failed calls were wrong, and if all were right; None for too few failures."""
    if not has_bounds(outcomes):
        return None
    low, high = (mean(assume_replies(outcomes, right=right)).value for right in (False, True))
    return Interval(low, high, 1.0)


def bound_difference(
    group: Group, compare: Callable[[Group], Difference | None] = compare_to_baseline
) -> Interval | None:
    """Return the lowest and the highest difference that the lost replies of both sides allow; None as `bound_share`."""
    if not has_bounds(group.outcomes, group.against):
        return None
    limits: list[float] = []
    for right in (False, True):
        ours, theirs = assume_replies(group.outcomes, right=right), assume_replies(group.against, right=not right)
        difference = compare(replace(group, outcomes=ours, against=theirs))
        if difference is None:
            return None
        limits.append(difference.value)
    return Interval(limits[0], limits[1], 1.0)


def add_bounds(
    columns: Sequence[str], rows: Sequence[tuple[Cell, ...]], bounds: Mapping[str, Sequence[Interval | None]]
) -> tuple[tuple[str, ...], list[tuple[Cell, ...]], tuple[str, ...]]:
    """Return columns and rows with those of these columns that have a value, and a note if there are any."""
    filled = {heading: cells for heading, cells in bounds.items() if any(cell is not None for cell in cells)}
    wider = [(*row, *(cells[index] for cells in filled.values())) for index, row in enumerate(rows)]
    return (*columns, *filled), wider, (_BOUNDS,) if filled else ()


def mean_by_pair(
    outcomes: Iterable[Outcome], pair: Sequence[str], measure: AccuracyMeasure = "right"
) -> dict[PairingKey, float]:
    """Return the mean score of each question under each combination of the conditions named in `pair`."""

    def key(outcome: Outcome) -> PairingKey:
        return (outcome.question, *(outcome.condition.get(item) for item in pair))

    return mean_by(outcomes, key, partial(score_outcome, measure=measure))


def mean_by(items: Iterable[T], key: Callable[[T], K], score: Callable[[T], float | None]) -> dict[K, float]:
    """Return the mean score of the items with each key. Items without a score have no influence."""
    scores: dict[K, list[float]] = defaultdict(list)
    for item in items:
        value = score(item)
        if value is not None:
            scores[key(item)].append(value)
    return dict(zip(scores, map(fmean, scores.values()), strict=True))


def correct_p_values(hypotheses: Iterable[Difference | float | None]) -> list[float | None]:
    """Return the p values of differences, or these p values, after Holm's correction; None stays None."""
    p_values: dict[int, float] = {}
    corrected: list[float | None] = []
    for index, hypothesis in enumerate(hypotheses):
        corrected.append(None)
        if hypothesis is not None:
            p_values[index] = hypothesis.p if isinstance(hypothesis, Difference) else hypothesis
    for index, p in zip(p_values, holm(list(p_values.values())), strict=True):
        corrected[index] = p
    return corrected


def add_differences(
    rows: Sequence[tuple[Cell, ...]], differences: Sequence[Difference | None]
) -> tuple[tuple[Cell, ...], ...]:
    """Return each row with its difference and the difference's corrected p at the end."""
    ends = zip(differences, correct_p_values(differences), strict=True)
    return tuple(map(add, rows, ends))


def group_by(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Group items by their key, in the order in which the keys first appear."""
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def spread_over(outcomes: Iterable[Outcome], condition: str) -> float | None:
    """Return the standard deviation (n - 1) of the mean scores at each value of a condition.

    None if the condition has only one value.
    """
    means: dict[Cell, float] = mean_by(outcomes, lambda outcome: outcome.condition.get(condition), score_outcome)
    return stdev(means.values()) if len(means) > 1 else None


def describe_chance(outcomes: Iterable[Outcome]) -> tuple[str, ...]:
    """Return a note on the accuracy of guessing; no note without questions with options."""
    shares = {outcome.question: outcome.chance for outcome in outcomes if outcome.chance is not None}
    if not shares:
        return ()
    value = 100 * fmean(shares.values())
    return (
        f"Guessing among the options would be right in {value:.1f} % of the {count_noun(len(shares), 'question')}.",
    )


def describe_failures(outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    """Return a note on failed cases, for a table without bounds; no note for few."""
    if not has_bounds(outcomes):
        return ()
    failed = sum(outcome.state == "failed" for outcome in outcomes)
    return (
        f"{failed} of {count_noun(len(outcomes), 'case')} failed and {agree(failed, 'counts', 'count')} as not right "
        "here. The tables of the shares right have the bounds.",
    )


def describe_omitted_parts(outcomes: Iterable[Outcome]) -> tuple[str, ...]:
    """Return notes on cases that were answered without some of their parts, and on withheld answers, if any."""
    outcomes = tuple(outcomes)
    notes: list[str] = []
    partly = sum(outcome.state in ("answered", "abstained") and outcome.unread_parts > 0 for outcome in outcomes)
    if partly:
        notes.append(
            f"In {count_noun(partly, 'case')} some parts could not be read and were left out. These cases are "
            "scored as they are."
        )
    withheld = sum(outcome.is_withheld for outcome in outcomes)
    if withheld:
        notes.append(
            f"{count_noun(withheld, 'answer')} without a verified quotation {agree(withheld, 'is', 'are')} among the "
            "abstained, because users do not get such answers (unverified = abstain)."
        )
    return tuple(notes)


def make_notes(comparisons: int, remarks: Sequence[str] = (), measure: AccuracyMeasure = "right") -> tuple[str, ...]:
    """Return the notes of a table of accuracy with this number of tested comparisons."""
    corrected = f", corrected by Holm for this table's {comparisons} comparisons" if comparisons > 1 else ""
    test = (f"{_TEST}{corrected}.",) if comparisons else ()
    return (_MEASURES[measure], INTERVALS, *test, *remarks)


def make_accuracy_table(
    title: str,
    labels: Sequence[str],
    groups: Sequence[Group],
    *,
    baseline: str,
    extra_columns: Sequence[str] = (),
    remarks: Sequence[str] = (),
) -> Table:
    """Return a table with a row for each group.

    `labels` and `extra_columns` are the headings of each group's cells. `baseline` names the baseline in the
    heading of the differences.
    """
    rows: list[tuple[Cell, ...]] = []
    differences: list[Difference | None] = []
    hypotheses: list[Difference | None] = []
    outcomes: list[Outcome] = []
    for group in groups:
        difference = compare_to_baseline(group)
        differences.append(difference)
        hypotheses.append(difference if group.tested else None)
        outcomes += group.outcomes
        mean, counts = mean_score(group.outcomes), count_endings(group.outcomes)
        rows.append((*group.labels, mean, *counts, *group.extra_cells))
    comparisons = len(hypotheses) - hypotheses.count(None)
    ends = zip(differences, correct_p_values(hypotheses), strict=True)
    columns, rows, note = add_bounds((*labels, *FIGURES, *extra_columns), rows, make_bounds(groups))
    remarks = (*note, *describe_chance(outcomes), *describe_omitted_parts(outcomes), *remarks)
    columns = (*columns, f"difference to {baseline}", P_COLUMN)
    return Table(title, columns, tuple(map(add, rows, ends)), make_notes(comparisons, remarks))


def make_bounds(groups: Iterable[Group]) -> dict[str, list[Interval | None]]:
    """Return the bounds of each group's share and difference, by column."""
    groups = tuple(groups)
    return {
        SHARE_BOUNDS: [bound_share(group.outcomes) for group in groups],
        DIFFERENCE_BOUNDS: [bound_difference(group) for group in groups],
    }
