"""Copied text is found, dated by its first note, and left out where the time of a statement counts."""

from __future__ import annotations

import pytest

from epicrisis.core.types import Document, Passage
from epicrisis.corpus.base.chunking import build_passages
from epicrisis.retrieval.copied_text import find_copied_text, remove_copied_text

HISTORY = "She was admitted with chest pain and found to have a non-ST elevation infarction, treated with two stents."
PLAN = "Continue furosemide 40 mg twice daily and repeat the electrolytes in the morning before the next dose."


def _note(number: int, date: str | None, *paragraphs: str) -> tuple[Passage, ...]:
    text = "\n\n".join(paragraphs)
    document = Document(f"note:{number}", text, date=date, patient="p1")
    middle = text.find(" ", len(text) // 2) + 1
    return build_passages(document, [(0, middle), (middle, len(text))])


def test_copied_paragraph_has_the_date_of_its_first_note() -> None:
    record = [
        *_note(3, "2150-03-06", "Feels better.", HISTORY),
        *_note(1, "2150-03-04", HISTORY, PLAN),
        *_note(2, "2150-03-05T08:00", HISTORY.replace("treated", "and treated"), "Slept well."),
    ]
    copies = find_copied_text(record)
    assert {document: texts[0].first_date for document, texts in copies.items()} == {
        "note:2": "2150-03-04",
        "note:3": "2150-03-04",
    }
    (copied,) = copies["note:3"]
    assert copied.first_document == "note:1"
    assert f"Feels better.\n\n{HISTORY}"[copied.start : copied.end] == HISTORY


def test_paragraph_with_another_number_is_no_copy() -> None:
    record = [*_note(1, "2150-03-04", PLAN), *_note(2, "2150-03-05", PLAN.replace("40 mg", "80 mg"))]
    assert find_copied_text(record) == {}


def test_paragraph_with_another_negation_or_side_is_no_copy() -> None:
    text = "The patient reports chest pain with radiation to the left arm since the early morning hours of today."
    for other in (text.replace("reports", "denies"), text.replace("left", "right")):
        assert find_copied_text([*_note(1, "2150-03-04", text), *_note(2, "2150-03-05", other)]) == {}


def test_paragraph_with_a_contracted_negation_or_another_number_word_is_no_copy() -> None:
    first = "She is taking two tablets of metformin every morning and is able to walk around the ward."
    for one, other in (
        ("is taking", "isn't taking"),
        ("two", "three"),
        ("is able", "is unable"),
        ("taking", "refusing"),
    ):
        later = first.replace(one, other)
        assert not find_copied_text((*_note(1, "2150-01-01", first), *_note(2, "2150-01-02", later)))


def test_same_day_undated_and_short_texts_are_no_copies() -> None:
    record = [
        *_note(1, "2150-03-04T08:00", PLAN, "No known drug allergies."),
        *_note(2, "2150-03-04T20:00", PLAN),
        *_note(3, None, PLAN),
        *_note(4, "2150-03-09", "No known drug allergies."),
    ]
    assert find_copied_text(record) == {}


def test_paragraph_copied_a_hundred_times_keeps_its_first_date() -> None:
    record = [passage for day in range(1, 101) for passage in _note(day, f"{2100 + day}-01-01", HISTORY)]
    copies = find_copied_text(record)
    assert len(copies) == 99
    assert {text.first_date for texts in copies.values() for text in texts} == {"2101-01-01"}


def test_remove_copied_text_keeps_first_statement_and_all_offsets() -> None:
    record = [*_note(1, "2150-03-04", HISTORY), *_note(2, "2150-03-08", "New fever since the morning.", HISTORY)]
    without = remove_copied_text(record)
    assert [len(passage.text) for passage in without] == [len(passage.text) for passage in record]
    assert without[:2] == tuple(record[:2])
    later = "".join(passage.text for passage in without[2:])
    assert "New fever" in later
    assert "stents" not in later


STABLE = "She lives alone on the second floor and was independent before this admission."
DRUG = "She takes warfarin every evening for her irregular pulse."


def _dates(record: list[Passage], number: int) -> dict[str, str]:
    """Map the copied parts of a note to the dates of their first notes."""
    text = "".join(passage.text for passage in record if passage.document_id == f"note:{number}")
    return {text[part.start : part.end]: part.first_date for part in find_copied_text(record).get(f"note:{number}", ())}


@pytest.mark.parametrize(("word", "other"), [("warfarin", "apixaban"), ("evening", "morning"), ("takes", "took")])
def test_sentence_with_one_changed_word_has_the_date_of_the_change(word: str, other: str) -> None:
    changed = f"{STABLE} {DRUG.replace(word, other)}"
    record = [
        *_note(1, "2150-03-04", f"{STABLE} {DRUG}"),
        *_note(2, "2150-03-05", changed),
        *_note(3, "2150-03-06", changed),
    ]
    assert _dates(record, 2) == {STABLE: "2150-03-04"}
    assert _dates(record, 3) == {STABLE: "2150-03-04", DRUG.replace(word, other): "2150-03-05"}


def test_changed_value_among_unchanged_sentences_has_its_own_date() -> None:
    second = PLAN.replace("40 mg", "80 mg")
    record = [*_note(1, "2150-03-04", f"{HISTORY} {PLAN}"), *_note(2, "2150-03-05", f"{HISTORY} {second}")]
    assert _dates(record, 2) == {HISTORY: "2150-03-04"}


def test_statement_changed_back_has_the_date_of_the_second_change() -> None:
    changed = f"{STABLE} {DRUG.replace('warfarin', 'apixaban')}"
    record = [
        *_note(1, "2150-03-04", f"{STABLE} {DRUG}"),
        *_note(2, "2150-03-05", changed),
        *_note(3, "2150-03-06", f"{STABLE} {DRUG}"),
        *_note(4, "2150-03-07", f"{STABLE} {DRUG}"),
    ]
    assert _dates(record, 3) == {STABLE: "2150-03-04"}
    assert _dates(record, 4) == {STABLE: "2150-03-04", DRUG: "2150-03-06"}


def test_list_with_one_changed_drug_keeps_the_dates_of_the_other_lines() -> None:
    drugs = ["Medications on the ward:", "- metoprolol 25 mg daily", "- warfarin 5 mg daily", "- aspirin 81 mg daily"]
    other = [*drugs[:2], "- apixaban 5 mg daily", drugs[3]]
    record = [*_note(1, "2150-03-04", "\n".join(drugs)), *_note(2, "2150-03-05", "\n".join(other))]
    assert find_copied_text(record)["note:2"][0].first_date == "2150-03-04"
    without = "".join(passage.text for passage in remove_copied_text(record) if passage.document_id == "note:2")
    assert without.split() == ["-", "apixaban", "5", "mg", "daily"]


def test_long_sentence_in_another_paragraph_has_the_date_of_its_first_note() -> None:
    record = [*_note(1, "2150-03-04", HISTORY), *_note(2, "2150-03-05", f"{PLAN} {HISTORY} {DRUG}")]
    assert _dates(record, 2) == {HISTORY: "2150-03-04"}
