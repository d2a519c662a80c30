"""A call that is given up ends at the server too, and leaves nothing behind; so does one whose model is closed."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

import pytest

from epicrisis.core.answers import Usage
from epicrisis.core.errors import ChatError, EndpointTimeout, ReplyInvalid, ReplyTruncated
from epicrisis.core.protocols import ChatRequest, Message
from epicrisis.models.chat.endpoints import connection, reply
from epicrisis.models.chat.loading import add_layers
from epicrisis.models.chat.openai_compatible import OpenAICompatibleModel
from epicrisis.settings.settings import ModelSettings
from tests.support.faults import Fault
from tests.support.hostile import HostileServer, ServerLog
from tests.support.loopback import Endpoint, Scripted, completion, serving

REQUEST = ChatRequest((Message("user", "Does the blind worm see?"),), max_tokens=400)


def write_text(_: object) -> str:
    return "It does not see a thing. " * 40


def ignore_delta(_: str | None) -> None:
    """Ignore a piece of a stream."""


async def wait_until(server: HostileServer, holds: Callable[[ServerLog], bool]) -> None:
    async with asyncio.timeout(10):
        while not holds(server.ledger):
            await asyncio.sleep(0.005)


def test_cancelled_stream_stops_at_server() -> None:
    async def run(server: HostileServer) -> int:
        model = OpenAICompatibleModel(server.url, "m", timeout_seconds=20)
        deltas: list[str | None] = []
        task = asyncio.create_task(model.complete(REQUEST, deltas.append))
        while len(deltas) < 3:
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await wait_until(server, lambda ledger: ledger.hung_up == 1)
        await model.aclose()
        return len(deltas)

    with HostileServer(write_text, pace=0.02) as server:
        delta_count = asyncio.run(run(server))
        assert 3 <= delta_count < 100
        assert server.ledger.healthy == 0


@pytest.mark.long
def test_thousand_cancelled_calls_leave_no_connections() -> None:
    async def run(server: HostileServer) -> None:
        model = OpenAICompatibleModel(server.url, "m", timeout_seconds=60, concurrency=250)
        await asyncio.gather(*(model.complete(REQUEST) for _ in range(2)))
        for _ in range(4):
            calls = [model.complete(REQUEST, ignore_delta if number % 2 else None) for number in range(250)]
            tasks = [asyncio.create_task(call) for call in calls]
            await wait_until(server, lambda ledger: ledger.in_flight == 250)
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(result, asyncio.CancelledError) for result in results)
            await wait_until(server, lambda ledger: ledger.in_flight == 0)
        # Closed at our side, and not only waiting for somebody to collect them.
        await wait_until(server, lambda _: not server._connections)
        await model.aclose()

    with HostileServer(write_text, delay=0.0, script=[None, None, *[Fault.SLOW] * 1000], slow=60.0) as server:
        asyncio.run(run(server))
        assert (server.ledger.hung_up, server.ledger.calls) == (1000, 1002)


# -- closed ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("min_deltas", [None, 0, 3])
def test_aclose_ends_running_and_queued_calls(min_deltas: int | None) -> None:
    """`shown`: pieces of the stream that were shown by then; None where the reply comes whole."""
    deltas: list[str | None] = []

    async def run(server: HostileServer) -> list[object]:
        model = OpenAICompatibleModel(server.url, "m", timeout_seconds=None)
        stack = add_layers(model, ModelSettings(concurrency=2, tries=5))
        calls = [stack.complete(REQUEST, None if min_deltas is None else deltas.append) for _ in range(4)]
        tasks = [asyncio.create_task(call) for call in calls]
        await wait_until(server, lambda ledger: ledger.in_flight == 2 and len(deltas) >= (min_deltas or 0))
        await stack.aclose()
        async with asyncio.timeout(5):
            results = await asyncio.gather(*tasks, return_exceptions=True)
        await wait_until(server, lambda ledger: ledger.hung_up == 2)
        await stack.aclose()
        return list(results)

    slow = [Fault.SLOW] * 2 if not min_deltas else []
    with HostileServer(write_text, script=slow, slow=60.0, pace=0.02) as server:
        results = asyncio.run(run(server))
        assert server.ledger.calls == 2
    for error in results:
        assert type(error) is ChatError
        assert re.search(r"m at http://127\S+ was closed: open the model again", error.message)
    spent = sum((error.usage for error in results if isinstance(error, ChatError)), Usage())
    assert (spent.calls, spent.failed_calls, spent.uncounted_calls) == (2, 2, 2)


def test_aclose_running_call_has_unknown_cost() -> None:
    async def run(server: HostileServer) -> Usage:
        model = OpenAICompatibleModel(server.url, "m", timeout_seconds=None, price=lambda _: None)
        task = asyncio.create_task(model.complete(REQUEST))
        await wait_until(server, lambda ledger: ledger.in_flight == 1)
        await model.aclose()
        with pytest.raises(ChatError, match="was closed") as caught:
            await task
        with pytest.raises(ChatError, match="was closed") as after:
            await model.complete(REQUEST)
        assert (after.value.usage.calls, after.value.usage.cost) == (0, 0.0)
        return caught.value.usage

    with HostileServer(write_text, script=[Fault.SLOW], slow=60.0) as server:
        spent = asyncio.run(run(server))
        assert server.ledger.calls == 1
    assert (spent.calls, spent.failed_calls, spent.uncounted_calls, spent.cost) == (1, 1, 1, None)
    assert spent.seconds > 0


def test_aclose_ends_running_and_waiting_probes() -> None:
    async def run(endpoint: Endpoint) -> list[object]:
        model = OpenAICompatibleModel(endpoint.url, "m", timeout_seconds=None)
        probes = [model.count_tokens(REQUEST.messages), model.capabilities(), model.count_tokens(REQUEST.messages)]
        tasks = [asyncio.create_task(probe) for probe in probes]
        while not endpoint.asked:
            await asyncio.sleep(0.005)
        await model.aclose()
        async with asyncio.timeout(5):
            return list(await asyncio.gather(*tasks, return_exceptions=True))

    with serving() as endpoint:
        endpoint.script |= {path: [Scripted(hangs=True)] for path in ("/apply-template", "/props")}
        results = asyncio.run(run(endpoint))
        # One caller asks each question: the window, and how tokens are counted.
        assert sorted(path for path, _, _ in endpoint.asked) in (["/apply-template"], ["/apply-template", "/props"])
    assert [type(error) for error in results] == [ChatError] * 3
    assert {error.usage for error in results if isinstance(error, ChatError)} == {Usage()}


def test_aclose_during_token_count_returns_received_reply() -> None:
    async def run(endpoint: Endpoint) -> Usage:
        model = OpenAICompatibleModel(endpoint.url, "m", timeout_seconds=None)
        task = asyncio.create_task(model.complete(REQUEST))
        while len(endpoint.asked) < 2:
            await asyncio.sleep(0.005)
        await model.aclose()
        reply = await task
        assert reply.text == "Yes."
        return reply.usage

    with serving() as endpoint:
        endpoint.script |= {"/v1/chat/completions": [Scripted(completion("Yes."))]}
        endpoint.script |= {"/apply-template": [Scripted(hangs=True)]}
        assert asyncio.run(run(endpoint)).uncounted_calls == 1


# -- what has no end ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("fault", [Fault.ENDLESS_TEXT, Fault.ENDLESS_COMMENTS, Fault.SLOW])
def test_complete_endless_reply_raises_and_disconnects(
    monkeypatch: pytest.MonkeyPatch, fault: Fault, streams: bool
) -> None:
    monkeypatch.setattr(reply, "_SLACK", 100)
    request = ChatRequest(REQUEST.messages, max_tokens=10)

    async def run(server: HostileServer) -> None:
        model = OpenAICompatibleModel(server.url, "m", timeout_seconds=60)
        await model.complete(request)
        model._timeout = 0.3
        with pytest.raises((EndpointTimeout, ReplyInvalid)):
            await model.complete(request, ignore_delta if streams else None)
        await wait_until(server, lambda ledger: ledger.hung_up == 1)
        await model.aclose()

    with HostileServer(write_text, script=[None, fault], slow=60.0) as server:
        asyncio.run(run(server))


def test_complete_reasoning_over_limit_stops_at_server() -> None:
    async def run(server: HostileServer) -> None:
        model = OpenAICompatibleModel(server.url, "m", timeout_seconds=20)
        with pytest.raises(ReplyTruncated, match="raise max_reasoning_tokens"):
            await model.complete(ChatRequest(REQUEST.messages, max_tokens=10, max_reasoning_tokens=20), ignore_delta)
        await wait_until(server, lambda ledger: ledger.hung_up == 1)
        await model.aclose()

    with HostileServer(lambda _: f"<think> {'so it may be ' * 100}", pace=0.005) as server:
        asyncio.run(run(server))


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("status", [200, 400])
def test_complete_oversized_body_raises_reply_invalid(
    monkeypatch: pytest.MonkeyPatch, status: int, streams: bool
) -> None:
    monkeypatch.setattr(connection, "MAX_REPLY_BYTES" if status == 200 else "MAX_ERROR_BYTES", 10_000)
    kind = "text/event-stream" if streams and status == 200 else "application/json"
    with serving() as endpoint:
        endpoint.script["/v1/chat/completions"] = [Scripted("x" * 100_000, status, kind)]
        with pytest.raises(ReplyInvalid, match="sends more than a chat reply can contain"):
            asyncio.run(complete_once(endpoint, streams=streams))


def test_complete_compressed_reply_raises_reply_invalid() -> None:
    with serving() as endpoint:
        packed = Scripted(completion("Yes."), headers={"Content-Encoding": "gzip"})
        endpoint.script["/v1/chat/completions"] = [packed]
        with pytest.raises(ReplyInvalid, match="compresses its replies"):
            asyncio.run(complete_once(endpoint, streams=False))


async def complete_once(endpoint: Endpoint, *, streams: bool) -> None:
    model = OpenAICompatibleModel(endpoint.url, "m", timeout_seconds=5)
    try:
        await model.complete(REQUEST, ignore_delta if streams else None)
    finally:
        await model.aclose()
