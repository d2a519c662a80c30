"""Is it a difference? Exact tests, intervals, and how many questions it takes. Pure arithmetic; knows no run.

Questions that were asked several times (five positions, three repeats) are no independent cases: they are resampled
together, as clusters (errata B9). The order in which cases are given changes no figure.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

RESAMPLES = 10_000

K = TypeVar("K", bound=Hashable)

Floats: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Interval:
    """From `low` to `high`, at this confidence (0.95)."""

    low: float
    high: float
    confidence: float = 0.95


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean of `n` scores; `unscored` is how many could not be scored and are in no way part of it."""

    value: float
    interval: Interval
    n: int
    unscored: int = 0


@dataclass(frozen=True, slots=True)
class Difference:
    """Of two systems on the same questions, `first - second`. `p` is two-sided."""

    value: float
    interval: Interval
    p: float
    n: int
    """Pairs."""
    clusters: int
    """Independent ones among them."""
    step: float = 1.0
    """What a cluster that differs differs by: 1 where each is right or wrong once, less where it is a mean."""

    def __neg__(self) -> Difference:
        # Not `-x`, which makes -0 of 0.
        low, high = 0.0 - self.interval.high, 0.0 - self.interval.low
        return replace(self, value=0.0 - self.value, interval=replace(self.interval, low=low, high=high))


def wilson(successes: int, n: int, confidence: float = 0.95) -> Interval:
    """The interval of a proportion (Wilson 1927), which stays within 0 and 1. Of nothing it is all of that."""
    if n == 0:
        return Interval(0.0, 1.0, confidence)
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    share = successes / n
    centre = share + z * z / (2 * n)
    spread = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    low = 0.0 if successes == 0 else (centre - spread) / scale
    return Interval(low, 1.0 if successes == n else (centre + spread) / scale, confidence)


def of_all_alike(value: float, n: int, limits: tuple[float, float], confidence: float = 0.95) -> Interval:
    """Where n clusters have the same mean, or there is but one: every resample is the same, which is no certainty.

    As many as Wilson's interval of none among n may be otherwise, as far as there is room; of shares that are all 0 or
    1 it is Wilson's own, of differences that are all 0 Tango's (Statistics in Medicine 1998).
    """
    others = wilson(0, n, confidence).high
    return Interval(value - others * (value - limits[0]), value + others * (limits[1] - value), confidence)


