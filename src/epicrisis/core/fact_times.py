"""Order structured facts whose times were written in several time zones.

    clock = FactClock.build(facts)
    first, last = clock.place(fact)    # minutes on the common clock

Facts with one offset from UTC, or without any, are ordered by their local time; facts with different offsets by their
instants. A fact without an offset among them may be of any of these offsets, so its place is a longer range. `Z` says
nothing of the place where a time was taken, so a fact without an offset may be of any time zone of the Earth.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from epicrisis.core.clinical_facts import ClinicalFact
from epicrisis.core.dates import TimeRange, is_before, time_range

_ANY_OFFSET = (timedelta(hours=-12), timedelta(hours=14))
_ZERO = timedelta(0)


@dataclass(frozen=True, slots=True)
class FactClock:
    """The clock on which some facts are compared: the offsets that a time without an offset may have."""

    lowest: timedelta = _ZERO
    highest: timedelta = _ZERO

    @staticmethod
    def build(facts: Iterable[ClinicalFact]) -> FactClock:
        """Return the clock for the comparison of these facts."""
        offsets = {fact.utc_offset for fact in facts if fact.time}
        has_others = "" in offsets
        shifts = [parse_offset(offset) for offset in offsets - {""}]
        if not shifts:
            return FactClock()
        if has_others and _ZERO in shifts:
            return FactClock(*_ANY_OFFSET)
        return FactClock(min(shifts), max(shifts))

    def place(self, fact: ClinicalFact) -> TimeRange | None:
        """Return the first and the last minute of a fact in UTC; None without a readable time."""
        local = local_range(fact)
        if local is None:
            return None
        if fact.utc_offset:
            shift = parse_offset(fact.utc_offset)
            return _subtract(local[0], shift), _subtract(local[1], shift)
        return _subtract(local[0], self.highest), _subtract(local[1], self.lowest)


def local_range(fact: ClinicalFact) -> TimeRange | None:
    """Return the first and the last minute of a fact in its local time; None without a readable time."""
    try:
        return time_range(fact.time) if fact.time else None
    except ValueError:
        return None


def parse_offset(offset: str) -> timedelta:
    """Return an offset from UTC such as `+01:00`; zero for another text."""
    hours, _, minutes = offset[1:].partition(":")
    if offset[:1] not in ("+", "-") or not (hours.isdecimal() and minutes.isdecimal()):
        return _ZERO
    shift = timedelta(hours=int(hours), minutes=int(minutes))
    return -shift if offset[0] == "-" else shift


def is_later(fact: ClinicalFact, other: ClinicalFact) -> bool:
    """Return whether a fact is certainly later than another one. A fact without a date is not."""
    clock = FactClock.build((fact, other))
    place, other_place = clock.place(fact), clock.place(other)
    return place is not None and other_place is not None and is_before(other_place, place)


def is_reordered(facts: Sequence[ClinicalFact]) -> bool:
    """Return whether the order of the facts by instants is not that of their local times."""
    if len({fact.utc_offset for fact in facts if fact.time}) < 2:
        return False
    clock = FactClock.build(facts)
    rows: list[tuple[TimeRange, TimeRange]] = []
    for fact in facts:
        local, place = local_range(fact), clock.place(fact)
        if local is not None and place is not None:
            rows.append((local, place))
    rows.sort()
    return any(later[1] < earlier[1] for earlier, later in pairwise(rows))


def _subtract(time: datetime, shift: timedelta) -> datetime:
    """Return a time minus an offset; the first or the last time of the calendar beyond its ends."""
    try:
        return time - shift
    except OverflowError:
        return datetime.min if shift > _ZERO else datetime.max
