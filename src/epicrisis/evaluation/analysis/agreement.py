"""How far those who judge the same things agree: raw agreement, Cohen's kappa (1960), Krippendorff's alpha for nominal
data (Computing Krippendorff's Alpha-Reliability, 2011). Arithmetic; knows neither pairs nor arms."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from statistics import fmean
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from epicrisis.evaluation.analysis.statistics import Interval, Mean, mean_of

RESAMPLES = 2000

U = TypeVar("U", bound=Hashable)

Floats: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class AgreementCoefficient:
    """1 is full agreement, 0 what chance gives. `None` where all that was said is one word."""

    value: float | None
    interval: Interval | None
    """95 %, by a bootstrap of the clusters; `None` where every resample gives the same."""


@dataclass(frozen=True, slots=True)
class RaterAgreement:
    """Of some raters, over the units that at least two of them judged."""

    raters: int
    units: int
    raw: Mean
    """The share of the raters' pairs that say the same, a unit's mean first."""
    kappa: AgreementCoefficient | None
    """Of two raters; `None` of more."""
    alpha: AgreementCoefficient


def agreement(
    raters: Sequence[Mapping[U, Hashable]], seed: int = 0, clusters: Mapping[U, Hashable] | None = None
) -> RaterAgreement:
    """`raters`: what each says, by unit; units may be missing. `clusters`: the cluster of each unit (its question),
    resampled whole; else each is its own. Raises ValueError for fewer than two raters."""
    if len(raters) < 2:
        raise ValueError("agreement is between two raters or more")
    units = dict.fromkeys(unit for rater in raters for unit in rater)
    said = {unit: [rater[unit] for rater in raters if unit in rater] for unit in units}
    judged = [unit for unit, values in said.items() if len(values) > 1]
    shared = [said[unit] for unit in judged]
    of = judged if clusters is None else [clusters[unit] for unit in judged]
    once = len(set(of)) == len(of)
    raw = [fmean(first == second for first, second in permutations(values, 2)) for values in shared]
    return RaterAgreement(
        raters=len(raters),
        units=len(shared),
        raw=mean_of(raw, None if once else of, seed=seed),
        kappa=_coefficient(_summed(_tables(shared), of), kappa_of, seed) if len(raters) == 2 else None,
        alpha=_coefficient(_summed(_coincidences(shared), of), alpha_of, seed),
    )


def kappa_of(tables: Floats) -> Floats:
    """Cohen's kappa of each table `(..., c, c)`, first rater by second; NaN where it is not defined."""
    total = tables.sum(axis=(-2, -1))
    observed = np.trace(tables, axis1=-2, axis2=-1) * total
    expected = (tables.sum(axis=-1) * tables.sum(axis=-2)).sum(axis=-1)
    return _ratio(observed - expected, total**2 - expected)


def alpha_of(tables: Floats) -> Floats:
    """Krippendorff's alpha of each table of coincidences `(..., c, c)`; NaN where it is not defined."""
    values = tables.sum(axis=-1)
    n = values.sum(axis=-1)
    observed = n - np.trace(tables, axis1=-2, axis2=-1)
    expected = n**2 - (values**2).sum(axis=-1)
    return 1 - _ratio((n - 1) * observed, expected)


def _ratio(above: Floats, below: Floats) -> Floats:
    ratio: Floats = np.full(np.shape(below), np.nan)
    np.divide(above, below, out=ratio, where=np.abs(below) > 1e-9)
    return ratio


def _tables(said: Sequence[Sequence[Hashable]]) -> Floats:
    """(units, c, c): one where the two raters' words meet."""
    number = _numbers(said)
    tables = np.zeros((len(said), len(number), len(number)))
    for table, (first, second) in zip(tables, said, strict=True):
        table[number[first], number[second]] = 1
    return tables


def _coincidences(said: Sequence[Sequence[Hashable]]) -> Floats:
    """(units, c, c): every ordered pair of a unit's m values, each worth 1 / (m - 1)."""
    number = _numbers(said)
    tables = np.zeros((len(said), len(number), len(number)))
    for table, values in zip(tables, said, strict=True):
        for first, second in permutations(values, 2):
            table[number[first], number[second]] += 1 / (len(values) - 1)
    return tables


def _summed(tables: Floats, of: Sequence[Hashable]) -> Floats:
    """(clusters, c, c): the sum of each cluster's tables."""
    number = {cluster: i for i, cluster in enumerate(dict.fromkeys(of))}
    sums = np.zeros((len(number), *tables.shape[1:]))
    np.add.at(sums, [number[cluster] for cluster in of], tables)
    return sums


def _numbers(said: Sequence[Sequence[Hashable]]) -> dict[Hashable, int]:
    return {value: i for i, value in enumerate(dict.fromkeys(value for values in said for value in values))}


def _coefficient(tables: Floats, of: Callable[[Floats], Floats], seed: int) -> AgreementCoefficient:
    """`tables`: one a cluster; the coefficient is of their sum."""
    if len(tables) == 0 or not np.isfinite(value := float(of(tables.sum(axis=0)))):
        return AgreementCoefficient(None, None)
    clusters = len(tables)
    drawn = np.random.default_rng(seed).multinomial(clusters, np.full(clusters, 1 / clusters), size=RESAMPLES)
    resampled = of(np.tensordot(drawn, tables, axes=1))
    low, high = np.quantile(resampled[np.isfinite(resampled)], [0.025, 0.975])
    return AgreementCoefficient(value, Interval(float(low), float(high)) if low < high else None)
