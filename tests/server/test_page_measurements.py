"""Measurements of structured facts on the timeline of a record: rows by stay, and nothing read out of prose."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from epicrisis.core.clinical_facts import FACTS, ClinicalFact, select_rows, write_facts
from epicrisis.core.types import Document, Passage
from epicrisis.corpus.readers.sources import read_sources
from epicrisis.library.core.patients import PatientRecord
from epicrisis.records.fact_questions.record import read_fact_record
from epicrisis.records.patient_chart import build_chart
from epicrisis.server.app import ServerOptions, create_app
from epicrisis.server.base.users import USERS_FILE, UserStore
from epicrisis.server.libraries.reading import NoteEntry, PatientNotes
from epicrisis.server.page.measured_answers import MAX_VALUES, Measurements, describe_chart, list_measurements
from epicrisis.server.page.patient_view import describe_record
from tests.server.test_page_unsafe_text import EVIL, check_page
from tests.support.pages import Page, quoting_model
from tests.support.servers import connect, open_library, open_resources

PATIENT = "p1"


def observation(name: str, day: str, value: Any, unit: str = "", **more: Any) -> dict[str, Any]:
    measured = {"valueQuantity": {"value": value, "unit": unit}} if unit else {"valueString": value}
    return {
        "resourceType": "Observation",
        "subject": {"reference": f"Patient/{PATIENT}"},
        "code": {"text": name},
        "effectiveDateTime": day,
        "category": [{"text": "laboratory"}],
        **measured,
        **more,
    }


def read_bundle(folder: Path, *observations: dict[str, Any]) -> list[Document]:
    """Return the notes that the FHIR reader makes of observations."""
    resources = [{"resourceType": "Patient", "id": PATIENT}, *observations]
    path = folder / "bundle.json"
    entries = [{"resource": resource} for resource in resources]
    path.write_text(json.dumps({"resourceType": "Bundle", "entry": entries}))
    return [item for item in read_sources([path]) if isinstance(item, Document)]


def as_passages(documents: list[Document]) -> list[Passage]:
    passages: list[Passage] = []
    for document in documents:
        passages.append(
            Passage(
                id=f"{document.id}#0",
                document_id=document.id,
                ordinal=0,
                start=0,
                end=len(document.text),
                text=document.text,
                title=document.title,
                source=document.source,
                date=document.date,
                patient=document.patient,
                metadata=document.metadata,
            )
        )
    return passages


def measure(passages: list[Passage]) -> Measurements:
    record = read_fact_record(passages)
    assert record is not None
    return list_measurements(record, [passage.document_id for passage in passages])


def test_observations_become_rows_with_course_and_document(tmp_path: Path) -> None:
    days = [(f"2150-03-{day:02}T08:00:00Z", 80 + 10 * day) for day in range(1, 9)]
    low = {"interpretation": [{"text": "low"}]}
    documents = read_bundle(
        tmp_path,
        *(observation("Creatinine", day, value, "umol/L") for day, value in days),
        observation("Hemoglobin", "2150-03-01T09:30:00Z", 9.1, "g/dL", **low),
        observation("Culture", "2150-03-02", "no growth: final"),
    )
    measurements = measure(as_passages(documents))
    rows = measurements.rows
    creatinine, culture, hemoglobin = sorted(rows, key=lambda row: row.name)
    assert measurements.withdrawn == 0
    assert (creatinine.unit, len(creatinine.values), creatinine.earlier) == ("umol/L", MAX_VALUES, 2)
    assert [value.text for value in creatinine.values] == ["110", "120", "130", "140", "150", "160"]
    assert creatinine.summary == "from 110 to 160"
    heights = [float(point.split(",")[1]) for point in creatinine.course.split()]
    assert heights == sorted(heights, reverse=True)
    assert [value.text for value in hemoglobin.values] == ["9.1 (low)"]
    assert hemoglobin.values[0].time == "2150-03-01 09:30"
    assert (culture.values[0].text, culture.course) == ("no growth: final", "")
    ids = {document.id: document.text for document in documents}
    for value in creatinine.values:
        assert f"Creatinine: {value.text} umol/L" in ids[value.document_id]


def test_units_are_not_mixed_and_bounds_are_not_drawn(tmp_path: Path) -> None:
    documents = read_bundle(
        tmp_path,
        observation("Lactate", "2150-03-01", 2, "mmol/L"),
        observation("Lactate", "2150-03-02", 18, "mg/dL"),
        observation("CRP", "2150-03-01", 5, "mg/L", valueQuantity={"value": 5, "unit": "mg/L", "comparator": "<"}),
        observation("CRP", "2150-03-02", 5, "mg/L"),
    )
    rows = measure(as_passages(documents)).rows
    assert [(row.name, row.unit) for row in rows] == [("CRP", "mg/L"), ("Lactate", "mg/dL"), ("Lactate", "mmol/L")]
    assert [value.text for value in rows[0].values] == ["< 5", "5"]
    assert {row.course for row in rows} == {""}


def test_denial_of_allergies_stands_with_what_holds_now(tmp_path: Path) -> None:
    allergy = {"resourceType": "AllergyIntolerance", "id": "a", "patient": {"reference": "Patient/p1"}}
    chart = describe_chart(as_passages(read_bundle(tmp_path, {**allergy, "code": {"text": "NKMA"}})))
    assert chart is not None
    assert [course.text for course in chart["allergies"]["current"]] == ["NKMA"]


def test_note_that_looks_like_measurements_has_no_row(tmp_path: Path) -> None:
    (passage,) = as_passages(read_bundle(tmp_path, observation("Sodium", "2150-03-01", 140, "mmol/L")))
    (row,) = measure([passage]).rows
    assert row.values[0].text == "140"
    text = f"{passage.text}\nPotassium: 4.1 mmol/L"
    note = replace(passage, id="note:7#0", document_id="note:7", text=text, metadata={"note_type": "progress"})
    assert measure([passage, note]).rows == (row,)
    assert read_fact_record([note]) is None


def test_value_of_two_documents_is_one_value(tmp_path: Path) -> None:
    (passage,) = as_passages(read_bundle(tmp_path, observation("Sodium", "2150-03-01T08:00:00", 140, "mmol/L")))
    copy = replace(passage, id="copy#0", document_id="copy")
    (row,) = measure([passage, copy]).rows
    assert [value.text for value in row.values] == ["140"]


def test_withdrawn_and_replaced_values_are_counted_and_not_shown(tmp_path: Path) -> None:
    changed = observation("Sodium", "2150-03-02T08:00:00", 141, "mmol/L", status="corrected", id="a")
    (corrected,) = as_passages(read_bundle(tmp_path, changed))
    (row,) = corrected.metadata[FACTS]
    first = replace(corrected, id="first#0", document_id="first", metadata={FACTS: [{**row, "status": "preliminary"}]})
    refuted = {**row, "source": "fhir:Observation/b", "status": "entered-in-error"}
    error = replace(corrected, id="error#0", document_id="error", metadata={FACTS: [refuted]})
    measurements = measure([corrected, first, error])
    assert [value.text for value in measurements.rows[0].values] == ["141 (corrected)"]
    assert measurements.withdrawn == 2


def test_text_that_is_cut_into_passages_keeps_every_value(tmp_path: Path) -> None:
    (whole,) = as_passages(
        read_bundle(
            tmp_path,
            observation("Sodium", "2150-03-01", 140, "mmol/L"),
            observation(
                "Hemoglobin", "2150-03-01", 9.1, "g/dL", interpretation=[{"text": "low, and lower than before"}]
            ),
            observation("Potassium", "2150-03-01", 4.1, "mmol/L"),
        )
    )
    for cut in range(1, len(whole.text)):
        facts = whole.metadata[FACTS]
        pieces = [
            replace(whole, text=whole.text[:cut], end=cut, metadata={FACTS: select_rows(facts, 0, cut)}),
            replace(whole, text=whole.text[cut:], start=cut, metadata={FACTS: select_rows(facts, cut, whole.end)}),
        ]
        values = {(row.name, row.unit): row.values[0].text for row in measure(pieces).rows}
        assert values == {
            ("Sodium", "mmol/L"): "140",
            ("Hemoglobin", "g/dL"): "9.1 (low, and lower than before)",
            ("Potassium", "mmol/L"): "4.1",
        }


def test_record_shows_a_stay_that_goes_on_without_an_end(tmp_path: Path) -> None:
    stay = {"resourceType": "Encounter", "id": "e1", "subject": {"reference": f"Patient/{PATIENT}"}}
    stay |= {"status": "in-progress", "class": {"code": "IMP"}, "period": {"start": "2150-03-01", "end": "9999-12-31"}}
    documents = read_bundle(tmp_path, stay, observation("Sodium", "2150-03-04", 140, "mmol/L"))
    patient = PatientRecord(id=PATIENT, notes=2, first=None, last=None, encounters=1, note_types={})
    notes = [NoteEntry(item.id, item.title, item.date, item.metadata) for item in documents]
    shown = describe_record(PatientNotes(patient, tuple(notes)), "ward", passages=as_passages(documents))
    days = [entry.days for entry in shown["entries"] if entry.is_stay]
    (row,) = build_chart(as_passages(documents)).stays
    assert days == ["since 2150-03-01"]
    assert (row.first_day, row.last_day) == ("2150-03-01", None)


def test_problem_of_which_the_record_has_the_end_alone_is_shown_until_then() -> None:
    facts = [
        ClinicalFact(
            "problem", "Gout", start=0, end=4, event="end", time="2150-03-02", status="resolved", source="c/1"
        ),
        ClinicalFact("problem", "Asthma", start=5, end=11, event="start", time="2150-03-01", source="c/2"),
    ]
    document = Document("note:1", "Gout\nAsthma", date="2150-03-02", patient="p1", metadata={FACTS: write_facts(facts)})
    shown = describe_chart(as_passages([document]))
    assert shown is not None
    assert [(row.text, row.remark) for row in shown["problems"]["past"]] == [("Gout", "until 2150-03")]
    assert [(row.text, row.remark) for row in shown["problems"]["current"]] == [("Asthma", "since 2150-03")]


def test_last_value_is_the_last_instant_and_not_the_last_local_time(tmp_path: Path) -> None:
    later = observation("Creatinine", "2150-06-01T23:30:00-05:00", 1.1, "mg/dL")
    earlier = observation("Creatinine", "2150-06-02T05:00:00+02:00", 1.4, "mg/dL")
    shown = describe_chart(as_passages(read_bundle(tmp_path, {**later, "id": "o1"}, {**earlier, "id": "o2"})))
    assert shown is not None
    assert [value.text for row in shown["values"] for value in row.values] == ["1.4", "1.1"]


def test_note_whose_title_is_none_is_named_by_its_kind(tmp_path: Path) -> None:
    patient = PatientRecord(id=PATIENT, notes=2, first=None, last=None, encounters=0, note_types={})
    notes = (
        NoteEntry("note:1", "about:blank", "2150-03-01", {"note_type": "Nursing"}),
        NoteEntry("note:2", "untitled", "2150-03-02", {}),
    )
    shown = describe_record(PatientNotes(patient, notes), "ward")
    assert [note.title for entry in shown["entries"] for note in entry.notes] == ["note:2", "Nursing"]


@pytest.mark.slow
def test_record_shows_measurements_and_value_opens_note_of_its_day(tmp_path: Path) -> None:
    documents = read_bundle(
        tmp_path,
        observation("Sodium", "2150-03-01", 140, "mmol/L"),
        observation("Sodium", "2150-03-02", 131, "mmol/L"),
        observation(f"Name {EVIL}".replace(":", ""), "2150-03-03", f"text {EVIL}"),
    )
    folder = tmp_path / "server"
    key = UserStore(folder / USERS_FILE).add("doctor", "patient-reader")
    app = create_app(
        open_resources(open_library(tmp_path / "ward", quoting_model(), documents)), ServerOptions(folder=folder)
    )

    async def run() -> tuple[str, str]:
        async with connect(app, headers={"authorization": f"Bearer {key}"}) as client:
            record = await client.post("/patients/record", data={"patient": PATIENT, "library": "ward"})
            (button,) = [
                element for element in Page(record.text).all("button", "link") if element.text.endswith(" 131")
            ]
            fields = {"patient": PATIENT, "library": "ward", "document": button.attributes["value"]}
            return record.text, (await client.post("/patients/note", data=fields)).text

    record, note = asyncio.run(run())
    check_page(record)
    assert all(line.attributes["points"] for line in Page(record).all("polyline"))
    assert "Sodium: 131 mmol/L" in note
    assert "140" not in Page(note).one("div", "text").text
