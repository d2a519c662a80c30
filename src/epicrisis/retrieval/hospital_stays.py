"""When a patient's notes were written and when their stays in hospital were, in the order of time.

Pure. Times are compared by what they can mean (`dates.moment`), never as text. Knows no text of a note and no question.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from epicrisis.dates import TimeRange, is_before, may_overlap, time_range
from epicrisis.retrieval.time_expressions import NOTE_KINDS
from epicrisis.types import Passage

SUMMARY = "discharge summary"
LATE = timedelta(days=30)
"""A note may be dated so long after what it tells of: the time within which hospitals complete a record."""
_LATE_REPORT, _LATE_BEDSIDE = timedelta(days=14), timedelta(days=3)
EARLY = timedelta(days=1)
"""Clocks and time zones of two systems differ by less."""
LONGEST = timedelta(days=30)
"""A stay of which no note gives the day of admission is taken to have begun at most so long before its first note."""
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
    """When a note was written, of what type it is, and of which hospital stay. Times are partial ISO dates."""

    document_id: str
    date: str | None = None
    note_type: str = ""
    encounter: str | None = None
    admitted: str | None = None
    discharged: str | None = None

    @staticmethod
    def of(passages: Iterable[Passage]) -> tuple[NoteTime, ...]:
        """One a document, by id, from the passages' dates and metadata (`note_type`, `encounter`, `admitted`,
        `discharged`). A date that cannot be read counts as none."""
        first = {passage.document_id: passage for passage in sorted(passages, key=lambda each: each.id)}
        return tuple(
            NoteTime(
                each.document_id,
                _readable(each.date),
                str(each.metadata.get("note_type") or ""),
                str(each.metadata["encounter"]) if each.metadata.get("encounter") else None,
                _readable(each.metadata.get("admitted")),
                _readable(each.metadata.get("discharged")),
            )
            for _, each in sorted(first.items())
        )

    @property
    def written(self) -> TimeRange | None:
        return time_range(self.date) if self.date else None

    def is_of(self, noun: str) -> bool:
        """Whether the note is of this kind, one of `NOTE_KINDS`."""
        return bool(re.search(NOTE_KINDS[noun][1], self.note_type.strip().lower()))

    def of_an_operation(self, surely: bool = False) -> bool:
        """Whether it was written of an operation or another procedure (`surely`: an operation) that was done."""
        kind = self.note_type.strip().lower()
        done = _OPERATION.search(kind) or (not surely and _PROCEDURE.search(kind))
        return bool(done) and not _NO_OPERATION.search(kind)

    @property
    def of_its_day_alone(self) -> bool:
        """Whether its kind is one that does not tell a patient's story up to then. Of an unknown kind it may."""
        kind = self.note_type.strip().lower()
        return bool(_BEDSIDE.search(kind) or _REPORT.search(kind))

    @property
    def of_unknown_kind(self) -> bool:
        """Whether its type does not say which kind of note it is."""
        kind = self.note_type.strip().lower()
        return not (_REPORT.search(kind) or _BEDSIDE.search(kind) or _OTHER_KINDS.search(kind)) and not any(
            self.is_of(noun) for noun in NOTE_KINDS
        )

    @property
    def late(self) -> timedelta:
        """How long after what it tells of a note of this kind may be dated."""
        kind = self.note_type.strip().lower()
        return _LATE_REPORT if _REPORT.search(kind) else _LATE_BEDSIDE if _BEDSIDE.search(kind) else LATE


def _readable(date: object) -> str | None:
    try:
        return date if isinstance(date, str) and time_range(date) else None
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class HospitalStay:
    """A stay in hospital with its notes, by time."""

    encounter: str
    start: TimeRange | None
    """When it began; of a stay that is not `dated` when the first of its notes was written."""
    end: TimeRange | None
    dated: bool
    """Whether a note gives the day of admission."""
    notes: tuple[NoteTime, ...]

    def is_beside(self, note: NoteTime) -> bool:
        """Whether a note that names no stay, or another, may be of this one by when it was written."""
        if not (note.written and self.start and self.end):
            return False
        late = note.late if note.encounter is None else timedelta(0)
        return may_overlap(note.written, widened((self.start[0], self.end[1]), EARLY, EARLY + late))

    def covers(self, time: TimeRange) -> bool:
        """Whether the stay may have lasted at some minute of this time."""
        return bool(self.start and self.end and may_overlap((self.start[0], self.end[1]), time))

    @property
    def discharged(self) -> TimeRange | None:
        """Its end, where a note gives it or a summary has a date, be it begun before or written days after."""
        if any(note.discharged for note in self.notes):
            return self.end
        written = [note.written for note in self.notes if note.is_of(SUMMARY) and note.written]
        return (min(first for first, _ in written), max(last for _, last in written)) if written else None

    def __str__(self) -> str:
        return f"{day(self.start)} to {day(self.end)}"


def widened(time: TimeRange, before: timedelta, after: timedelta | None = None) -> TimeRange:
    """Return the time with so much before it and (as much, or) `after` it, within the calendar."""
    return _plus(time[0], -before), _plus(time[1], before if after is None else after)


