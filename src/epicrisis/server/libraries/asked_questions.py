"""Answer questions for callers: the body of a request, the check of access, and the limit of running questions.

Every interface (API, OpenAI endpoint, MCP, page) asks through `Questions.events`.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import ExitStack, aclosing
from dataclasses import dataclass, replace
from typing import Annotated, cast

from pydantic import BeforeValidator, ConfigDict, Field

from epicrisis.api import build_question
from epicrisis.core.answers import Answer, Answered, Event, ModelCalled
from epicrisis.core.errors import InputError
from epicrisis.core.types import Question
from epicrisis.pipeline.pipeline import Pipeline
from epicrisis.privacy.access_log import AccessLog
from epicrisis.privacy.record_access import list_documents
from epicrisis.server.base.hidden_paths import hide_in_event
from epicrisis.server.base.http_errors import ServerBusy, ShuttingDown, TooManyRequests, log_failure
from epicrisis.server.base.metrics import Metrics
from epicrisis.server.base.request_body import RequestBody, limit_fields
from epicrisis.server.base.users import Caller
from epicrisis.server.libraries.caller_access import AccessControl, AccessReason
from epicrisis.server.libraries.resources import OpenLibrary, RequestSettings, Resources

MAX_QUESTION_CHARACTERS = 20_000
MAX_RUNNING = 256
"""Questions that are answered at the same time. More are refused."""
RETRY_SECONDS = 5

LibraryName = Annotated[
    str | None, Field(max_length=255, description="Name of the library. Default: the first of the server.")
]
PatientId = Annotated[
    str | None, Field(min_length=1, max_length=200, description="Also read the record of this patient.")
]
Letter = Annotated[str, Field(pattern="^[A-Z]$")]
OptionText = Annotated[str, Field(min_length=1, max_length=2_000)]
OptionTexts = Annotated[list[OptionText], Field(max_length=26)]
Options = Annotated[dict[Letter, OptionText] | OptionTexts | None, BeforeValidator(limit_fields)]


class QuestionBody(RequestBody):
    """A question, and how to answer it."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"question": "Does low-dose aspirin lower the risk of preterm pre-eclampsia?"},
                {
                    "question": "Does low-dose aspirin lower the risk of preterm pre-eclampsia?",
                    "options": {"A": "yes", "B": "no", "C": "maybe"},
                    "settings": {"strategy": "brief-context", "k": 8, "since": "2010"},
                    "stream": True,
                },
            ]
        },
    )

    question: str = Field(min_length=1, max_length=MAX_QUESTION_CHARACTERS, description="The question.")
    options: Options = Field(None, description="Options of a multiple-choice question, with or without letters.")
    library: LibraryName = None
    patient: PatientId = None
    settings: RequestSettings = RequestSettings()
    break_glass: AccessReason = None

    def to_question(self) -> Question:
        """Return the question. Raises InputError for an empty one."""
        return build_question(self.question, self.options, self.patient)


@dataclass(frozen=True, slots=True)
class Inquiry:
    """A question that a caller may ask, ready to be answered."""

    question: Question
    library: OpenLibrary
    pipeline: Pipeline
    """With the settings of the request. It belongs to the server; do not close it."""
    caller: Caller
    reason: str | None = None
    """Why the caller reads the record of a patient who is not assigned."""

    def with_id(self, id_: str) -> Inquiry:
        """Return the same question with an id."""
        return replace(self, question=replace(self.question, id=id_))


