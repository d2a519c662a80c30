"""Graders: chat models as graders of answers, and the files of their grades.

    grader = preference_grader(client)                       # a prompt, the schema of the reply, and its reader
    store = open_preference_store(path, grader)              # one grade a line
    async for grade in grade_pairs(pairs, grader, store):    # grades that are missing; each is on disk when it arrives
        ...

A grade is found by its key, never by its place in the file (errata P4). A failed request is repeated by the next run;
all other grades are final.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar, get_args, runtime_checkable

from pydantic import ConfigDict, Field

from epicrisis.answering.structured_request import (
    JsonFormat,
    ModelClient,
    StructuredReply,
    Unreadable,
    read_object,
    text_schema,
)
from epicrisis.core.answers import Failure, Usage
from epicrisis.core.errors import InputError
from epicrisis.core.prompts import Prompt
from epicrisis.core.serialization import to_json
from epicrisis.corpus.base.reader_base import check_file
from epicrisis.system.jsonl_store import JsonlStore, OtherRecipePolicy, StoredLine, read_stored_lines

PROMPTS = "epicrisis.evaluation.grading.prompts"
CONTENT = "grades"
"""The lines of a file of grades, in error messages."""

GradeState: TypeAlias = Literal["judged", "unparsed", "failed"]
"""`unparsed`: the reply could not be read; `failed`: the request failed. Neither says anything about the answer."""
STATES: tuple[GradeState, ...] = get_args(GradeState)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Grade(Generic[T]):
    """The result of one request to a grader."""

    state: GradeState
    value: T | None = None
    """None unless the state is `judged`."""
    reason: str = ""
    """The grader's reason, or why its reply could not be read."""
    failure: Failure | None = None
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True)
class Grader(Generic[T]):
    """A chat model with the prompt and the reply format of one kind of grade."""

    client: ModelClient
    template: str
    """The template of its prompts."""
    reply_format: JsonFormat[tuple[T, str]]
    """Reads the grade and its reason."""
    checks_window: bool = False
    """Whether texts that do not fit the model's window fail without a request."""

    @property
    def model(self) -> str:
        """The whole name of the model, with its address."""
        return str(self.client.model_recipe["name"])

    @property
    def recipe(self) -> dict[str, Any]:
        """The settings that decide the grades, apart from the texts."""
        return {"judge": to_json(self.client.model_recipe), "prompt": self.template, "seed": self.client.seed}

    async def grade(self, prompt: Prompt) -> Grade[T]:
        """Request a grade. Raises BudgetExceeded and ScopeViolation, which are not failures of the request."""
        if self.checks_window and not await self.client.fits(prompt, self.reply_format):
            message = "the texts do not fit the judge's window: choose a judge with a larger window"
            return Grade("failed", failure=Failure("ContextOverflow", message))
        reply: StructuredReply[tuple[T, str]] = await self.client.request(prompt, self.reply_format)
        if reply.value is None:
            state: GradeState = "failed" if reply.failure else "unparsed"
            return Grade(state, None, reply.unreadable or "", reply.failure, reply.usage)
        value, reason = reply.value
        return Grade("judged", value, reason, usage=reply.usage)


C = TypeVar("C", bound=str)


def verdict_format(verdicts: tuple[C, ...], max_reason: int) -> JsonFormat[tuple[C, str]]:
    """Return the format of a reply with a reason and one of these verdicts."""

    def read(reply: str) -> tuple[C, str]:
        value = read_object(reply, "verdict")
        word = str(value["verdict"]).strip().casefold()
        for verdict in verdicts:
            if verdict == word:
                return verdict, str(value.get("reason", ""))
        raise Unreadable(f"the verdict is none of {', '.join(verdicts)}")

    schema = {"reason": text_schema(max_reason), "verdict": {"enum": list(verdicts)}}
    return JsonFormat(schema, max_reason, read)


@runtime_checkable
class StoredGrade(Protocol):
    """A grade with its subject: a dataclass with these and other fields."""

    @property
    def key(self) -> Hashable:
        """The subject of the grade."""

    @property
    def state(self) -> GradeState: ...

    @property
    def failure(self) -> Failure | None: ...

    @property
    def usage(self) -> Usage: ...


G = TypeVar("G", bound=StoredGrade)


class GradeLine(StoredLine, Generic[G]):
    """One line of a file of grades. Subclasses name the type of their grades."""

    # The bound of the type variable is a protocol, which pydantic cannot read.
    model_config = ConfigDict(arbitrary_types_allowed=True)

    grade: G = Field(alias="reply")

    @property
    def identity(self) -> Hashable:
        return self.grade.key


class GradeStore(JsonlStore[GradeLine[G]], Generic[G]):
    """The file of one grader's grades. Raises InputError as `JsonlStore` does."""

    def __init__(
        self,
        path: Path,
        line_type: type[GradeLine[G]],
        recipe: Mapping[str, Any],
        *,
        content: str = CONTENT,
        other_recipes: OtherRecipePolicy = "refuse",
    ) -> None:
        self._line_type = line_type
        self.usage = Usage()
        """Usage of all grades, failed ones included."""
        super().__init__(path, line_type, recipe, content=content, other_recipes=other_recipes)

    def remember(self, line: GradeLine[G]) -> None:
        """Keep the grade as the last one of its subject, and add its usage."""
        super().remember(line)
        self.usage += line.grade.usage

    @property
    def grades(self) -> dict[Hashable, G]:
        """The last grade of each subject."""
        return dict(zip(self.lines, (line.grade for line in self.lines.values()), strict=True))

    def add(self, grade: G) -> None:
        """Append a grade. It is on the disk when this returns."""
        self.append(self._line_type(recipe=self.recipe, grade=grade))

    def is_done(self, key: Hashable) -> bool:
        """Return whether the subject has a grade that is not to be repeated."""
        line = self.lines.get(key)
        return line is not None and line.grade.state != "failed"

    @property
    def failed(self) -> int:
        """The number of grades to be repeated."""
        return [*(line.grade.state for line in self.lines.values())].count("failed")


def read_grades(path: Path, line_type: type[GradeLine[G]]) -> tuple[dict[str, Any], dict[Hashable, G]]:
    """Read the recipe of a grader, and the last grade of each subject.

    Raises InputError if the file holds anything else, or grades of several graders.
    """
    check_file(path)
    recipe: dict[str, Any] | None = None
    grades: dict[Hashable, G] = {}
    for line in read_stored_lines(path, line_type, CONTENT):
        if recipe is not None and line.recipe != recipe:
            raise InputError(f"{path} holds the grades of several judges: choose another file")
        recipe = line.recipe
        grades[line.identity] = line.grade
    if recipe is None:
        raise InputError(f"{path} holds no grade: choose another file")
    return recipe, grades
