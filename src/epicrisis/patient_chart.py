"""A patient's record at a glance: stays, problems, allergies and medications, and a timeline with its notes.

    chart = build_chart(store.fetch_record(Scope(patient="p1")), since="2150-01-01")

Everything comes from structured facts (`clinical_facts`) and from the dates of notes; no note is interpreted. Each item
names the documents that state it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from epicrisis.clinical_facts import ClinicalFact, FactKind, collect_facts
from epicrisis.dates import first_day, last_day
from epicrisis.errors import InputError
from epicrisis.fact_times import FactClock
from epicrisis.retrieval.hospital_stays import HospitalStay, NoteTime, group_stays
from epicrisis.types import Passage

LAST_VISIT = "last-visit"
_COURSES: tuple[FactKind, ...] = ("problem", "allergy", "medication")
"""Kinds that last, and are listed once with their first and last time."""
_EVENTS: tuple[FactKind, ...] = ("problem", "procedure", "medication", "immunization", "encounter")
"""Kinds that are on the timeline one by one. Values and doses are counted."""
_VERBS = {
    ("medication", "start"): "started",
    ("medication", "end"): "stopped",
    ("medication", "given"): "given",
    ("problem", "end"): "resolved",
    ("encounter", "start"): "admitted",
    ("encounter", "end"): "discharged",
}
_KINDS = {"laboratory": "laboratory value", "vital-sign": "vital sign", "observation": "observation"}
_PROPOSED = frozenset({"proposal", "plan", "option"})
"""Categories of orders that were never placed."""
_COURSE: TypeAlias = tuple[FactKind, str]


@dataclass(frozen=True, slots=True)
class ChartStay:
    """A hospital stay. Days are partial ISO dates, or None if unknown."""

    encounter: str
    first_day: str | None
    last_day: str | None
    notes: int


@dataclass(frozen=True, slots=True)
class ChartCourse:
    """A problem, an allergy or a medication with all its statements."""

    kind: FactKind
    name: str
    first: str | None
    """The earliest time it is stated for."""
    ended: str | None
    """When it ended, if its last statement is an end."""
    status: str
    """The status of the last statement, in the words of the source."""
    details: str
    """The dose of a medication or the value of its last statement."""
    statements: int
    documents: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ChartEvent:
    """What happened on a day: one line of the timeline."""

    time: str | None
    text: str
    documents: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PatientChart:
    """A patient's record at a glance. Courses are complete; events are those since `since`, oldest first."""

    since: str | None
    stays: tuple[ChartStay, ...]
    courses: tuple[ChartCourse, ...]
    events: tuple[ChartEvent, ...]
    undated: int
    """Events without a time; they are the last ones."""
    facts: int
    """Structured facts of the record. Without any, courses are empty, which does not mean that there are none."""


def build_chart(record: Sequence[Passage], since: str | None = None) -> PatientChart:
    """Return the chart of all passages of a record.

    `since` is a partial ISO date, or `last-visit` for the first day of the last stay or visit. Raises InputError if it
    is not a date, or if the record has no dated stay or visit.
    """
    facts = collect_facts(record)
    notes = NoteTime.from_passages(record)
    stays = group_stays(notes)
    day = _find_last_visit(record, stays) if since == LAST_VISIT else since
    events = [event for event in _list_events(facts, notes) if _is_since(event.time, day)]
    undated = sum(event.time is None for event in events)
    return PatientChart(day, _list_stays(stays), _list_courses(facts), tuple(events), undated, len(facts))


def _is_since(time: str | None, since: str | None) -> bool:
    """Return whether a time is possibly on or after a day. An event without a time is not."""
    if since is None:
        return True
    try:
        start = first_day(since)
    except ValueError as error:
        raise InputError(f"--since: {error}; write it as 2015, 2015-06 or 2015-06-30, or last-visit") from error
    return time is not None and last_day(time) >= start


