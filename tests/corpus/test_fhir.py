"""FHIR's documents and observations as notes."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from epicrisis.core.errors import InputError
from epicrisis.core.types import Document
from epicrisis.corpus.base.reader_base import (
    DeletedDocument,
    FileFingerprint,
    PatientIdentity,
    ReaderItem,
    Skipped,
    StatedSources,
)
from epicrisis.corpus.base.removal_log import RemovalLog
from epicrisis.corpus.readers.sources import read_sources
from epicrisis.corpus.records.fhir.export_folder import read_files
from epicrisis.corpus.records.note_documents import NoteCleaning

PATIENT = {"resourceType": "Patient", "id": "p1", "name": [{"given": ["Ada"], "family": "Byron"}]}
STAY = {"resourceType": "Encounter", "id": "e1", "period": {"start": "2150-03-01", "end": "2150-03-09T12:00:00+01:00"}}


def document(data: str, kind: str = "text/plain", **more: Any) -> dict[str, Any]:
    return {
        "resourceType": "DocumentReference",
        "id": "d1",
        "status": "current",
        "type": {"text": "Discharge summary"},
        "subject": {"reference": "Patient/p1"},
        "date": "2150-03-09T10:00:00+01:00",
        "context": {"encounter": [{"reference": "Encounter/e1"}]},
        "content": [{"attachment": {"contentType": kind, "data": data}}],
        **more,
    }


def observation(name: str, time: str, **more: Any) -> dict[str, Any]:
    return {
        "resourceType": "Observation",
        "status": "final",
        "category": [{"coding": [{"code": "laboratory"}]}],
        "code": {"text": name},
        "subject": {"reference": "Patient/p1"},
        "effectiveDateTime": time,
        **more,
    }


def read_file(path: Path, name: str, cleaning: NoteCleaning | None = None) -> Iterator[ReaderItem]:
    """Yield the items of one file, without its fingerprint and the patients' identities."""
    for item in read_files([(path, name)], cleaning or NoteCleaning()):
        if not isinstance(item, FileFingerprint | PatientIdentity):
            yield item


def packed(text: str, encoding: str = "utf-8") -> str:
    return base64.b64encode(text.encode(encoding)).decode()


def put(folder: Path, *resources: Any, lines: bool = False) -> Path:
    path = folder / ("export.ndjson" if lines else "bundle.json")
    bundle = {
        "resourceType": "Bundle",
        "entry": [{"fullUrl": f"urn:uuid:{n}", "resource": r} for n, r in enumerate(resources)],
    }
    path.write_text(
        "".join(json.dumps(r) + "\n" for r in resources) if lines else json.dumps(bundle, indent=1), "utf-8"
    )
    return path


def given_by(path: Path) -> list[Document]:
    return [item for item in read_file(path, path.name) if isinstance(item, Document)]


@pytest.mark.parametrize("lines", [True, False])
def test_document_reference_gives_note_with_patient_and_encounter(tmp_path: Path, lines: bool) -> None:
    path = put(tmp_path, document(packed("Plan: home\r\nÄrzte")), PATIENT, STAY, lines=lines)
    found = [item for item in read_sources([path]) if isinstance(item, Document)]
    assert found == [
        Document(
            id="note:d1",
            text="Plan: home\nÄrzte",
            title="Discharge summary, 2150-03-09",
            source="notes",
            date="2150-03-09T10:00",
            patient="p1",
            metadata={
                "note_type": "Discharge summary",
                "encounter": "e1",
                "patient_name": "Ada Byron",
                "admitted": "2150-03-01",
                "discharged": "2150-03-09T12:00",
                "time_zone": "+01:00",
                "sections": [[0, 16, "Plan"]],
            },
        )
    ]


@pytest.mark.parametrize(
    ("data", "kind", "text"),
    [
        (packed("<p>Fever</p><p>Chills</p>"), "text/html", "Fever\nChills"),
        ("<p>Fever</p>", "text/html", "Fever"),
        ("Fever since a week.", "text/plain", "Fever since a week."),
        (packed("Ärzte", "latin-1"), "text/plain; charset=iso-8859-1", "Ärzte"),
    ],
)
def test_attachment_forms_are_decoded(tmp_path: Path, data: str, kind: str, text: str) -> None:
    assert [note.text for note in given_by(put(tmp_path, document(data, kind)))] == [text]


