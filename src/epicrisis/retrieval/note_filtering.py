"""The notes of a record that one time expression admits: a stay, a day, a range, an event, or a kind of note.

A note is admitted unless its own time is elsewhere, with tolerance for late dictation and other clocks.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from operator import attrgetter
from typing import TypeAlias

from epicrisis.core.dates import TimeRange, may_overlap, time_range
from epicrisis.retrieval.event_mentions import EventMentions, agree_on_time, find_event_times
from epicrisis.retrieval.hospital_stays import (
    EARLY,
    LATE,
    SUMMARY,
    HospitalStay,
    NoteTime,
    find_possible_places,
    find_stays_on,
    format_count,
    format_day,
    format_ordinal,
    join_transfers,
    widen,
)
from epicrisis.retrieval.time_expressions import TimeExpression

_A_MONTH = timedelta(days=27)
_EVER = (time_range("0001")[0], time_range("9999")[1])

MentionFinder: TypeAlias = Callable[[str], Mapping[str, EventMentions]]
"""Return the mentions of an event by document id: see `event_mentions.find_event_mentions`."""
DatedNoteFinder: TypeAlias = Callable[[TimeRange, bool], frozenset[str]]
"""Return the ids of notes with a date: see `event_mentions.find_notes_with_date`."""


@dataclass(frozen=True, slots=True)
class RecordTimeline:
    """The notes and stays of a record by time."""

    notes: tuple[NoteTime, ...]
    stays: tuple[HospitalStay, ...]
    find_mentions: MentionFinder | None
    find_dated: DatedNoteFinder | None
    pool: tuple[NoteTime, ...]
    """The notes that the question admits so far."""
    certain: frozenset[str]
    """Ids of the notes that certainly match the question so far."""

    def restrict(self, documents: Collection[str]) -> RecordTimeline:
        """Return the timeline with only these documents in the pool."""
        return replace(self, pool=tuple(filter(lambda note: note.document_id in documents, self.pool)))

    def pool_stays(self) -> tuple[HospitalStay, ...]:
        """Return the stays with a note in the pool."""
        encounters = {item.encounter for item in self.pool}
        return tuple(filter(lambda stay: stay.encounter in encounters, self.stays))

    def described_time(self, note: NoteTime) -> TimeRange | None:
        """Return the time that a note may describe, by its kind; None for a note without a time."""
        time = _note_time(note)
        if time is None:
            return None
        first, last = widen(time, note.max_delay, EARLY)
        for stay in self.stays:
            if stay.encounter != note.encounter or stay.start is None:
                continue
            if stay.dated:
                # A late note is of its own stay.
                first = min(max(first, widen(stay.start, EARLY)[0]), time[0])
            if note.is_of(SUMMARY) and stay.end:
                duration = widen((stay.start[0], stay.end[1]), EARLY)
                first, last = min(first, duration[0]), max(last, duration[1])
        return first, last

    def notes_with_date(self, time: TimeRange, years: bool = True) -> frozenset[str]:
        """Return the ids of notes whose text has a date within this time."""
        return self.find_dated(time, years) if self.find_dated else frozenset()


def _note_time(note: NoteTime) -> TimeRange | None:
    """Return the time of a note. A discharge summary without a date has the day of discharge."""
    if note.written or not (note.discharged and note.is_of(SUMMARY)):
        return note.written
    return time_range(note.discharged)


def note_ids(notes: Iterable[NoteTime]) -> frozenset[str]:
    """Return the document ids of notes."""
    return frozenset(note.document_id for note in notes)


@dataclass(frozen=True, slots=True)
class AdmittedNotes:
    """The notes that an expression, or a group of them, admits."""

    notes: tuple[NoteTime, ...] | None = None
    """None admits every note."""
    certain: frozenset[str] = frozenset()
    """Ids of the notes that certainly match. The others are admitted because they may match."""
    explanations: tuple[str, ...] = ()
    unresolved: tuple[str, ...] = ()


class _Unresolved(Exception):
    """An expression has no clear meaning in this record. The message says why."""


def admit_notes(expression: TimeExpression, record: RecordTimeline) -> AdmittedNotes:
    """Return the notes of the pool that the expression admits, or why it is unresolved."""
    try:
        return _RULES[expression.kind](expression, record)
    except _Unresolved as error:
        return AdmittedNotes(unresolved=(f"{expression.text}: {error}",))


def _admit(notes: Iterable[NoteTime], explanation: str, certain: Iterable[NoteTime] = ()) -> AdmittedNotes:
    return AdmittedNotes(tuple(notes), note_ids(certain), (explanation,))


def _read_date(expression: TimeExpression, name: str = "it") -> str:
    """Return the only reading of the expression's date. Raises _Unresolved if there are several."""
    if len(expression.readings) > 1:
        raise _Unresolved(f"{name} can be {' or '.join(expression.readings)}")
    return expression.readings[0]


