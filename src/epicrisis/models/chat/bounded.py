"""At most so many calls in flight: one semaphore a model. Knows nothing of retries or rates."""

from __future__ import annotations

import asyncio

from epicrisis.models.chat.layer import Layer
from epicrisis.seams import ChatModel, ChatReply, ChatRequest, OnDelta


class BoundedModel(Layer):
    """Wraps a ChatModel; a call above `limit` waits for its turn."""

    def __init__(self, inner: ChatModel, limit: int) -> None:
        super().__init__(inner)
        self._turn = asyncio.Semaphore(limit)

    async def complete(self, request: ChatRequest, on_delta: OnDelta | None = None) -> ChatReply:
        async with self._turn:
            return await self._inner.complete(request, on_delta)
