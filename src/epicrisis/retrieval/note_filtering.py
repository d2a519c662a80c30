"""Which notes of a record one expression of time admits: of a stay, a day, a range, an event, a kind of note.

Pure. A note is admitted unless its own time, with room for late dictation and other clocks, lies elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeAlias

from epicrisis.dates import TimeRange, may_overlap, time_range
from epicrisis.retrieval.event_mentions import Telling, agreed, times_of
from epicrisis.retrieval.hospital_stays import (
    EARLY,
    LATE,
    SUMMARY,
    HospitalStay,
    NoteTime,
    day,
    encounters,
    in_words,
    many,
    may_stand_at,
    stays_on,
    transferred,
    widened,
)
from epicrisis.retrieval.time_expressions import Expression

Mentions: TypeAlias = Callable[[str], Mapping[str, Telling]]
"""By document id, the notes that may tell of an event, by its words: see `events.telling`."""
Stating: TypeAlias = Callable[[TimeRange, bool], frozenset[str]]
"""The ids of notes that state a date of a time, and whether a year alone counts: see `events.stating`."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Which notes an expression, or a group of them, admits."""

    notes: tuple[NoteTime, ...] | None = None
    """`None`: every note."""
    sure: frozenset[str] = frozenset()
    """Ids of those that surely are meant; the others are kept for the doubt."""
    told: tuple[str, ...] = ()
    unresolved: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RecordTimeline:
    notes: tuple[NoteTime, ...]
    stays: tuple[HospitalStay, ...]
    mentions: Mentions | None
    stating: Stating | None
    sure: frozenset[str]
    """Ids of the notes that surely are of what is asked, so far."""

    @staticmethod
    def of(notes: Iterable[NoteTime], mentions: Mentions | None, stating: Stating | None) -> RecordTimeline:
        each = tuple(sorted(set(notes), key=lambda note: note.document_id))
        return RecordTimeline(each, encounters(each), mentions, stating, ids_of(each))

    def within(self, pool: tuple[NoteTime, ...]) -> RecordTimeline:
        """The record as if it had these notes alone."""
        return RecordTimeline(pool, self.stays_of(pool), self.mentions, self.stating, self.sure)

    def stays_of(self, pool: Iterable[NoteTime]) -> tuple[HospitalStay, ...]:
        named = {note.encounter for note in pool}
        return tuple(stay for stay in self.stays if stay.encounter in named)

    def whole_stays_of(self, pool: Iterable[NoteTime]) -> tuple[HospitalStay, ...]:
        """Return the stays of which every note is in the pool."""
        known = ids_of(pool)
        return tuple(stay for stay in self.stays if ids_of(stay.notes) <= known)

    def told_of(self, note: NoteTime) -> TimeRange | None:
        """Return the time that a note may tell of: from as long before it was written as its kind may be late, of a
        discharge summary from the day of admission, to a day after."""
        written = _written(note)
        if written is None:
            return None
        first, last = widened(written, note.late, EARLY)
        stay = next((stay for stay in self.stays if stay.encounter == note.encounter), None)
        if stay and stay.dated and stay.start:
            # What is late is of the note's own stay.
            first = min(max(first, widened(stay.start, EARLY)[0]), written[0])
        if note.is_of(SUMMARY) and stay and stay.start and stay.end:
            lasted = widened((stay.start[0], stay.end[1]), EARLY)
            first, last = min(first, lasted[0]), max(last, lasted[1])
        return first, last

    def states(self, time: TimeRange, years: bool = True) -> frozenset[str]:
        """Return the ids of notes whose text has a date of that time."""
        return self.stating(time, years) if self.stating else frozenset()


def _written(note: NoteTime) -> TimeRange | None:
    """A discharge summary without a date is of the day of discharge."""
    return note.written or (time_range(note.discharged) if note.discharged and note.is_of(SUMMARY) else None)


def those(pool: Iterable[NoteTime], documents: frozenset[str]) -> tuple[NoteTime, ...]:
    return tuple(note for note in pool if note.document_id in documents)


def ids_of(notes: Iterable[NoteTime]) -> frozenset[str]:
    return frozenset(note.document_id for note in notes)