def _find_stays_by_place(expression: TimeExpression, record: RecordTimeline) -> tuple[list[HospitalStay], str]:
    """Return the stays at the expression's places and the words `3 stays the last`.

    The places are counted twice: with and without the stays that begin with a transfer.
    """
    if not record.stays:
        raise _Unresolved("no note says to which stay it belongs")
    places, reason = _find_places(expression, [stay.start for stay in record.stays], "stay")
    stays = {record.stays[place] for place in places}
    groups = join_transfers(record.stays)
    if len(groups) < len(record.stays):
        try:
            group_places, group_reason = _find_places(expression, [group[0].start for group in groups], "stay")
        except _Unresolved as error:
            raise _Unresolved(f"{error}, where a transfer begins none") from None
        joined = set(itertools.chain.from_iterable(groups[place] for place in group_places))
        if joined != stays:
            reason += f", or of {group_reason}, where a transfer begins none"
        stays |= joined
    return [stay for stay in record.stays if stay in stays], reason


def _find_places(
    expression: TimeExpression, times: Sequence[TimeRange | None], noun: str, optional: Collection[int] = ()
) -> tuple[list[int], str]:
    """Return the indices of the times that may be at the expression's places, and the words `3 stays the last`."""
    n, which = len(times), expression.which
    step = 1 if which > 0 else -1
    places = range(which, which + step * expression.count, step)
    candidates = [find_possible_places(times, place, optional) for place in places]
    if not all(candidates):
        raise _Unresolved(f"there {'is' if n == 1 else 'are'} {format_count(n, noun)}")
    indices = sorted(set().union(*candidates))
    if len(indices) == n > len(places) and not optional:
        raise _Unresolved(f"the times of {format_count(n, noun)} do not say which one it is")
    words = " and ".join(map(format_ordinal, places))
    uncertainty = f", which may be any of {len(indices)}" if len(indices) > len(places) else ""
    return indices, f"{format_count(n, noun)} the {words}{uncertainty}"


def _admit_stays(
    expression: TimeExpression, record: RecordTimeline, stays: Sequence[HospitalStay], reason: str
) -> AdmittedNotes:
    """Select the notes of these stays, and others that may be of them by their time, by a date in the text, or by
    having neither a time nor a stay."""
    notes: list[NoteTime] = []
    with_date: set[str] = set()
    for stay in stays:
        notes += stay.notes
        if stay.start and stay.end:
            with_date |= record.notes_with_date((stay.start[0], stay.end[1]), years=False)
    ids = note_ids(notes)
    others: list[NoteTime] = []
    for note in record.notes:
        if note.document_id in ids:
            continue
        has_no_place = note.encounter is None and note.written is None
        if has_no_place or note.document_id in with_date or any(stay.may_include(note) for stay in stays):
            others.append(note)
    days = " and ".join(map(str, stays))
    addition = ""
    if others:
        more = "1 more note" if len(others) == 1 else f"{len(others)} more notes"
        addition = f", and {more} of about that time, with a date of it in the text, or without a time"
    return _admit([*notes, *others], f"{expression.text}: {reason}, {days}{addition}", notes)


def _admit_stay(expression: TimeExpression, record: RecordTimeline) -> AdmittedNotes:
    if expression.kind == "stay-on":
        return _admit_stays(expression, record, *_find_stays_by_date(expression, record))
    stays, reason = _find_stays_by_place(expression, record)
    return _admit_stays(expression, record, stays, f"of {reason}")


