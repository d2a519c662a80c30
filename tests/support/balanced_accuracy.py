"""Balanced accuracy: the mean over the true labels of the share of cases predicted right, with bootstrap intervals.

A constant prediction has 1 / (number of labels), for any shares of the labels (Brodersen et al., ICPR 2010).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from epicrisis.evaluation.analysis.statistics import RESAMPLES, Interval

Recalls = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class BalancedAccuracy:
    """A balanced accuracy, 0 to 1, with its 95 % interval."""

    value: float
    interval: Interval
    n: int


def estimate_balanced_accuracy(
    labels: Sequence[str], predictions: Sequence[str], clusters: Sequence[Hashable], *, seed: int = 0
) -> BalancedAccuracy:
    """Return the balanced accuracy with the percentile interval of a cluster bootstrap.

    Raises ValueError without a case, or for sequences of different lengths.
    """
    value, resampled = _resample(labels, predictions, clusters, seed)
    return BalancedAccuracy(value, _interval(resampled), len(labels))


def compare_balanced_accuracy(
    labels: Sequence[str],
    first: Sequence[str],
    second: Sequence[str],
    clusters: Sequence[Hashable],
    *,
    seed: int = 0,
) -> BalancedAccuracy:
    """Return the difference `first - second` on the same cases, with the interval of paired resamples."""
    value, resampled = _resample(labels, first, clusters, seed)
    other, other_resampled = _resample(labels, second, clusters, seed)
    return BalancedAccuracy(value - other, _interval(resampled - other_resampled), len(labels))


def _resample(
    labels: Sequence[str], predictions: Sequence[str], clusters: Sequence[Hashable], seed: int
) -> tuple[float, Recalls]:
    """Return the balanced accuracy of the cases and of RESAMPLES resamples. A label absent from one counts nothing."""
    if not labels:
        raise ValueError("there is no case to estimate a balanced accuracy from")
    names = {label: column for column, label in enumerate(sorted(set(labels)))}
    rows = {cluster: row for row, cluster in enumerate(dict.fromkeys(clusters))}
    cases, hits = np.zeros((len(rows), len(names))), np.zeros((len(rows), len(names)))
    for label, prediction, cluster in zip(labels, predictions, clusters, strict=True):
        cases[rows[cluster], names[label]] += 1
        hits[rows[cluster], names[label]] += label == prediction
    generator = np.random.default_rng(seed)
    resampled = np.empty(RESAMPLES)
    for index in range(RESAMPLES):
        draw = generator.integers(len(rows), size=len(rows))
        resampled[index] = _mean_recall(hits[draw].sum(axis=0), cases[draw].sum(axis=0))
    return _mean_recall(hits.sum(axis=0), cases.sum(axis=0)), resampled


def _mean_recall(hits: Recalls, cases: Recalls) -> float:
    present = cases > 0
    return float((hits[present] / cases[present]).mean())


def _interval(resampled: Recalls) -> Interval:
    low, high = np.quantile(resampled, [0.025, 0.975])
    return Interval(float(low), float(high))