def _kept(notes: Iterable[NoteTime], told: str, sure: Iterable[NoteTime] = ()) -> Kept:
    return Kept(tuple(notes), ids_of(sure), (told,))


def _not(expression: Expression, why: str) -> Kept:
    return Kept(unresolved=(f"{expression.text}: {why}",))


def _ambiguous(expression: Expression) -> Kept | None:
    """For a date that can be several."""
    readings = " or ".join(expression.readings)
    return _not(expression, f"it can be {readings}") if len(expression.readings) > 1 else None


# -- stays ----------------------------------------------------------------------------------------------------------


def _stay(expression: Expression, record: RecordTimeline, pool: tuple[NoteTime, ...]) -> Kept:
    found = _stays_at(expression, record)
    if isinstance(found, str):
        return _not(expression, found)
    stays, why = found
    return _of_stays(expression, record, stays, f"of {why}")


def _stays_at(expression: Expression, record: RecordTimeline) -> tuple[list[HospitalStay], str] | str:
    """Return the stays at the expression's places, counted with transfers as stays and without, and `3 stays the last`;
    or why there are none."""
    if not record.stays:
        return "no note says to which stay it belongs"
    places, why = _at(expression, [stay.start for stay in record.stays], "stay")
    if not places:
        return why
    stays = {record.stays[place].encounter for place in places}
    groups = transferred(record.stays)
    if len(groups) < len(record.stays):
        others, other = _at(expression, [group[0].start for group in groups], "stay")
        if not others:
            return f"{other}, where a transfer begins none"
        counted = {stay.encounter for place in others for stay in groups[place]}
        why += f", or of {other}, where a transfer begins none" if counted != stays else ""
        stays |= counted
    return [stay for stay in record.stays if stay.encounter in stays], why


def _at(
    expression: Expression, times: Sequence[TimeRange | None], noun: str, optional: Collection[int] = ()
) -> tuple[list[int], str]:
    """Which of these are at the expression's places in time, and `3 stays the last`; or none, and why. Those at the
    indices of `optional` may not count."""
    n, which = len(times), expression.which
    wanted = [which + step if which > 0 else which - step for step in range(expression.count)]
    places = [may_stand_at(times, each, optional) for each in wanted]
    if not all(places):
        return [], f"there {'is' if n == 1 else 'are'} {many(n, noun)}"
    found = sorted(set().union(*places))
    words = " and ".join(in_words(each) for each in wanted)
    if len(found) == n > len(wanted) and not optional:
        return [], f"the times of {many(n, noun)} do not say which one it is"
    unsure = f", which may be any of {len(found)}" if len(found) > len(wanted) else ""
    return found, f"{many(n, noun)} the {words}{unsure}"


def _of_stays(expression: Expression, record: RecordTimeline, stays: Sequence[HospitalStay], why: str) -> Kept:
    """The stays' notes, notes written then or soon after, and those that state a date of theirs; also what has neither
    a time nor a stay."""
    own = [note for stay in stays for note in stay.notes]
    known = ids_of(own)
    states = frozenset[str]().union(
        *(record.states((stay.start[0], stay.end[1]), years=False) for stay in stays if stay.start and stay.end)
    )
    loose = [
        note
        for note in record.notes
        if note.document_id not in known
        and (
            any(stay.is_beside(note) for stay in stays)
            or (note.encounter is None and note.written is None)
            or note.document_id in states
        )
    ]
    days = " and ".join(str(stay) for stay in stays)
    beside = f", with {len(loose)} written about then, dated so in the text, or without a time" if loose else ""
    return _kept([*own, *loose], f"{expression.text}: {why}, {days}{beside}", own)


def _stay_on(expression: Expression, record: RecordTimeline, pool: tuple[NoteTime, ...]) -> Kept:
    found = _stays_on(expression, record)
    if isinstance(found, str):
        return _not(expression, found)
    stays, why = found
    return _of_stays(expression, record, stays, why)


def _stays_on(expression: Expression, record: RecordTimeline) -> tuple[list[HospitalStay], str] | str:
    """Return the stays of the expression's date, with those that a transfer begins or ends, and why; or why none."""
    if len(expression.readings) > 1:
        return f"it can be {' or '.join(expression.readings)}"
    found, why = stays_on(time_range(expression.readings[0]), expression.noun, record.stays)
    groups = [group for group in transferred(record.stays) if any(stay in group for stay in found)]
    return ([stay for group in groups for stay in group], why) if groups else why


