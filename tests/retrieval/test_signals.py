"""Signals of trust in a ranking: by hand, and rank-biased overlap against its infinite sum."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epicrisis.core.types import SignalKind
from epicrisis.retrieval.preflight import (
    Signal,
    intersection_over_union,
    measure_signal,
    rank_biased_overlap,
    score_gap,
)

rankings = st.permutations(list("abcdefgh"))


def with_scores(ids: str) -> list[tuple[str, float]]:
    return [(each, 1.0 / rank) for rank, each in enumerate(ids, 1)]


@pytest.mark.parametrize(
    ("one", "other", "overlap"),
    [
        ("", "", 0.0),
        ("a", "", 0.0),
        ("a", "a", 1.0),
        ("abc", "cab", 1.0),
        ("abc", "abd", 0.5),
        ("abc", "ade", 0.2),
        ("abc", "def", 0.0),
        ("ab", "abcd", 0.5),
    ],
)
def test_intersection_over_union_of_rankings(one: str, other: str, overlap: float) -> None:
    assert intersection_over_union(one, other) == intersection_over_union(other, one) == pytest.approx(overlap)


def test_rank_biased_overlap_matches_manual_example() -> None:
    """a|b, b|c, c|d: shared at depth 1: 0, at 2: 1, at 3: 2."""
    p = 0.5
    expected = (1 - p) * (0 + p * 1 / 2 + p**2 * 2 / 3) + p**3 * 2 / 3
    assert rank_biased_overlap("abc", "bcd", 3, p) == pytest.approx(expected)


@pytest.mark.slow
@given(rankings, rankings, st.integers(1, 8), st.floats(0.1, 0.95))
def test_rank_biased_overlap_extrapolates_infinite_sum(a: list[str], b: list[str], n: int, p: float) -> None:
    agreements = [len(set(a[: min(d, n)]) & set(b[: min(d, n)])) / min(d, n) for d in range(1, 2000)]
    whole = (1 - p) * sum(agreement * p**d for d, agreement in enumerate(agreements))
    assert rank_biased_overlap(a, b, n, p) == pytest.approx(whole, abs=1e-9)


@given(rankings, rankings, st.integers(1, 8))
def test_rank_biased_overlap_is_symmetric_and_one_for_equal_lists(a: list[str], b: list[str], n: int) -> None:
    assert rank_biased_overlap(a, b, n) == pytest.approx(rank_biased_overlap(b, a, n))
    assert rank_biased_overlap(a, a, n) == pytest.approx(1.0)
    assert 0 <= rank_biased_overlap(a, b, n) <= 1 + 1e-9
    assert rank_biased_overlap(a, list("stuvwxyz"), n) == 0


def test_rank_biased_overlap_weighs_first_ranks_most() -> None:
    assert rank_biased_overlap("abcd", "abdc", 4) > rank_biased_overlap("abcd", "bacd", 4)


def test_rank_biased_overlap_of_short_ranking_adds_nothing() -> None:
    assert rank_biased_overlap("abcd", "ab", 4, 0.5) == pytest.approx(
        0.5 * (1 + 0.5 + 0.25 * 2 / 3 + 0.125 / 2) + 0.0625 / 2
    )
    assert rank_biased_overlap("abcd", "", 4) == 0


@pytest.mark.parametrize(
    ("scores", "n", "gap"),
    [
        ([], 3, 0.0),
        ([2.0], 3, 0.0),
        ([5.0, 3.0], 2, 2.0),
        ([5.0, 3.0, 1.0], 3, 3.0),
        ([5.0, 3.0, 1.0], 2, 2.0),
        ([5.0, 3.0], 1, 0.0),
    ],
)
def test_score_gap_of_ranking(scores: list[float], n: int, gap: float) -> None:
    assert score_gap(scores, n) == gap


@pytest.mark.parametrize(
    ("kind", "n", "value"),
    [
        ("overlap", 3, 0.5),
        ("rank-biased-overlap", 1, 0.0),
        ("dense-gap", 2, 0.5),
        ("bm25-gap", 3, 1 - (1 / 2 + 1 / 3) / 2),
        ("reranker-overlap", 2, 1 / 3),
        ("reranker-overlap", 3, 1.0),
    ],
)
def test_signal_kind_uses_own_lists(kind: SignalKind, n: int, value: float) -> None:
    dense, bm25, reranked = with_scores("abcd"), with_scores("dba"), with_scores("acbd")
    assert measure_signal(Signal(kind, n), dense, bm25, reranked) == pytest.approx(value)


def test_reranker_signal_without_reranker_is_undefined() -> None:
    assert measure_signal(Signal("reranker-overlap", 3), with_scores("abc"), with_scores("abc")) is None
    assert str(Signal("reranker-overlap", 3)) == "reranker-overlap@3"
