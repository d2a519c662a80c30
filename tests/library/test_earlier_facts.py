"""Incremental FHIR exports of a day: what they do not state stays, and what they withdraw goes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from epicrisis.core.clinical_facts import ClinicalFact, read_facts
from epicrisis.core.types import Passage
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.write.document_export import export_documents
from epicrisis.library.write.ingest import add_documents, open_or_create
from epicrisis.library.write.ingest_batches import IngestReport
from epicrisis.pipeline.additions import AddOptions, add_files
from epicrisis.settings.settings import Settings
from epicrisis.testing.hashing_encoder import HashingEncoder

ENCODER = HashingEncoder(32, max_tokens=24)
SUBJECT = "p1"


def collect_facts(passages: Iterable[Passage]) -> tuple[ClinicalFact, ...]:
    """Return the facts of these passages by document and offset, each once, also where passages overlap."""
    facts = {(fact.document_id, fact.start): fact for passage in passages for fact in read_facts(passage)}
    return tuple(facts[key] for key in sorted(facts))


def value(id_: str, number: float, day: str = "2150-03-04T08:10:00+01:00", **more: Any) -> dict[str, Any]:
    return {
        "resourceType": "Observation",
        "id": id_,
        "status": "final",
        "category": [{"coding": [{"code": "laboratory"}]}],
        "code": {"text": f"Analyte {id_}"},
        "subject": {"reference": f"Patient/{SUBJECT}"},
        "effectiveDateTime": day,
        "valueQuantity": {"value": number, "unit": "mg/dL"},
        **more,
    }


def add(folder: Path, *resources: dict[str, Any]) -> IngestReport:
    path = folder / "export.ndjson"
    path.write_text("".join(json.dumps(resource) + "\n" for resource in resources), encoding="utf-8")
    return add_files(Settings(), folder / "library", [path], AddOptions(overlap=8), encoder=(ENCODER, "hashing"))


def read_passages(folder: Path) -> list[Passage]:
    with LibraryStore.open(folder / "library") as store:
        return [stored.passage for batch in store.open_table().batches() for stored in batch]


def list_values(folder: Path) -> dict[str, str]:
    """Return the values by the id of their resource. Each fact must be stated by its own line."""
    values: dict[str, str] = {}
    passages = read_passages(folder)
    for fact in collect_facts(passages):
        assert fact.source not in values
        values[fact.source] = fact.value
        line = next(part.text[fact.start - part.start : fact.end - part.start] for part in passages
                    if part.document_id == fact.document_id and part.start <= fact.start < part.end)  # fmt: skip
        assert fact.name in line
    return values


def test_values_that_a_later_export_of_the_day_does_not_state_stay(tmp_path: Path) -> None:
    add(tmp_path, *(value(str(number), number) for number in range(12)))
    report = add(tmp_path, value("new", 7.5), value("3", 3.5))
    assert report.earlier_facts == 11
    expected = {f"fhir:Observation/{number}": str(number) for number in range(12)}
    assert list_values(tmp_path) == {**expected, "fhir:Observation/3": "3.5", "fhir:Observation/new": "7.5"}
    assert add(tmp_path, value("new", 7.5), value("3", 3.5)).unchanged == 1


def test_withdrawn_value_goes_and_the_others_of_its_day_stay(tmp_path: Path) -> None:
    add(tmp_path, value("1", 1), value("2", 2))
    add(tmp_path, value("1", 1, status="entered-in-error"))
    assert list_values(tmp_path) == {"fhir:Observation/2": "2"}
    add(tmp_path, value("2", 2, status="entered-in-error"))
    assert read_passages(tmp_path) == []


def test_export_of_another_patient_keeps_nothing(tmp_path: Path) -> None:
    add(tmp_path, value("1", 1))
    other = value("2", 2, subject={"reference": "Patient/p2"})
    assert add(tmp_path, other).earlier_facts == 0
    assert {passage.patient for passage in read_passages(tmp_path)} == {"p1", "p2"}


def test_exported_document_of_several_passages_has_all_facts(tmp_path: Path) -> None:
    add(tmp_path, *(value(str(number), number) for number in range(12)))
    assert len(read_passages(tmp_path)) > 1
    with LibraryStore.open(tmp_path / "library") as store:
        documents = list(export_documents(store, lambda passage: True))
    with open_or_create(tmp_path / "copy", ENCODER, "hashing", 8) as copy:
        add_documents(copy, documents, ENCODER)
        passages = [stored.passage for batch in copy.open_table().batches() for stored in batch]
    assert len(collect_facts(passages)) == 12
