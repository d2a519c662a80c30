"""Search: from a question to a ranking, with encoders, stores, fusion and reranking.

The ranking's notes hold what a reader must know of it, such as a question longer than the encoder's window.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from operator import attrgetter

from epicrisis.partitioning import PASSAGES_PER_DOCUMENT
from epicrisis.protocols import Encoder, PassageStore, Reranker, Vectors
from epicrisis.retrieval.long_questions import SentenceSplitter, fit_question
from epicrisis.retrieval.preflight import BM25_SIGNALS, choose_rule, compare_rankings
from epicrisis.retrieval.rankings import (
    build_hits,
    find_document_depth,
    list_tops,
    rank_for_documents,
    reciprocal_rank_fusion,
    rerank,
    select_documents,
    take_first,
)
from epicrisis.retrieval.record_context import rank_notes, rank_record, replace_by_notes, restore_notes
from epicrisis.retrieval.sentence_ranking import SentenceRanker, WordAnalyzer
from epicrisis.types import (
    CountUnit,
    Hit,
    LongQuestionPolicy,
    Passage,
    Preflight,
    Ranking,
    RuleName,
    Scope,
    SearchMode,
    SignalKind,
)

FUSION_DEPTH = 100
"""Hits of each ranking in a fusion, or k if that is more."""
QUESTION_CUT = "question_cut"
"""Parameter of a ranking whose question was longer than an encoder's window."""
WITHHELD = "withheld"
"""Parameter of a ranking with the ids of retracted documents that were left out."""
_MAX_NAMES = 5


@dataclass(frozen=True, slots=True)
class SearchableStore:
    """A store and the encoder of its vectors. Without an encoder, only words are searched."""

    store: PassageStore
    encoder: Encoder | None
    name: str = ""
    """If given, the source of hits without a source."""

    def search_words(self, text: str, k: int, scope: Scope) -> Ranking:
        """Return the best `k` passages by BM25."""
        hits, withheld = self._search_admitted(lambda scope: self.store.search_words(text, k, scope), scope)
        return Ranking(hits, "bm25", {"k": k, **withheld})

    def search_vectors(self, vector: Vectors, k: int, scope: Scope, parameters: Mapping[str, object]) -> Ranking:
        """Return the `k` nearest passages in a ranking with these parameters."""
        hits, withheld = self._search_admitted(lambda scope: self.store.search_vectors(vector, k, scope), scope)
        return Ranking(hits, "dense", {**parameters, **withheld})

    def _search_admitted(
        self, search: Callable[[Scope], tuple[Hit, ...]], scope: Scope
    ) -> tuple[tuple[Hit, ...], dict[str, object]]:
        """Return the hits that the scope admits, and the retracted documents that it withholds, with their ranks.

        The first search includes retracted documents. If it finds none, its hits are the result.
        """
        hits = search(replace(scope, without_retracted=False))
        withheld: dict[str, int] = {}
        for hit in hits if scope.without_retracted else ():
            if hit.passage.is_retracted:
                withheld.setdefault(hit.passage.document_id, hit.rank)
        if withheld:
            hits = search(scope)
        results: list[Hit] = []
        for hit in hits:
            passage = replace(hit.passage, source=hit.passage.source or self.name)
            results.append(replace(hit, passage=passage))
        return tuple(results), {WITHHELD: withheld} if withheld else {}


def _report_withheld(ranking: Ranking, k: int) -> Ranking:
    """Return the ranking with a note of the retracted documents that a search found among its first `k` hits."""
    parameters = dict(ranking.parameters)
    ranks: Mapping[str, int] = parameters.pop(WITHHELD, {})
    left_out = sorted(document_id for document_id, rank in ranks.items() if rank < k)
    if not left_out:
        return replace(ranking, parameters=parameters)
    documents = "document is" if len(left_out) == 1 else "documents are"
    names = ", ".join(left_out[:_MAX_NAMES]) + (", ..." if len(left_out) > _MAX_NAMES else "")
    note = f"{len(left_out)} retracted {documents} left out: {names} (scope.include=retracted reads them, with a mark)"
    return replace(ranking, parameters={**parameters, WITHHELD: left_out}, notes=(*ranking.notes, note))


