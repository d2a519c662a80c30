"""The base class of the layers around a chat model."""

from __future__ import annotations

from collections.abc import Sequence

from epicrisis.protocols import Capabilities, ChatModel, ChatReply, ChatRequest, DeltaCallback, Message


class Layer:
    """A ChatModel that passes every call on to another one. Subclasses override some of them."""

    def __init__(self, inner: ChatModel) -> None:
        self._inner = inner

    @property
    def name(self) -> str:
        return self._inner.name

    async def complete(self, request: ChatRequest, on_delta: DeltaCallback | None = None) -> ChatReply:
        return await self._inner.complete(request, on_delta)

    async def count_tokens(self, messages: Sequence[Message]) -> int:
        return await self._inner.count_tokens(messages)

    async def capabilities(self) -> Capabilities:
        return await self._inner.capabilities()

    async def fingerprint(self) -> str:
        return await self._inner.fingerprint()

    async def aclose(self) -> None:
        await self._inner.aclose()
