"""One question on its way: its evidence is read, a strategy answers, and the claims are checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import cast, get_args

from epicrisis.answering.citations import settle_study_types
from epicrisis.answering.claim_support import GivenDocuments, check_answer
from epicrisis.answering.disagreements import find_conflicts, watch_passages
from epicrisis.answering.document_answers import withhold_unverified
from epicrisis.answering.strategies.evidence import has_result
from epicrisis.answering.strategy import Strategy, find_strategy
from epicrisis.answering.strategy_context import Context
from epicrisis.answering.traced_steps import trace_steps
from epicrisis.answering.verifiers import make_chat_verifier
from epicrisis.core.answers import NOT_IN_LIBRARY, Answer, Event, Failure, Notice
from epicrisis.core.types import ChatCheck, Hit, Passage, Question, Ranking, Scope, Sentence
from epicrisis.library.core.patient_check import describe_strangers, find_strangers, replace_own_name
from epicrisis.library.core.patients import MIXED_NOTICE
from epicrisis.library.engines.word_index import analyze_words
from epicrisis.models.chat.loading import ask_ahead
from epicrisis.pipeline import components, evidence_selection
from epicrisis.pipeline.evidence_selection import Absence, EvidenceSearch, TimeRestriction
from epicrisis.pipeline.opening import OpenParts
from epicrisis.pipeline.overrides import RunOverrides, apply_overrides, without_narrowing
from epicrisis.pipeline.question_evidence import build_context, find_time_restriction
from epicrisis.privacy.record_access import watch_reading
from epicrisis.records.fact_questions.fact_evidence import NO_FACTS, FactAnswer
from epicrisis.records.fact_questions.finding import find_facts
from epicrisis.retrieval.record_context import restore_notes


@dataclass(frozen=True, slots=True)
class AskedQuestion:
    """A question with its scope, whose patient is in the library, and what it gets in place of the settings."""

    parts: OpenParts
    question: Question
    scope: Scope
    overrides: RunOverrides
    emit: Callable[[Event], None]

    @property
    def strategy(self) -> Strategy:
        """The strategy that answers."""
        return find_strategy(self.overrides.strategy or self.parts.settings.strategy)

    @property
    def has_library(self) -> bool:
        """Whether the strategy reads a library that is open."""
        return self.strategy.needs_library and self.parts.search is not None

    async def answer(self) -> Answer:
        """Return the answer with its patient. Reading a record is written to the access log."""
        parts, patient = self.parts, self.scope.patient
        reads_record = patient is not None and self.strategy.needs_library
        for notice in (*parts.notices, *components.list_notices(parts.settings, parts.roles, parts.remote)):
            self.emit(notice)
        if reads_record:
            await self._warn_of_others()
        async with ask_ahead(parts.settings, parts.models):
            with watch_reading(parts.access if reads_record else None, "ask", patient, self.emit) as watched:
                answer = await replace(self, emit=watched)._answer_in_time()
        if patient is None or not reads_record:
            return answer
        if parts.search is not None and answer.citations:
            answer = await parts.search_evidence(EvidenceSearch.date_citations, answer, self.scope)
        rosters = parts.readable_rosters
        known = (await parts.offload(rosters[0].patients)).get(patient) if rosters else None
        return replace(answer, patient=patient, patient_name=known.name if known else None)

    async def _warn_of_others(self) -> None:
        """Emit notices of several patients' notes in one record, and of other persons in the question."""
        parts, rosters = self.parts, self.parts.readable_rosters
        is_mixed = await parts.offload(rosters[0].is_mixed) if rosters else False
        if is_mixed:
            self.emit(Notice("mixed", MIXED_NOTICE))
        about = replace(self.question, patient=self.scope.patient)
        # Who may read all patients is refused a question with another's full name or number.
        if strangers := await parts.offload(find_strangers, rosters, about, titled=parts.readable is None):
            self.emit(Notice("other-person", describe_strangers(strangers)))

    async def _answer_in_time(self) -> Answer:
        """Return the answer of the strategy; if notes were left out by time and the others give none, ask again."""
        restriction = await find_time_restriction(self.parts, self.question, self.scope, self.overrides)
        for line in (*restriction.messages, *restriction.unresolved_messages):
            self.emit(Notice("timeline", line))
        watch, passages = watch_passages(self.emit)
        context = self._build_context(watch, restriction, self.overrides)
        facts = await self._find_facts(context)
        absence = await self._find_absence()
        for line in absence.notes:
            self.emit(Notice("search", line))
        if absence.reason:
            failure = Failure(NOT_IN_LIBRARY, absence.reason)
            return Answer(question=self.question, strategy=self.strategy.name, state="abstained", failure=failure)
        answer = await self._run_strategy(context, facts, passages)
        if not is_narrowed(restriction, self.overrides):
            return answer
        if has_result(answer):
            return replace(answer, narrowing="kept")
        self.emit(Notice("timeline", evidence_selection.RETRY_MESSAGE))
        whole = self._build_context(watch, restriction.without_hidden(), without_narrowing(self.overrides))
        # Both attempts share one deadline.
        again = await self._run_strategy(replace(whole, deadline=context.deadline), facts, passages)
        return replace(again, narrowing="lifted")

    def _build_context(
        self, emit: Callable[[Event], None], restriction: TimeRestriction, overrides: RunOverrides
    ) -> Context:
        return trace_steps(apply_overrides(build_context(self.parts, emit, self.scope, restriction), overrides))

    async def _find_facts(self, context: Context) -> FactAnswer:
        """Return what structured entries of the record say, if the settings ask for it."""
        if not self.has_library or not context.options.facts:
            return NO_FACTS
        fetch = partial(self.parts.search_evidence, EvidenceSearch.fetch_record, self.scope)
        about = replace(self.question, patient=self.scope.patient)
        question = await self.parts.offload(replace_own_name, self.parts.readable_rosters, about)
        return await find_facts(question, context, fetch)

    async def _find_absence(self) -> Absence:
        """Return why no document answers, for a question without options that is about no patient.

        The strategy evidence says itself that the sentences it lists do not answer.
        """
        is_searched = self.has_library and self.strategy.needs_model and self.overrides.ranking is None
        is_checked = is_searched and not self.question.options
        if not (is_checked and evidence_selection.checks_absence(self.parts.settings, self.question.text, self.scope)):
            return Absence()
        return await self.parts.search_evidence(EvidenceSearch.find_absence, self.question.text, self.scope)

    async def _run_strategy(self, context: Context, facts: FactAnswer, passages: Mapping[str, Passage]) -> Answer:
        """Return the answer of the strategy with checked claims, computed facts and disagreements of the documents."""
        strategy = self.strategy
        answer = await strategy.run(self.question, facts.add_to_context(context))
        answer = facts.add_statement(answer)
        if self.parts.settings.unverified == "abstain" and strategy.needs_library:
            answer = withhold_unverified(answer)
        if strategy.needs_model:
            answer = await self._check_claims(answer, context, passages)
        passages_by_id = {**await self._read_beginnings(answer, passages), **passages}
        answer = settle_study_types(answer, tuple(passages_by_id.values()))
        conflicts = find_conflicts(answer, passages_by_id, is_record=self.scope.patient is not None)
        return facts.cite(replace(answer, conflicts=conflicts))

    async def _read_beginnings(self, answer: Answer, passages: Mapping[str, Passage]) -> dict[str, Passage]:
        """Return the first passages of the documents of an answer and its parts, by id: they show the study type."""
        quoted = [quotation.passage_id for partial in answer.partials for quotation in partial.quotations]
        documents = [citation.document_id for citation in answer.shown_citations]
        documents += [passages[id_].document_id for id_ in quoted if id_ in passages]
        if not documents or not self.has_library:
            return {}
        ids = tuple(dict.fromkeys(documents))
        beginnings = await self.parts.search_evidence(EvidenceSearch.read_beginnings, ids, self.scope)
        return {passage.id: passage for passage in beginnings}

    async def _check_claims(self, answer: Answer, context: Context, passages: Mapping[str, Passage]) -> Answer:
        """Return the answer with its claims checked, as the settings `check` and `unsupported` say.

        Sentences are chosen from `passages`, those that were read, and not from a patient's notes.
        """
        settings, verifier = self.parts.settings, self.parts.verifier
        if settings.check in get_args(ChatCheck):
            role = "judge" if "judge" in self.parts.models else "writer"
            verifier = make_chat_verifier(context, role, cast(ChatCheck, settings.check))
        documents = None
        if self.scope.patient is None and self.parts.search is not None:
            unique = tuple({passage.id: passage for passage in passages.values()}.values())
            given = Ranking(tuple(Hit(passage, 0.0, rank) for rank, passage in enumerate(unique)), "given")
            whole = given if context.read_whole is None else await context.read_whole(given)

            async def rank(claim: str, k: int) -> Sequence[Sentence]:
                question = replace(answer.question, text=claim)
                return (await context.select_sentences(question, k, given)).sentences

            texts = restore_notes(whole.passages)
            documents = GivenDocuments(unique, texts, rank, analyze_words, context.split_sentences)
        return await check_answer(answer, settings.check, settings.unsupported, verifier, context.emit, documents)


def is_narrowed(restriction: TimeRestriction, overrides: RunOverrides) -> bool:
    """Return whether notes are left out by time, so that an abstention leads to a second attempt."""
    return bool(restriction.hidden) or overrides.whole is not None
