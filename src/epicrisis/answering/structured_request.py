"""Requests to a chat model for a JSON reply of a given format, and the reading of that reply.

A reply that is unreadable, too long or withheld is requested once more with another draw.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from epicrisis.core.answers import Failure, Usage
from epicrisis.core.errors import ChatError, ReplyTruncated, ReplyWithheld
from epicrisis.core.printable import replace_surrogates
from epicrisis.core.prompts import Prompt
from epicrisis.core.protocols import ChatModel, ChatReply, ChatRequest, refresh_capabilities

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
SECOND_TRY_TEMPERATURE = 0.5
"""Lowest temperature of the second request. At temperature 0 the model would repeat its unreadable reply."""
MAX_BROKEN_OBJECTS = 50
"""Places in a reply where a JSON object may seem to begin but cannot be read."""
TEMPLATE_BYTES = 1024


class Unreadable(ValueError):
    """A reply without a result that can be counted. The message quotes nothing of the reply."""


class EmptyReply(Unreadable):
    """A reply without text. It is neither a wrong answer nor a refusal (errata E2)."""


class ReplyFormat(Protocol[T_co]):
    """The format of a reply: its JSON schema, its maximum length and its reader."""

    @property
    def max_tokens(self) -> int: ...

    def schema(self) -> Mapping[str, Any] | None: ...

    def parse(self, text: str) -> T_co:
        """Return the value of a reply. Raises Unreadable."""


@dataclass(frozen=True, slots=True)
class JsonFormat(Generic[T]):
    """A reply format for one JSON object whose properties are all required."""

    properties: Mapping[str, Any]
    """JSON schema of each property, in the order in which the model writes them."""
    max_characters: int
    parse: Callable[[str], T]
    """Return the value of a reply. Raises Unreadable."""

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of the object."""
        return object_schema(self.properties)

    @property
    def max_tokens(self) -> int:
        """Two characters per token, plus room for the JSON punctuation."""
        return self.max_characters // 2 + 100


