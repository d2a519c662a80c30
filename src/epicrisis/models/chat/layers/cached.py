"""A reply that is there already is not asked for again: a layer over a `ReplyCache`.

The key is all that changes a reply: the model's fingerprint and every field of the request. Knows nothing of how the
replies lie on disk.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

from epicrisis.answers import Usage
from epicrisis.errors import InputError, NotCached, StorageError
from epicrisis.models.chat.layers.cache import ReplyCache
from epicrisis.models.chat.layers.layer import Layer
from epicrisis.protocols import Capabilities, ChatModel, ChatReply, ChatRequest, DeltaCallback, Message

KEY_VERSION = 1
"""Of what a key means; another one makes every reply kept so far a stranger."""


@dataclass(slots=True)
class _Flight:
    """A call that is being made, and whoever asks the same meanwhile."""

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    reply: ChatReply | None = None
    waiting: int = 0


class CachedModel(Layer):
    """Wraps a ChatModel; replies, counts of tokens and capabilities that are in the cache come from there.

    A reply out of the cache has cost nothing: its usage says `replayed_calls=1` and what it had cost as
    `replayed_tokens`; it streams as one piece. Failures are never kept. The same request at the same time is sent once:
    whoever comes second takes the first one's reply, or sends it anew where that failed or was cancelled. A reply that
    could not be kept is returned all the same, with a note.

    Where the cache is for replaying nothing is sent; what is not there raises NotCached. The inner model's fingerprint
    is still asked for, which needs no contact where the endpoint's model is named.
    """

    def __init__(self, inner: ChatModel, cache: ReplyCache) -> None:
        super().__init__(inner)
        self._cache = cache
        self._fingerprint: str | None = None
        self._flights: dict[bytes, _Flight] = {}

    async def complete(self, request: ChatRequest, on_delta: DeltaCallback | None = None) -> ChatReply:
        key = reply_key(await self.fingerprint(), request)
        kept = self._cache.get(key)
        if kept is None and not self._cache.replay:
            async with self._flight(key) as flight:
                if flight.reply is None:
                    flight.reply = await self._inner.complete(request, on_delta)
                    return await self._kept(key, flight.reply)
                kept = flight.reply
        if kept is None:
            raise self._not_cached("reply to this request")
        if on_delta is not None and kept.text:
            on_delta(kept.text)
        tokens = kept.usage.prompt_tokens + kept.usage.completion_tokens
        return replace(kept, usage=Usage(replayed_calls=1, replayed_tokens=tokens))

    async def count_tokens(self, messages: Sequence[Message]) -> int:
        key = _key("tokens", await self.fingerprint(), tuple(messages))
        if (told := self._cache.told(key, int)) is not None:
            return told
        if self._cache.replay:
            raise self._not_cached("count of these tokens")
        count = await self._inner.count_tokens(messages)
        self._cache.keep_told(key, count)
        return count

    async def capabilities(self) -> Capabilities:
        """The model's own, as they may have changed; when replaying as they were told last."""
        key = _key("capabilities", await self.fingerprint())
        told = self._cache.told(key, Capabilities)
        if self._cache.replay:
            if told is None:
                raise self._not_cached("word of what this model can do")
            return told
        found = await self._inner.capabilities()
        if found != told:
            self._cache.keep_told(key, found)
        return found

    async def fingerprint(self) -> str:
        """Asked for once: a reply out of the cache must not wait for a turn."""
        if self._fingerprint is None:
            self._fingerprint = await self._inner.fingerprint()
        return self._fingerprint

    @asynccontextmanager
    async def _flight(self, key: bytes) -> AsyncIterator[_Flight]:
        """One at a time for each key, in the order they came."""
        flight = self._flights.setdefault(key, _Flight())
        flight.waiting += 1
        try:
            async with flight.turn:
                yield flight
        finally:
            flight.waiting -= 1
            if not flight.waiting:
                del self._flights[key]

    async def _kept(self, key: bytes, reply: ChatReply) -> ChatReply:
        try:
            await self._cache.put(key, reply)
        except (StorageError, InputError) as error:
            return replace(reply, notes=(*reply.notes, f"this reply was not kept: {error}"))
        return reply

    def _not_cached(self, what: str) -> NotCached:
        return NotCached(
            f"{self._cache.path} holds no {what} by {self.name}: run the same command once with --cache on"
        )


def reply_key(fingerprint: str, request: ChatRequest) -> bytes:
    """32 bytes that change whenever the reply may, and only then.

    Numbers are equal by value and mappings whatever their order, but for the schema: models write the fields of a reply
    in the order of its schema.
    """
    values: dict[str, Any] = {each.name: getattr(request, each.name) for each in fields(request)}
    if request.schema is not None:
        values["schema"] = json.dumps(_plain(request.schema))
    return _key("reply", fingerprint, values)


def _key(*parts: Any) -> bytes:
    text = json.dumps([KEY_VERSION, *_plain(parts)], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).digest()


def _plain(value: Any) -> Any:
    """JSON data, whole floats as integers."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if is_dataclass(value):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value
