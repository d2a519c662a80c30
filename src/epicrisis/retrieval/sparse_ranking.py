"""Ranking by a sparse encoder (SPLADE), the EHR study's alternative to BM25 (its Table 8).

The passages of one record are ranked in memory without an index, because a record is small.
"""

from __future__ import annotations

from collections.abc import Sequence

from epicrisis.protocols import SparseEncoder
from epicrisis.retrieval.ordering import build_hits
from epicrisis.types import Passage, Ranking


def rank_by_sparse_vectors(query: str, passages: Sequence[Passage], encoder: SparseEncoder, k: int) -> Ranking:
    """Return the best `k` passages by the inner product of their weights with the query's.

    Passages without a word of the query are no hits. Raises ContextOverflow if a passage exceeds the encoder's window.
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
