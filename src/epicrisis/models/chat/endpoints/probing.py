"""What an endpoint tells of itself: its models, its window, and how many tokens a prompt has.

OpenAI has a path for the first alone; llama.cpp and vLLM have others of their own. Whatever is asked for in vain is not
there; whatever fails in a way that may pass raises, until it has failed too often in a row. Knows no client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypeVar

from pydantic import BaseModel, ValidationError

from epicrisis.errors import (
    ContextOverflow,
    EndpointBusy,
    EndpointRejected,
    EndpointTimeout,
    EndpointUnreachable,
    ReplyInvalid,
)
from epicrisis.models.chat.endpoints import wire
from epicrisis.models.chat.token_estimates import estimate_prompt_tokens
from epicrisis.protocols import Message

T = TypeVar("T", bound=BaseModel)

Fetch: TypeAlias = Callable[[str, Mapping[str, Any] | None], Awaitable[object]]
"""JSON from a path, by GET, or by POST where there is a body. Raises ChatError."""

Counter: TypeAlias = Literal["llama.cpp", "vllm", "estimate"]

PATIENCE = 5
"""What fails as often in a row, in ways that may pass, counts as not there."""

_PASSING = (EndpointBusy, EndpointTimeout, EndpointUnreachable)


class EndpointProbe:
    """Asks each question once and remembers the answer; of many who want to know at once one asks, under `lock`, which
    is the running loop's. `context_tokens`: the window where the endpoint does not tell, and a limit where it does."""

    def __init__(self, root: str, fetch: Fetch, lock: Callable[[], asyncio.Lock], context_tokens: int | None) -> None:
        self._root = root
        self._fetch = fetch
        self._lock = lock
        self._limit = context_tokens
        self._failures: dict[str, int] = {}
        self._models: wire.ModelList | None = None
        self._told_window: tuple[int | None] | None = None
        self._counter: Counter | None = None

    async def first_model(self) -> str | None:
        """The first the endpoint lists. Raises ChatError: a name is needed."""
        async with self._lock():
            if self._models is None or not self._models.data:
                listed = await self._fetch("/models", None)
                try:
                    self._models = wire.ModelList.model_validate(listed)
                except ValidationError:
                    return None
        return self._models.data[0].id if self._models.data else None

    async def window(self, model: str) -> int | None:
        """In tokens; `None` where nobody says."""
        async with self._lock():
            if self._told_window is None:
                self._told_window = (await self._ask_window(model),)
        windows = (self._limit, self._told_window[0])
        return min((window for window in windows if window), default=None)

    async def counter(self, model: str) -> Counter:
        """Who counts tokens."""
        if self._counter is None:
            async with self._lock():
                self._counter = self._counter or await self._ask_counter(model)
        return self._counter

    async def count(self, model: str, messages: Sequence[Message]) -> tuple[int, bool]:
        """Prompt tokens of these messages, template included, and whether the model's own tokenizer says so."""
        match await self.counter(model):
            case "llama.cpp":
                count = await self._llama_cpp(messages)
            case "vllm":
                count = await self._vllm(model, messages)
            case _:
                count = None
        return (estimate_prompt_tokens(messages), False) if count is None else (count, True)

    async def count_text(self, model: str, text: str) -> int | None:
        """Tokens of a text without a template; `None` where nobody counts them."""
        if not text:
            return 0
        match await self.counter(model):
            case "llama.cpp":
                tokens = await self._ask(f"{self._root}/tokenize", wire.TokenizeReply, {"content": text})
                return None if tokens is None else len(tokens.tokens)
            case "vllm":
                body = {"model": model, "prompt": text, "add_special_tokens": False}
                told = await self._ask(f"{self._root}/tokenize", wire.TokenCountReply, body)
                return None if told is None else told.count
        return None

    async def _ask_window(self, model: str) -> int | None:
        props = await self._ask(f"{self._root}/props", wire.Props)
        if props is not None and props.default_generation_settings.n_ctx:
            return props.default_generation_settings.n_ctx
        listed = self._models or await self._ask("/models", wire.ModelList)
        for entry in listed.data if listed else ():
            if entry.id == model:
                return entry.max_model_len or (entry.meta and entry.meta.n_ctx) or None
        return None

    async def _ask_counter(self, model: str) -> Counter:
        letter = [Message("user", "a")]
        if await self._llama_cpp(letter) is not None:
            return "llama.cpp"
        return "estimate" if await self._vllm(model, letter) is None else "vllm"

    async def _llama_cpp(self, messages: Sequence[Message]) -> int | None:
        template = await self._ask(f"{self._root}/apply-template", wire.Template, {"messages": plain(messages)})
        if template is None:
            return None
        body = {"content": template.prompt, "add_special": True, "parse_special": True}
        tokens = await self._ask(f"{self._root}/tokenize", wire.TokenizeReply, body)
        return None if tokens is None else len(tokens.tokens)

    async def _vllm(self, model: str, messages: Sequence[Message]) -> int | None:
        body = {"model": model, "messages": plain(messages), "add_generation_prompt": True}
        count = await self._ask(f"{self._root}/tokenize", wire.TokenCountReply, body)
        return None if count is None else count.count

    async def _ask(self, path: str, shape: type[T], body: Mapping[str, Any] | None = None) -> T | None:
        """`None` where the endpoint does not have it: it refuses, or answers in another shape."""
        try:
            answer = shape.model_validate(await self._fetch(path, body))
        except _PASSING:
            self._failures[path] = self._failures.get(path, 0) + 1
            if self._failures[path] < PATIENCE:
                raise
            return None
        except (EndpointRejected, ContextOverflow, ReplyInvalid, ValidationError):
            answer = None
        self._failures.pop(path, None)
        return answer


def plain(messages: Sequence[Message]) -> list[dict[str, str]]:
    """As the wire has them."""
    return [{"role": message.role, "content": message.content} for message in messages]
