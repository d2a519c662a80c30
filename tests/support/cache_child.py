"""Child processes that use a reply cache: one to be killed, several with the same keys, one with a full disk.

Run as a module with a command and its arguments.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path

from epicrisis.core.answers import Usage
from epicrisis.core.protocols import ChatReply, ChatRequest, Message
from epicrisis.models.chat.cache import CachedModel, ReplyCache
from epicrisis.models.chat.loading import add_layers, load_chat
from epicrisis.settings.settings import ModelSettings
from epicrisis.testing.chat import ScriptedModel

CALLS = 500


def make_request(number: int) -> ChatRequest:
    return ChatRequest((Message("user", f"question {number}"),), max_tokens=20)


async def make_calls(url: str, path: str, acknowledged: str) -> None:
    """Make all calls, cached ones too. Append the number of each completed call to the file `acknowledged`."""
    settings = ModelSettings(name=f"{url}/v1#served", concurrency=8)
    cache = ReplyCache(Path(path))
    model = add_layers(load_chat(settings, Path(path).parent), settings, cache=cache)
    log = os.open(acknowledged, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def call(number: int) -> None:
        make_reply = await model.complete(make_request(number))
        assert make_reply.text == f"reply to question {number}"
        os.write(log, f"{number}\n".encode())

    await asyncio.gather(*map(call, range(CALLS)))
    await model.aclose()
    cache.close()


def calls(url: str, path: str, acknowledged: str) -> None:
    """Run `make_calls` in a new process for each line of input, and print its id and exit code.

    The process is forked, since importing takes longer than the calls.
    """
    import openai  # noqa: F401

    for _ in sys.stdin:
        child = os.fork()
        if not child:
            asyncio.run(make_calls(url, path, acknowledged))
            os._exit(0)
        sys.stdout.write(f"{child}\n")
        sys.stdout.flush()
        exit_code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        sys.stdout.write(f"{exit_code}\n")
        sys.stdout.flush()


def make_key(number: int) -> bytes:
    return number.to_bytes(32, "big")


def make_reply(number: int, model: str = "one") -> ChatReply:
    return ChatReply(
        text=f"reply {number} " + "word " * 200,
        finish_reason="stop",
        model=model,
        usage=Usage(calls=1, prompt_tokens=number),
    )


def share(path: str, processes: str, count: str) -> None:
    """Let several processes write and read the same keys in different orders.

    All start at once. Each prints how many replies of the others it read.
    """

    async def use_all_keys(process: int) -> int:
        cache, foreign = ReplyCache(Path(path)), 0
        for step in range(int(count)):
            number = (step * 7 + process * 31) % int(count)
            await cache.put(make_key(number), make_reply(number, str(process)))
            reply = cache.get(make_key(number))
            assert reply is not None
            assert (reply.text, reply.usage.prompt_tokens) == (make_reply(number).text, number)
            foreign += reply.model != str(process)
            await asyncio.sleep(0.002)
        cache.close()
        return foreign

    start_reader, start_writer = os.pipe()
    children = []
    for process in range(int(processes)):
        children.append(os.fork())
        if not children[-1]:
            os.close(start_writer)
            os.read(start_reader, 1)
            os.write(1, f"{asyncio.run(use_all_keys(process))}\n".encode())
            os._exit(0)
    os.close(start_writer)
    assert all(os.waitpid(child, 0)[1] == 0 for child in children)


def fill(path: str, room: str) -> None:
    """Make ten calls at once, then repeat the first, with files limited to `room` bytes. Print the replies' notes."""

    async def call() -> list[str]:
        cache = ReplyCache(Path(path))
        model = CachedModel(ScriptedModel(lambda request: f"{request.sample} " + "word " * 2000), cache)
        await model.complete(make_request(0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(room), resource.RLIM_INFINITY))
        requests = [ChatRequest(make_request(0).messages, max_tokens=5000, sample=number) for number in range(10)]
        replies = await asyncio.gather(*(model.complete(request) for request in requests))
        first_words = [reply.text.split()[0] for reply in replies]
        assert first_words == list("0123456789")
        second = await model.complete(make_request(0))
        assert second.usage == Usage(replayed_calls=1, replayed_tokens=2 + 2001)
        return [note for reply in replies for note in reply.notes]

    sys.stdout.write("\n".join(asyncio.run(call())))


if __name__ == "__main__":
    commands: dict[str, Callable[..., None]] = {"calls": calls, "share": share, "fill": fill}
    commands[sys.argv[1]](*sys.argv[2:])
