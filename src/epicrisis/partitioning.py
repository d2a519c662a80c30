"""Group passages by document, and divide them into partitions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from epicrisis.types import CountUnit, Passage

PASSAGES_PER_DOCUMENT = 4
"""The highest number of passages read of one document. An abstract has one to three of MiniLM's 254 tokens."""


def group_passages(passages: Sequence[Passage], count: CountUnit) -> list[tuple[Passage, ...]]:
    """Return groups of one unit each, in order: consecutive passages of a document, or single passages."""
    if count == "passages":
        return [(passage,) for passage in passages]
    return [tuple(group) for _, group in groupby(passages, key=lambda passage: passage.document_id)]


def partition_passages(passages: Sequence[Passage], size: int, count: CountUnit) -> list[tuple[Passage, ...]]:
    """Return partitions of `size` documents or passages each, in order.

    A document counts once for its first PASSAGES_PER_DOCUMENT passages, and once for each further passage.
    """
    partitions: list[list[Passage]] = []
    filled = size
    for group in group_passages(passages, count):
        further = [(passage,) for passage in group[PASSAGES_PER_DOCUMENT:]]
        for piece in (group[:PASSAGES_PER_DOCUMENT], *further):
            if filled == size:
                partitions.append([])
                filled = 0
            partitions[-1] += piece
            filled += 1
    return list(map(tuple, partitions))


def split_in_half(passages: Sequence[Passage], count: CountUnit) -> tuple[tuple[Passage, ...], tuple[Passage, ...]]:
    """Return both halves of at least two passages. Several documents are split between two documents."""
    groups = group_passages(passages, count)
    middle = sum(map(len, groups[: len(groups) // 2])) or len(passages) // 2
    return tuple(passages[:middle]), tuple(passages[middle:])
