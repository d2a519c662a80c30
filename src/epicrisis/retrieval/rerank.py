"""Reranking of the passages of a ranking."""

from __future__ import annotations

from epicrisis.protocols import Reranker
from epicrisis.retrieval.ordering import build_hits
from epicrisis.types import Passage, Ranking


def rerank(ranking: Ranking, query: str, reranker: Reranker, name: str, k: int) -> Ranking:
    """Return the best `k` passages of a ranking by their scores against the query.

    `name` is the reranker's name. The parameters record how many passages were scored. An error of the reranker is
    raised, never replaced by the original order.
    """
    passages = ranking.passages
    texts = list(map(format_for_reranker, passages))
    scores = reranker.score(query, texts)
    ordered = sorted(zip(passages, scores.tolist(), strict=True), key=lambda pair: (-pair[1], pair[0].id))
    return Ranking(
        hits=build_hits(ordered[:k]),
        retriever=f"{ranking.retriever}+{name}",
        parameters={**ranking.parameters, "k": k, "reranker": name, "rerank_depth": len(passages)},
        notes=(*ranking.notes, *reranker.notes(query, texts)),
    )


def format_for_reranker(passage: Passage) -> str:
    """Return title and text as two sentences, the form of articles in the model card of MedCPT's cross-encoder."""
    if not passage.title:
        return passage.text
    end = "" if passage.title.endswith((".", "?", "!")) else "."
    return f"{passage.title}{end} {passage.text}"
