"""Do two scores of the same cases go together? Pearson's r, Spearman's rho, Kendall's tau-b, and quadratic-weighted
kappa for ordinal scores, each with the interval of a bootstrap. Arithmetic; knows no metric and no run.

Cases of one question are no independent cases: they are drawn together, as clusters (errata B9). The order in which
cases are given changes no figure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from epicrisis.evaluation.analysis.statistics import Interval

RESAMPLES = 2000
_BLOCK = 2_000_000
"""Numbers of a block of resamples: all at once would be gigabytes for thousands of cases."""

Floats: TypeAlias = npt.NDArray[np.float64]

CorrelationName: TypeAlias = Literal["pearson", "spearman", "kendall", "quadratic-kappa"]
"""`spearman`: Pearson's of the ranks, ties averaged. `kendall`: tau-b (Kendall 1945). `quadratic-kappa`: Cohen's
weighted kappa (1968), weights the squared distance of the scores, which have to be on one scale."""


@dataclass(frozen=True, slots=True)
class Correlation:
    """Of `n` cases that both have scored, in `clusters` independent groups; `unscored` are the cases left out."""

    value: float | None
    """-1 to 1; `None` where one of the two is the same throughout."""
    interval: Interval | None
    """95 %, percentiles; `None` where every resample gives the same, or there is but one cluster."""
    n: int
    clusters: int
    unscored: int = 0


def correlation(
    first: Sequence[float | None],
    second: Sequence[float | None],
    coefficient: CorrelationName = "spearman",
    clusters: Sequence[Hashable] | None = None,
    seed: int = 0,
) -> Correlation:
    """Of the cases in their order, each with its cluster (default: its own). Raises ValueError where the sequences
    differ in length."""
    of = range(len(first)) if clusters is None else clusters
    grouped: dict[Hashable, list[tuple[float, float]]] = defaultdict(list)
    for one, other, cluster in zip(first, second, of, strict=True):
        if one is not None and other is not None:
            grouped[cluster].append((float(one), float(other)))
    # In an order of their own: that of the cases must not decide what is drawn.
    groups = sorted(sorted(group) for group in grouped.values())
    cases = np.array([case for group in groups for case in group], dtype=np.float64).reshape(-1, 2)
    unscored = len(first) - len(cases)
    if len(cases) == 0:
        return Correlation(None, None, 0, 0, unscored)
    measure = _MEASURES[coefficient](cases[:, 0], cases[:, 1])
    value = float(measure(np.ones((1, len(cases))))[0])
    if not np.isfinite(value):
        return Correlation(None, None, len(cases), len(groups), unscored)
    interval = _bootstrap(measure, [len(group) for group in groups], seed)
    return Correlation(value, interval, len(cases), len(groups), unscored)


_Measure: TypeAlias = Callable[[Floats], Floats]
"""From how often each case was drawn, `(resamples, n)`, to the coefficient of each resample; NaN where it has none."""


def _pearson(x: Floats, y: Floats) -> _Measure:
    x, y = _unit(x, np.ptp(x)), _unit(y, np.ptp(y))
    return lambda drawn: _moments(x, y, drawn, kappa=False)


def _kappa(x: Floats, y: Floats) -> _Measure:
    spread = np.ptp([x, y])
    of_x, of_y = _unit(x, spread), _unit(y, spread) + (y[0] - x[0]) / (spread or 1)
    return lambda drawn: _moments(of_x, of_y, drawn, kappa=True)


def _unit(values: Floats, spread: float) -> Floats:
    """From 0, in units of the spread: so that what is no more than an error of rounding can be told."""
    unit: Floats = (values - values[0]) / (spread or 1)
    return unit


def _spearman(x: Floats, y: Floats) -> _Measure:
    return lambda drawn: _moments(_ranks(x, drawn), _ranks(y, drawn), drawn, kappa=False)


def _kendall(x: Floats, y: Floats) -> _Measure:
    of_x, of_y = (np.sign(values[:, None] - values[None, :]) for values in (x, y))

    def pairs(signs: Floats, drawn: Floats) -> Floats:
        summed: Floats = ((drawn @ signs) * drawn).sum(axis=1)
        return summed

    return lambda drawn: _ratio(
        pairs(of_x * of_y, drawn), np.sqrt(pairs(np.abs(of_x), drawn)) * np.sqrt(pairs(np.abs(of_y), drawn))
    )


_MEASURES: dict[CorrelationName, Callable[[Floats, Floats], _Measure]] = {
    "pearson": _pearson,
    "spearman": _spearman,
    "kendall": _kendall,
    "quadratic-kappa": _kappa,
}


def _moments(x: Floats, y: Floats, drawn: Floats, *, kappa: bool) -> Floats:
    """Pearson's r; or kappa, which with quadratic weights is 2 cov(x, y) / (var x + var y + (mean x - mean y)^2), as
    both the observed and the expected disagreement are means of squared differences."""
    share = drawn / drawn.sum(axis=1, keepdims=True)
    means = [(share * values).sum(axis=1, keepdims=True) for values in (x, y)]
    dx, dy = x - means[0], y - means[1]
    both, of_x, of_y = ((share * product).sum(axis=1) for product in (dx * dy, dx * dx, dy * dy))
    if kappa:
        # Where one of the two is the same throughout it is 0, and not what rounding leaves.
        both = np.where(np.abs(both) > 1e-12, both, 0)
        return _ratio(2 * both, of_x + of_y + (means[0] - means[1])[:, 0] ** 2)
    return np.clip(_ratio(both, np.sqrt(of_x) * np.sqrt(of_y)), -1, 1)


def _ranks(values: Floats, drawn: Floats) -> Floats:
    """`(resamples, n)`: the rank of each case among those drawn, equal ones sharing the mean of their ranks."""
    distinct, place = np.unique(values, return_inverse=True)
    counts = np.zeros((len(distinct), len(drawn)))
    np.add.at(counts, place, drawn.T)
    below = np.cumsum(counts, axis=0) - counts
    ranks: Floats = (below + (counts + 1) / 2)[place].T
    return ranks


def _ratio(above: Floats, below: Floats) -> Floats:
    ratio: Floats = np.full(np.shape(below), np.nan)
    np.divide(above, below, out=ratio, where=below > 1e-12)
    return ratio


def _bootstrap(measure: _Measure, sizes: Sequence[int], seed: int) -> Interval | None:
    """Percentiles over as many clusters as there are, drawn with replacement; `sizes` are the cases of each."""
    clusters, dice = len(sizes), np.random.default_rng(seed)
    found = np.empty(RESAMPLES)
    block = max(1, _BLOCK // sum(sizes))
    for start in range(0, RESAMPLES, block):
        many = min(block, RESAMPLES - start)
        drawn = dice.multinomial(clusters, np.full(clusters, 1 / clusters), size=many)
        found[start : start + many] = measure(np.repeat(drawn, sizes, axis=1).astype(np.float64))
    found = found[np.isfinite(found)]
    if clusters < 2 or len(found) == 0 or np.ptp(found) < 1e-12:
        return None
    low, high = np.quantile(found, [0.025, 0.975])
    return Interval(float(low), float(high))
