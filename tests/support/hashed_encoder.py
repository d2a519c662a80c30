"""A real library of a few documents, by the encoder that needs no download."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from epicrisis.core.types import Document
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.write.ingest import add_documents
from epicrisis.pipeline.components import LibrarySearch
from epicrisis.retrieval.retriever import Retriever
from epicrisis.testing.hashing_encoder import HashingEncoder


def opened_library(path: Path, documents: Sequence[Document]) -> LibrarySearch:
    """The library, made and opened again for reading, with its search."""
    encoder = HashingEncoder(64)
    with LibraryStore.create(
        path, encoder_fingerprint=encoder.fingerprint, encoder_name="hashing", dimensions=64, max_tokens=64, overlap=0
    ) as made:
        add_documents(made, documents, encoder)
    library = LibraryStore.open(path)
    return LibrarySearch(library, Retriever(library, encoder))
