"""Line breaks between the passages of a document, which the library does not keep."""

from __future__ import annotations

import pytest

from epicrisis.core.types import Document
from epicrisis.corpus.base.chunking import chunk_document
from epicrisis.server.base.white_space import join_text

NOTE = """Discharge summary
Allergies: penicillin.
Warfarin was stopped.
1. Follow up in the clinic.
- INR in a week
Plan: see the cardiologist.

Signed by the ward."""
PROSE = "Zinc shortened colds. It is cheap. Nausea was frequent. Trials were small. Doses differed."


def split_words(text: str) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    for word in text.split():
        start = text.index(word, spans[-1][1] if spans else 0)
        spans.append((start, start + len(word)))
    return spans


@pytest.mark.parametrize("text", [NOTE, PROSE])
@pytest.mark.parametrize("overlap", [0, 4])
@pytest.mark.parametrize("tokens", [6, 9])
def test_line_breaks_of_note_and_blanks_of_prose_are_restored(text: str, overlap: int, tokens: int) -> None:
    passages = chunk_document(Document("note:1", text), split_words, tokens, overlap)
    assert len(passages) > 1
    assert join_text(passages) == text


def test_long_gap_keeps_offsets_of_later_text() -> None:
    text = "One.     \n\n   Two words here."
    passages = chunk_document(Document("note:1", text), split_words, 3, 0)
    joined = join_text(passages)
    assert len(joined) == len(text)
    assert joined.split() == text.split()
    assert joined.index("Two") == text.index("Two")
