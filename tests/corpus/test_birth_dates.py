"""A date before the patient's birth is none, in every format."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from epicrisis.core.clinical_facts import FACTS, ClinicalFact
from epicrisis.core.types import Document
from epicrisis.corpus.base.removal_log import RemovalLog
from epicrisis.corpus.readers.sources import read_sources
from epicrisis.corpus.records.facts.fact_documents import FactEntry, FactRecord, FactSpool, Stay
from epicrisis.corpus.records.note_tables import NoteColumns
from tests.corpus.test_ccda_facts import observation as ccda_result
from tests.corpus.test_ccda_facts import organizer, quantity
from tests.support import ccda_documents, hl7_messages
from tests.support.clinical_tables import MIMIC, OMOP, write_tables

BORN, EARLY = "1950-12-31", "1949-05-06"


def write_fhir(folder: Path) -> None:
    subject = {"reference": "Patient/p1"}
    value = {"code": {"text": "Sodium"}, "valueQuantity": {"value": 140, "unit": "mmol/L"}}
    note = {"content": [{"attachment": {"contentType": "text/plain", "data": "RmVlbHMgd2VsbC4="}}], "date": EARLY}
    resources = [
        {"resourceType": "Patient", "id": "p1", "birthDate": BORN},
        {"resourceType": "Observation", "id": "o1", "subject": subject, "effectiveDateTime": EARLY, **value},
        {"resourceType": "DocumentReference", "id": "d1", "subject": subject, **note},
    ]
    (folder / "a.ndjson").write_text("\n".join(map(json.dumps, resources)))


def write_hl7(folder: Path) -> None:
    early = EARLY.replace("-", "")
    result = hl7_messages.result("NM", "K^Potassium", "4.1", "mmol/L")
    lab = hl7_messages.message(
        "ORU^R01", hl7_messages.pid(), hl7_messages.order("F1", "BMP^Panel", early), f"{result}|||{early}"
    )
    report = hl7_messages.order("F2", "XR^Chest", early)
    text = hl7_messages.message("ORU^R01", hl7_messages.pid(), report, hl7_messages.result("TX", "XR^Chest", "Clear."))
    (folder / "a.hl7").write_text(lab + text)


def write_ccda(folder: Path) -> None:
    early = EARLY.replace("-", "")
    text = ccda_documents.document([organizer(ccda_result("R1", "2160-0", quantity("1.4"), early))], time=early)
    (folder / "a.xml").write_text(text)


def write_omop(folder: Path) -> None:
    person = {**OMOP["person"][0], "year_of_birth": "1950", "month_of_birth": "12", "day_of_birth": "31"}
    day = {"measurement_date": EARLY, "measurement_datetime": ""}
    note = {**OMOP["note"][0], "note_date": EARLY, "note_datetime": "", "visit_occurrence_id": ""}
    measurement = {**OMOP["measurement"][0], **day, "visit_occurrence_id": ""}
    write_tables(folder / "omop", {"person": [person], "measurement": [measurement], "note": [note]})


def write_mimic(folder: Path) -> None:
    person = {"subject_id": MIMIC["labevents"][0]["subject_id"], "gender": "F", "dob": BORN, "dod": ""}
    lab = {**MIMIC["labevents"][0], "charttime": EARLY, "storetime": "", "hadm_id": ""}
    write_tables(folder / "mimic", {"patients": [person], "labevents": [lab], "d_labitems": MIMIC["d_labitems"]})


def write_csv(folder: Path) -> None:
    (folder / "a.csv").write_text(f"id,born,day,words\np1,{BORN},{EARLY},Feels well.\np1,{BORN},2001-01-01,Fever.\n")


@pytest.mark.parametrize(
    ("write", "kinds"),
    [
        (write_fhir, {True, False}),
        (write_hl7, {True, False}),
        (write_ccda, {True, False}),
        (write_omop, {True, False}),
        (write_mimic, {True}),
        (write_csv, {False}),
    ],
)
def test_date_before_birth_is_none(write: Callable[[Path], None], kinds: set[bool], tmp_path: Path) -> None:
    write(tmp_path)
    columns = NoteColumns(patient="id", text="words", time=("day",), born="born") if write is write_csv else None
    items = list(read_sources([tmp_path], "notes" if columns else None, columns=columns))
    documents = [item for item in items if isinstance(item, Document) and item.date != "2001-01-01"]
    assert {FACTS in document.metadata for document in documents} == kinds
    for document in documents:
        assert document.date is None
        for fact in document.metadata.get(FACTS, ()):
            assert "time" not in fact
            assert "Time as written: 1949-05-06" in document.text
        if FACTS not in document.metadata:
            assert document.metadata["time_given"][:4] == "1949"


def test_start_before_birth_is_a_state_of_the_day_it_was_recorded() -> None:
    onset = ClinicalFact("problem", "Asthma", event="start", time=EARLY)
    early = ClinicalFact("problem", "Gout", event="start", time="1960", encounter="e1")
    with FactSpool() as spool:
        spool.add_person("p1", "Ada", BORN)
        spool.add_person("p1")
        spool.add_stay("e1", Stay("1949-01-01", "1960-01-04"), "p1")
        spool.add(FactRecord("p1", "c/2", (FactEntry(ClinicalFact("problem", "Anemia"), since=EARLY),)))
        spool.add(FactRecord("p1", "c/1", (FactEntry(onset, since="2001-02-03"), FactEntry(early, since=EARLY))))
        documents = [item for item in spool.documents(RemovalLog()) if isinstance(item, Document)]
    assert [(document.date, document.text) for document in documents] == [
        (None, "Problem: Anemia"),
        ("1960", "Onset of Gout"),
        ("2001-02-03", "Problem: Asthma Time as written: 1949-05-06."),
    ]
    assert {document.metadata["patient_name"] for document in documents} == {"Ada"}
    assert ("admitted" in documents[1].metadata, documents[1].metadata["discharged"]) == (False, "1960-01-04")
