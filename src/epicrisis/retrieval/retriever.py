"""Question to ranking: the one place that strings encoders, stores, fusion and reranking together.

Synchronous; knows no chat model and no event. What a reader must know of a ranking (a question longer than the
encoder's window, a passage longer than the reranker's) is in the ranking's notes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from epicrisis.partitioning import PASSAGES_PER_DOCUMENT
from epicrisis.protocols import Encoder, PassageStore, Reranker, Vectors
from epicrisis.retrieval.document_ranking import by_document, deep_enough, of_documents, reach
from epicrisis.retrieval.fusion import reciprocal_rank_fusion
from epicrisis.retrieval.long_questions import Sentences, prepare
from epicrisis.retrieval.preflight import rankings_agree, rule_for
from epicrisis.retrieval.ranking_signals import BY_WORDS, Scored
from epicrisis.retrieval.record_context import as_notes, best_notes, of_record, whole_notes
from epicrisis.retrieval.rerank import reranked
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
"""Hits of each ranking that enter a fusion, or k where that is more."""
QUESTION_CUT = "question_cut"
"""Stands among a ranking's parameters where the question was longer than an encoder's window."""


WITHHELD = "withheld"
"""Stands among a ranking's parameters where retracted documents were left out: their ids."""
_NAMED = 5


def _one_sentence(text: str) -> Iterable[tuple[int, int]]:
    return [(0, len(text))]


def _telling_withheld(ranking: Ranking, k: int) -> Ranking:
    """The ranking with a note of the retracted documents that one of its searches met among its first `k`."""
    met: Mapping[str, int] = ranking.parameters.get(WITHHELD, {})
    parameters = {name: value for name, value in ranking.parameters.items() if name != WITHHELD}
    left_out = sorted(document_id for document_id, rank in met.items() if rank < k)
    if not left_out:
        return replace(ranking, parameters=parameters)
    what = "document is" if len(left_out) == 1 else "documents are"
    names = ", ".join(left_out[:_NAMED]) + (", ..." if len(left_out) > _NAMED else "")
    note = f"{len(left_out)} retracted {what} left out: {names} (--with retracted reads them, marked)"
    return replace(ranking, parameters={**parameters, WITHHELD: left_out}, notes=(*ranking.notes, note))


def _scored(hits: Sequence[Hit]) -> Scored:
    return [(hit.passage.id, hit.score) for hit in hits]


@dataclass(frozen=True, slots=True)
class Searched:
    """A store and the encoder its vectors were made with; `None` where only words are searched."""

    store: PassageStore
    encoder: Encoder | None
    name: str = ""
    """Stands as the source of hits that have none, where there is a name."""

    def by_words(self, text: str, k: int, scope: Scope) -> Ranking:
        """The best `k` by BM25."""
        hits, told = self._admitted(lambda seen: self.store.search_words(text, k, seen), scope)
        return Ranking(hits, "bm25", {"k": k, **told})

    def by_vector(self, vector: Vectors, k: int, scope: Scope, told: Mapping[str, object]) -> Ranking:
        """The `k` nearest; `told` are parameters of the ranking."""
        hits, withheld = self._admitted(lambda seen: self.store.search_vectors(vector, k, seen), scope)
        return Ranking(hits, "dense", {**told, **withheld})

    def _admitted(
        self, search: Callable[[Scope], tuple[Hit, ...]], scope: Scope
    ) -> tuple[tuple[Hit, ...], dict[str, object]]:
        """The hits that the scope admits, and the documents that it withholds as retracted, with their ranks.

        The first search looks at them too. Where it meets none, it is what the scope admits already.
        """
        if not scope.without_retracted:
            return self._named(search(scope)), {}
        hits = search(replace(scope, without_retracted=False))
        withheld: dict[str, int] = {}
        for hit in hits:
            if hit.passage.is_retracted:
                withheld.setdefault(hit.passage.document_id, hit.rank)
        return self._named(search(scope) if withheld else hits), {WITHHELD: withheld} if withheld else {}

    def _named(self, hits: tuple[Hit, ...]) -> tuple[Hit, ...]:
        if not self.name:
            return hits
        passages = (replace(hit.passage, source=hit.passage.source or self.name) for hit in hits)
        return tuple(replace(hit, passage=passage) for hit, passage in zip(hits, passages, strict=True))