# -- days and ranges ------------------------------------------------------------------------------------------------


def _on_day(expression: Expression, record: RecordTimeline, pool: tuple[NoteTime, ...]) -> Kept:
    return _ambiguous(expression) or _on(time_range(expression.readings[0][:10]), expression, record, pool)


def _on(time: TimeRange, expression: Expression, record: RecordTimeline, pool: tuple[NoteTime, ...]) -> Kept:
    """The notes that may tell of a day, month or year; of a month or year also what tells a history later on."""
    covering = [note for stay in record.stays_of(pool) if stay.covers(time) for note in stay.notes if note in pool]
    of_then = any(note.written and may_overlap(note.written, time) for note in pool) or any(
        note.is_of(SUMMARY) for note in covering
    )
    if not of_then and not covering:
        return _not(expression, "no note tells of that time")
    back = (
        frozenset(ids_of(note for note in pool if not note.of_its_day_alone))
        if time[1] - time[0] > _A_MONTH
        else frozenset()
    )
    own = frozenset() if of_then else ids_of(covering)
    why = f"notes that may tell of {day(time)}" if of_then else "no note is of that day, but its stay is known"
    return _between(time, expression, record, pool, why, back, own)


_A_MONTH = timedelta(days=27)


def _between(
    time: TimeRange,
    expression: Expression,
    record: RecordTimeline,
    pool: Iterable[NoteTime],
    why: str,
    back: frozenset[str] = frozenset(),
    own: frozenset[str] = frozenset(),
    certain: TimeRange | None = None,
) -> Kept:
    """The notes that may tell of this time, and those of `own`; those of `back` if they were written later.

    `certain` is the part of the time that surely is meant, where that is not all of it.
    """
    states = record.states(time, years=_EVER[0] < time[0] and time[1] < _EVER[1])
    certain = certain or time
    inner = widened(certain, -2 * EARLY)
    within = (certain[0] if certain[0] == _EVER[0] else inner[0], certain[1] if certain[1] == _EVER[1] else inner[1])
    sure = [note for note in pool if note.written and within[0] <= note.written[0] and note.written[1] <= within[1]]
    kept, undated, of_then = list[NoteTime](), 0, False
    for note in pool:
        told = record.told_of(note)
        meets = told is not None and may_overlap(told, time)
        undated += told is None
        of_then = of_then or meets
        if (
            told is None
            or meets
            or note.document_id in own | states
            or (note.document_id in back and told[0] > time[1])
        ):
            kept.append(note)
    if not of_then and not own:
        return _not(expression, "no note tells of that time")
    return _kept(kept, f"{expression.text}: {why}{f', or {undated} without a time' if undated else ''}", sure)


_EVER = (time_range("0001")[0], time_range("9999")[1])


def _range(expression: Expression, record: RecordTimeline, pool: tuple[NoteTime, ...]) -> Kept:
    """The notes that may tell of the time up to, from, or between what is said, which always belongs to it.

    What was before stands in later histories, too. A note of what is said itself need not count: `the last summary
    before 2018` is none of 2018.
    """
    edges = list[_Edge]()
    for anchor in expression.anchors:
        edge = _edge(anchor, record, pool)
        if isinstance(edge, str):
            return _not(expression, edge)
        edges.append(edge)
    low, high = min(edges, key=lambda edge: edge.start), max(edges, key=lambda edge: edge.end)
    back, own = frozenset[str](), frozenset[str]().union(*(edge.own for edge in edges))
    match expression.relation:
        case "before" | "until":
            time, certain = (_EVER[0], low.end), (_EVER[0], low.start)
            back = low.back | ids_of(note for note in pool if not note.of_its_day_alone)
        case "after" | "since":
            time, certain = (low.start, _EVER[1]), (high.end, _EVER[1])
        case _:
            time, certain, back = (low.start, high.end), (low.end, high.start), high.back
    return _between(time, expression, record, pool, "; ".join(edge.told for edge in edges), back, own, certain)


