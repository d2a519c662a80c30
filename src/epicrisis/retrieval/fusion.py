"""Reciprocal rank fusion. Pure arithmetic; knows nothing of what made the rankings."""

from __future__ import annotations

from collections.abc import Sequence


def reciprocal_rank_fusion(rankings: Sequence[Sequence[str]], k: int = 60) -> list[tuple[str, float]]:
    """Ids with their fused score, best first, ties by id: the sum of 1 / (k + rank) over the rankings, rank from 1.

    Cormack, Clarke and Buettcher, SIGIR 2009. An id that a ranking lacks gets nothing from it.
    """
    scores: dict[str, float] = {}
    for ranking in rankings:
        for rank, item in enumerate(ranking, 1):
            scores[item] = scores.get(item, 0.0) + 1.0 / (k + rank)
    return sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))
