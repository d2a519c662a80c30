"""At most so many calls and tokens a minute: a sliding window. Knows nothing of what the endpoint says of its limits.

A bucket that refills would let nearly twice the limit through in a minute that begins with a full bucket; here any 60
seconds hold at most the limit, and the first calls need not wait.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from epicrisis.errors import EpicrisisError
from epicrisis.models.chat.layers.layer import Layer
from epicrisis.models.chat.token_estimates import compute_max_reply_tokens, count_used_tokens, estimate_prompt_tokens
from epicrisis.protocols import ChatModel, ChatReply, ChatRequest, DeltaCallback

MINUTE = 60.0
LOOK_AGAIN_SECONDS = 0.25
"""How often the first in the queue looks whether calls that ended have given tokens back."""


@dataclass(slots=True)
class _Start:
    """A call that was let through: when, and its tokens, reserved until it ends."""

    at: float
    tokens: int
    counts: bool = True


class RateLimitedModel(Layer):
    """Wraps a ChatModel; completions wait, first come, first served, until the last 60 seconds leave room for them.

    Before a call its tokens are reserved (prompt, estimated from above; reply and thinking at most), afterwards put
    right by what it used; where nobody told, the reservation stays. A single call of more tokens than the limit passes
    when no other was let through in the last minute, rather than waiting for ever. Limits below one call a minute hold
    over as much longer a time. Counts of tokens and probes pass freely.
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
        self._requests = max(1.0, requests)
        self._tokens = math.inf if tokens_per_minute is None else tokens_per_minute
        self._clock = clock
        self._sleep = sleep
        self._queue = asyncio.Lock()
        self._starts: deque[_Start] = deque()
        self._tokens_started = 0

    async def complete(self, request: ChatRequest, on_delta: DeltaCallback | None = None) -> ChatReply:
        most = estimate_prompt_tokens(request.messages) + compute_max_reply_tokens(request)
        start = await self._let_through(most)
        try:
            reply = await self._inner.complete(request, on_delta)
        except EpicrisisError as error:
            self._put_right(start, count_used_tokens(error.usage, most))
            raise
        self._put_right(start, count_used_tokens(reply.usage, most))
        return reply

    async def _let_through(self, tokens: int) -> _Start:
        async with self._queue:
            while not self._has_room(tokens):
                await self._sleep(LOOK_AGAIN_SECONDS)
            start = _Start(self._clock(), tokens)
            self._starts.append(start)
            self._tokens_started += tokens
            return start

    def _has_room(self, tokens: int) -> bool:
        now = self._clock()
        while self._starts and now - self._starts[0].at >= self._window:
            gone = self._starts.popleft()
            gone.counts = False
            self._tokens_started -= gone.tokens
        if not self._starts:
            return True
        return len(self._starts) + 1 <= self._requests and self._tokens_started + tokens <= self._tokens

    def _put_right(self, start: _Start, used: int) -> None:
        if start.counts:
            self._tokens_started += used - start.tokens
        start.tokens = used
