"""A ranking put in a new order by a reranker. Knows no store: the passages are those of the ranking."""

from __future__ import annotations

from epicrisis.protocols import Reranker
from epicrisis.types import Hit, Passage, Ranking


def reranked(ranking: Ranking, query: str, reranker: Reranker, name: str, k: int) -> Ranking:
    """The best `k` of the ranking's passages by their scores against `query`; how many there were is recorded.

    `name` is the reranker's. Raises what the reranker raises: a ranking is never passed off as reranked.
    """
    passages = ranking.passages
    texts = [as_read(passage) for passage in passages]
    scores = reranker.score(query, texts)
    ordered = sorted(zip(passages, scores.tolist(), strict=True), key=lambda pair: (-pair[1], pair[0].id))
    return Ranking(
        hits=tuple(Hit(passage, score, rank) for rank, (passage, score) in enumerate(ordered[:k])),
        retriever=f"{ranking.retriever}+{name}",
        parameters={**ranking.parameters, "k": k, "reranker": name, "rerank_depth": len(passages)},
        notes=(*ranking.notes, *reranker.notes(query, texts)),
    )


def as_read(passage: Passage) -> str:
    """Title and text as two sentences, the form of the articles in the card of MedCPT's cross-encoder."""
    if not passage.title:
        return passage.text
    end = "" if passage.title.endswith((".", "?", "!")) else "."
    return f"{passage.title}{end} {passage.text}"
