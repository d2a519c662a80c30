"""The one request type: draws of a prompt, and what cannot be asked for together."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epicrisis.protocols import ChatRequest, Message

REQUEST = ChatRequest((Message("user", "Which?"),), 10, temperature=0.7, top_p=0.9, seed=3)


def test_draws_differ_by_their_sample_alone() -> None:
    draws = REQUEST.draws(5)
    assert [draw.sample for draw in draws] == [0, 1, 2, 3, 4]
    assert [replace(draw, sample=0) for draw in draws] == [REQUEST] * 5


def test_draws_count_on_from_the_requests_own_sample() -> None:
    assert [draw.sample for draw in replace(REQUEST, sample=7).draws(2)] == [7, 8]


def test_ranges_are_walked_evenly() -> None:
    draws = REQUEST.draws(5, temperature=(0.2, 1.0), top_p=(1.0, 0.8))
    assert [draw.temperature for draw in draws] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert [draw.top_p for draw in draws] == pytest.approx([1.0, 0.95, 0.9, 0.85, 0.8])


@given(st.integers(1, 40), st.floats(0, 2), st.floats(0, 2))
def test_draws_stay_in_their_range(n: int, one: float, other: float) -> None:
    low, high = sorted((one, other))
    draws = REQUEST.draws(n, temperature=(low, high))
    assert len(draws) == n
    assert all(low - 1e-9 <= draw.temperature <= high + 1e-9 for draw in draws)
    assert draws[0].temperature == low


def test_option_probabilities_are_not_asked_for_under_a_schema() -> None:
    with pytest.raises(ValueError, match="schema"):
        replace(REQUEST, options=("A", "B"), schema={"type": "object"})
