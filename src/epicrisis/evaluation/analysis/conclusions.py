"""What a table shows, and what it does not, in plain sentences.

Shown is a difference whose corrected p is at most 0.05; one that is not shown is said with the difference that so many
questions could have shown. Bounds, which are not tested, are no findings. Nothing is said of causes. Knows no
experiment: it goes by the columns, a column of differences and next to it the one of their corrected p values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from epicrisis.evaluation.analysis.sample_size import ALPHA, POWER, often, points, smallest_difference
from epicrisis.evaluation.analysis.statistics import Difference
from epicrisis.evaluation.analysis.table import Table
from epicrisis.evaluation.analysis.table_text import AGAINST, is_p, labels, p_told

TO = "difference to "
"""Begins the heading of differences to a baseline, which it names."""
MEASURE = "measured by"
"""Heads the names of what a row's difference is of; without it that is the share right."""
PATIENTS = "patients compared"
"""Heads how many patients a row's difference is over, where they and not questions are the clusters."""
_SUBJECTS = ("run", "arm")
"""Columns that name what was right more often, or less."""
_EACH = 3
"""So many comparisons without a finding are said one by one, more in one sentence."""


@dataclass(frozen=True, slots=True)
class _Compared:
    """One tested difference of a table."""

    where: str
    """Which row it is, without subject and other; may be empty."""
    subject: str
    """Empty where the row does not name one."""
    other: str
    heading: str
    difference: Difference
    p: float
    comparisons: int
    """Of the whole table."""
    measure: str = ""
    """What the difference is of; empty: the share right."""
    of_patients: bool = False
    """Whether its clusters are patients, each with questions."""

    @property
    def sample(self) -> str:
        """What it is over: `40 questions`, `40 questions of 8 patients`."""
        if not self.of_patients:
            return _many(self.difference.clusters, "question")
        return f"{_many(self.difference.n, 'question')} of {_many(self.difference.clusters, 'patient')}"


def conclusions(table: Table) -> tuple[str, ...]:
    """A sentence for each difference that was shown and for those that were not, column by column; none where the table
    tests none. Differences are shares and are told in percentage points."""
    columns = _columns(table)
    comparisons = sum(row[i + 1] is not None for i in columns for row in table.rows)
    return tuple(sentence for i in columns for sentence in _sentences(_compared(table, i, comparisons)))


def smallest(difference: Difference, comparisons: int = 1, power: float = POWER) -> float | None:
    """The least difference, as a share, that a comparison of so many questions with such a spread finds at this power,
    corrected for so many comparisons; `None` where no difference whatever would be found.

    The spread is the interval's, so that places and repeats of a question count for as much as they tell; what is a
    mean over them is counted in steps of what a question that differs differs by.
    """
    interval, n = difference.interval, difference.clusters
    error = (interval.high - interval.low) / 2 / NormalDist().inv_cdf(0.5 + interval.confidence / 2)
    # The share of questions one step apart that would give this error (the variance of a paired difference).
    discordant = min(1.0, (n * error * error + difference.value**2) / difference.step**2)
    found = smallest_difference(n, discordant, power, ALPHA / max(1, comparisons))
    return None if found is None else difference.step * found


def _columns(table: Table) -> list[int]:
    """Of differences that have their corrected p beside them."""
    pairs = zip(table.columns, table.columns[1:], strict=False)
    return [
        i
        for i, (_, head) in enumerate(pairs)
        if is_p(head) and any(isinstance(row[i], Difference) for row in table.rows)
    ]


