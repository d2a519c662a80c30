"""Question to ranking: the one place that strings encoder, store and fusion together.

Synchronous; knows no chat model and no event. What a reader must know of a ranking (a question cut at the encoder's
window) is in the ranking's notes.
"""

from __future__ import annotations

from epicrisis.retrieval.fusion import reciprocal_rank_fusion
from epicrisis.retrieval.preflight import rankings_agree
from epicrisis.seams import Encoder, PassageStore
from epicrisis.types import By, Hit, Preflight, Ranking, Scope

FUSION_DEPTH = 100
"""Hits of each ranking that enter the fusion, or k where that is more."""


class Retriever:
    """Searches one store with one encoder. `encoder` may be None where only words are searched."""

    def __init__(self, store: PassageStore, encoder: Encoder | None, rrf_k: int = 60) -> None:
        self._store = store
        self._encoder = encoder
        self._rrf_k = rrf_k

    def rank(self, text: str, k: int, by: By, scope: Scope) -> Ranking:
        """The best `k` passages for the text under the scope."""
        if by == "dense":
            hits = self._dense(text, k, scope)
        elif by == "bm25":
            hits = self._store.search_words(text, k, scope)
        else:
            hits = self._hybrid(text, k, scope)
        parameters: dict[str, object] = {"k": k}
        notes: tuple[str, ...] = ()
        if by != "bm25":
            encoder = self._needed_encoder()
            parameters["encoder"] = encoder.fingerprint
            notes = cut_note(text, encoder)
        if by == "hybrid":
            parameters |= {"rrf_k": self._rrf_k, "fusion_depth": max(k, FUSION_DEPTH)}
        return Ranking(hits=hits, retriever=by, parameters=parameters, notes=notes)

    def preflight(self, text: str, scope: Scope, *, n: int, threshold: float, depth: int) -> Preflight:
        """Ranks the first `depth` dense hits anew by BM25 (IDF of the whole library, errata C6) and compares."""
        dense = [hit.passage.id for hit in self._dense(text, depth, scope)]
        bm25 = [hit.passage.id for hit in self._store.search_words(text, depth, scope, within=dense)] if dense else []
        return rankings_agree(dense, bm25, n=n, threshold=threshold, depth=depth)

    def _dense(self, text: str, k: int, scope: Scope) -> tuple[Hit, ...]:
        return self._store.search_vectors(self._needed_encoder().encode_queries([text])[0], k, scope)

    def _hybrid(self, text: str, k: int, scope: Scope) -> tuple[Hit, ...]:
        depth = max(k, FUSION_DEPTH)
        dense = self._dense(text, depth, scope)
        words = self._store.search_words(text, depth, scope)
        passages = {hit.passage.id: hit.passage for hit in (*dense, *words)}
        fused = reciprocal_rank_fusion([[hit.passage.id for hit in hits] for hits in (dense, words)], self._rrf_k)
        return tuple(Hit(passages[id_], score, rank) for rank, (id_, score) in enumerate(fused[:k]))

    def _needed_encoder(self) -> Encoder:
        if self._encoder is None:
            raise ValueError("dense and hybrid search need an encoder")
        return self._encoder


def cut_note(text: str, encoder: Encoder) -> tuple[str, ...]:
    """A note where the question is longer than the encoder reads; empty where it is not."""
    tokens, window = len(encoder.token_spans(text)), encoder.max_query_tokens
    if tokens <= window:
        return ()
    return (f"the question has {tokens} tokens, the encoder reads {window}: dense search did not see its end",)
