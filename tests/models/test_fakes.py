"""The shipped fakes pass their own contract checks, and the checks reject what is broken."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest

from epicrisis.core.protocols import Vectors
from epicrisis.testing.hashing_encoder import HashingEncoder, check_encoder
from epicrisis.testing.scorers import TermOverlapReranker, check_reranker


@pytest.mark.parametrize("dimensions", [16, 64, 256])
def test_hashing_encoder_satisfies_contract(dimensions: int) -> None:
    check_encoder(HashingEncoder(dimensions))


def test_hashing_encoder_is_deterministic_across_processes() -> None:
    vector = HashingEncoder(8).encode_queries(["Aspirin"])[0]
    assert vector.tolist() == HashingEncoder(8).encode_queries(["aspirin"])[0].tolist()
    assert np.flatnonzero(vector).tolist() == [5]


def test_hashing_encoder_ignores_text_beyond_window() -> None:
    encoder = HashingEncoder(64, max_tokens=3)
    assert np.array_equal(encoder.encode_queries(["one two three four"]), encoder.encode_queries(["one two three"]))
    assert len(encoder.token_spans("one two three four")) == 4


class _Float64(HashingEncoder):
    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        return super().encode_queries(texts).astype(np.float64)


class _Cuts(HashingEncoder):
    def token_spans(self, text: str) -> Sequence[tuple[int, int]]:
        return super().token_spans(text)[: self.max_tokens]


class _SortsTheBatch(HashingEncoder):
    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        return super().encode_queries(sorted(texts, key=len))


class _IgnoresTheTitle(HashingEncoder):
    def encode_passages(self, texts: Sequence[tuple[str, str]]) -> Vectors:
        return self.encode_queries([text for _, text in texts])


@pytest.mark.parametrize(
    ("broken", "clause"),
    [
        (_Float64(), "float32"),
        (_Cuts(), "never cut"),
        (_SortsTheBatch(), "does not depend on its batch"),
        (_IgnoresTheTitle(), "title"),
    ],
)
def test_check_encoder_broken_encoder_names_clause(broken: HashingEncoder, clause: str) -> None:
    with pytest.raises(AssertionError, match=clause):
        check_encoder(broken)


class _Backwards(TermOverlapReranker):
    def score(self, query: str, passages: Sequence[str]) -> npt.NDArray[np.float32]:
        return -super().score(query, passages)


def test_term_overlap_reranker_satisfies_contract() -> None:
    check_reranker(TermOverlapReranker())
    assert TermOverlapReranker().score("a b", ["a", "b a", "c"]).tolist() == [0.5, 1.0, 0.0]


def test_check_reranker_reversed_scores_are_rejected() -> None:
    with pytest.raises(AssertionError, match="highest"):
        check_reranker(_Backwards())
