"""The notes of a record that one time expression admits: a stay, a day, a range, an event, or a kind of note.

A note is admitted unless its own time is elsewhere, with tolerance for late dictation and other clocks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from epicrisis.dates import TimeRange, may_overlap, time_range
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
from epicrisis.retrieval.record_timeline import RecordTimeline, note_ids, note_time, select_notes
from epicrisis.retrieval.time_expressions import TimeExpression

_A_MONTH = timedelta(days=27)
_EVER = (time_range("0001")[0], time_range("9999")[1])


@dataclass(frozen=True, slots=True)
class AdmittedNotes:
    """The notes that an expression, or a group of them, admits."""

    notes: tuple[NoteTime, ...] | None = None
    """None admits every note."""
    certain: frozenset[str] = frozenset()
    """Ids of the notes that certainly match. The others are admitted because they may match."""
    explanations: tuple[str, ...] = ()
    unresolved: tuple[str, ...] = ()


def _admit(notes: Iterable[NoteTime], explanation: str, certain: Iterable[NoteTime] = ()) -> AdmittedNotes:
    return AdmittedNotes(tuple(notes), note_ids(certain), (explanation,))


def _fail(expression: TimeExpression, reason: str) -> AdmittedNotes:
    return AdmittedNotes(unresolved=(f"{expression.text}: {reason}",))


def _fail_if_ambiguous(expression: TimeExpression) -> AdmittedNotes | None:
    """Return a failure for a date with several readings, else None."""
    if len(expression.readings) <= 1:
        return None
    return _fail(expression, f"it can be {' or '.join(expression.readings)}")


def _admit_stay(expression: TimeExpression, record: RecordTimeline, pool: tuple[NoteTime, ...]) -> AdmittedNotes:
    result = _find_stays_by_place(expression, record)
    if isinstance(result, str):
        return _fail(expression, result)
    stays, reason = result
    return _admit_stays(expression, record, stays, f"of {reason}")


def _find_stays_by_place(expression: TimeExpression, record: RecordTimeline) -> tuple[list[HospitalStay], str] | str:
    """Return the stays at the expression's places and the words `3 stays the last`, or the reason if there are none.

    The places are counted twice: with and without the stays that begin with a transfer.
    """
    if not record.stays:
        return "no note says to which stay it belongs"
    places, reason = _find_places(expression, [stay.start for stay in record.stays], "stay")
    if not places:
        return reason
    encounters = {record.stays[place].encounter for place in places}
    groups = join_transfers(record.stays)
    if len(groups) < len(record.stays):
        group_places, group_reason = _find_places(expression, [group[0].start for group in groups], "stay")
        if not group_places:
            return f"{group_reason}, where a transfer begins none"
        group_encounters: set[str] = set()
        for place in group_places:
            group_encounters.update(stay.encounter for stay in groups[place])
        if group_encounters != encounters:
            reason += f", or of {group_reason}, where a transfer begins none"
        encounters |= group_encounters
    return [stay for stay in record.stays if stay.encounter in encounters], reason


def _find_places(
    expression: TimeExpression, times: Sequence[TimeRange | None], noun: str, optional: Collection[int] = ()
) -> tuple[list[int], str]:
    """Return the indices of the times that may be at the expression's places, and the words `3 stays the last`.

    Without such an index, the words say why. The times at the indices of `optional` may not count.
    """
    n, which = len(times), expression.which
    step = 1 if which > 0 else -1
    places = range(which, which + step * expression.count, step)
    candidates = [find_possible_places(times, place, optional) for place in places]
    if not all(candidates):
        return [], f"there {'is' if n == 1 else 'are'} {format_count(n, noun)}"
    indices = sorted(set().union(*candidates))
    if len(indices) == n > len(places) and not optional:
        return [], f"the times of {format_count(n, noun)} do not say which one it is"
    words = " and ".join(map(format_ordinal, places))
    uncertainty = f", which may be any of {len(indices)}" if len(indices) > len(places) else ""
    return indices, f"{format_count(n, noun)} the {words}{uncertainty}"


def _admit_stays(
    expression: TimeExpression, record: RecordTimeline, stays: Sequence[HospitalStay], reason: str
) -> AdmittedNotes:
    """Select the notes of these stays and others that may be of them.

    Other notes are those written during a stay or soon after, those with a date of the stay in the text, and those
    with neither a time nor a stay.
    """
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
    addition = f", with {len(others)} written about then, dated so in the text, or without a time" if others else ""
    return _admit([*notes, *others], f"{expression.text}: {reason}, {days}{addition}", notes)


def _admit_dated_stay(expression: TimeExpression, record: RecordTimeline, pool: tuple[NoteTime, ...]) -> AdmittedNotes:
    result = _find_stays_by_date(expression, record)
    if isinstance(result, str):
        return _fail(expression, result)
    stays, reason = result
    return _admit_stays(expression, record, stays, reason)


def _find_stays_by_date(expression: TimeExpression, record: RecordTimeline) -> tuple[list[HospitalStay], str] | str:
    """Return the stays of the expression's date with their transfers, and the reason; or why there are none."""
    if len(expression.readings) > 1:
        return f"it can be {' or '.join(expression.readings)}"
    dated, reason = find_stays_on(time_range(expression.readings[0]), expression.noun, record.stays)
    stays: list[HospitalStay] = []
    for group in join_transfers(record.stays):
        if not set(group).isdisjoint(dated):
            stays += group
    return (stays, reason) if stays else reason


