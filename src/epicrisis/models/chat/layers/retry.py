"""Retries of a chat call: the only ones there are. Knows nothing of why a call failed but what its error says."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from epicrisis.answers import Usage
from epicrisis.errors import ChatError, EndpointBusy, EpicrisisError
from epicrisis.models.chat.layers.layer import Layer
from epicrisis.protocols import Capabilities, ChatModel, ChatReply, ChatRequest, DeltaCallback, Message

T = TypeVar("T")

LARGEST_FACTOR = 64
"""Pauses double up to this many times the first."""


class RetryingModel(Layer):
    """Wraps a ChatModel; a call that fails with a retryable error is tried `tries` times in all.

    Between tries it waits what the endpoint asks for (`retry_after`), never less, and on top of it `base_seconds`,
    doubled each time, times a factor from 0.5 to 1.5 that depends on the request alone: many calls that were sent away
    together do not come back together. Being told by a busy endpoint when to come back is no try. `deadline_seconds`
    bound all of it: the pauses and the seconds of the tries after the first; waiting for a turn does not count. Where
    the endpoint asks for more than is left, the call gives up at once and says so.

    The usage of failed tries is in the reply's or in the error's. A streamed reply that broke off is voided by
    `on_delta(None)` before it starts over.
    """

    def __init__(
        self,
        inner: ChatModel,
        tries: int = 5,
        deadline_seconds: float = 120.0,
        base_seconds: float = 0.5,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        super().__init__(inner)
        self._tries = tries
        self._deadline = deadline_seconds
        self._base_seconds = base_seconds
        self._sleep = sleep

    async def complete(self, request: ChatRequest, on_delta: DeltaCallback | None = None) -> ChatReply:
        shown = False

        def pass_on(piece: str | None) -> None:
            nonlocal shown
            shown = piece is not None
            if on_delta is not None:
                on_delta(piece)

        def start_over() -> None:
            if shown:
                pass_on(None)

        streamed = None if on_delta is None else pass_on
        reply, spent = await self._tried(lambda: self._inner.complete(request, streamed), request, start_over)
        return replace(reply, usage=spent + reply.usage)

    async def count_tokens(self, messages: Sequence[Message]) -> int:
        return (await self._tried(lambda: self._inner.count_tokens(messages), messages))[0]

    async def capabilities(self) -> Capabilities:
        return (await self._tried(self._inner.capabilities, self.name))[0]

    async def fingerprint(self) -> str:
        return (await self._tried(self._inner.fingerprint, self.name))[0]

    async def _tried(
        self, call: Callable[[], Awaitable[T]], asked: object, start_over: Callable[[], None] = lambda: None
    ) -> tuple[T, Usage]:
        """What the call gives in the end, and the usage of the tries that failed before."""
        spent, failures, tries, left = Usage(), 0, 0, self._deadline
        jitter: random.Random | None = None
        while True:
            try:
                return await call(), spent
            except EpicrisisError as error:
                spent, failures = spent + error.usage, failures + 1
                left = max(0.0, left - (error.usage.seconds if failures > 1 else 0.0))
                told = error.retry_after if isinstance(error, ChatError) else None
                tries += told is None or not isinstance(error, EndpointBusy)
                told = told or 0.0
                if not error.retryable or tries >= self._tries or left == 0 or told > left:
                    error.usage = spent
                    if error.retryable:
                        error.args = (_given_up(error, failures, told, left),)
                    raise
            start_over()
            jitter = jitter or random.Random(repr(asked))
            pause = self._base_seconds * min(2 ** (failures - 1), LARGEST_FACTOR) * (0.5 + jitter.random())
            wait = min(told + pause, left)
            left -= wait
            await self._sleep(wait)


def _given_up(error: EpicrisisError, failures: int, told: float, left: float) -> str:
    """The error's message, and why it is not tried once more."""
    times = "" if failures == 1 else f" (tried {failures} times)"
    if told <= left:
        return f"{error}{times}"
    return (
        f"{error}{times}; it asks to wait {told:.0f} s, more than the {left:.0f} s left to try again: run the "
        "same command later, or raise retry_seconds"
    )
