"""Ranking metrics with the definitions of trec_eval: recall, precision, reciprocal rank, average precision, nDCG.

A ranking is a sequence of distinct ids, best first. Judgements are grades by id: above 0 is relevant, and an id without
a grade is not relevant. All metrics are None, never 0, if nothing is relevant. They raise ValueError if an id occurs
twice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

Judgements: TypeAlias = Mapping[str, int]
"""Grades by id: 1 for relevant if there are no degrees."""


def recall_at_k(ranked: Sequence[str], grades_by_id: Judgements, k: int) -> float | None:
    """Return the share of the relevant ids among the first k."""
    relevant = _relevant(ranked, grades_by_id)
    return len(relevant.intersection(ranked[:k])) / len(relevant) if relevant else None


def precision_at_k(ranked: Sequence[str], grades_by_id: Judgements, k: int) -> float | None:
    """Return the number of relevant ids among the first k, divided by k even if the ranking is shorter."""
    relevant = _relevant(ranked, grades_by_id)
    return len(relevant.intersection(ranked[:k])) / k if relevant else None


def reciprocal_rank(ranked: Sequence[str], grades_by_id: Judgements) -> float | None:
    """Return 1 / rank of the first relevant id, ranks from 1; 0 if none is ranked."""
    relevant = _relevant(ranked, grades_by_id)
    if not relevant:
        return None
    for rank, id_ in enumerate(ranked, 1):
        if id_ in relevant:
            return 1 / rank
    return 0.0


def average_precision(ranked: Sequence[str], grades_by_id: Judgements) -> float | None:
    """Return the mean, over all relevant ids, of the precision at their rank; 0 for an id that is not ranked."""
    relevant = _relevant(ranked, grades_by_id)
    ranks = [rank for rank, id_ in enumerate(ranked, 1) if id_ in relevant]
    return sum(count / rank for count, rank in enumerate(ranks, 1)) / len(relevant) if relevant else None


def ndcg_at_k(ranked: Sequence[str], grades_by_id: Judgements, k: int) -> float | None:
    """Return the normalized discounted cumulative gain (Järvelin and Kekäläinen 2002).

    The gain is the grade, discounted by the binary logarithm of rank + 1, divided by that of the ideal ranking.
    """
    relevant = _relevant(ranked, grades_by_id)
    ideal = sorted((grades_by_id[item] for item in relevant), reverse=True)[:k]
    gain = _discount([grades_by_id[id_] if id_ in relevant else 0 for id_ in ranked[:k]])
    return gain / _discount(ideal) if relevant else None


def _relevant(ranked: Sequence[str], grades_by_id: Judgements) -> frozenset[str]:
    if len(set(ranked)) < len(ranked):
        raise ValueError("an id occurs twice in the ranking, and would count twice")
    return frozenset(id_ for id_, grade in grades_by_id.items() if grade > 0)


def _discount(grades: Sequence[int]) -> float:
    return sum(grade / math.log2(rank + 1) for rank, grade in enumerate(grades, 1))
