"""The passages of an experiment, as functions: for tests, or those of a real library.

All calls are synchronous, because cases are built before the first question is asked.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, Literal, TypeAlias

import numpy as np

from epicrisis.core.errors import InputError
from epicrisis.core.partitioning import PASSAGES_PER_DOCUMENT
from epicrisis.core.protocols import Encoder, Reranker, Vectors, fetch_all
from epicrisis.core.types import (
    CharacterSpan,
    CountUnit,
    Hit,
    Passage,
    Question,
    Ranking,
    Scope,
    SearchMode,
    SentenceRanking,
)
from epicrisis.library.core.passage_lookup import read_document_passages, sample_passages
from epicrisis.pipeline import evidence_selection
from epicrisis.pipeline.components import LibrarySearch, build_scope
from epicrisis.retrieval.preflight import ScoredIds
from epicrisis.settings.settings import Settings

WordStatistics: TypeAlias = Literal["library", "candidates"]
"""Where BM25 over found passages takes its statistics from (errata C6)."""

POOL = 2000
"""Passages in the pool of random distractors; a smaller library gives all of its passages."""


def _refuse(*_: Any) -> Any:
    raise InputError("this experiment reads no library of passages")


@dataclass(frozen=True, slots=True, kw_only=True)
class PassageSource:
    """The searches and lookups that build the cases of an experiment. Those that are not given raise InputError."""

    retrieve: Callable[[Question, int], Ranking] = _refuse
    """Return that many documents or passages for the question, best first."""
    gold_passages: Callable[[Question], Mapping[str, tuple[Passage, ...]]] = _refuse
    """Return the passages of each gold document of the question; absent documents are left out."""
    words: Callable[[Question, Sequence[str]], ScoredIds] = _refuse
    """Score these passage ids by BM25; passages without a common word may be left out."""
    fused: Callable[[Question, int], Ranking] = _refuse
    """Return that many for the question by all retrievers, fused."""
    reranker: tuple[str, Reranker] | None = None
    """A reranker with its name."""
    pool: Callable[[], Sequence[Passage]] = _refuse
    """Return random documents or passages of the whole library, the passages of a document together."""
    rrf_k: int = 60
    count: CountUnit = "documents"
    """The unit of k."""
    rank_passages: Callable[[Question, int], Ranking] = _refuse
    """Return that many passages for the question, best first. A question with the place of its evidence is about its
    documents: then all their passages are ranked, and no others."""
    rank_sentences: Callable[[Question, Ranking, int], SentenceRanking] = _refuse
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


TEXTS = 50_000
"""Texts whose vectors are kept: 75 MB with 384 dimensions. The one used longest ago is forgotten first."""


class RememberingEncoder:
    """The same vectors as those of `encoder`, computed once for each text."""

    def __init__(self, encoder: Encoder, texts: int = TEXTS) -> None:
        self._encoder = encoder
        self._texts = texts
        self._vectors: OrderedDict[tuple[str, str], Vectors] = OrderedDict()

    @property
    def fingerprint(self) -> str:
        """Return that of the encoder."""
        return self._encoder.fingerprint

    @property
    def dimensions(self) -> int:
        """Return those of the encoder."""
        return self._encoder.dimensions

    @property
    def max_tokens(self) -> int:
        """Return the limit of the encoder."""
        return self._encoder.max_tokens

    @property
    def max_query_tokens(self) -> int:
        """Return the limit of the encoder."""
        return self._encoder.max_query_tokens

    def token_spans(self, text: str) -> Sequence[CharacterSpan]:
        """Return the spans of all content tokens of the text."""
        return self._encoder.token_spans(text)

    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of queries, which are not kept."""
        return self._encoder.encode_queries(texts)

    def encode_passages(self, texts: Sequence[tuple[str, str]]) -> Vectors:
        """Return the vectors of passages in order. Only unknown texts are encoded."""
        missing = [text for text in dict.fromkeys(texts) if text not in self._vectors]
        fresh = self._encoder.encode_passages(missing) if missing else ()
        fresh_vectors = dict(zip(missing, fresh, strict=True))
        rows: list[Vectors] = []
        for text in texts:
            vector = fresh_vectors[text] if text in fresh_vectors else self._vectors[text]
            self._vectors[text] = vector
            self._vectors.move_to_end(text)
            rows.append(vector)
        while len(self._vectors) > self._texts:
            self._vectors.popitem(last=False)
        return np.stack(rows) if rows else self._encoder.encode_passages([])


K1, B, EPSILON = 1.5, 0.75, 0.25
"""The defaults of rank_bm25. EPSILON is the share of the mean IDF that a negative IDF is replaced by."""


def score_candidates(query: str, texts: Sequence[str]) -> list[float]:
    """Return the BM25 score of each text for the query. A text without a word of the query has 0.

    A word that the query repeats counts each time.
    """
    documents = [text.split(" ") for text in texts]
    if not documents:
        return []
    counts = list(map(Counter, documents))
    idf = _measure_idf(counts)
    mean_length = fmean(map(len, documents))
    words = [word for word in query.split(" ") if word in idf]
    scores: list[float] = []
    for count, document in zip(counts, documents, strict=True):
        norm = K1 * (1 - B + B * len(document) / mean_length)
        score = 0.0
        for word in words:
            score += idf[word] * count[word] * (K1 + 1) / (count[word] + norm)
        scores.append(score)
    return scores


def _measure_idf(counts: Sequence[Counter[str]]) -> dict[str, float]:
    """Return the IDF of each word. A negative one is replaced by EPSILON times the mean of all."""
    holding: Counter[str] = Counter()
    for count in counts:
        holding.update(count.keys())
    n = len(counts)
    idf = {word: math.log(n - k + 0.5) - math.log(k + 0.5) for word, k in holding.items()}
    floor = EPSILON * fmean(idf.values())
    return {word: floor if value < 0 else value for word, value in idf.items()}