class Questions:
    """Answers questions, up to `limit` at the same time."""

    def __init__(self, resources: Resources, limit: int = MAX_RUNNING, log: AccessLog | None = None) -> None:
        self.resources = resources
        self.running = 0
        self.access = AccessControl(log)
        self._running_by_caller: Counter[str] = Counter()
        self.metrics = Metrics(lambda: self.running)
        self._limit = limit
        self._is_stopping = False
        self._idle = asyncio.Event()
        self._idle.set()

    async def prepare(self, body: QuestionBody, caller: Caller) -> Inquiry:
        """Return the question of a body with its library and settings.

        Raises NotFound, InputError, and AccessDenied if the caller may not read the record of the patient.
        """
        library = self.resources.find(body.library)
        reason = body.break_glass
        await self.access.check(caller, "ask", library, body.patient, reason, library_only=True)
        question = body.to_question()
        pipeline = library.with_settings(body.settings)
        patient = await self.access.find_patient(caller, "ask", library, question.patient, reason)
        question = replace(question, patient=patient)
        pipeline = replace(pipeline, readable=caller.list_readable(patient))
        try:
            await pipeline.check_questions([question])
        except InputError:
            await self.access.record(caller, "ask", library, patient, (), reason, outcome="refused")
            raise
        return Inquiry(question, library, pipeline, caller, reason)

    async def events(
        self, inquiry: Inquiry, *, is_accepted: bool = False, place: ExitStack | None = None
    ) -> AsyncGenerator[Event, None]:
        """Yield the events of the question; the last one is `Answered`. Closing the generator cancels the calls.

        `place` is one that was taken for the question, which is released at the end.
        Raises ServerBusy and ShuttingDown before any call, and the errors of `Pipeline.events`. What is read of a
        patient's record is in the access log before it is yielded.
        """
        with place or self.take_place(inquiry.caller, is_accepted=is_accepted):
            await self._record(inquiry, ())
            start = time.monotonic()
            events = inquiry.pipeline.events(inquiry.question)
            # Left to the garbage collector, the calls of a cancelled question would run on.
            async with aclosing(cast("AsyncGenerator[Event, None]", events)) as open_events:
                async for event in open_events:
                    documents = list_documents(event)
                    if documents:
                        await self._record(inquiry, documents)
                    if isinstance(event, ModelCalled):
                        self.metrics.count_call(event)
                    if isinstance(event, Answered):
                        self.metrics.count_answer(event.answer, time.monotonic() - start)
                        if event.answer.state == "failed":
                            log_failure(event.answer.failure)
                    yield hide_in_event(event, self.resources.hide_paths)

    async def answer(self, inquiry: Inquiry) -> Answer:
        """Return the answer to the question. Raises as `events`."""
        async with aclosing(self.events(inquiry)) as events:
            async for event in events:
                if isinstance(event, Answered):
                    return event.answer
        raise RuntimeError("the last event of a question is its answer")

    def refuse_new(self) -> None:
        """Refuse new questions from now on."""
        self._is_stopping = True

    async def stop(self, seconds: float) -> None:
        """Refuse new questions, and wait up to `seconds` for the running ones."""
        self.refuse_new()
        try:
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        except TimeoutError:
            return

    @property
    def is_stopping(self) -> bool:
        """Whether new questions are refused."""
        return self._is_stopping

    def take_place(self, caller: Caller, *, is_accepted: bool = False) -> ExitStack:
        """Return a place among the running questions, until it is closed.

        A stream takes it before its first byte, so that a refusal has its status.

        `is_accepted`: the question ran before, and finishes although the server is stopping. Raises ShuttingDown,
        ServerBusy and TooManyRequests.
        """
        if self._is_stopping and not is_accepted:
            raise ShuttingDown("the server is stopping, and accepts no new question")
        if self.running >= self._limit:
            raise ServerBusy(
                f"the server answers {self.running} questions, and no more at the same time", retry_after=RETRY_SECONDS
            )
        if self._running_by_caller[caller.owner] >= caller.running:
            raise TooManyRequests(
                f"{caller.name} has {caller.running} questions running, and no more at the same time",
                retry_after=RETRY_SECONDS,
            )
        self.running += 1
        self._running_by_caller[caller.owner] += 1
        self._idle.clear()
        place = ExitStack()
        place.callback(self._release_place, caller.owner)
        return place

    def _release_place(self, owner: str) -> None:
        self.running -= 1
        self._running_by_caller[owner] -= 1
        if not self.running:
            self._idle.set()

    async def record_reading(
        self,
        caller: Caller,
        action: str,
        library: OpenLibrary,
        documents: Mapping[str | None, Sequence[str]],
        reason: str | None,
    ) -> None:
        """Write to the access log that the caller reads answers about these patients, from these documents of each.

        Raises AccessDenied and NotFound.
        """
        await self.access.check(caller, action, library, next(iter(documents), None), reason, library_only=True)
        resolved: dict[str | None, list[str]] = {}
        for patient, ids in documents.items():
            known = await self.access.find_patient(caller, action, library, patient, reason)
            resolved.setdefault(known, []).extend(ids)
        for patient, ids in resolved.items():
            await self.access.record(caller, action, library, patient, ids, reason)

    async def _record(self, inquiry: Inquiry, documents: Sequence[str]) -> None:
        patient = inquiry.question.patient
        await self.access.record(inquiry.caller, "ask", inquiry.library, patient, documents, inquiry.reason)
