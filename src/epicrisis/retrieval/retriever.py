"""Question to ranking: the one place that strings encoders, stores, fusion and reranking together.

Synchronous; knows no chat model and no event. What a reader must know of a ranking (a question longer than the
encoder's window, a passage longer than the reranker's) is in the ranking's notes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from epicrisis.retrieval.fusion import reciprocal_rank_fusion
from epicrisis.retrieval.preflight import rankings_agree
from epicrisis.retrieval.query import Sentences, prepare
from epicrisis.retrieval.rerank import reranked
from epicrisis.retrieval.signals import BY_WORDS, Scored
from epicrisis.seams import Encoder, PassageStore, Reranker
from epicrisis.types import By, Hit, Preflight, Ranking, Remedy, Scope, SignalKind

FUSION_DEPTH = 100
"""Hits of each ranking that enter a fusion, or k where that is more."""
QUESTION_CUT = "question_cut"
"""Stands among a ranking's parameters where the question was longer than an encoder's window."""


def _one_sentence(text: str) -> Iterable[tuple[int, int]]:
    return [(0, len(text))]


def _scored(hits: Sequence[Hit]) -> Scored:
    return [(hit.passage.id, hit.score) for hit in hits]


@dataclass(frozen=True, slots=True)
class Searched:
    """A store and the encoder its vectors were made with; `None` where only words are searched."""

    store: PassageStore
    encoder: Encoder | None


class Retriever:
    """Searches one store, or several of the same passages with an encoder each, whose dense rankings are fused.

    Words are those of the first store. A question longer than an encoder's window is treated by `remedy`; `sentences`
    gives its sentences. With a reranker the best `rerank_depth` hits are scored anew.
    """

    def __init__(
        self,
        store: PassageStore,
        encoder: Encoder | None,
        rrf_k: int = 60,
        *,
        also: Sequence[Searched] = (),
        remedy: Remedy = "cut",
        sentences: Sentences = _one_sentence,
        reranker: tuple[str, Reranker] | None = None,
        rerank_depth: int = 64,
    ) -> None:
        self._searched = (Searched(store, encoder), *also)
        self._rrf_k = rrf_k
        self._remedy = remedy
        self._sentences = sentences
        self._reranker = reranker
        self._rerank_depth = rerank_depth

    def rank(self, text: str, k: int, by: By, scope: Scope) -> Ranking:
        """The best `k` passages for the text under the scope."""
        if self._reranker is None:
            return self._rank(text, k, by, scope)
        name, reranker = self._reranker
        return reranked(self._rank(text, max(k, self._rerank_depth), by, scope), text, reranker, name, k)

    def preflight(
        self, text: str, scope: Scope, *, n: int, threshold: float, depth: int, signal: SignalKind = "overlap"
    ) -> Preflight:
        """Ranks the first `depth` dense hits anew, by BM25 (IDF of the whole library, errata C6) or by the reranker, as
        the signal asks, and compares.

        The dense hits of several stores, and of a question in segments, are the fused ones, their scores those of the
        fusion: so small that no dense gap fitted on other scores is reached. Raises ValueError where the signal needs a
        reranker and there is none.
        """
        dense = self._rank(text, depth, "dense", scope)
        bm25: Sequence[Hit] = ()
        if dense.hits and signal in BY_WORDS:
            bm25 = self._searched[0].store.search_words(text, depth, scope, within=dense.ids)
        again = None
        if self._reranker is not None and signal == "reranker-overlap":
            name, reranker = self._reranker
            again = _scored(reranked(dense, text, reranker, name, depth).hits)
        return rankings_agree(
            _scored(dense.hits), _scored(bm25), again, signal=signal, n=n, threshold=threshold, depth=depth
        )

    def _rank(self, text: str, k: int, by: By, scope: Scope) -> Ranking:
        words = [] if by == "dense" else [self._words(text, k if by == "bm25" else self._depth(k), scope)]
        alone = by == "dense" and len(self._searched) == 1
        dense = [] if by == "bm25" else self._dense(text, k if alone else self._depth(k), scope)
        return self._fused([*dense, *words], by, k)

    def _depth(self, k: int) -> int:
        return max(k, FUSION_DEPTH)

    def _words(self, text: str, k: int, scope: Scope) -> Ranking:
        return Ranking(self._searched[0].store.search_words(text, k, scope), "bm25", {"k": k})

    def _dense(self, text: str, k: int, scope: Scope) -> list[Ranking]:
        """One ranking a store; of a question in segments, those of the segments fused."""
        rankings = []
        for searched in self._searched:
            encoder = searched.encoder
            if encoder is None:
                raise ValueError("dense and hybrid search need an encoder")
            texts, fit = prepare(text, encoder, self._sentences, self._remedy)
            depth = k if len(texts) == 1 else self._depth(k)
            found = [
                Ranking(searched.store.search_vectors(vector, depth, scope), "dense", {"encoder": encoder.fingerprint})
                for vector in encoder.encode_queries(texts)
            ]
            ranking = self._fused(found, "dense", k)
            cut = {QUESTION_CUT: True} if fit.cut else {}
            rankings.append(replace(ranking, parameters={**ranking.parameters, **cut}, notes=fit.notes()))
        return rankings

    def _fused(self, rankings: Sequence[Ranking], name: By, k: int) -> Ranking:
        """One ranking of the best `k`; a single one keeps its scores."""
        if len(rankings) == 1:
            (only,) = rankings
            return replace(only, hits=only.hits[:k], retriever=name, parameters={**only.parameters, "k": k})
        passages = {hit.passage.id: hit.passage for ranking in rankings for hit in ranking.hits}
        fused = reciprocal_rank_fusion([ranking.ids for ranking in rankings], self._rrf_k)[:k]
        encoders = list(dict.fromkeys(str(r.parameters["encoder"]) for r in rankings if "encoder" in r.parameters))
        return Ranking(
            hits=tuple(Hit(passages[id_], score, rank) for rank, (id_, score) in enumerate(fused)),
            retriever=name,
            parameters={
                "k": k,
                "encoder": encoders[0] if len(encoders) == 1 else encoders,
                "rrf_k": self._rrf_k,
                "fusion_depth": self._depth(k),
                "fused": len(rankings),
                **({QUESTION_CUT: True} if any(QUESTION_CUT in r.parameters for r in rankings) else {}),
            },
            notes=tuple(dict.fromkeys(note for ranking in rankings for note in ranking.notes)),
        )
