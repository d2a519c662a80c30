"""Retries of a chat call: the only ones there are. Knows nothing of why a call failed but what its error says."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace

from epicrisis.errors import EpicrisisError
from epicrisis.models.chat.layer import Layer
from epicrisis.seams import ChatModel, ChatReply, ChatRequest, OnDelta
from epicrisis.types import Usage


class RetryingModel(Layer):
    """Wraps a ChatModel; a call that fails with a retryable error is tried `tries` times in all.

    Between tries it waits `base_seconds`, doubled each time, times a factor from 0.5 to 1.5 that depends on the request
    alone. A streamed reply starts over: `on_retry(error, try)` is called before, so that what was shown can be dropped.
    """

    def __init__(
        self,
        inner: ChatModel,
        tries: int = 3,
        base_seconds: float = 0.5,
        on_retry: Callable[[EpicrisisError, int], None] | None = None,
    ) -> None:
        super().__init__(inner)
        self._tries = tries
        self._base_seconds = base_seconds
        self._on_retry = on_retry

    async def complete(self, request: ChatRequest, on_delta: OnDelta | None = None) -> ChatReply:
        spent, number = Usage(), 1
        jitter = random.Random(repr((request.messages, request.seed, request.sample)))
        while True:
            try:
                reply = await self._inner.complete(request, on_delta)
                return replace(reply, usage=spent + reply.usage)
            except EpicrisisError as error:
                spent += error.usage
                if not error.retryable or number >= self._tries:
                    error.usage = spent
                    raise
                if self._on_retry is not None:
                    self._on_retry(error, number)
            await asyncio.sleep(self._base_seconds * 2 ** (number - 1) * (0.5 + jitter.random()))
            number += 1
