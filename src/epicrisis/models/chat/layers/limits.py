"""Layers that limit a model's simultaneous calls, and its calls and tokens per minute.

The rate is measured over a sliding window: any 60 seconds hold at most the limit, and the first calls do not wait. A
bucket that refills would admit nearly twice the limit in a minute that begins with a full bucket.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from epicrisis.errors import EpicrisisError
from epicrisis.models.chat.layers.layer import Layer
from epicrisis.models.chat.token_estimates import compute_max_reply_tokens, count_used_tokens, estimate_prompt_tokens
from epicrisis.protocols import Capabilities, ChatModel, ChatReply, ChatRequest, DeltaCallback, Message

MINUTE = 60.0
POLL_SECONDS = 0.25
"""How often the first call in the queue checks whether completed calls have returned tokens."""


class ConcurrencyLimitedModel(Layer):
    """Limits the calls in flight to `limit`. Further calls wait in order.

    Everything that may reach the endpoint counts: completions, token counts, probes. To prevent deadlocks, no layer may
    hold one of these places while it waits for another.
    """

    def __init__(self, inner: ChatModel, limit: int) -> None:
        super().__init__(inner)
        self._semaphore = asyncio.Semaphore(limit)

    async def complete(self, request: ChatRequest, on_delta: DeltaCallback | None = None) -> ChatReply:
        async with self._semaphore:
            return await self._inner.complete(request, on_delta)

    async def count_tokens(self, messages: Sequence[Message]) -> int:
        async with self._semaphore:
            return await self._inner.count_tokens(messages)

    async def capabilities(self) -> Capabilities:
        async with self._semaphore:
            return await self._inner.capabilities()

    async def fingerprint(self) -> str:
        async with self._semaphore:
            return await self._inner.fingerprint()


@dataclass(slots=True)
class _AdmittedCall:
    """A call's start, and its tokens: reserved until it ends, then used."""

    start: float
    tokens: int
    in_window: bool = True


class RateLimitedModel(Layer):
    """Delays completions, in order, until the last 60 seconds leave room for them.

    A call reserves its estimated prompt tokens and the most its reply may have; afterwards the tokens it used replace
    the reservation, unless they are unknown. A call with more tokens than the limit is admitted if no other was
    admitted in the last minute. A limit below one call per minute applies to a longer window. Token counts and probes
    are not limited.
    """

    def __init__(
        self,
        inner: ChatModel,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        super().__init__(inner)
        requests = math.inf if requests_per_minute is None else requests_per_minute
        self._window = MINUTE * max(1.0, 1 / requests)
        self._max_calls = max(1.0, requests)
        self._max_tokens = math.inf if tokens_per_minute is None else tokens_per_minute
        self._clock = clock
        self._sleep = sleep
        self._queue = asyncio.Lock()
        self._calls: deque[_AdmittedCall] = deque()
        self._tokens_in_window = 0

    async def complete(self, request: ChatRequest, on_delta: DeltaCallback | None = None) -> ChatReply:
        maximum = estimate_prompt_tokens(request.messages) + compute_max_reply_tokens(request)
        call = await self._admit(maximum)
        try:
            reply = await self._inner.complete(request, on_delta)
        except EpicrisisError as error:
            self._settle(call, count_used_tokens(error.usage, maximum))
            raise
        self._settle(call, count_used_tokens(reply.usage, maximum))
        return reply

    async def _admit(self, tokens: int) -> _AdmittedCall:
        async with self._queue:
            while not self._has_room(tokens):
                await self._sleep(POLL_SECONDS)
            call = _AdmittedCall(self._clock(), tokens)
            self._calls.append(call)
            self._tokens_in_window += tokens
            return call

    def _has_room(self, tokens: int) -> bool:
        now = self._clock()
        while self._calls and now - self._calls[0].start >= self._window:
            call = self._calls.popleft()
            call.in_window = False
            self._tokens_in_window -= call.tokens
        if not self._calls:
            return True
        return len(self._calls) + 1 <= self._max_calls and self._tokens_in_window + tokens <= self._max_tokens

    def _settle(self, call: _AdmittedCall, tokens: int) -> None:
        if call.in_window:
            self._tokens_in_window += tokens - call.tokens
        call.tokens = tokens
