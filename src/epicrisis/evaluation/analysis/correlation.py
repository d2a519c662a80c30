"""Correlation of two scores of the same cases: Spearman's rho, and quadratic-weighted kappa for ordinal scores, each
with a bootstrap interval.

Cases of one question are not independent: they are drawn together, as a cluster (errata B9). The order of the cases
changes no figure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from epicrisis.evaluation.analysis.statistics import Floats, Interval, divide

RESAMPLES = 2000
_BLOCK = 2_000_000
"""Numbers in a block of resamples. All at once would take gigabytes for thousands of cases."""
_TINY = 1e-12
"""A denominator up to this is 0."""

CorrelationName: TypeAlias = Literal["spearman", "quadratic-kappa"]
"""`spearman`: Pearson's r of the ranks, ties averaged. `quadratic-kappa`: Cohen's weighted kappa (1968) with the
squared distance of the scores, which must be on one scale."""


@dataclass(frozen=True, slots=True)
class Correlation:
    """A coefficient over `n` cases with two scores, in `clusters` independent groups."""

    value: float | None
    """-1 to 1. None if one of the scores is constant."""
    interval: Interval | None
    """95 %, percentiles. None if every resample gives the same value, or there is one cluster."""
    n: int
    clusters: int
    unscored: int = 0
    """Cases without two scores."""


def correlate(
    first: Sequence[float | None],
    second: Sequence[float | None],
    coefficient: CorrelationName = "spearman",
    clusters: Sequence[Hashable] | None = None,
    seed: int = 0,
) -> Correlation:
    """Return the correlation of two scores of the same cases.

    `clusters` holds the cluster of each case; by default each case is its own. Raises ValueError if the sequences
    differ in length.
    """
    groups: dict[Hashable, list[tuple[float, float]]] = defaultdict(list)
    for x, y, cluster in zip(first, second, range(len(first)) if clusters is None else clusters, strict=True):
        if x is not None and y is not None:
            groups[cluster].append((float(x), float(y)))
    # Sorted, so that the order of the cases does not affect the draws.
    members = sorted(map(sorted, groups.values()))
    cases = np.array([case for group in members for case in group], dtype=np.float64).reshape(-1, 2)
    unscored = len(first) - len(cases)
    if len(cases) == 0:
        return Correlation(None, None, 0, 0, unscored)
    measure = _make_measure(coefficient, cases[:, 0], cases[:, 1])
    value = float(measure(np.ones((1, len(cases))))[0])
    if not np.isfinite(value):
        return Correlation(None, None, len(cases), len(members), unscored)
    return Correlation(value, _bootstrap(measure, list(map(len, members)), seed), len(cases), len(members), unscored)


_Measure: TypeAlias = Callable[[Floats], Floats]
"""Maps the number of draws of each case, `(resamples, n)`, to the coefficient of each resample, NaN if it has none."""


def _make_measure(coefficient: CorrelationName, x: Floats, y: Floats) -> _Measure:
    if coefficient == "spearman":
        return lambda weights: _moments(_ranks(x, weights), _ranks(y, weights), weights, kappa=False)
    # The scores begin at 0, in units of their spread, so that rounding errors can be recognised.
    spread = np.ptp([x, y]) or 1
    x_unit, y_unit = (x - x[0]) / spread, (y - y[0]) / spread + (y[0] - x[0]) / spread
    return lambda weights: _moments(x_unit, y_unit, weights, kappa=True)


def _moments(x: Floats, y: Floats, weights: Floats, *, kappa: bool) -> Floats:
    """Return Pearson's r, or kappa.

    With quadratic weights kappa is 2 cov(x, y) / (var x + var y + (mean x - mean y)^2), as both the observed and the
    expected disagreement are means of squared differences.
    """
    shares = weights / weights.sum(axis=1, keepdims=True)
    x_mean, y_mean = (shares * x).sum(axis=1, keepdims=True), (shares * y).sum(axis=1, keepdims=True)
    dx, dy = x - x_mean, y - y_mean
    covariance = (shares * (dx * dy)).sum(axis=1)
    x_variance, y_variance = (shares * (dx * dx)).sum(axis=1), (shares * (dy * dy)).sum(axis=1)
    if kappa:
        # A constant score has covariance 0; rounding must not change that.
        covariance = np.where(np.abs(covariance) > 1e-12, covariance, 0)
        return divide(2 * covariance, x_variance + y_variance + (x_mean - y_mean)[:, 0] ** 2, _TINY)
    return np.clip(divide(covariance, np.sqrt(x_variance) * np.sqrt(y_variance), _TINY), -1, 1)


def _ranks(values: Floats, weights: Floats) -> Floats:
    """Return the rank of each case in each resample, `(resamples, n)`; equal values share their mean rank."""
    distinct, index = np.unique(values, return_inverse=True)
    counts = np.zeros((len(distinct), len(weights)))
    np.add.at(counts, index, weights.T)
    below = np.cumsum(counts, axis=0) - counts
    ranks: Floats = (below + (counts + 1) / 2)[index].T
    return ranks


def _bootstrap(measure: _Measure, sizes: Sequence[int], seed: int) -> Interval | None:
    """Return the percentiles over resamples of clusters, drawn with replacement. `sizes` are the cases of each."""
    clusters, generator = len(sizes), np.random.default_rng(seed)
    values = np.empty(RESAMPLES)
    block = max(1, _BLOCK // sum(sizes))
    for start in range(0, RESAMPLES, block):
        size = min(block, RESAMPLES - start)
        weights = generator.multinomial(clusters, np.full(clusters, 1 / clusters), size=size)
        values[start : start + size] = measure(np.repeat(weights, sizes, axis=1).astype(np.float64))
    values = values[np.isfinite(values)]
    if clusters < 2 or len(values) == 0 or np.ptp(values) < 1e-12:
        return None
    low, high = np.quantile(values, [0.025, 0.975])
    return Interval(float(low), float(high))