def _find_last_visit(record: Sequence[Passage], stays: Sequence[HospitalStay]) -> str:
    """Return the first day of the last stay or visit."""
    days: list[str] = []
    for stay in stays:
        if stay.start is not None:
            days.append(stay.start[0].date().isoformat())
    for passage in record:
        if passage.metadata.get("visit") and passage.date:
            days.append(passage.date[:10])
    if not days:
        raise InputError("the record has no dated stay or visit: give a day, such as --since 2015-06-30")
    return max(days)


def _is_planned(fact: ClinicalFact) -> bool:
    """Return whether a fact is an end that was planned. Whether it came is not known."""
    return fact.event == "end" and "planned" in fact.status


def _list_stays(stays: Iterable[HospitalStay]) -> tuple[ChartStay, ...]:
    rows: list[ChartStay] = []
    for stay in stays:
        first = stay.start[0].date().isoformat() if stay.start else None
        last = stay.end[1].date().isoformat() if stay.end else None
        rows.append(ChartStay(stay.encounter, first, last, len(stay.notes)))
    return tuple(rows)


def _list_courses(facts: Iterable[ClinicalFact]) -> tuple[ChartCourse, ...]:
    """Return problems, allergies and medications by kind and first time. Names are compared without case."""
    groups: dict[_COURSE, list[ClinicalFact]] = defaultdict(list)
    for fact in facts:
        if fact.kind in _COURSES:
            groups[fact.kind, " ".join(fact.name.casefold().split())].append(fact)
    courses: list[ChartCourse] = []
    for group in groups.values():
        ordered = _sort_statements(group)
        last = ordered[-1]
        details = next((fact.value for fact in reversed(ordered) if fact.value), "")
        courses.append(
            ChartCourse(
                last.kind,
                last.name,
                next((fact.time for fact in ordered if fact.time), None),
                last.time if last.event == "end" and not _is_planned(last) else None,
                ", ".join(filter(None, (last.category if last.category in _PROPOSED else "", last.status))),
                details,
                len(ordered),
                tuple(dict.fromkeys(fact.document_id for fact in ordered)),
            )
        )
    return tuple(sorted(courses, key=lambda course: (_COURSES.index(course.kind), course.first or "9", course.name)))


def _list_events(facts: Iterable[ClinicalFact], notes: Iterable[NoteTime]) -> list[ChartEvent]:
    """Return the events of facts and the notes of each day, oldest first, those without a time last."""
    events: list[ChartEvent] = []
    fact_documents: set[str] = set()
    counts: Counter[tuple[str | None, str]] = Counter()
    documents: dict[tuple[str | None, str], dict[str, None]] = defaultdict(dict)
    for fact in facts:
        fact_documents.add(fact.document_id)
        if fact.kind in _EVENTS and fact.event != "given":
            verb = "planned end of" if _is_planned(fact) else _VERBS.get((fact.kind, fact.event), fact.kind)
            details = f" {fact.value}" if fact.value else ""
            status = f" ({fact.status})" if fact.status else ""
            events.append(ChartEvent(fact.time, f"{verb} {fact.name}{details}{status}", (fact.document_id,)))
            continue
        label = "dose given" if fact.event == "given" else _KINDS.get(fact.kind, fact.kind)
        day = fact.time[:10] if fact.time else None
        counts[day, label] += 1
        documents[day, label][fact.document_id] = None
    for note in notes:
        if note.document_id not in fact_documents:
            day = note.date[:10] if note.date else None
            label = note.note_type or "note"
            counts[day, label] += 1
            documents[day, label][note.document_id] = None
    for (day, label), count in counts.items():
        text = label if count == 1 else f"{label} ({count})"
        events.append(ChartEvent(day, text, tuple(documents[day, label])))
    return sorted(events, key=lambda event: (event.time is None, event.time or "", event.text))


def _sort_statements(facts: Sequence[ClinicalFact]) -> list[ClinicalFact]:
    """Return statements by time, those without one first, and an end after a start of the same time."""
    clock = FactClock.build(facts)

    def order(fact: ClinicalFact) -> tuple[object, ...]:
        place = clock.place(fact)
        return (place is not None, place[0] if place else "", fact.time or "", fact.event == "end")

    return sorted(facts, key=order)
