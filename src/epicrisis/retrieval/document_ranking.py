"""Count a ranking of passages by document: the k best documents, each by its best passage. Pure; knows no store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from epicrisis.partitioning import PASSAGES_PER_DOCUMENT
from epicrisis.types import CountUnit, Hit, Ranking

_DEEPEST = 16
"""Times k passages are looked through for k documents, at most: a book can fill any number of places."""


def document_of(passage_id: str) -> str:
    """Return the id of the passage's document. An id without an ordinal is a document's own."""
    return passage_id.rpartition("#")[0] or passage_id


def pool_size(documents: Sequence[str], k: int) -> int:
    """Return how many of the best passages are looked through for `k` documents; `documents` are theirs, best first.

    It is PASSAGES_A_DOCUMENT times k, doubled until k documents are among them, and 16 times k at most.
    """
    size = k * PASSAGES_PER_DOCUMENT
    while size < k * _DEEPEST and size < len(documents) and len(set(documents[:size])) < k:
        size *= 2
    return min(size, k * _DEEPEST)


def deep_enough(rank: Callable[[int], Ranking], k: int, first: int | None = None) -> Ranking:
    """Return the best passages that `k` documents are chosen from, by `rank`, which gives the best so many.

    `first`: how many to begin with; PASSAGES_A_DOCUMENT times k unless it is given.
    """
    depth = first or k * PASSAGES_PER_DOCUMENT
    while True:
        ranking = rank(depth)
        documents = {hit.passage.document_id for hit in ranking.hits}
        if len(documents) >= k or len(ranking.hits) < depth or depth >= k * _DEEPEST:
            return ranking
        depth = min(2 * depth, k * _DEEPEST)


def reach(documents: Sequence[str], k: int) -> int:
    """Return how many of the best passages have `k` documents among them; `documents` are theirs, best first.

    Where fewer documents were found, it is as far as any search looks for them.
    """
    seen: set[str] = set()
    for place, document in enumerate(documents, 1):
        seen.add(document)
        if len(seen) == k:
            return place
    return max(k * _DEEPEST, len(documents))


def places_of(documents: Sequence[str], k: int) -> list[list[int]]:
    """Return the places of the passages that are read, for each of the first `k` documents; `documents` are those of
    the passages, best first.

    Of one document the best PASSAGES_A_DOCUMENT are read. Where there are fewer documents than k, the best passages
    beyond are read as well, until there are k passages: a single book is not read by four of them.
    """
    by_document: dict[str, list[int]] = {}
    for place, document in enumerate(documents):
        by_document.setdefault(document, []).append(place)
    names = list(by_document)[:k]
    chosen = {name: by_document[name][:PASSAGES_PER_DOCUMENT] for name in names}
    missing = k - sum(map(len, chosen.values())) if len(names) < k else 0
    beyond = sorted(place for name in names for place in by_document[name][PASSAGES_PER_DOCUMENT:])
    for place in beyond[: max(0, missing)]:
        chosen[documents[place]].append(place)
    return list(chosen.values())


def of_documents(ranking: Ranking, k: int) -> Ranking:
    """Return the first `k` documents of a ranking of passages, each in the place of its best passage.

    The passages of one document stand together in the order of its text, each with its own score. How many there were
    to choose from is among the parameters.
    """
    hits = ranking.hits
    groups = places_of([hit.passage.document_id for hit in hits], k)
    chosen = [[hits[place] for place in places] for places in groups]
    counted = {"k": k, "count": "documents", "documents": len(chosen), "passages_ranked": len(hits)}
    return replace(ranking, hits=_joined(chosen), parameters={**ranking.parameters, **counted})


def regrouped(ranking: Ranking, count: CountUnit) -> Ranking:
    """Return all hits, those of one document together in the place of its best one; as they are by passages."""
    if count == "passages":
        return ranking
    by_document: dict[str, list[Hit]] = {}
    for hit in ranking.hits:
        by_document.setdefault(hit.passage.document_id, []).append(hit)
    return replace(ranking, hits=_joined(list(by_document.values())))


def _joined(groups: Sequence[Sequence[Hit]]) -> tuple[Hit, ...]:
    in_text = [hit for group in groups for hit in sorted(group, key=lambda hit: hit.passage.ordinal)]
    return tuple(replace(hit, rank=rank) for rank, hit in enumerate(in_text))


def first(ranking: Ranking, k: int, count: CountUnit) -> Ranking:
    """Return the first `k` documents or passages of a ranking in which the passages of a document stand together."""
    hits = ranking.hits
    if count == "documents":
        names = set(list(dict.fromkeys(hit.passage.document_id for hit in hits))[:k])
        return replace(ranking, hits=tuple(hit for hit in hits if hit.passage.document_id in names))
    return replace(ranking, hits=hits[:k])


def by_document(scored: Sequence[tuple[str, float]]) -> list[tuple[str, float]]:
    """Return document ids with the score of their best passage, from passage ids with scores, best first."""
    best: dict[str, float] = {}
    for passage_id, score in scored:
        best.setdefault(document_of(passage_id), score)
    return list(best.items())
