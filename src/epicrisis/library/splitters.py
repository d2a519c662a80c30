"""How documents become passages, by the splitter a library was made with. Knows no encoder and no store.

`tokens`: whole sentences up to the encoder's window; `medrag`: 1,000 characters, 200 shared, as MedRAG cuts its
textbooks; `whole`: not at all, the encoder cuts at its window (the abstracts of MedCPT as published).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace

from epicrisis.corpus.chunking import build_passages, chunk_document, split_by_characters
from epicrisis.types import Document, Metadata, Passage


def cut(
    document: Document,
    splitter: str,
    spans: Callable[[str], Sequence[tuple[int, int]]],
    max_tokens: int,
    overlap: int,
) -> tuple[Passage, ...]:
    """The document's passages in order, at least one for a text that is not blank. `spans`, `max_tokens` and `overlap`
    as in `chunking.chunk`; the other splitters need none of them."""
    if splitter == "tokens":
        cut_up = chunk_document(document, spans, max_tokens, overlap)
    elif splitter == "medrag":
        cut_up = split_by_characters(document)
    else:
        cut_up = build_passages(document, [(0, len(document.text))])
    return tuple(replace(passage, metadata=_here(passage)) for passage in cut_up)


def _here(passage: Passage) -> Metadata:
    """The metadata with what holds for the passage alone: its page and section instead of lists of all."""
    metadata = dict(passage.metadata)
    pages, sections = metadata.pop("pages", None), metadata.pop("sections", None)
    if isinstance(pages, list):
        metadata["page"] = bisect_right(pages, passage.start)
    if isinstance(sections, list):
        here = [title for start, end, title in sections if start <= passage.start < end]
        metadata |= {"section": here[0]} if here else {}
    return metadata
