"""An encoder with a memory of vectors, for experiments that rank the sentences of one text many times."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from epicrisis.core.protocols import Encoder, Vectors
from epicrisis.core.types import CharacterSpan

TEXTS = 50_000
"""Texts whose vectors are kept: 75 MB with 384 dimensions. The one used longest ago is forgotten first."""


class RememberingEncoder:
    """The same vectors as those of `encoder`, computed once for each text."""

    def __init__(self, encoder: Encoder, texts: int = TEXTS) -> None:
        self._encoder = encoder
        self._texts = texts
        self._vectors: OrderedDict[tuple[str, str], Vectors] = OrderedDict()

    @property
    def fingerprint(self) -> str:
        """Return that of the encoder."""
        return self._encoder.fingerprint

    @property
    def dimensions(self) -> int:
        """Return those of the encoder."""
        return self._encoder.dimensions

    @property
    def max_tokens(self) -> int:
        """Return the limit of the encoder."""
        return self._encoder.max_tokens

    @property
    def max_query_tokens(self) -> int:
        """Return the limit of the encoder."""
        return self._encoder.max_query_tokens

    def token_spans(self, text: str) -> Sequence[CharacterSpan]:
        """Return the spans of all content tokens of the text."""
        return self._encoder.token_spans(text)

    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of queries, which are not kept."""
        return self._encoder.encode_queries(texts)

    def encode_passages(self, texts: Sequence[tuple[str, str]]) -> Vectors:
        """Return the vectors of passages in order. Only unknown texts are encoded."""
        missing = [text for text in dict.fromkeys(texts) if text not in self._vectors]
        fresh = self._encoder.encode_passages(missing) if missing else ()
        fresh_vectors = dict(zip(missing, fresh, strict=True))
        rows: list[Vectors] = []
        for text in texts:
            vector = fresh_vectors[text] if text in fresh_vectors else self._vectors[text]
            self._vectors[text] = vector
            self._vectors.move_to_end(text)
            rows.append(vector)
        while len(self._vectors) > self._texts:
            self._vectors.popitem(last=False)
        return np.stack(rows) if rows else self._encoder.encode_passages([])