def _compared(table: Table, i: int, comparisons: int) -> list[_Compared]:
    """The tested differences of a column."""
    heading = table.columns[i]
    named = next((each for each in _SUBJECTS if each in table.columns), None) if heading.startswith(TO) else None
    names = labels(table, () if named is None else (named, AGAINST))
    telling = named is None or len({*names}) > 1
    made = []
    for row, name in zip(table.rows, names, strict=True):
        found, p = row[i], row[i + 1]
        if p is None:
            continue
        if not isinstance(found, Difference) or not isinstance(p, float):
            raise TypeError(f"table {table.title!r}: {heading!r} has a p value without a difference")
        said = dict(zip(table.columns, row, strict=True))
        subject = "" if named is None else str(said[named])
        other = str(said.get(AGAINST, heading.removeprefix(TO)))
        where, measure = name if telling else "", str(said.get(MEASURE) or "")
        of_patients = said.get(PATIENTS) is not None
        made.append(_Compared(where, subject, other, heading, found, p, comparisons, measure, of_patients))
    return made


def _sentences(compared: Sequence[_Compared]) -> Iterator[str]:
    shown = [each for each in compared if each.p <= ALPHA]
    rest = [each for each in compared if each.p > ALPHA]
    yield from map(_shown, shown)
    if len(rest) > _EACH:
        yield (
            f"In {len(rest)} of {len(compared)} comparisons ({rest[0].heading}; p above {ALPHA:g} in the table) no "
            f"difference was shown; this is no proof that there is none: {_could(rest)}."
        )
    else:
        for each in rest:
            yield f"{_not_shown(each)}; this is no proof that there is none: {_could([each])}."
    if shown and not rest:
        yield f"Smaller differences would be missed: {_could(shown)}."


def _shown(each: _Compared) -> str:
    value = each.difference.value
    told = f"({_test(each, less=bool(each.subject) and value < 0)}, {each.sample})"
    if not each.subject:
        return f"{_where(each)}{each.heading} {_signed(value)} {told}."
    if each.measure:
        amount = f"{points(abs(value))} {'above' if value > 0 else 'below'}"
        return f"{_where(each)}{each.subject} was {amount} {each.other} in {each.measure} {told}."
    amount = f"{points(abs(value))} {'more' if value > 0 else 'less'} often"
    return f"{_where(each)}{each.subject} was right {amount} than {each.other} {told}."


def _not_shown(each: _Compared) -> str:
    told = f"{_signed(each.difference.value)} ({_test(each)})"
    if not each.subject:
        return f"{_where(each)}{each.heading} was not shown to differ from 0: {told}"
    no = "no" if each.where else "No"
    return f"{_where(each)}{no} difference between {each.subject} and {each.other} was shown: {told}"


def _where(each: _Compared) -> str:
    return f"{each.where}: " if each.where else ""


def _test(each: _Compared, *, less: bool = False) -> str:
    """Interval and p; `less`: of how much less it is."""
    interval = each.difference.interval
    low, high = (-interval.high, -interval.low) if less else (interval.low, interval.high)
    corrected = f", corrected for {each.comparisons} comparisons" if each.comparisons > 1 else ""
    return f"{100 * interval.confidence:g} % interval {100 * low:.1f} to {100 * high:.1f}; {p_told(each.p)}{corrected}"


def _could(compared: Sequence[_Compared]) -> str:
    """What these comparisons would find, were it there."""
    found = [smallest(each.difference, each.comparisons) for each in compared]
    least = [each for each in found if each is not None]
    whole = _samples(compared)
    if not least:
        return f"with {whole} no difference whatever would be found in {often(POWER)} such studies"
    low, high = points(min(least)), points(max(least))
    span = low if low == high else f"{low.partition(' ')[0]} to {high}"
    of = "" if len(least) == len(found) else f" (in {len(found) - len(least)} of them none whatever)"
    return f"with {whole} a difference of {span} would be found in {often(POWER)} such studies{of}"


def _samples(compared: Sequence[_Compared]) -> str:
    if len({each.sample for each in compared}) == 1:
        return compared[0].sample
    clusters = [each.difference.clusters for each in compared]
    what = "patients" if any(each.of_patients for each in compared) else "questions"
    low, high = min(clusters), max(clusters)
    return f"{low} to {high} {what}" if low < high else _many(low, what.removesuffix("s"))


def _many(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def _signed(share: float) -> str:
    return f"+{points(share)}" if share > 0 else points(share)