@pytest.mark.parametrize(
    ("resource", "reason"),
    [
        (document(base64.b64encode(b"\x89PNG\r\n").decode(), "image/png"), "a picture (PNG), which is not read"),
        (document(base64.b64encode(b"%PDF-1.7 broken").decode(), "application/pdf"), "not a PDF file, or broken"),
        (document(""), "its data is empty"),
        ({**document(""), "content": [{"attachment": {"url": "https://ward.example/1"}}]}, "nothing is fetched"),
        (document(packed("x"), subject={"reference": "Group/p1"}), "names no patient"),
        (document(packed("x"), subject=None), "names no patient"),
        (document(packed("x"), content="none"), "not structured as FHIR requires"),
        (observation("Sodium", "2150-03-04"), "no value"),
    ],
)
def test_unreadable_resources_are_reported(tmp_path: Path, resource: dict[str, Any], reason: str) -> None:
    path = put(tmp_path, resource, document(packed("Good."), id="d2"))
    items = list(read_file(path, path.name))
    assert [item.text for item in items if isinstance(item, Document)] == ["Good."]
    (skip,) = [item for item in items if isinstance(item, Skipped)]
    assert (skip.where, reason in skip.reason) == ("entry 1", True)


def test_observations_of_one_day_form_one_note(tmp_path: Path) -> None:
    low = {"interpretation": [{"text": "low"}], "referenceRange": [{"low": {"value": 12}, "high": {"value": 16}}]}
    pressure = [
        {"code": {"text": n}, "valueQuantity": {"value": v, "unit": "mmHg"}} for n, v in (("sys", 120), ("dia", 80))
    ]
    path = put(
        tmp_path,
        observation("Sodium", "2150-03-04T18:00:00Z", valueQuantity={"value": 140, "unit": "mmol/L"}),
        observation("Hemoglobin", "2150-03-04T08:15:00Z", valueQuantity={"value": 9.1, "unit": "g/dL"}, **low),
        observation("Blood pressure", "2150-03-04", component=pressure),
        observation("Culture", "2150-03-05", valueCodeableConcept={"text": "no growth"}),
        observation("Sodium", "2150-03-04", valueInteger=99, status="entered-in-error"),
        observation("Sodium", "2150-03-04", valueInteger=139, subject={"reference": "Patient/p2"}),
        {"resourceType": "CarePlan", "id": "c"},
    )
    log = RemovalLog()
    found = [note for note in read_file(path, "b", NoteCleaning(removal_log=log)) if isinstance(note, Document)]
    assert [(note.patient, note.date, note.text) for note in found] == [
        (
            "p1",
            "2150-03-04",
            "Blood pressure, sys: 120 mmHg\nBlood pressure, dia: 80 mmHg\n"
            "08:15 Hemoglobin: 9.1 g/dL (low; reference 12 to 16)\n"
            "18:00 Sodium: 140 mmol/L",
        ),
        ("p1", "2150-03-05", "Culture: no growth"),
        ("p2", "2150-03-04", "Sodium: 139"),
    ]
    assert found[0].title == "Laboratory results, 2150-03-04"
    assert log.summary().other_resources == {"CarePlan without text": 1, "withdrawn Observation": 1}


def test_withdrawn_document_is_deleted(tmp_path: Path) -> None:
    log = RemovalLog()
    path = put(tmp_path, document(packed("Wrong patient."), status="entered-in-error"))
    assert list(read_file(path, "b", NoteCleaning(removal_log=log))) == [DeletedDocument("note:d1", patient="p1")]
    assert log.summary().kinds["marked-as-error"].notes == 1


def test_json_without_fhir_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text('{"a": 1}')
    with pytest.raises(InputError, match="not FHIR in JSON"):
        list(read_sources([path], "fhir"))
    path.write_text('{"resourceType": "Bundle", "entry": [')
    assert [item.where for item in read_file(path, "x") if isinstance(item, Skipped)] == [""]


