"""Real inputs that failed: records of patients whose clinical facts came out wrong, with what should come out.

The inputs stand beside the real data (`cases/records`), each with a description of where it was found.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.cli.conftest import Run

Question: TypeAlias = tuple[str, tuple[str, ...], tuple[str, ...]]
"""A question, words that its answer has, and words that it has not."""
CCDA_PATIENT = "urn:oid:1.2.3.9|4711"
CASES: dict[str, tuple[str, tuple[Question, ...]]] = {
    "01-omop-allergy-denied/omop_allergy": (
        "71",
        (
            ("Is she allergic to penicillin?", ("Yes", "penicillin G"), ("No structured entry",)),
            ("Does she have a penicillin allergy?", ("Yes", "penicillin G"), ("No structured entry",)),
            ("What allergies does she have?", ("penicillin G",), ("Allergy to drug",)),
        ),
    ),
    "02-omop-dispensed-never-ends/omop2": (
        "71",
        (
            (
                "What medications does the patient take now?",
                ("No structured medication is current",),
                ("is current as of: ",),
            ),
        ),
    ),
    "02-omop-dispensed-never-ends/k16.json": ("p-9", (("current medications", (), ("dispense; current",)),)),
    "03-ccda-directions-lost/k01.xml": (
        CCDA_PATIENT,
        (
            (
                "current medications",
                ("30 units, Subcutaneous, At Bedtime", "take 1 tablet (2 mg) by oral route every 6 hours as needed"),
                (),
            ),
        ),
    ),
    "04-ccda-placeholder-name/k02.xml": (
        CCDA_PATIENT,
        (
            ("Is she on propranolol?", ("Propranolol 80 MG Capsule", "is current"), ("No structured medication",)),
            ("Which problems does she have?", ("Common migraine",), ("current as of 2024-01-10: Problem",)),
        ),
    ),
    "06-ccda-no-narrative/k04.xml": (
        "urn:oid:1.2.3.9|5003",
        (
            ("Is she allergic to penicillin?", ("Yes",), ()),
            ("What was the last potassium?", ("6.4",), ()),
            ("current medications", ("isinopril",), ()),
        ),
    ),
    "07-ccda-repeated-document-id": (CCDA_PATIENT.replace("4711", "5001"), (("apixaban", ("apixaban",), ()),)),
    "09-absent-statements-counted/k10.json": (
        "p-77",
        (
            ("current medications", (), ("medication is current",)),
            ("What allergies does the patient have?", (), ("allergy is current", "allergies are current")),
            ("What problems does the patient have?", (), ("problem is current",)),
        ),
    ),
    "09-absent-statements-counted/k09.xml": (CCDA_PATIENT, (("current medications", (), ("medication is current",)),)),
    "10-null-dates/k07.xml": (
        CCDA_PATIENT,
        (("When was ramipril started?", ("no date is known",), ("0001", "24273", "entry of “ramipril” is of")),),
    ),
    "14-value-name-too-exact/k15.json": ("p-77", (("What was the last pain severity?", ("7 {score}",), ()),)),
    "16-hl7-not-results-unread/h2.hl7": (
        "GENHOSP|55001",
        (
            ("What allergies does she have?", ("PENICILLIN", "ANAPHYLAXIS"), ("no structured allergies",)),
            ("Which problems does she have?", ("NSTEMI",), ()),
            ("current medications", ("Lisinopril 10 MG",), ()),
            ("When was the last influenza vaccination?", ("2023-10-01",), ()),
        ),
    ),
    "18-ccda-ruled-out-current/k14.xml": (CCDA_PATIENT, (("active problems", (), ("problems are current",)),)),
    "20-comparator-words-doubled/mimic": ("10001", (("last lactate", ("> 15 mmol/L",), (">GREATER",)),)),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_record_that_failed_gives_right_facts(
    case: str, data_folder: Path, run: Run, model_home: Path, tmp_path: Path
) -> None:
    patient, questions = CASES[case]
    added = run("library", "add", tmp_path / "library", data_folder.parent / "cases" / "records" / case)
    assert added.exit_code == 0, added.stderr
    for question, present, absent in questions:
        answer = run("ask", tmp_path / "library", question, "--patient", patient)
        assert answer.exit_code == 0, answer.stderr
        for words in present:
            assert words in answer.stdout
        for words in absent:
            assert words not in answer.stdout


@pytest.mark.slow
def test_summary_of_notes_lists_only_the_problems_of_the_patient(
    data_folder: Path, run: Run, model_home: Path, tmp_path: Path
) -> None:
    notes = data_folder.parent / "cases" / "records" / "13-summary-of-notes-negated" / "n1.csv"
    columns = ("note-id=note_id", "patient=subject_id", "time=charttime", "type=note_type")
    options = [word for column in columns for word in ("--column", column)]
    added = run("library", "add", tmp_path / "library", notes, "--format", "notes", *options)
    assert added.exit_code == 0, added.stderr
    summary = run("patient", "summary", tmp_path / "library", "7001", "--json")
    assert summary.exit_code == 0, summary.stderr
    names = [section["problem"]["name"] for section in json.loads(summary.stdout)["sections"]]
    assert names == ["CHF exacerbation", "AKI", "Hypertension", "DVT"]