class Retriever:
    """Searches one store, or several of the same passages with an encoder each, whose dense rankings are fused.

    Words are those of the first store. A question longer than an encoder's window is treated by `remedy`; `sentences`
    gives its sentences. With a reranker the best `rerank_depth` hits are scored anew. `fusion_times` k hits of each
    ranking enter a fusion (EHR study, 4.3: 2), FUSION_DEPTH where it is None.

    Stores `beside` the first hold other documents, literature: all their rankings enter the one fusion. No
    passage of a patient is taken from them, since the same id could be another person's there.
    """

    def __init__(
        self,
        store: PassageStore,
        encoder: Encoder | None,
        rrf_k: int = 60,
        *,
        also: Sequence[Searched] = (),
        beside: Sequence[Searched] = (),
        remedy: LongQuestionPolicy = "cut",
        sentences: Sentences = _one_sentence,
        reranker: tuple[str, Reranker] | None = None,
        rerank_depth: int = 64,
        fusion_times: int | None = None,
    ) -> None:
        self._searched = (Searched(store, encoder), *also)
        self._beside = tuple(beside)
        self._rrf_k = rrf_k
        self._remedy = remedy
        self._sentences = sentences
        self._reranker = reranker
        self._rerank_depth = rerank_depth
        self._fusion_times = fusion_times

    def record(self, scope: Scope) -> Ranking:
        """Every note of the patient's record that the scope admits, whole, in the order of time."""
        return of_record(self._searched[0].store.fetch_record(scope))

    def notes(self, text: str, n: int, by: SearchMode, scope: Scope, count: CountUnit = "passages") -> Ranking:
        """The `n` whole notes with the best passages (the study's parent notes); literature stands as its passages,
        each counted as a note, or its documents where documents are counted."""
        record = whole_notes(self._searched[0].store.fetch_record(scope))
        whole = {note.document_id: note for note in record}
        if count == "documents":
            documents = self.documents(text, n, by, scope)
            return as_notes(documents, whole, n, count)
        return best_notes(lambda k: self.rank(text, k, by, scope), whole, n)

    def found(self, text: str, k: int, by: SearchMode, scope: Scope, count: CountUnit) -> Ranking:
        """Return the best `k` documents or passages, as `documents` or `rank` does."""
        return self.documents(text, k, by, scope) if count == "documents" else self.rank(text, k, by, scope)

    def documents(self, text: str, k: int, by: SearchMode, scope: Scope) -> Ranking:
        """Return the best `k` documents, each by its best passage and with up to PASSAGES_A_DOCUMENT of those found.

        Fewer where the best 16 k passages are of fewer documents; see `documents.places_of`. A reranker orders the
        best `rerank_depth` passages, more where these are of fewer documents than k.
        """
        return of_documents(self.pool(text, k, by, scope), k)

    def pool(self, text: str, k: int, by: SearchMode, scope: Scope) -> Ranking:
        """Return the ranking of passages that `documents` chooses `k` documents from."""
        start = k * PASSAGES_PER_DOCUMENT if self._reranker is None else max(k, self._rerank_depth)
        ranking = deep_enough(lambda n: self._rank(text, n, by, scope, self._depth(n)), k, start)
        if self._reranker is None:
            names = [hit.passage.document_id for hit in ranking.hits]
            return _telling_withheld(ranking, reach(names, k))
        name, reranker = self._reranker
        ranking = _telling_withheld(ranking, max(start, len(ranking.hits)))
        return reranked(ranking, text, reranker, name, len(ranking.hits))

    def rank(
        self, text: str, k: int, by: SearchMode, scope: Scope, words: Callable[[int], Ranking] | None = None
    ) -> Ranking:
        """The best `k` passages for the text under the scope. `words`: what gives so many in BM25's place, such as a
        sparse encoder (the EHR study's Table 8)."""
        if self._reranker is None:
            return _telling_withheld(self._rank(text, k, by, scope, self._depth(k), words), k)
        name, reranker = self._reranker
        pool = max(k, self._rerank_depth)
        depth = self._depth(pool if self._fusion_times is None else k)
        ranking = _telling_withheld(self._rank(text, pool, by, scope, depth, words), pool)
        return reranked(ranking, text, reranker, name, k)

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
        """Rank the first `depth` dense documents or passages anew, by BM25 (IDF of the whole library, errata C6) or by
        the reranker, as the signal asks, and compare. Which rule judges: `preflight.rule_for`.

        The dense hits of several stores, and of a question in segments, are the fused ones, their scores those of the
        fusion: so small that no dense gap fitted on other scores is reached. Raises ValueError where the signal needs a
        reranker and there is none.
        """
        dense = self._preflight_pool(text, scope, depth, count)
        judge = rule_for(rule, dense, count, scope.patient is not None, signal=signal, n=n, threshold=threshold)
        bm25: Sequence[Hit] = ()
        size = len(dense.hits)
        if size and judge.signal in BY_WORDS:
            words = [
                Ranking(each.store.search_words(text, size, seen, within=dense.ids), "bm25")
                for each, seen in self._by_words(scope)
            ]
            bm25 = self._fused(words, "bm25", size, size).hits
        again = None
        if self._reranker is not None and judge.signal == "reranker-overlap":
            name, reranker = self._reranker
            again = _scored(reranked(dense, text, reranker, name, size).hits)
        return rankings_agree(
            _scored(dense.hits),
            _scored(bm25),
            again,
            signal=judge.signal,
            n=judge.n,
            threshold=judge.threshold,
            depth=depth,
            count=count,
            origin=judge.origin,
        )

    def _preflight_pool(self, text: str, scope: Scope, depth: int, count: CountUnit) -> Ranking:
        """Return the dense hits that are ranked anew: so many passages, or all those found of so many documents."""
        if count == "passages":
            return self._rank(text, depth, "dense", scope, self._depth(depth))
        dense = deep_enough(lambda k: self._rank(text, k, "dense", scope, self._depth(k)), depth)
        names = {name for name, _ in by_document(_scored(dense.hits))[:depth]}
        return replace(dense, hits=tuple(hit for hit in dense.hits if hit.passage.document_id in names))

    def _rank(
        self,
        text: str,
        k: int,
        by: SearchMode,
        scope: Scope,
        depth: int,
        sparse: Callable[[int], Ranking] | None = None,
    ) -> Ranking:
        """`depth` hits of each ranking that enters the fusion; a ranking that is the only one has `k`."""
        by_words = [] if by == "dense" else self._by_words(scope)
        by_vector = [] if by == "bm25" else [*((each, scope) for each in self._searched), *self._literature(scope)]
        each = k if len(by_words) + len(by_vector) == 1 else depth
        words = [searched.by_words(text, each, seen) for searched, seen in by_words]
        words = words if sparse is None else [sparse(each)]
        dense = [self._dense(text, each, searched, seen) for searched, seen in by_vector]
        return self._fused([*dense, *words], by, k, depth)

    def _depth(self, k: int) -> int:
        return max(k, FUSION_DEPTH) if self._fusion_times is None else self._fusion_times * k

    def _by_words(self, scope: Scope) -> list[tuple[Searched, Scope]]:
        return [(self._searched[0], scope), *self._literature(scope)]

    def _literature(self, scope: Scope) -> list[tuple[Searched, Scope]]:
        return [(searched, replace(scope, patient=None)) for searched in self._beside]

    def _dense(self, text: str, k: int, searched: Searched, scope: Scope) -> Ranking:
        """The best `k`; of a question in segments, the rankings of the segments fused."""
        encoder = searched.encoder
        if encoder is None:
            raise ValueError("dense and hybrid search need an encoder")
        texts, fit = prepare(text, encoder, self._sentences, self._remedy)
        depth = k if len(texts) == 1 or self._fusion_times is not None else max(k, FUSION_DEPTH)
        found = [
            searched.by_vector(vector, depth, scope, {"encoder": encoder.fingerprint})
            for vector in encoder.encode_queries(texts)
        ]
        ranking = self._fused(found, "dense", k, depth)
        cut = {QUESTION_CUT: True} if fit.cut else {}
        return replace(ranking, parameters={**ranking.parameters, **cut}, notes=fit.notes())

    def _fused(self, rankings: Sequence[Ranking], name: SearchMode, k: int, depth: int) -> Ranking:
        """One ranking of the best `k`; a single one keeps its scores."""
        withheld: dict[str, int] = {}
        for document_id, rank in (
            pair for ranking in rankings for pair in ranking.parameters.get(WITHHELD, {}).items()
        ):
            withheld[document_id] = min(rank, withheld.get(document_id, rank))
        if len(rankings) == 1:
            (only,) = rankings
            return replace(only, hits=only.hits[:k], retriever=name, parameters={**only.parameters, "k": k})
        passages: dict[str, Passage] = {}
        for hit in (hit for ranking in rankings for hit in ranking.hits):
            # Of one id in two libraries it is the first library's passage.
            passages.setdefault(hit.passage.id, hit.passage)
        fused = reciprocal_rank_fusion([ranking.ids for ranking in rankings], self._rrf_k)[:k]
        encoders = list(dict.fromkeys(str(r.parameters["encoder"]) for r in rankings if "encoder" in r.parameters))
        return Ranking(
            hits=tuple(Hit(passages[id_], score, rank) for rank, (id_, score) in enumerate(fused)),
            retriever=name,
            parameters={
                "k": k,
                "encoder": encoders[0] if len(encoders) == 1 else encoders,
                "rrf_k": self._rrf_k,
                "fusion_depth": depth,
                "fused": len(rankings),
                **({"beside": [searched.name for searched in self._beside]} if self._beside else {}),
                **({QUESTION_CUT: True} if any(QUESTION_CUT in r.parameters for r in rankings) else {}),
                **({WITHHELD: withheld} if withheld else {}),
            },
            notes=tuple(dict.fromkeys(note for ranking in rankings for note in ranking.notes)),
        )
