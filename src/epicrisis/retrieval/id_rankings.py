"""Rankings of passage ids: searches return ids, fusion compares ids, and only the result is fetched."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace

from epicrisis.core.partitioning import PASSAGES_PER_DOCUMENT
from epicrisis.core.printable import agree, count_noun
from epicrisis.core.protocols import Encoder, PassageStore, ScoredId, Vectors
from epicrisis.core.types import CountUnit, Metadata, Passage, Ranking, Scope, SearchTops
from epicrisis.retrieval.rankings import (
    MAX_DEPTH,
    build_hits,
    parse_document_id,
    parse_ordinal,
    reciprocal_rank_fusion,
    select_places,
)
from epicrisis.system.telemetry import Step, span

TOP_DOCUMENTS = 10
"""How many documents of each search of a hybrid one are kept for the reader."""


@dataclass(frozen=True, slots=True)
class SearchableStore:
    """A store and the encoder of its vectors. Without an encoder, only words are searched."""

    store: PassageStore
    encoder: Encoder | None
    name: str = ""
    """If given, the source of hits without a source."""


@dataclass(frozen=True, slots=True, eq=False)
class ScopedStore:
    """A store and the scope of one search in it."""

    searchable: SearchableStore
    scope: Scope

    def search_words(self, text: str, k: int) -> IdRanking:
        """Return the best `k` passages by BM25."""
        store = self.searchable.store
        with self._trace("search words", k):
            return self._rank(lambda scope: store.search_words(text, k, scope), "bm25", {"k": k})

    def search_words_within(self, text: str, passage_ids: Sequence[str]) -> IdRanking:
        """Return those of these passages that share a word with the text, by BM25."""
        with self._trace("search words", len(passage_ids)):
            hits = self.searchable.store.search_words(text, len(passage_ids), self.scope, within=passage_ids)
        return self._build(hits, "bm25", {})

    def search_vectors(self, vector: Vectors, k: int, parameters: Metadata) -> IdRanking:
        """Return the `k` nearest passages in a ranking with these parameters."""
        store = self.searchable.store
        with self._trace("search vectors", k):
            ranking = self._rank(lambda scope: store.search_vectors(vector, k, scope), "dense", parameters)
        return replace(ranking, similarity=ranking.scores[0][1] if ranking.scores else None)

    def _trace(self, name: str, k: int) -> AbstractContextManager[Step]:
        """Return the span of a search in this store, or of reading `k` passages from it."""
        return span(name, {"epicrisis.store": type(self.searchable.store).__name__, "epicrisis.k": k})

    def _rank(self, search: Callable[[Scope], tuple[ScoredId, ...]], retriever: str, parameters: Metadata) -> IdRanking:
        """Return the passages of the scope, and the withheld retracted documents, with their ranks.

        The first search includes retracted documents. If it finds none, its passages are the result.
        """
        hits = search(replace(self.scope, without_retracted=False))
        withheld: dict[str, int] = {}
        for rank, hit in enumerate(hits if self.scope.without_retracted else ()):
            if hit.is_retracted:
                withheld.setdefault(parse_document_id(hit.id), rank)
        if withheld:
            hits = search(self.scope)
        return replace(self._build(hits, retriever, parameters), withheld=withheld)

    def _build(self, hits: Sequence[ScoredId], retriever: str, parameters: Metadata) -> IdRanking:
        return self.adopt(tuple((hit.id, hit.score) for hit in hits), retriever, parameters)

    def adopt(self, scores: Sequence[tuple[str, float]], retriever: str, parameters: Metadata) -> IdRanking:
        """Return a ranking of passages of this store."""
        return IdRanking(
            scores=tuple(scores),
            retriever=retriever,
            origins=dict.fromkeys((id_ for id_, _ in scores), self),
            parameters=parameters,
        )

    def fetch(self, passage_ids: Sequence[str]) -> dict[str, Passage]:
        """Map the ids of the existing passages of the scope to the passages."""
        passages = {}
        with self._trace("fetch passages", len(passage_ids)):
            fetched = self.searchable.store.fetch(passage_ids, self.scope)
        for passage in fetched:
            passages[passage.id] = replace(passage, source=passage.source or self.searchable.name)
        return passages


@dataclass(frozen=True, slots=True)
class TopDocuments:
    """The first documents of the search by meaning and of the search by words, before a hybrid search fused them."""

    dense: tuple[str, ...]
    """Document ids, best first."""
    bm25: tuple[str, ...]
    passage_ids: Mapping[str, str]
    """The best passage of each document, by document id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IdRanking:
    """A ranking before its passages are fetched."""

    scores: tuple[tuple[str, float], ...]
    """Passage ids with their scores, best first. Ties are ordered by passage id."""
    retriever: str
    origins: Mapping[str, ScopedStore]
    """The store that has the passage, by passage id."""
    parameters: Metadata = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    withheld: Mapping[str, int] = field(default_factory=dict)
    """Retracted documents that were left out, with their best rank."""
    tops: TopDocuments | None = None
    similarity: float | None = None
    """Of the question and the nearest passage, in the unit of the encoder. None for a search by words."""

    @property
    def ids(self) -> tuple[str, ...]:
        """The passage ids in order."""
        return tuple(passage_id for passage_id, _ in self.scores)

    @property
    def document_ids(self) -> tuple[str, ...]:
        """The document id of each passage."""
        return tuple(parse_document_id(passage_id) for passage_id, _ in self.scores)

    def take_first(self, k: int, count: CountUnit) -> IdRanking:
        """Return the first `k` passages, or all passages of the first `k` documents."""
        if count == "passages":
            return replace(self, scores=self.scores[:k])
        first = set(list(dict.fromkeys(self.document_ids))[:k])
        return replace(self, scores=tuple(pair for pair in self.scores if parse_document_id(pair[0]) in first))

    def select_documents(self, k: int) -> IdRanking:
        """Return the first `k` documents, each in the place of its best passage, with their passages in text order."""
        scores: list[tuple[str, float]] = []
        selection = select_places(self.document_ids, k)
        for places in selection:
            scores += sorted((self.scores[place] for place in places), key=lambda pair: parse_ordinal(pair[0]))
        counts = {"k": k, "count": "documents", "documents": len(selection), "passages_ranked": len(self.scores)}
        return replace(self, scores=tuple(scores), parameters={**self.parameters, **counts})

    def fetch(self) -> Ranking:
        """Return the ranking with its passages. Those that the store does not return are left out, with a note."""
        titled = {} if self.tops is None else self.tops.passage_ids
        ids_by_store: dict[ScopedStore, list[str]] = defaultdict(list)
        for passage_id in dict.fromkeys((*self.ids, *titled.values())):
            ids_by_store[self.origins[passage_id]].append(passage_id)
        passages: dict[str, Passage] = {}
        for store, passage_ids in ids_by_store.items():
            passages |= store.fetch(passage_ids)
        present = [(passages[passage_id], score) for passage_id, score in self.scores if passage_id in passages]
        notes = self.notes
        if missing := len(self.scores) - len(present):
            was = agree(missing, "was", "were")
            found = f"{count_noun(missing, 'passage')} that the search found {was} left out"
            notes += (f"{found}: deleted since, or outside the patient and dates of this question",)
        tops = None
        if self.tops is not None:
            titles = {}
            for document_id, passage_id in titled.items():
                titles[document_id] = passages[passage_id].title if passage_id in passages else ""
            tops = SearchTops(self.tops.dense, self.tops.bm25, titles, self.similarity)
        return Ranking(build_hits(present), self.retriever, self.parameters, notes, tops)


