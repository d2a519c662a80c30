"""A patient's chart: stays, problems, medications and events, from structured facts and the dates of notes."""

from __future__ import annotations

from typing import Any

import pytest

from epicrisis.core.clinical_facts import FACTS, ClinicalFact, write_facts
from epicrisis.core.errors import InputError
from epicrisis.core.fact_kinds import FactEvent
from epicrisis.core.types import Document, Passage
from epicrisis.records.patient_chart import ChartCourse, build_chart
from tests.support.chart_documents import make_passage, read_chart_record


def test_course_has_start_end_and_last_status() -> None:
    chart = build_chart(read_chart_record())
    names = [(course.kind, course.name) for course in chart.courses]
    assert names == [
        ("problem", "Heart failure"),
        ("allergy", "Penicillin"),
        ("medication", "Torasemide"),
        ("medication", "furosemide"),
    ]
    assert chart.courses[3] == ChartCourse(
        kind="medication",
        name="furosemide",
        first="2150-03-02",
        end="2150-06-01",
        state="ended",
        remark="",
        status="stopped",
        details="40 mg daily",
        statements=2,
        documents=("note:p1:2150-03-02:medication", "note:p1:2150-06-01:medication"),
    )


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        ({}, None),
        ({"discharged": "2150-05-09"}, "2150-05-09"),
        ({"note_type": "discharge summary"}, "2150-05-03"),
        ({"admitted": None}, "2150-05-03"),
    ],
)
@pytest.mark.parametrize("has_facts", [True, False])
def test_last_stay_without_a_discharge_is_open(
    last: dict[str, str | None], expected: str | None, has_facts: bool
) -> None:
    """The notes of a stay in HL7 v2 have its days, and no fact tells of it."""
    stays: list[dict[str, Any]] = [
        {"encounter": "V1", "admitted": "2150-03-01"},
        {"encounter": "V2", "admitted": "2150-05-01", **last},
    ]
    notes = [
        make_passage(Document(f"note:{i}", "Well", date=f"2150-0{2 * i + 3}-03", patient="p1", metadata=stay))
        for i, stay in enumerate(stays)
    ]
    orders = [write_orders(("o", "Aspirin", "start", "2150-03-02", "", ""))] if has_facts else []
    chart = build_chart([*notes, *orders])
    assert [stay.last_day for stay in chart.stays] == ["2150-03-03", expected]


def write_orders(*rows: tuple[str, str, FactEvent, str, str, str]) -> Passage:
    """Return a document with a line for each (source, name, event, day, dose, status)."""
    facts, lines, offset = [], [], 0
    for source, name, event, day, dose, status in rows:
        line = f"{event} {name} {dose} {day}"
        fact = ClinicalFact(
            "medication",
            name,
            start=offset,
            end=offset + len(line),
            event=event,
            time=day,
            value=dose,
            status=status,
            source=source,
        )
        facts.append(fact)
        lines.append(line)
        offset += len(line) + 1
    text = "\n".join(lines)
    return make_passage(
        Document("note:orders", text, date="2150-03-05", patient="p1", metadata={FACTS: write_facts(facts)})
    )


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("active", [("Penicillin", "current")]),
        ("resolved", [("Patient denies any allergies", "denial"), ("Penicillin", "ended")]),
    ],
)
def test_denial_of_allergies_is_shown_without_a_current_one(status: str, expected: list[tuple[str, str]]) -> None:
    names = {"Patient denies any allergies": "active", "Penicillin": status}
    facts = [
        ClinicalFact("allergy", name, start=place, end=place + 1, time="2150-03-01", status=names[name], source=name)
        for place, name in enumerate(names)
    ]
    document = Document("a", "Allergies", date="2150-03-01", patient="p1", metadata={FACTS: write_facts(facts)})
    assert [(course.name, course.state) for course in build_chart([make_passage(document)]).courses] == expected


def test_medication_whose_dose_changed_is_current_with_the_new_dose() -> None:
    orders = write_orders(
        ("order/1", "Levothyroxine", "start", "2150-03-01", "50 mcg daily", "stopped"),
        ("order/1", "Levothyroxine", "end", "2150-03-05", "", "stopped"),
        ("order/2", "Levothyroxine", "start", "2150-03-05", "75 mcg daily", "active"),
    )
    (course,) = build_chart([orders]).courses
    assert (course.state, course.details, course.first, course.end) == ("current", "75 mcg daily", "2150-03-01", None)


