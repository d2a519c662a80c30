"""An event loop whose clock jumps to the next timer, and a slow model to run in it."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from epicrisis.core.answers import Usage
from epicrisis.core.errors import ChatError
from epicrisis.core.protocols import Capabilities, ChatReply, ChatRequest, DeltaCallback, Message
from epicrisis.models.chat.layers import Layer
from epicrisis.testing.chat import ScriptedModel

T = TypeVar("T")


class _JumpingSelector(selectors.DefaultSelector):
    """Advances the time to the next timer instead of waiting for it."""

    time = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("every task waits for something that never happens")
        self.time += max(timeout, 0.0)
        return super().select(0)


def run_in_virtual_time(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in virtual time, which starts at 0. It must not use threads."""
    selector = _JumpingSelector()
    loop = asyncio.SelectorEventLoop(selector)
    loop.time = lambda: selector.time  # type: ignore[method-assign]
    try:
        return loop.run_until_complete(main)
    finally:
        loop.close()


def get_time() -> float:
    return asyncio.get_running_loop().time()


def make_request(text: str = "one two three", **values: Any) -> ChatRequest:
    return ChatRequest((Message("user", text),), **{"max_tokens": 10, **values})


@dataclass
class Call:
    """One completion that reached the model."""

    request: ChatRequest
    start: float
    end: float | None = None


@dataclass
class Load:
    """The number of calls of any kind in flight, its maximum, and the completions."""

    current: int = 0
    maximum: int = 0
    calls: list[Call] = field(default_factory=list)


class SlowModel(Layer):
    """A model whose completions take `seconds`, have `usage` and raise `failure`. Other calls take a second."""

    def __init__(
        self,
        seconds: Callable[[ChatRequest], float] = lambda _: 1.0,
        usage: Callable[[ChatRequest], Usage] | None = None,
        failure: Callable[[ChatRequest], ChatError | None] = lambda _: None,
    ) -> None:
        super().__init__(ScriptedModel(lambda _: "yes"))
        self._seconds, self._usage, self._failure = seconds, usage, failure
        self.load = Load()

    async def complete(self, request: ChatRequest, on_delta: DeltaCallback | None = None) -> ChatReply:
        call = Call(request, get_time())
        self.load.calls.append(call)
        with self._in_flight():
            await asyncio.sleep(self._seconds(request))
        call.end = get_time()
        if (error := self._failure(request)) is not None:
            raise error
        reply = await self._inner.complete(request, on_delta)
        if self._usage is None:
            return reply
        return ChatReply(
            text=reply.text, finish_reason=reply.finish_reason, model=reply.model, usage=self._usage(request)
        )

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
        self.load.current += 1
        self.load.maximum = max(self.load.maximum, self.load.current)
        try:
            yield
        finally:
            self.load.current -= 1
