"""The memory of a server's encoder: the same vectors, fewer texts to encode, and a bounded size."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from epicrisis.core.protocols import Encoder, Vectors
from epicrisis.models.encoders import CachedEncoder, load_cached_encoder
from epicrisis.testing.hashing_encoder import HashingEncoder, check_encoder

TEXTS = [("", "Aspirin was given."), ("Stroke", "Aspirin was given."), ("", "Warfarin was stopped.")]


class CountingEncoder(HashingEncoder):
    """Notes which passages it encodes."""

    def __init__(self) -> None:
        super().__init__(32, max_tokens=24)
        self.passages: list[tuple[str, str]] = []
        self.queries: list[str] = []

    def encode_passages(self, texts: Sequence[tuple[str, str]]) -> Vectors:
        self.passages += texts
        return super().encode_passages(texts)

    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        self.queries += texts
        return super().encode_queries(texts)


def test_repeated_texts_are_encoded_once_with_the_same_vectors() -> None:
    inner = CountingEncoder()
    cached = CachedEncoder(inner)
    expected = HashingEncoder(32, max_tokens=24).encode_passages(TEXTS)
    assert np.array_equal(cached.encode_passages(TEXTS), expected)
    assert np.array_equal(cached.encode_passages([TEXTS[2], TEXTS[0], TEXTS[2]]), expected[[2, 0, 2]])
    assert inner.passages == TEXTS
    inner.queries.clear()
    cached.encode_queries(["What?", "What?"])
    cached.encode_queries(["What?"])
    assert inner.queries == ["What?"]
    assert cached.encode_passages([]).shape == (0, 32)


def test_memory_forgets_the_least_used_text() -> None:
    inner = CountingEncoder()
    cached = CachedEncoder(inner, passages=2)
    cached.encode_passages(TEXTS[:2])
    cached.encode_passages(TEXTS[:1])
    cached.encode_passages(TEXTS[2:])
    inner.passages.clear()
    cached.encode_passages([TEXTS[0]])
    assert inner.passages == []
    cached.encode_passages([TEXTS[1]])
    assert inner.passages == [TEXTS[1]]


def test_caller_that_changes_vectors_changes_no_later_ones() -> None:
    cached = CachedEncoder(CountingEncoder())
    first = cached.encode_passages(TEXTS)
    expected = first.copy()
    first[:] = 0
    assert np.array_equal(cached.encode_passages(TEXTS), expected)


@pytest.mark.slow
@pytest.mark.models
def test_real_encoder_with_a_memory_fulfils_the_contract(encoder: Encoder, model_home: object) -> None:
    from epicrisis.settings.configuration import load_settings

    cached = load_cached_encoder("minilm", load_settings().home, 1)
    check_encoder(cached)
    assert cached.fingerprint == encoder.fingerprint
