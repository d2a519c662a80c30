"""Test correlations and weighted kappa against scipy and statsmodels, with clusters and intervals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.inter_rater import cohens_kappa

from epicrisis.evaluation.analysis.correlation import CorrelationName, correlate

SCORES = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=3, max_size=40)


def reference(coefficient: CorrelationName, x: list[float], y: list[float]) -> float:
    if coefficient == "quadratic-kappa":
        table = np.zeros((5, 5))
        for one, other in zip(x, y, strict=True):
            table[int(one), int(other)] += 1
        return float(cohens_kappa(table, wt="quadratic", return_results=False))
    return float(stats.spearmanr(x, y).statistic)


@pytest.mark.slow
@pytest.mark.parametrize("coefficient", ["spearman", "quadratic-kappa"])
@given(cases=SCORES)
def test_correlate_ordinal_scores_matches_scipy_and_statsmodels(
    coefficient: CorrelationName, cases: list[tuple[int, int]]
) -> None:
    x, y = ([float(case[side]) for case in cases] for side in (0, 1))
    value = correlate(x, y, coefficient).value
    if len(set(x)) == 1 or len(set(y)) == 1:
        assert value is None or (coefficient == "quadratic-kappa" and abs(value) < 1e-9)
    else:
        assert value == pytest.approx(reference(coefficient, x, y), abs=1e-9)


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_correlate_real_scores_matches_scipy(scale: float) -> None:
    dice = np.random.default_rng(1)
    x = dice.normal(size=200) * scale + 5
    y = x / scale + dice.normal(size=200)
    expected = reference("spearman", list(x), list(y))
    assert 0.4 < expected < 0.8
    assert correlate(list(x), list(y)).value == pytest.approx(expected, abs=1e-7 if scale < 1 else 1e-9)


def test_correlate_constant_scores_returns_no_value() -> None:
    result = correlate([0.1, 0.1, 0.1], [0.1, 0.2, 0.3])
    assert (result.value, result.interval, result.n) == (None, None, 3)
    assert correlate([], []).value is None
    assert correlate([0.1] * 3, [0.1] * 3, "quadratic-kappa").value is None
    assert correlate([1.0, 3.0, 4.0, 5.0, 5.0], [4.0] * 5, "quadratic-kappa").value == 0


def test_correlate_counts_unscored_pairs() -> None:
    result = correlate([1, None, 2, 3, 4], [1, 2, None, 3, 4])
    assert result.value == pytest.approx(1)
    assert (result.n, result.unscored) == (3, 2)
    with pytest.raises(ValueError, match="zip"):
        correlate([1, 2], [1])


@pytest.mark.parametrize("coefficient", ["spearman", "quadratic-kappa"])
def test_correlate_is_independent_of_case_order(coefficient: CorrelationName) -> None:
    dice = np.random.default_rng(2)
    x = dice.integers(0, 5, 60).tolist()
    y = [min(4, max(0, score + step)) for score, step in zip(x, dice.integers(-1, 2, 60).tolist(), strict=True)]
    clusters = [i // 3 for i in range(60)]
    order = dice.permutation(60).tolist()
    result = correlate(x, y, coefficient, clusters)
    assert result == correlate(
        [x[i] for i in order], [y[i] for i in order], coefficient, [f"q{clusters[i]}" for i in order]
    )
    assert result.interval is not None
    assert result.value is not None
    assert -1 < result.interval.low < result.value < result.interval.high < 1
    assert (result.n, result.clusters) == (60, 20)


def test_correlate_clusters_copies_of_one_case() -> None:
    """Five copies of every question make no interval narrower."""
    dice = np.random.default_rng(3)
    x = dice.normal(size=40).tolist()
    y = (np.array(x) + dice.normal(size=40)).tolist()
    once = correlate(x, y)
    copied = correlate(x * 5, y * 5, "spearman", list(range(40)) * 5)
    naive = correlate(x * 5, y * 5)
    assert once.interval is not None
    assert copied.interval is not None
    assert naive.interval is not None
    assert copied.value == pytest.approx(once.value, abs=1e-12)
    assert copied.interval.low == pytest.approx(once.interval.low, abs=1e-9)
    assert naive.interval.high - naive.interval.low < 0.6 * (once.interval.high - once.interval.low)


@pytest.mark.slow
def test_correlate_interval_matches_plain_bootstrap() -> None:
    """The weights stand for copies: scipy's own figure of each drawn sample gives the same interval."""
    dice = np.random.default_rng(4)
    x, y = dice.integers(0, 5, (2, 30)).astype(float)
    interval = correlate(list(x), list(y), "spearman").interval
    samples = [dice.integers(30, size=30) for _ in range(2000)]
    low, high = np.quantile([stats.spearmanr(x[of], y[of]).statistic for of in samples], [0.025, 0.975])
    assert interval is not None
    assert interval.low == pytest.approx(low, abs=0.05)
    assert interval.high == pytest.approx(high, abs=0.05)
