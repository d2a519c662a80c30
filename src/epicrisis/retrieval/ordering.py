"""Rankings put in another order without being scored anew. Pure; knows nothing of what made them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from epicrisis.partitioning import group_passages
from epicrisis.types import CountUnit, Hit, Passage, Ranking


def in_order(passages: Sequence[Passage], retriever: str, parameters: Mapping[str, Any]) -> Ranking:
    """A ranking of these passages as they stand: its scores, 1 / (rank + 1), say no more than the order."""
    hits = tuple(Hit(passage, 1.0 / (rank + 1), rank) for rank, passage in enumerate(passages))
    return Ranking(hits, retriever, parameters)


def at_both_ends(ranking: Ranking, count: CountUnit = "passages") -> Ranking:
    """The best document or passage first, the second best last, the third second, and so on: the worst stand in the
    middle.

    The cheap remedy for a reader that loses the middle (Liu et al. 2023), as long as the ranking is right.
    """
    counted = group_passages(ranking.passages, count)
    moved = (*counted[::2], *counted[1::2][::-1])
    made = in_order([passage for unit in moved for passage in unit], f"{ranking.retriever}+ends", ranking.parameters)
    return replace(made, notes=ranking.notes)