@dataclass(frozen=True, slots=True, eq=False)
class Retriever:
    """Searches a library, or several libraries at once, and fuses the rankings.

    `also` are the same passages with other encoders. Words are those of the first store. `beside` are stores of
    literature; no passage of a patient is taken from them, because the same id could be another person's there.

    A question longer than an encoder's window is treated by `remedy`, with `sentences` as the sentence splitter. With a
    reranker, the best `rerank_depth` hits are reranked. `fusion_times` k hits of each ranking are fused (2 in the EHR
    study, 4.3), or FUSION_DEPTH if it is None. `analyze` returns the words of a sentence.
    """

    store: PassageStore
    encoder: Encoder | None
    rrf_k: int = 60
    _: KW_ONLY
    also: Sequence[SearchableStore] = ()
    beside: Sequence[SearchableStore] = ()
    remedy: LongQuestionPolicy = "cut"
    sentences: SentenceSplitter = lambda text: [(0, len(text))]
    reranker: tuple[str, Reranker] | None = None
    rerank_depth: int = 64
    fusion_times: int | None = None
    analyze: WordAnalyzer = str.split

    @property
    def sentence_ranker(self) -> SentenceRanker:
        """The ranker of single sentences, with this encoder and reranker."""
        return SentenceRanker(self.encoder, self.sentences, self.analyze, self.reranker)

    def record(self, scope: Scope) -> Ranking:
        """Return every note of the patient's record in the scope, complete and in chronological order."""
        return rank_record(self.store.fetch_record(scope))

    def notes(self, text: str, n: int, by: SearchMode, scope: Scope, count: CountUnit = "passages") -> Ranking:
        """Return the `n` complete notes with the best passages (the study's parent notes).

        Each passage of literature counts as a note; if documents are counted, each document.
        """
        record = restore_notes(self.store.fetch_record(scope))
        notes = {note.document_id: note for note in record}
        if count == "documents":
            return replace_by_notes(self.documents(text, n, by, scope), notes, n, count)
        return rank_notes(lambda k: self.rank(text, k, by, scope), notes, n)

    def search(self, text: str, k: int, by: SearchMode, scope: Scope, count: CountUnit) -> Ranking:
        """Return the best `k` documents or passages, as `documents` or `rank` does."""
        return self.documents(text, k, by, scope) if count == "documents" else self.rank(text, k, by, scope)

    def documents(self, text: str, k: int, by: SearchMode, scope: Scope) -> Ranking:
        """Return the best `k` documents, each with up to PASSAGES_PER_DOCUMENT of its passages.

        There are fewer if the best 16 k passages are of fewer documents; see `rankings.select_places`. A
        reranker orders the best `rerank_depth` passages, or more if these are of fewer than k documents.
        """
        return select_documents(self.pool(text, k, by, scope), k)

    def pool(self, text: str, k: int, by: SearchMode, scope: Scope) -> Ranking:
        """Return the ranking of passages from which `documents` selects `k` documents."""
        start = k * PASSAGES_PER_DOCUMENT if self.reranker is None else max(k, self.rerank_depth)
        ranking = rank_for_documents(lambda n: self._rank(text, n, by, scope, self._depth(n)), k, start)
        if self.reranker is None:
            return _report_withheld(ranking, find_document_depth(ranking.document_ids, k))
        name, reranker = self.reranker
        ranking = _report_withheld(ranking, max(start, len(ranking.hits)))
        return rerank(ranking, text, reranker, name, len(ranking.hits))

    def rank(
        self, text: str, k: int, by: SearchMode, scope: Scope, words: Callable[[int], Ranking] | None = None
    ) -> Ranking:
        """Return the best `k` passages for the text in the scope.

        `words` replaces BM25 by another ranking, such as a sparse encoder's (the EHR study's Table 8).
        """
        if self.reranker is None:
            return _report_withheld(self._rank(text, k, by, scope, self._depth(k), words), k)
        name, reranker = self.reranker
        pool = max(k, self.rerank_depth)
        depth = self._depth(pool if self.fusion_times is None else k)
        ranking = _report_withheld(self._rank(text, pool, by, scope, depth, words), pool)
        return rerank(ranking, text, reranker, name, k)

    def preflight(
        self,
        text: str,
        scope: Scope,
        *,
        rule: RuleName = "fitted",
        signal: SignalKind | None = None,
        n: int | None = None,
        threshold: float | None = None,
        depth: int = 16,
        count: CountUnit = "documents",
    ) -> Preflight:
        """Return whether the first `depth` dense documents or passages agree with another ranking of them.

        The other ranking is by BM25 (IDF of the entire library, errata C6) or by the reranker, as the rule requires.
        Fused dense hits have scores too small for a dense gap fitted on other scores. Raises ValueError if the signal
        needs a reranker and there is none.
        """
        if count == "passages":
            dense = self._rank(text, depth, "dense", scope, self._depth(depth))
        else:
            dense = rank_for_documents(lambda k: self._rank(text, k, "dense", scope, self._depth(k)), depth)
            dense = take_first(dense, depth, count)
        judge = choose_rule(rule, dense, count, scope.patient is not None, signal=signal, n=n, threshold=threshold)
        bm25 = Ranking((), "bm25")
        size = len(dense.hits)
        if size and judge.signal in BM25_SIGNALS:
            rankings: list[Ranking] = []
            for searchable, store_scope in self._word_searches(scope):
                hits = searchable.store.search_words(text, size, store_scope, within=dense.ids)
                rankings.append(Ranking(hits, "bm25"))
            bm25 = self._fuse(rankings, "bm25", size, size)
        reranked = None
        if self.reranker is not None and judge.signal == "reranker-overlap":
            name, reranker = self.reranker
            reranked = rerank(dense, text, reranker, name, size).scored_ids
        return compare_rankings(dense.scored_ids, bm25.scored_ids, reranked, judge, depth=depth, count=count)

    def _rank(
        self, text: str, k: int, by: SearchMode, scope: Scope, depth: int, words: Callable[[int], Ranking] | None = None
    ) -> Ranking:
        """Return `k` passages by fusing rankings of `depth` hits. A single ranking has `k` hits."""
        word_searches = [] if by == "dense" else self._word_searches(scope)
        vector_searches: list[tuple[SearchableStore, Scope]] = []
        if by != "bm25":
            stores = (SearchableStore(self.store, self.encoder), *self.also)
            vector_searches = [*itertools.product(stores, [scope]), *self._literature(scope)]
        size = k if len(word_searches) + len(vector_searches) == 1 else depth
        rankings: list[Ranking] = []
        for searchable, store_scope in vector_searches:
            rankings.append(self._rank_dense(text, size, searchable, store_scope))
        if words is not None:
            rankings.append(words(size))
        else:
            for searchable, store_scope in word_searches:
                rankings.append(searchable.search_words(text, size, store_scope))
        return self._fuse(rankings, by, k, depth)

    def _depth(self, k: int) -> int:
        return max(k, FUSION_DEPTH) if self.fusion_times is None else self.fusion_times * k

    def _word_searches(self, scope: Scope) -> list[tuple[SearchableStore, Scope]]:
        return [(SearchableStore(self.store, None), scope), *self._literature(scope)]

    def _literature(self, scope: Scope) -> list[tuple[SearchableStore, Scope]]:
        return list(itertools.product(self.beside, [replace(scope, patient=None)]))

    def _rank_dense(self, text: str, k: int, searchable: SearchableStore, scope: Scope) -> Ranking:
        """Return the best `k` passages. For a question in segments, fuse the rankings of the segments."""
        encoder = searchable.encoder
        if encoder is None:
            raise ValueError("dense and hybrid search need an encoder")
        texts, fit = fit_question(text, encoder, self.sentences, self.remedy)
        depth = k if len(texts) == 1 or self.fusion_times is not None else max(k, FUSION_DEPTH)
        rankings: list[Ranking] = []
        for vector in encoder.encode_queries(texts):
            rankings.append(searchable.search_vectors(vector, depth, scope, {"encoder": encoder.fingerprint}))
        ranking = self._fuse(rankings, "dense", k, depth)
        cut = {QUESTION_CUT: True} if fit.cut else {}
        return replace(ranking, parameters={**ranking.parameters, **cut}, notes=fit.notes())

    def _fuse(self, rankings: Sequence[Ranking], name: SearchMode, k: int, depth: int) -> Ranking:
        """Return one ranking of the best `k`. A single ranking keeps its scores."""
        if len(rankings) == 1:
            (ranking,) = rankings
            parameters = {**ranking.parameters, "k": k}
            return replace(ranking, hits=ranking.hits[:k], retriever=name, parameters=parameters)
        withheld: dict[str, int] = {}
        passages: dict[str, Passage] = {}
        encoders: dict[str, None] = {}
        notes: dict[str, None] = {}
        question_cut = False
        for ranking in rankings:
            for document_id, rank in ranking.parameters.get(WITHHELD, {}).items():
                withheld[document_id] = min(rank, withheld.get(document_id, rank))
            for hit in ranking.hits:
                # If two libraries have a passage with this id, the first library's is used.
                passages.setdefault(hit.passage.id, hit.passage)
            if "encoder" in ranking.parameters:
                encoders[str(ranking.parameters["encoder"])] = None
            question_cut = question_cut or QUESTION_CUT in ranking.parameters
            notes |= dict.fromkeys(ranking.notes)
        fused = reciprocal_rank_fusion(list(map(attrgetter("ids"), rankings)), self.rrf_k)[:k]
        names = list(encoders)
        fused_parameters: dict[str, object] = {
            "k": k,
            "encoder": names[0] if len(names) == 1 else names,
            "rrf_k": self.rrf_k,
            "fusion_depth": depth,
            "fused": len(rankings),
        }
        if self.beside:
            fused_parameters["beside"] = list(map(attrgetter("name"), self.beside))
        if question_cut:
            fused_parameters[QUESTION_CUT] = True
        if withheld:
            fused_parameters[WITHHELD] = withheld
        hits = build_hits((passages[id_], score) for id_, score in fused)
        tops = list_tops(rankings) if name == "hybrid" else None
        return Ranking(hits, name, fused_parameters, tuple(notes), tops)
