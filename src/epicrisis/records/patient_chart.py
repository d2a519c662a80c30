"""A patient's record at a glance: stays, problems, allergies and medications, and a timeline with its notes.

    chart = build_chart(store.fetch_record(Scope(patient="p1")), since="2150-01-01")

Everything comes from structured facts (`clinical_facts`) and from the dates of notes; no note is interpreted. Whether
a medication or a problem is current is judged as in answers to questions. Each item names the documents that state it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from epicrisis.core.clinical_facts import ClinicalFact
from epicrisis.core.dates import first_day, last_day
from epicrisis.core.errors import InputError
from epicrisis.core.fact_kinds import KINDS, LASTING_KINDS, VALUE_KINDS, FactKind
from epicrisis.core.fact_times import FactClock
from epicrisis.core.types import Passage
from epicrisis.records.fact_questions.courses import (
    Course,
    CourseState,
    denies_allergy,
    find_later_stop,
    judge_course,
    list_courses,
)
from epicrisis.records.fact_questions.record import (
    PatientFacts,
    is_planned_end,
    list_plan_documents,
    list_statuses,
    read_fact_record,
)
from epicrisis.records.fact_questions.value_computations import format_value
from epicrisis.retrieval.hospital_stays import HospitalStay, NoteTime, group_stays

LAST_VISIT = "last-visit"
_VERBS = {
    ("medication", "start"): "started",
    ("medication", "end"): "stopped",
    ("problem", "end"): "resolved",
    ("encounter", "start"): "admitted",
    ("encounter", "end"): "discharged",
}
ChartState: TypeAlias = Literal[CourseState, "denial", "withdrawn"]
"""`denial`: that there is no allergy; `withdrawn`: refuted, not taken, or entered in error."""
_STATES: tuple[ChartState, ...] = ("current", "denial", "uncertain", "given", "ended", "withdrawn")
"""In the order of the chart. A medication of several prescriptions has the first state that one of them has."""


@dataclass(frozen=True, slots=True)
class ChartStay:
    """A hospital stay. Days are partial ISO dates, or None if unknown."""

    encounter: str
    first_day: str | None
    last_day: str | None
    """None for a stay that goes on."""
    notes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartCourse:
    """A problem, an allergy or a medication with all its statements. Its state is that at the record's last day."""

    kind: FactKind
    name: str
    first: str | None
    """The earliest time it is stated for; None if the record has its end alone."""
    end: str | None
    """When it ended, if it did and the record says when."""
    state: ChartState
    remark: str
    """Why the state is uncertain, or that the last sign is old; empty: nothing to say."""
    status: str
    """The status of the last statement, in the words of the source."""
    details: str
    """The doses or values of the statements that give it its state."""
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
    facts = read_fact_record(record)
    notes = NoteTime.from_passages(record)
    stays = group_stays(notes, facts.ongoing if facts else None)
    plans = list_plan_documents((*facts.facts, *facts.withdrawn)) if facts else frozenset()
    day = _find_last_visit(record, stays, plans) if since == LAST_VISIT else since
    withdrawn = {fact.document_id for fact in facts.withdrawn} if facts else frozenset[str]()
    own = [note for note in notes if note.document_id not in withdrawn]
    events = [event for event in _list_events(facts.facts if facts else (), own) if _is_since(event.time, day)]
    undated = sum(event.time is None for event in events)
    courses = _list_courses(facts) if facts else ()
    number = len(facts.facts) + len(facts.withdrawn) if facts else 0
    return PatientChart(day, _list_stays(stays), courses, tuple(events), undated, number)


def _is_since(time: str | None, since: str | None) -> bool:
    """Return whether a time is possibly on or after a day. An event without a time is not."""
    if since is None:
        return True
    try:
        start = first_day(since)
    except ValueError as error:
        raise InputError(f"--since: {error}; write it as 2015, 2015-06 or 2015-06-30, or last-visit") from error
    return time is not None and last_day(time) >= start


def _find_last_visit(record: Sequence[Passage], stays: Sequence[HospitalStay], plans: Set[str]) -> str:
    """Return the first day of the last stay or visit. Documents of `plans` tell of none."""
    days: list[str] = [stay.start[0].date().isoformat() for stay in stays if stay.start is not None]
    for passage in record:
        if passage.metadata.get("visit") and passage.date and passage.document_id not in plans:
            days.append(passage.date[:10])
    if not days:
        raise InputError("the record has no dated stay or visit: give a day, such as --since 2015-06-30")
    return max(days)


