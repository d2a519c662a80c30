"""Rankings: their construction from scores and other rankings, new orders, and their documents.

A ranking of passages can be counted by document: the k best documents, each in the place of its best passage.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from epicrisis.core.partitioning import PASSAGES_PER_DOCUMENT, group_passages
from epicrisis.core.protocols import Reranker, SparseEncoder
from epicrisis.core.types import CountUnit, Hit, Passage, Ranking

MAX_DEPTH = 16
"""At most this many times k passages are searched for k documents, because a book can fill any number of places."""


def rank_in_order(passages: Sequence[Passage], retriever: str, parameters: Mapping[str, Any]) -> Ranking:
    """Return a ranking of passages in their given order. The scores, 1 / (rank + 1), only express the order."""
    hits = build_hits((passage, 1.0 / place) for place, passage in enumerate(passages, 1))
    return Ranking(hits, retriever, parameters)


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
    return replace(moved, notes=ranking.notes, tops=ranking.tops)


def reciprocal_rank_fusion(rankings: Sequence[Sequence[str]], k: int = 60) -> list[tuple[str, float]]:
    """Return ids with their score of reciprocal rank fusion, best first, ties by id.

    The score is the sum of 1 / (k + rank) over the rankings that contain the id, with ranks from 1 (Cormack, Clarke
    and Buettcher, SIGIR 2009).
    """
    scores: dict[str, float] = defaultdict(float)
    for ranking in rankings:
        for rank, item in enumerate(ranking, 1):
            scores[item] += 1.0 / (k + rank)
    return sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))


def keep_first(
    fused: Sequence[tuple[str, float]], rankings: Sequence[Sequence[str]], place: int
) -> list[tuple[str, float]]:
    """Return a fusion in which the first of each ranking is at `place` at the latest, or behind others moved there.

    It has the score of that place.

    A document that one search has first and the other does not know falls far behind those that both know a little.
    """
    order = list(fused)
    for ranking in rankings:
        index = next((index for index, (id_, _) in enumerate(order) if ranking and id_ == ranking[0]), 0)
        if index >= place:
            order.insert(place - 1, (order.pop(index)[0], order[place - 1][1]))
    return order


def rerank(ranking: Ranking, query: str, reranker: Reranker, name: str, k: int) -> Ranking:
    """Return the best `k` passages of a ranking by their scores against the query.

    An error of the reranker is raised, never replaced by the original order.
    """
    passages = ranking.passages
    texts = list(map(format_for_reranker, passages))
    scores = reranker.score(query, texts)
    ordered = sorted(zip(passages, scores.tolist(), strict=True), key=lambda pair: (-pair[1], pair[0].id))
    return Ranking(
        hits=build_hits(ordered[:k]),
        retriever=f"{ranking.retriever}+{name}",
        parameters={**ranking.parameters, "k": k, "reranker": name, "rerank_depth": len(passages)},
        notes=(*ranking.notes, *reranker.notes(query, texts)),
        tops=ranking.tops,
    )


def format_for_reranker(passage: Passage) -> str:
    """Return title and text as two sentences, the form of articles in the model card of MedCPT's cross-encoder."""
    if not passage.title:
        return passage.text
    end = "" if passage.title.endswith((".", "?", "!")) else "."
    return f"{passage.title}{end} {passage.text}"


def rank_by_sparse_vectors(query: str, passages: Sequence[Passage], encoder: SparseEncoder, k: int) -> Ranking:
    """Return the best `k` passages by the inner product of their weights with the query's, in memory without an index.

    This is the EHR study's alternative to BM25 (its Table 8). Passages without a word of the query are no
    hits. Raises ContextOverflow if a passage exceeds the encoder's window.
    """
    (query_weights,) = encoder.encode_queries([query])
    vectors = encoder.encode_passages([passage.text for passage in passages])
    scored: list[tuple[Passage, float]] = []
    for passage, weights in zip(passages, vectors, strict=True):
        score = sum(weight * weights.get(word, 0.0) for word, weight in query_weights.items())
        if score > 0:
            scored.append((passage, score))
    scored.sort(key=lambda pair: (-pair[1], pair[0].id))
    hits = build_hits(scored[:k])
    return Ranking(hits, "splade", {"k": k, "encoder": encoder.name})


def parse_document_id(passage_id: str) -> str:
    """Return the document id in a passage id. An id without an ordinal is a document's own."""
    return passage_id.rpartition("#")[0] or passage_id


def parse_ordinal(passage_id: str) -> int:
    """Return the ordinal in a passage id."""
    return int(passage_id.rpartition("#")[2])


def choose_pool_size(documents: Sequence[str], k: int) -> int:
    """Return how many of the best passages to search for `k` documents.

    `documents` are the document ids of the passages, best first. The size is PASSAGES_PER_DOCUMENT times k, doubled
    until the passages are of k documents, and at most 16 times k.
    """
    size = k * PASSAGES_PER_DOCUMENT
    while size < k * MAX_DEPTH and size < len(documents) and len(set(documents[:size])) < k:
        size *= 2
    return min(size, k * MAX_DEPTH)


def find_document_depth(documents: Sequence[str], k: int) -> int:
    """Return how many of the best passages include `k` documents, given the document ids of the passages.

    With fewer documents, return the depth to which any search looks for them.
    """
    distinct: set[str] = set()
    for place, document in enumerate(documents, 1):
        distinct.add(document)
        if len(distinct) == k:
            return place
    return max(k * MAX_DEPTH, len(documents))


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
    """Return the first `k` documents, each in the place of its best passage, with their passages in text order."""
    hits = ranking.hits
    groups = [[hits[place] for place in places] for places in select_places(ranking.document_ids, k)]
    counts = {"k": k, "count": "documents", "documents": len(groups), "passages_ranked": len(hits)}
    return replace(ranking, hits=_join_groups(groups), parameters={**ranking.parameters, **counts})


def group_by_document(ranking: Ranking, count: CountUnit) -> Ranking:
    """Return all hits, if documents are counted with those of one document in the place of its best one."""
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
    """Return the first `k` passages of a ranking, or all its passages of the first `k` documents."""
    if count == "passages":
        return replace(ranking, hits=ranking.hits[:k])
    first = list(dict.fromkeys(ranking.document_ids))[:k]
    return replace(ranking, hits=tuple(filter(lambda hit: hit.passage.document_id in first, ranking.hits)))


def score_documents(scored: Sequence[tuple[str, float]]) -> list[tuple[str, float]]:
    """Return document ids with the score of their best passage, from passage ids with scores, best first."""
    best: dict[str, float] = {}
    for passage_id, score in scored:
        best.setdefault(parse_document_id(passage_id), score)
    return list(best.items())
