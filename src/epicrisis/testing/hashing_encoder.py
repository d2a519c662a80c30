"""An encoder without a download, and the contract check of `Encoder`. Texts are similar if they share words."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

import numpy as np

from epicrisis.core.protocols import Encoder, Vectors
from epicrisis.core.types import CharacterSpan

_TOKEN = re.compile(r"\w+|[^\w\s]")


class HashingEncoder:
    """Signed feature hashing of lowercase word tokens, L2-normalised. A text without words is the zero vector."""

    def __init__(self, dimensions: int = 64, max_tokens: int = 128) -> None:
        self.dimensions = dimensions
        self.max_tokens = self.max_query_tokens = max_tokens
        self.fingerprint = f"hashing-{dimensions}-{max_tokens}"

    def token_spans(self, text: str) -> Sequence[CharacterSpan]:
        return [match.span() for match in _TOKEN.finditer(text)]

    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        vectors = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        for row, text in zip(vectors, texts, strict=True):
            for start, end in self.token_spans(text)[: self.max_tokens]:
                digest = hashlib.blake2b(text[start:end].lower().encode(), digest_size=8).digest()
                number = int.from_bytes(digest, "big")
                row[(number >> 1) % self.dimensions] += 1 if number & 1 else -1
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        np.divide(vectors, norms, out=vectors, where=norms > 0)
        return vectors

    def encode_passages(self, texts: Sequence[tuple[str, str]]) -> Vectors:
        return self.encode_queries([f"{title}\n{text}" if title else text for title, text in texts])


def check_encoder(encoder: Encoder) -> None:
    """Check the contract of `Encoder`. Raises AssertionError with the violated clause."""
    texts = ["Aspirin lowers the risk of stroke.", "Warfarin.", "Statins, in adults > 40 y: LDL −38%.\nNaïve β-cells."]
    shape = (len(texts), encoder.dimensions)
    pairs = [("", text) for text in texts]
    for vectors in (encoder.encode_queries(texts), encoder.encode_passages(pairs)):
        require(vectors.shape == shape, f"the shape is {shape}, got {vectors.shape}")
        require(vectors.dtype == np.float32, f"the type is float32, got {vectors.dtype}")
        require(bool(vectors.flags.c_contiguous), "the array is C-contiguous")
        require(bool(np.isfinite(vectors).all()), "every number is finite")
    for vectors in (encoder.encode_queries([]), encoder.encode_passages([])):
        require(vectors.shape == (0, encoder.dimensions), "no texts give (0, d)")
        require(vectors.dtype == np.float32, "no texts give float32")
    for vectors in (encoder.encode_queries([""]), encoder.encode_passages([("", "")])):
        require(bool(np.isfinite(vectors).all()), "an empty text gives finite numbers")
    titled = encoder.encode_passages([("Stroke prevention", texts[0])])
    require(not np.allclose(titled, encoder.encode_passages([("", texts[0])]), atol=1e-4), "a title counts")
    _check_order(encoder, texts)
    for text in [*texts, "안녕 naïve", "", "   ", "word " * (encoder.max_tokens + 50)]:
        last = (0, 0)
        for start, end in encoder.token_spans(text):
            # One character can be several tokens (Hangul, byte-level vocabularies): their spans are then equal.
            in_order = last[0] <= start < end <= len(text) and last[1] <= end
            require(in_order, f"spans lie in order within the text: {(start, end)} after {last}")
            last = (start, end)
        rest = text[last[1] :].strip()
        require(rest == "", f"spans are never cut, they reach the end of the text: {rest[:40]!r} is left")
    require(encoder.fingerprint == encoder.fingerprint != "", "the fingerprint is stable and not empty")
    require(encoder.max_tokens > 0 and encoder.max_query_tokens > 0, "windows are positive")


def _check_order(encoder: Encoder, texts: list[str]) -> None:
    mixed = [*texts, "a much longer neighbour in the same batch " * 10, texts[0]]
    pairs = [("", text) for text in mixed]
    queries, passages = encoder.encode_queries(mixed), encoder.encode_passages(pairs)
    for number, text in enumerate(mixed):
        alone = encoder.encode_queries([text])[0]
        require(np.allclose(queries[number], alone, atol=1e-4), "a query's vector does not depend on its batch")
        alone = encoder.encode_passages([("", text)])[0]
        require(np.allclose(passages[number], alone, atol=1e-4), "a passage's vector does not depend on its batch")
    require(np.allclose(queries[0], queries[-1], atol=1e-4), "the same text has the same vector")
    require(not np.allclose(queries[0], queries[1], atol=1e-4), "other texts have other vectors")


def require(condition: bool, clause: str) -> None:
    """Raise AssertionError with the clause unless the condition holds, also under `python -O`."""
    if not condition:
        raise AssertionError(clause)
