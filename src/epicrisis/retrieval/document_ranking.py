"""Rankings of passages counted by document: the k best documents, each in the place of its best passage."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace

from epicrisis.partitioning import PASSAGES_PER_DOCUMENT
from epicrisis.types import CountUnit, Hit, Ranking

_MAX_DEPTH = 16
"""At most this many times k passages are searched for k documents, because a book can fill any number of places."""


def parse_document_id(passage_id: str) -> str:
    """Return the document id in a passage id. An id without an ordinal is a document's own."""
    return passage_id.rpartition("#")[0] or passage_id


def choose_pool_size(documents: Sequence[str], k: int) -> int:
    """Return how many of the best passages to search for `k` documents.

    `documents` are the document ids of the passages, best first. The size is PASSAGES_PER_DOCUMENT times k, doubled
    until the passages are of k documents, and at most 16 times k.
    """
    size = k * PASSAGES_PER_DOCUMENT
    while size < k * _MAX_DEPTH and size < len(documents) and len(set(documents[:size])) < k:
        size *= 2
    return min(size, k * _MAX_DEPTH)


def rank_for_documents(rank: Callable[[int], Ranking], k: int, depth: int | None = None) -> Ranking:
    """Return a ranking of passages from which to choose `k` documents.

    `rank` returns the given number of best passages, and `depth` is the number to begin with, by default
    PASSAGES_PER_DOCUMENT times k.
    """
    depth = depth or k * PASSAGES_PER_DOCUMENT
    while True:
        ranking = rank(depth)
        documents = {hit.passage.document_id for hit in ranking.hits}
        if len(documents) >= k or len(ranking.hits) < depth or depth >= k * _MAX_DEPTH:
            return ranking
        depth = min(2 * depth, k * _MAX_DEPTH)


def find_document_depth(documents: Sequence[str], k: int) -> int:
    """Return how many of the best passages include `k` documents, given the document ids of the passages.

    With fewer documents, return the depth to which any search looks for them.
    """
    distinct: set[str] = set()
    for place, document in enumerate(documents, 1):
        distinct.add(document)
        if len(distinct) == k:
            return place
    return max(k * _MAX_DEPTH, len(documents))


def select_places(documents: Sequence[str], k: int) -> list[list[int]]:
    """Return the places of the passages to read for each of the first `k` documents.

    `documents` are the document ids of the passages, best first. The best PASSAGES_PER_DOCUMENT passages of each
    document are read. With fewer than k documents, the next best passages are read too, up to k passages in total, so
    that a single book gives more than four of them.
    """
    by_document: dict[str, list[int]] = defaultdict(list)
    for place, document in enumerate(documents):
        by_document[document].append(place)
    selected: dict[str, list[int]] = {}
    others: list[int] = []
    for name in list(by_document)[:k]:
        selected[name] = by_document[name][:PASSAGES_PER_DOCUMENT]
        others += by_document[name][PASSAGES_PER_DOCUMENT:]
    missing = k - sum(map(len, selected.values())) if len(selected) < k else 0
    for place in sorted(others)[: max(0, missing)]:
        selected[documents[place]].append(place)
    return list(selected.values())


def select_documents(ranking: Ranking, k: int) -> Ranking:
    """Return the first `k` documents of a ranking of passages, each in the place of its best passage.

    The passages of one document are together in the order of its text, each with its own score. The parameters record
    the number of passages that were ranked.
    """
    hits = ranking.hits
    groups: list[list[Hit]] = []
    for places in select_places([hit.passage.document_id for hit in hits], k):
        groups.append(list(map(hits.__getitem__, places)))
    counts = {"k": k, "count": "documents", "documents": len(groups), "passages_ranked": len(hits)}
    return replace(ranking, hits=_join_groups(groups), parameters={**ranking.parameters, **counts})


def group_by_document(ranking: Ranking, count: CountUnit) -> Ranking:
    """Return all hits with those of one document together in the place of its best one.

    If passages are counted, return the ranking unchanged.
    """
    if count == "passages":
        return ranking
    by_document: dict[str, list[Hit]] = defaultdict(list)
    for hit in ranking.hits:
        by_document[hit.passage.document_id].append(hit)
    return replace(ranking, hits=_join_groups(list(by_document.values())))


def _join_groups(groups: Sequence[Sequence[Hit]]) -> tuple[Hit, ...]:
    hits: list[Hit] = []
    for group in groups:
        for hit in sorted(group, key=lambda hit: hit.passage.ordinal):
            hits.append(replace(hit, rank=len(hits)))
    return tuple(hits)


def take_first(ranking: Ranking, k: int, count: CountUnit) -> Ranking:
    """Return the first `k` documents or passages of a ranking in which the passages of a document are together."""
    hits = ranking.hits
    if count == "passages":
        return replace(ranking, hits=hits[:k])
    documents: dict[str, list[Hit]] = {}
    for hit in hits:
        documents.setdefault(hit.passage.document_id, []).append(hit)
    first = itertools.islice(documents.values(), k)
    return replace(ranking, hits=tuple(itertools.chain.from_iterable(first)))


def score_documents(scored: Sequence[tuple[str, float]]) -> list[tuple[str, float]]:
    """Return document ids with the score of their best passage, from passage ids with scores, best first."""
    best: dict[str, float] = {}
    for passage_id, score in scored:
        best.setdefault(parse_document_id(passage_id), score)
    return list(best.items())
