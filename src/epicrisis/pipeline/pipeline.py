"""Run the stages of a question in order: search, preflight check, strategy, and verification of the answer.

    async with Pipeline.open(settings, "~/lib") as pipeline:
        async for event in pipeline.events(question):
            ...

The stages are built from settings. Typed events are yielded as they happen, and the last one contains the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import replace
from importlib.metadata import version
from itertools import islice
from typing import Any

from epicrisis.answering.confidence import add_confidence
from epicrisis.answering.strategy_context import PROMPTS
from epicrisis.answering.traced_steps import trace_question
from epicrisis.core.answers import (
    Answer,
    Answered,
    Event,
    ModelCalled,
    TextDelta,
    Usage,
)
from epicrisis.core.errors import EpicrisisError
from epicrisis.core.prompts import hash_prompts
from epicrisis.core.serialization import to_json
from epicrisis.core.types import Question, Scope
from epicrisis.library.core.patient_check import check_patients, resolve_patient
from epicrisis.pipeline import components
from epicrisis.pipeline.opening import OpenParts
from epicrisis.pipeline.overrides import NO_OVERRIDES, RunOverrides
from epicrisis.pipeline.question import AskedQuestion
from epicrisis.retrieval.preflight import describe_rules
from epicrisis.settings.settings import AnswerOptions
from epicrisis.system.logs import log_error, log_event

CHECKED_QUESTIONS = 500


class Pipeline(OpenParts):
    """A library, its encoder and the chat models, ready to answer. An async context manager.

    Every question emits `notices`, and `remote` as the machines that may receive patients' notes.
    """

    __slots__ = ()

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
                name = overrides.strategy or self.settings.strategy
                return await trace_question(name, self._answer(question, scope, overrides, emit))
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

    async def _answer(
        self, question: Question, scope: Scope | None, overrides: RunOverrides, emit: Callable[[Event], None]
    ) -> Answer:
        scope = scope or overrides.scope or components.build_scope(self.settings.scope, question=question)
        scope = await self.resolve_scope(scope)
        await self.check_questions([replace(question, patient=scope.patient)])
        return await AskedQuestion(self, question, scope, overrides, emit).answer()

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
        remaining = iter(questions if self.readable_rosters else ())
        while some := list(islice(remaining, CHECKED_QUESTIONS)):
            await self.offload(self._check_questions, some, by_number)

    def _check_questions(self, questions: Sequence[Question], by_number: bool) -> None:
        rosters = self.readable_rosters
        if self.access is None:
            check_patients(rosters, questions, by_number=by_number)
            return
        for question in questions:
            # First, so that a patient who is not assigned and one who is not there are refused alike.
            patient = resolve_patient(rosters, question.patient) if by_number else question.patient
            if patient is not None:
                self.access.check("ask", patient, is_known=patient in self.all_rosters[0].patients())
        with self.access.refusals("ask", questions[0].patient if len(questions) == 1 else None):
            check_patients(rosters, questions, by_number=by_number)

    async def resolve_scope(self, scope: Scope) -> Scope:
        """Return the scope with the patient's id in place of a record number."""
        if scope.patient is None or not self.readable_rosters:
            return scope
        return replace(scope, patient=await self.offload(resolve_patient, self.readable_rosters, scope.patient))

    @property
    def concurrency(self) -> int:
        """The number of concurrent questions in a run. It is 1 for embedded models, so that the calls of a question
        follow each other and share their prompt prefix."""
        models = list(map(self.settings.model_for, self.roles))
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
            "models": components.describe_models(self.settings, self.roles),
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
