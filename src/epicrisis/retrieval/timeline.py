"""Which notes of a record a question is about, by what it says of time (EHR study, appendix F and Table 13; errata E7).

Pure. Knows no store, no model and no text of a note: which notes tell of an event is looked up by a function handed in.
A note is left out only where it surely is not meant: of what may be the last all is kept, and a note without a time may
be of any. Where an expression cannot be resolved nothing is left out, and that is said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias

from epicrisis.dates import Moment, may_meet, moment

from .events import Telling, agreed, times_of
from .expressions import Expression, of_everything, read, rounds
from .stays import SUMMARY, NoteTime, Stay, day, encounters, in_words, many, may_stand_at, stays_on

__all__ = ["Mentions", "NoteTime", "Resolution", "Stay", "encounters", "resolve"]

Mentions: TypeAlias = Callable[[str], Mapping[str, Telling]]
"""By document id, the notes that may tell of an event, by its words: see `events.telling`."""


@dataclass(frozen=True, slots=True)
class Resolution:
    """Which notes a question is about."""

    documents: frozenset[str] | None = None
    """Their ids, at least one; `None`: nothing is left out."""
    told: tuple[str, ...] = ()
    """What was resolved to what and why, a sentence each; true too where all notes are read."""
    unresolved: tuple[str, ...] = ()
    """Expressions that were recognised and could not be resolved, and why; then nothing is left out."""


def resolve(question: str, notes: Iterable[NoteTime], mentions: Mentions | None = None) -> Resolution:
    """The notes of the record that the question is about.

    Several stays, days or kinds of notes are taken together; what remains are the notes that stays, days, ranges and
    kinds agree on: `the last radiology report of the first admission before the surgery`. A question that says nothing
    of time, or asks for an order of things, leaves no note out; nor does a comparison with what it does not say.
    `mentions` is needed for events (`before the surgery`).
    """
    expressions = read(question)
    told = [f"{each.text}: no note is left out, {each.noun}" for each in expressions if each.kind == "open"]
    if whole := of_everything(expressions):
        asks = "an order, a span or every stay" if whole.kind == "all" else "more than the time that is said"
        return Resolution(told=(f"{whole.text}: asks for {asks}, so no note is left out", *told))
    record = _Record.of(notes, mentions)
    pool, restricted, unresolved = record.notes, False, list[str]()
    for round_ in rounds(expressions):
        results = [_RULES[each.kind](each, record, pool) for each in round_]
        kept = [result.documents for result in results if result.documents is not None]
        if kept:
            pool, restricted = _those(pool, frozenset().union(*kept)), True
        told += [each for result in results for each in result.told]
        unresolved += [each for result in results for each in result.unresolved]
    if restricted:
        unresolved += [f"{each.text}: of what is not said" for each in expressions if each.kind == "bare"]
    if unresolved or not restricted:
        return Resolution(None, tuple(told), tuple(unresolved))
    named = [note for note in pool for each in expressions if each.kind == "named-note" and note.is_of(each.noun)]
    return Resolution(frozenset(note.document_id for note in named or pool), tuple(told))


@dataclass(frozen=True, slots=True)
class _Record:
    notes: tuple[NoteTime, ...]
    stays: tuple[Stay, ...]
    mentions: Mentions | None

    @staticmethod
    def of(notes: Iterable[NoteTime], mentions: Mentions | None) -> _Record:
        each = tuple(sorted(set(notes), key=lambda note: note.document_id))
        return _Record(each, encounters(each), mentions)

    def stays_of(self, pool: Iterable[NoteTime]) -> tuple[Stay, ...]:
        named = {note.encounter for note in pool}
        return tuple(stay for stay in self.stays if stay.encounter in named)

    def told_of(self, note: NoteTime) -> Moment | None:
        """The time that a note tells of: when it was written; of a discharge summary the whole stay up to then."""
        written = _written(note)
        if not note.is_of(SUMMARY):
            return written
        stay = next((stay for stay in self.stays if stay.encounter == note.encounter), None)
        return (min(stay.start[0], written[0]), written[1]) if written and stay and stay.start else written


def _written(note: NoteTime) -> Moment | None:
    """A discharge summary without a date is of the day of discharge."""
    return note.written or (moment(note.discharged) if note.discharged and note.is_of(SUMMARY) else None)


def _those(pool: Iterable[NoteTime], documents: frozenset[str]) -> tuple[NoteTime, ...]:
    return tuple(note for note in pool if note.document_id in documents)


def _kept(notes: Iterable[NoteTime], *told: str) -> Resolution:
    return Resolution(frozenset(note.document_id for note in notes), told)


def _not(expression: Expression, why: str) -> Resolution:
    return Resolution(unresolved=(f"{expression.text}: {why}",))


def _ambiguous(expression: Expression) -> Resolution | None:
    """For a date that can be several."""
    readings = " or ".join(expression.readings)
    return _not(expression, f"it can be {readings}") if len(expression.readings) > 1 else None


# -- stays ----------------------------------------------------------------------------------------------------------


def _stay(expression: Expression, record: _Record, pool: tuple[NoteTime, ...]) -> Resolution:
    if not record.stays:
        return _not(expression, "no note says to which stay it belongs")
    places, why = _at(expression, [stay.start for stay in record.stays], "stay")
    if not places:
        return _not(expression, why)
    return _of_stays(expression, record, [record.stays[place] for place in places], f"of {why}")


def _at(expression: Expression, times: Sequence[Moment | None], noun: str) -> tuple[list[int], str]:
    """Which of these are at the expression's places in time, and `3 stays the last`; or none, and why."""
    n, which = len(times), expression.which
    wanted = [which + step if which > 0 else which - step for step in range(expression.count)]
    places = [may_stand_at(times, each) for each in wanted]
    if not all(places):
        return [], f"there {'is' if n == 1 else 'are'} {many(n, noun)}"
    found = sorted(set().union(*places))
    words = " and ".join(in_words(each) for each in wanted)
    if len(found) == n > len(wanted):
        return [], f"the times of {many(n, noun)} do not say which one it is"
    unsure = f", which may be any of {len(found)}" if len(found) > len(wanted) else ""
    return found, f"{many(n, noun)} the {words}{unsure}"


