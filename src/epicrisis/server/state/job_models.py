"""The body of a job, its description as it is stored, and its progress."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from epicrisis.server.base.http_errors import ServerBusy
from epicrisis.server.base.request_body import RequestBody
from epicrisis.server.libraries.asked_questions import (
    MAX_QUESTION_CHARACTERS,
    LibraryName,
    Options,
    PatientId,
    QuestionBody,
)
from epicrisis.server.libraries.caller_access import AccessReason
from epicrisis.server.libraries.resources import RequestSettings

MAX_QUESTIONS = 1_000

JobState: TypeAlias = Literal["running", "done", "cancelled", "stopped"]
"""`stopped`: the server ended, or an error stopped the job. It can be resumed."""


class JobQuestion(RequestBody):
    """A question of a job."""

    id: Annotated[str | None, Field(max_length=200, description="Default: its number, from 1.")] = None
    question: str = Field(min_length=1, max_length=MAX_QUESTION_CHARACTERS)
    options: Options = None
    patient: PatientId = None


class JobBody(RequestBody):
    """Questions to answer in the background, with the same settings."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "questions": [{"question": "Does aspirin prevent pre-eclampsia?", "options": ["yes", "no"]}],
                    "settings": {"k": 8},
                }
            ]
        },
    )

    questions: Annotated[tuple[JobQuestion, ...], Field(fail_fast=True), Field(min_length=1, max_length=MAX_QUESTIONS)]
    library: LibraryName = None
    settings: RequestSettings = RequestSettings()
    break_glass: AccessReason = None

    def body_of(self, number: int) -> QuestionBody:
        """Return the body of question `number`, from 0."""
        item = self.questions[number]
        return QuestionBody(
            question=item.question,
            options=item.options,
            library=self.library,
            patient=item.patient,
            settings=self.settings,
            break_glass=self.break_glass,
        )


class JobTaken(ServerBusy):
    """Another server process has taken the job over, and this one may write nothing of it."""


class JobFile(BaseModel):
    """The content of `job.json`."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    id: str
    owner: str
    created: str
    body: JobBody
    state: JobState = "running"
    problem: str | None = None
    """Why the job stopped."""


@dataclass(frozen=True, slots=True)
class JobStatus:
    """The progress of a job."""

    id: str
    created: str
    state: JobState
    questions: int
    answers: Mapping[str, int]
    """The number of answers by state. Failed questions are asked again when the job is resumed."""
    problem: str | None = None
