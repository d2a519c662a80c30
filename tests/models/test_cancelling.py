"""A call that is given up ends at the server too, and leaves nothing behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from epicrisis.errors import EndpointTimeout, ReplyInvalid, ReplyTruncated
from epicrisis.models.chat.endpoints import connection, receiving
from epicrisis.models.chat.openai_compatible import OpenAICompatibleModel
from epicrisis.seams import ChatRequest, Message
from epicrisis.testing.faults import Fault
from epicrisis.testing.hostile import HostileServer, Ledger
from tests.loopback import Endpoint, Scripted, completion, serving

REQUEST = ChatRequest((Message("user", "Does the blind worm see?"),), max_tokens=400)


def says(_: object) -> str:
    return "It does not see a thing. " * 40


def ignore(_: str | None) -> None:
    """Streams, for nobody."""


async def until(server: HostileServer, holds: Callable[[Ledger], bool]) -> None:
    async with asyncio.timeout(10):
        while not holds(server.ledger):
            await asyncio.sleep(0.005)


def test_a_stream_that_is_given_up_stops_at_the_server() -> None:
    async def run(server: HostileServer) -> int:
        model = OpenAICompatibleModel(server.url, "m", timeout_seconds=20)
        deltas: list[str | None] = []
        task = asyncio.create_task(model.complete(REQUEST, deltas.append))
        while len(deltas) < 3:
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(server, lambda ledger: ledger.hung_up == 1)
        await model.aclose()
        return len(deltas)

    with HostileServer(says, pace=0.02) as server:
        shown = asyncio.run(run(server))
        assert 3 <= shown < 100
        assert server.ledger.healthy == 0


def test_a_thousand_calls_that_are_given_up_leave_no_connection() -> None:
    async def run(server: HostileServer) -> None:
        model = OpenAICompatibleModel(server.url, "m", timeout_seconds=60, concurrency=250)
        await asyncio.gather(*(model.complete(REQUEST) for _ in range(2)))
        for _ in range(4):
            calls = [model.complete(REQUEST, ignore if number % 2 else None) for number in range(250)]
            tasks = [asyncio.create_task(call) for call in calls]
            await until(server, lambda ledger: ledger.in_flight == 250)
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(each, asyncio.CancelledError) for each in ended)
            await until(server, lambda ledger: ledger.in_flight == 0)
        # Closed at our side, and not only waiting for somebody to collect them.
        await until(server, lambda _: not server._connections)
        await model.aclose()

    with HostileServer(says, delay=0.0, script=[None, None, *[Fault.SLOW] * 1000], slow=60.0) as server:
        asyncio.run(run(server))
        assert (server.ledger.hung_up, server.ledger.calls) == (1000, 1002)


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("fault", [Fault.ENDLESS_TEXT, Fault.ENDLESS_COMMENTS, Fault.SLOW])
def test_whatever_has_no_end_is_ended(monkeypatch: pytest.MonkeyPatch, fault: Fault, streams: bool) -> None:
    monkeypatch.setattr(receiving, "_SLACK", 100)
    request = ChatRequest(REQUEST.messages, max_tokens=10)

    async def run(server: HostileServer) -> None:
        model = OpenAICompatibleModel(server.url, "m", timeout_seconds=60)
        await model.complete(request)
        model._timeout = 0.3
        with pytest.raises((EndpointTimeout, ReplyInvalid)):
            await model.complete(request, ignore if streams else None)
        await until(server, lambda ledger: ledger.hung_up == 1)
        await model.aclose()

    with HostileServer(says, script=[None, fault], slow=60.0) as server:
        asyncio.run(run(server))


def test_thinking_beyond_its_room_stops_at_the_server() -> None:
    async def run(server: HostileServer) -> None:
        model = OpenAICompatibleModel(server.url, "m", timeout_seconds=20)
        with pytest.raises(ReplyTruncated, match="raise max_reasoning_tokens"):
            await model.complete(ChatRequest(REQUEST.messages, 10, max_reasoning_tokens=20), ignore)
        await until(server, lambda ledger: ledger.hung_up == 1)
        await model.aclose()

    with HostileServer(lambda _: f"<think> {'so it may be ' * 100}", pace=0.005) as server:
        asyncio.run(run(server))


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("status", [200, 400])
def test_a_body_larger_than_any_reply_is_not_read(monkeypatch: pytest.MonkeyPatch, status: int, streams: bool) -> None:
    monkeypatch.setattr(connection, "MOST_BYTES", 10_000)
    kind = "text/event-stream" if streams and status == 200 else "application/json"
    with serving() as endpoint:
        endpoint.script["/v1/chat/completions"] = [Scripted("x" * 100_000, status, kind)]
        with pytest.raises(ReplyInvalid, match="sends more than any reply can hold"):
            asyncio.run(once(endpoint, streams=streams))


def test_a_packed_reply_is_not_unpacked() -> None:
    with serving() as endpoint:
        packed = Scripted(completion("Yes."), headers={"Content-Encoding": "gzip"})
        endpoint.script["/v1/chat/completions"] = [packed]
        with pytest.raises(ReplyInvalid, match="packs its replies"):
            asyncio.run(once(endpoint, streams=False))


async def once(endpoint: Endpoint, *, streams: bool) -> None:
    model = OpenAICompatibleModel(endpoint.url, "m", timeout_seconds=5)
    try:
        await model.complete(REQUEST, ignore if streams else None)
    finally:
        await model.aclose()
