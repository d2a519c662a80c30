"""What an experiment takes its passages from, as functions, and those of a real library.

Synchronous: cases are made before the first call. Knows no arm and no place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from epicrisis.components import Opened, scope_of
from epicrisis.counting import PASSAGES_A_DOCUMENT
from epicrisis.library.passage_lookup import at_random, passages_of
from epicrisis.protocols import Reranker
from epicrisis.retrieval.ranking_signals import Scored
from epicrisis.settings import Settings
from epicrisis.types import CountUnit, Passage, Question, Ranking, Scope, SearchMode

POOL = 2000
"""Passages from which random distractors are drawn; a library of fewer gives all it has."""


@dataclass(frozen=True, slots=True)
class PassageSource:
    """Where passages come from."""

    retrieve: Callable[[Question, int], Ranking]
    """So many documents or passages for the question, best first."""
    passages_of: Callable[[Question], Mapping[str, tuple[Passage, ...]]]
    """The passages of each of the question's gold documents; what is not there is left out."""
    words: Callable[[Question, Sequence[str]], Scored] | None = None
    """These passage ids by BM25; those without a word in common may be left out."""
    fused: Callable[[Question, int], Ranking] | None = None
    """So many of them for the question by all retrievers there are, fused."""
    reranker: tuple[str, Reranker] | None = None
    """With its name."""
    pool: Callable[[], Sequence[Passage]] | None = None
    """Documents or passages of the whole library, drawn at random; the passages of one document stand together."""
    rrf_k: int = 60
    count: CountUnit = "documents"
    """What is counted."""


def library_source(
    opened: Opened,
    settings: Settings,
    by: SearchMode,
    *,
    reranker: tuple[str, Reranker] | None = None,
    seed: int = 0,
    count: CountUnit | None = None,
) -> PassageSource:
    """The open library's. `reranker` is the rival's; one of the settings is part of every search already. `count`
    goes before what the settings count."""
    counted = count or settings.counted()

    # Thousands of questions are held before the first is asked: a passage that many of them find is held once.
    known: dict[str, Passage] = {}

    def scope(question: Question) -> Scope:
        return scope_of(settings.scope, question=question)

    def ranked(question: Question, k: int, by: SearchMode) -> Ranking:
        found = opened.retriever.found(question.text, k, by, scope(question), counted)
        hits = (replace(hit, passage=known.setdefault(hit.passage.id, hit.passage)) for hit in found.hits)
        return replace(found, hits=tuple(hits))

    def words(question: Question, ids: Sequence[str]) -> Scored:
        hits = opened.library.search_words(question.text, len(ids), scope(question), within=ids)
        return [(hit.passage.id, hit.score) for hit in hits]

    return PassageSource(
        retrieve=lambda question, k: ranked(question, k, by),
        passages_of=lambda question: passages_of(opened.library, question.gold_documents, scope(question)),
        words=words,
        fused=lambda question, k: ranked(question, k, "hybrid"),
        reranker=reranker,
        # Literature only: what is drawn here is shown to every question.
        pool=lambda: _pool(opened, seed, scope_of(settings.scope), counted),
        rrf_k=settings.rrf_k,
        count=counted,
    )


def _pool(opened: Opened, seed: int, scope: Scope, count: CountUnit) -> list[Passage]:
    """Return POOL passages drawn at random, or their documents, of a long one the passages about the one drawn."""
    passages = at_random(opened.library, POOL, seed, scope)
    if count == "passages":
        return list(passages)
    drawn = {passage.document_id: passage for passage in reversed(passages)}
    whole = passages_of(opened.library, list(drawn), scope)
    pool: list[Passage] = []
    for name in dict.fromkeys(passage.document_id for passage in passages):
        # A document that is deleted at this moment is not there any more.
        of_document = whole.get(name, (drawn[name],))
        start = max(0, min(drawn[name].ordinal, len(of_document) - PASSAGES_A_DOCUMENT))
        pool += of_document[start : start + PASSAGES_A_DOCUMENT]
    return pool
