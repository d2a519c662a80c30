"""Means with intervals, exact tests of differences, and the number of questions that a comparison needs.

Cases of one question (five positions, three repeats) are not independent: they are resampled together, as a cluster
(errata B9). The order of the cases changes no figure.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import NormalDist
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

RESAMPLES = 10_000
CONFIDENCE = 0.95

K = TypeVar("K", bound=Hashable)

Floats: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Interval:
    """A confidence interval."""

    low: float
    high: float
    confidence: float = CONFIDENCE


@dataclass(frozen=True, slots=True)
class Mean:
    """The mean of `n` scores. Cases without a score, `unscored`, have no influence on it."""

    value: float
    interval: Interval
    n: int
    unscored: int = 0


@dataclass(frozen=True, slots=True)
class Difference:
    """The mean difference `first - second` of two systems on the same cases. `p` is two-sided."""

    value: float
    interval: Interval
    p: float
    n: int
    """The number of pairs."""
    clusters: int
    """The number of independent groups of pairs."""
    step: float = 1.0
    """The typical size of a cluster's difference: 1 if each cluster is right or wrong once, less if it is a mean."""

    def __neg__(self) -> Difference:
        # `-x` would turn 0 into -0.
        low, high = 0.0 - self.interval.high, 0.0 - self.interval.low
        return replace(self, value=0.0 - self.value, interval=replace(self.interval, low=low, high=high))


def divide(numerator: Floats, denominator: Floats, tiny: float) -> Floats:
    """Return the quotients, or NaN where the denominator is not larger than `tiny`."""
    ratio: Floats = np.full(np.shape(denominator), np.nan)
    np.divide(numerator, denominator, out=ratio, where=np.abs(denominator) > tiny)
    return ratio


def wilson(successes: int, n: int, confidence: float = CONFIDENCE) -> Interval:
    """Return the interval of a proportion (Wilson 1927), which lies within 0 and 1; 0 to 1 if `n` is 0."""
    if n == 0:
        return Interval(0.0, 1.0, confidence)
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    share = successes / n
    centre = share + z * z / (2 * n)
    spread = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    low = 0.0 if successes == 0 else (centre - spread) / scale
    return Interval(low, 1.0 if successes == n else (centre + spread) / scale, confidence)


def uniform_interval(value: float, n: int, limits: tuple[float, float], confidence: float = CONFIDENCE) -> Interval:
    """Return an interval for `n` clusters with the same mean, for which every resample is the same.

    Equal means are no certainty. The interval allows for as many other clusters as Wilson's interval for 0 of `n`
    does, within the limits of a score. For shares of 0 or 1 alone it is Wilson's interval, and for differences of 0
    alone it is Tango's (Statistics in Medicine 1998).
    """
    share = wilson(0, n, confidence).high
    return Interval(value - share * (value - limits[0]), value + share * (limits[1] - value), confidence)


def sign_test(wins: int, losses: int) -> float:
    """Return the exact two-sided p value of wins against losses, without ties.

    With the numbers of questions that only one of two systems has right, this is McNemar's exact test.
    """
    n, fewer = wins + losses, min(wins, losses)
    tail = sum(map(partial(math.comb, n), range(fewer + 1)))
    return min(1.0, float(2 * tail / 2**n))


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Return the p values, in their order, corrected for their number (Holm 1979)."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    corrected, highest = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[i]))
        corrected[i] = highest
    return tuple(corrected)


def estimate_mean(
    scores: Sequence[float | None],
    clusters: Sequence[Hashable] | None = None,
    *,
    shares: bool = True,
    seed: int = 0,
) -> Mean:
    """Return the mean of the scores that are not None, with the percentile interval of a cluster bootstrap.

    Without `clusters` each score is its own cluster, and if all are 0 or 1 the interval is Wilson's. `shares` says
    that scores lie between 0 and 1, so that equal clusters get an interval too (see `uniform_interval`).
    """
    indices = [index for index, score in enumerate(scores) if score is not None]
    values = np.array([scores[index] for index in indices], dtype=np.float64)
    unscored = len(scores) - len(values)
    if len(values) == 0:
        return Mean(math.nan, Interval(math.nan, math.nan), 0, unscored)
    if clusters is None and set(values.tolist()) <= {0.0, 1.0}:
        interval = wilson(int(values.sum()), len(values))
    else:
        limits = (0.0, 1.0) if shares else None
        groups = indices if clusters is None else [clusters[index] for index in indices]
        interval = _bootstrap(*_sum_by_cluster(values, groups), limits, seed)
    return Mean(float(values.mean()), interval, len(values), unscored)