@dataclass(frozen=True, slots=True)
class _Edge:
    """What a range begins or ends at."""

    start: datetime
    end: datetime
    told: str
    own: frozenset[str] = frozenset()
    """The documents of the stay or the event that it is, read wherever the range lies."""
    back: frozenset[str] = frozenset()
    """Notes that may look back on the time before it."""


def _edge(anchor: Expression, record: RecordTimeline, pool: tuple[NoteTime, ...]) -> _Edge | str:
    """Of a range's stay, discharge, day or event; or why it is not known."""
    if anchor.kind == "event":
        known = _event(anchor, record.within(pool))
        if isinstance(known, str):
            return known
        time, telling = known
        done = frozenset(name for name, told in telling.items() if told.done)
        return _Edge(*widened(time, EARLY), f"{anchor.text} was {day(time)}", done, frozenset(telling))
    if anchor.kind == "day":
        time = time_range(anchor.readings[0])
        ambiguous = len(anchor.readings) > 1
        return f"{anchor.text} can be {' or '.join(anchor.readings)}" if ambiguous else _Edge(*time, day(time))
    found = _stays_on(anchor, record) if anchor.readings else _stays_at(anchor, record)
    if isinstance(found, str):
        return found
    stays, _ = found
    if not any({*stays} <= {*group} for group in transferred(record.stays)):
        return f"{anchor.text} can be of any of {len(stays)} stays"
    own = ids_of(note for stay in stays for note in stay.notes)
    start, end = stays[0].start, stays[-1].end
    if anchor.kind == "discharge":
        discharged = stays[-1].discharged
        if discharged is None:
            return f"the day of {anchor.text} is not known"
        own &= ids_of(note for note in record.notes if not note.of_its_day_alone)
        return _Edge(*discharged, f"{anchor.text} was {day(discharged)}", own)
    if start is None or end is None:
        return f"{anchor.text} has no time"
    return _Edge(start[0], max(start[1], end[1]), f"{anchor.text} was {day(start)} to {day(end)}", own)


def _event(anchor: Expression, record: RecordTimeline) -> tuple[TimeRange, Mapping[str, Telling]] | str:
    """When it was, and the notes that may tell of it; or why that is not known."""
    if anchor.which:
        return f"which one is {anchor.text} cannot be told from words"
    if record.mentions is None:
        return f"notes that tell of {anchor.text} were not looked up"
    telling = record.mentions(anchor.noun)
    times = times_of(anchor.noun, record.notes, telling)
    if not times:
        return f"no note says when {anchor.text} was"
    time = agreed(times)
    if time is None:
        return f"notes say several times of {anchor.text}"
    for note in record.notes:
        # A note of another time that states it as done, and says no date, may mean another one.
        told = record.told_of(note)
        undated = note.document_id in telling and telling[note.document_id].undated
        if undated and not (told and may_overlap(told, time)):
            return f"there may have been another one than the {anchor.noun} of {day(time)}"
    return time, telling


def _hospital_day(expression: Expression, record: RecordTimeline, pool: tuple[NoteTime, ...]) -> Kept:
    stays = record.whole_stays_of(pool)
    if len(stays) != 1:
        return _not(expression, f"of which of {len(stays)} stays is not said")
    start = stays[0].start
    if not stays[0].dated or start is None or start[0].date() != start[1].date():
        return _not(expression, "the day of admission is not known")
    return _on(_days_after(start, expression.which - 1), expression, record, pool)


def _postoperative_day(expression: Expression, record: RecordTimeline, pool: tuple[NoteTime, ...]) -> Kept:
    known = _event(Expression("event", "the surgery", noun="surgery"), record.within(pool))
    if isinstance(known, str):
        return _not(expression, known)
    time, _ = known
    if time[0].date() != time[1].date():
        return _not(expression, "the day of the surgery is not known")
    return _on(_days_after(time, expression.which), expression, record, pool)


def _days_after(time: TimeRange, days: int) -> TimeRange:
    return time_range(widened(time, timedelta(days=-days))[0].date().isoformat())


# -- kinds of notes -------------------------------------------------------------------------------------------------


