"""Conclusions from a table in plain sentences: the differences that it shows, and those that it does not.

A difference is shown if its corrected p value is at most 0.05. Others are reported with the smallest difference
detectable with this number of questions. Columns of differences are recognised by the column of corrected p values
that follows. Bounds, which are not tested, are not reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from epicrisis.core.printable import agree, count_noun
from epicrisis.evaluation.analysis.grouping import SHARE_COLUMN
from epicrisis.evaluation.analysis.sample_size import ALPHA, POWER, format_points, format_power, smallest_difference
from epicrisis.evaluation.analysis.statistics import Difference, Mean
from epicrisis.evaluation.analysis.table import Table
from epicrisis.evaluation.analysis.table_text import AGAINST, format_p_equation, is_p_column, label_row

DIFFERENCE_TO = "difference to "
"""The beginning of the heading of differences to a baseline; the baseline follows."""
MEASURE_COLUMN = "measured by"
"""The heading of what the difference of a row is about. Without this column it is the share right."""
PATIENTS_COLUMN = "patients compared"
"""The heading of the number of patients, if these and not questions are the clusters."""
_SUBJECTS = ("run", "arm")
"""Columns that name what was right more or less often."""
_SEPARATE = 3
"""The number of comparisons that get a sentence each; more of them share one sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Comparison:
    """One tested difference of a table."""

    prefix: str
    """The name of the row without subject and baseline, and a colon; may be empty."""
    subject: str
    """Empty if the row does not name one."""
    other: str
    heading: str
    difference: Difference
    p: float
    comparisons: int
    """The number of comparisons in the table."""
    measure: str = ""
    """Empty for the share right."""
    by_patient: bool = False
    """Whether patients are the clusters."""

    @property
    def sample(self) -> str:
        """The sample in words: `40 questions`, `40 questions of 8 patients`."""
        if not self.by_patient:
            return _count(self.difference.clusters, "question")
        return f"{_count(self.difference.n, 'question')} of {_count(self.difference.clusters, 'patient')}"


def draw_conclusions(table: Table) -> tuple[str, ...]:
    """Return the conclusions of a table, column by column; none if the table has no tested difference.

    Differences are shares and are reported in percentage points.
    """
    comparisons = _count_tests(table)
    sentences: list[str] = []
    for index in _find_differences(table):
        sentences += _describe(_read_comparisons(table, index, comparisons))
    return tuple(sentences)


def _find_differences(table: Table) -> list[int]:
    """Return the indexes of the columns of tested differences."""
    columns: list[int] = []
    for index, heading in enumerate(table.columns[1:]):
        if is_p_column(heading) and any(isinstance(row[index], Difference) for row in table.rows):
            columns.append(index)
    return columns


def _count_tests(table: Table) -> int:
    """Return the number of tested differences of a table, for which p values are corrected."""
    return sum(row[index + 1] is not None for index in _find_differences(table) for row in table.rows)


def draw_headline(table: Table) -> str:
    """Return one sentence on the first differences of a table, or empty without a tested difference.

    Of several comparisons it states how many show a difference, and the largest one.
    """
    for index in _find_differences(table):
        comparisons = _read_comparisons(table, index, _count_tests(table))
        if comparisons:
            return _summarize(comparisons)
    return ""


def describe_shares(table: Table) -> str:
    """Return one sentence on the highest and the lowest share right of an untested table, or empty without shares."""
    subject_column = next((name for name in _SUBJECTS if name in table.columns), None)
    if subject_column is None or SHARE_COLUMN not in table.columns:
        return ""
    shares: list[tuple[str, Mean]] = []
    for subject, cell in zip(table.column(subject_column), table.column(SHARE_COLUMN), strict=True):
        if isinstance(cell, Mean) and cell.n:
            shares.append((str(subject), cell))
    if not shares:
        return ""
    best, worst = max(shares, key=_share_of), min(shares, key=_share_of)
    if _share_of(best) == _share_of(worst):
        return f"The share right was {_describe_share(best[1])} with {best[0]}."
    return (
        f"The share right was highest with {best[0]}, {_describe_share(best[1])}, and lowest with {worst[0]}, "
        f"{_describe_share(worst[1])}; the difference was not tested."
    )


def _share_of(share: tuple[str, Mean]) -> float:
    return share[1].value


def _describe_share(share: Mean) -> str:
    interval = share.interval
    limits = f"{100 * interval.confidence:g} % interval {100 * interval.low:.1f} to {100 * interval.high:.1f}"
    return f"{100 * share.value:.1f} % ({limits}; {_count(share.n, 'question')})"


def _summarize(comparisons: Sequence[_Comparison]) -> str:
    significant = [comparison for comparison in comparisons if comparison.p <= ALPHA]
    if len(comparisons) == 1 or not significant:
        return next(_describe(comparisons))
    largest = _describe_difference(max(significant, key=lambda comparison: abs(comparison.difference.value)))
    if len(significant) == len(comparisons):
        counts = f"All {len(comparisons)} comparisons"
    else:
        counts = f"{len(significant)} of {len(comparisons)} comparisons"
    verb = agree(len(significant), "shows", "show")
    return f"{counts} ({comparisons[0].heading}) {verb} a difference. The largest: {largest}"