def _of_stays(expression: Expression, record: _Record, stays: Sequence[Stay], why: str) -> Resolution:
    """The stays' notes, and the notes of no stay that may be of their days."""
    own = [note for stay in stays for note in stay.notes]
    loose = [
        note
        for note in record.notes
        if note.encounter is None and note.written and any(stay.covers(note.written) for stay in stays)
    ]
    days = " and ".join(str(stay) for stay in stays)
    beside = f", with {len(loose)} of those days that name no stay" if loose else ""
    return _kept([*own, *loose], f"{expression.text}: {why}, {days}{beside}")


def _stay_on(expression: Expression, record: _Record, pool: tuple[NoteTime, ...]) -> Resolution:
    if ambiguous := _ambiguous(expression):
        return ambiguous
    stays, why = stays_on(moment(expression.readings[0]), expression.noun, record.stays)
    return _of_stays(expression, record, stays, why) if stays else _not(expression, why)


# -- days and ranges ------------------------------------------------------------------------------------------------


def _on_day(expression: Expression, record: _Record, pool: tuple[NoteTime, ...]) -> Resolution:
    return _ambiguous(expression) or _on(moment(expression.readings[0][:10]), expression, record, pool)


def _on(time: Moment, expression: Expression, record: _Record, pool: tuple[NoteTime, ...]) -> Resolution:
    found = _between(
        time, expression, record, pool, f"notes of {day(time)}, and summaries of a stay that may have lasted then"
    )
    if found.documents is not None:
        return found
    covering = [note for stay in record.stays_of(pool) if stay.covers(time) for note in stay.notes if note in pool]
    return _kept(covering, f"{expression.text}: no note is of that day, but its stay is known") if covering else found