def _plus(when: datetime, span: timedelta) -> datetime:
    try:
        return when + span
    except OverflowError:
        return datetime.max if span > timedelta(0) else datetime.min


def day(time: TimeRange | None) -> str:
    """For a reader: a day, or the first and the last one that are possible."""
    if time is None:
        return "an unknown day"
    first, last = time[0].date(), time[1].date()
    return f"{first}" if first == last else f"{first}/{last}"


def encounters(notes: Iterable[NoteTime]) -> tuple[HospitalStay, ...]:
    """The stays in the order of time, those without a time last. A note without an encounter belongs to none."""
    groups: dict[str, list[NoteTime]] = {}
    for note in notes:
        if note.encounter is not None:
            groups.setdefault(note.encounter, []).append(note)
    stays = [_stay(encounter, sorted(group, key=_by_time)) for encounter, group in groups.items()]
    return tuple(sorted(stays, key=lambda stay: (stay.start or _NEVER, stay.encounter)))


def transferred(stays: Sequence[HospitalStay]) -> list[tuple[HospitalStay, ...]]:
    """Return the stays, those together of which the next begins within a day of the end of the one before.

    Systems give a transfer between wards, or from the emergency department, a stay of its own; people count one.
    """
    groups = list[list[HospitalStay]]()
    for stay in stays:
        last = groups[-1][-1] if groups else None
        if last and last.end and stay.start and stay.start[0] - last.end[1] <= EARLY:
            groups[-1].append(stay)
        else:
            groups.append([stay])
    return [tuple(group) for group in groups]


def _by_time(note: NoteTime) -> tuple[TimeRange, str]:
    return note.written or _NEVER, note.document_id


def _stay(encounter: str, notes: Sequence[NoteTime]) -> HospitalStay:
    written = [note.written for note in notes if note.written]
    admitted = [time_range(note.admitted) for note in notes if note.admitted]
    discharged = [time_range(note.discharged) for note in notes if note.discharged]
    start = _earliest(admitted or written)
    end = _latest(discharged or written) or start
    if start and end and end[1] < start[0]:
        end = start
    return HospitalStay(encounter, start, end, bool(admitted), tuple(notes))


def _earliest(times: Sequence[TimeRange]) -> TimeRange | None:
    return (min(first for first, _ in times), min(last for _, last in times)) if times else None


def _latest(times: Sequence[TimeRange]) -> TimeRange | None:
    return (max(first for first, _ in times), max(last for _, last in times)) if times else None


def may_stand_at(times: Sequence[TimeRange | None], which: int, optional: Collection[int] = ()) -> list[int]:
    """The indices of those that may stand at place `which` in the order of time (1 is the first, -1 the last).

    None of them only where there are fewer. A time that is not known may be any. Of those at the indices of `optional`
    it is not known whether they count.
    """
    place, n = abs(which), len(times)
    if not 1 <= place <= n:
        return []
    counted = [time for index, time in enumerate(times) if time and index not in optional]
    found = list[int]()
    for index, time in enumerate(times):
        if time is None:
            found.append(index)
            continue
        before = [other for other in counted if is_before(other, time)]
        after = [other for other in counted if is_before(time, other)]
        farther = [
            other for other in times if other and (is_before(time, other) if which > 0 else is_before(other, time))
        ]
        if len(before if which > 0 else after) < place and n - len(farther) >= place:
            found.append(index)
    return found


def stays_on(time: TimeRange, edge: str, stays: Sequence[HospitalStay]) -> tuple[Sequence[HospitalStay], str]:
    """Stays that begin or (`edge`: end) end then, else those that last then; and why these, or why none."""
    began = [stay for stay in stays if stay.dated and stay.start and may_overlap(stay.start, time)]
    ended = [stay for stay in stays if stay.end and may_overlap(stay.end, time)]
    if edge == "end" and ended:
        return ended, f"of {many(len(stays), 'stay')} what ends then"
    if edge != "end" and began:
        return began, f"of {many(len(stays), 'stay')} what begins then"
    if lasting := [stay for stay in stays if stay.covers(time) and not (edge == "begin" and stay.dated)]:
        return lasting, f"of {many(len(stays), 'stay')} what lasts then"
    # A discharge summary alone gives no day of admission: the next one after the day is of the stay that began then.
    later = [stay for stay in stays if stay.start and stay.start[0] > time[1]][:1]
    if edge != "end" and later and not later[0].dated and later[0].start and later[0].start[0] - time[1] <= LONGEST:
        return later, "no note gives its day of admission, and it is the first whose notes come after that day"
    return (), "no stay of the record is of that time"


def many(n: int, noun: str) -> str:
    """`1 stay`, `2 stays`, `3 discharge summaries`."""
    return f"{n} {noun if n == 1 else noun[:-1] + 'ies' if noun.endswith('ry') else noun + 's'}"


def in_words(which: int) -> str:
    """`2nd`, `last`, `2nd from the end` of 2, -1, -2."""
    if which < 0:
        return "last" if which == -1 else f"{in_words(-which)} from the end"
    return f"{which}{'th' if 10 < which % 100 < 14 else {1: 'st', 2: 'nd', 3: 'rd'}.get(which % 10, 'th')}"
