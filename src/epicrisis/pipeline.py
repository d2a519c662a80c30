"""The one place that knows the order of the stages. It builds them from settings, yields typed events as they happen,
and ends with the answer.

    async with Pipeline.open(settings, "~/lib") as pipeline:
        async for event in pipeline.events(question):
            ...

Knows no screen and no wire: the CLI and the server translate the same events.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeAlias, TypeVar

from epicrisis.answering.abstention import chose_unanswerable, withhold_unverified
from epicrisis.answering.baselines import chain_of_thought, closed_book, full_context, rag
from epicrisis.answering.brief_context import brief_context
from epicrisis.answering.next_token import zero_shot
from epicrisis.answering.open_medprompt import ensemble_refining, self_reflection
from epicrisis.answering.reward import request_reward
from epicrisis.answering.self_consistency import NO_EXAMPLES, medprompt, self_consistency
from epicrisis.answering.strategy_context import PROMPTS, Context, RefiningOptions, Rewarder
from epicrisis.answering.structured_request import Sampling
from epicrisis.answering.voting import VotingOptions
from epicrisis.answers import Answer, Answered, Event, ModelCalled, Notice, TextDelta, Usage
from epicrisis.components import (
    ExampleSearch,
    LibrarySearch,
    build_scope,
    describe_examples,
    describe_library,
    list_remote_hosts,
    open_cache,
    open_examples,
    open_library_search,
    open_models,
    open_reward,
    protect_patient_data,
    read_rosters,
)
from epicrisis.errors import EpicrisisError, InputError, SettingsError
from epicrisis.evidence_selection import (
    NO_RESTRICTION,
    RETRY_MESSAGE,
    TimeRestriction,
    find_evidence,
    fit_notes,
    is_chronological,
    order_evidence,
    resolve_time_restriction,
)
from epicrisis.library.patients import MIXED, Roster, check_patient, resolved_patient
from epicrisis.logs import log_error, log_event, open_log
from epicrisis.models.catalogue import is_demo
from epicrisis.overrides import NO_OVERRIDES, RunOverrides, apply_overrides
from epicrisis.privacy import silence_dependency_logs, strip_secrets
from epicrisis.prompts import hash_prompts
from epicrisis.protocols import ChatModel, RewardModel
from epicrisis.retrieval.preflight import named_rules
from epicrisis.retrieval.record_context import IN_TIME
from epicrisis.retrieval.retriever import Retriever
from epicrisis.serialization import to_json
from epicrisis.settings import ModelSettings, Settings
from epicrisis.types import Examples, Preflight, Question, Ranking, Scope

Strategy: TypeAlias = Callable[[Question, Context], Awaitable[Answer]]

STRATEGIES: Mapping[str, Strategy] = {
    "brief-context": brief_context,
    "rag": rag,
    "full-context": full_context,
    "closed-book": closed_book,
    "chain-of-thought": chain_of_thought,
    "zero-shot": zero_shot,
    "self-consistency": self_consistency,
    "medprompt": medprompt,
    "ensemble-refining": ensemble_refining,
    "self-reflection": self_reflection,
}
WITHOUT_LIBRARY = frozenset(STRATEGIES) - {"brief-context", "rag", "full-context"}
"""They read no library of passages; some read one of solved questions."""
WITHOUT_SEARCH = WITHOUT_LIBRARY | {"full-context"}
"""They search none."""
WITH_EXAMPLES = frozenset({"medprompt", "ensemble-refining", "self-reflection"})

SEARCHES_AT_ONCE = 2

_DECIDES = {
    "encoder",
    "by",
    "strategy",
    "k",
    "partition",
    "rrf_k",
    "preflight",
    "long_questions",
    "rerank",
    "scope",
    "seed",
    "count",
    "votes",
    "examples",
    "refine",
    "fusion_times",
    "unit",
    "note_tokens",
    "order",
    "timeline",
    "extract",
    "unverified",
}
"""Settings that decide the answers."""
_DECIDES_REPLIES = {
    "context_tokens",
    "temperature",
    "top_p",
    "max_reasoning_tokens",
    "json_schema",
    "option_logprobs",
    "extra",
}

P = ParamSpec("P")
T = TypeVar("T")


class Pipeline:
    """A library, its encoder and the chat models, ready to answer. Use as an async context manager, or `aclose()`."""

    def __init__(
        self,
        settings: Settings,
        models: Mapping[str, ChatModel],
        opened: LibrarySearch | None = None,
        examples: ExampleSearch | None = None,
        reward: RewardModel | None = None,
        *,
        notes: Sequence[str] = (),
        remote: Sequence[str] = (),
        rosters: Sequence[Roster] = (),
        held: ExitStack | None = None,
    ) -> None:
        """`notes` are said with every question, and so are the machines that patients' notes may reach (`remote`);
        questions are held against `rosters` where no library is `opened`; `held` is closed with the pipeline."""
        self._settings = settings
        self._models = models
        self._opened = opened
        self._examples = examples
        self._reward = reward
        self._notes = tuple(notes)
        self._remote = tuple(remote)
        self._rosters = tuple(rosters) if opened is None else opened.rosters
        self._held = held or ExitStack()
        self._searches = asyncio.Semaphore(SEARCHES_AT_ONCE)

    @classmethod
    def open(cls, settings: Settings, library: Path | str | None, strategies: Collection[str] = ()) -> Self:
        """Opens what the strategy of the settings needs, and these, and nothing more. `library` may be None without
        retrieval.

        Raises UserError (no such library, another encoder, no such model) before any call is made.
        """
        needed = {settings.strategy, *strategies}
        silence_dependency_logs()
        settings = protect_patient_data(settings, library)
        with ExitStack() as held:
            if settings.log is not None:
                held.callback(open_log(settings.log, settings.log_text).close)
            opened, rosters = None, tuple[Roster, ...]()
            if library is not None and needed - WITHOUT_LIBRARY:
                opened = held.enter_context(open_library_search(settings, library, bool(needed - WITHOUT_SEARCH)))
            elif library is not None:
                rosters = read_rosters(library, *settings.beside)
            examples = open_examples(settings) if needed & WITH_EXAMPLES else None
            if examples is not None:
                held.enter_context(examples.opened)
            elif "medprompt" in needed:
                raise SettingsError(NO_EXAMPLES)
            cache, note = open_cache(settings, opened)
            if cache is not None:
                held.callback(cache.close)
            models = open_models(settings, cache)
            return cls(
                settings,
                models,
                opened,
                examples,
                open_reward(settings) if "self-reflection" in needed else None,
                notes=[note] if note else [],
                remote=list_remote_hosts(settings, library),
                rosters=rosters,
                held=held.pop_all(),
            )

    async def events(
        self, question: Question, scope: Scope | None = None, treatment: RunOverrides = NO_OVERRIDES
    ) -> AsyncIterator[Event]:
        """What happens, as it happens; the last event is `Answered`. Leaving cancels the calls in flight."""
        queue: asyncio.Queue[Event | None] = asyncio.Queue()
        recorded: list[Event] = []

        def emit(event: Event) -> None:
            log_event(question.key, event)
            if not isinstance(event, TextDelta):
                recorded.append(event)
            queue.put_nowait(event)

        async def work() -> Answer:
            try:
                seen = await self.resolved(
                    scope or treatment.scope or build_scope(self._settings.scope, question=question)
                )
                await self.check([replace(question, patient=seen.patient)])
                for event in (*self._warnings(), *await self._mixed(seen, treatment)):
                    emit(event)
                answer = await self._answered(question, seen, treatment, emit)
                return await self._told_whose(answer, seen, treatment)
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
        usage = sum((event.usage for event in recorded if isinstance(event, ModelCalled)), Usage())
        last = Answered(replace(answer, usage=usage, trace=tuple(recorded)))
        log_event(question.key, last)
        yield last

    async def _answered(
        self, question: Question, scope: Scope, treatment: RunOverrides, emit: Callable[[Event], None]
    ) -> Answer:
        """Ask the strategy; where notes were left out by time and the rest did not answer, ask once more with all."""
        asked = await self.time_asked(question, scope, treatment)
        for line in (*asked.said, *asked.open):
            emit(Notice("timeline", line))
        name = treatment.strategy or self._settings.strategy
        withhold = self._settings.unverified == "abstain" and name not in WITHOUT_LIBRARY

        async def ask(context: Context) -> Answer:
            answer = await STRATEGIES[name](question, context)
            return withhold_unverified(answer) if withhold else answer

        context = apply_overrides(self.context(emit, scope, asked), treatment)
        answer = await ask(context)
        if not is_narrowed(asked, treatment):
            return answer
        if answer.state != "abstained" and not chose_unanswerable(answer):
            return replace(answer, narrowing="kept")
        emit(Notice("timeline", RETRY_MESSAGE))
        whole = apply_overrides(self.context(emit, scope, asked.whole), without_narrowing(treatment))
        # One question has one deadline.
        again = await ask(replace(whole, deadline=context.deadline))
        return replace(again, narrowing="lifted")

    async def answer(
        self, question: Question, scope: Scope | None = None, treatment: RunOverrides = NO_OVERRIDES
    ) -> Answer:
        """The answer alone, its trace included."""
        async for event in self.events(question, scope, treatment):
            if isinstance(event, Answered):
                return event.answer
        raise RuntimeError("a pipeline's last event is its answer")

    async def check(self, questions: Iterable[Question], *, by_number: bool = False) -> None:
        """Raises InputError where one of them does not fit the patients of the library, read or not; asks no model.

        `by_number`: a record number is as good as the patient's id.
        """
        for question in questions if self._rosters else ():
            await self._offload(self._check, question, by_number)

    def _check(self, question: Question, by_number: bool) -> None:
        patient = resolved_patient(self._rosters, question.patient) if by_number else question.patient
        check_patient(self._rosters, replace(question, patient=patient))

    async def resolved(self, scope: Scope) -> Scope:
        """Return the same scope, of the patient by id where a record number was given."""
        if scope.patient is None or not self._rosters:
            return scope
        return replace(scope, patient=await self._offload(resolved_patient, self._rosters, scope.patient))

    def _reads_record(self, scope: Scope, treatment: RunOverrides) -> bool:
        return scope.patient is not None and (treatment.strategy or self._settings.strategy) not in WITHOUT_LIBRARY

    async def _mixed(self, scope: Scope, treatment: RunOverrides) -> list[Notice]:
        """What is to be said where documents of no patient are read with the record and nobody declared them."""
        if not self._rosters or not self._reads_record(scope, treatment):
            return []
        return [Notice("mixed", MIXED)] if await self._offload(self._rosters[0].is_mixed) else []

    async def _told_whose(self, answer: Answer, scope: Scope, treatment: RunOverrides) -> Answer:
        """The answer with the patient whose record was read."""
        if scope.patient is None or not self._reads_record(scope, treatment):
            return answer
        patients = await self._offload(self._rosters[0].patients) if self._rosters else {}
        known = patients.get(scope.patient)
        return replace(answer, patient=scope.patient, patient_name=known.name if known else None)

    @property
    def opened(self) -> LibrarySearch | None:
        """The library and its search; `None` where the strategy reads none. Closed with the pipeline."""
        return self._opened

    @property
    def at_once(self) -> int:
        """How many questions of a run are worked on together. Embedded models take one, so that the calls of a question
        follow each other and share their prompt's beginning."""
        wanted = [self._settings.model_for(role) for role in self._settings.roles]
        calls = wanted[0].concurrency if all(model.is_endpoint for model in wanted) else 1
        return self._settings.questions_at_once or calls

    def recipe(self) -> dict[str, Any]:
        """All that decides the answers: settings, models, the library's identity and size, this version."""
        settings = self._settings.model_dump(include=_DECIDES, exclude={"examples": {"library", "encoder"}})
        if self._settings.preflight.uses_named_rule:
            settings["preflight"]["rules"] = to_json(named_rules())
        recipe: dict[str, Any] = {
            "epicrisis": version("epicrisis"),
            "prompts": hash_prompts(PROMPTS),
            "settings": settings,
            "models": {role: _told(self._settings.model_for(role)) for role in self._settings.roles},
        }
        if self._opened is not None:
            libraries = (self._opened.library, *self._opened.others)
            told = [describe_library(each) for each in libraries]
            recipe["library"] = {**told[0], "fused": told[1:]}
            if self._opened.beside:
                recipe["library"]["beside"] = [describe_library(each) for each in self._opened.beside]
        if self._remote:
            recipe["remote"] = list(self._remote)
        if self._examples is not None:
            recipe["examples"] = describe_examples(self._examples.opened.library)
        return recipe

    async def aclose(self) -> None:
        """Stops the models and closes the library. Idempotent."""
        for model in set(self._models.values()):
            await model.aclose()
        self._held.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    def context(
        self, emit: Callable[[Event], None], scope: Scope, time_asked: TimeRestriction = NO_RESTRICTION
    ) -> Context:
        """What a strategy is handed."""
        settings = self._settings
        searched = replace(scope, hidden=scope.hidden | time_asked.hidden)

        async def retrieve(question: Question) -> Ranking:
            return await self._found(question, searched, made)

        async def record(question: Question) -> Ranking:
            return await self._record(question, made)

        async def preflight(question: Question) -> Preflight:
            check = settings.preflight
            return await self._offload(
                self._needed().preflight,
                question.text,
                searched,
                rule=check.rule,
                signal=check.signal,
                n=check.n,
                threshold=check.threshold,
                depth=check.depth,
                count=settings.count_unit(searched.patient),
            )

        async def examples(question: Question) -> Examples:
            assert self._examples is not None
            return await self._offload(self._examples.find, question)

        async def reward(question: Question, text: str, _: Context) -> Mapping[str, float]:
            assert self._reward is not None
            return await self._offload(self._reward.score, question.text, text)

        scored = Rewarder(reward) if self._reward is not None else None
        if scored is None and "reward" in settings.roles:
            scored = Rewarder(request_reward, settings.model_for("reward").name)
        deadline = settings.deadline_seconds
        made = Context(
            models=self._models,
            scope=scope,
            emit=emit,
            retrieve=retrieve,
            record=record,
            preflight=preflight if settings.preflight.enabled else None,
            partition=settings.partition,
            count=settings.count_unit(scope.patient),
            seed=settings.seed,
            sampling={role: _sampling(settings.model_for(role)) for role in settings.roles},
            deadline=None if deadline is None else time.monotonic() + deadline,
            voting=VotingOptions(**settings.votes.model_dump()),
            examples=None if self._examples is None else examples,
            refining=RefiningOptions(
                settings.refine.drafts, settings.refine.rounds, settings.refine.keep or ("best" if scored else "last")
            ),
            reward=scored,
            extract=settings.extract,
            about=((IN_TIME,) if scope.patient and is_chronological(settings, scope.patient) else ()) + time_asked.said,
        )
        return made

    async def time_asked(
        self, question: Question, scope: Scope, treatment: RunOverrides = NO_OVERRIDES
    ) -> TimeRestriction:
        """Return what the question says of time, held against the notes that it will be answered from."""
        placed, strategy = treatment.ranking, treatment.strategy or self._settings.strategy
        unread = strategy in WITHOUT_LIBRARY or (placed is None and self._opened is None) or treatment.about is not None
        if unread or scope.patient is None or not self._settings.timeline:
            return NO_RESTRICTION
        notes = self._needed().record if placed is None else lambda _: placed
        asked = await self._offload(resolve_time_restriction, question.text, lambda: notes(scope).passages)
        shown_whole = placed is not None or strategy == "full-context"
        return asked.whole if shown_whole else asked

    async def _found(self, question: Question, scope: Scope, context: Context) -> Ranking:
        """What the strategy reads: as much as is wanted and fits, in the order that is wanted."""
        settings = self._settings
        ranking = await self._offload(find_evidence, settings, self._needed(), question.text, scope)
        if settings.unit == "note":
            ranking = await fit_notes(question, context, ranking, settings.note_tokens)
        return _said(order_evidence(settings, question.patient, ranking), context)

    async def _record(self, question: Question, context: Context) -> Ranking:
        """Every note of the patient's record. Raises InputError where the question is of no patient."""
        if context.scope.patient is None:
            raise InputError(f"question {question.id}: full context reads a patient's record: say whose (--patient)")
        return _said(await self._offload(self._needed().record, context.scope), context)

    def _needed(self) -> Retriever:
        if self._opened is None:
            raise EpicrisisError(f"the strategy {self._settings.strategy} reads a library: name one")
        return self._opened.retriever

    async def _offload(self, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Runs synchronous work in a thread, a bounded number at once."""
        async with self._searches:
            return await asyncio.to_thread(work, *arguments, **named)

    def _warnings(self) -> list[Notice]:
        kept = [Notice("cache", note) for note in self._notes]
        if self._remote:
            hosts = ", ".join(self._remote)
            kept.append(Notice("remote-allowed", f"by --allow-remote patients' notes may reach {hosts}"))
        names = dict.fromkeys(self._settings.model_for(role).name for role in self._settings.roles)
        return kept + [
            Notice(
                "demo-model",
                f"{name} is a small model for demonstration, not for use: name a better one with --model "
                "(the URL of an OpenAI-compatible endpoint, or a .gguf file)",
            )
            for name in names
            if is_demo(name)
        ]


def is_narrowed(asked: TimeRestriction, treatment: RunOverrides) -> bool:
    """Return whether notes are left out by time, so that an abstention is asked once more."""
    return bool(asked.hidden) or treatment.whole is not None


def without_narrowing(treatment: RunOverrides) -> RunOverrides:
    """Return the treatment that reads the whole record."""
    return treatment if treatment.whole is None else replace(treatment, ranking=treatment.whole, whole=None)


def _said(ranking: Ranking, context: Context) -> Ranking:
    for note in ranking.notes:
        context.emit(Notice("search", note))
    return ranking


def _sampling(model: ModelSettings) -> Sampling:
    return Sampling(model.temperature, model.top_p, model.max_reasoning_tokens)


def _told(model: ModelSettings) -> dict[str, Any]:
    """What of a model decides its replies, and no secret that its address may hold."""
    return {**model.model_dump(include=_DECIDES_REPLIES), "name": strip_secrets(model.name)}