def _admit_day(expression: TimeExpression, record: RecordTimeline, pool: tuple[NoteTime, ...]) -> AdmittedNotes:
    ambiguous = _fail_if_ambiguous(expression)
    return ambiguous or _admit_time(time_range(expression.readings[0][:10]), expression, record, pool)


def _admit_time(
    time: TimeRange, expression: TimeExpression, record: RecordTimeline, pool: tuple[NoteTime, ...]
) -> AdmittedNotes:
    """Select the notes that may describe a day, month or year. Later histories may describe a month or year too."""
    covering: list[NoteTime] = []
    for stay in record.stays_of(pool):
        if stay.covers(time):
            covering += filter(pool.__contains__, stay.notes)
    has_note = any(note.written and may_overlap(note.written, time) for note in pool)
    has_note = has_note or any(note.is_of(SUMMARY) for note in covering)
    if not has_note and not covering:
        return _fail(expression, "no note tells of that time")
    histories = _history_ids(pool) if time[1] - time[0] > _A_MONTH else frozenset()
    if has_note:
        return _admit_range(time, expression, record, pool, f"notes that may tell of {format_day(time)}", histories)
    reason = "no note is of that day, but its stay is known"
    return _admit_range(time, expression, record, pool, reason, histories, note_ids(covering))


def _history_ids(notes: Iterable[NoteTime]) -> frozenset[str]:
    """Return the ids of notes that may tell the patient's history."""
    return frozenset(note.document_id for note in notes if not note.is_daily)


def _admit_range(
    time: TimeRange,
    expression: TimeExpression,
    record: RecordTimeline,
    pool: Iterable[NoteTime],
    reason: str,
    histories: frozenset[str] = frozenset(),
    always: frozenset[str] = frozenset(),
    certain_time: TimeRange | None = None,
) -> AdmittedNotes:
    """Select the notes that may describe this time.

    Notes of `always` are admitted whatever their time, and notes of `histories` if they were written later.
    `certain_time` is the part of the time that is certainly meant, by default all of it.
    """
    with_date = record.notes_with_date(time, years=_EVER[0] < time[0] and time[1] < _EVER[1])
    begin, end = certain_time or time
    inner = widen((begin, end), -2 * EARLY)
    begin, end = begin if begin == _EVER[0] else inner[0], end if end == _EVER[1] else inner[1]
    notes, certain, untimed, has_match = list[NoteTime](), list[NoteTime](), 0, False
    for note in pool:
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
        return _fail(expression, "no note tells of that time")
    addition = f", or {untimed} without a time" if untimed else ""
    return _admit(notes, f"{expression.text}: {reason}{addition}", certain)


def _admit_relation(expression: TimeExpression, record: RecordTimeline, pool: tuple[NoteTime, ...]) -> AdmittedNotes:
    """Select the notes that may describe the time before, after or between the expression's anchors.

    The time of an anchor is always included. Later histories also describe what was before. A note of the anchor itself
    need not count: `the last summary before 2018` is not of 2018.
    """
    edges = list[_Edge]()
    for anchor in expression.anchors:
        edge = _find_edge(anchor, record, pool)
        if isinstance(edge, str):
            return _fail(expression, edge)
        edges.append(edge)
    low, high = min(edges, key=lambda edge: edge.start), max(edges, key=lambda edge: edge.end)
    histories = frozenset[str]()
    always = frozenset[str]().union(*(edge.documents for edge in edges))
    match expression.relation:
        case "before" | "until":
            time, certain_time = (_EVER[0], low.end), (_EVER[0], low.start)
            histories = low.histories | _history_ids(pool)
        case "after" | "since":
            time, certain_time = (low.start, _EVER[1]), (high.end, _EVER[1])
        case _:
            time, certain_time, histories = (low.start, high.end), (low.end, high.start), high.histories
    reason = "; ".join(edge.reason for edge in edges)
    return _admit_range(time, expression, record, pool, reason, histories, always, certain_time)


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


