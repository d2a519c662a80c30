"""Search: from a question to a ranking, with encoders, stores, fusion and reranking.

The ranking's notes hold what a reader must know of it, such as a question longer than the encoder's window.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING

from epicrisis.core.partitioning import PASSAGES_PER_DOCUMENT
from epicrisis.core.protocols import Encoder, PassageStore, Reranker
from epicrisis.core.types import (
    CountUnit,
    LongQuestionPolicy,
    Passage,
    Preflight,
    Ranking,
    RuleName,
    Scope,
    SearchMode,
    SignalKind,
)
from epicrisis.retrieval.id_rankings import IdRanking, ScopedStore, SearchableStore, list_tops, rank_for_documents
from epicrisis.retrieval.long_questions import SentenceSplitter, fit_question
from epicrisis.retrieval.preflight import BM25_SIGNALS, choose_rule, compare_rankings
from epicrisis.retrieval.query_expansion import OtherNames, describe, expand, find_other_names, list_absent, rewrite
from epicrisis.retrieval.question_language import find_language
from epicrisis.retrieval.rankings import (
    find_document_depth,
    keep_first,
    reciprocal_rank_fusion,
    rerank,
    select_documents,
)
from epicrisis.retrieval.record_context import rank_notes, rank_record, replace_by_notes, restore_notes
from epicrisis.retrieval.search_operators import describe_operators, lower_operators
from epicrisis.retrieval.sentence_ranking import SentenceRanker
from epicrisis.system.telemetry import span

if TYPE_CHECKING:
    from epicrisis.reading.features import WordAnalyzer

FUSION_DEPTH = 100
"""Hits of each ranking in a fusion, or k if that is more."""
QUESTION_CUT = "question_cut"
"""Parameter of a ranking whose question was longer than an encoder's window."""
WITHHELD = "withheld"
"""Parameter of a ranking with the ids of retracted documents that were left out."""
WHOLE_DOCUMENTS = 8
"""The best documents, which are read whole to rank their sentences."""
REACH = 40
"""Passages before and after a found one that are read of its document: those of an article, and of a book a chapter."""
NAMES_SOUGHT = 10
"""The first passages that are read to see whether they have the names of a question."""
KEPT_FIRST = 2
"""Where a hybrid ranking puts the first passage of each search at the latest, if `keeps_first` is set."""
_MAX_NAMES = 5


def _report_withheld(ranking: IdRanking, k: int) -> IdRanking:
    """Return the ranking with a note of the retracted documents that a search found among its first `k` hits."""
    left_out = sorted(document_id for document_id, rank in ranking.withheld.items() if rank < k)
    if not left_out:
        return ranking
    documents = "document is" if len(left_out) == 1 else "documents are"
    names = ", ".join(left_out[:_MAX_NAMES]) + (", ..." if len(left_out) > _MAX_NAMES else "")
    note = f"{len(left_out)} retracted {documents} left out: {names} (scope.include=retracted reads them, with a mark)"
    return replace(ranking, parameters={**ranking.parameters, WITHHELD: left_out}, notes=(*ranking.notes, note))


def _name_dates(ranking: IdRanking, scope: Scope) -> IdRanking:
    """Return an empty ranking with a note of the dates of the scope, if it has any."""
    dates = [f"{word} {date}" for word, date in (("since", scope.since), ("until", scope.as_of)) if date]
    if not dates:
        return ranking
    note = f"no document {' '.join(dates)} that this question may read: other and undated documents are hidden"
    return replace(ranking, notes=(*ranking.notes, note))


