"""Tables of accuracy from outcomes: means with intervals, counts of states, and paired differences to a baseline.

Questions are the clusters of every comparison (errata B9). The p values of one table are corrected together (Holm).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import add, attrgetter, itemgetter
from statistics import fmean, stdev
from typing import Literal, TypeAlias, TypeVar

from epicrisis.evaluation.analysis.statistics import Difference, Mean, estimate_mean, holm, paired_difference
from epicrisis.evaluation.analysis.table import Cell, Table
from epicrisis.evaluation.runs.outcomes import Outcome
from epicrisis.printable import count_noun

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

AccuracyMeasure: TypeAlias = Literal["right", "right-of-answered"]
"""`right`: the share right of all cases that did not fail; abstained and unparsed answers are not right.
`right-of-answered`: the share right of the cases with a choice."""

PairingKey: TypeAlias = tuple[Hashable, ...]
"""The key of a question, then the conditions that the two cases of a pair share."""

STATES = ("right", "wrong", "abstained", "unparsed", "failed")
_OVER_WINDOW = "over-window"
"""Counted as failed here, as it has no score either. Tables about patient records count it separately."""
SHARE_COLUMN = "share right"
P_COLUMN = "p (Holm)"
FIGURES = (SHARE_COLUMN, *STATES)

_MEASURES: Mapping[AccuracyMeasure, str] = {
    "right": "Share right: of all cases that did not fail. Abstained and unparsed answers are not right, and are "
    "counted separately.",
    "right-of-answered": "Share right: of the cases with a choice. All others have no score, and are counted "
    "separately.",
}
INTERVALS = "Intervals are 95 %: Wilson's if each question occurs once, otherwise a bootstrap of questions."
_TEST = (
    "Differences are paired by question and condition, over the pairs with two scores; p by flipping the signs of "
    "questions (McNemar's exact test if each question occurs once)"
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
    """Return 1 for right, 0 for not right, or None for a case without a score."""
    if outcome.state == "answered":
        return float(bool(outcome.right))
    return 0.0 if measure == "right" and outcome.state not in ("failed", _OVER_WINDOW) else None


def mean_score(outcomes: Sequence[Outcome], measure: AccuracyMeasure = "right") -> Mean:
    """Return the mean score, clustered by question if a question occurs more than once."""
    questions = list(map(attrgetter("question"), outcomes))
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
    return tuple(map(counts.__getitem__, STATES))


def compare_to_baseline(group: Group, measure: AccuracyMeasure = "right") -> Difference | None:
    """Return the difference of a group to its baseline, or None if no pair has two scores."""
    first = mean_by_pair(group.outcomes, group.pair, measure)
    second = mean_by_pair(group.against, group.pair, measure)
    if not first.keys() & second.keys():
        return None
    return paired_difference(first, second, dict(zip(first, map(itemgetter(0), first), strict=True)))


def mean_by_pair(
    outcomes: Iterable[Outcome], pair: Sequence[str], measure: AccuracyMeasure = "right"
) -> dict[PairingKey, float]:
    """Return the mean score of each question under each combination of the conditions named in `pair`."""

    def key(outcome: Outcome) -> PairingKey:
        return (outcome.question, *map(outcome.condition.get, pair))

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


def spread_over(outcomes: Iterable[Outcome], condition: str, measure: AccuracyMeasure = "right") -> float | None:
    """Return the standard deviation (n - 1) of the mean scores at each value of a condition.

    None if the condition has only one value.
    """
    score = partial(score_outcome, measure=measure)
    means: dict[Cell, float] = mean_by(outcomes, lambda outcome: outcome.condition.get(condition), score)
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


def describe_omitted_parts(outcomes: Iterable[Outcome]) -> tuple[str, ...]:
    """Return a note on cases that were answered without some of their parts; no note if there are none."""
    cases = sum(outcome.state != "failed" and outcome.failed_parts > 0 for outcome in outcomes)
    if not cases:
        return ()
    return (
        f"In {count_noun(cases, 'case')} some parts could not be read and were left out. These cases are "
        "scored as they are.",
    )


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
    measure: AccuracyMeasure = "right",
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
        difference = compare_to_baseline(group, measure)
        differences.append(difference)
        hypotheses.append(difference if group.tested else None)
        outcomes += group.outcomes
        mean, counts = mean_score(group.outcomes, measure), count_endings(group.outcomes)
        rows.append((*group.labels, mean, *counts, *group.extra_cells))
    comparisons = len(hypotheses) - hypotheses.count(None)
    ends = zip(differences, correct_p_values(hypotheses), strict=True)
    remarks = (*describe_chance(outcomes), *describe_omitted_parts(outcomes), *remarks)
    columns = (*labels, *FIGURES, *extra_columns, f"difference to {baseline}", P_COLUMN)
    return Table(title, columns, tuple(map(add, rows, ends)), make_notes(comparisons, remarks, measure))
