"""Group passages by document, divide them into partitions, and cut them at a gap in their scores."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

from epicrisis.core.types import CountUnit, Passage, Ranking

PASSAGES_PER_DOCUMENT = 4
"""The highest number of passages read of one document. An abstract has one to three of MiniLM's 254 tokens."""
BEFORE_GAP = "before_gap"
"""Parameter of a ranking: the ids of the passages before the largest gap in the scores."""


def group_passages(passages: Sequence[Passage], count: CountUnit) -> list[tuple[Passage, ...]]:
    """Return groups of one unit each, in order: consecutive passages of a document, or single passages."""
    if count == "passages":
        return [(passage,) for passage in passages]
    return [tuple(group) for _, group in itertools.groupby(passages, key=lambda passage: passage.document_id)]


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


def mark_largest_gap(ranking: Ranking, count: CountUnit) -> Ranking:
    """Return the ranking with the ids of the passages before the largest gap in the scores, for `take_before_gap`.

    The gap is between two documents or passages (adaptive-k, Taguchi et al. 2025, without their margin of 5). A
    document has the score of its best passage. Without a gap nothing is marked.
    """
    groups = group_passages(ranking.passages, count)
    score_of = {hit.passage.id: hit.score for hit in ranking.hits}
    scores = [max(score_of[passage.id] for passage in group) for group in groups]
    gaps = [high - low for high, low in itertools.pairwise(scores)]
    largest = max(gaps, default=0.0)
    if largest <= 0:
        return ranking
    n = gaps.index(largest) + 1
    ids = [passage.id for passage in itertools.chain(*groups[:n])]
    note = f"{n} of {len(groups)} {count} rank before the largest gap in the scores ({largest:.3g})"
    return replace(ranking, parameters={**ranking.parameters, BEFORE_GAP: ids}, notes=(*ranking.notes, note))


def take_before_gap(ranking: Ranking) -> Ranking:
    """Return the marked hits in the order of the ranking, or the ranking if none are marked."""
    ids = ranking.parameters.get(BEFORE_GAP)
    if ids is None:
        return ranking
    hits = [hit for hit in ranking.hits if hit.passage.id in ids]
    return replace(ranking, hits=tuple(replace(hit, rank=rank) for rank, hit in enumerate(hits)))
