"""An id that systems write for none names no patient, in every format: strangers would share a record."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from epicrisis.core.types import Document
from epicrisis.corpus.base.patient_numbers import stands_for_nobody
from epicrisis.corpus.base.reader_base import PatientIdentity, Skipped
from epicrisis.corpus.readers.sources import read_sources
from epicrisis.corpus.records.note_tables import NoteColumns
from tests.support import hl7_messages
from tests.support.clinical_tables import MIMIC, OMOP, write_tables


@pytest.mark.parametrize(
    ("id_", "expected"),
    [
        *((text, True) for text in ("", " ", "-", "--", "?", "0", "000-00-0000", "Unknown", "UNK", "none", "null")),
        *((text, True) for text in ("N/A", "NaN", "Patient unknown", "not available", "1.2.3|UNKNOWN")),
        *((text, False) for text in ("10", "0-1", "unknown7", "Nona", "na1", "p", "1.2.3|4711", "unknown|4711")),
    ],
)
def test_placeholder_stands_for_nobody(id_: str, expected: bool) -> None:
    assert stands_for_nobody(id_) is expected


def write_jsonl(folder: Path, ids: Sequence[str]) -> None:
    rows = [{"id": f"n{number}", "text": "Fever.", "patient": id_} for number, id_ in enumerate(ids)]
    (folder / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))


def write_csv(folder: Path, ids: Sequence[str]) -> None:
    rows = [f"{id_},Fever {number}.,Name {number}" for number, id_ in enumerate(ids)]
    (folder / "a.csv").write_text("\n".join(["id,words,name", *rows]))


def write_hl7(folder: Path, ids: Sequence[str]) -> None:
    messages = []
    for number, id_ in enumerate(ids):
        order = hl7_messages.order(f"F{number}", "BMP^Panel")
        result = hl7_messages.result("NM", "K^Potassium", "4.1", "mmol/L")
        messages.append(hl7_messages.message("ORU^R01", hl7_messages.pid(id_, f"Name^{number}"), order, result))
    (folder / "a.hl7").write_text("".join(messages))


def write_fhir(folder: Path, ids: Sequence[str]) -> None:
    resources = []
    for number, id_ in enumerate(ids):
        subject = {"reference": f"Patient/{id_}"} if number else {"identifier": {"value": id_}}
        value = {"code": {"text": "Sodium"}, "valueQuantity": {"value": 140, "unit": "mmol/L"}}
        resources.append({"resourceType": "Observation", "id": f"o{number}", "subject": subject, **value})
    (folder / "a.ndjson").write_text("\n".join(map(json.dumps, resources)))


def write_omop(folder: Path, ids: Sequence[str]) -> None:
    rows = [{**OMOP["measurement"][0], "measurement_id": number, "person_id": id_} for number, id_ in enumerate(ids)]
    write_tables(folder / "omop", {"measurement": rows})


def write_mimic(folder: Path, ids: Sequence[str]) -> None:
    rows = [{**MIMIC["labevents"][0], "labevent_id": number, "subject_id": id_} for number, id_ in enumerate(ids)]
    write_tables(folder / "mimic", {"labevents": rows, "d_labitems": MIMIC["d_labitems"]})


@pytest.mark.parametrize("write", [write_jsonl, write_csv, write_hl7, write_fhir, write_omop, write_mimic])
def test_record_of_a_placeholder_is_skipped_with_the_reason(
    write: Callable[[Path, Sequence[str]], None], tmp_path: Path
) -> None:
    write(tmp_path, ["unknown", "0", "4711"])
    columns = NoteColumns(patient="id", text="words", patient_name="name") if write is write_csv else None
    items = list(read_sources([tmp_path], "notes" if columns else None, columns=columns))
    patients = {item.patient for item in items if isinstance(item, Document)}
    assert {(patient or "").rpartition("|")[2] for patient in patients} == {"4711"}
    reasons = [item.reason for item in items if isinstance(item, Skipped)]
    assert len(reasons) == 2
    assert all("patient" in reason and ";" in reason for reason in reasons)


def test_placeholder_beside_a_record_number_joins_nobody(tmp_path: Path) -> None:
    result = hl7_messages.result("NM", "K^Potassium", "4.1", "mmol/L")
    texts = []
    for number in ("1", "2"):
        person = hl7_messages.pid("UNKNOWN", f"Name^{number}", more=f"~471{number}^^^COUNTY^MR")
        texts.append(hl7_messages.message("ORU^R01", person, hl7_messages.order(f"F{number}", "BMP^Panel"), result))
    (tmp_path / "a.hl7").write_text("".join(texts))
    identities = [item for item in read_sources([tmp_path]) if isinstance(item, PatientIdentity)]
    assert [(item.patient, item.numbers) for item in identities] == [
        ("COUNTY|4711", (("COUNTY", "4711"),)),
        ("COUNTY|4712", (("COUNTY", "4712"),)),
    ]
