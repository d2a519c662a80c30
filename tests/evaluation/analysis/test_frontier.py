"""The accuracy-cost frontier against its definition, and its certainty."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epicrisis.evaluation.experiments.equal_tokens import compare_points, find_frontier

POINTS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=12)


def is_beaten(point: tuple[int, int], other: tuple[int, int]) -> bool:
    """Whether the other point is at least as cheap and as good, and not the same."""
    return other[0] <= point[0] and other[1] >= point[1] and other != point


@pytest.mark.slow
@given(POINTS)
def test_frontier_holds_exactly_the_points_that_nothing_beats(points: list[tuple[int, int]]) -> None:
    costs, scores = [list(map(float, side)) for side in zip(*points, strict=True)]
    expected = [not any(is_beaten(point, other) for other in points) for point in points]
    assert find_frontier(costs, scores) == expected
    assert any(expected)


@pytest.mark.slow
@given(POINTS)
def test_frontier_rises_with_cost(points: list[tuple[int, int]]) -> None:
    costs, scores = [list(map(float, side)) for side in zip(*points, strict=True)]
    on_it = sorted({point for point, chosen in zip(points, find_frontier(costs, scores), strict=True) if chosen})
    assert all(cheap[1] < dear[1] for cheap, dear in pairwise(on_it))


@pytest.mark.slow
@given(POINTS, st.randoms())
def test_frontier_does_not_depend_on_the_order_of_points(points: list[tuple[int, int]], random: object) -> None:
    shuffled = list(points)
    random.shuffle(shuffled)  # type: ignore[attr-defined]

    def chosen(order: list[tuple[int, int]]) -> list[tuple[int, int]]:
        flags = find_frontier([float(cost) for cost, _ in order], [float(score) for _, score in order])
        return sorted(point for point, flag in zip(order, flags, strict=True) if flag)

    assert chosen(points) == chosen(shuffled)


def test_points_are_means_over_questions_and_certain_without_overlap() -> None:
    cheap, dear, wasteful = compare_points([[1, 3], [5, 5], [9, 9]], [[0, 0], [1, 1], [1, 0]])
    assert (cheap.cost, cheap.score, cheap.is_on_frontier, cheap.share_of_resamples) == (2, 0, True, 1)
    assert (dear.cost, dear.score, dear.is_on_frontier, dear.share_of_resamples) == (5, 1, True, 1)
    assert (wasteful.score, wasteful.is_on_frontier, wasteful.share_of_resamples) == (0.5, False, 0)


def test_place_on_the_frontier_is_uncertain_where_few_questions_decide() -> None:
    # The dearer system has one question more right of four: without that question it is not on the frontier.
    _, dear = compare_points([[1] * 4, [2] * 4], [[1, 1, 1, 0], [1, 1, 1, 1]])
    assert dear.is_on_frontier
    # The share of resamples with the fourth question: 1 - (3 / 4) ** 4 = 0.684.
    assert abs(dear.share_of_resamples - (1 - 0.75**4)) < 0.05