def rank_for_documents(rank: Callable[[int], IdRanking], k: int, depth: int | None = None) -> IdRanking:
    """Return a ranking of passages from which to choose `k` documents, beginning with the `depth` best passages."""
    depth = depth or k * PASSAGES_PER_DOCUMENT
    while True:
        ranking = rank(depth)
        if len(set(ranking.document_ids)) >= k or len(ranking.scores) < depth or depth >= k * MAX_DEPTH:
            return ranking
        depth = min(2 * depth, k * MAX_DEPTH)


def list_tops(rankings: Iterable[IdRanking]) -> TopDocuments:
    """Return the first TOP_DOCUMENTS documents by vectors and by words. Several rankings of one kind are fused."""
    passage_ids: dict[str, str] = {}
    documents: dict[bool, list[list[str]]] = {True: [], False: []}
    for ranking in rankings:
        document_ids = ranking.document_ids
        documents[ranking.retriever == "bm25"].append(list(dict.fromkeys(document_ids)))
        for document_id, passage_id in zip(document_ids, ranking.ids, strict=True):
            passage_ids.setdefault(document_id, passage_id)
    dense, bm25 = (_fuse_documents(documents[by_words]) for by_words in (False, True))
    return TopDocuments(dense, bm25, {id_: passage_ids[id_] for id_ in dict.fromkeys((*dense, *bm25))})


def _fuse_documents(rankings: Sequence[Sequence[str]]) -> tuple[str, ...]:
    fused = reciprocal_rank_fusion(rankings)[:TOP_DOCUMENTS]
    return tuple(document_id for document_id, _ in fused)