def test_medication_with_two_current_orders_shows_both_doses() -> None:
    orders = write_orders(
        ("order/1", "Insulin glargine", "start", "2150-03-01", "10 units in the morning", "active"),
        ("order/2", "insulin glargine", "start", "2150-03-02", "6 units at night", "active"),
    )
    (course,) = build_chart([orders]).courses
    assert (course.state, course.details) == ("current", "10 units in the morning; 6 units at night")


@pytest.mark.parametrize(
    ("status", "state", "remark"),
    [
        ("entered-in-error", "withdrawn", ""),
        ("not-taken", "withdrawn", ""),
        ("on-hold", "uncertain", "status on-hold"),
        ("active", "current", ""),
        ("completed", "ended", ""),
    ],
)
def test_state_of_course_follows_its_status(status: str, state: str, remark: str) -> None:
    (course,) = build_chart([write_orders(("order/1", "Warfarin", "start", "2150-03-01", "5 mg", status))]).courses
    assert (course.state, course.remark) == (state, remark)


def test_entry_that_another_refutes_says_so() -> None:
    orders = write_orders(
        ("order/1", "Warfarin", "start", "2150-03-01", "5 mg", "active"),
        ("order/2", "warfarin", "state", "2150-03-02", "", "refuted"),
    )
    (course,) = build_chart([orders]).courses
    assert (course.state, course.remark) == ("current", "another entry refutes it")


def test_withdrawn_entries_are_not_on_the_timeline() -> None:
    orders = write_orders(
        ("order/1", "Warfarin", "start", "2150-03-01", "5 mg", "entered-in-error"),
        ("order/2", "Apixaban", "start", "2150-03-02", "5 mg", "active"),
    )
    assert [event.text for event in build_chart([orders]).events] == ["started Apixaban 5 mg (active)"]


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
        ("2150-06-01", "stopped furosemide"),
        (None, "allergy Penicillin rash (active)"),
    ]
    assert [(stay.first_day, stay.last_day, stay.notes) for stay in chart.stays] == [("2150-03-01", "2150-03-07", 2)]


def test_since_last_visit_begins_with_that_visit() -> None:
    chart = build_chart(read_chart_record(), "last-visit")
    assert chart.since == "2150-06-01"
    assert {event.time for event in chart.events} == {"2150-06-01"}
    assert len(chart.courses) == 4


@pytest.mark.parametrize("status", ["planned", "cancelled"])
def test_last_visit_is_none_that_was_only_planned(status: str) -> None:
    visit = ClinicalFact("encounter", "ambulatory", start=0, end=5, time="2150-09-01", source="e/9", status=status)
    document = Document(
        "note:p1:2150-09-01::visits",
        "Visit",
        date="2150-09-01",
        patient="p1",
        metadata={FACTS: write_facts([visit]), "visit": "e9"},
    )
    assert build_chart([*read_chart_record(), make_passage(document)], "last-visit").since == "2150-06-01"


def test_timeline_has_the_dose_of_a_vaccine_and_no_vaccination_that_was_refused() -> None:
    given = ClinicalFact("immunization", "Influenza", start=0, end=3, event="given", time="2150-03-01", value="0.5",
                         unit="mL", source="i/1")  # fmt: skip
    refused = ClinicalFact("immunization", "Hepatitis B", start=0, end=3, time="2150-04-01", status="not-done",
                           source="i/2")  # fmt: skip
    order = ClinicalFact("medication", "Amoxicillin", start=0, end=3, event="start", time="2150-03-02", unit="mg",
                         value="500 mg, capsule", number=500, source="m/1")  # fmt: skip
    passages = []
    for fact in (given, refused, order):
        metadata = {FACTS: write_facts([fact]), "note_type": "immunizations"}
        document = Document(f"note:{fact.source}", "Vaccine", date=fact.time, patient="p1", metadata=metadata)
        passages.append(make_passage(document))
    assert [(event.time, event.text) for event in build_chart(passages).events] == [
        ("2150-03-01", "immunization Influenza 0.5 mL"),
        ("2150-03-02", "started Amoxicillin 500 mg, capsule"),
    ]


def test_since_is_refused_if_it_is_no_day_or_there_was_no_visit() -> None:
    with pytest.raises(InputError, match="2015-06-30"):
        build_chart(read_chart_record(), "yesterday")
    letter = next(passage for passage in read_chart_record() if passage.document_id == "note:p1:2150-06-01:laboratory")
    with pytest.raises(InputError, match="no dated stay or visit"):
        build_chart([letter], "last-visit")
