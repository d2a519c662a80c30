"""What is counted where passages are read in order: documents or passages. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from epicrisis.types import CountUnit, Passage

PASSAGES_PER_DOCUMENT = 4
"""Passages read of one document, at most: an abstract has one to three of MiniLM's 254 tokens."""


def group_passages(passages: Sequence[Passage], count: CountUnit) -> list[tuple[Passage, ...]]:
    """Return what is counted, in order: the passages of each document that stand together, or each passage alone."""
    if count == "passages":
        return [(passage,) for passage in passages]
    return [tuple(group) for _, group in groupby(passages, key=lambda passage: passage.document_id)]


def partition_passages(passages: Sequence[Passage], size: int, count: CountUnit) -> list[tuple[Passage, ...]]:
    """Return the passages in their order, `size` documents or passages to a part.

    A document counts once for its first PASSAGES_A_DOCUMENT passages and again for each one beyond them.
    """
    parts: list[list[Passage]] = []
    filled = size
    for unit in group_passages(passages, count):
        beyond = [(passage,) for passage in unit[PASSAGES_PER_DOCUMENT:]]
        for piece in (unit[:PASSAGES_PER_DOCUMENT], *beyond):
            if filled == size:
                parts.append([])
                filled = 0
            parts[-1] += piece
            filled += 1
    return [tuple(part) for part in parts]


def split_in_half(part: Sequence[Passage], count: CountUnit) -> tuple[tuple[Passage, ...], tuple[Passage, ...]]:
    """Return both halves of at least two passages, divided between two documents where there are several."""
    counted = group_passages(part, count)
    middle = sum(map(len, counted[: len(counted) // 2])) or len(part) // 2
    return tuple(part[:middle]), tuple(part[middle:])