def _between(
    time: Moment,
    expression: Expression,
    record: _Record,
    pool: Iterable[NoteTime],
    why: str,
    back: frozenset[str] = frozenset(),
) -> Resolution:
    """The notes that may tell of this time; those of `back` do also if they were written later."""
    kept = [
        note
        for note in pool
        if (told := record.told_of(note)) is None
        or may_meet(told, time)
        or (note.document_id in back and told[0] > time[1])
    ]
    undated = sum(record.told_of(note) is None for note in kept)
    if len(kept) == undated:
        return _not(expression, "no note tells of that time")
    return _kept(kept, f"{expression.text}: {why}{f', or {undated} without a time' if undated else ''}")


_EVER = (moment("0001")[0], moment("9999")[1])


def _range(expression: Expression, record: _Record, pool: tuple[NoteTime, ...]) -> Resolution:
    edges = list[_Edge]()
    for anchor in expression.anchors:
        edge = _edge(anchor, record)
        if isinstance(edge, str):
            return _not(expression, edge)
        edges.append(edge)
    low, high = min(edges, key=lambda edge: edge.start), max(edges, key=lambda edge: edge.end)
    time, back, own = {
        "before": ((_EVER[0], low.start[1]), low.back, low.own - low.back),
        "until": ((_EVER[0], low.end[1]), low.back, frozenset[str]()),
        "after": ((low.end[0], _EVER[1]), frozenset[str](), low.own),
        "since": ((low.start[0], _EVER[1]), frozenset[str](), frozenset[str]()),
        "between": ((low.start[0], high.end[1]), high.back, frozenset[str]()),
    }[expression.relation]
    rest = [note for note in pool if note.document_id not in own]
    return _between(time, expression, record, rest, "; ".join(edge.told for edge in edges), back)


@dataclass(frozen=True, slots=True)
class _Edge:
    """What a range begins or ends at."""

    start: Moment
    end: Moment
    told: str
    own: frozenset[str] = frozenset()
    """Notes of the stay that it is."""
    back: frozenset[str] = frozenset()
    """Later notes that may tell of the time before it."""


def _edge(anchor: Expression, record: _Record) -> _Edge | str:
    """Of a range's stay, discharge, day or event; or why it is not known."""
    if anchor.kind == "event":
        known = _event(anchor, record)
        if isinstance(known, str):
            return known
        time, telling = known
        back = frozenset(note.document_id for note in record.notes if not note.of_its_day_alone) | telling
        # An operative note may be of the day after.
        wide = time[0] - timedelta(days=1), time[1]
        return _Edge(wide, wide, f"{anchor.text} was {day(time)}", back=back)
    if anchor.kind == "day":
        time = moment(anchor.readings[0])
        ambiguous = len(anchor.readings) > 1
        return f"{anchor.text} can be {' or '.join(anchor.readings)}" if ambiguous else _Edge(time, time, day(time))
    kind = "stay-on" if anchor.readings else "stay"
    found = _RULES[kind](anchor, record, record.notes)
    stays = record.stays_of(_those(record.notes, found.documents or frozenset()))
    if len(stays) != 1:
        return f"{anchor.text} can be of any of {len(stays)} stays" if stays else "; ".join(found.unresolved)
    (stay,) = stays
    if anchor.kind == "discharge":
        end = stay.discharged
        return _Edge(end, end, f"{anchor.text} was {day(end)}") if end else f"the day of {anchor.text} is not known"
    if stay.start is None or stay.end is None:
        return f"{anchor.text} has no time"
    own = frozenset(found.documents or ())
    back = frozenset(note.document_id for note in stay.notes if not stay.dated or _of_admission(note, [stay.start]))
    return _Edge(stay.start, stay.end, f"{anchor.text} was {stay}", own, back)


def _event(anchor: Expression, record: _Record) -> tuple[Moment, frozenset[str]] | str:
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
    return (time, frozenset(telling)) if time else f"notes say several times of {anchor.text}"


def _hospital_day(expression: Expression, record: _Record, pool: tuple[NoteTime, ...]) -> Resolution:
    stays = record.stays_of(pool)
    if len(stays) != 1:
        return _not(expression, f"of which of {len(stays)} stays is not said")
    start = stays[0].start
    if not stays[0].dated or start is None or start[0].date() != start[1].date():
        return _not(expression, "the day of admission is not known")
    return _on(_days_after(start, expression.which - 1), expression, record, pool)