def _find_edge(anchor: TimeExpression, record: RecordTimeline, pool: tuple[NoteTime, ...]) -> _Edge | str:
    """Return the time of a stay, discharge, day or event, or the reason why it is unknown."""
    if anchor.kind == "event":
        return _find_event_edge(anchor, record.restrict(pool))
    if anchor.kind == "day":
        if len(anchor.readings) > 1:
            return f"{anchor.text} can be {' or '.join(anchor.readings)}"
        time = time_range(anchor.readings[0])
        return _Edge(*time, format_day(time))
    result = _find_stays_by_date(anchor, record) if anchor.readings else _find_stays_by_place(anchor, record)
    if isinstance(result, str):
        return result
    stays, _ = result
    if not any(set(stays) <= set(group) for group in join_transfers(record.stays)):
        return f"{anchor.text} can be of any of {len(stays)} stays"
    documents = note_ids(note for stay in stays for note in stay.notes)
    start, end = stays[0].start, stays[-1].end
    if anchor.kind == "discharge":
        discharged = stays[-1].discharged
        if discharged is None:
            return f"the day of {anchor.text} is not known"
        documents &= _history_ids(record.notes)
        return _Edge(*discharged, f"{anchor.text} was {format_day(discharged)}", documents)
    if start is None or end is None:
        return f"{anchor.text} has no time"
    reason = f"{anchor.text} was {format_day(start)} to {format_day(end)}"
    return _Edge(start[0], max(start[1], end[1]), reason, documents)


def _find_event_edge(anchor: TimeExpression, record: RecordTimeline) -> _Edge | str:
    result = _find_event(anchor, record)
    if isinstance(result, str):
        return result
    time, mentions = result
    dated = frozenset(document_id for document_id, mention in mentions.items() if mention.dates)
    return _Edge(*widen(time, EARLY), f"{anchor.text} was {format_day(time)}", dated, frozenset(mentions))


def _find_event(anchor: TimeExpression, record: RecordTimeline) -> tuple[TimeRange, Mapping[str, EventMentions]] | str:
    """Return the time of an event and the notes that may mention it, or the reason why the time is unknown."""
    if anchor.which:
        return f"which one is {anchor.text} cannot be told from words"
    if record.find_mentions is None:
        return f"notes that tell of {anchor.text} were not looked up"
    mentions = record.find_mentions(anchor.noun)
    times = find_event_times(anchor.noun, record.notes, mentions)
    if not times:
        return f"no note says when {anchor.text} was"
    time = agree_on_time(times)
    if time is None:
        return f"notes say several times of {anchor.text}"
    for note in record.notes:
        # A note of another time that states the event as done, without a date, may mean another event.
        described = record.described_time(note)
        mention = mentions.get(note.document_id)
        if mention and mention.is_undated and not (described and may_overlap(described, time)):
            return f"there may have been another one than the {anchor.noun} of {format_day(time)}"
    return time, mentions


def _admit_hospital_day(
    expression: TimeExpression, record: RecordTimeline, pool: tuple[NoteTime, ...]
) -> AdmittedNotes:
    stays = record.complete_stays_of(pool)
    if len(stays) != 1:
        return _fail(expression, f"of which of {len(stays)} stays is not said")
    start = stays[0].start
    if not stays[0].dated or start is None or start[0].date() != start[1].date():
        return _fail(expression, "the day of admission is not known")
    return _admit_time(_add_days(start, expression.which - 1), expression, record, pool)


def _admit_postoperative_day(
    expression: TimeExpression, record: RecordTimeline, pool: tuple[NoteTime, ...]
) -> AdmittedNotes:
    result = _find_event(TimeExpression("event", "the surgery", noun="surgery"), record.restrict(pool))
    if isinstance(result, str):
        return _fail(expression, result)
    time, _ = result
    if time[0].date() != time[1].date():
        return _fail(expression, "the day of the surgery is not known")
    return _admit_time(_add_days(time, expression.which), expression, record, pool)


def _add_days(time: TimeRange, days: int) -> TimeRange:
    return time_range(widen(time, timedelta(days=-days))[0].date().isoformat())


