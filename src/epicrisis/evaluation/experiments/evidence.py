"""What an experiment takes its passages from, as functions, and those of a real library.

Synchronous: cases are made before the first call. Knows no arm and no place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from epicrisis.library.lookup import at_random, passages_of
from epicrisis.opening import Opened, scope_of
from epicrisis.retrieval.signals import Scored
from epicrisis.seams import Reranker
from epicrisis.settings import Settings
from epicrisis.types import By, Passage, Question, Ranking, Scope

POOL = 2000
"""Passages from which random distractors are drawn; a library of fewer gives all it has."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Where passages come from."""

    retrieve: Callable[[Question, int], Ranking]
    """So many passages for the question, best first."""
    passages_of: Callable[[Question], Mapping[str, tuple[Passage, ...]]]
    """The passages of each of the question's gold documents; what is not there is left out."""
    words: Callable[[Question, Sequence[str]], Scored] | None = None
    """These passage ids by BM25; those without a word in common may be left out."""
    fused: Callable[[Question, int], Ranking] | None = None
    """So many passages for the question by all retrievers there are, fused."""
    reranker: tuple[str, Reranker] | None = None
    """With its name."""
    pool: Callable[[], Sequence[Passage]] | None = None
    """Passages of the whole library, drawn at random."""
    rrf_k: int = 60


def of_library(
    opened: Opened, settings: Settings, by: By, *, reranker: tuple[str, Reranker] | None = None, seed: int = 0
) -> Evidence:
    """The open library's. `reranker` is the rival's; one of the settings is part of every search already."""

    # Thousands of questions are held before the first is asked: a passage that many of them find is held once.
    known: dict[str, Passage] = {}

    def scope(question: Question) -> Scope:
        return scope_of(settings.scope, question=question)

    def ranked(question: Question, k: int, by: By) -> Ranking:
        found = opened.retriever.rank(question.text, k, by, scope(question))
        hits = (replace(hit, passage=known.setdefault(hit.passage.id, hit.passage)) for hit in found.hits)
        return replace(found, hits=tuple(hits))

    def words(question: Question, ids: Sequence[str]) -> Scored:
        hits = opened.library.search_words(question.text, len(ids), scope(question), within=ids)
        return [(hit.passage.id, hit.score) for hit in hits]

    return Evidence(
        retrieve=lambda question, k: ranked(question, k, by),
        passages_of=lambda question: passages_of(opened.library, question.gold_documents, scope(question)),
        words=words,
        fused=lambda question, k: ranked(question, k, "hybrid"),
        reranker=reranker,
        # Literature only: what is drawn here is shown to every question.
        pool=lambda: at_random(opened.library, POOL, seed, scope_of(settings.scope)),
        rrf_k=settings.rrf_k,
    )
