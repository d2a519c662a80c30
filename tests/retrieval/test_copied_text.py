"""Copied text is found, dated by its first note, and left out where the time of a statement counts."""

from __future__ import annotations

from epicrisis.corpus.chunking import build_passages
from epicrisis.retrieval.copied_text import find_copied_text, remove_copied_text
from epicrisis.types import Document, Passage

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