def sign_test(wins: int, losses: int) -> float:
    """Two-sided exact p of so many wins against so many losses, ties left out. With the counts of questions that only
    one of two systems has right it is McNemar's exact test."""
    n, fewer = wins + losses, min(wins, losses)
    tail = sum(math.comb(n, i) for i in range(fewer + 1))
    return min(1.0, float(2 * tail / 2**n))


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """The p values corrected for their number (Holm 1979), in their order."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    corrected, highest = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[i]))
        corrected[i] = highest
    return tuple(corrected)


def mean_of(
    scores: Sequence[float | None],
    clusters: Sequence[Hashable] | None = None,
    *,
    shares: bool = True,
    confidence: float = 0.95,
    seed: int = 0,
) -> Mean:
    """The mean of the scores that are none of them `None`, with the interval of a cluster bootstrap (percentiles).

    Without clusters each score is its own, and where all are 0 or 1 the interval is Wilson's. `shares`: scores lie
    between 0 and 1, so that clusters that are all alike still leave room for others (see `of_all_alike`).
    """
    scored = [(score, i if clusters is None else clusters[i]) for i, score in enumerate(scores) if score is not None]
    values = np.array([score for score, _ in scored], dtype=np.float64)
    unscored = len(scores) - len(values)
    if len(values) == 0:
        return Mean(math.nan, Interval(math.nan, math.nan, confidence), 0, unscored)
    if clusters is None and set(values.tolist()) <= {0.0, 1.0}:
        interval = wilson(int(values.sum()), len(values), confidence)
    else:
        limits = (0.0, 1.0) if shares else None
        interval = _bootstrap(*_by_cluster(values, [cluster for _, cluster in scored]), limits, confidence, seed)
    return Mean(float(values.mean()), interval, len(values), unscored)


def paired_difference(
    first: Mapping[K, float],
    second: Mapping[K, float],
    clusters: Mapping[K, Hashable] | None = None,
    *,
    confidence: float = 0.95,
    seed: int = 0,
) -> Difference:
    """The mean difference over the cases that both have scored (from 0 to 1), by a bootstrap of whole clusters.

    `clusters` says which cluster a case belongs to (default: each its own). `p` is that of a sign-flipping permutation
    of the clusters' differences: exact where they are alike in size (it is McNemar's exact test then) and up to 2^12
    flips, else sampled. Raises ValueError where they share no case.
    """
    shared = [case for case in first if case in second]
    if not shared:
        raise ValueError("the two share no case that both have scored")
    of: list[Hashable] = [case if clusters is None else clusters[case] for case in shared]
    differences = np.array([first[case] - second[case] for case in shared], dtype=np.float64)
    sums, counts = _by_cluster(differences, of)
    means = abs(sums / counts)
    return Difference(
        value=float(sums.sum() / len(shared)),
        interval=_bootstrap(sums, counts, (-1.0, 1.0), confidence, seed),
        p=_sign_flips(sums, seed),
        n=len(shared),
        clusters=len(sums),
        step=float((means**2).sum() / means.sum()) if means.any() else 1.0,
    )


def questions_needed(difference: float, discordant: float, power: float = 0.8, alpha: float = 0.05) -> int:
    """How many questions a paired comparison needs (McNemar's test; Connor, Biometrics 1987).

    `difference`: of the two accuracies, as a share; `discordant`: the share of questions that one of them alone has
    right, at least as large. Raises ValueError where that is not so.
    """
    gap = abs(difference)
    if not 0 < gap <= discordant <= 1:
        raise ValueError(f"a difference of {difference} among {discordant} discordant questions cannot be")
    of_alpha, of_power = NormalDist().inv_cdf(1 - alpha / 2), NormalDist().inv_cdf(power)
    root = of_alpha * math.sqrt(discordant) + of_power * math.sqrt(discordant - gap * gap)
    return math.ceil(root * root / (gap * gap))


# -- resampling -----------------------------------------------------------------------------------------------------


def _by_cluster(values: Floats, clusters: Sequence[Hashable]) -> tuple[Floats, Floats]:
    """(sum, count) of each cluster, in an order of their own: that of the cases must not decide what is drawn."""
    number = {cluster: i for i, cluster in enumerate(dict.fromkeys(clusters))}
    of = np.array([number[cluster] for cluster in clusters])
    order = np.argsort(values, kind="stable")
    sums = np.bincount(of[order], weights=values[order]).astype(np.float64)
    counts = np.bincount(of).astype(np.float64)
    order = np.lexsort((counts, sums))
    return sums[order], counts[order]


def _bootstrap(
    sums: Floats, counts: Floats, limits: tuple[float, float] | None, confidence: float, seed: int
) -> Interval:
    """The percentiles of the mean of all cases of as many clusters as there are, drawn with replacement, RESAMPLES
    times. `limits`: what a score lies within, where that is known."""
    if limits is not None and np.ptp(sums / counts) < 1e-9:
        return of_all_alike(float(sums[0] / counts[0]), len(sums), limits, confidence)
    dice = np.random.default_rng(seed)
    means = np.empty(RESAMPLES)
    # In blocks: all draws at once would be gigabytes for thousands of questions.
    block = max(1, 2_000_000 // len(sums))
    for start in range(0, RESAMPLES, block):
        drawn = dice.integers(len(sums), size=(min(block, RESAMPLES - start), len(sums)))
        means[start : start + len(drawn)] = sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1)
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(float(low), float(high), confidence)


def _sign_flips(sums: Floats, seed: int) -> float:
    """Two-sided p of the sum of the clusters' differences, were each as likely to have the other sign."""
    moved = sums[abs(sums) > 1e-9]
    if len(moved) == 0 or np.ptp(abs(moved)) < 1e-9:
        return sign_test(int((moved > 0).sum()), int((moved < 0).sum()))
    observed = abs(moved.sum()) - 1e-9
    if len(moved) <= 12:
        signs = 1 - 2 * ((np.arange(2 ** len(moved))[:, None] >> np.arange(len(moved))) & 1)
        return float((abs(signs @ moved) >= observed).mean())
    dice, extreme = np.random.default_rng(seed), 0
    block = max(1, 2_000_000 // len(moved))
    for start in range(0, RESAMPLES, block):
        size = (min(block, RESAMPLES - start), len(moved))
        extreme += int((abs((1 - 2 * dice.integers(2, size=size)) @ moved) >= observed).sum())
    return (extreme + 1) / (RESAMPLES + 1)
