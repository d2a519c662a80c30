"""The encoding stage of an ingestion: one vector for each passage of a batch."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from epicrisis.library.manifest import LibraryManifest
from epicrisis.library.splitters import is_longer_than_window
from epicrisis.protocols import Encoder, Vectors
from epicrisis.types import Document, Origin, Passage

_ENCODER_BATCH = 256


@dataclass(frozen=True, slots=True)
class PendingDocument:
    """A document to be written with the next commit."""

    document: Document
    digest: str
    passages: tuple[Passage, ...]
    vector: Vectors | None
    """`(d,)` for a document with a precomputed vector."""
    origin: Origin | None = None


class PassageEncoder:
    """Encodes passages, except those with a precomputed vector or with the words of an existing passage."""

    def __init__(self, encoder: Encoder, manifest: LibraryManifest) -> None:
        self._encoder = encoder
        self._manifest = manifest
        self.cut_off = 0
        """Passages longer than the encoder reads."""
        self.seconds = 0.0

    def encode_batch(
        self, batch: Sequence[PendingDocument], existing: Mapping[tuple[str, str], Vectors]
    ) -> list[Vectors]:
        """Return the vectors `(n, d)` of each document. `existing` maps (title, text) of old passages to vectors."""
        reusable = {_normalize(*text): vector for text, vector in existing.items()}
        passages: list[Passage] = []
        rows: list[Vectors | None] = []
        for pending in batch:
            passages += pending.passages
            for passage in pending.passages:
                if pending.vector is not None:
                    rows.append(pending.vector)
                else:
                    rows.append(reusable.get(_normalize(passage.title, passage.text)))
        vectors = np.empty((len(rows), self._manifest.dimensions), dtype=np.float32)
        missing = []
        for index, row in enumerate(rows):
            if row is None:
                missing.append(index)
            else:
                vectors[index] = row
        vectors[missing] = self._encode([passages[index] for index in missing])
        ends = np.cumsum([len(pending.passages) for pending in batch])
        return np.split(vectors, ends[:-1])

    def _encode(self, passages: Sequence[Passage]) -> Vectors:
        """Return the vectors `(n, d)` in the order of the passages. Sorting by length avoids padding."""
        start = time.monotonic()
        vectors = np.empty((len(passages), self._manifest.dimensions), dtype=np.float32)
        order = sorted(range(len(passages)), key=lambda index: len(passages[index].title) + len(passages[index].text))
        for first in range(0, len(order), _ENCODER_BATCH):
            indexes = order[first : first + _ENCODER_BATCH]
            texts = [(passages[index].title, passages[index].text) for index in indexes]
            vectors[indexes] = self._encoder.encode_passages(texts)
        if self._manifest.splitter != "tokens":
            self.cut_off += sum(is_longer_than_window(passage, self._encoder) for passage in passages)
        self.seconds += time.monotonic() - start
        return vectors


def _normalize(title: str, text: str) -> tuple[str, str]:
    """Return both texts without differences in white space, which encoders ignore."""
    return " ".join(title.split()), " ".join(text.split())