@dataclass(frozen=True, slots=True, eq=False)
class Retriever:
    """Searches a library, or several libraries at once, and fuses the rankings.

    `also` are the same passages with other encoders. Words are those of the first store. `beside` are stores of
    literature; no passage of a patient is taken from them, because the same id could be another person's there.

    A question longer than an encoder's window is treated by `remedy`, with `sentences` as the sentence splitter. With a
    reranker, the best `rerank_depth` hits are reranked. `fusion_times` k hits of each ranking are fused (2 in the EHR
    study, 4.3), or FUSION_DEPTH if it is None. `analyze` returns the words of a sentence. With `expands`, a question
    whose names few of the first passages have is searched with its other names too (`query_expansion`). With
    `keeps_first`, a hybrid ranking has the first passage of each search among its first (`rankings.keep_first`).
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
    expands: bool = False
    keeps_first: bool = False
    english_encoder: str = ""
    """The encoder's name, if it reads English only."""

    @property
    def sentence_ranker(self) -> SentenceRanker:
        """The ranker of single sentences, with this encoder and reranker."""
        return SentenceRanker(self.encoder, self.sentences, self.analyze, self.reranker)

    def list_stores(self) -> list[PassageStore]:
        """Return the library and those of literature beside it."""
        return [self.store, *(searchable.store for searchable in self.beside)]

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

    def read_whole(self, passages: Sequence[Passage], scope: Scope) -> tuple[Passage, ...]:
        """Return the passages, and those of the same documents around them, for the first WHOLE_DOCUMENTS documents.

        The notes of a patient are not read whole.
        """
        if scope.patient is not None:
            return tuple(passages)
        wanted: dict[str, dict[str, None]] = {}
        for passage in passages:
            if passage.document_id in wanted or len(wanted) < WHOLE_DOCUMENTS:
                near = range(max(0, passage.ordinal - REACH), passage.ordinal + REACH + 1)
                ids = [f"{passage.document_id}#{ordinal}" for ordinal in near]
                wanted.setdefault(passage.document_id, {}).update(dict.fromkeys(ids))
        whole = {passage.id: passage for passage in passages}
        for store in self._stores(scope):
            fetched = store.fetch([id_ for ids in wanted.values() for id_ in ids])
            # Another store may have another document with this id.
            there = {passage.document_id for passage in passages if passage == fetched.get(passage.id)}
            for document_id in there & wanted.keys():
                found = (fetched[id_] for id_ in wanted.pop(document_id) if id_ in fetched)
                whole |= {passage.id: passage for passage in found}
        return tuple(whole.values())

    def read_beginnings(self, document_ids: Sequence[str], scope: Scope) -> tuple[Passage, ...]:
        """Return the first passage of each of these documents, of the first store that has it."""
        passage_ids = [f"{id_}#0" for id_ in document_ids]
        beginnings: dict[str, Passage] = {}
        for store in self._stores(scope):
            beginnings = store.fetch(passage_ids) | beginnings
        return tuple(beginnings.values())

    def search(self, text: str, k: int, by: SearchMode, scope: Scope, count: CountUnit) -> Ranking:
        """Return the best `k` documents or passages, as `documents` or `rank` does."""
        return self.documents(text, k, by, scope) if count == "documents" else self.rank(text, k, by, scope)

    def documents(self, text: str, k: int, by: SearchMode, scope: Scope) -> Ranking:
        """Return the best `k` documents, each with up to PASSAGES_PER_DOCUMENT of its passages.

        There are fewer if the best 16 k passages are of fewer documents; see `rankings.select_places`. A
        reranker orders the best `rerank_depth` passages, or more if these are of fewer than k documents.
        """
        if self.reranker is None:
            return self._pool(text, k, by, scope, k * PASSAGES_PER_DOCUMENT).select_documents(k).fetch()
        return select_documents(self.pool(text, k, by, scope), k)

    def pool(self, text: str, k: int, by: SearchMode, scope: Scope) -> Ranking:
        """Return the ranking of passages from which `documents` selects `k` documents."""
        if self.reranker is None:
            return self._pool(text, k, by, scope, k * PASSAGES_PER_DOCUMENT).fetch()
        name, reranker = self.reranker
        ranking = self._pool(text, k, by, scope, max(k, self.rerank_depth)).fetch()
        return rerank(ranking, text, reranker, name, len(ranking.hits))

    def _pool(self, text: str, k: int, by: SearchMode, scope: Scope, start: int) -> IdRanking:
        """Return at least the `start` best passages, and more if these are of fewer than `k` documents."""
        ranking = rank_for_documents(lambda n: self._rank(text, n, by, scope, self._depth(n)), k, start)
        if self.reranker is None:
            return _report_withheld(ranking, find_document_depth(ranking.document_ids, k))
        return _report_withheld(ranking, max(start, len(ranking.scores)))

    def rank(
        self, text: str, k: int, by: SearchMode, scope: Scope, words: Callable[[int], Ranking] | None = None
    ) -> Ranking:
        """Return the best `k` passages for the text in the scope.

        `words` replaces BM25 by another ranking, such as a sparse encoder's (the EHR study's Table 8).
        """
        if self.reranker is None:
            return _report_withheld(self._rank(text, k, by, scope, self._depth(k), words), k).fetch()
        name, reranker = self.reranker
        pool = max(k, self.rerank_depth)
        depth = self._depth(pool if self.fusion_times is None else k)
        ranking = _report_withheld(self._rank(text, pool, by, scope, depth, words), pool).fetch()
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
            dense = self._rank_texts(text, text, depth, "dense", scope, self._depth(depth))
        else:
            dense = rank_for_documents(lambda k: self._rank_texts(text, text, k, "dense", scope, self._depth(k)), depth)
            dense = dense.take_first(depth, count)
        judge = choose_rule(
            rule, dense.parameters, count, scope.patient is not None, signal=signal, n=n, threshold=threshold
        )
        bm25: Sequence[tuple[str, float]] = ()
        size = len(dense.scores)
        if size and judge.signal in BM25_SIGNALS:
            rankings = [store.search_words_within(lower_operators(text), dense.ids) for store in self._stores(scope)]
            bm25 = self._fuse(rankings, "bm25", size, size).scores
        reranked = None
        if self.reranker is not None and judge.signal == "reranker-overlap":
            name, reranker = self.reranker
            reranked = rerank(dense.fetch(), text, reranker, name, size).scored_ids
        return compare_rankings(dense.scores, bm25, reranked, judge, depth=depth, count=count)

    def _rank(
        self, text: str, k: int, by: SearchMode, scope: Scope, depth: int, words: Callable[[int], Ranking] | None = None
    ) -> IdRanking:
        """Return the best `k` passages for the question, or for it with other names if few have its own.

        Other names for a sparse encoder's ranking in the place of `words` are not sought.
        """
        language = find_language(text)
        remarks = (*((self._describe_language(language, by),) if language else ()), *describe_operators(text))
        plain = lower_operators(text)
        ranking = self._rank_texts(plain, text, k, by, scope, depth, words)
        ranking = replace(ranking, notes=(*ranking.notes, *remarks))
        if not self.expands or words is not None:
            return ranking
        absent = self._list_absent_names(plain, ranking)
        if not absent:
            return ranking
        # An encoder knows most words, but few drugs by their brand.
        dense_text = rewrite(text, [one for one in absent if one.is_drug])
        ranking = self._rank_texts(expand(plain, absent), dense_text, k, by, scope, depth)
        return replace(ranking, notes=(*ranking.notes, *remarks, f"also searched: {describe(absent)}"))

    def _describe_language(self, language: str, by: SearchMode) -> str:
        """Return what a search does not read of a question in another language."""
        readers = [f"the encoder {self.english_encoder}"] if self.english_encoder and by != "bm25" else []
        readers += [] if by == "dense" else ["the search by words"]
        if not readers:
            return f"the question seems to be {language}"
        verb = "reads" if len(readers) == 1 else "read"
        return f"the question seems to be {language}, and {' and '.join(readers)} {verb} English: ask it in English too"

    def _list_absent_names(self, text: str, ranking: IdRanking) -> tuple[OtherNames, ...]:
        """Return the names of the question that few of the first passages have."""
        names = find_other_names(text)
        if not names:
            return ()
        passages = ranking.take_first(NAMES_SOUGHT, "passages").fetch().passages
        return list_absent(names, [f"{passage.title}\n{passage.text}" for passage in passages])

    def _rank_texts(
        self,
        words_text: str,
        dense_text: str,
        k: int,
        by: SearchMode,
        scope: Scope,
        depth: int,
        words: Callable[[int], Ranking] | None = None,
    ) -> IdRanking:
        """Return `k` passages by fusing rankings of `depth` hits. A single ranking has `k` hits."""
        own, *others = self._stores(scope)
        vector_stores: list[ScopedStore] = []
        if by != "bm25":
            also = [ScopedStore(searchable, scope) for searchable in self.also]
            vector_stores = [own, *also, *others]
        word_stores = [] if by == "dense" else [own, *others]
        size = k if len(vector_stores) + len(word_stores) == 1 else depth
        rankings: list[IdRanking] = [self._rank_dense(dense_text, size, store) for store in vector_stores]
        if words is not None:
            given = words(size)
            rankings.append(own.adopt(given.scored_ids, given.retriever, given.parameters))
        else:
            for store in word_stores:
                rankings.append(store.search_words(words_text, size))
        fused = self._fuse(rankings, by, k, depth)
        # A search by vectors finds something wherever there is something.
        return fused if fused.scores or by == "bm25" else _name_dates(fused, scope)

    def _depth(self, k: int) -> int:
        return max(k, FUSION_DEPTH) if self.fusion_times is None else self.fusion_times * k

    def _stores(self, scope: Scope) -> list[ScopedStore]:
        """Return this library and those of literature beside it, from which no passage of a patient is taken."""
        stores = [ScopedStore(SearchableStore(self.store, self.encoder), scope)]
        literature = replace(scope, patient=None)
        for searchable in self.beside:
            stores.append(ScopedStore(searchable, literature))
        return stores

    def _rank_dense(self, text: str, k: int, store: ScopedStore) -> IdRanking:
        """Return the best `k` passages. For a question in segments, fuse the rankings of the segments."""
        encoder = store.searchable.encoder
        if encoder is None:
            raise ValueError("dense and hybrid search need an encoder")
        texts, fit = fit_question(text, encoder, self.sentences, self.remedy)
        depth = k if len(texts) == 1 or self.fusion_times is not None else max(k, FUSION_DEPTH)
        rankings: list[IdRanking] = []
        with span("encode question"):
            vectors = encoder.encode_queries(texts)
        for vector in vectors:
            rankings.append(store.search_vectors(vector, depth, {"encoder": encoder.fingerprint}))
        ranking = self._fuse(rankings, "dense", k, depth)
        cut = {QUESTION_CUT: True} if fit.cut else {}
        return replace(ranking, parameters={**ranking.parameters, **cut}, notes=fit.notes())

    def _fuse(self, rankings: Sequence[IdRanking], name: SearchMode, k: int, depth: int) -> IdRanking:
        """Return one ranking of the best `k`. A single ranking keeps its scores."""
        if len(rankings) == 1:
            (ranking,) = rankings
            parameters = {**ranking.parameters, "k": k}
            return replace(ranking, scores=ranking.scores[:k], retriever=name, parameters=parameters)
        withheld: dict[str, int] = {}
        origins: dict[str, ScopedStore] = {}
        encoders: dict[str, None] = {}
        notes: dict[str, None] = {}
        question_cut = False
        for ranking in rankings:
            for document_id, rank in ranking.withheld.items():
                withheld[document_id] = min(rank, withheld.get(document_id, rank))
            # If two libraries have a passage with this id, the first library's is used.
            origins = {**ranking.origins, **origins}
            if "encoder" in ranking.parameters:
                encoders[str(ranking.parameters["encoder"])] = None
            question_cut = question_cut or QUESTION_CUT in ranking.parameters
            notes |= dict.fromkeys(ranking.notes)
        ids = [ranking.ids for ranking in rankings]
        fused = reciprocal_rank_fusion(ids, self.rrf_k)
        if self.keeps_first and name == "hybrid":
            fused = keep_first(fused, ids, KEPT_FIRST)
        fused = fused[:k]
        names = list(encoders)
        parameters = {
            "k": k,
            "encoder": names[0] if len(names) == 1 else names,
            "rrf_k": self.rrf_k,
            "fusion_depth": depth,
            "fused": len(rankings),
        }
        if self.beside:
            parameters["beside"] = [item.name for item in self.beside]
        if question_cut:
            parameters[QUESTION_CUT] = True
        tops = list_tops(rankings) if name == "hybrid" else None
        return IdRanking(
            scores=tuple(fused),
            retriever=name,
            origins=origins,
            parameters=parameters,
            notes=tuple(notes),
            withheld=withheld,
            tops=tops,
            similarity=max((each.similarity for each in rankings if each.similarity is not None), default=None),
        )
