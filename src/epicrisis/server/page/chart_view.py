"""A patient at a glance as the page shows it: allergies, problems, medications, last values, last stay.

Everything comes from the chart of structured facts (`records/patient_chart.py`) and opens the document that states it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from epicrisis.core.fact_kinds import FactKind
from epicrisis.core.printable import printable
from epicrisis.core.types import Passage
from epicrisis.records.fact_questions.record import read_fact_record
from epicrisis.records.patient_chart import ChartCourse, build_chart
from epicrisis.server.page.measurements import MeasurementRow, list_measurements

MAX_LAST_VALUES = (6, 4)
"""Laboratory values and others of the first screen, the newest first. All others follow in a fold."""
_NOW = frozenset({"current", "uncertain"})
_HIDDEN = frozenset({"withdrawn"})
_FLAGS = (("(high", "above"), ("(low", "below"), ("(H", "above"), ("(L", "below"))
"""How sources mark values outside the range of reference."""


@dataclass(frozen=True, slots=True)
class CourseView:
    """A problem, an allergy or a medication."""

    text: str
    remark: str
    """Since when, until when, and what is uncertain."""
    document_id: str
    """The document of its last statement."""


@dataclass(frozen=True, slots=True)
class CourseList:
    """The courses of one kind."""

    current: tuple[CourseView, ...]
    past: tuple[CourseView, ...]


@dataclass(frozen=True, slots=True)
class LastValue:
    """The last value of a measurement with its course."""

    row: MeasurementRow
    text: str
    day: str
    document_id: str
    flag: str
    """`above`, `below`, or empty."""


@dataclass(frozen=True, slots=True)
class ChartView:
    """The first screen of a patient."""

    allergies: CourseList
    problems: CourseList
    medications: CourseList
    values: tuple[LastValue, ...]
    more_values: tuple[LastValue, ...]


def build_chart_view(passages: Sequence[Passage]) -> ChartView | None:
    """Return the chart of a record. None without structured facts, which does not mean that there is nothing."""
    facts = read_fact_record(passages)
    if facts is None:
        return None
    chart = build_chart(passages)
    rows = list_measurements(facts, {passage.document_id for passage in passages}).rows
    # The newest first; the order of the names decides within one time.
    values = sorted(map(_view_value, rows), key=lambda value: value.row.values[-1].time, reverse=True)
    laboratory = [value for value in values if value.row.kind == "laboratory"]
    others = [value for value in values if value.row.kind != "laboratory"]
    most, most_others = MAX_LAST_VALUES
    return ChartView(
        allergies=_list_courses(chart.courses, "allergy"),
        problems=_list_courses(chart.courses, "problem"),
        medications=_list_courses(chart.courses, "medication"),
        values=(*laboratory[:most], *others[:most_others]),
        more_values=(*laboratory[most:], *others[most_others:]),
    )


def _list_courses(courses: Iterable[ChartCourse], kind: FactKind) -> CourseList:
    shown = [course for course in courses if course.kind == kind and course.state not in _HIDDEN]
    return CourseList(
        tuple(_view_course(course) for course in shown if course.state in _NOW),
        tuple(_view_course(course) for course in shown if course.state not in _NOW),
    )


def _view_course(course: ChartCourse) -> CourseView:
    # The month is enough at a glance: the document has the day.
    first = (course.first or "")[:7]
    until = (course.end or "")[:7]
    days = f"{first} to {until}" if until > first else f"since {first}" if first and course.state in _NOW else first
    remarks = [days, course.remark]
    if course.state == "uncertain" and not course.remark:
        remarks.append("uncertain")
    name = " ".join(filter(None, (course.name, course.details)))
    text, remark = printable(name), printable(", ".join(filter(None, remarks)))
    return CourseView(text, remark, course.documents[-1])


def _view_value(row: MeasurementRow) -> LastValue:
    last = row.values[-1]
    flag = next((flag for mark, flag in _FLAGS if mark in last.text), "")
    text = last.text if row.unit == "" or row.unit in last.text else f"{last.text} {row.unit}"
    return LastValue(row, text, last.time[:10], last.document_id, flag)
