"""The times of a patient's notes and hospital stays.

Times are compared by their possible values, never as text.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from epicrisis.core.dates import TimeRange, is_before, may_overlap, time_range
from epicrisis.core.types import Passage
from epicrisis.retrieval.time_expressions import NOTE_KINDS

SUMMARY = "discharge summary"
LATE = timedelta(days=30)
"""How long after its subject a note may be dated: the time within which hospitals complete a record."""
_LATE_REPORT, _LATE_BEDSIDE = timedelta(days=14), timedelta(days=3)
EARLY = timedelta(days=1)
"""Maximum difference between the clocks and time zones of two systems."""
MAX_STAY = timedelta(days=30)
"""A stay without a day of admission is assumed to begin at most this long before its first note."""
_NEVER = (datetime.max, datetime.max)
_OPERATION = re.compile(r"operati(?:ve|on)|surgical (?:note|report)|\bop (?:note|report)")
_PROCEDURE = re.compile(r"procedur|cath(?:eteri[sz]ation)? (?:note|report)|endoscop")
_NO_OPERATION = re.compile(r"\bpre|\bpost|consult|progress|consent|plan|clinic|nurs|discharge|instruct")
_BEDSIDE = re.compile(r"progress|nurs|\blab|vital|respiratory|flow ?sheet")
_REPORT = re.compile(
    r"radiolog|imaging|x-?ray|\bxr\b|\bcxr\b|\bct\b|\bmr[ia]?\b|tomogra|ultraso|mammogra|^(?:rr|ar)$|patholog|cytolog|"
    r"microbio|echo|ecg|ekg|electrocard"
)
_OTHER_KINDS = re.compile(
    r"letter|clinic|outpatient|visit|nutrition|diet|social work|case management|rehab|therap|pharmac|emergency|\bed\b|"
    r"triage|anesth|instruct|telephone|\blab|vital|respiratory|dent"
)


@dataclass(frozen=True, slots=True)
class NoteTime:
    """The time, type and hospital stay of a note. Times are partial ISO dates."""

    document_id: str
    date: str | None = None
    note_type: str = ""
    encounter: str | None = None
    admitted: str | None = None
    discharged: str | None = None

    @staticmethod
    def from_passages(passages: Iterable[Passage]) -> tuple[NoteTime, ...]:
        """Return one note time for each document, by id. An unreadable date is ignored."""
        first = {passage.document_id: passage for passage in sorted(passages, key=lambda passage: passage.id)}
        notes: list[NoteTime] = []
        for document_id, passage in sorted(first.items()):
            metadata = passage.metadata
            encounter = metadata.get("encounter")
            notes.append(
                NoteTime(
                    document_id,
                    _readable_date(passage.date),
                    str(metadata.get("note_type") or ""),
                    str(encounter) if encounter else None,
                    _readable_date(metadata.get("admitted")),
                    _readable_date(metadata.get("discharged")),
                )
            )
        return tuple(notes)

    @property
    def written(self) -> TimeRange | None:
        return time_range(self.date) if self.date else None

    @property
    def _kind(self) -> str:
        return self.note_type.strip().lower()

    def is_of(self, noun: str) -> bool:
        """Return whether the note is of this kind, one of `NOTE_KINDS`."""
        return bool(re.search(NOTE_KINDS[noun][1], self._kind))

    def is_operation(self, certainly: bool = False) -> bool:
        """Return whether the note describes an operation that was done, or (not `certainly`) another procedure."""
        done = _OPERATION.search(self._kind) or (not certainly and _PROCEDURE.search(self._kind))
        return bool(done) and not _NO_OPERATION.search(self._kind)

    @property
    def is_daily(self) -> bool:
        """True for a kind of note that does not tell the patient's history. False for an unknown kind."""
        return bool(_BEDSIDE.search(self._kind) or _REPORT.search(self._kind))

    @property
    def has_unknown_kind(self) -> bool:
        """True if the note's type does not say its kind."""
        return not (self.is_daily or _OTHER_KINDS.search(self._kind) or any(self.is_of(kind) for kind in NOTE_KINDS))

    @property
    def max_delay(self) -> timedelta:
        """How long after its subject a note of this kind may be dated."""
        if _REPORT.search(self._kind):
            return _LATE_REPORT
        return _LATE_BEDSIDE if _BEDSIDE.search(self._kind) else LATE


