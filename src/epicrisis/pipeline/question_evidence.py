"""The ways of one question to its evidence: searches, the record, sentences, solved questions, restricted by time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from epicrisis.answering.drafts import request_reward
from epicrisis.answering.strategy import find_strategy
from epicrisis.answering.strategy_context import Context, Rewarder
from epicrisis.core.answers import Event
from epicrisis.core.errors import InputError
from epicrisis.core.prompts import TIME_ORDER_STATEMENT
from epicrisis.core.types import Examples, Preflight, Question, Ranking, Scope, SentenceRanking
from epicrisis.corpus.base.chunking import find_sentences
from epicrisis.pipeline import components, evidence_selection
from epicrisis.pipeline.evidence_selection import NO_RESTRICTION, EvidenceSearch, TimeRestriction
from epicrisis.pipeline.opening import OpenParts
from epicrisis.pipeline.overrides import NO_OVERRIDES, RunOverrides


@dataclass(frozen=True, slots=True)
class QuestionEvidence:
    """What a question may read: within its scope, and without the notes that its time expressions leave out."""

    parts: OpenParts
    scope: Scope
    emit: Callable[[Event], None]

    async def find(self, question: Question, context: Context) -> Ranking:
        """Return the ranking of a search, in the order in which it is read. Whole notes are cut to the window."""
        settings = self.parts.settings
        ranking = await self.parts.search_evidence(EvidenceSearch.find, question.text, self.scope)
        if settings.unit == "note":
            ranking = await evidence_selection.fit_notes(question, context, ranking, settings.note_tokens)
        ordered = evidence_selection.order_evidence(settings, question.patient, ranking)
        return evidence_selection.emit_notes(ordered, self.emit)

    async def check_preflight(self, question: Question) -> Preflight:
        """Return whether the rankings of the question agree."""
        return await self.parts.search_evidence(EvidenceSearch.check_preflight, question.text, self.scope)

    async def select_sentences(self, question: Question, k: int, ranking: Ranking | None) -> SentenceRanking:
        """Return the best `k` sentences of the ranking, or of whole documents of a search without a ranking."""
        if ranking is None:
            return await self.list_sentences(question, k)
        return await self.parts.search_evidence(EvidenceSearch.rank_sentences, question.text, ranking, k)

    async def list_sentences(self, question: Question, k: int) -> SentenceRanking:
        """Return the best `k` sentences of whole documents of a search."""
        ranking = await self.parts.search_evidence(EvidenceSearch.rank_passages, question.text, self.scope)
        evidence_selection.emit_notes(ranking, self.emit)
        return await self.parts.search_evidence(EvidenceSearch.list_evidence, question.text, ranking, k, self.scope)

    async def read_whole(self, ranking: Ranking) -> Ranking:
        """Return the ranking with the other passages of its first documents behind it."""
        return await self.parts.search_evidence(EvidenceSearch.read_whole, ranking, self.scope)

    async def compare_texts(self, queries: Sequence[str], texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Return for each query its similarity to each text, by the encoder or by words."""
        return await self.parts.search_evidence(EvidenceSearch.compare_texts, queries, texts)

    async def find_examples(self, question: Question) -> Examples:
        """Return solved questions. There must be a library of them."""
        assert self.parts.examples is not None
        return await self.parts.offload(self.parts.examples.find, question)

    async def score(self, question: Question, text: str, _: Context) -> Mapping[str, float]:
        """Return the scores of an answer by the trained reward model, which there must be."""
        assert self.parts.reward is not None
        return await self.parts.offload(self.parts.reward.score, question.text, text)


def build_context(
    parts: OpenParts, emit: Callable[[Event], None], scope: Scope, restriction: TimeRestriction = NO_RESTRICTION
) -> Context:
    """Return the context of a strategy for one question."""
    settings = parts.settings
    evidence = QuestionEvidence(parts, replace(scope, hidden=scope.hidden | restriction.hidden), emit)

    async def retrieve(question: Question) -> Ranking:
        return await evidence.find(question, context)

    async def read_record(question: Question) -> Ranking:
        if scope.patient is None:
            raise InputError(f"question {question.id}: full context reads a patient's record: say whose (--patient)")
        return evidence_selection.emit_notes(await parts.search_evidence(EvidenceSearch.read_record, scope), emit)

    rewarder = Rewarder(evidence.score) if parts.reward is not None else None
    if rewarder is None and "reward" in settings.roles:
        rewarder = Rewarder(request_reward, settings.model_for("reward").name)
    chronological = scope.patient is not None and evidence_selection.is_chronological(settings, scope.patient)
    deadline = settings.deadline_seconds
    context = Context(
        options=settings,
        models=parts.protect_models(scope.patient, emit),
        scope=scope,
        emit=emit,
        retrieve=retrieve,
        record=read_record,
        preflight=evidence.check_preflight if settings.preflight.enabled else None,
        examples=None if parts.examples is None else evidence.find_examples,
        reward=rewarder,
        select_sentences=evidence.select_sentences,
        read_whole=None if parts.search is None else evidence.read_whole,
        split_sentences=find_sentences,
        compare_texts=evidence.compare_texts,
        sampling=components.read_sampling(settings),
        deadline=None if deadline is None else time.monotonic() + deadline,
        about=(*([TIME_ORDER_STATEMENT] if chronological else []), *restriction.messages),
        record_about=(TIME_ORDER_STATEMENT, *restriction.without_hidden().messages),
    )
    return context


async def find_time_restriction(
    parts: OpenParts, question: Question, scope: Scope, overrides: RunOverrides = NO_OVERRIDES
) -> TimeRestriction:
    """Return the restriction of the patient's notes by the time expressions of the question."""
    ranking, strategy = overrides.ranking, find_strategy(overrides.strategy or parts.settings.strategy)
    no_record = not strategy.needs_library or (ranking is None and parts.search is None)
    if no_record or overrides.about is not None or scope.patient is None or not parts.settings.timeline:
        return NO_RESTRICTION
    if ranking is None:
        restriction = await parts.search_evidence(EvidenceSearch.resolve_time, question.text, scope)
    else:
        passages = ranking.passages
        restriction = await parts.offload(evidence_selection.resolve_time_restriction, question.text, lambda: passages)
    reads_everything = ranking is not None or not strategy.needs_search
    return restriction.without_hidden() if reads_everything else restriction