def _find_stays_by_date(expression: TimeExpression, record: RecordTimeline) -> tuple[list[HospitalStay], str]:
    """Return the stays of the expression's date with their transfers, and the reason."""
    dated, reason = find_stays_on(time_range(_read_date(expression)), expression.noun, record.stays)
    stays: list[HospitalStay] = []
    for group in join_transfers(record.stays):
        if not set(group).isdisjoint(dated):
            stays += group
    if not stays:
        raise _Unresolved(reason)
    return stays, reason


def _admit_day(expression: TimeExpression, record: RecordTimeline) -> AdmittedNotes:
    return _admit_time(time_range(_read_date(expression)[:10]), expression, record)


def _admit_time(time: TimeRange, expression: TimeExpression, record: RecordTimeline) -> AdmittedNotes:
    """Select the notes that may describe a day, month or year. Later histories may describe a month or year too."""
    covering: list[NoteTime] = []
    for stay in record.pool_stays():
        if stay.covers(time):
            covering += (note for note in stay.notes if note in record.pool)
    has_note = any(note.written and may_overlap(note.written, time) for note in record.pool)
    has_note = has_note or any(note.is_of(SUMMARY) for note in covering)
    if not has_note and not covering:
        raise _Unresolved("no note tells of that time")
    histories = _history_ids(record.pool) if time[1] - time[0] > _A_MONTH else frozenset()
    if has_note:
        return _admit_range(time, expression, record, f"notes that may tell of {format_day(time)}", histories)
    reason = "no note is of that day, but its stay is known"
    return _admit_range(time, expression, record, reason, histories, note_ids(covering))


def _history_ids(notes: Iterable[NoteTime]) -> frozenset[str]:
    """Return the ids of notes that may tell the patient's history."""
    return note_ids(itertools.filterfalse(attrgetter("is_daily"), notes))


def _admit_range(
    time: TimeRange,
    expression: TimeExpression,
    record: RecordTimeline,
    reason: str,
    histories: frozenset[str] = frozenset(),
    always: frozenset[str] = frozenset(),
    certain_time: TimeRange | None = None,
) -> AdmittedNotes:
    """Select the notes that may describe this time.

    Notes of `always` are admitted regardless of their time, and notes of `histories` if they were written later.
    `certain_time` is the part of the time that is certainly meant, by default all of it.
    """
    with_date = record.notes_with_date(time, years=_EVER[0] < time[0] and time[1] < _EVER[1])
    begin, end = certain_time or time
    inner = widen((begin, end), -2 * EARLY)
    begin, end = begin if begin == _EVER[0] else inner[0], end if end == _EVER[1] else inner[1]
    notes, certain, untimed, has_match = list[NoteTime](), list[NoteTime](), 0, False
    for note in record.pool:
        if note.written and begin <= note.written[0] and note.written[1] <= end:
            certain.append(note)
        described = record.described_time(note)
        if described is None:
            untimed += 1
            notes.append(note)
            continue
        matches = may_overlap(described, time)
        has_match = has_match or matches
        is_later_history = note.document_id in histories and described[0] > time[1]
        if matches or is_later_history or note.document_id in always | with_date:
            notes.append(note)
    if not has_match and not always:
        raise _Unresolved("no note tells of that time")
    addition = f", or {untimed} without a time" if untimed else ""
    return _admit(notes, f"{expression.text}: {reason}{addition}", certain)


def _admit_relation(expression: TimeExpression, record: RecordTimeline) -> AdmittedNotes:
    """Select the notes that may describe the time before, after or between the expression's anchors.

    The time of an anchor is always included. Later histories also describe what was before. A note of the anchor itself
    need not count: `the last summary before 2018` is not of 2018.
    """
    edges = [_find_edge(anchor, record) for anchor in expression.anchors]
    low, high = min(edges, key=lambda edge: edge.start), max(edges, key=lambda edge: edge.end)
    histories = frozenset[str]()
    always = frozenset[str]().union(*(edge.documents for edge in edges))
    match expression.relation:
        case "before" | "until":
            time, certain_time = (_EVER[0], low.end), (_EVER[0], low.start)
            histories = low.histories | _history_ids(record.pool)
        case "after" | "since":
            time, certain_time = (low.start, _EVER[1]), (high.end, _EVER[1])
        case _:
            time, certain_time, histories = (low.start, high.end), (low.end, high.start), high.histories
    reason = "; ".join(edge.reason for edge in edges)
    return _admit_range(time, expression, record, reason, histories, always, certain_time)


