"""Minutes that pass in no time: an event loop whose clock jumps to the next timer, and a model that takes its time."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from epicrisis.answers import Usage
from epicrisis.errors import ChatError
from epicrisis.models.chat.layers.layer import Layer
from epicrisis.protocols import Capabilities, ChatReply, ChatRequest, DeltaCallback, Message
from epicrisis.testing.chat import ScriptedModel

T = TypeVar("T")


class _Jumping(selectors.SelectSelector):
    """Where nothing is to do before the next timer, it is that time already."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("everything waits for something that never comes")
        self.now += max(timeout, 0.0)
        return super().select(0)


def run(main: Coroutine[Any, Any, T]) -> T:
    """Runs it in time of its own, which begins at 0. No threads within."""
    selector = _Jumping()
    loop = asyncio.SelectorEventLoop(selector)
    loop.time = lambda: selector.now  # type: ignore[method-assign]
    try:
        return loop.run_until_complete(main)
    finally:
        loop.close()


def now() -> float:
    return asyncio.get_running_loop().time()


def asked(text: str = "one two three", **values: Any) -> ChatRequest:
    return ChatRequest((Message("user", text),), **{"max_tokens": 10, **values})


@dataclass
class Call:
    """One completion that reached the model."""

    request: ChatRequest
    at: float
    ended: float | None = None


@dataclass
class Load:
    """What is in flight, of every kind, and the most there ever was."""

    now: int = 0
    most: int = 0
    calls: list[Call] = field(default_factory=list)


class SlowModel(Layer):
    """Completions take `seconds`, use `usage` and may raise `fails`, as they say of each request; all else a second."""

    def __init__(
        self,
        seconds: Callable[[ChatRequest], float] = lambda _: 1.0,
        usage: Callable[[ChatRequest], Usage] | None = None,
        fails: Callable[[ChatRequest], ChatError | None] = lambda _: None,
    ) -> None:
        super().__init__(ScriptedModel(lambda _: "yes"))
        self._seconds, self._usage, self._fails = seconds, usage, fails
        self.load = Load()

    async def complete(self, request: ChatRequest, on_delta: DeltaCallback | None = None) -> ChatReply:
        call = Call(request, now())
        self.load.calls.append(call)
        with self._in_flight():
            await asyncio.sleep(self._seconds(request))
        call.ended = now()
        if (error := self._fails(request)) is not None:
            raise error
        reply = await self._inner.complete(request, on_delta)
        if self._usage is None:
            return reply
        return ChatReply(reply.text, reply.finish_reason, reply.model, self._usage(request))

    async def count_tokens(self, messages: Sequence[Message]) -> int:
        with self._in_flight():
            await asyncio.sleep(1)
        return await self._inner.count_tokens(messages)

    async def capabilities(self) -> Capabilities:
        with self._in_flight():
            await asyncio.sleep(1)
        return await self._inner.capabilities()

    async def fingerprint(self) -> str:
        with self._in_flight():
            await asyncio.sleep(1)
        return await self._inner.fingerprint()

    @contextmanager
    def _in_flight(self) -> Any:
        self.load.now += 1
        self.load.most = max(self.load.most, self.load.now)
        try:
            yield
        finally:
            self.load.now -= 1
