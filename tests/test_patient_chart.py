"""A patient's chart: stays, problems, medications and events, from structured facts and the dates of notes."""

from __future__ import annotations

import pytest

from epicrisis.errors import InputError
from epicrisis.patient_chart import ChartCourse, build_chart
from tests.support.chart_documents import read_chart_record


def test_course_has_start_end_and_last_status() -> None:
    chart = build_chart(read_chart_record())
    names = [(course.kind, course.name) for course in chart.courses]
    assert names == [
        ("problem", "Heart failure"),
        ("allergy", "Penicillin"),
        ("medication", "furosemide"),
        ("medication", "Torasemide"),
    ]
    assert chart.courses[2] == ChartCourse(
        "medication",
        "furosemide",
        "2150-03-02",
        "2150-06-01",
        "stopped",
        "40 mg daily",
        2,
        ("note:p1:2150-03-02:medication", "note:p1:2150-06-01:medication"),
    )


def test_timeline_lists_events_notes_and_counts_values() -> None:
    chart = build_chart(read_chart_record())
    assert [(event.time, event.text) for event in chart.events] == [
        ("2150-03-01", "admission note"),
        ("2150-03-01", "problem Heart failure (active)"),
        ("2150-03-02", "started Furosemide 40 mg daily (active)"),
        ("2150-03-07", "letter"),
        ("2150-06-01", "clinic note"),
        ("2150-06-01", "laboratory value (2)"),
        ("2150-06-01", "started Torasemide 10 mg"),
        ("2150-06-01", "stopped furosemide (stopped)"),
        (None, "allergy"),
    ]
    assert [(stay.first_day, stay.last_day, stay.notes) for stay in chart.stays] == [("2150-03-01", "2150-03-07", 2)]


def test_since_last_visit_begins_with_that_visit() -> None:
    chart = build_chart(read_chart_record(), "last-visit")
    assert chart.since == "2150-06-01"
    assert {event.time for event in chart.events} == {"2150-06-01"}
    assert len(chart.courses) == 4


def test_since_is_refused_if_it_is_no_day_or_there_was_no_visit() -> None:
    with pytest.raises(InputError, match="2015-06-30"):
        build_chart(read_chart_record(), "yesterday")
    letter = next(passage for passage in read_chart_record() if passage.document_id == "note:p1:2150-06-01:laboratory")
    with pytest.raises(InputError, match="no dated stay or visit"):
        build_chart([letter], "last-visit")
