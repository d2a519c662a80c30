"""What lines of problem lists assert: what the patient has, has not, may have, or a relative has."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from epicrisis.corpus.records.assertions import Assertion, assess_line, assess_name

LINES = Path(__file__).parents[1] / "support" / "problem_lines.tsv"
"""200 invented lines, labelled by reading before the rules had seen them: line, label, name."""


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("1. Hypertension", Assertion("present", "Hypertension")),
        ("h/o DVT (2015, resolved)", Assertion("present", "DVT")),
        ("COPD without exacerbation", Assertion("present", "COPD")),
        ("Depression, denies suicidal ideation", Assertion("present", "Depression")),
        ("2. No history of diabetes mellitus", Assertion("absent", "diabetes mellitus")),
        ("Malignant hyperthermia: patient history negative", Assertion("absent", "Malignant hyperthermia")),
        ("Possible lupus, ruled out 2019", Assertion("absent", "lupus")),
        ("r/o PE, not confirmed", Assertion("uncertain", "PE")),
        ("Mother with breast cancer", Assertion("family", "breast cancer")),
        ("s/p appendectomy 1999", Assertion("other", "")),
        ("Substance: codeine | Reaction: rash", Assertion("other", "")),
        ("", Assertion("other", "")),
    ],
)
def test_line_is_assessed(line: str, expected: Assertion) -> None:
    assert assess_line(line) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Family history of colon cancer", Assertion("family", "colon cancer")),
        ("Mother has diabetes", Assertion("family", "diabetes")),
        ("No history of diabetes", Assertion("absent", "diabetes")),
        ("Denies chest pain", Assertion("absent", "chest pain")),
        ("MI, ruled out", Assertion("absent", "MI")),
        ("Rule out pulmonary embolism", Assertion("uncertain", "pulmonary embolism")),
        ("Suspected lupus", Assertion("uncertain", "lupus")),
        ("Child abuse, suspected", Assertion("uncertain", "abuse")),
        *(
            (name, Assertion("present", name))
            for name in ("Absence of kidney", "Spouse abuse", "Risk of falls", "Lack of exercise", "Twin pregnancy")
        ),
        *(
            (name, Assertion("present", name))
            for name in ("No fixed abode", "History of tobacco use", "Chest pain, rule out MI", "Unable to walk")
        ),
        *(
            (name, Assertion("present", name))
            for name in ("Pneumonia without sepsis", "Encounter for suspected infection, ruled out")
        ),
        ("Epilepsy (excluded)", Assertion("absent", "Epilepsy")),
        ("Coeliac disease - unlikely", Assertion("absent", "Coeliac disease")),
        ("Asthma: no", Assertion("absent", "Asthma")),
        ("Tuberculosis not ruled out", Assertion("uncertain", "Tuberculosis")),
        ("Tuberculosis, to be excluded", Assertion("uncertain", "Tuberculosis")),
        ("Gout?", Assertion("uncertain", "Gout")),
        ("Lupus (likely)", Assertion("uncertain", "Lupus")),
        ("Sarcoidosis, not confirmed", Assertion("uncertain", "Sarcoidosis")),
        ("Breast cancer - mother", Assertion("family", "Breast cancer")),
        ("Melanoma (his father)", Assertion("family", "Melanoma")),
        ("Sister: epilepsy", Assertion("family", "epilepsy")),
        *(
            (name, Assertion("present", name))
            for name in ("Chest pain, MI ruled out", "Dyspnea (PE excluded)", "Syncope; cardiac cause unlikely")
        ),
        *(
            (name, Assertion("present", name))
            for name in ("Death of mother", "Child abuse by father", "Diabetes in mother complicating childbirth")
        ),
    ],
)
def test_name_of_a_problem_is_assessed_if_it_is_a_statement(name: str, expected: Assertion) -> None:
    assert assess_name(name) == expected


def test_nine_of_ten_lines_that_are_called_present_are() -> None:
    with LINES.open(encoding="utf-8", newline="") as file:
        rows = [
            (label, assess_line(line).status)
            for line, label, _ in csv.reader(file, "excel-tab", quoting=csv.QUOTE_NONE)
        ]
    assert len(rows) == 200
    called = [label for label, status in rows if status == "present"]
    are = [status for label, status in rows if label == "present"]
    assert called.count("present") >= 0.9 * len(called)
    assert are.count("present") >= 0.95 * len(are)
