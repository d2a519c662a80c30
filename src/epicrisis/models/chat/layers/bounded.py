"""At most so many calls in flight: one semaphore a model. Knows nothing of retries or rates."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from epicrisis.models.chat.layers.layer import Layer
from epicrisis.protocols import Capabilities, ChatModel, ChatReply, ChatRequest, DeltaCallback, Message


class BoundedModel(Layer):
    """Wraps a ChatModel; a call above `limit` waits for its turn, first come, first served.

    Whatever may reach the endpoint takes a turn: completions, counts, probes. No layer around this one may hold
    anything of it while it asks for another turn; this one does not, so that nothing waits for itself.
    """

    def __init__(self, inner: ChatModel, limit: int) -> None:
        super().__init__(inner)
        self._turn = asyncio.Semaphore(limit)

    async def complete(self, request: ChatRequest, on_delta: DeltaCallback | None = None) -> ChatReply:
        async with self._turn:
            return await self._inner.complete(request, on_delta)

    async def count_tokens(self, messages: Sequence[Message]) -> int:
        async with self._turn:
            return await self._inner.count_tokens(messages)

    async def capabilities(self) -> Capabilities:
        async with self._turn:
            return await self._inner.capabilities()

    async def fingerprint(self) -> str:
        async with self._turn:
            return await self._inner.fingerprint()
