"""Headings of notes, and lines that are none."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epicrisis.corpus.base.note_cleaning import find_sections

NOTE = """Seen by the team.
Chief Complaint: dyspnea
BP: 120/80
History of Present Illness:
He was given the following:
Hemoglobin: 9.1

DISCHARGE DIAGNOSES

Pneumonia
Course in the Unit:
Stable."""


def test_sections_cover_note_without_gaps() -> None:
    found = find_sections(NOTE)
    assert [title for _, _, title in found] == [
        "Chief Complaint",
        "History of Present Illness",
        "DISCHARGE DIAGNOSES",
        "Course in the Unit",
    ]
    assert [NOTE[int(start) :].startswith(str(title)) for start, _, title in found] == [True] * 4
    assert [end for _, end, _ in found] == [*(start for start, _, _ in found[1:]), len(NOTE)]


@pytest.mark.parametrize(
    "line",
    [
        "BP: 120/80",
        "HR: 80",
        "NPO",
        "SODIUM: 140",
        "Na:",
        "He was given the following:",
        "Allergies to penicillin.",
        "history of present illness was taken",
        "1. Aspirin 81 mg",
        "12:30",
        "",
        "PT SLEEPING.",
        "Time Taken: 10:30",
    ],
)
def test_ordinary_line_begins_no_section(line: str) -> None:
    assert find_sections(f"\n{line}\nmore") == []


@pytest.mark.parametrize(
    ("line", "title"),
    [
        ("FINDINGS: The lungs are clear.", "FINDINGS"),
        ("IMPRESSION:", "IMPRESSION"),
        ("  Plan: home", "Plan"),
        ("Discharge Medications:", "Discharge Medications"),
        ("PAST MEDICAL HISTORY", "PAST MEDICAL HISTORY"),
        ("Brief Hospital Course:", "Brief Hospital Course"),
        ("WET READ:", "WET READ"),
        ("Allergies: NKDA", "Allergies"),
    ],
)
def test_heading_line_begins_section(line: str, title: str) -> None:
    assert [found[2] for found in find_sections(f"before\n\n{line}\nmore")] == [title]


@given(st.text(alphabet="AbC: \n.", max_size=80))
def test_any_text_is_split_without_gaps(text: str) -> None:
    found = find_sections(text)
    assert all(int(start) < int(end) for start, end, _ in found)
    assert [end for _, end, _ in found] == [*(start for start, _, _ in found[1:]), *([len(text)] if found else [])]


@pytest.mark.data
def test_real_notes_have_expected_headings(data_folder: Path) -> None:
    with (data_folder / "visits" / "valid.csv").open(encoding="utf-8", newline="") as file:
        found = [{str(title).upper() for _, _, title in find_sections(row["note"])} for row in csv.DictReader(file)]
    assert len(found) == 20
    assert all(any("ASSESSMENT" in t or "PLAN" in t or t == "IMPRESSION" for t in titles) for titles in found)
    assert sum("PHYSICAL EXAM" in titles or "PHYSICAL EXAMINATION" in titles for titles in found) >= 15
