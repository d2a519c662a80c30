"""The cache of replies: replays a second through the layer that strategies see, and replies kept a second.

Each prompt has 4,000 words, as a BriefContext question of 16 abstracts has, each reply 200. Kept replies are durable
(fsync) when a call returns.

    python benchmarks/reply_cache.py
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from epicrisis.core.protocols import ChatModel, ChatReply, ChatRequest, Message
from epicrisis.models.chat.cache import CachedModel, ReplyCache
from epicrisis.testing.chat import ScriptedModel

REPLIES = 3000
PROMPT = "word " * 4000


def request(number: int) -> ChatRequest:
    """The prompt and a question; every one another."""
    messages = (Message("system", "Answer."), Message("user", f"{PROMPT} {number}"))
    return ChatRequest(messages, max_tokens=500, schema={"type": "object"})


async def rate(work: Callable[[int], Awaitable[ChatReply]], at_once: int) -> float:
    """Calls a second, so many at once."""
    numbers = iter(range(REPLIES))

    async def one_after_the_other() -> None:
        for number in numbers:
            await work(number)

    began = time.perf_counter()
    await asyncio.gather(*(one_after_the_other() for _ in range(at_once)))
    return REPLIES / (time.perf_counter() - began)


async def measure(folder: Path) -> None:
    """Prints one line each: kept and replayed, one at a time and 64 at once."""
    inner = ScriptedModel(lambda _: "reply " * 200)
    for at_once in (1, 64):
        cache = ReplyCache(folder / f"{at_once}.sqlite")
        model: ChatModel = CachedModel(inner, cache)

        async def call(number: int, model: ChatModel = model) -> ChatReply:
            return await model.complete(request(number))

        asked = len(inner.requests)
        kept = await rate(call, at_once)
        replayed = await rate(call, at_once)
        calls, size = len(inner.requests) - asked, cache.stats().bytes / REPLIES
        print(
            f"{at_once:3} at once: {kept:,.0f} kept/s, {replayed:,.0f} replayed/s (guide: at least 5,000), "
            f"{calls} calls, {size:,.0f} bytes a reply"
        )
        cache.close()


def main() -> None:
    """Measures in a temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(Path(folder)))


if __name__ == "__main__":
    main()