def _note(expression: Expression, record: RecordTimeline, pool: tuple[NoteTime, ...]) -> Kept:
    """The notes of a kind, or of them what may stand at the place; with those whose type does not say their kind."""
    notes = [note for note in pool if note.is_of(expression.noun)]
    unknown = [note for note in pool if note.of_unknown_kind]
    if not expression.which:
        told = f"any of {many(len(notes), expression.noun)}" if notes else "no note is of this kind"
        if not notes:
            return Kept(told=(f"{expression.text}: {told}",))
        return _kept([*notes, *unknown], f"{expression.text}: {told}", notes)
    if not notes:
        return _not(expression, f"there is no {expression.noun}")
    optional = [place for place, note in enumerate(notes) if note.document_id not in record.sure]
    places, why = _at(expression, [_written_about(note) for note in notes], expression.noun, optional)
    if not places:
        return _not(expression, why)
    found = [notes[place] for place in places]
    stays = {note.encounter for note in found} - {None}
    # An addendum to a summary is of the same stay.
    found += [note for note in notes if expression.noun == SUMMARY and note.encounter in stays and note not in found]
    days = " and ".join(sorted({day(_written(note)) for note in found}))
    beside = f", with {many(len(unknown), 'note')} of unknown kind" if unknown else ""
    return _kept([*found, *unknown], f"{expression.text}: of {why}, {days}{beside}", found)


def _written_about(note: NoteTime) -> TimeRange | None:
    """When a note was written, within a day; of a summary that names no stay, whose addendum may be it, two weeks."""
    written, within = _written(note), LATE / 2 if note.is_of(SUMMARY) and note.encounter is None else EARLY
    return widened(written, within) if written else None


def _note_on(expression: Expression, record: RecordTimeline, pool: tuple[NoteTime, ...]) -> Kept:
    if ambiguous := _ambiguous(expression):
        return ambiguous
    time = time_range(expression.readings[0][:10])
    notes = tuple(note for note in pool if note.is_of(expression.noun) or note.of_unknown_kind)
    return _between(time, expression, record, notes, f"what may tell of {day(time)}")


def _at_discharge(expression: Expression, record: RecordTimeline, pool: tuple[NoteTime, ...]) -> Kept:
    """What tells a stay's story, and what was written about the day of discharge."""
    why = ""
    if expression.which:
        found = _stays_at(expression, record)
        if isinstance(found, str):
            return _not(expression, found)
        stays, why = found
        if expression.which < 0 and record.stays[-1].discharged is None:
            return _not(expression, "the last stay has no day of discharge")
        of_stays = _of_stays(expression, record, stays, "")
        pool, why = those(pool, ids_of(of_stays.notes or ())), f"of {why}, "
    else:
        stays = list(record.stays_of(pool))
    days = [stay.discharged for stay in stays]
    return _about(expression, record, pool, days, f"{why}told in notes about the day of discharge, and in histories")


def _at_admission(expression: Expression, record: RecordTimeline, pool: tuple[NoteTime, ...]) -> Kept:
    """What tells a stay's story, and what was written about the day of admission."""
    days = [stay.start if stay.dated else None for stay in record.stays_of(pool)]
    return _about(expression, record, pool, days, "told in notes about the day of admission, and in histories")


def _about(
    expression: Expression,
    record: RecordTimeline,
    pool: tuple[NoteTime, ...],
    days: Sequence[TimeRange | None],
    why: str,
) -> Kept:
    """The notes that may tell of one of these days, and all that are more than a report or a daily note."""
    known = [widened(time, EARLY) for time in days if time]
    if not known or len(known) < len(days):
        return Kept(told=(f"{expression.text}: not every stay's day is known",))
    kept = [
        note
        for note in pool
        if not note.of_its_day_alone
        or (told := record.told_of(note)) is None
        or any(may_overlap(told, time) for time in known)
    ]
    if not kept:
        return Kept(told=(f"{expression.text}: no note is of that day",))
    return _kept(kept, f"{expression.text}: {why}", kept)


RULES: dict[str, Callable[[Expression, RecordTimeline, tuple[NoteTime, ...]], Kept]] = {
    "stay": _stay,
    "stay-on": _stay_on,
    "day": _on_day,
    "hospital-day": _hospital_day,
    "postoperative-day": _postoperative_day,
    "range": _range,
    "note": _note,
    "note-on": _note_on,
    "at-discharge": _at_discharge,
    "at-admission": _at_admission,
}