def _postoperative_day(expression: Expression, record: _Record, pool: tuple[NoteTime, ...]) -> Resolution:
    within = _Record(pool, record.stays_of(pool), record.mentions)
    known = _event(Expression("event", "the surgery", noun="surgery"), within)
    if isinstance(known, str):
        return _not(expression, known)
    time, _ = known
    if time[0].date() != time[1].date():
        return _not(expression, "the day of the surgery is not known")
    return _on(_days_after(time, expression.which), expression, record, pool)


def _days_after(time: Moment, days: int) -> Moment:
    return moment((time[0] + timedelta(days=days)).date().isoformat())


# -- kinds of notes -------------------------------------------------------------------------------------------------


def _note(expression: Expression, record: _Record, pool: tuple[NoteTime, ...]) -> Resolution:
    notes = [note for note in pool if note.is_of(expression.noun)]
    if not expression.which:
        told = f"any of {many(len(notes), expression.noun)}" if notes else "no note is of this kind"
        return _kept(notes, f"{expression.text}: {told}") if notes else Resolution(told=(f"{expression.text}: {told}",))
    if not notes:
        return _not(expression, f"there is no {expression.noun}")
    places, why = _at(expression, [_written(note) for note in notes], expression.noun)
    if not places:
        return _not(expression, why)
    found = [notes[place] for place in places]
    stays = {note.encounter for note in found} - {None}
    # An addendum to a summary is of the same stay.
    found += [note for note in notes if expression.noun == SUMMARY and note.encounter in stays and note not in found]
    days = " and ".join(sorted(day(_written(note)) for note in found))
    return _kept(found, f"{expression.text}: of {why}, {days}")


def _note_on(expression: Expression, record: _Record, pool: tuple[NoteTime, ...]) -> Resolution:
    if ambiguous := _ambiguous(expression):
        return ambiguous
    time = moment(expression.readings[0][:10])
    notes = tuple(note for note in pool if note.is_of(expression.noun))
    written = [note for note in notes if note.written and may_meet(note.written, time)]
    if written:
        return _kept(written, f"{expression.text}: what was written on {day(time)}")
    return _between(time, expression, record, notes, f"what tells of {day(time)}")


def _at_discharge(expression: Expression, record: _Record, pool: tuple[NoteTime, ...]) -> Resolution:
    summaries = [note for note in pool if note.is_of(SUMMARY)]
    if summaries:
        stays = len(record.stays_of(summaries))
        which = f", for of which of {stays} stays is not said" if stays > 1 and pool == record.notes else ""
        return _kept(summaries, f"{expression.text}: told in a {SUMMARY}{which}")
    if pool == record.notes:
        return _not(expression, f"the record has no {SUMMARY}")
    return Resolution(told=(f"{expression.text}: none of its notes is a {SUMMARY}",))


def _at_admission(expression: Expression, record: _Record, pool: tuple[NoteTime, ...]) -> Resolution:
    """Admission notes, what was written on the first day, and the discharge summaries, which tell of both."""
    stays = record.stays_of(pool)
    starts = [stay.start for stay in stays if stay.dated and stay.start]
    if not starts or len(starts) < len(stays):
        return Resolution(told=(f"{expression.text}: not every note's day of admission is known",))
    kept = [note for note in pool if _of_admission(note, starts)]
    if not kept:
        return Resolution(told=(f"{expression.text}: no note is of that day",))
    return _kept(kept, f"{expression.text}: told in notes of the first day, of admission and of discharge")


def _of_admission(note: NoteTime, starts: Sequence[Moment]) -> bool:
    """Up to a day after a stay's beginning, for what is written at once is often dated the next morning."""
    first = [(start[0] - timedelta(days=1), start[1] + timedelta(days=1)) for start in starts]
    return (
        note.is_of("admission note")
        or note.is_of(SUMMARY)
        or note.written is None
        or any(may_meet(note.written, each) for each in first)
    )


_RULES: dict[str, Callable[[Expression, _Record, tuple[NoteTime, ...]], Resolution]] = {
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