def _admit_note(expression: TimeExpression, record: RecordTimeline, pool: tuple[NoteTime, ...]) -> AdmittedNotes:
    """Select the notes of a kind, or those that may be at a place among them, and notes of unknown kind."""
    notes: list[NoteTime] = []
    unknown: list[NoteTime] = []
    for note in pool:
        if note.is_of(expression.noun):
            notes.append(note)
        if note.has_unknown_kind:
            unknown.append(note)
    if not notes:
        if expression.which:
            return _fail(expression, f"there is no {expression.noun}")
        return AdmittedNotes(explanations=(f"{expression.text}: no note is of this kind",))
    if not expression.which:
        explanation = f"{expression.text}: any of {format_count(len(notes), expression.noun)}"
        return _admit([*notes, *unknown], explanation, notes)
    optional = [place for place, note in enumerate(notes) if note.document_id not in record.certain]
    places, reason = _find_places(expression, list(map(_approximate_time, notes)), expression.noun, optional)
    if not places:
        return _fail(expression, reason)
    matches = list(map(notes.__getitem__, places))
    if expression.noun == SUMMARY:
        # An addendum to a summary is of the same stay.
        encounters = {note.encounter for note in matches} - {None}
        matches += [note for note in notes if note.encounter in encounters and note not in matches]
    days = " and ".join(sorted(set(map(format_day, map(note_time, matches)))))
    addition = f", with {format_count(len(unknown), 'note')} of unknown kind" if unknown else ""
    return _admit([*matches, *unknown], f"{expression.text}: of {reason}, {days}{addition}", matches)


def _approximate_time(note: NoteTime) -> TimeRange | None:
    """Return the time of a note within a day, or within two weeks for a summary without a stay and its addenda."""
    time = note_time(note)
    tolerance = LATE / 2 if note.is_of(SUMMARY) and note.encounter is None else EARLY
    return widen(time, tolerance) if time else None


def _admit_dated_note(expression: TimeExpression, record: RecordTimeline, pool: tuple[NoteTime, ...]) -> AdmittedNotes:
    if ambiguous := _fail_if_ambiguous(expression):
        return ambiguous
    time = time_range(expression.readings[0][:10])
    notes = tuple(note for note in pool if note.is_of(expression.noun) or note.has_unknown_kind)
    return _admit_range(time, expression, record, notes, f"what may tell of {format_day(time)}")


def _admit_at_discharge(
    expression: TimeExpression, record: RecordTimeline, pool: tuple[NoteTime, ...]
) -> AdmittedNotes:
    """Select histories and the notes written about the day of discharge."""
    prefix = ""
    stays: Sequence[HospitalStay] = record.stays_of(pool)
    if expression.which:
        result = _find_stays_by_place(expression, record)
        if isinstance(result, str):
            return _fail(expression, result)
        stays, reason = result
        if expression.which < 0 and record.stays[-1].discharged is None:
            return _fail(expression, "the last stay has no day of discharge")
        admitted = _admit_stays(expression, record, stays, "")
        pool, prefix = select_notes(pool, note_ids(admitted.notes or ())), f"of {reason}, "
    days = [stay.discharged for stay in stays]
    reason = f"{prefix}told in notes about the day of discharge, and in histories"
    return _admit_about_days(expression, record, pool, days, reason)


def _admit_at_admission(
    expression: TimeExpression, record: RecordTimeline, pool: tuple[NoteTime, ...]
) -> AdmittedNotes:
    """Select histories and the notes written about the day of admission."""
    days = [stay.start if stay.dated else None for stay in record.stays_of(pool)]
    reason = "told in notes about the day of admission, and in histories"
    return _admit_about_days(expression, record, pool, days, reason)


def _admit_about_days(
    expression: TimeExpression,
    record: RecordTimeline,
    pool: tuple[NoteTime, ...],
    days: Sequence[TimeRange | None],
    reason: str,
) -> AdmittedNotes:
    """Select the notes that may describe one of these days, and all that are not reports or daily notes."""
    times = [widen(time, EARLY) for time in days if time]
    if not times or len(times) < len(days):
        return AdmittedNotes(explanations=(f"{expression.text}: not every stay's day is known",))
    notes: list[NoteTime] = []
    for note in pool:
        described = record.described_time(note)
        if not note.is_daily or described is None or any(may_overlap(described, time) for time in times):
            notes.append(note)
    if not notes:
        return AdmittedNotes(explanations=(f"{expression.text}: no note is of that day",))
    return _admit(notes, f"{expression.text}: {reason}", notes)


RULES: dict[str, Callable[[TimeExpression, RecordTimeline, tuple[NoteTime, ...]], AdmittedNotes]] = {
    "stay": _admit_stay,
    "stay-on": _admit_dated_stay,
    "day": _admit_day,
    "hospital-day": _admit_hospital_day,
    "postoperative-day": _admit_postoperative_day,
    "range": _admit_relation,
    "note": _admit_note,
    "note-on": _admit_dated_note,
    "at-discharge": _admit_at_discharge,
    "at-admission": _admit_at_admission,
}