@dataclass(frozen=True, slots=True)
class _Edge:
    """The beginning or end of a range."""

    start: datetime
    end: datetime
    reason: str
    documents: frozenset[str] = frozenset()
    """Documents of the stay or event, admitted for every relation."""
    histories: frozenset[str] = frozenset()
    """Notes that may look back on the time before it."""


def _find_edge(anchor: TimeExpression, record: RecordTimeline) -> _Edge:
    """Return the time of a stay, discharge, day or event."""
    if anchor.kind == "event":
        time, mentions = _find_event(anchor, record)
        dated = frozenset(document_id for document_id, mention in mentions.items() if mention.dates)
        return _Edge(*widen(time, EARLY), f"{anchor.text} was {format_day(time)}", dated, frozenset(mentions))
    if anchor.kind == "day":
        time = time_range(_read_date(anchor, anchor.text))
        return _Edge(*time, format_day(time))
    stays, _ = _find_stays_by_date(anchor, record) if anchor.readings else _find_stays_by_place(anchor, record)
    if not any(map(set(stays).issubset, join_transfers(record.stays))):
        raise _Unresolved(f"{anchor.text} can be of any of {len(stays)} stays")
    documents = note_ids(itertools.chain.from_iterable(stay.notes for stay in stays))
    start, end = stays[0].start, stays[-1].end
    if anchor.kind == "discharge":
        discharged = stays[-1].discharged
        if discharged is None:
            raise _Unresolved(f"the day of {anchor.text} is not known")
        documents &= _history_ids(record.notes)
        return _Edge(*discharged, f"{anchor.text} was {format_day(discharged)}", documents)
    if start is None or end is None:
        raise _Unresolved(f"{anchor.text} has no time")
    reason = f"{anchor.text} was {format_day(start)} to {format_day(end)}"
    return _Edge(start[0], max(start[1], end[1]), reason, documents)


def _find_event(anchor: TimeExpression, record: RecordTimeline) -> tuple[TimeRange, Mapping[str, EventMentions]]:
    """Return the time of an event and the notes that may mention it."""
    if anchor.which:
        raise _Unresolved(f"which one is {anchor.text} cannot be told from words")
    if record.find_mentions is None:
        raise _Unresolved(f"notes that tell of {anchor.text} were not looked up")
    mentions = record.find_mentions(anchor.noun)
    times = find_event_times(anchor.noun, record.pool, mentions)
    if not times:
        raise _Unresolved(f"no note says when {anchor.text} was")
    time = agree_on_time(times)
    if time is None:
        raise _Unresolved(f"notes say several times of {anchor.text}")
    for note in record.pool:
        # A note of another time that states the event as done, without a date, may mean another event.
        described = record.described_time(note)
        mention = mentions.get(note.document_id)
        if mention and mention.is_undated and not (described and may_overlap(described, time)):
            raise _Unresolved(f"there may have been another one than the {anchor.noun} of {format_day(time)}")
    return time, mentions


def _admit_hospital_day(expression: TimeExpression, record: RecordTimeline) -> AdmittedNotes:
    ids = note_ids(record.pool)
    complete = [stay for stay in record.stays if note_ids(stay.notes) <= ids]
    if len(complete) != 1:
        raise _Unresolved(f"of which of {len(complete)} stays is not said")
    start = complete[0].start
    if not complete[0].dated or start is None or start[0].date() != start[1].date():
        raise _Unresolved("the day of admission is not known")
    return _admit_time(_add_days(start, expression.which - 1), expression, record)


def _admit_postoperative_day(expression: TimeExpression, record: RecordTimeline) -> AdmittedNotes:
    time, _ = _find_event(TimeExpression(kind="event", text="the surgery", noun="surgery"), record)
    if time[0].date() != time[1].date():
        raise _Unresolved("the day of the surgery is not known")
    return _admit_time(_add_days(time, expression.which), expression, record)


def _add_days(time: TimeRange, days: int) -> TimeRange:
    return time_range(widen(time, timedelta(days=-days))[0].date().isoformat())


