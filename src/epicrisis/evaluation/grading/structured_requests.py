"""One prompt to a chat model and its reply, read.

For what is no question of a run: verdicts on answers, proposals of questions. Knows neither of them, and no file.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from epicrisis.answering.reply_parsing import Unreadable
from epicrisis.answering.strategy_context import SECOND_TRY_TEMPERATURE, Sampling
from epicrisis.answers import Failure, Usage
from epicrisis.errors import ChatError, ReplyTruncated, ReplyWithheld
from epicrisis.pipeline import Pipeline
from epicrisis.prompts import Prompt
from epicrisis.protocols import ChatModel, ChatRequest
from epicrisis.settings import ModelsByRole, Settings
from epicrisis.types import Scope

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class GraderReplyFormat(Generic[T]):
    """What is asked of a reply."""

    properties: Mapping[str, Any]
    """The schema's, in the order in which they are written; all are required."""
    characters: int
    """Of the longest reply that they allow."""
    read: Callable[[str], T]
    """Raises Unreadable."""

    @property
    def schema(self) -> dict[str, Any]:
        return object_of(self.properties)

    @property
    def max_tokens(self) -> int:
        """Two characters a token, and some JSON around."""
        return self.characters // 2 + 100


def object_of(properties: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of an object with these properties and no other."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


def text_of(characters: int) -> dict[str, Any]:
    """The schema of a text that says something."""
    return {"type": "string", "minLength": 1, "maxLength": characters}


def read_object(reply: str, name: str) -> dict[str, Any]:
    """The reply's JSON object that has a field of this name, bare or between other words. Raises Unreadable where there
    is none, or where several differ."""
    found = [value for value in _objects(reply) if name in value]
    if not found:
        raise Unreadable(f"the reply holds no JSON object with {name}")
    if any(value != found[0] for value in found):
        raise Unreadable("the reply holds several JSON objects that differ")
    return found[0]


def _objects(text: str) -> Iterator[dict[str, Any]]:
    decoder = json.JSONDecoder(strict=False)
    at = text.find("{")
    while at >= 0:
        try:
            value, at_end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            at_end = at + 1
        else:
            yield value
        at = text.find("{", at_end)


@dataclass(frozen=True, slots=True)
class Said(Generic[T]):
    """What came of one prompt: a value, or else why there is none."""

    value: T | None
    usage: Usage
    """Of both tries where there were two."""
    failure: Failure | None = None
    """The call failed, or its reply was not whole: asked again it may succeed."""
    unreadable: str | None = None
    """Neither reply could be read."""


@dataclass(frozen=True, slots=True)
class Asker:
    """A chat model and how it draws."""

    model: ChatModel
    sampling: Sampling = field(default_factory=Sampling)
    seed: int = 0
    told: Mapping[str, Any] = field(default_factory=dict)
    """The model as `Pipeline.recipe` tells of one."""
    at_once: int = 1
    """Prompts worked on together."""

    async def fits(self, prompt: Prompt, form: GraderReplyFormat[T]) -> bool:
        """Whether the prompt and the longest reply fit the model's window; True where the window is not known."""
        window = (await self.model.capabilities()).context_tokens
        if window is None:
            return True
        room = window - form.max_tokens - self.sampling.max_reasoning_tokens
        return await self.model.count_tokens(prompt.messages) <= room

    async def ask(self, prompt: Prompt, form: GraderReplyFormat[T]) -> Said[T]:
        """The reply, read. One that cannot be read, is overlong or withheld is asked for once more, as another draw.

        Raises what is no failure of the call: BudgetExceeded, ScopeViolation.
        """
        first = ChatRequest(
            prompt.messages,
            form.max_tokens,
            temperature=self.sampling.temperature,
            top_p=self.sampling.top_p,
            seed=self.seed,
            schema=form.schema,
            max_reasoning_tokens=self.sampling.max_reasoning_tokens,
        )
        hotter = max(self.sampling.temperature, SECOND_TRY_TEMPERATURE)
        second = replace(first, sample=1, seed=self.seed + 1, temperature=hotter)
        spent = Usage()
        said: Said[T] = Said(None, spent)
        for request in (first, second):
            try:
                reply = await self.model.complete(request)
                spent += reply.usage
                if reply.finish_reason == "length":
                    raise ReplyTruncated(f"the reply was cut at {request.max_tokens} tokens: name another model")
                return Said(form.read(reply.text), spent)
            except Unreadable as error:
                said = Said(None, spent, unreadable=str(error))
            except ChatError as error:
                spent += error.usage
                said = Said(None, spent, failure=error.as_failure())
                if not isinstance(error, ReplyTruncated | ReplyWithheld):
                    break
        return said


@asynccontextmanager
async def opened(settings: Settings, role: str = "writer") -> AsyncGenerator[Asker, None]:
    """The model of this role in the layers that the settings ask for: cache, budget, retries, recording.

    Raises UserError before any call is made.
    """
    alone = {"strategy": "closed-book", "models": ModelsByRole(writer=settings.model_for(role))}
    async with Pipeline.open(settings.model_copy(update=alone), None) as pipeline:
        context = pipeline.context(lambda event: None, Scope())
        told = pipeline.recipe()["models"]["writer"]
        yield Asker(context.models["writer"], context.sampling["writer"], context.seed, told, pipeline.at_once)