def _readable_date(date: object) -> str | None:
    try:
        return date if isinstance(date, str) and time_range(date) else None
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class HospitalStay:
    """A stay in hospital with its notes, by time."""

    encounter: str
    start: TimeRange | None
    """The beginning of the stay, or of its first note if the stay is not `dated`."""
    end: TimeRange | None
    dated: bool
    """Whether a note has the day of admission."""
    notes: tuple[NoteTime, ...]
    is_ongoing: bool = False
    """Whether it began and goes on at the end of the record, so that `end` is no discharge."""

    def may_include(self, note: NoteTime) -> bool:
        """Return whether the time of a note of no stay, or of another, allows that it is of this one."""
        if not (note.written and self.start and self.end):
            return False
        delay = note.max_delay if note.encounter is None else timedelta(0)
        return may_overlap(note.written, widen((self.start[0], self.end[1]), EARLY, EARLY + delay))

    def covers(self, time: TimeRange) -> bool:
        """Return whether the stay may include a minute of this time."""
        return bool(self.start and self.end and may_overlap((self.start[0], self.end[1]), time))

    @property
    def discharged(self) -> TimeRange | None:
        """The end of the stay according to a note, or the time of its discharge summaries."""
        times: list[TimeRange] = []
        for note in self.notes:
            if note.discharged:
                return self.end
            if note.is_of(SUMMARY) and note.written:
                times.append(note.written)
        first, last = _bound(times, min), _bound(times, max)
        return (first[0], last[1]) if first and last else None

    def __str__(self) -> str:
        if self.is_ongoing:
            return f"since {format_day(self.start)}"
        return f"{format_day(self.start)} to {format_day(self.end)}"


def widen(time: TimeRange, before: timedelta, after: timedelta | None = None) -> TimeRange:
    """Return the time extended by `before` and `after`, within the calendar. By default both are equal."""
    return _add(time[0], -before), _add(time[1], before if after is None else after)


def _add(when: datetime, span: timedelta) -> datetime:
    try:
        return when + span
    except OverflowError:
        return datetime.max if span > timedelta(0) else datetime.min


def format_day(time: TimeRange | None) -> str:
    """Return the day of a time, or its first and last possible day, for a reader."""
    if time is None:
        return "an unknown day"
    first, last = time[0].date(), time[1].date()
    return f"{first}" if first == last else f"{first}/{last}"


def group_stays(notes: Iterable[NoteTime], ongoing: Collection[str] | None = None) -> tuple[HospitalStay, ...]:
    """Return the stays of these notes by time, those without a time last. A note without an encounter has no stay.

    `ongoing` are the encounters that go on at the end of the record. By default it is the last one, if a note has its
    day of admission and none its discharge.
    """
    groups: dict[str, list[NoteTime]] = defaultdict(list)
    for note in notes:
        if note.encounter is not None:
            groups[note.encounter].append(note)
    stays: list[HospitalStay] = []
    for encounter, group in groups.items():
        admitted: list[TimeRange] = []
        discharged: list[TimeRange] = []
        for note in group:
            if note.admitted:
                admitted.append(time_range(note.admitted))
            if note.discharged:
                discharged.append(time_range(note.discharged))
        note_times = list(filter(None, (item.written for item in group)))
        start = _bound(admitted or note_times, min)
        end = _bound(discharged or note_times, max) or start
        if start and end and end[1] < start[0]:
            end = start
        ordered = sorted(group, key=lambda note: (note.written or _NEVER, note.document_id))
        stays.append(HospitalStay(encounter, start, end, bool(admitted), tuple(ordered)))
    stays.sort(key=lambda stay: (stay.start or _NEVER, stay.encounter))
    if ongoing is None:
        newest = next((stay for stay in reversed(stays) if stay.start), None)
        ongoing = {newest.encounter} if newest and newest.dated and newest.discharged is None else ()
    return tuple(replace(stay, is_ongoing=stay.encounter in ongoing) for stay in stays)


