"""What lines of problem lists assert: what the patient has, has not, may have, or a relative has."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from epicrisis.corpus.records.assertions import Assertion, assess_line

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
