"""The three ways a library cuts documents, and what becomes of pages and sections."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from epicrisis.core.errors import InputError
from epicrisis.core.references import build_reference
from epicrisis.core.types import Document
from epicrisis.library.base.splitters import split_document
from epicrisis.library.write.ingest import add_documents, open_or_create
from epicrisis.testing.hashing_encoder import HashingEncoder

ENCODER = HashingEncoder(max_tokens=40)
TEXT = "Aspirin prevents stroke in adults. " * 60
DOCUMENT = Document("d", TEXT.strip(), metadata={"journal": "BMJ"})


@pytest.mark.parametrize(("splitter", "longest"), [("tokens", 40 * 8), ("medrag", 1000), ("whole", len(TEXT))])
def test_split_document_passages_cover_text_within_limit(splitter: str, longest: int) -> None:
    passages = split_document(DOCUMENT, splitter, ENCODER.token_spans, 40, 8)
    assert all(passage.text == DOCUMENT.text[passage.start : passage.end] for passage in passages)
    assert passages[0].start == 0
    assert passages[-1].end == len(DOCUMENT.text)
    assert max(len(passage.text) for passage in passages) <= longest
    assert (len(passages) == 1) == (splitter == "whole")
    assert all(passage.metadata == {"journal": "BMJ"} for passage in passages)


def test_split_document_passage_has_own_page_and_section() -> None:
    metadata = {"pages": [0, 700, 1400], "sections": [[0, 900, "Methods"], [900, 3000, "Results / Harms"]]}
    document = Document("d", TEXT.strip(), metadata=metadata)
    for passage in split_document(document, "tokens", ENCODER.token_spans, 40, 0):
        page = 1 + (passage.start >= 700) + (passage.start >= 1400)
        section = "Methods" if passage.start < 900 else "Results / Harms"
        assert (passage.metadata["page"], passage.metadata["section"]) == (page, section)
        for offset in (passage.start, passage.end - 1):
            reference = build_reference(passage, offset)
            assert reference.page == 1 + (offset >= 700) + (offset >= 1400)
            assert reference.section == ("Methods" if offset < 900 else "Results / Harms")
        within = [700] if passage.start < 700 < passage.end else [1400] if passage.start < 1400 < passage.end else []
        assert [offset for offset, _ in passage.metadata.get("page_starts", [])] == within


def test_text_between_sections_has_none() -> None:
    metadata = {"sections": [[40, 80, "Methods"], [120, 160, "Results"]]}
    (passage,) = split_document(Document("d", TEXT[:200], metadata=metadata), "whole", ENCODER.token_spans, 40, 0)
    sections = [build_reference(passage, offset).section for offset in (0, 40, 79, 80, 120, 160)]
    assert sections == ["", "Methods", "Methods", "", "Results", ""]


@pytest.mark.parametrize("metadata", [{"sections": ["Summary"]}, {"pages": ["12", "19"]}, {"sections": [[0, "x"]]}])
def test_sections_and_pages_of_another_form_are_kept_as_they_are(metadata: dict[str, Any]) -> None:
    # PubMed's books have a list of headings, and a line of JSON may have any value.
    (passage,) = split_document(Document("d", TEXT[:200], metadata=metadata), "whole", ENCODER.token_spans, 40, 0)
    assert passage.metadata == metadata


@pytest.mark.parametrize(("splitter", "cut_off"), [("tokens", 0), ("medrag", 3), ("whole", 1)])
def test_add_documents_counts_passages_longer_than_encoder_window(tmp_path: Path, splitter: str, cut_off: int) -> None:
    with open_or_create(tmp_path / "l", ENCODER, "hashing", 0, splitter) as library:  # type: ignore[arg-type]
        assert add_documents(library, [DOCUMENT, Document("short", "Aspirin.")], ENCODER).cut_off == cut_off


@pytest.mark.parametrize("splitter", ["medrag", "whole"])
def test_add_documents_note_longer_than_encoder_window_is_refused(tmp_path: Path, splitter: str) -> None:
    note = dataclasses.replace(DOCUMENT, patient="anna")
    with open_or_create(tmp_path / "l", ENCODER, "hashing", 0, splitter) as library:  # type: ignore[arg-type]
        with pytest.raises(InputError, match="leave --splitter out"):
            add_documents(library, [note], ENCODER)
        assert library.count() == (0, 0)
        assert add_documents(library, [dataclasses.replace(note, text="Aspirin.")], ENCODER).added == 1
