"""Reciprocal rank fusion against a hand-made example and another implementation."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epicrisis.retrieval.rankings import reciprocal_rank_fusion

rankings = st.lists(st.lists(st.sampled_from("abcdefgh"), unique=True), max_size=4)


def test_fusion_matches_manual_example() -> None:
    fused = reciprocal_rank_fusion([["a", "b", "c"], ["c", "a", "d"]])
    assert [name for name, _ in fused] == ["a", "c", "b", "d"]
    assert [score for _, score in fused] == pytest.approx([1 / 61 + 1 / 62, 1 / 63 + 1 / 61, 1 / 62, 1 / 63])


def test_fusion_constant_changes_weight_of_top_ranks() -> None:
    lists = [["a", "b", "c", "d"], ["x", "c", "d", "a"], ["y", "z", "c", "d"]]
    assert reciprocal_rank_fusion(lists, k=60)[0][0] == "c"
    small = reciprocal_rank_fusion([["a"], ["b", "c"], ["x", "c"]], k=1)
    assert small[0][0] == "c"
    assert small[0][1] == pytest.approx(2 / 3)


def test_fusion_ties_are_broken_by_id() -> None:
    assert [name for name, _ in reciprocal_rank_fusion([["b", "x"], ["a", "y"]])] == ["a", "b", "x", "y"]


@pytest.mark.parametrize("lists", [[], [[]], [[], []]])
def test_fusion_of_empty_rankings_is_empty(lists: list[list[str]]) -> None:
    assert reciprocal_rank_fusion(lists) == []


def naive(lists: Sequence[Sequence[str]], k: int) -> list[tuple[str, Fraction]]:
    """The formula, id by id and exactly."""
    ids = {item for ranking in lists for item in ranking}
    scores = {
        item: sum((Fraction(1, k + ranking.index(item) + 1) for ranking in lists if item in ranking), Fraction())
        for item in ids
    }
    return sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))


@pytest.mark.slow
@given(rankings, st.integers(1, 100))
def test_fusion_matches_exact_formula(lists: list[list[str]], k: int) -> None:
    fused, exact = dict(reciprocal_rank_fusion(lists, k)), dict(naive(lists, k))
    assert fused == pytest.approx({item: float(score) for item, score in exact.items()})
    order = [item for item, _ in reciprocal_rank_fusion(lists, k)]
    assert all(exact[one] >= exact[other] for one, other in pairwise(order))


@pytest.mark.slow
@given(st.lists(st.sampled_from("abcdefgh"), unique=True), st.integers(1, 100))
def test_fusion_of_one_ranking_keeps_order(ranking: list[str], k: int) -> None:
    assert [item for item, _ in reciprocal_rank_fusion([ranking], k)] == ranking


@pytest.mark.slow
@given(rankings)
def test_fusion_is_independent_of_ranking_order(lists: list[list[str]]) -> None:
    assert dict(reciprocal_rank_fusion(lists)) == pytest.approx(dict(reciprocal_rank_fusion(lists[::-1])))
