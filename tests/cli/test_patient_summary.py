"""`epicrisis patient summary`: a record problem by problem, each sentence with its source."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from epicrisis import Library
from epicrisis.core.clinical_facts import FACTS, ClinicalFact, write_facts
from epicrisis.core.types import Document, Scope
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.pipeline.patient_summary import list_problems
from epicrisis.records.patient_chart import build_chart
from tests.cli.conftest import Run
from tests.support.chart_documents import CHART_DOCUMENTS

SUMMARY = Document(
    "note:5",
    "DISCHARGE DIAGNOSES:\n1. Pneumonia of the right lower lobe.\n2. Heart failure\nSecondary: COPD, gout.\n\n"
    "Past Medical History: atrial fibrillation, on apixaban, osteoarthritis of both knees\n\n"
    "HOSPITAL COURSE:\nPneumonia of the right lower lobe was treated with ceftriaxone for seven days.",
    date="2150-03-07",
    patient="p1",
    metadata={"note_type": "discharge summary"},
)


def _make_ward(path: Path) -> Path:
    with Library.create(path) as library:
        library.add(*CHART_DOCUMENTS, SUMMARY)
    with LibraryStore.open(path) as store:
        record = store.fetch_record(Scope(patient="p1"))
        problems = list_problems(build_chart(record), record)
    assert [(problem.name, problem.origin) for problem in problems] == [
        ("Heart failure", "structured"),
        ("Pneumonia of the right lower lobe", "notes"),
        ("COPD", "notes"),
        ("gout", "notes"),
        ("atrial fibrillation", "notes"),
        ("osteoarthritis of both knees", "notes"),
    ]
    return path


@pytest.mark.long
def test_summary_has_a_section_with_citations_for_each_problem(tmp_path: Path, run: Run, model_home: Path) -> None:
    ward = _make_ward(tmp_path / "ward")
    result = run("patient", "summary", ward, "p1", "--json")
    assert result.exit_code == 0, result.stderr
    sections = json.loads(result.stdout)["sections"]
    assert [section["problem"]["name"] for section in sections] == [
        "Heart failure",
        "Pneumonia of the right lower lobe",
        "COPD",
        "gout",
        "atrial fibrillation",
        "osteoarthritis of both knees",
    ]
    citations = sections[1]["answer"]["citations"]
    assert any("ceftriaxone" in citation["quotation"] for citation in citations)
    assert all(citation["document_id"] != "note:9" for citation in citations)


@pytest.mark.long
def test_summary_since_last_visit_reads_no_earlier_note(tmp_path: Path, run: Run, model_home: Path) -> None:
    ward = _make_ward(tmp_path / "ward")
    result = run("patient", "summary", ward, "p1", "--since", "last-visit", "--json")
    assert result.exit_code == 0, result.stderr
    dates: set[str] = set()
    for section in json.loads(result.stdout)["sections"]:
        dates.update(citation["date"][:10] for citation in section["answer"]["citations"])
    assert dates <= {"2150-06-01"}


def test_summary_of_record_without_problems_names_the_cure(tmp_path: Path, run: Run, model_home: Path) -> None:
    _make_ward(tmp_path / "ward")
    result = run("patient", "summary", tmp_path / "ward", "p2")
    assert result.exit_code == 2
    assert "epicrisis ask" in result.stderr


@pytest.mark.slow
def test_abbreviation_of_a_structured_problem_is_the_same_problem(tmp_path: Path) -> None:
    line = "Problem: gastroesophageal reflux disease, active"
    fact = ClinicalFact(
        "problem", "gastroesophageal reflux disease", start=0, end=len(line), time="2150-01-02", status="active"
    )
    facts = Document("facts:1", line, date="2150-01-02", patient="p1", metadata={FACTS: write_facts([fact])})
    text = "PAST MEDICAL HISTORY:\n- GERD, known since 2141\n- gerd\n- HTN\n\nHOSPITAL COURSE:\nStable."
    note = Document("note:1", text, date="2150-03-07", patient="p1", metadata={"note_type": "discharge summary"})
    with Library.create(tmp_path / "ward") as library:
        library.add(facts, note)
    with LibraryStore.open(tmp_path / "ward") as store:
        record = store.fetch_record(Scope(patient="p1"))
        problems = list_problems(build_chart(record), record)
    assert [problem.full_name for problem in problems] == ["gastroesophageal reflux disease (GERD)", "HTN"]