def object_schema(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON schema of an object with exactly these properties."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


def text_schema(max_characters: int) -> dict[str, Any]:
    """Return the JSON schema of a text that is not empty."""
    return {"type": "string", "minLength": 1, "maxLength": max_characters}


def read_object(reply: str, key: str) -> dict[str, Any]:
    """Return the JSON object of a reply that has `key`. Raises Unreadable for no such object, or different ones."""
    objects = json_objects(reply, frozenset({key}))
    if not objects:
        raise Unreadable(f"the reply contains no JSON object with {key}")
    if any(value != objects[0] for value in objects):
        raise Unreadable("the reply contains several JSON objects that differ")
    return objects[0]


def json_objects(text: str, keys: frozenset[str] | None) -> list[dict[str, Any]]:
    """Return the JSON objects in a text that have at least one of these keys, or all objects if `keys` is None.

    Raises Unreadable after too many places with broken JSON, because each costs time in proportion to the text.
    """
    decoder = json.JSONDecoder(strict=False)
    objects: list[dict[str, Any]] = []
    text = replace_surrogates(text)
    at, broken = text.find("{"), 0
    while at >= 0:
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            end, broken = at + 1, broken + 1
            if broken == MAX_BROKEN_OBJECTS:
                raise Unreadable(f"the reply is broken JSON in {broken} places") from None
        else:
            if keys is None or value.keys() & keys:
                objects.append(value)
        at = text.find("{", end)
    return objects


@dataclass(frozen=True, slots=True)
class Sampling:
    """The sampling parameters of a model. `max_reasoning_tokens` is 0 for a model that does not think."""

    temperature: float = 0.0
    top_p: float = 1.0
    max_reasoning_tokens: int = 0


SendRequest: TypeAlias = Callable[[ChatRequest], Awaitable[ChatReply]]


async def request_structured(
    send: SendRequest,
    prompt: Prompt,
    reply_format: ReplyFormat[T],
    sampling: Sampling,
    seed: int,
    *,
    sample: int = 0,
    on_retry: Callable[[Exception], None] | None = None,
) -> T:
    """Send a prompt and return the value of the reply.

    A reply that is unreadable, too long or withheld is requested once more, with the next `sample` and seed and a
    temperature of at least SECOND_TRY_TEMPERATURE; `on_retry` receives the error of the first reply. Raises ChatError,
    ReplyTruncated or Unreadable if the second fails too. A format with `takes_first_reply` reads a reply that was cut,
    and nothing is requested again.
    """
    takes_first = getattr(reply_format, "takes_first_reply", False)

    async def request(chat_request: ChatRequest) -> T:
        reply = await send(chat_request)
        if reply.finish_reason == "length" and not takes_first:
            raise ReplyTruncated(
                f"the reply was cut at {chat_request.max_tokens} tokens, because the model does not keep to the "
                "requested format; choose another model"
            )
        return reply_format.parse(reply.text)

    first = ChatRequest(
        prompt.messages,
        max_tokens=reply_format.max_tokens,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        seed=seed,
        sample=sample,
        schema=reply_format.schema(),
        max_reasoning_tokens=sampling.max_reasoning_tokens,
    )
    try:
        return await request(first)
    except (Unreadable, ReplyTruncated, ReplyWithheld) as error:
        if takes_first:
            raise
        if on_retry is not None:
            on_retry(error)
    temperature = max(sampling.temperature, SECOND_TRY_TEMPERATURE)
    return await request(replace(first, sample=sample + 1, seed=seed + 1, temperature=temperature))


async def fits_window(
    model: ChatModel, prompt: Prompt, reply_format: ReplyFormat[Any], max_reasoning_tokens: int
) -> bool:
    """Return whether the prompt and the longest reply fit the context window; True if the window is unknown."""
    window = (await model.capabilities()).context_tokens
    if window is None:
        return True
    # A token has at least one byte, so the tokens are counted only if the bytes exceed the window.
    room = window - reply_format.max_tokens - max_reasoning_tokens
    size = TEMPLATE_BYTES + sum(len(message.content.encode()) for message in prompt.messages)
    if size <= room:
        return True
    # The window may be that of an earlier process, and the server may have another one since.
    await refresh_capabilities(model)
    window = (await model.capabilities()).context_tokens
    if window is None:
        return True
    room = window - reply_format.max_tokens - max_reasoning_tokens
    return size <= room or await model.count_tokens(prompt.messages) <= room


@dataclass(frozen=True, slots=True)
class StructuredReply(Generic[T]):
    """The value of a reply, or else the reason why there is none."""

    value: T | None
    usage: Usage
    """Of both requests if there were two."""
    failure: Failure | None = None
    """The call failed or the reply was incomplete. Another attempt may succeed."""
    unreadable: str | None = None


@dataclass(frozen=True, slots=True)
class ModelClient:
    """A chat model with its sampling parameters, for requests outside a strategy."""

    model: ChatModel
    sampling: Sampling = field(default_factory=Sampling)
    seed: int = 0
    model_recipe: Mapping[str, Any] = field(default_factory=dict)
    concurrency: int = 1

    async def fits(self, prompt: Prompt, reply_format: ReplyFormat[Any]) -> bool:
        """Return whether the prompt and the longest reply fit the context window; True if the window is unknown."""
        return await fits_window(self.model, prompt, reply_format, self.sampling.max_reasoning_tokens)

    async def request(self, prompt: Prompt, reply_format: ReplyFormat[T]) -> StructuredReply[T]:
        """Send a prompt and return the value of the reply, or its failure. Raises BudgetExceeded and ScopeViolation."""
        usages: list[Usage] = []

        async def send(request: ChatRequest) -> ChatReply:
            try:
                reply = await self.model.complete(request)
            except ChatError as error:
                usages.append(error.usage)
                raise
            usages.append(reply.usage)
            return reply

        value, failure, unreadable = None, None, None
        try:
            value = await request_structured(send, prompt, reply_format, self.sampling, self.seed)
        except Unreadable as error:
            unreadable = str(error)
        except ChatError as error:
            failure = error.as_failure()
        return StructuredReply(value, sum(usages, Usage()), failure, unreadable)
