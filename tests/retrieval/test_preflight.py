"""The preflight check: what the overlap can be, and what follows from it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epicrisis.retrieval.preflight import intersection_over_union, rankings_agree

ids = st.lists(st.sampled_from([f"d{i}#0" for i in range(12)]), unique=True, min_size=0, max_size=12)
rankings = st.permutations([f"d{i}#0" for i in range(12)])


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
def test_intersection_over_union(one: str, other: str, overlap: float) -> None:
    assert intersection_over_union(one, other) == intersection_over_union(other, one) == pytest.approx(overlap)


@given(rankings, rankings)
def test_the_four_values_at_three(dense: list[str], bm25: list[str]) -> None:
    """Errata B2: 0, 1, 2 or 3 shared of 3 and 3."""
    shared = len(set(dense[:3]) & set(bm25[:3]))
    assert rankings_agree(dense, bm25).overlap == [0.0, 0.2, 0.5, 1.0][shared]


@given(rankings, rankings)
def test_the_papers_threshold_and_the_codes_are_one_test_at_three(dense: list[str], bm25: list[str]) -> None:
    verdicts = [rankings_agree(dense, bm25, n=3, threshold=t).rankings_agree for t in (0.2, 0.3)]
    assert verdicts == [len(set(dense[:3]) & set(bm25[:3])) >= 2] * 2


def test_they_are_two_tests_at_five() -> None:
    """Two of five shared: 2 / 8 = 0.25."""
    dense, bm25 = list("abcde"), list("abxyz")
    assert rankings_agree(dense, bm25, n=5, threshold=0.2).rankings_agree
    assert not rankings_agree(dense, bm25, n=5, threshold=0.3).rankings_agree


@pytest.mark.parametrize(("threshold", "agree"), [(0.19, True), (0.2, False), (0.21, False)])
def test_more_than_the_threshold_not_as_much(threshold: float, agree: bool) -> None:
    verdict = rankings_agree(list("abc"), list("ade"), threshold=threshold)
    assert verdict.overlap == 0.2
    assert verdict.rankings_agree is agree


def test_agreement_means_no_map_reduce() -> None:
    """Errata B1: the text's direction, not the sign of equation 1."""
    same = rankings_agree(list("abc"), list("bca"))
    assert same.rankings_agree
    assert "3 of the top 3" in same.reason
    assert "above 0.2" in same.reason
    assert "one prompt" in same.reason
    other = rankings_agree(list("abc"), list("xyz"))
    assert not other.rankings_agree
    assert "0 of the top 3" in other.reason
    assert "not above 0.2" in other.reason


def test_two_empty_lists_do_not_agree() -> None:
    verdict = rankings_agree([], [])
    assert (verdict.rankings_agree, verdict.overlap) == (False, 0.0)
    assert not rankings_agree([], [], threshold=0.0).rankings_agree


def test_only_the_top_counts_and_the_verdict_says_all() -> None:
    verdict = rankings_agree(list("abcz"), list("azyb"), n=2, threshold=0.3, depth=7)
    assert (verdict.dense_top, verdict.bm25_top) == (("a", "b"), ("a", "z"))
    assert (verdict.n, verdict.threshold, verdict.depth) == (2, 0.3, 7)
    assert verdict.overlap == pytest.approx(1 / 3)


@given(ids, ids, st.integers(1, 6), st.floats(0, 0.99))
def test_the_verdict_follows_from_the_overlap_and_is_symmetric(
    dense: list[str], bm25: list[str], n: int, threshold: float
) -> None:
    one, other = (
        rankings_agree(dense, bm25, n=n, threshold=threshold),
        rankings_agree(bm25, dense, n=n, threshold=threshold),
    )
    assert 0 <= one.overlap <= 1
    assert one.overlap == other.overlap
    assert one.rankings_agree == (one.overlap > threshold)
