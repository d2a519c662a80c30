"""Processes that use a cache of replies: one that makes calls until it is killed, some that share their keys, one whose
disk is full. Run as a module, with what to do and its arguments."""

from __future__ import annotations

import asyncio
import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path

from epicrisis.answers import Usage
from epicrisis.models.chat.layers.cache import CachedModel, ReplyCache
from epicrisis.models.chat.layers.stack import add_layers
from epicrisis.models.chat.loading import load_chat
from epicrisis.protocols import ChatReply, ChatRequest, Message
from epicrisis.settings import ModelSettings
from epicrisis.testing.chat import ScriptedModel

CALLS = 500


def prompt(number: int) -> ChatRequest:
    return ChatRequest((Message("user", f"question {number}"),), max_tokens=20)


async def make_calls(url: str, path: str, acknowledged: str) -> None:
    """All calls, those already in the cache too. The number of each that came back is appended to `acknowledged`."""
    settings = ModelSettings(name=f"{url}/v1#served", concurrency=8)
    cache = ReplyCache(Path(path))
    model = add_layers(load_chat(settings, Path(path).parent), settings, cache=cache)
    done = os.open(acknowledged, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def one(number: int) -> None:
        reply = await model.complete(prompt(number))
        assert reply.text == f"reply to question {number}"
        os.write(done, f"{number}\n".encode())

    await asyncio.gather(*(one(number) for number in range(CALLS)))
    await model.aclose()
    cache.close()


def calls(url: str, path: str, acknowledged: str) -> None:
    """The same for each line of input, in a process of its own, as importing takes longer than the calls: a line with
    its id, and one with how it ended."""
    import openai  # noqa: F401

    for _ in sys.stdin:
        child = os.fork()
        if not child:
            asyncio.run(make_calls(url, path, acknowledged))
            os._exit(0)
        sys.stdout.write(f"{child}\n")
        sys.stdout.flush()
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        sys.stdout.write(f"{ended}\n")
        sys.stdout.flush()


def key(number: int) -> bytes:
    return number.to_bytes(32, "big")


def reply(number: int, by: str = "one") -> ChatReply:
    return ChatReply(f"reply {number} " + "word " * 200, "stop", by, Usage(1, prompt_tokens=number))


def share(path: str, processes: str, count: str) -> None:
    """So many processes write and read the same keys, each in an order of its own and as soon as all are there. Each
    prints how many it read that others wrote."""

    async def every_row(by: int) -> int:
        cache, foreign = ReplyCache(Path(path)), 0
        for step in range(int(count)):
            number = (step * 7 + by * 31) % int(count)
            await cache.put(key(number), reply(number, str(by)))
            there = cache.get(key(number))
            assert there is not None
            assert (there.text, there.usage.prompt_tokens) == (reply(number).text, number)
            foreign += there.model != str(by)
            await asyncio.sleep(0.002)
        cache.close()
        return foreign

    waiting, go = os.pipe()
    children = []
    for by in range(int(processes)):
        children.append(os.fork())
        if not children[-1]:
            os.close(go)
            os.read(waiting, 1)
            os.write(1, f"{asyncio.run(every_row(by))}\n".encode())
            os._exit(0)
    os.close(go)
    assert all(os.waitpid(child, 0)[1] == 0 for child in children)


def fill(path: str, room: str) -> None:
    """Ten calls at once, then the first once more, where files may not grow beyond so many bytes; the notes on them."""

    async def call() -> list[str]:
        cache = ReplyCache(Path(path))
        model = CachedModel(ScriptedModel(lambda request: f"{request.sample} " + "word " * 2000), cache)
        await model.complete(prompt(0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(room), resource.RLIM_INFINITY))
        requests = [ChatRequest(prompt(0).messages, 5000, sample=number) for number in range(10)]
        replies = await asyncio.gather(*(model.complete(request) for request in requests))
        assert [each.text.split()[0] for each in replies] == [str(number) for number in range(10)]
        again = await model.complete(prompt(0))
        assert again.usage == Usage(replayed_calls=1, replayed_tokens=2 + 2001)
        return [note for each in replies for note in each.notes]

    sys.stdout.write("\n".join(asyncio.run(call())))


if __name__ == "__main__":
    commands: dict[str, Callable[..., None]] = {"calls": calls, "share": share, "fill": fill}
    commands[sys.argv[1]](*sys.argv[2:])
