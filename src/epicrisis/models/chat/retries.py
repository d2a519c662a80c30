"""The layer around a chat model for repeated calls after passing failures."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from epicrisis.core.answers import Usage
from epicrisis.core.errors import ChatError, EndpointBusy, EndpointUnreachable, EpicrisisError
from epicrisis.core.protocols import Capabilities, ChatModel, ChatReply, ChatRequest, DeltaCallback, Message
from epicrisis.models.chat.layers import Layer

T = TypeVar("T")
MAX_FACTOR = 64
"""Pauses double up to this many times the first."""
ABSENT_TRIES = 2
"""Tries of an endpoint that cannot be reached and has never answered."""


class RetryingModel(Layer):
    """Calls the model up to `tries` times if it fails with a retryable error. The usage of failed tries is added.

    Each pause is the wait the endpoint asks for (`retry_after`), plus `base_seconds`, doubled each time, times a factor
    from 0.5 to 1.5 that depends only on the request, so simultaneous calls do not return together. A busy endpoint that
    says when to return does not use up a try. One that cannot be reached and has never answered is tried twice: it is
    not there, while one that has answered may be starting again. `deadline_seconds` limits the pauses and the seconds
    of all tries after the first, without the wait for a place. A partly streamed reply is voided by `on_delta(None)`
    before the next try.
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
        self._has_answered = False

    async def complete(self, request: ChatRequest, on_delta: DeltaCallback | None = None) -> ChatReply:
        has_output = False

        def forward(piece: str | None) -> None:
            nonlocal has_output
            has_output = piece is not None
            if on_delta is not None:
                on_delta(piece)

        def void_output() -> None:
            if has_output:
                forward(None)

        send = partial(self._inner.complete, request, None if on_delta is None else forward)
        reply, failed_usage = await self._retry(send, request, void_output)
        # Capabilities and counts of tokens are estimated if the endpoint does not answer.
        self._has_answered = True
        return replace(reply, usage=failed_usage + reply.usage)

    async def count_tokens(self, messages: Sequence[Message]) -> int:
        return (await self._retry(lambda: self._inner.count_tokens(messages), messages))[0]

    async def capabilities(self) -> Capabilities:
        return (await self._retry(self._inner.capabilities, self.name))[0]

    async def fingerprint(self) -> str:
        return (await self._retry(self._inner.fingerprint, self.name))[0]

    async def _retry(
        self, call: Callable[[], Awaitable[T]], seed: object, before_retry: Callable[[], None] = lambda: None
    ) -> tuple[T, Usage]:
        """Return the call's result, and the usage of the failed tries. `seed` determines the random pauses."""
        failed_usage, failures, tries, remaining = Usage(), 0, 0, self._deadline
        jitter: random.Random | None = None
        while True:
            try:
                return await call(), failed_usage
            except EpicrisisError as error:
                failed_usage, failures = failed_usage + error.usage, failures + 1
                if failures > 1:
                    remaining = max(0.0, remaining - error.usage.seconds)
                retry_after = error.retry_after if isinstance(error, ChatError) else None
                if retry_after is None or not isinstance(error, EndpointBusy):
                    tries += 1
                retry_after = retry_after or 0.0
                # A connection that broke off was made, so there is a server: it may have processed the call.
                is_refused = isinstance(error, EndpointUnreachable) and not error.usage.uncounted_calls
                most = min(self._tries, ABSENT_TRIES) if is_refused and not self._has_answered else self._tries
                if not error.retryable or tries >= most or remaining == 0 or retry_after > remaining:
                    error.usage = failed_usage
                    if error.retryable:
                        message = str(error) if failures == 1 else f"{error} (tried {failures} times)"
                        if retry_after > remaining:
                            message += (
                                f"; it asks to wait {retry_after:.0f} s, more than the {remaining:.0f} s that remain "
                                "for retries: run the same command later, or raise retry_seconds"
                            )
                        error.args = (message,)
                    raise
            before_retry()
            jitter = jitter or random.Random(repr(seed))
            pause = self._base_seconds * min(2 ** (failures - 1), MAX_FACTOR) * (0.5 + jitter.random())
            wait = min(retry_after + pause, remaining)
            remaining -= wait
            await self._sleep(wait)
