"""The passages of an experiment, as functions: for tests, or those of a real library.

All calls are synchronous, because cases are built before the first question is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from epicrisis.core.errors import InputError
from epicrisis.core.partitioning import PASSAGES_PER_DOCUMENT
from epicrisis.core.protocols import Reranker, fetch_all
from epicrisis.core.types import CountUnit, Hit, Passage, Question, Ranking, Scope, SearchMode, SentenceRanking
from epicrisis.evaluation.experiments.vector_memory import RememberingEncoder
from epicrisis.library.passage_lookup import read_document_passages, sample_passages
from epicrisis.pipeline import evidence_selection
from epicrisis.pipeline.components import LibrarySearch, build_scope
from epicrisis.retrieval.candidate_words import score_candidates
from epicrisis.retrieval.preflight import ScoredIds
from epicrisis.settings.settings import Settings

WordStatistics: TypeAlias = Literal["library", "candidates"]
"""Where BM25 over found passages takes its statistics from (errata C6)."""

POOL = 2000
"""Passages in the pool of random distractors; a smaller library gives all of its passages."""


@dataclass(frozen=True, slots=True)
class PassageSource:
    """The searches and lookups that build the cases of an experiment."""

    retrieve: Callable[[Question, int], Ranking]
    """Return that many documents or passages for the question, best first."""
    gold_passages: Callable[[Question], Mapping[str, tuple[Passage, ...]]]
    """Return the passages of each gold document of the question; absent documents are left out."""
    words: Callable[[Question, Sequence[str]], ScoredIds] | None = None
    """Score these passage ids by BM25; passages without a common word may be left out."""
    fused: Callable[[Question, int], Ranking] | None = None
    """Return that many for the question by all retrievers, fused."""
    reranker: tuple[str, Reranker] | None = None
    """A reranker with its name."""
    pool: Callable[[], Sequence[Passage]] | None = None
    """Return random documents or passages of the whole library, the passages of a document together."""
    rrf_k: int = 60
    count: CountUnit = "documents"
    """The unit of k."""
    rank_passages: Callable[[Question, int], Ranking] | None = None
    """Return that many passages for the question, best first. A question with the place of its evidence is about its
    documents: then all their passages are ranked, and no others."""
    rank_sentences: Callable[[Question, Ranking, int], SentenceRanking] | None = None
    """Return that many sentences of the ranking, best first."""


def rank_candidates(question: Question, passages: Sequence[Passage]) -> ScoredIds:
    """Return the passages with their scores by the BM25 of the notebooks, best first (errata C6).

    The text of a passage is its title, a blank and its text. All passages are ranked; those with equal scores keep
    their order.
    """
    texts = [f"{passage.title} {passage.text}" if passage.title else passage.text for passage in passages]
    scores = score_candidates(question.text, texts)
    scored = [(passage.id, score) for passage, score in zip(passages, scores, strict=True)]
    return sorted(scored, key=lambda item: item[1], reverse=True)


def no_source() -> PassageSource:
    """Return the source of experiments that read no library."""

    def refuse(*_: Any) -> Any:
        raise InputError("this experiment reads no library of passages")

    return PassageSource(retrieve=refuse, gold_passages=refuse)


def library_source(
    library_search: LibrarySearch,
    settings: Settings,
    by: SearchMode,
    *,
    reranker: tuple[str, Reranker] | None = None,
    seed: int = 0,
    count: CountUnit | None = None,
    word_statistics: WordStatistics = "library",
) -> PassageSource:
    """Return the open library as a source.

    `reranker` serves the arm `reranked`; a reranker of the settings is part of every search. `count` overrides the unit
    of the settings. `word_statistics` says where BM25 over passages that were found takes its statistics from.
    """
    unit = count or settings.count_unit()

    # Thousands of questions are in memory before the first is asked: a passage that many of them find is stored once.
    passages_by_id: dict[str, Passage] = {}

    def scope(question: Question) -> Scope:
        return build_scope(settings.scope, question=question)

    def rank(question: Question, k: int, by: SearchMode) -> Ranking:
        ranking = library_search.retriever.search(question.text, k, by, scope(question), unit)
        hits = (replace(hit, passage=passages_by_id.setdefault(hit.passage.id, hit.passage)) for hit in ranking.hits)
        return replace(ranking, hits=tuple(hits))

    encoder = library_search.retriever.encoder
    remembering = None if encoder is None else RememberingEncoder(encoder)

    def rank_passages(question: Question, k: int) -> Ranking:
        if not question.evidence or remembering is None:
            ranking = library_search.retriever.rank(question.text, k, by, scope(question))
            hits = (
                replace(hit, passage=passages_by_id.setdefault(hit.passage.id, hit.passage)) for hit in ranking.hits
            )
            return replace(ranking, hits=tuple(hits))
        query = remembering.encode_queries([question.text])[0]
        scored: list[tuple[float, Passage]] = []
        documents = read_document_passages(library_search.library, question.gold_documents, scope(question))
        for passages in documents.values():
            vectors = remembering.encode_passages([(passage.title, passage.text) for passage in passages])
            scored += zip((vectors @ query).tolist(), passages, strict=True)
        scored.sort(key=lambda pair: (-pair[0], pair[1].id))
        best = tuple(Hit(passage, score, rank) for rank, (score, passage) in enumerate(scored[:k]))
        return Ranking(best, "dense", {"k": k, "encoder": remembering.fingerprint, "within": list(documents)})

    def rank_sentences(question: Question, ranking: Ranking, k: int) -> SentenceRanking:
        ranker = replace(library_search.retriever, encoder=remembering).sentence_ranker
        return evidence_selection.rank_sentences(settings, ranker, question.text, ranking, k)

    def score_words(question: Question, ids: Sequence[str]) -> ScoredIds:
        hits = library_search.library.search_words(question.text, len(ids), scope(question), within=ids)
        return [(hit.id, hit.score) for hit in hits]

    def score_candidate_words(question: Question, ids: Sequence[str]) -> ScoredIds:
        return rank_candidates(question, fetch_all(library_search.library, ids, scope(question)))

    return PassageSource(
        retrieve=lambda question, k: rank(question, k, by),
        gold_passages=lambda question: read_document_passages(
            library_search.library, question.gold_documents, scope(question)
        ),
        words=score_words if word_statistics == "library" else score_candidate_words,
        fused=lambda question, k: rank(question, k, "hybrid"),
        reranker=reranker,
        # Literature only: every question is shown passages of this pool.
        pool=lambda: _draw_pool(library_search, seed, build_scope(settings.scope), unit),
        rrf_k=settings.rrf_k,
        count=unit,
        rank_passages=rank_passages,
        rank_sentences=rank_sentences,
    )


def _draw_pool(library_search: LibrarySearch, seed: int, scope: Scope, count: CountUnit) -> list[Passage]:
    """Return POOL random passages, or their documents, each cut to the passages around the drawn one."""
    passages = sample_passages(library_search.library, POOL, seed, scope)
    if count == "passages":
        return list(passages)
    first_drawn: dict[str, Passage] = {}
    for passage in passages:
        first_drawn.setdefault(passage.document_id, passage)
    documents = read_document_passages(library_search.library, list(first_drawn), scope)
    pool: list[Passage] = []
    for name, passage in first_drawn.items():
        # A document may have been deleted since the draw.
        document = documents.get(name, (passage,))
        start = max(0, min(passage.ordinal, len(document) - PASSAGES_PER_DOCUMENT))
        pool += document[start : start + PASSAGES_PER_DOCUMENT]
    return pool