def smallest_shown(difference: Difference, comparisons: int = 1) -> float | None:
    """Return the smallest difference, as a share, that a comparison like this one shows with POWER.

    It has as many questions, the same spread, and p values corrected for `comparisons`. The spread is that of the
    interval, so that positions and repeats of a question count for what they contribute. Returns None if no difference
    would be shown.
    """
    interval, n = difference.interval, difference.clusters
    error = (interval.high - interval.low) / 2 / NormalDist().inv_cdf(0.5 + interval.confidence / 2)
    # The share of questions, one step apart, that gives this error (the variance of a paired difference).
    discordant = min(1.0, (n * error * error + difference.value**2) / difference.step**2)
    steps = smallest_difference(n, discordant, POWER, ALPHA / max(1, comparisons))
    return None if steps is None else difference.step * steps


def _read_comparisons(table: Table, column: int, comparisons: int) -> list[_Comparison]:
    heading, subject_column = table.columns[column], None
    if heading.startswith(DIFFERENCE_TO):
        subject_column = next((name for name in _SUBJECTS if name in table.columns), None)
    unlabelled = () if subject_column is None else (subject_column, AGAINST)
    names = [label_row(table, row, unlabelled) for row in table.rows]
    distinct = subject_column is None or len(set(names)) > 1
    results: list[_Comparison] = []
    for row, name in zip(table.rows, names, strict=True):
        difference, p = row[column], row[column + 1]
        if p is None:
            continue
        if not isinstance(difference, Difference) or not isinstance(p, float):
            raise TypeError(f"table {table.title!r}: {heading!r} has a p value without a difference")
        cells = dict(zip(table.columns, row, strict=True))
        comparison = _Comparison(
            prefix=f"{name}: " if distinct and name else "",
            subject="" if subject_column is None else str(cells[subject_column]),
            other=str(cells.get(AGAINST, heading.removeprefix(DIFFERENCE_TO))),
            heading=heading,
            difference=difference,
            p=p,
            comparisons=comparisons,
            measure=str(cells.get(MEASURE_COLUMN) or ""),
            by_patient=cells.get(PATIENTS_COLUMN) is not None,
        )
        results.append(comparison)
    return results


def _describe(comparisons: Sequence[_Comparison]) -> Iterator[str]:
    significant: list[_Comparison] = []
    rest: list[_Comparison] = []
    for comparison in comparisons:
        (significant if comparison.p <= ALPHA else rest).append(comparison)
    yield from map(_describe_difference, significant)
    if len(rest) > _SEPARATE:
        yield (
            f"In {len(rest)} of {count_noun(len(comparisons), 'comparison')} ({rest[0].heading}; p above {ALPHA:g} in "
            "the table) no "
            f"difference was shown, which does not prove that there is none: {_describe_power(rest)}."
        )
    else:
        for comparison in rest:
            result = f"{comparison.heading} was not shown to differ from 0"
            if comparison.subject:
                no = "no" if comparison.prefix else "No"
                result = f"{no} difference between {comparison.subject} and {comparison.other} was shown"
            yield (
                f"{comparison.prefix}{result}: {_format_signed(comparison.difference.value)} "
                f"({_describe_test(comparison)}); this does not prove that there is none: "
                f"{_describe_power([comparison])}."
            )
    if significant and not rest:
        yield f"Smaller differences would be missed: {_describe_power(significant)}."


def _describe_difference(comparison: _Comparison) -> str:
    value, subject = comparison.difference.value, comparison.subject
    test = f"({_describe_test(comparison, negate=bool(subject) and value < 0)}, {comparison.sample})"
    points = format_points(abs(value))
    if not subject:
        result = f"{comparison.heading} {_format_signed(value)}"
    elif comparison.measure:
        direction = "above" if value > 0 else "below"
        result = f"{subject} was {points} {direction} {comparison.other} in {comparison.measure}"
    else:
        direction = "more" if value > 0 else "less"
        result = f"{subject} was right {points} {direction} often than {comparison.other}"
    return f"{comparison.prefix}{result} {test}."


def _describe_test(comparison: _Comparison, *, negate: bool = False) -> str:
    """Return interval and p value, with `negate` those of the opposite difference."""
    interval = comparison.difference.interval
    low, high = (-interval.high, -interval.low) if negate else (interval.low, interval.high)
    corrected = f", corrected for {comparison.comparisons} comparisons" if comparison.comparisons > 1 else ""
    limits = f"{100 * interval.confidence:g} % interval {100 * low:.1f} to {100 * high:.1f}"
    return f"{limits}; {format_p_equation(comparison.p)}{corrected}"


def _describe_power(comparisons: Sequence[_Comparison]) -> str:
    """Return the differences that these comparisons would show."""
    differences: list[float] = []
    for comparison in comparisons:
        difference = smallest_shown(comparison.difference, comparison.comparisons)
        if difference is not None:
            differences.append(difference)
    sample, studies = comparisons[0].sample, format_power(POWER)
    if any(comparison.sample != sample for comparison in comparisons):
        clusters = [comparison.difference.clusters for comparison in comparisons]
        unit = "patient" if any(comparison.by_patient for comparison in comparisons) else "question"
        fewest, most = min(clusters), max(clusters)
        sample = f"{fewest} to {most} {unit}s" if fewest < most else _count(fewest, unit)
    if not differences:
        return f"with {sample} no difference whatever would be found in {studies} such studies"
    low, high = format_points(min(differences)), format_points(max(differences))
    span = low if low == high else f"{low.partition(' ')[0]} to {high}"
    without = len(comparisons) - len(differences)
    remark = f" (in {without} of them none whatever)" if without else ""
    return f"with {sample} a difference of {span} would be found in {studies} such studies{remark}"


def _count(n: int, unit: str) -> str:
    return f"{n:,} {unit}{'' if n == 1 else 's'}"


def _format_signed(share: float) -> str:
    return f"+{format_points(share)}" if share > 0 else format_points(share)
