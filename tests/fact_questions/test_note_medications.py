"""Drugs that the newest list of medications in the notes names beside structured entries."""

from dataclasses import replace

import pytest

from epicrisis.core.clinical_facts import ClinicalFact
from epicrisis.core.references import STARTS
from epicrisis.core.types import Document, Passage
from epicrisis.corpus.base.note_cleaning import find_sections
from epicrisis.records.fact_questions.note_medications import describe_note_medications
from tests.support.chart_documents import make_passage

OLD = "Medications: lisinopril 10 mg daily, metoprolol 25 mg BID."
NEW = """PRIMARY CARE NOTE

HPI: Feels well. Metformin increased.

Discharge Medications:
1. Metoprolol 50 mg BID
2. Lopressor
3. Warfarin 5 mg - stopped
4. Apixaban 5 mg BID, by mouth; metformin 1000 mg BID

Medications on Admission: digoxin 125 mcg daily
"""
METOPROLOL = ClinicalFact("medication", "Metoprolol 50 mg tablet", start=0, end=23)


def write(text: str, date: str) -> Passage:
    """Return a note of this day."""
    note = make_passage(Document(f"note:{date}", text, date=date, patient="7"))
    sections = {f"section{STARTS}": [[start, title] for start, _, title in find_sections(text)]}
    return replace(note, title=f"Progress Note, {date}", metadata=sections)


NOTES = [write(NEW, "2024-09-03"), write(OLD, "2021-02-03")]


def test_newest_list_names_what_current_entries_lack() -> None:
    assert describe_note_medications(NOTES, (), [METOPROLOL]) == (
        "the newest list of medications in the notes (Progress Note, 2024-09-03) has “Apixaban 5 mg BID” and "
        "“metformin 1000 mg BID”"
    )


@pytest.mark.parametrize(
    ("word", "found"),
    [("metformin", "“metformin 1000 mg BID”"), ("digoxin", ""), ("warfarin", ""), ("lisinopril", "")],
)
def test_list_is_asked_for_one_drug(word: str, found: str) -> None:
    remark = describe_note_medications(NOTES, (word,), [])
    assert remark.endswith(found) if found else remark == ""


def test_undated_notes_and_documents_of_nobody_have_no_list() -> None:
    nobody = [replace(note, patient=None) for note in NOTES]
    assert describe_note_medications([*nobody, replace(NOTES[0], date=None)], (), []) == ""