def test_later_observation_with_same_id_replaces_earlier(tmp_path: Path) -> None:
    first = observation("Hemoglobin", "2150-03-04", id="o1", valueQuantity={"value": 9.1, "unit": "g/dL"})
    later = {**first, "status": "corrected", "valueQuantity": {"value": 19.1, "unit": "g/dL"}}
    (before,) = given_by(put(tmp_path, first))
    (after,) = given_by(put(tmp_path, first, later))
    assert after.text == "Hemoglobin: 19.1 g/dL (corrected)"
    assert before.id == after.id == "note:p1:2150-03-04::laboratory results"
    stamped = {**later, "meta": {"lastUpdated": "2150-03-05"}}, {**first, "meta": {"lastUpdated": "2150-03-04"}}
    assert given_by(put(tmp_path, *stamped)) == [after], "the newest first, as a history has it"
    others = {**first, "subject": {"reference": "Patient/p2"}}
    assert len(given_by(put(tmp_path, first, others))) == 2, "an id of another patient's is another one"
    gone = read_file(put(tmp_path, first, {**first, "status": "entered-in-error"}), "x")
    stated = StatedSources("p1", frozenset({"fhir:Observation/o1"}), "fhir:")
    assert list(gone) == [stated, DeletedDocument(before.id, patient="p1")]


def test_files_by_resource_type_are_read_together(tmp_path: Path) -> None:
    lines = {
        "a-Observation.0": observation("Sodium", "2150-03-04", id="o1", valueInteger=139),
        "b-DocumentReference": document(packed("Plan: home")),
        "c-Patient": PATIENT,
        "d-Encounter": STAY,
        "e-Observation.1": observation("Potassium", "2150-03-04", id="o2", valueInteger=4),
    }
    for name, resource in lines.items():
        (tmp_path / f"{name}.ndjson").write_text(json.dumps(resource) + "\n")
    note, day = (item for item in read_sources([tmp_path]) if isinstance(item, Document))
    assert (note.metadata["patient_name"], note.metadata["admitted"]) == ("Ada Byron", "2150-03-01")
    assert (day.metadata["patient_name"], day.text) == ("Ada Byron", "Sodium: 139\nPotassium: 4")
    log = RemovalLog()
    assert not [
        item
        for item in read_sources([tmp_path / "c-Patient.ndjson"], cleaning=NoteCleaning(removal_log=log))
        if isinstance(item, Document)
    ]
    assert log.summary().other_resources == {"Patient": 1}, "told, since no note was there"
    log = RemovalLog()
    files = [tmp_path / "c-Patient.ndjson", tmp_path / "a-Observation.0.ndjson"]
    assert list(read_sources(files, cleaning=NoteCleaning(removal_log=log)))
    assert log.summary().other_resources == {}, "the facts of the patient were read"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"resourceType": "Bundle", "entry": null}', "the bundle has no entries"),
        (json.dumps(document("x", subject={"display": "Ada"})), "export it with its subject"),
    ],
)
def test_json_without_notes_is_reported(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    (skip,) = [item for item in read_sources([path]) if isinstance(item, Skipped)]
    assert reason in skip.reason
    assert "column" not in skip.reason


def test_given_name_as_text_is_one_name(tmp_path: Path) -> None:
    ada = {**PATIENT, "name": [{"given": "Ada", "family": "Byron"}]}
    (note,) = given_by(put(tmp_path, document(packed("Good.")), ada))
    assert note.metadata["patient_name"] == "Ada Byron"


def test_comment_of_a_report_and_time_of_an_attachment_are_read(tmp_path: Path) -> None:
    report = {"resourceType": "DiagnosticReport", "id": "r1", "status": "final", "code": {"text": "Blood gas"},
              "subject": {"reference": "Patient/p1"}, "issued": "2150-03-09", "conclusion": "Mild hypoxemia",
              "note": [{"text": "Drawn on room air"}]}  # fmt: skip
    note = document(base64.b64encode(b"Text of the note").decode())
    del note["date"]
    note["content"][0]["attachment"]["creation"] = "2150-03-08T10:00:00+01:00"
    path = tmp_path / "export.ndjson"
    path.write_text("".join(json.dumps(item) + "\n" for item in (report, note)), encoding="utf-8")
    items = [item for item in read_file(path, path.name) if isinstance(item, Document)]
    assert [(item.date, item.text) for item in items] == [
        ("2150-03-09", "Conclusion: Mild hypoxemia\n\nComment: Drawn on room air"),
        ("2150-03-08T10:00", "Text of the note"),
    ]