def join_transfers(stays: Sequence[HospitalStay]) -> list[tuple[HospitalStay, ...]]:
    """Return the stays in groups. A stay that begins within a day of the end of the previous one is in its group.

    Some systems record a transfer between wards, or from the emergency department, as a new stay. People count one.
    """
    groups = list[list[HospitalStay]]()
    for stay in stays:
        last = groups[-1][-1] if groups else None
        if last and last.end and stay.start and stay.start[0] - last.end[1] <= EARLY:
            groups[-1].append(stay)
        else:
            groups.append([stay])
    return list(map(tuple, groups))


def _bound(times: Sequence[TimeRange], choose: Callable[[Iterable[datetime]], datetime]) -> TimeRange | None:
    """Return the range of the first (`min`) or the last (`max`) of these times, or None without a time."""
    if not times:
        return None
    firsts, lasts = zip(*times, strict=True)
    return choose(firsts), choose(lasts)


def find_possible_places(times: Sequence[TimeRange | None], which: int, optional: Collection[int] = ()) -> list[int]:
    """Return the indices of the times possibly at place `which` in chronological order.

    1 is the first place and -1 the last. The list is empty only if there are fewer times. A time of None may be at any
    place. The times at the indices of `optional` may not count.
    """
    place, n = abs(which), len(times)
    if not 1 <= place <= n:
        return []
    dated = list(filter(None, times))
    certain = [time for index, time in enumerate(times) if time and index not in optional]
    places = list[int]()
    for index, time in enumerate(times):
        if time is None:
            places.append(index)
            continue
        # From the end, earlier and later change places.
        near, far = (certain, dated) if which > 0 else (dated, certain)
        earlier = sum(is_before(other, time) for other in near)
        later = sum(is_before(time, other) for other in far)
        nearer, farther = (earlier, later) if which > 0 else (later, earlier)
        if nearer < place <= n - farther:
            places.append(index)
    return places


def find_stays_on(time: TimeRange, edge: str, stays: Sequence[HospitalStay]) -> tuple[Sequence[HospitalStay], str]:
    """Return the stays that begin or (`edge`: end) end at a time, else those that cover it, and the reason.

    Without such a stay, the reason says why.
    """
    beginning: list[HospitalStay] = []
    ending: list[HospitalStay] = []
    covering: list[HospitalStay] = []
    for stay in stays:
        if stay.dated and stay.start and may_overlap(stay.start, time):
            beginning.append(stay)
        if stay.end and may_overlap(stay.end, time):
            ending.append(stay)
        if stay.covers(time) and not (edge == "begin" and stay.dated):
            covering.append(stay)
    if edge == "end" and ending:
        return ending, f"of {format_count(len(stays), 'stay')} what ends then"
    if edge != "end" and beginning:
        return beginning, f"of {format_count(len(stays), 'stay')} what begins then"
    if covering:
        return covering, f"of {format_count(len(stays), 'stay')} what lasts then"
    # A discharge summary alone has no day of admission: the first stay after the day is the one that began then.
    later = next((stay for stay in stays if stay.start and stay.start[0] > time[1]), None)
    if edge != "end" and later and not later.dated and later.start and later.start[0] - time[1] <= MAX_STAY:
        return [later], "no note gives its day of admission, and it is the first whose notes come after that day"
    return (), "no stay of the record is of that time"


def format_count(n: int, noun: str) -> str:
    """Return a number with its noun: `1 stay`, `2 stays`, `3 discharge summaries`."""
    if n == 1:
        return f"1 {noun}"
    return f"{n} {noun[:-1]}ies" if noun.endswith("ry") else f"{n} {noun}s"


def format_ordinal(which: int) -> str:
    """Return a place in words: `2nd`, `last` or `2nd from the end` for 2, -1 and -2."""
    if which < 0:
        return "last" if which == -1 else f"{format_ordinal(-which)} from the end"
    suffix = {1: "st", 2: "nd", 3: "rd"}.get(which % 10, "th")
    return f"{which}{'th' if 10 < which % 100 < 14 else suffix}"
