"""New orders for rankings, without new scores."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from epicrisis.partitioning import group_passages
from epicrisis.types import CountUnit, Hit, Passage, Ranking


def rank_in_order(passages: Sequence[Passage], retriever: str, parameters: Mapping[str, Any]) -> Ranking:
    """Return a ranking of passages in their given order. The scores, 1 / (rank + 1), only express the order."""
    hits: list[Hit] = []
    for rank, passage in enumerate(passages):
        hits.append(Hit(passage, 1.0 / (rank + 1), rank))
    return Ranking(tuple(hits), retriever, parameters)


def build_hits(scores: Iterable[tuple[Passage, float]]) -> tuple[Hit, ...]:
    """Return passages with their scores as hits, ranked in their given order."""
    return tuple(Hit(passage, score, rank) for rank, (passage, score) in enumerate(scores))


def move_worst_to_middle(ranking: Ranking, count: CountUnit = "passages") -> Ranking:
    """Return the ranking with the best document or passage first, the second best last, the third second, and so on.

    The worst ones are then in the middle, where a model is most likely to overlook them (Liu et al. 2023).
    """
    units = group_passages(ranking.passages, count)
    passages = list(itertools.chain.from_iterable((*units[::2], *units[1::2][::-1])))
    moved = rank_in_order(passages, f"{ranking.retriever}+ends", ranking.parameters)
    return replace(moved, notes=ranking.notes)
