"""Restore whole documents from the passages of a library, and write them as lines that `library add` reads back.

    for document in export_documents(library, lambda passage: passage.patient is None):
        file.write(to_json_line(document))

The text of a restored document equals the original but for white space at its ends and between passages, which a
library does not store. Added to another library, the lines give the same ids, metadata and passages.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from epicrisis.core.clinical_facts import FACTS, is_fact_list
from epicrisis.core.references import PAGE_LABELS, STARTS, join_places, list_page_labels
from epicrisis.core.serialization import to_json
from epicrisis.core.types import Document, Metadata, Passage
from epicrisis.corpus.base.chunking import find_sentences
from epicrisis.library.core.journal import open_journal
from epicrisis.library.core.library_store import LibraryStore

_PLACE_KEYS = frozenset(("page", "section", f"page{STARTS}", f"section{STARTS}"))
_CONTEXT = 200
"""Characters on both sides that decide whether a sentence ends between them."""


def export_documents(library: LibraryStore, is_selected: Callable[[Passage], bool]) -> Iterator[Document]:
    """Yield the documents whose passages are wanted, a batch of passages in memory at a time.

    Raises StorageError or LibraryDamaged if the library cannot be read.
    """
    waiting: dict[str, list[Passage]] = {}
    with open_journal(library.path) as journal:
        for batch in library.open_table().batches():
            selection = [stored.passage for stored in batch if is_selected(stored.passage)]
            counts = journal.passage_counts([passage.document_id for passage in selection])
            for document_id, group in groupby(selection, lambda item: item.document_id):
                passages = waiting.setdefault(document_id, [])
                passages.extend(group)
                # The passages of a document may lie apart.
                if len(passages) == counts.get(document_id):
                    yield restore_document(waiting.pop(document_id))


def restore_document(passages: Sequence[Passage]) -> Document:
    """Return the document of these passages. They must be complete."""
    parts = sorted(passages, key=lambda passage: (passage.start, passage.end))
    first, text = parts[0], _join_texts(parts)
    places = join_places(parts)
    metadata = {key: value for key, value in places.items() if key not in _PLACE_KEYS}
    if pages := _list_places(places, "page", first.start):
        metadata["pages"] = _list_page_starts(pages)
        if labels := dict(list_page_labels(places)):
            metadata[PAGE_LABELS] = [labels.get(page, "") for page in range(1, max(labels) + 1)]
    if sections := _list_places(places, "section", first.start):
        stops = [start for start, _ in sections[1:]] + [len(text)]
        rows = [[start, stop, title] for (start, title), stop in zip(sections, stops, strict=True) if title]
        metadata["sections"] = rows
    if FACTS in metadata and all(is_fact_list(part.metadata.get(FACTS, ())) for part in parts):
        # Each passage has the facts that begin in it, and passages may overlap.
        facts = {row["start"]: row for part in parts for row in part.metadata.get(FACTS, ())}
        metadata[FACTS] = [facts[start] for start in sorted(facts)]
    return Document(
        first.document_id,
        text,
        title=first.title,
        source=first.source,
        date=first.date,
        patient=first.patient,
        metadata=metadata,
    )


def _join_texts(parts: Sequence[Passage]) -> str:
    """Return the text of a document from its beginning. White space between passages has its length, not its kind.

    One character is a space where a sentence ends before it, and otherwise a line end, so that the text divides into
    the same sentences again.
    """
    text = "\n" * parts[0].start
    for part in parts:
        gap = part.start - len(text)
        if gap == 1 and _ends_sentence(text, part.text):
            text += " "
        else:
            text += "\n" * gap
        text += part.text[max(0, -gap) :]
    return text


def _ends_sentence(text: str, following: str) -> bool:
    """Return whether a sentence ends with the text if a space and the other text follow."""
    before = text[-_CONTEXT:]
    stops = [stop for _, stop in find_sentences(f"{before} {following[:_CONTEXT]}")]
    return len(before) in stops


def _list_places(metadata: Metadata, key: str, start: int) -> list[tuple[int, Any]]:
    """Return where pages or sections begin, as (offset in the document, value); empty if the document has none."""
    places: list[tuple[int, Any]] = [(start, metadata[key])] if key in metadata else []
    places += [(offset, value) for offset, value in metadata.get(key + STARTS, ())]
    return places


def _list_page_starts(pages: Sequence[tuple[int, int]]) -> list[int]:
    """Return the offset of each page from 1. A page without text begins with the next one."""
    starts: list[int] = []
    for start, page in pages:
        starts += [start] * (page - len(starts))
    if pages[0][1] == 1:
        starts[0] = 0
    return starts


def to_json_line(document: Document) -> str:
    """Return the document as one line of JSON, without its end. Empty fields are left out."""
    line: Mapping[str, Any] = {
        "id": document.id,
        "title": document.title,
        "text": document.text,
        "source": document.source,
        "date": document.date,
        "patient": document.patient,
        "metadata": to_json(document.metadata),
    }
    return json.dumps({key: value for key, value in line.items() if value}, ensure_ascii=False)
