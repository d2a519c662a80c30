"""What is cleaned away from a note, and what must never be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epicrisis.corpus.base.note_cleaning import (
    MIN_NOTES,
    MIN_PATIENTS,
    RecurringTextCounter,
    RemovedText,
    clean_text,
    remove_boilerplate,
)

TEMPLATE = (
    "Thank you for letting us take part in the care of this person; the team on duty will gladly answer any question."
)
LUNGS = (
    "The lungs are clear without focal consolidation, and there is no pleural effusion and no pneumothorax seen here."
)


def _after(paragraph: str, notes: int = 40, patients: int = 20, share: float = 1.0, limit: int = 1000) -> str:
    """The last note of so many, each with an own finding, after what recurs was taken out of it."""
    counts = RecurringTextCounter(limit)
    texts = []
    for n in range(notes):
        mine = f"Finding {n}.\n\n" + (paragraph if n < notes * share else "Nothing more.") + f"\n\nPlan {n}."
        texts.append(mine)
        counts.add("Nursing", f"patient {n % patients}", mine)
    return remove_boilerplate("Nursing", texts[0], counts.recurring())[0]


def test_clean_text_normalizes_line_breaks_control_characters_and_blanks() -> None:
    dirty = "\ufeff\n\n  Name: [**Known**] ___  \r\nBP\t120/80\x07\rPlan\x0cHome\n \n\n\nEnd\n"
    assert clean_text(dirty) == "  Name: [**Known**] ___\nBP\t120/80\nPlan\nHome\n\nEnd"


@pytest.mark.slow
@given(st.text(alphabet="aB1 \t\r\n\f\v\x00\x85\u2028\ufeff.:", max_size=60))
def test_clean_text_is_idempotent_and_keeps_letters(text: str) -> None:
    once = clean_text(text)
    assert clean_text(once) == once
    assert [c for c in once if c in "aB1.:"] == [c for c in text if c in "aB1.:"]


def test_template_of_many_patients_is_removed() -> None:
    assert _after(TEMPLATE) == "Finding 0.\n\nPlan 0."
    assert _after(TEMPLATE.replace("; ", ";\n")) == "Finding 0.\n\nPlan 0.", "however its lines are broken"
    assert _after("Seen 1 time.\n" + TEMPLATE) == "Finding 0.\n\nSeen 1 time.\n\nPlan 0.".replace(
        "\n\nPlan", "\n\nPlan"
    )


@pytest.mark.parametrize(
    "paragraph",
    [
        "No known allergies",
        LUNGS,
        TEMPLATE + " Room 5.",
        TEMPLATE + " Ask for ___.",
        TEMPLATE + " Ask for [**Name**].",
        "The patient was transferred to the intensive care unit and given furosemide and two units of blood",
        "He takes metoprolol in the evening. Allergic to penicillin, and to all of its relatives, the family tells us.",
    ],
)
def test_recurring_possible_finding_is_kept(paragraph: str) -> None:
    assert paragraph in _after(paragraph)


def test_rare_paragraph_is_no_template() -> None:
    assert TEMPLATE in _after(TEMPLATE, notes=MIN_NOTES - 1, patients=MIN_NOTES - 1)
    assert TEMPLATE in _after(TEMPLATE, patients=MIN_PATIENTS - 1)
    assert TEMPLATE in _after(TEMPLATE, notes=100, share=0.4)
    assert TEMPLATE not in _after(TEMPLATE, notes=100, share=0.6)


def test_bounded_counting_finds_recurring_paragraphs() -> None:
    counts = RecurringTextCounter(limit=50)
    for n in range(400):
        letters = "".join(chr(ord("a") + int(digit)) for digit in str(n))
        own = f"A sentence of this one note {letters} that is long enough to be counted among all the others."
        counts.add("x", f"p{n}", f"{TEMPLATE}\n\n{own}")
        assert len(counts) <= 51
    assert [each.text for each in counts.recurring().values()] == [TEMPLATE]


def test_footer_is_removed_as_whole_line() -> None:
    text = (
        "Seen today. Electronically signed consent is in the chart.\n"
        + "_" * 40
        + "\nPage 3 of 7\nDictated but not read\n"
        "Electronically signed by: A. B.\nThis report was created with voice recognition software.\n___\n"
        "Plan: page Dr ___."
    )
    left, taken = remove_boilerplate("", text, {})
    assert left == "Seen today. Electronically signed consent is in the chart.\n\n___\nPlan: page Dr ___."
    assert [each.kind for each in taken] == ["rule", "page", "dictation", "signature", "voice"]
    assert taken[1] == RemovedText("page", "Page 3 of 7")


@pytest.mark.parametrize(
    "line",
    [
        "Electronically signed by Dr. A. ADDENDUM: HER2 positive, potassium 6.8, call the patient.",
        "Electronically signed by Dr. Smith. Pneumonia.",
        "Electronically signed by Dr. Smith on 3/4/2150 K 6.8",
        "Dictated but not read. Potassium 6.8",
        "Transcribed by JS; call the patient",
        "This report was created with voice recognition software; HER2 positive, call the patient.",
        "This note was dictated using voice recognition software. Potassium 6.8",
    ],
)
def test_footer_with_more_text_is_kept(line: str) -> None:
    assert remove_boilerplate("", f"Seen.\n{line}", {}) == (f"Seen.\n{line}", [])


@pytest.mark.parametrize(
    "line",
    [
        "ELECTRONICALLY SIGNED BY: JOHN SMITH MD ON 3/4/2150 AT 10:30 AM",
        "Electronically signed by Smith, John, M.D. on 03/04/2150 10:30 AM EST",
        "Electronically signed by [**Name (STitle) 123**], MD",
        "Digitally signed on 2150-01-02 10:20 by Dr. Anna van der Berg",
        "Dictated by Maria O'Neil-Smith, PA-C on 4 March 2150",
        "This note was dictated using Dragon medical voice recognition software and may contain inadvertent errors.",
    ],
)
def test_footer_includes_names_titles_dates_and_times(line: str) -> None:
    assert remove_boilerplate("", f"Seen.\n{line}", {})[0] == "Seen."


@pytest.mark.parametrize(
    "text",
    [
        "Invasive ductal carcinoma of the breast was identified on core biopsy, with tumor at the inked margin of it.",
        "Smoked for decades and worked in a shipyard where asbestos was handled every day, as was told by the family.",
        "You were admitted to the hospital for removal of the gallbladder, and everything went as it had been planned.",
        "Please note that invasive ductal carcinoma of the breast was identified with tumor at the inked margin here.",
    ],
)
def test_text_common_to_one_disease_is_kept(text: str) -> None:
    assert text in _after(text)


@pytest.mark.parametrize("heading", ["FINDINGS:", "FINAL DIAGNOSIS:", "Hospital Course:", "Discharge Medications:"])
def test_text_below_findings_heading_is_kept(heading: str) -> None:
    assert TEMPLATE in _after(f"{heading}\n\n{TEMPLATE}")
    assert TEMPLATE in _after(f"{heading}\n{TEMPLATE}")
    assert TEMPLATE not in _after(f"Signature:\n\n{TEMPLATE}")