def paired_difference(
    first: Mapping[K, float],
    second: Mapping[K, float],
    clusters: Mapping[K, Hashable] | None = None,
    seed: int = 0,
) -> Difference:
    """Return the mean difference over the cases in both mappings, with the interval of a cluster bootstrap.

    Scores are 0 to 1. `clusters` maps a case to its cluster; by default each case is its own. `p` is that of a
    permutation test, flipping the signs of the clusters' differences: exact if their sizes are equal (McNemar's exact
    test) or up to 2^12 flips, otherwise sampled. Raises ValueError if the mappings share no case.
    """
    shared = [item for item in first if item in second]
    if not shared:
        raise ValueError("the two share no case that both have scored")
    groups: list[Hashable] = list(shared if clusters is None else (clusters[item] for item in shared))
    scores = [[side[item] for item in shared] for side in (first, second)]
    differences = np.subtract(*np.array(scores, dtype=np.float64))
    sums, counts = _sum_by_cluster(differences, groups)
    means = abs(sums / counts)
    return Difference(
        value=float(sums.sum() / len(shared)),
        interval=_bootstrap(sums, counts, (-1.0, 1.0), seed),
        p=_sign_flips(sums, seed),
        n=len(shared),
        clusters=len(sums),
        step=float((means**2).sum() / means.sum()) if means.any() else 1.0,
    )


def questions_needed(difference: float, discordant: float, power: float = 0.8, alpha: float = 0.05) -> int:
    """Return the number of questions that a paired comparison needs (McNemar's test; Connor, Biometrics 1987).

    `difference` is the difference of the two accuracies, as a share. `discordant` is the share of questions that only
    one system has right. Raises ValueError unless 0 < difference <= discordant <= 1.
    """
    gap = abs(difference)
    if not 0 < gap <= discordant <= 1:
        raise ValueError(f"a difference of {difference} among {discordant} discordant questions cannot be")
    z_alpha, z_power = NormalDist().inv_cdf(1 - alpha / 2), NormalDist().inv_cdf(power)
    root = z_alpha * math.sqrt(discordant) + z_power * math.sqrt(discordant - gap * gap)
    return math.ceil(root * root / (gap * gap))


def _sum_by_cluster(values: Floats, clusters: Sequence[Hashable]) -> tuple[Floats, Floats]:
    """Return the sum and the count of each cluster, sorted, so that the order of the cases does not affect a draw."""
    numbers = {cluster: number for number, cluster in enumerate(dict.fromkeys(clusters))}
    members = np.array([numbers[cluster] for cluster in clusters])
    order = np.argsort(values, kind="stable")
    sums = np.bincount(members[order], weights=values[order]).astype(np.float64)
    counts = np.bincount(members).astype(np.float64)
    order = np.lexsort((counts, sums))
    return sums[order], counts[order]


def _bootstrap(sums: Floats, counts: Floats, limits: tuple[float, float] | None, seed: int) -> Interval:
    """Return the 95 % interval of the mean over RESAMPLES resamples of the clusters, drawn with replacement.

    `limits` are the lowest and the highest possible score, if they are known.
    """
    if limits is not None and np.ptp(sums / counts) < 1e-9:
        return uniform_interval(float(sums[0] / counts[0]), len(sums), limits)
    generator = np.random.default_rng(seed)
    means = np.empty(RESAMPLES)
    # In blocks, as all draws at once would take gigabytes for thousands of questions.
    block = max(1, 2_000_000 // len(sums))
    for start in range(0, RESAMPLES, block):
        draws = generator.integers(len(sums), size=(min(block, RESAMPLES - start), len(sums)))
        means[start : start + len(draws)] = sums[draws].sum(axis=1) / counts[draws].sum(axis=1)
    low, high = np.quantile(means, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Interval(float(low), float(high))


def _sign_flips(sums: Floats, seed: int) -> float:
    """Return the two-sided p value of the sum of differences if each sign were equally likely."""
    moved = sums[abs(sums) > 1e-9]
    if len(moved) == 0 or np.ptp(abs(moved)) < 1e-9:
        return sign_test(int((moved > 0).sum()), int((moved < 0).sum()))
    observed = abs(moved.sum()) - 1e-9
    if len(moved) <= 12:
        signs = 1 - 2 * ((np.arange(2 ** len(moved))[:, None] >> np.arange(len(moved))) & 1)
        return float((abs(signs @ moved) >= observed).mean())
    generator, extreme = np.random.default_rng(seed), 0
    block = max(1, 2_000_000 // len(moved))
    for start in range(0, RESAMPLES, block):
        size = (min(block, RESAMPLES - start), len(moved))
        extreme += int((abs((1 - 2 * generator.integers(2, size=size)) @ moved) >= observed).sum())
    return (extreme + 1) / (RESAMPLES + 1)
