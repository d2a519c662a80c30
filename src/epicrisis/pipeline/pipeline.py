"""Run the stages of a question in order: search, preflight check, strategy, and verification of the answer.

    async with Pipeline.open(settings, "~/lib") as pipeline:
        async for event in pipeline.events(question):
            ...

The stages are built from settings. Typed events are yielded as they happen, and the last one contains the answer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar, cast, get_args

from epicrisis.answering.citations import add_document_studies
from epicrisis.answering.confidence import ConfidenceCalibration, add_confidence
from epicrisis.answering.conflicts import find_conflicts, watch_passages
from epicrisis.answering.document_answers import withhold_unverified
from epicrisis.answering.drafts import request_reward
from epicrisis.answering.strategies.evidence import has_result
from epicrisis.answering.strategy import Strategy, find_strategy
from epicrisis.answering.strategy_context import (
    PROMPTS,
    Context,
    Rewarder,
)
from epicrisis.answering.support import GivenDocuments, check_answer
from epicrisis.answering.traced_steps import trace_question, trace_steps
from epicrisis.answering.verifiers import make_chat_verifier
from epicrisis.answering.voting import NO_EXAMPLES
from epicrisis.core.answers import (
    NOT_IN_LIBRARY,
    Answer,
    Answered,
    Event,
    Failure,
    ModelCalled,
    Notice,
    TextDelta,
    Usage,
)
from epicrisis.core.errors import EpicrisisError, InputError, SettingsError
from epicrisis.core.prompts import TIME_ORDER_STATEMENT, hash_prompts
from epicrisis.core.protocols import ChatModel, RewardModel, Verifier
from epicrisis.core.serialization import to_json
from epicrisis.core.types import (
    ChatCheck,
    Examples,
    Hit,
    Passage,
    Preflight,
    Question,
    Ranking,
    Scope,
    Sentence,
    SentenceRanking,
)
from epicrisis.corpus.chunking import find_sentences
from epicrisis.library.patient_check import check_patients, describe_strangers, find_strangers, resolve_patient
from epicrisis.library.patients import MIXED_NOTICE, Roster
from epicrisis.library.word_index import analyze_words
from epicrisis.models.chat.loading import ask_ahead
from epicrisis.models.model_pool import ModelPool
from epicrisis.pipeline import components, evidence_selection
from epicrisis.pipeline.components import ExampleSearch, LibrarySearch
from epicrisis.pipeline.evidence_selection import NO_RESTRICTION, EvidenceSearch, RemoteSearch, TimeRestriction
from epicrisis.pipeline.overrides import NO_OVERRIDES, RunOverrides, apply_overrides, without_narrowing
from epicrisis.privacy.patient_data_policy import list_remote_hosts, protect_patient_data
from epicrisis.privacy.record_access import RecordAccess, open_access, watch_reading
from epicrisis.records.fact_questions.fact_evidence import NO_FACTS
from epicrisis.records.fact_questions.finding import find_facts
from epicrisis.retrieval.preflight import describe_rules
from epicrisis.settings.settings import AnswerOptions, ModelsByRole, Settings
from epicrisis.system.local_only import silence_dependency_logs
from epicrisis.system.logs import log_error, log_event, open_log

if TYPE_CHECKING:
    from epicrisis.privacy.deidentification.opening import LibraryDeidentification

CONCURRENT_SEARCHES, CHECKED_QUESTIONS = 2, 500

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Pipeline:
    """A library, its encoder and the chat models, ready to answer. An async context manager.

    Every question emits `notices`, and `remote` as the machines that may receive patients' notes.
    """

    settings: Settings
    models: Mapping[str, ChatModel]
    search: LibrarySearch | None = None
    """The library and its search, None for strategies without a library."""
    examples: ExampleSearch | None = None
    reward: RewardModel | None = None
    _: KW_ONLY
    notices: Sequence[Notice] = ()
    remote: Sequence[str] = ()
    calibration: ConfidenceCalibration | None = None
    verifier: Verifier | None = None
    """Checks the claims if the setting `check` is `nli`."""
    rosters: Sequence[Roster] = ()
    """The patients to check questions against if there is no `search`, which has its own."""
    resources: ExitStack = field(default_factory=ExitStack)
    searches: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(CONCURRENT_SEARCHES))
    remote_search: RemoteSearch | None = None
    access: RecordAccess | None = None
    deidentification: LibraryDeidentification | None = None
    readable: frozenset[str] | None = None
    """The patients that the reader may learn of. None: all."""

    @property
    def _rosters(self) -> Sequence[Roster]:
        rosters = self._all_rosters
        return rosters if self.readable is None else [roster.limit(self.readable) for roster in rosters]

    @property
    def _all_rosters(self) -> Sequence[Roster]:
        return self.rosters if self.search is None else self.search.rosters

    @classmethod
    def open(
        cls,
        settings: Settings,
        library: Path | str | None,
        strategies: Collection[str] = (),
        notices: Sequence[Notice] = (),
        pool: ModelPool | None = None,
    ) -> Self:
        """Open the components for the strategy of the settings and for these strategies, and nothing else.

        `library` may be None for strategies without a library. Raises UserError (no such library, another encoder, no
        such model) before any call of a model. Pipelines of one `pool` share their models.
        """
        needed, pool = [find_strategy(name) for name in {settings.strategy, *strategies}], pool or ModelPool()
        needs_models = any(strategy.needs_model for strategy in needed)
        needs_library = any(strategy.needs_library for strategy in needed)
        silence_dependency_logs()
        if not needs_models:
            # No chat model is called, so its address does not count.
            settings = settings.model_copy(update={"models": ModelsByRole()})
        settings = protect_patient_data(settings, library)
        with ExitStack() as resources:
            if settings.log is not None:
                resources.callback(open_log(settings.log, settings.log_text).close)
            search, rosters = None, tuple[Roster, ...]()
            if library is not None and needs_library:
                searches = any(strategy.needs_search for strategy in needed)
                sentences = any(strategy.needs_sentences for strategy in needed)
                search = components.open_library_search(settings, library, searches, sentences=sentences, pool=pool)
                resources.enter_context(search)
            elif library is not None:
                rosters = components.read_rosters(library, *settings.beside)
            shows_examples = any(strategy.examples != "unused" for strategy in needed)
            examples = components.open_examples(settings, pool) if shows_examples else None
            if examples is not None:
                resources.enter_context(examples.search)
            for strategy in needed:
                if strategy.examples == "required" and examples is None:
                    raise SettingsError(f"{strategy.name} {NO_EXAMPLES}")
            models, cache_notices = (
                components.open_cached_models(settings, search, resources, pool) if needs_models else ({}, [])
            )
            deidentification = None
            if needs_models and settings.deidentify is not None:
                from epicrisis.privacy.deidentification.opening import open_deidentification

                patients, store = (rosters, None) if search is None else (search.rosters, search.store)
                deidentification = open_deidentification(settings, library, patients, store)
            calibration, remarks = components.open_calibration(settings)
            needs_reward = any(strategy.needs_reward for strategy in needed)
            reward = components.open_reward_model(settings, pool) if needs_reward else None
            access = open_access(settings, library)
            return cls(
                settings,
                models,
                search,
                examples,
                reward,
                notices=(*notices, *cache_notices, *remarks, *pool.list_notices(settings)),
                calibration=calibration,
                remote=list_remote_hosts(settings, library),
                verifier=components.open_verifier(settings, pool) if needs_library else None,
                rosters=rosters,
                access=access,
                readable=None if access is None else access.readable,
                deidentification=deidentification,
                resources=resources.pop_all(),
            )

    async def events(
        self, question: Question, scope: Scope | None = None, overrides: RunOverrides = NO_OVERRIDES
    ) -> AsyncIterator[Event]:
        """Yield events as they happen; the last one is `Answered`. Leaving the loop cancels the calls in flight."""
        queue: asyncio.Queue[Event | None] = asyncio.Queue()
        trace: list[Event] = []

        def emit(event: Event) -> None:
            log_event(question.key, event)
            if not isinstance(event, TextDelta):
                trace.append(event)
            queue.put_nowait(event)

        async def work() -> Answer:
            try:
                return await trace_question(
                    self._strategy(overrides).name, self._work(question, scope, overrides, emit)
                )
            except EpicrisisError as error:
                log_error(question.key, error)
                raise
            finally:
                queue.put_nowait(None)

        task = asyncio.create_task(work())
        try:
            while (event := await queue.get()) is not None:
                yield event
            answer = await task
        finally:
            task.cancel()
            await asyncio.wait([task])
        usage = sum((event.usage for event in trace if isinstance(event, ModelCalled)), Usage())
        last = Answered(replace(add_confidence(answer, self.calibration), usage=usage, trace=tuple(trace)))
        log_event(question.key, last)
        yield last

    async def answer(
        self, question: Question, scope: Scope | None = None, overrides: RunOverrides = NO_OVERRIDES
    ) -> Answer:
        """Return the answer, with its trace."""
        async for event in self.events(question, scope, overrides):
            if isinstance(event, Answered):
                return event.answer
        raise RuntimeError("a pipeline's last event is its answer")

    async def check_questions(self, questions: Iterable[Question], *, by_number: bool = False) -> None:
        """Raise InputError for a question that does not fit the patients of the library. Calls no model.

        With `by_number` a record number is accepted as well as the patient's id.
        """
        remaining = iter(questions if self._rosters else ())
        while some := list(islice(remaining, CHECKED_QUESTIONS)):
            await self._offload(self._check_questions, some, by_number)

    def _check_questions(self, questions: Sequence[Question], by_number: bool) -> None:
        rosters = self._rosters
        if self.access is None:
            check_patients(rosters, questions, by_number=by_number)
            return
        for question in questions:
            # First, so that a patient who is not assigned and one who is not there are refused alike.
            patient = resolve_patient(rosters, question.patient) if by_number else question.patient
            if patient is not None:
                self.access.check("ask", patient, is_known=patient in self._all_rosters[0].patients())
        with self.access.refusals("ask", questions[0].patient if len(questions) == 1 else None):
            check_patients(rosters, questions, by_number=by_number)

    async def resolve_scope(self, scope: Scope) -> Scope:
        """Return the scope with the patient's id in place of a record number."""
        if scope.patient is None or not self._rosters:
            return scope
        return replace(scope, patient=await self._offload(resolve_patient, self._rosters, scope.patient))

    @property
    def concurrency(self) -> int:
        """The number of concurrent questions in a run. It is 1 for embedded models, so that the calls of a question
        follow each other and share their prompt prefix."""
        models = list(map(self.settings.model_for, self._roles))
        has_endpoints = all(model.is_endpoint for model in models)
        calls = models[0].most_calls if models and has_endpoints else 1
        if self.remote_search is not None and has_endpoints:
            # The endpoints have work while other questions search.
            calls += self.remote_search.places
        return self.settings.questions_at_once or calls

    def recipe(self) -> dict[str, Any]:
        """Return everything that influences the answers: settings, models, the library's id and size, and versions."""
        settings = self.settings.model_dump(
            include=set(AnswerOptions.model_fields), exclude={"examples": {"library", "encoder"}}
        )
        if self.settings.preflight.uses_named_rule:
            settings["preflight"]["rules"] = to_json(describe_rules())
        recipe: dict[str, Any] = {
            "epicrisis": version("epicrisis"),
            "prompts": hash_prompts(PROMPTS),
            "settings": settings,
            "models": components.describe_models(self.settings, self._roles),
        }
        if self.search is not None:
            recipe["library"] = components.describe_search(self.search)
        recipe |= components.describe_optional_prompts(self.settings, self.search)
        if self.remote:
            recipe["remote"] = list(self.remote)
        if self.deidentification is not None:
            recipe["deidentification"] = self.deidentification.version
        if self.examples is not None:
            recipe["examples"] = components.describe_examples(self.examples.search.library)
        if self.calibration is not None:
            recipe["calibration"] = to_json(self.calibration)
        return recipe

    async def aclose(self) -> None:
        """Stop the models and close the library. Idempotent."""
        for model in set(self.models.values()):
            await model.aclose()
        self.resources.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _work(
        self, question: Question, scope: Scope | None, overrides: RunOverrides, emit: Callable[[Event], None]
    ) -> Answer:
        scope = scope or overrides.scope or components.build_scope(self.settings.scope, question=question)
        scope = await self.resolve_scope(scope)
        await self.check_questions([replace(question, patient=scope.patient)])
        reads_record = scope.patient is not None and self._strategy(overrides).needs_library
        for notice in (*self.notices, *components.list_notices(self.settings, self._roles, self.remote)):
            emit(notice)
        if reads_record and self._rosters and await self._offload(self._rosters[0].is_mixed):
            emit(Notice("mixed", MIXED_NOTICE))
        if reads_record and self.readable is not None:
            about = replace(question, patient=scope.patient)
            if strangers := await self._offload(find_strangers, self._rosters, about):
                emit(Notice("other-person", describe_strangers(strangers)))
        async with ask_ahead(self.settings, self.models):
            with watch_reading(self.access if reads_record else None, "ask", scope.patient, emit) as watched:
                answer = await self._answer(question, scope, overrides, watched)
        if scope.patient is None or not reads_record:
            return answer
        if self.search is not None and answer.citations:
            answer = await self._search(EvidenceSearch.date_citations, answer, scope)
        patients = await self._offload(self._rosters[0].patients) if self._rosters else {}
        patient = patients.get(scope.patient)
        return replace(answer, patient=scope.patient, patient_name=patient.name if patient else None)

    async def _answer(
        self, question: Question, scope: Scope, overrides: RunOverrides, emit: Callable[[Event], None]
    ) -> Answer:
        """Return the answer of the strategy; if notes were left out by time and the others give none, ask again."""
        restriction = await self.find_time_restriction(question, scope, overrides)
        for line in (*restriction.messages, *restriction.unresolved_messages):
            emit(Notice("timeline", line))
        strategy = self._strategy(overrides)
        withhold = self.settings.unverified == "abstain" and strategy.needs_library
        (watch, passages), has_patient = watch_passages(emit), scope.patient is not None

        async def ask(context: Context) -> Answer:
            answer = await strategy.run(question, facts.add_to_context(context))
            answer = facts.add_statement(add_document_studies(answer, passages.values()))
            answer = withhold_unverified(answer) if withhold else answer
            answer = await self._check_claims(answer, context, passages) if strategy.needs_model else answer
            return facts.cite(replace(answer, conflicts=find_conflicts(answer, passages, is_record=has_patient)))

        context = trace_steps(apply_overrides(self.build_context(watch, scope, restriction), overrides))
        is_on = overrides.options.get("facts", self.settings.facts)
        fetch = partial(self._search, EvidenceSearch.fetch_record, scope)
        has_library = strategy.needs_library and self.search is not None
        facts = await find_facts(question, context, fetch) if is_on and has_library else NO_FACTS
        # The strategy evidence says itself that the sentences it lists do not answer.
        if has_library and strategy.needs_model and overrides.ranking is None:
            absence = await self._find_absence(question, scope)
            if absence:
                return Answer(question, strategy.name, "abstained", failure=Failure(NOT_IN_LIBRARY, absence))
        answer = await ask(context)
        if not is_narrowed(restriction, overrides):
            return answer
        if has_result(answer):
            return replace(answer, narrowing="kept")
        emit(Notice("timeline", evidence_selection.RETRY_MESSAGE))
        context_of_record = self.build_context(watch, scope, restriction.without_hidden())
        record_context = trace_steps(apply_overrides(context_of_record, without_narrowing(overrides)))
        # Both attempts share one deadline.
        again = await ask(replace(record_context, deadline=context.deadline))
        return replace(again, narrowing="lifted")

    async def _check_claims(self, answer: Answer, context: Context, passages: Mapping[str, Passage]) -> Answer:
        """Return the answer with its claims checked, as the settings `check` and `unsupported` say.

        Sentences are chosen from `passages`, those that were read, and not from a patient's notes.
        """
        settings, verifier = self.settings, self.verifier
        if settings.check in get_args(ChatCheck):
            role = "judge" if "judge" in self.models else "writer"
            verifier = make_chat_verifier(context, role, cast(ChatCheck, settings.check))
        documents = None
        if context.scope.patient is None and self.search is not None:
            unique = tuple({passage.id: passage for passage in passages.values()}.values())
            hits = tuple(Hit(passage, 0.0, rank) for rank, passage in enumerate(unique))

            async def rank(claim: str, k: int) -> Sequence[Sentence]:
                question = replace(answer.question, text=claim)
                return (await context.select_sentences(question, k, Ranking(hits, "given"))).sentences

            documents = GivenDocuments(unique, rank, analyze_words)
        return await check_answer(answer, settings.check, settings.unsupported, verifier, context.emit, documents)

    def build_context(
        self, emit: Callable[[Event], None], scope: Scope, restriction: TimeRestriction = NO_RESTRICTION
    ) -> Context:
        """Return the context of a strategy for one question."""
        settings = self.settings
        search_scope = replace(scope, hidden=scope.hidden | restriction.hidden)

        async def retrieve(question: Question) -> Ranking:
            ranking = await self._search(EvidenceSearch.find, question.text, search_scope)
            if settings.unit == "note":
                ranking = await evidence_selection.fit_notes(question, context, ranking, settings.note_tokens)
            return evidence_selection.emit_notes(
                evidence_selection.order_evidence(settings, question.patient, ranking), emit
            )

        async def record(question: Question) -> Ranking:
            if context.scope.patient is None:
                raise InputError(
                    f"question {question.id}: full context reads a patient's record: say whose (--patient)"
                )
            return evidence_selection.emit_notes(await self._search(EvidenceSearch.read_record, context.scope), emit)

        async def preflight(question: Question) -> Preflight:
            return await self._search(EvidenceSearch.check_preflight, question.text, search_scope)

        async def examples(question: Question) -> Examples:
            assert self.examples is not None
            return await self._offload(self.examples.find, question)

        async def reward(question: Question, text: str, _: Context) -> Mapping[str, float]:
            assert self.reward is not None
            return await self._offload(self.reward.score, question.text, text)

        rewarder = Rewarder(reward) if self.reward is not None else None
        if rewarder is None and "reward" in settings.roles:
            rewarder = Rewarder(request_reward, settings.model_for("reward").name)
        chronological = scope.patient is not None and evidence_selection.is_chronological(settings, scope.patient)
        deadline = settings.deadline_seconds
        context = Context(
            models=self.protect_models(scope.patient, emit),
            scope=scope,
            emit=emit,
            retrieve=retrieve,
            record=record,
            select_sentences=partial(self._select_sentences, search_scope, emit),
            read_whole=None if self.search is None else partial(self._read_whole, search_scope),
            split_sentences=find_sentences,
            options=settings,
            compare_texts=self._compare_texts,
            preflight=preflight if settings.preflight.enabled else None,
            sampling=components.read_sampling(settings),
            deadline=None if deadline is None else time.monotonic() + deadline,
            examples=None if self.examples is None else examples,
            reward=rewarder,
            about=(*([TIME_ORDER_STATEMENT] if chronological else []), *restriction.messages),
            record_about=(TIME_ORDER_STATEMENT, *restriction.without_hidden().messages),
        )
        return context

    def protect_models(self, patient: str | None, emit: Callable[[Event], None]) -> Mapping[str, ChatModel]:
        """Return the chat model of each role for texts about this patient, with surrogates if the settings say so."""
        return self.models if self.deidentification is None else self.deidentification.wrap(self.models, patient, emit)

    async def _select_sentences(
        self, scope: Scope, emit: Callable[[Event], None], question: Question, k: int, ranking: Ranking | None
    ) -> SentenceRanking:
        """Return the best `k` sentences of the ranking, or of whole documents of a search without a ranking."""
        if ranking is None:
            return await self._list_evidence(scope, question, k, emit)
        return await self._search(EvidenceSearch.rank_sentences, question.text, ranking, k)

    async def _list_evidence(
        self, scope: Scope, question: Question, k: int, emit: Callable[[Event], None] = lambda _: None
    ) -> SentenceRanking:
        """Return the best `k` sentences of whole documents of a search."""
        ranking = await self._search(EvidenceSearch.rank_passages, question.text, scope)
        evidence_selection.emit_notes(ranking, emit)
        return await self._search(EvidenceSearch.list_evidence, question.text, ranking, k, scope)

    async def _find_absence(self, question: Question, scope: Scope) -> str:
        """Return why no document answers, for a question without options that is about no patient."""
        if self.settings.not_in_library == "ask" or question.options or scope.patient is not None:
            return ""
        return (await self._list_evidence(scope, question, 1)).absence

    async def _read_whole(self, scope: Scope, ranking: Ranking) -> Ranking:
        """Return the ranking with the other passages of its first documents behind it."""
        return await self._search(EvidenceSearch.read_whole, ranking, scope)

    async def _compare_texts(self, queries: Sequence[str], texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Return for each query its similarity to each text, by the encoder or by words."""
        return await self._search(EvidenceSearch.compare_texts, queries, texts)

    async def find_time_restriction(
        self, question: Question, scope: Scope, overrides: RunOverrides = NO_OVERRIDES
    ) -> TimeRestriction:
        """Return the restriction of the patient's notes by the time expressions of the question."""
        ranking, strategy = overrides.ranking, self._strategy(overrides)
        no_record = not strategy.needs_library or (ranking is None and self.search is None)
        if no_record or overrides.about is not None or scope.patient is None or not self.settings.timeline:
            return NO_RESTRICTION
        if ranking is None:
            restriction = await self._search(EvidenceSearch.resolve_time, question.text, scope)
        else:
            passages = ranking.passages
            restriction = await self._offload(
                evidence_selection.resolve_time_restriction, question.text, lambda: passages
            )
        reads_everything = ranking is not None or not strategy.needs_search
        return restriction.without_hidden() if reads_everything else restriction

    @property
    def _roles(self) -> tuple[str, ...]:
        return tuple(filter(self.models.__contains__, self.settings.roles))

    def _strategy(self, overrides: RunOverrides) -> Strategy:
        return find_strategy(overrides.strategy or self.settings.strategy)

    async def _search(
        self, work: Callable[Concatenate[EvidenceSearch, P], T], *arguments: P.args, **keywords: P.kwargs
    ) -> T:
        """Run a method of the search, here or remotely."""
        if self.remote_search is not None:
            result: T = await self.remote_search.run(work.__name__, arguments, keywords)
            return result
        search = EvidenceSearch(self.settings, None if self.search is None else self.search.retriever)
        return await self._offload(work, search, *arguments, **keywords)

    async def _offload(self, work: Callable[P, T], *arguments: P.args, **keywords: P.kwargs) -> T:
        """Run synchronous work in a thread, a limited number at a time."""
        async with self.searches:
            return await asyncio.to_thread(work, *arguments, **keywords)


def is_narrowed(restriction: TimeRestriction, overrides: RunOverrides) -> bool:
    """Return whether notes are left out by time, so that an abstention leads to a second attempt."""
    return bool(restriction.hidden) or overrides.whole is not None