def _list_stays(stays: Iterable[HospitalStay]) -> tuple[ChartStay, ...]:
    rows: list[ChartStay] = []
    for stay in stays:
        first = stay.start[0].date().isoformat() if stay.start else None
        last = stay.end[1].date().isoformat() if stay.end and not stay.is_ongoing else None
        rows.append(ChartStay(stay.encounter, first, last, len(stay.notes)))
    return tuple(rows)


def _list_courses(record: PatientFacts) -> tuple[ChartCourse, ...]:
    """Return problems, allergies and medications by kind, state and first time. Names are compared without case.

    Beside a current allergy, entries that deny any are left out; the timeline has them.
    """
    at = record.last or datetime.max
    groups: dict[tuple[FactKind, str], list[tuple[Course, ChartState, str]]] = defaultdict(list)
    courses = list_courses([fact for fact in record.facts if fact.kind in LASTING_KINDS])
    for course in courses:
        state, remark = judge_course(course, at, is_past=False)
        if state == "current" and (stop := find_later_stop(course, courses, at)) is not None:
            state, remark = "uncertain", f"another entry says it ended, {stop.time}"
        is_denial = state == "current" and denies_allergy(course.head)
        groups[_group_key(course)].append((course, "denial" if is_denial else state, remark))
    for course in list_courses([fact for fact in record.withdrawn if fact.kind in LASTING_KINDS]):
        groups[_group_key(course)].append((course, "withdrawn", ""))
    rows = [_join_courses(group) for group in groups.values()]
    if any(row.kind == "allergy" and row.state == "current" for row in rows):
        rows = [row for row in rows if row.state != "denial"]
    return tuple(sorted(rows, key=_chart_order))


def _group_key(course: Course) -> tuple[FactKind, str]:
    return course.head.kind, " ".join(course.head.name.casefold().split())


def _chart_order(row: ChartCourse) -> tuple[int, int, str, str]:
    return LASTING_KINDS.index(row.kind), _STATES.index(row.state), row.first or "9", row.name


def _join_courses(group: Sequence[tuple[Course, ChartState, str]]) -> ChartCourse:
    """Return one row for the courses of a name, with the state of the most current of them."""
    state = min((state for _, state, _ in group), key=_STATES.index)
    deciding = [(course, remark) for course, course_state, remark in group if course_state == state]
    facts = _sort_statements(fact for course, _, _ in group for fact in course.facts)
    last = _sort_statements(fact for course, _ in deciding for fact in course.facts)[-1]
    end = last.time if state == "ended" and last.event == "end" and not is_planned_end(last) else None
    details = dict.fromkeys(course.head.value for course, _ in deciding if course.head.value)
    remarks = dict.fromkeys(remark for _, remark in deciding if remark)
    if state != "withdrawn" and any("refuted" in list_statuses(course.head) for course, _, _ in group):
        remarks["another entry refutes it"] = None
    return ChartCourse(
        kind=last.kind,
        name=last.name,
        first=next((fact.time for fact in facts if fact.time and fact.event != "end"), None),
        end=end,
        state=state,
        remark="; ".join(remarks),
        status=last.status,
        details="; ".join(list(details)[-1:] if state == "ended" else details),
        statements=len(facts),
        documents=tuple(dict.fromkeys(fact.document_id for fact in facts)),
    )


def _list_events(facts: Iterable[ClinicalFact], notes: Iterable[NoteTime]) -> list[ChartEvent]:
    """Return the events of facts and the notes of each day, oldest first, those without a time last."""
    events: list[ChartEvent] = []
    fact_documents: set[str] = set()
    counts: Counter[tuple[str | None, str]] = Counter()
    documents: dict[tuple[str | None, str], dict[str, None]] = defaultdict(dict)
    for fact in facts:
        fact_documents.add(fact.document_id)
        is_dose = fact.kind == "medication" and fact.event == "given"
        if fact.kind not in VALUE_KINDS and not is_dose:
            verb = "planned end of" if is_planned_end(fact) else _VERBS.get((fact.kind, fact.event), fact.kind)
            details = f" {format_value(fact)}" if fact.value else ""
            status = f" ({fact.status})" if fact.status and fact.event != "end" else ""
            events.append(ChartEvent(fact.time, f"{verb} {fact.name}{details}{status}", (fact.document_id,)))
            continue
        label = "dose given" if is_dose else KINDS[fact.kind].singular
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


def _sort_statements(facts: Iterable[ClinicalFact]) -> list[ClinicalFact]:
    """Return statements by time, those without one first, and an end after a start of the same time."""
    facts = list(facts)
    clock = FactClock.build(facts)

    def order(fact: ClinicalFact) -> tuple[object, ...]:
        place = clock.place(fact)
        return (place is not None, place[0] if place else "", fact.time or "", fact.event == "end")

    return sorted(facts, key=order)
