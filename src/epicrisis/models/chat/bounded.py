"""At most so many calls in flight: one semaphore a model. Knows nothing of retries or rates."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from epicrisis.seams import Capabilities, ChatModel, ChatReply, ChatRequest, Message


class BoundedModel:
    """Wraps a ChatModel; a call above `limit` waits for its turn."""

    def __init__(self, inner: ChatModel, limit: int) -> None:
        self._inner = inner
        self._turn = asyncio.Semaphore(limit)

    @property
    def name(self) -> str:
        return self._inner.name

    async def complete(self, request: ChatRequest, on_delta: Callable[[str], None] | None = None) -> ChatReply:
        async with self._turn:
            return await self._inner.complete(request, on_delta)

    async def count_tokens(self, messages: Sequence[Message]) -> int:
        return await self._inner.count_tokens(messages)

    async def capabilities(self) -> Capabilities:
        return await self._inner.capabilities()

    async def aclose(self) -> None:
        await self._inner.aclose()
