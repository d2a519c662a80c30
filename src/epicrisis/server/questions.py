"""Answer questions for callers: the body of a request, the check of access, and the limit of running questions.

Every interface (API, OpenAI endpoint, MCP, page) asks through `Questions.events`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from typing import Annotated, cast

from pydantic import BaseModel, ConfigDict, Field

from epicrisis.answers import Event
from epicrisis.api import build_question
from epicrisis.pipeline import Pipeline
from epicrisis.server.errors import NotFound, ServerBusy, ShuttingDown
from epicrisis.server.resources import OpenLibrary, RequestSettings, Resources
from epicrisis.server.users import Caller
from epicrisis.types import Question

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


class QuestionBody(BaseModel):
    """A question, and how to answer it."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
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
    options: dict[Letter, OptionText] | Annotated[list[OptionText], Field(max_length=26)] | None = Field(
        None, description="Options of a multiple-choice question, with or without letters."
    )
    library: LibraryName = None
    patient: PatientId = None
    settings: RequestSettings = RequestSettings()

    def to_question(self) -> Question:
        """Return the question. Raises InputError for an empty one."""
        return build_question(self.question, self.options, self.patient)


@dataclass(frozen=True, slots=True)
class AskedQuestion:
    """A question that a caller may ask, ready to be answered."""

    question: Question
    library: OpenLibrary
    pipeline: Pipeline
    """With the settings of the request. It belongs to the server; do not close it."""
    caller: Caller


class Questions:
    """Answers questions, up to `limit` at the same time."""

    def __init__(self, resources: Resources, limit: int = MAX_RUNNING) -> None:
        self.resources = resources
        self.running = 0
        self._limit = limit
        self._is_stopping = False
        self._idle = asyncio.Event()
        self._idle.set()

    def prepare(self, body: QuestionBody, caller: Caller) -> AskedQuestion:
        """Return the question of a body with its library and settings.

        Raises NotFound, InputError, and AccessDenied if the caller may not read the record of a patient.
        """
        library = self.resources.find(body.library)
        question = body.to_question()
        check_access(caller, library, question.patient)
        return AskedQuestion(question, library, library.with_settings(body.settings), caller)

    async def events(self, asked: AskedQuestion) -> AsyncGenerator[Event, None]:
        """Yield the events of the question; the last one is `Answered`. Closing the generator cancels the calls.

        Raises ServerBusy and ShuttingDown before any call, and the errors of `Pipeline.events`.
        """
        with self._hold_place():
            events = asked.pipeline.events(asked.question)
            # Left to the garbage collector, the calls of a cancelled question would run on.
            async with aclosing(cast("AsyncGenerator[Event, None]", events)) as open_events:
                async for event in open_events:
                    yield event

    async def stop(self, seconds: float) -> None:
        """Refuse new questions, and wait up to `seconds` for the running ones."""
        self._is_stopping = True
        try:
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        except TimeoutError:
            return

    @property
    def is_stopping(self) -> bool:
        """Whether new questions are refused."""
        return self._is_stopping

    @contextmanager
    def _hold_place(self) -> Iterator[None]:
        if self._is_stopping:
            raise ShuttingDown("the server is stopping, and accepts no new question")
        if self.running >= self._limit:
            raise ServerBusy(
                f"the server answers {self.running} questions, and no more at the same time", retry_after=RETRY_SECONDS
            )
        self.running += 1
        self._idle.clear()
        try:
            yield
        finally:
            self.running -= 1
            if not self.running:
                self._idle.set()


def check_access(caller: Caller, library: OpenLibrary, patient: str | None) -> None:
    """Raise AccessDenied unless the caller may read this library, and the record of this patient in it.

    A library of notes needs a patient reader, whatever is asked: even its counts tell of patients. Raises NotFound for
    a patient of a library of literature.
    """
    if library.holds_patients:
        caller.require("patient-reader")
    elif patient is not None:
        raise NotFound(f"the library {library.name} holds no patients: leave out the patient")
