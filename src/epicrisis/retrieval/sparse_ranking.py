"""Passages of one record ranked by a sparse encoder (SPLADE), the EHR study's ablation beside BM25 (its Table 8).

In memory, with no index: a record is small. Knows no store; an encoder may keep what it has encoded.
"""

from __future__ import annotations

from collections.abc import Sequence

from epicrisis.protocols import SparseEncoder
from epicrisis.types import Hit, Passage, Ranking


def sparse_ranking(query: str, passages: Sequence[Passage], encoder: SparseEncoder, k: int) -> Ranking:
    """The best `k` of the passages by the inner product of their weights with the query's; those that share no word
    with it are no hits. Raises ContextOverflow where a passage is longer than the encoder's window."""
    (asked,) = encoder.encode_queries([query])
    scored = [
        (passage, sum(weight * words.get(word, 0.0) for word, weight in asked.items()))
        for passage, words in zip(passages, encoder.encode_passages([each.text for each in passages]), strict=True)
    ]
    best = sorted(((passage, score) for passage, score in scored if score > 0), key=lambda pair: (-pair[1], pair[0].id))
    hits = tuple(Hit(passage, score, rank) for rank, (passage, score) in enumerate(best[:k]))
    return Ranking(hits, "splade", {"k": k, "encoder": encoder.name})