def _admit_note(expression: TimeExpression, record: RecordTimeline) -> AdmittedNotes:
    """Select the notes of a kind, or those that may be at a place among them, and notes of unknown kind."""
    notes: list[NoteTime] = []
    unknown: list[NoteTime] = []
    for note in record.pool:
        if note.is_of(expression.noun):
            notes.append(note)
        if note.has_unknown_kind:
            unknown.append(note)
    if not notes:
        if expression.which:
            raise _Unresolved(f"there is no {expression.noun}")
        return AdmittedNotes(explanations=(f"{expression.text}: no note is of this kind",))
    if not expression.which:
        explanation = f"{expression.text}: any of {format_count(len(notes), expression.noun)}"
        return _admit([*notes, *unknown], explanation, notes)
    times: list[TimeRange | None] = []
    optional: list[int] = []
    for place, note in enumerate(notes):
        # A summary without a stay and its addenda may be weeks apart.
        tolerance = LATE / 2 if note.is_of(SUMMARY) and note.encounter is None else EARLY
        time = _note_time(note)
        times.append(widen(time, tolerance) if time else None)
        if note.document_id not in record.certain:
            optional.append(place)
    places, reason = _find_places(expression, times, expression.noun, optional)
    matches = [notes[place] for place in places]
    if expression.noun == SUMMARY:
        # An addendum to a summary is of the same stay.
        encounters = {match.encounter for match in matches} - {None}
        matches += [note for note in notes if note.encounter in encounters and note not in matches]
    days = " and ".join(sorted(set(map(format_day, map(_note_time, matches)))))
    addition = f", with {format_count(len(unknown), 'note')} of unknown kind" if unknown else ""
    return _admit([*matches, *unknown], f"{expression.text}: of {reason}, {days}{addition}", matches)


def _admit_dated_note(expression: TimeExpression, record: RecordTimeline) -> AdmittedNotes:
    time = time_range(_read_date(expression)[:10])
    kind = record.restrict(
        note_ids(note for note in record.pool if note.is_of(expression.noun) or note.has_unknown_kind)
    )
    return _admit_range(time, expression, kind, f"what may tell of {format_day(time)}")


def _admit_at_discharge(expression: TimeExpression, record: RecordTimeline) -> AdmittedNotes:
    """Select histories and the notes written about the day of discharge."""
    prefix = ""
    stays: Sequence[HospitalStay] = record.pool_stays()
    if expression.which:
        stays, reason = _find_stays_by_place(expression, record)
        if expression.which < 0 and record.stays[-1].discharged is None:
            raise _Unresolved("the last stay has no day of discharge")
        admitted = _admit_stays(expression, record, stays, "")
        record, prefix = record.restrict(note_ids(admitted.notes or ())), f"of {reason}, "
    days = [stay.discharged for stay in stays]
    return _admit_about_days(expression, record, days, f"{prefix}told in notes about the day of discharge")


def _admit_at_admission(expression: TimeExpression, record: RecordTimeline) -> AdmittedNotes:
    """Select histories and the notes written about the day of admission."""
    days = [stay.start if stay.dated else None for stay in record.pool_stays()]
    return _admit_about_days(expression, record, days, "told in notes about the day of admission")


def _admit_about_days(
    expression: TimeExpression, record: RecordTimeline, days: Sequence[TimeRange | None], reason: str
) -> AdmittedNotes:
    """Select the notes that may describe one of these days, and all except reports and daily notes."""
    times = [widen(time, EARLY) for time in days if time]
    if not times or len(times) < len(days):
        return AdmittedNotes(explanations=(f"{expression.text}: not every stay's day is known",))
    notes: list[NoteTime] = []
    for note in record.pool:
        described = record.described_time(note)
        if not note.is_daily or described is None or any(may_overlap(described, time) for time in times):
            notes.append(note)
    if not notes:
        return AdmittedNotes(explanations=(f"{expression.text}: no note is of that day",))
    return _admit(notes, f"{expression.text}: {reason}, and in histories", notes)


_RULES: dict[str, Callable[[TimeExpression, RecordTimeline], AdmittedNotes]] = {
    "stay": _admit_stay,
    "stay-on": _admit_stay,
    "day": _admit_day,
    "hospital-day": _admit_hospital_day,
    "postoperative-day": _admit_postoperative_day,
    "range": _admit_relation,
    "note": _admit_note,
    "note-on": _admit_dated_note,
    "at-discharge": _admit_at_discharge,
    "at-admission": _admit_at_admission,
}
