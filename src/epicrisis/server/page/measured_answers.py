"""A patient at a glance, and the measurements of a record as rows: name, values in the order of time, a small line.

The glance is the chart of structured facts (`records/patient_chart.py`). Each opens the document that states it.

Only structured facts are read: laboratory values, vital signs and other observations. Nothing is read out of the text
of notes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from epicrisis.core.clinical_facts import ClinicalFact
from epicrisis.core.fact_kinds import VALUE_KINDS, FactKind
from epicrisis.core.fact_times import FactClock
from epicrisis.core.printable import printable
from epicrisis.core.types import Passage
from epicrisis.records.fact_questions.record import PatientFacts, read_fact_record
from epicrisis.records.patient_chart import ChartCourse, build_chart

MAX_VALUES = 6
"""Values of one row, the last ones. The row says how many came before."""
WIDTH, HEIGHT, EDGE = 96, 24, 3
_ROUTINE = frozenset({"", "final", "completed"})
"""Statuses that a value does not repeat."""


MAX_LAST_VALUES = (6, 4)
"""Laboratory values and others of the first screen, the newest first. All others follow in a fold."""
_NOW = frozenset({"current", "denial", "uncertain"})
_HIDDEN = frozenset({"withdrawn"})
_FLAGS = (("(high", "above"), ("(low", "below"), ("(H", "above"), ("(L", "below"))
"""How sources mark values outside the range of reference."""


@dataclass(frozen=True, slots=True)
class MeasuredValue:
    """One value. A click on it opens its document."""

    document_id: str
    time: str
    text: str
    """The value with its remarks, without the unit of the row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementRow:
    """The values of one measurement in one unit."""

    name: str
    unit: str
    values: tuple[MeasuredValue, ...]
    """The last MAX_VALUES in the order of time."""
    earlier: int
    """How many more came before."""
    course: str
    """The points of the line in the units of its drawing. Empty with fewer than two numbers."""
    summary: str
    """The course in words."""
    kind: FactKind

    @property
    def last(self) -> str:
        """The last value with its unit."""
        text = self.values[-1].text
        return text if self.unit == "" or self.unit in text else f"{text} {self.unit}"

    @property
    def flag(self) -> str:
        """`above` or `below` the range of reference, as the source marks the last value, or empty."""
        return next((flag for mark, flag in _FLAGS if mark in self.values[-1].text), "")


@dataclass(frozen=True, slots=True)
class Measurements:
    """The measurements of some documents of a record."""

    rows: tuple[MeasurementRow, ...] = ()
    withdrawn: int = 0
    """Values that were withdrawn or replaced by a correction, which are in no row."""


NO_MEASUREMENTS = Measurements()


@dataclass(frozen=True, slots=True)
class CourseView:
    """A problem, an allergy or a medication."""

    text: str
    remark: str
    """Since when, until when, and what is uncertain."""
    document_id: str
    """The document of its last statement."""


def list_measurements(record: PatientFacts, document_ids: Iterable[str]) -> Measurements:
    """Return the rows of these documents, by name and unit.

    A value that two documents state for the same time is one value.
    """
    documents = set(document_ids)
    series: dict[tuple[str, str], dict[tuple[str, str], ClinicalFact]] = {}
    for fact in record.values:
        if fact.document_id in documents and _write_value(fact):
            values = series.setdefault((fact.name.casefold(), fact.unit), {})
            values.setdefault((fact.time or "", _write_value(fact)), fact)
    rows = [_make_row(_sort_by_time(series[key].values())) for key in sorted(series)]
    withdrawn = [fact for fact in record.withdrawn if fact.document_id in documents and fact.kind in VALUE_KINDS]
    return Measurements(tuple(rows), len(withdrawn))


def _sort_by_time(facts: Iterable[ClinicalFact]) -> list[ClinicalFact]:
    """Return values by the instants of their times, as computed answers compare them, those without a time first."""
    facts = list(facts)
    clock = FactClock.build(facts)

    def order(fact: ClinicalFact) -> tuple[datetime, str]:
        place = clock.place(fact)
        return (place[0] if place else datetime.min), fact.time or ""

    return sorted(facts, key=order)


