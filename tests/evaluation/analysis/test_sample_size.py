"""Test sample sizes against the exact power of the exact test."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from epicrisis.core.errors import InputError
from epicrisis.evaluation.analysis.sample_size import (
    compute_sample_size,
    format_points,
    format_power,
    smallest_difference,
)
from epicrisis.evaluation.analysis.statistics import questions_needed


def compute_exact_power(n: int, difference: float, discordant: float, alpha: float) -> float:
    """Return the power of McNemar's exact test, summed over all numbers of discordant questions."""
    better = (discordant + difference) / 2 / discordant
    m = np.arange(1, n + 1)
    # Rejected up to this many of the rarer kind.
    most = stats.binom.ppf(alpha / 2, m, 0.5) - 1
    most += 2 * stats.binom.cdf(most + 1, m, 0.5) <= alpha
    tails = np.where(most < 0, 0, stats.binom.cdf(most, m, better) + stats.binom.sf(m - most - 1, m, better))
    return float((stats.binom.pmf(m, n, discordant) * tails).sum())


@pytest.mark.parametrize(
    ("difference", "discordant", "comparisons"), [(0.05, 0.2, 1), (0.05, 0.2, 5), (0.1, 0.3, 1), (0.1, 0.3, 20)]
)
def test_sample_size_reaches_power_of_exact_test(difference: float, discordant: float, comparisons: int) -> None:
    """Exact tests are a little weaker than their approximation (the p values are steps)."""
    n = compute_sample_size(difference, discordant, comparisons=comparisons).questions
    assert 0.76 < compute_exact_power(n, difference, discordant, 0.05 / comparisons) < 0.81
    assert compute_exact_power(n // 2, difference, discordant, 0.05 / comparisons) < 0.6


def test_exact_power_matches_simulation() -> None:
    """The check's own arithmetic, by drawing."""
    dice = np.random.default_rng(0)
    wins, losses = dice.multinomial(200, [0.2, 0.1, 0.7], size=2000)[:, :2].T
    p = 2 * stats.binom.cdf(np.minimum(wins, losses), wins + losses, 0.5)
    assert (p <= 0.05).mean() == pytest.approx(compute_exact_power(200, 0.1, 0.3, 0.05), abs=0.03)


@settings(max_examples=30)
@given(st.integers(6, 20_000), st.floats(0, 1), st.sampled_from([0.5, 0.8, 0.95]), st.sampled_from([0.05, 0.005]))
def test_smallest_difference_is_inverse_of_questions_needed(
    n: int, discordant: float, power: float, alpha: float
) -> None:
    least = smallest_difference(n, discordant, power, alpha)
    if least is None:
        assert n < 30
        return
    assert questions_needed(least, max(discordant, least), power, alpha) <= n
    if least > 2e-5:
        less = least - 2e-5
        assert questions_needed(less, max(discordant, less), power, alpha) > n


def test_smallest_difference_of_too_few_questions_is_none() -> None:
    """Five wins of five have p = 0.0625."""
    assert smallest_difference(5, 0.2) is None
    assert smallest_difference(8, 0.2) is not None
    assert smallest_difference(8, 0.2, alpha=0.05 / 100) is None


def test_smallest_difference_decreases_with_questions() -> None:
    result = [smallest_difference(n, 0.2) or math.nan for n in (20, 50, 100, 500, 5000)]
    assert result == sorted(result, reverse=True)
    assert result[-1] == pytest.approx(0.0177, abs=2e-4)


def test_sample_size_sentences_state_questions_and_smallest_difference() -> None:
    size = compute_sample_size(0.05, 0.2, comparisons=5, at_hand=105)
    assert size.questions == questions_needed(0.05, 0.2, 0.8, 0.01) == 932
    first, second = size.sentences
    assert "difference of 5 points in 8 of 10 such studies, 932 questions" in first
    assert "20 % of them (McNemar's test, two-sided, 5 %, corrected for 5 comparisons)" in first
    assert "With the 105 questions at hand the smallest difference found at this power is 14.7 points." in second
    assert "cannot show any difference" in compute_sample_size(0.05, 0.2, at_hand=5).sentences[1]
    assert "corrected" not in compute_sample_size(0.05, 0.2).sentences[0]


@pytest.mark.parametrize(
    ("difference", "discordant", "more", "why"),
    [
        (0.3, 0.2, {}, "difference of 30 points with 20 % discordant"),
        (0, 0.2, {}, "above 0"),
        (0.1, 1.2, {}, "from that difference to 1"),
        (0.1, 0.2, {"power": 1.0}, "power of 1"),
        (0.1, 0.2, {"comparisons": 0}, "counted from 1"),
        (0.1, 0.2, {"at_hand": 0}, "counted from 1"),
        (math.nan, 0.2, {}, "not possible"),
    ],
)
def test_sample_size_with_impossible_figures_raises_input_error(
    difference: float, discordant: float, more: dict[str, float], why: str
) -> None:
    with pytest.raises(InputError, match=why):
        compute_sample_size(difference, discordant, **more)  # type: ignore[arg-type]


def test_format_points_and_power_return_words() -> None:
    assert [format_points(item) for item in (0.05, 0.01, 0.062, -0.01, 0.123)] == [
        "5 points",
        "1 point",
        "6.2 points",
        "-1 point",
        "12.3 points",
    ]
    assert [format_power(item) for item in (0.8, 0.95, 0.9, 0.5, 0.3)] == [
        "8 of 10",
        "95 of 100",
        "9 of 10",
        "5 of 10",
        "3 of 10",
    ]
