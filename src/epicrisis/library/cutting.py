"""How documents become passages, by the splitter a library was made with. Knows no encoder and no store.

`tokens`: whole sentences up to the encoder's window; `medrag`: 1,000 characters, 200 shared, as MedRAG cuts its
textbooks; `whole`: not at all, the encoder cuts at its window (the abstracts of MedCPT as published).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace

from epicrisis.corpus.chunking import chunk
from epicrisis.corpus.splitting import split
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
        passages = chunk(document, spans, max_tokens, overlap)
    elif splitter == "medrag":
        passages = split(document)
    else:
        passages = _whole(document)
    return tuple(replace(passage, metadata=_here(passage)) for passage in passages)


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


def _whole(document: Document) -> tuple[Passage, ...]:
    return (
        Passage(
            id=f"{document.id}#0",
            document_id=document.id,
            ordinal=0,
            start=0,
            end=len(document.text),
            text=document.text,
            title=document.title,
            source=document.source,
            date=document.date,
            patient=document.patient,
            metadata=document.metadata,
        ),
    )