def _write_value(fact: ClinicalFact) -> str:
    """Return the value without the unit: `<5 (high)`. Empty for an entry without a value."""
    value = fact.value
    if not value and fact.number is not None:
        value = f"{fact.number:g}"
    if not value:
        return ""
    if fact.comparator and not value.startswith(("<", ">")):
        value = f"{fact.comparator}{value}"
    remarks = [fact.interpretation, "" if fact.status in _ROUTINE else fact.status]
    remark = ", ".join(filter(None, remarks))
    return f"{value} ({remark})" if remark else value


def _make_row(facts: Sequence[ClinicalFact]) -> MeasurementRow:
    last = facts[-MAX_VALUES:]
    numbers = [fact.number for fact in last if fact.number is not None and not fact.comparator]
    # A text or a bound among the numbers has no place on a line.
    is_drawn = len(numbers) == len(last) > 1
    values: list[MeasuredValue] = []
    for fact in last:
        time = (fact.time or "no date").replace("T", " ")
        values.append(MeasuredValue(fact.document_id, time, printable(_write_value(fact))))
    return MeasurementRow(
        name=printable(facts[0].name),
        unit=printable(facts[0].unit),
        values=tuple(values),
        earlier=len(facts) - len(last),
        course=_draw(numbers) if is_drawn else "",
        kind=facts[0].kind,
        summary=f"from {numbers[0]:g} to {numbers[-1]:g}" if is_drawn else "",
    )


def _draw(numbers: Sequence[float]) -> str:
    low, high = min(numbers), max(numbers)
    step = (WIDTH - 2 * EDGE) / (len(numbers) - 1)
    scale = (HEIGHT - 2 * EDGE) / (high - low) if high > low else 0.0
    points: list[str] = []
    for place, number in enumerate(numbers):
        y = HEIGHT - EDGE - (number - low) * scale if scale else HEIGHT / 2
        points.append(f"{EDGE + place * step:.1f},{y:.1f}")
    return " ".join(points)


def describe_chart(passages: Sequence[Passage]) -> dict[str, Any] | None:
    """Return the first screen of a patient. None without structured facts: the notes may say what they do not."""
    facts = read_fact_record(passages)
    if facts is None:
        return None
    courses = build_chart(passages).courses
    rows = list_measurements(facts, {passage.document_id for passage in passages}).rows
    # The newest first; the order of the names decides within one time.
    rows = tuple(sorted(rows, key=lambda row: row.values[-1].time, reverse=True))
    laboratory = [row for row in rows if row.kind == "laboratory"]
    others = [row for row in rows if row.kind != "laboratory"]
    most, most_others = MAX_LAST_VALUES
    return {
        "allergies": _list_courses(courses, "allergy"),
        "problems": _list_courses(courses, "problem"),
        "medications": _list_courses(courses, "medication"),
        "values": [*laboratory[:most], *others[:most_others]],
        "more_values": [*laboratory[most:], *others[most_others:]],
    }


def _list_courses(courses: Iterable[ChartCourse], kind: FactKind) -> dict[str, list[CourseView]]:
    """Return the courses of one kind, present and past."""
    shown = [course for course in courses if course.kind == kind and course.state not in _HIDDEN]
    return {
        "current": [_view_course(course) for course in shown if course.state in _NOW],
        "past": [_view_course(course) for course in shown if course.state not in _NOW],
    }


def _view_course(course: ChartCourse) -> CourseView:
    # The month is enough at a glance: the document has the day.
    first = (course.first or "")[:7]
    until = (course.end or "")[:7]
    if until > first:
        days = f"{first} to {until}" if first else f"until {until}"
    else:
        days = f"since {first}" if first and course.state in _NOW else first
    remarks = [days, course.remark]
    if course.state == "uncertain" and not course.remark:
        remarks.append("uncertain")
    name = " ".join(filter(None, (course.name, course.details)))
    text, remark = printable(name), printable(", ".join(filter(None, remarks)))
    return CourseView(text, remark, course.documents[-1])
