"""Every fault of the hostile server, streamed and whole: which error it is, and when the endpoint may be asked again.
And what questions about the endpoint make of failures that may pass."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from epicrisis.core.errors import (
    ChatError,
    ContextOverflow,
    EndpointBusy,
    EndpointRejected,
    EndpointTimeout,
    EndpointUnreachable,
    ReplyEmpty,
    ReplyInvalid,
    ReplyWithheld,
)
from epicrisis.core.protocols import ChatReply, ChatRequest, Message
from epicrisis.models.chat.endpoints.probing import PATIENCE
from epicrisis.models.chat.openai_compatible import OpenAICompatibleModel
from tests.support.faults import Fault
from tests.support.hostile import HostileServer
from tests.support.loopback import Scripted, serving

T = TypeVar("T")

REQUEST = ChatRequest((Message("user", "Does the blind worm see?"),), max_tokens=10)
TEXT = "It does not see a thing."


def run_with_model(url: str, work: Callable[[OpenAICompatibleModel], Awaitable[T]], timeout: float = 5.0) -> T:
    async def run() -> T:
        model = OpenAICompatibleModel(url, "m", timeout_seconds=timeout)
        try:
            return await work(model)
        finally:
            await model.aclose()

    return asyncio.run(run())


def complete_with_fault(fault: Fault, *, streams: bool) -> ChatReply:
    endless = fault in (Fault.SLOW, Fault.ENDLESS_COMMENTS, Fault.ENDLESS_TEXT)
    with HostileServer(lambda _: TEXT, script=[fault], slow=60.0, retry_after=1.5) as server:
        on_delta = (lambda _: None) if streams else None
        return run_with_model(
            server.url, lambda model: model.complete(REQUEST, on_delta), timeout=0.3 if endless else 10.0
        )


KINDS: dict[type[ChatError], set[Fault]] = {
    EndpointTimeout: {Fault.SLOW, Fault.ENDLESS_COMMENTS},
    EndpointBusy: {Fault.SERVER_ERROR, Fault.BAD_GATEWAY, Fault.UNAVAILABLE, Fault.ERROR_WITHIN}
    | {fault for fault in Fault if fault.name.startswith("BUSY")},
    EndpointUnreachable: {Fault.RESET_AT_ONCE, Fault.RESET_MIDWAY},
    EndpointRejected: {Fault.FILTERED_PROMPT},
    ReplyInvalid: {Fault.MALFORMED_JSON, Fault.TRUNCATED_JSON, Fault.HTML} | {Fault.EMPTY_CHOICES},
    ReplyEmpty: {Fault.EMPTY_TEXT, Fault.NULL_TEXT},
    ReplyWithheld: {Fault.FILTERED_REPLY},
    ContextOverflow: {fault for fault in Fault if fault.name.startswith("OVERFLOW")},
}
HARMLESS = {fault for fault in Fault if fault.name.startswith("USAGE")} | {Fault.WRONG_SCHEMA}
OTHERWISE = {Fault.CUT, Fault.ENDLESS_TEXT}
"""Cut streams end in order, and text for ever is bounded by time or by tokens."""

WAITS = {
    Fault.BUSY_SECONDS: 2.0,
    Fault.BUSY_FRACTION: 1.5,
    Fault.BUSY_MS: 1.5,
    Fault.BUSY_HINT: 1.5,
    Fault.BUSY_HINT_MS: 1.5,
    Fault.UNAVAILABLE: 2.0,
}


def test_fault_tables_cover_every_fault() -> None:
    assert {fault for faults in KINDS.values() for fault in faults} | HARMLESS | OTHERWISE == set(Fault)


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize(
    ("kind", "fault"), [(kind, fault) for kind, faults in KINDS.items() for fault in sorted(faults, key=str)]
)
def test_complete_fault_raises_expected_error_and_retry_after(
    kind: type[ChatError], fault: Fault, streams: bool
) -> None:
    with pytest.raises(kind) as caught:
        complete_with_fault(fault, streams=streams)
    assert type(caught.value) is kind
    if fault is Fault.BUSY_DATE:
        assert caught.value.retry_after is not None
        assert 0 <= caught.value.retry_after <= 2
    else:
        assert (
            caught.value.retry_after == pytest.approx(WAITS[fault]) if fault in WAITS else not caught.value.retry_after
        )


@pytest.mark.slow
@pytest.mark.parametrize("streams", [False, True])
def test_complete_truncated_or_endless_body_raises_error(streams: bool) -> None:
    cut, endless = (ReplyInvalid, ReplyInvalid) if streams else (EndpointUnreachable, EndpointTimeout)
    with pytest.raises(cut):
        complete_with_fault(Fault.CUT, streams=streams)
    with pytest.raises((endless, EndpointTimeout)):
        complete_with_fault(Fault.ENDLESS_TEXT, streams=streams)


@pytest.mark.parametrize("streams", [False, True])
def test_complete_harmless_fault_returns_text(streams: bool) -> None:
    for fault in HARMLESS:
        assert complete_with_fault(fault, streams=streams).text


def test_complete_exhausted_quota_raises_endpoint_rejected() -> None:
    spent = {"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}
    with serving() as endpoint:
        endpoint.script["/v1/chat/completions"] = [Scripted(spent, 429)]
        with pytest.raises(EndpointRejected, match="no credit left"):
            run_with_model(endpoint.url, lambda model: model.complete(REQUEST))


# -- questions about the endpoint -----------------------------------------------------------------------------------

VLLM = Scripted({"count": 17})
WINDOW = Scripted({"data": [{"id": "m", "max_model_len": 2048}]})


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_probe_transient_failure_is_raised_and_probed_again(status: int) -> None:
    async def ask_twice(model: OpenAICompatibleModel) -> tuple[int, int | None, bool]:
        with pytest.raises(EndpointBusy) as caught:
            await model.count_tokens(REQUEST.messages)
        assert (caught.value.retryable, caught.value.usage.calls) == (True, 0)
        capabilities = await model.capabilities()
        return await model.count_tokens(REQUEST.messages), capabilities.context_tokens, capabilities.exact_token_counts

    with serving() as endpoint:
        endpoint.script |= {"/tokenize": [Scripted("", status), VLLM], "/v1/models": [WINDOW]}
        assert run_with_model(endpoint.url, ask_twice) == (17, 2048, True)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 422, 501])
def test_probe_rejected_paths_count_as_unsupported(status: int) -> None:
    async def counted(model: OpenAICompatibleModel) -> bool:
        return (await model.capabilities()).exact_token_counts

    with serving() as endpoint:
        endpoint.script |= {path: [Scripted({}, status)] for path in ("/tokenize", "/apply-template", "/props")}
        assert run_with_model(endpoint.url, counted) is False
        # Window and counting method are asked for at the same time.
        paths = [path for path, _, _ in endpoint.asked]
        assert [path for path in paths if path in ("/props", "/v1/models")] == ["/props", "/v1/models"]
        assert [path for path in paths if path in ("/apply-template", "/tokenize")] == ["/apply-template", "/tokenize"]
        # Ollama's question is asked on this machine alone.
        assert (len(paths), paths.count("/api/ps")) == (5, 1)


def test_probe_persistent_failure_counts_as_unsupported() -> None:
    async def until_told(model: OpenAICompatibleModel) -> tuple[int, bool]:
        failures = 0
        while True:
            try:
                return failures, (await model.capabilities()).exact_token_counts
            except EndpointBusy:
                failures += 1

    with serving() as endpoint:
        endpoint.script["/props"] = [Scripted("", 500)]
        endpoint.script["/tokenize"] = [VLLM]
        assert run_with_model(endpoint.url, until_told) == (PATIENCE - 1, True)


def test_probe_concurrent_callers_share_one_probe() -> None:
    async def together(model: OpenAICompatibleModel) -> list[int]:
        return await asyncio.gather(*(model.count_tokens(REQUEST.messages) for _ in range(20)))

    with serving() as endpoint:
        endpoint.script |= {"/tokenize": [VLLM], "/v1/models": [WINDOW]}
        assert run_with_model(endpoint.url, together) == [17] * 20
        paths = [path for path, _, _ in endpoint.asked]
    assert (paths.count("/apply-template"), paths.count("/tokenize")) == (1, 21)


def test_model_name_lookup_is_shared_and_retried_after_failure() -> None:
    async def run(url: str) -> list[str]:
        model = OpenAICompatibleModel(url, timeout_seconds=5)
        with pytest.raises(EndpointBusy):
            await model.fingerprint()
        names = await asyncio.gather(*(model.fingerprint() for _ in range(20)))
        await model.aclose()
        return names

    with serving() as endpoint:
        endpoint.script["/v1/models"] = [Scripted("", 503), WINDOW]
        assert len(set(asyncio.run(run(endpoint.url)))) == 1
        assert [path for path, _, _ in endpoint.asked] == ["/v1/models"] * 2


def test_stream_event_without_data_is_no_reply() -> None:
    """Servers send the seconds until a reconnection (`retry:`), or events without data to keep a connection open."""
    delta = {"choices": [{"index": 0, "delta": {"content": TEXT}, "finish_reason": "stop"}]}
    events = f"retry: 3000\n\nevent: ping\n\ndata: {json.dumps(delta)}\n\nid: 2\n\ndata: [DONE]\n\n"
    with serving() as endpoint:
        endpoint.script["/v1/chat/completions"] = [Scripted(events, kind="text/event-stream")]
        reply = run_with_model(f"{endpoint.url}/v1", lambda model: model.complete(REQUEST, lambda _: None))
    assert reply.text == TEXT


def test_stream_byte_order_mark_does_not_hide_the_first_event() -> None:
    events = ""
    for text, finish in ((TEXT[:5], None), (TEXT[5:], "stop")):
        delta = {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]}
        events += f"data: {json.dumps(delta)}\n\n"
    with serving() as endpoint:
        endpoint.script["/v1/chat/completions"] = [Scripted(f"\ufeff{events}", kind="text/event-stream")]
        reply = run_with_model(f"{endpoint.url}/v1", lambda model: model.complete(REQUEST, lambda _: None))
    assert reply.text == TEXT


def test_refusal_with_incomplete_body_keeps_its_status_and_wait() -> None:
    response = b"HTTP/1.1 429 Busy\r\nRetry-After: 7\r\nContent-Length: 100\r\nConnection: close\r\n\r\n{"

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        (length,) = re.findall(rb"content-length: (\d+)", head.lower())
        await reader.readexactly(int(length))
        writer.write(response)
        await writer.drain()
        writer.close()

    async def run() -> None:
        server = await asyncio.start_server(refuse, "127.0.0.1")
        port = server.sockets[0].getsockname()[1]
        model = OpenAICompatibleModel(f"http://127.0.0.1:{port}/v1", "m", timeout_seconds=5)
        try:
            await model.complete(REQUEST)
        finally:
            await model.aclose()
            server.close()

    with pytest.raises(EndpointBusy) as caught:
        asyncio.run(run())
    assert caught.value.retry_after == 7
