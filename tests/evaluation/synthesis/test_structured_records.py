"""Structured entries of fictional patients, read back from each format: the same facts, the right computed answers."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from epicrisis.core.clinical_facts import FACTS, ClinicalFact
from epicrisis.core.errors import InputError
from epicrisis.core.types import Document, Scope
from epicrisis.corpus.base.reader_base import ReaderItem, Skipped
from epicrisis.corpus.base.removal_log import RemovalLog
from epicrisis.corpus.readers.sources import read_sources
from epicrisis.corpus.records.note_documents import NoteCleaning
from epicrisis.evaluation.datasets.patient_records.recordset import load_records
from epicrisis.evaluation.grading.computed_answers import grade_computed, read_parts
from epicrisis.evaluation.synthesis.patient_records.ccda_documents import FICTIONAL_ROOT
from epicrisis.evaluation.synthesis.patient_records.record_folder import write_records
from epicrisis.records.fact_questions.answer import compute
from epicrisis.records.fact_questions.question_rules import plan_by_rules
from epicrisis.records.fact_questions.record import PatientFacts, read_fact_record
from tests.support.hashed_encoder import opened_library

PATIENTS = 3
Row: TypeAlias = tuple[str, ...]
"""Patient, kind, name, time, end, value, unit and stay of an entry."""


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("structured") / "records"
    write_records(folder, PATIENTS, [9000, 16000], seed=3, structured=("fhir", "omop", "ccda"))
    return folder


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def known_rows(records: Path) -> list[Row]:
    names = ("patient", "kind", "name", "time", "end", "value", "unit", "encounter")
    return sorted(tuple(line[name] for name in names) for line in read_lines(records / "facts.jsonl"))


def read_folder(folder: Path) -> list[ReaderItem]:
    items = list(read_sources([folder], cleaning=NoteCleaning(removal_log=RemovalLog())))
    assert not [item for item in items if isinstance(item, Skipped)]
    return items


def documents_of(items: Iterable[ReaderItem]) -> list[Document]:
    return [item for item in items if isinstance(item, Document)]


def read_rows(
    documents: Iterable[Document], patients: Mapping[str, str] | None = None, stays: Mapping[str, str] | None = None
) -> list[Row]:
    """Return the entries of the documents: the facts of one source, a start and perhaps an end, are one entry.

    The patients and stays of tables have numbers: `patients` and `stays` name them.
    """
    courses: dict[tuple[str, str, str], list[ClinicalFact]] = {}
    for document in documents:
        for row in document.metadata[FACTS]:
            fact = ClinicalFact(**{**row, "codes": tuple(row.get("codes", ()))})
            assert fact.source
            assert document.patient
            courses.setdefault((document.patient, fact.source, fact.kind), []).append(fact)
    rows: list[Row] = []
    for (patient, _, _), facts in courses.items():
        starts = [fact for fact in facts if fact.event != "end"]
        ends = [fact for fact in facts if fact.event == "end"]
        assert len(starts) == 1
        assert len(ends) <= 1
        head = starts[0]
        assert head.number is None or f"{head.number:g}" == head.value
        end = (ends[0].time or "no date") if ends else ""
        time = head.time or ""
        stay = head.encounter if stays is None or not head.encounter else stays[head.encounter]
        name = patient if patients is None else patients[patient]
        rows.append((name, head.kind, head.name, time, end, head.value, head.unit, stay))
    return sorted(rows)


def read_numbers(records: Path, table: str, prefix: str) -> dict[str, str]:
    """Return the names of the numbers in a table: of patients or stays."""
    with (records / "record" / "omop" / f"{table}.csv").open(encoding="utf-8", newline="") as file:
        return {row[f"{table}_id"]: row[f"{prefix}_source_value"] for row in csv.DictReader(file)}


@pytest.mark.slow
def test_fhir_bundles_read_back_have_exactly_the_known_facts(records: Path) -> None:
    rows = read_rows(documents_of(read_folder(records / "record" / "fhir")))
    assert rows == known_rows(records)
    assert {row[1] for row in rows} == {
        *("encounter", "problem", "allergy", "medication", "procedure", "immunization", "laboratory", "vital-sign")
    }


@pytest.mark.slow
def test_omop_tables_read_back_have_exactly_the_known_facts(records: Path) -> None:
    patients = read_numbers(records, "person", "person")
    stays = read_numbers(records, "visit_occurrence", "visit")
    assert read_rows(documents_of(read_folder(records / "record" / "omop")), patients, stays) == known_rows(records)


def ccda_patients(records: Path) -> dict[str, str]:
    """Return the patients of C-CDA documents by the ids that readers make of root and extension."""
    return {f"urn:oid:{FICTIONAL_ROOT}|{row[0]}": row[0] for row in known_rows(records)}


@pytest.mark.slow
def test_ccda_documents_read_back_have_exactly_the_known_facts(records: Path) -> None:
    documents = documents_of(read_folder(records / "record" / "ccda"))
    facts = [document for document in documents if FACTS in document.metadata]
    assert read_rows(facts, ccda_patients(records)) == known_rows(records)


def test_facts_of_ccda_documents_have_the_codes_ranges_and_reasons_of_the_entries(records: Path) -> None:
    known = {line["id"]: line for line in read_lines(records / "facts.jsonl") if line["kind"] != "encounter"}
    starts: set[str] = set()
    for document in documents_of(read_folder(records / "record" / "ccda")):
        for row in document.metadata.get(FACTS, ()):
            id_ = row["source"].split("|")[1].partition(":")[0]
            if row["kind"] == "encounter" or row.get("event") == "end":
                continue
            entry = known[id_]
            starts.add(id_)
            assert row.get("codes", []) == ([entry["code"]] if entry["code"] else [])
            interval = "" if entry["low"] is None else f"{entry['low']:g} to {entry['high']:g} {entry['unit']}".strip()
            assert row.get("reference_range", "") == interval
            assert entry["reason"] in document.text
    assert starts == known.keys()


def test_ccda_documents_read_back_have_a_line_for_each_known_fact(records: Path) -> None:
    items = documents_of(read_folder(records / "record" / "ccda"))
    documents = [item for item in items if FACTS not in item.metadata]
    numbers = {document.patient: document.metadata["patient_name"] for document in documents}
    assert len(documents) == len(numbers) == PATIENTS
    known = known_rows(records)
    for document, patient in zip(documents, sorted({row[0] for row in known}), strict=True):
        lines = [line for line in document.text.split("\n") if " | " in line]
        cells = Counter(frozenset(part.partition(": ")[2] for part in line.split(" | ")) for line in lines)
        expected: Counter[frozenset[str]] = Counter()
        for entry in read_lines(records / "facts.jsonl"):
            if entry["patient"] == patient:
                times = [entry[name].replace("T", " ") for name in ("time", "end")]
                interval = "" if entry["low"] is None else f"{entry['low']:g} to {entry['high']:g}"
                texts = [entry[name] for name in ("name", "value", "unit", "reason", "encounter")]
                expected[frozenset(filter(None, (*texts, *times, interval)))] += 1
        assert cells == expected


@pytest.mark.long
@pytest.mark.parametrize("format", ["fhir", "omop", "ccda"])
def test_questions_about_each_format_are_answered_exactly(records: Path, tmp_path: Path, format: str) -> None:
    patients: Mapping[str, str] = {}
    if format != "fhir":
        patients = read_numbers(records, "person", "person") if format == "omop" else ccda_patients(records)
    ids = {name: number for number, name in patients.items()}
    grades: Counter[str] = Counter()
    with opened_library(tmp_path / "library", documents_of(read_folder(records / "record" / format))) as search:
        charts: dict[str, PatientFacts] = {}
        for line in read_lines(records / "fact_questions.jsonl"):
            patient = ids.get(line["patient"], line["patient"])
            if patient not in charts:
                facts = read_fact_record(search.library.fetch_record(Scope(patient=patient)))
                assert facts is not None
                charts[patient] = facts
            record = charts[patient]
            plan = plan_by_rules(line["text"], record)
            computed = None if plan is None else compute(plan, record).answer
            grade = grade_computed(computed, read_parts(line["gold"]))
            assert grade in ("exact", "rightly-abstained"), (grade, line, computed)
            grades[grade] += 1
    assert grades["exact"] > 100
    assert grades["rightly-abstained"]


def test_structured_entries_agree_with_the_notes(records: Path) -> None:
    with (records / "record" / "notes.csv").open(encoding="utf-8", newline="") as file:
        notes = list(csv.DictReader(file))
    for entry in read_lines(records / "facts.jsonl"):
        mine = [note for note in notes if note["subject_id"] == entry["patient"]]
        if entry["kind"] in ("laboratory", "vital-sign"):
            text = next(note["text"] for note in mine if note["charttime"] == entry["time"])
            assert entry["value"] in text
        elif entry["kind"] == "medication":
            assert any(f"{entry['name']} {entry['value']}" in note["text"] for note in mine)
        elif entry["kind"] in ("problem", "procedure") and entry["encounter"]:
            name = entry["name"].lower()
            assert any(name in note["text"].lower() for note in mine if note["hadm_id"] == entry["encounter"])


@pytest.mark.slow
def test_question_set_of_the_folder_has_notes_and_entries_of_fhir(records: Path) -> None:
    documents = documents_of(load_records(records).notes())
    with_facts = [document for document in documents if FACTS in document.metadata]
    assert read_rows(with_facts) == known_rows(records)
    assert len(documents) > len(with_facts)


def test_unknown_format_of_structured_entries_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--structured hl7: choose from fhir, omop, ccda"):
        write_records(tmp_path / "a", 1, [4000], structured=("hl7",))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_records_without_structured_entries_have_the_same_notes(records: Path, tmp_path: Path) -> None:
    write_records(tmp_path / "plain", PATIENTS, [9000, 16000], seed=3)
    assert sorted(path.name for path in (tmp_path / "plain").iterdir()) == ["README.md", "questions.jsonl", "record"]
    for name in ("record/notes.csv", "questions.jsonl"):
        assert (tmp_path / "plain" / name).read_bytes() == (records / name).read_bytes()
