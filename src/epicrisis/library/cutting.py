"""How documents become passages, by the splitter a library was made with. Knows no encoder and no store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

from epicrisis.corpus.chunking import chunk
from epicrisis.corpus.splitting import split
from epicrisis.types import Document, Passage

Splitter: TypeAlias = Literal["tokens", "medrag", "whole"]
"""`tokens`: whole sentences up to the encoder's window; `medrag`: 1,000 characters, 200 shared, as MedRAG cuts its
textbooks; `whole`: not at all, the encoder cuts at its window (the abstracts of MedCPT as published)."""


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
        return chunk(document, spans, max_tokens, overlap)
    if splitter == "medrag":
        return split(document)
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
