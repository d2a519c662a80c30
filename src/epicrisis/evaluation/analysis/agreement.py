"""Agreement of raters: raw agreement, Cohen's kappa (1960) and Krippendorff's alpha for nominal data (Computing
Krippendorff's Alpha-Reliability, 2011)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count, permutations, starmap
from operator import eq
from statistics import fmean
from typing import TypeVar

import numpy as np

from epicrisis.evaluation.analysis.statistics import Floats, Interval, Mean, divide, estimate_mean
from epicrisis.evaluation.analysis.table import Cell, Table

RESAMPLES = 2000

U = TypeVar("U", bound=Hashable)


@dataclass(frozen=True, slots=True)
class AgreementCoefficient:
    """A coefficient: 1 is full agreement, 0 agreement by chance. None if all ratings are the same."""

    value: float | None
    interval: Interval | None
    """95 %, by a bootstrap of the clusters. None if every resample gives the same value."""


@dataclass(frozen=True, slots=True)
class RaterAgreement:
    """Agreement over the units with at least two ratings."""

    raters: int
    units: int
    raw: Mean
    """The mean, over the units, of the share of rater pairs with the same rating."""
    kappa: AgreementCoefficient | None
    """None for more than two raters."""
    alpha: AgreementCoefficient


def measure_agreement(
    raters: Sequence[Mapping[U, Hashable]], seed: int = 0, clusters: Mapping[U, Hashable] | None = None
) -> RaterAgreement:
    """Return the agreement of raters, each a mapping of units to ratings; units may be missing.

    `clusters` maps a unit to its cluster (its question) for resampling; by default each unit is its own. Raises
    ValueError for fewer than two raters.
    """
    if len(raters) < 2:
        raise ValueError("agreement needs at least two raters")
    ratings: dict[U, list[Hashable]] = {}
    for unit in dict.fromkeys(chain.from_iterable(raters)):
        values = [rater[unit] for rater in raters if unit in rater]
        if len(values) > 1:
            ratings[unit] = values
    groups: list[Hashable] = list(ratings if clusters is None else (clusters[rating] for rating in ratings))
    group_numbers = _number(groups)
    category_numbers = _number(chain.from_iterable(ratings.values()))
    raw: list[float] = []
    # A table `(c, c)` for each cluster: the first rater's categories by the second's, and the coincidences, in which
    # every ordered pair of the m ratings of a unit counts 1 / (m - 1).
    contingencies = np.zeros((len(group_numbers), len(category_numbers), len(category_numbers)))
    coincidences = contingencies.copy()
    for group, values in zip(groups, ratings.values(), strict=True):
        numbers = [category_numbers[value] for value in values]
        contingencies[group_numbers[group], numbers[0], numbers[1]] += 1
        table = np.zeros(coincidences.shape[1:])
        for first, second in permutations(numbers, 2):
            table[first, second] += 1 / (len(numbers) - 1)
        coincidences[group_numbers[group]] += table
        raw.append(fmean(starmap(eq, permutations(numbers, 2))))
    return RaterAgreement(
        raters=len(raters),
        units=len(ratings),
        raw=estimate_mean(raw, None if len(group_numbers) == len(groups) else groups, seed=seed),
        kappa=_estimate(contingencies, cohens_kappa, seed) if len(raters) == 2 else None,
        alpha=_estimate(coincidences, krippendorffs_alpha, seed),
    )


def make_agreement_table(
    agreements: Iterable[tuple[str, str, RaterAgreement]], units: str, notes: tuple[str, ...]
) -> Table:
    """Return a table with a row for each (model, names of the judges, agreement). `units` names what they judged."""
    rows: list[tuple[Cell, ...]] = []
    for model, judges, agreement in agreements:
        raw = agreement.raw if agreement.units else None
        kappa = agreement.kappa or AgreementCoefficient(None, None)
        coefficients = (kappa.value, kappa.interval, agreement.alpha.value, agreement.alpha.interval)
        rows.append((model, judges, agreement.raters, agreement.units, raw, *coefficients))
    coefficient_columns = ("Cohen's kappa", "kappa interval", "Krippendorff's alpha", "alpha interval")
    columns = ("model", "judges", "n judges", units, "agreement", *coefficient_columns)
    return Table("How far the judges agree", columns, tuple(rows), notes)


def describe_agreement(table: Table, phrase: str) -> Iterator[str]:
    """Yield a sentence for each row of an agreement table. `phrase`, such as `agree on`, precedes the share."""
    units = table.columns[3]
    for model, judges, _, n, raw, _, _, alpha, _ in table.rows:
        if isinstance(raw, Mean):
            coefficient = "not defined" if alpha is None else f"{alpha:.2f}"
            share = f"{100 * raw.value:.1f} % of {n} {units}"
            yield f"{model}: {judges} {phrase} {share} (Krippendorff's alpha {coefficient})."


def cohens_kappa(tables: Floats) -> Floats:
    """Return Cohen's kappa of each table `(..., c, c)`, first rater by second; NaN if it is not defined."""
    total = tables.sum(axis=(-2, -1))
    observed = np.trace(tables, axis1=-2, axis2=-1) * total
    expected = (tables.sum(axis=-1) * tables.sum(axis=-2)).sum(axis=-1)
    return divide(observed - expected, total**2 - expected, 1e-9)


def krippendorffs_alpha(tables: Floats) -> Floats:
    """Return Krippendorff's alpha of each table of coincidences `(..., c, c)`; NaN if it is not defined."""
    values = tables.sum(axis=-1)
    n = values.sum(axis=-1)
    observed = n - np.trace(tables, axis1=-2, axis2=-1)
    expected = n**2 - (values**2).sum(axis=-1)
    return 1 - divide((n - 1) * observed, expected, 1e-9)


def _number(values: Iterable[Hashable]) -> dict[Hashable, int]:
    """Return the place of each distinct value."""
    return dict(zip(dict.fromkeys(values), count(), strict=False))


def _estimate(tables: Floats, coefficient: Callable[[Floats], Floats], seed: int) -> AgreementCoefficient:
    """Return the coefficient of the sum of the clusters' tables, with its bootstrap interval."""
    if len(tables) == 0:
        return AgreementCoefficient(None, None)
    value = float(coefficient(tables.sum(axis=0)))
    if not np.isfinite(value):
        return AgreementCoefficient(None, None)
    clusters = len(tables)
    weights = np.random.default_rng(seed).multinomial(clusters, np.full(clusters, 1 / clusters), size=RESAMPLES)
    resampled = coefficient(np.tensordot(weights, tables, axes=1))
    low, high = np.quantile(resampled[np.isfinite(resampled)], [0.025, 0.975])
    return AgreementCoefficient(value, Interval(float(low), float(high)) if low < high else None)
