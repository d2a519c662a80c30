"""Cut documents into passages with the splitter of a library, and check that the encoder reads passages completely.

Splitters: `tokens` cuts at sentences, up to the encoder's window. `medrag` cuts 1,000 characters with an overlap of
200, as MedRAG cuts textbooks. `whole` does not cut, and the encoder truncates at its window (as for the published
vectors of MedCPT).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeGuard

from epicrisis.core.clinical_facts import FACTS, is_fact_list, select_rows
from epicrisis.core.errors import InputError
from epicrisis.core.protocols import Encoder
from epicrisis.core.references import PAGE_LABELS, STARTS
from epicrisis.core.types import Document, Passage, SplitterName
from epicrisis.corpus.base.chunking import build_passages, chunk_document, split_by_characters
from epicrisis.corpus.base.reader_base import ReaderItem


def split_document(
    document: Document, splitter: str, spans: Callable[[str], Sequence[tuple[int, int]]], max_tokens: int, overlap: int
) -> tuple[Passage, ...]:
    """Return the document's passages in order, at least one unless the text is blank.

    Only the splitter `tokens` uses `spans`, `max_tokens` and `overlap`, see `chunking.chunk_document`.
    """
    if splitter == "tokens":
        pieces = chunk_document(document, spans, max_tokens, overlap)
    elif splitter == "medrag":
        pieces = split_by_characters(document)
    else:
        pieces = build_passages(document, [(0, len(document.text))])
    has_facts = is_fact_list(document.metadata.get(FACTS))
    return tuple(describe_places(passage, has_facts=has_facts) for passage in pieces)


def describe_places(passage: Passage, *, has_facts: bool = False) -> Passage:
    """Return a passage with its own page, section and facts instead of the document's lists of them."""
    metadata = dict(passage.metadata)
    pages, sections = metadata.get("pages"), metadata.get("sections")
    if _is_page_list(pages):
        del metadata["pages"]
        _add_places(metadata, "page", passage, [[start, number] for number, start in enumerate(pages, 1)])
        _select_labels(metadata)
    if _is_section_list(sections):
        del metadata["sections"]
        _add_places(metadata, "section", passage, _list_section_changes(sections))
    if has_facts:
        metadata[FACTS] = select_rows(metadata[FACTS], passage.start, passage.end)
    return replace(passage, metadata=metadata)


def _is_page_list(value: Any) -> TypeGuard[list[int]]:
    """Return whether this is the list of page offsets that a reader makes; a document's own key may be anything."""
    return isinstance(value, list) and all(type(start) is int for start in value)


def _select_labels(metadata: dict[str, Any]) -> None:
    """Leave only the printed page numbers of a passage's own pages, with these pages."""
    labels = metadata.get(PAGE_LABELS)
    if not (isinstance(labels, list) and all(isinstance(label, str) for label in labels)):
        return
    pages = sorted({metadata.get("page", 1), *(page for _, page in metadata.get(f"page{STARTS}", ()))})
    metadata[PAGE_LABELS] = [[page, labels[page - 1]] for page in pages if page <= len(labels) and labels[page - 1]]
    if not metadata[PAGE_LABELS]:
        del metadata[PAGE_LABELS]


def _is_section_list(value: Any) -> TypeGuard[list[tuple[int, int, str]]]:
    """Return whether this is the list of [start, end, title] that a reader makes."""
    rows = value if isinstance(value, list) else [None]
    return all(isinstance(row, list | tuple) and list(map(type, row)) == [int, int, str] for row in rows)


def _list_section_changes(sections: Sequence[tuple[int, int, str]]) -> list[list[Any]]:
    """Return where sections begin, with their titles, and where text without a section begins, with an empty one."""
    changes: dict[int, str] = {}
    for start, end, title in sections:
        changes[start] = title
        changes.setdefault(end, "")
    return [[offset, changes[offset]] for offset in sorted(changes)]


def _add_places(metadata: dict[str, Any], key: str, passage: Passage, changes: Sequence[list[Any]]) -> None:
    """Set the value at the passage's start, and under `<key>_starts` those that begin within it."""
    within: list[list[Any]] = []
    for offset, value in changes:
        if offset <= passage.start:
            metadata[key] = value
        elif offset < passage.end:
            within.append([offset, value])
    if not metadata.get(key):
        metadata.pop(key, None)
    if within:
        metadata[key + STARTS] = within


def check_chunks(
    chunk_tokens: int, encoder: Encoder, name: str, overlap: int, splitter: SplitterName | None, ready_made: bool
) -> None:
    """Raise InputError if the encoder would truncate passages of `chunk_tokens`, or if no splitter makes them."""
    if splitter not in (None, "tokens") or ready_made:
        raise InputError("only the splitter `tokens` counts chunks in tokens: omit --chunk-tokens")
    if chunk_tokens > encoder.max_tokens:
        raise InputError(
            f"chunks of {chunk_tokens} tokens are longer than the {encoder.max_tokens} that {name} reads, and would be "
            f"truncated: set --chunk-tokens to {encoder.max_tokens} or less, or choose an encoder with a larger window "
            "(--encoder)"
        )
    if chunk_tokens <= overlap:
        raise InputError(
            f"chunks of {chunk_tokens} tokens cannot share {overlap} with their neighbours: set a lower --overlap"
        )


def check_notes_fit_window(items: Iterable[ReaderItem], splitter: str, encoder: Encoder) -> None:
    """Apply `check_fits_window` to all notes among the items, before any of them is written."""
    for item in items:
        if isinstance(item, Document):
            pieces = split_document(item, splitter, encoder.token_spans, encoder.max_tokens, 0)
            check_fits_window(item, pieces, splitter, encoder)


def check_fits_window(document: Document, pieces: Sequence[Passage], splitter: str, encoder: Encoder) -> None:
    """Raise InputError if a passage of a patient's note is longer than the encoder reads."""
    if splitter == "tokens" or document.patient is None:
        return
    if any(is_longer_than_window(passage, encoder) for passage in pieces):
        raise InputError(
            f"the splitter {splitter} makes passages of notes longer than the {encoder.max_tokens} tokens that the "
            "encoder reads, and dense search would miss their ends: leave --splitter out in a new library, or choose "
            "an encoder with a larger window (--encoder)"
        )


def is_longer_than_window(passage: Passage, encoder: Encoder) -> bool:
    """Return whether the encoder truncates the passage."""
    tokens = len(encoder.token_spans(passage.title)) + len(encoder.token_spans(passage.text))
    return tokens > encoder.max_tokens
