"""The hostile server, seen from a bare socket and from a plain HTTP client: every fault is on the wire what its
description says, and the ledger tells what happened."""

from __future__ import annotations

import asyncio
import json
import random
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from tests.support.faults import Fault
from tests.support.hostile import HostileServer, ServerLog

PROMPT = "Does the blind worm see?"
TEXT = "It does not see a thing."
BODY: dict[str, Any] = {"model": "hostile", "messages": [{"role": "user", "content": PROMPT}]}
STREAMED: dict[str, Any] = BODY | {"stream": True, "stream_options": {"include_usage": True}}
TOKENS = (5, 6)
PATIENCE = 0.3
"""Seconds: more than loopback needs, less than the server's slowness."""


def says(_: Mapping[str, Any]) -> str:
    return TEXT


@contextmanager
def serving(*script: Fault | None, **more: Any) -> Iterator[HostileServer]:
    with HostileServer(says, script=script, slow=5.0, **more) as server:
        yield server


def post(server: HostileServer, body: dict[str, Any] = BODY, headers: dict[str, str] | None = None) -> httpx2.Response:
    with httpx2.Client(timeout=PATIENCE, trust_env=False, verify=False) as client:
        return client.post(f"{server.url}/chat/completions", json=body, headers=headers)


def raw(server: HostileServer, body: dict[str, Any], patience: float = PATIENCE) -> tuple[bytes, str]:
    """All that a socket receives, and how it ended: `closed`, `reset` or `silence`."""
    data = json.dumps(body).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(
        data
    )
    received, end = b"", time.monotonic() + patience
    with socket.create_connection(("127.0.0.1", urlsplit(server.url).port or 0)) as wire:
        wire.sendall(head + data)
        while (left := end - time.monotonic()) > 0:
            wire.settimeout(left)
            try:
                piece = wire.recv(65536)
            except ConnectionResetError:
                return received, "reset"
            except TimeoutError:
                break
            if not piece:
                return received, "closed"
            received += piece
    return received, "silence"


def eventually(server: HostileServer, holds: Callable[[ServerLog], bool]) -> bool:
    """A client's hanging up reaches the server a moment later."""
    for _ in range(500):
        if holds(server.ledger):
            return True
        time.sleep(0.01)
    return False


def events(answer: str) -> list[Any]:
    rows = [row.removeprefix("data: ") for row in answer.split("\n\n") if row]
    return [row if row == "[DONE]" else json.loads(row) for row in rows]


def text_in(rows: list[Any]) -> str:
    return "".join(choice["delta"].get("content") or "" for row in rows[:-1] for choice in row["choices"])


# -- healthy --------------------------------------------------------------------------------------------------------


def test_server_returns_complete_reply() -> None:
    with serving() as server:
        reply = post(server).json()
        ledger = server.ledger
    assert reply["choices"] == [
        {"index": 0, "message": {"role": "assistant", "content": TEXT}, "finish_reason": "stop"}
    ]
    assert reply["usage"] == {"prompt_tokens": 5, "completion_tokens": 6, "total_tokens": 11}
    assert (ledger.calls, ledger.healthy, ledger.told_calls, ledger.untold_calls) == (1, 1, 1, 0)
    assert (ledger.told_prompt_tokens, ledger.told_completion_tokens) == TOKENS
    assert (ledger.prompt_tokens, ledger.completion_tokens) == TOKENS
    assert (ledger.faulty, ledger.refused, ledger.hung_up, ledger.in_flight, ledger.most_in_flight) == (0, 0, 0, 0, 1)


def test_stream_includes_usage_if_requested() -> None:
    with serving() as server:
        asked, unasked = post(server, STREAMED), post(server, BODY | {"stream": True})
        ledger = server.ledger
    assert asked.headers["content-type"] == "text/event-stream"
    rows = events(asked.text)
    assert rows[-1] == "[DONE]"
    assert rows[-2]["choices"] == []
    assert rows[-2]["usage"]["total_tokens"] == 11
    assert rows[-3]["choices"][0]["finish_reason"] == "stop"
    assert text_in(rows) == text_in(events(unasked.text)) == TEXT
    assert "usage" not in unasked.text
    assert (ledger.healthy, ledger.told_calls, ledger.prompt_tokens, ledger.told_prompt_tokens) == (2, 1, 10, 5)


def test_reply_over_limit_ends_by_length() -> None:
    with serving() as server:
        old, new = post(server, BODY | {"max_tokens": 2}), post(server, STREAMED | {"max_completion_tokens": 2})
    assert old.json()["choices"][0]["finish_reason"] == "length"
    assert old.json()["choices"][0]["message"]["content"] == "It does"
    assert old.json()["usage"]["completion_tokens"] == 2
    assert events(new.text)[-3]["choices"][0]["finish_reason"] == "length"


def test_server_lists_models_tokens_and_connections() -> None:
    parts = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Why?"}]},
    ]
    with (
        serving(context_tokens=99) as server,
        httpx2.Client(base_url=server.url, trust_env=False, verify=False) as client,
    ):
        models = client.get("/models").json()["data"]
        root = server.url.removesuffix("/v1")
        counts = [
            client.post(f"{root}/tokenize", json=body).json()["count"]
            for body in ({"messages": parts}, {"prompt": "a b"})
        ]
        missing = client.get(f"{root}/props")
        for _ in range(5):
            client.post("/chat/completions", json=BODY)
        ledger = server.ledger
    assert [(model["id"], model["max_model_len"]) for model in models] == [("hostile", 99)]
    assert counts == [3, 2]
    assert missing.status_code == 404
    assert (ledger.connections, ledger.requests, ledger.calls) == (1, 9, 5)


@pytest.mark.long
def test_server_handles_two_hundred_concurrent_calls() -> None:
    async def together(server: HostileServer) -> list[str]:
        limits = httpx2.Limits(max_connections=200)
        async with httpx2.AsyncClient(timeout=30, limits=limits, trust_env=False, verify=False) as client:
            calls = (client.post(f"{server.url}/chat/completions", json=BODY) for _ in range(200))
            return [reply.json()["choices"][0]["message"]["content"] for reply in await asyncio.gather(*calls)]

    with serving(delay=0.4) as server:
        texts = asyncio.run(together(server))
        ledger = server.ledger
    assert texts == [TEXT] * 200
    assert (ledger.most_in_flight, ledger.in_flight, ledger.healthy) == (200, 0, 200)


# -- who is asked, and for what -------------------------------------------------------------------------------------


def test_server_can_require_key() -> None:
    with serving(api_key="sk-right", keep_bodies=True) as server:
        wrong = post(server)
        bearer = post(server, headers={"Authorization": "Bearer sk-right"})
        azure = post(server, headers={"api-key": "sk-right"})
        models = httpx2.get(f"{server.url}/models", trust_env=False, verify=False)
        ledger, received = server.ledger, server.received
    assert [reply.status_code for reply in (wrong, bearer, azure, models)] == [401, 200, 200, 401]
    assert wrong.json()["error"]["code"] == "invalid_api_key"
    assert (ledger.calls, ledger.refused, ledger.healthy, ledger.untold_calls) == (3, 1, 2, 1)
    assert [request.path for request in received] == ["/v1/chat/completions"] * 3 + ["/v1/models"]
    assert received[1].headers["authorization"] == "Bearer sk-right"
    assert received[0].body == BODY
    assert received[0].at <= received[1].at


def test_server_rejects_configured_parameters() -> None:
    def refusal(body: dict[str, Any]) -> tuple[int, str | None, str, str]:
        reply = post(server, BODY | body)
        error = reply.json()["error"]
        return reply.status_code, error["code"], error["param"], error["message"]

    with serving(refuses={"max_tokens", "temperature", "response_format"}) as server:
        status, code, name, message = refusal({"max_tokens": 5})
        assert (status, code, name) == (400, "unsupported_parameter", "max_tokens")
        assert "Use 'max_completion_tokens' instead" in message
        status, code, name, message = refusal({"temperature": 0.0})
        assert (status, code, name) == (400, "unsupported_value", "temperature")
        assert "does not support 0.0" in message
        assert refusal({"response_format": {}})[3] == "Unrecognized request argument supplied: response_format"
        assert post(server, BODY | {"max_completion_tokens": 5, "temperature": 1.0}).status_code == 200
        assert (server.ledger.refused, server.ledger.healthy) == (3, 1)


def test_window_includes_prompt_and_reply() -> None:
    with serving(context_tokens=10) as server:
        fits, exceeds = post(server, BODY | {"max_tokens": 5}), post(server, BODY | {"max_tokens": 6})
        nonsense = post(server, {"model": "hostile"})
    assert (fits.status_code, exceeds.status_code, nonsense.status_code) == (200, 400, 400)
    assert "maximum context length is 10 tokens" in exceeds.json()["message"]


def test_error_in_reply_function_is_raised_in_test() -> None:
    def broken(_: Mapping[str, Any]) -> str:
        raise LookupError("no such reply")

    def use() -> None:
        with HostileServer(broken) as server, pytest.raises(httpx2.RemoteProtocolError):
            post(server)

    with pytest.raises(LookupError, match="no such reply"):
        use()


# -- faults ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("body", [BODY, STREAMED], ids=["whole", "stream"])
@pytest.mark.parametrize("fault", list(Fault), ids=[fault.name for fault in Fault])
def test_fault_is_sent_exactly_once(fault: Fault, body: dict[str, Any]) -> None:
    with serving(fault) as server:
        faulty, again = raw(server, body, patience=0.15), raw(server, body)
        assert eventually(server, lambda ledger: ledger.in_flight == 0)
        ledger = server.ledger
    assert again[1] == "closed"
    assert faulty != again
    assert (ledger.calls, ledger.healthy, dict(ledger.faults)) == (2, 1, {fault: 1})
    whole = fault.name.startswith(("USAGE", "EMPTY", "NULL")) or fault in (Fault.WRONG_SCHEMA, Fault.FILTERED_REPLY)
    assert (ledger.prompt_tokens == 10) == whole
    true = whole and (not fault.name.startswith("USAGE") or fault is Fault.USAGE_CACHED)
    assert ledger.told_calls == (2 if true else 1)
    assert ledger.hung_up == (fault.name.startswith(("SLOW", "ENDLESS")))


def test_slow_fault_succeeds_without_timeout() -> None:
    with HostileServer(says, script=[Fault.SLOW], slow=0.05) as server:
        began = time.monotonic()
        reply = post(server)
        assert time.monotonic() - began >= 0.05
        assert server.ledger.told_calls == 1
    assert reply.json()["choices"][0]["message"]["content"] == TEXT


def busy(fault: Fault, seconds: float) -> httpx2.Response:
    with serving(fault, retry_after=seconds) as server:
        reply = post(server)
    assert reply.status_code == (503 if fault is Fault.UNAVAILABLE else 429)
    return reply


def test_retry_after_is_sent_in_all_forms() -> None:
    assert busy(Fault.BUSY_SECONDS, 1.2).headers["retry-after"] == "2"
    assert busy(Fault.BUSY_FRACTION, 1.2).headers["retry-after"] == "1.200"
    assert busy(Fault.BUSY_MS, 1.2).headers["retry-after-ms"] == "1200"
    assert busy(Fault.BUSY_NONSENSE, 1.2).headers["retry-after"] == "soon"
    assert busy(Fault.BUSY_NEGATIVE, 1.2).headers["retry-after"] == "-1"
    assert busy(Fault.UNAVAILABLE, 1.2).headers["retry-after"] == "2"
    date = parsedate_to_datetime(busy(Fault.BUSY_DATE, 100).headers["retry-after"])
    assert 90 < date.timestamp() - time.time() <= 100
    for fault, hint in (
        (Fault.BUSY_HINT, "Please try again in 1.200s."),
        (Fault.BUSY_HINT_MS, "Please try again in 1200ms."),
        (Fault.BUSY_SILENT, "Requested 385."),
    ):
        reply = busy(fault, 1.2)
        assert reply.json()["error"]["message"].endswith(hint)
        assert not {"retry-after", "retry-after-ms"} & set(reply.headers)


def test_refusals_have_configured_status() -> None:
    def refused(fault: Fault) -> tuple[int, Any]:
        with serving(fault) as server:
            reply = post(server)
        return reply.status_code, reply.json() if "json" in reply.headers["content-type"] else reply.text

    status, body = refused(Fault.SERVER_ERROR)
    assert (status, PROMPT in body["error"]["message"]) == (500, True)
    status, body = refused(Fault.BAD_GATEWAY)
    assert (status, body.startswith("<!DOCTYPE html>")) == (502, True)
    status, body = refused(Fault.HTML)
    assert (status, body.startswith("<!DOCTYPE html>")) == (200, True)
    status, body = refused(Fault.FILTERED_PROMPT)
    assert (status, body["error"]["code"], body["error"]["status"]) == (400, "content_filter", 400)
    assert body["error"]["innererror"]["code"] == "ResponsibleAIPolicyViolation"
    status, body = refused(Fault.OVERFLOW_OPENAI)
    assert (status, body["error"]["code"]) == (400, "context_length_exceeded")
    status, body = refused(Fault.OVERFLOW_VLLM)
    assert (status, body["message"].startswith("This model's maximum context length is 2 tokens")) == (400, True)
    status, body = refused(Fault.OVERFLOW_VLLM_016)
    assert (status, "model's context length is only 2 tokens" in body["error"]["message"]) == (400, True)
    status, body = refused(Fault.OVERFLOW_LLAMA_CPP)
    assert (status, body["error"]["type"]) == (400, "exceed_context_size_error")
    assert (body["error"]["n_prompt_tokens"], body["error"]["n_ctx"]) == (5, 2)


def test_connection_resets_and_truncations_are_sent() -> None:
    def seen(fault: Fault, body: dict[str, Any]) -> tuple[str, str, str]:
        with serving(fault) as server:
            received, ending = raw(server, body)
        head, _, rest = received.decode().partition("\r\n\r\n")
        return head, rest, ending

    for body in (BODY, STREAMED):
        assert seen(Fault.RESET_AT_ONCE, body) == ("", "", "reset")
    for fault, ending in ((Fault.RESET_MIDWAY, "reset"), (Fault.CUT, "closed")):
        head, rest, ended = seen(fault, BODY)
        promised = int(head.rpartition("Content-Length: ")[2].split("\r\n")[0])
        assert (0 < len(rest) < promised, ended) == (True, ending)
        head, rest, ended = seen(fault, STREAMED)
        assert ended == ending
        assert 'finish_reason": "' not in rest
        assert "[DONE]" not in rest
        assert '" does"' in rest
        assert rest.endswith("\r\n0\r\n\r\n") == (fault is Fault.CUT), "cut in order, or not"


def test_endless_reply_continues_until_client_disconnects() -> None:
    for fault, body, endless in (
        (Fault.ENDLESS_TEXT, BODY, "and "),
        (Fault.ENDLESS_TEXT, STREAMED, '"delta": {"content": '),
        (Fault.ENDLESS_COMMENTS, BODY, "1\r\n\n\r\n"),
        (Fault.ENDLESS_COMMENTS, STREAMED, ": keep-alive\n\n"),
    ):
        with serving(fault) as server:
            received, ending = raw(server, body, patience=0.15)
            assert eventually(server, lambda ledger: ledger.hung_up == 1)
        assert ending == "silence"
        assert received.decode().count(endless) > 5


def test_malformed_json_has_correct_length() -> None:
    def replies(fault: Fault) -> tuple[str, str]:
        with serving(fault, fault) as server:
            return post(server).text, post(server, STREAMED).text

    for fault in (Fault.MALFORMED_JSON, Fault.TRUNCATED_JSON):
        whole, stream = replies(fault)
        with pytest.raises(ValueError, match=r"Expecting|Unterminated|delimiter"):
            json.loads(whole)
        with pytest.raises(ValueError, match=r"Expecting|Unterminated|delimiter"):
            events(stream)
        assert stream.endswith("data: [DONE]\n\n")


def test_unusual_replies_are_sent() -> None:
    def replies(fault: Fault) -> tuple[Any, list[Any]]:
        with serving(fault, fault) as server:
            return post(server).json(), events(post(server, STREAMED).text)

    whole, stream = replies(Fault.ERROR_WITHIN)
    assert whole["error"]["code"] == 500
    assert [row for row in stream[:-1] if "error" in row] == [whole]
    assert stream[-1] == "[DONE]"
    whole, stream = replies(Fault.EMPTY_CHOICES)
    assert (whole["choices"], whole["usage"]["prompt_tokens"]) == ([], 5)
    assert [row["choices"] for row in stream[:-1]] == [[]]
    for fault, text, finish in (
        (Fault.EMPTY_TEXT, "", "stop"),
        (Fault.NULL_TEXT, None, "stop"),
        (Fault.FILTERED_REPLY, "It does not", "content_filter"),
    ):
        whole, stream = replies(fault)
        choice = whole["choices"][0]
        assert (choice["message"]["content"], choice["finish_reason"]) == (text, finish)
        assert (text_in(stream), stream[-3]["choices"][0]["finish_reason"]) == (text or "", finish)
    whole, stream = replies(Fault.WRONG_SCHEMA)
    assert json.loads(whole["choices"][0]["message"]["content"]) == json.loads(text_in(stream))


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (Fault.USAGE_NULL, None),
        (Fault.USAGE_ZERO, {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}),
        (Fault.USAGE_NEGATIVE, {"prompt_tokens": -1, "completion_tokens": -1, "total_tokens": -2}),
        (Fault.USAGE_WORDS, {"prompt_tokens": "n/a", "completion_tokens": "n/a", "total_tokens": "n/a"}),
        (
            Fault.USAGE_CACHED,
            {
                "prompt_tokens": 5,
                "completion_tokens": 6,
                "total_tokens": 11,
                "prompt_tokens_details": {"cached_tokens": 51},
            },
        ),
    ],
)
def test_wrong_usage_is_sent(fault: Fault, expected: Any) -> None:
    with serving(fault, fault, Fault.USAGE_MISSING, Fault.USAGE_MISSING) as server:
        whole, stream = post(server).json(), events(post(server, STREAMED).text)
        missing, missing_in_stream = post(server), post(server, STREAMED)
    assert whole["usage"] == stream[-2]["usage"] == expected
    assert whole["choices"][0]["message"]["content"] == text_in(stream) == TEXT
    assert "usage" not in missing.text + missing_in_stream.text


# -- chance and the ledger ------------------------------------------------------------------------------------------

PROMPT_FAULTS = [fault for fault in Fault if not fault.name.startswith(("SLOW", "ENDLESS"))]


def statuses(seed: int, rate: float, calls: int) -> tuple[list[int], ServerLog]:
    """What a client sees, 0 for a broken connection, one call after the other."""
    seen = []
    with (
        HostileServer(says, faults=PROMPT_FAULTS, rate=rate, seed=seed) as server,
        httpx2.Client(timeout=5, trust_env=False, verify=False) as client,
    ):
        for _ in range(calls):
            try:
                seen.append(client.post(f"{server.url}/chat/completions", json=BODY).status_code)
            except httpx2.TransportError:
                seen.append(0)
        return seen, server.ledger


@pytest.mark.slow
def test_equal_seeds_give_equal_faults_at_rate() -> None:
    first, ledger = statuses(seed=7, rate=0.3, calls=150)
    assert statuses(seed=7, rate=0.3, calls=150) == (first, ledger)
    assert statuses(seed=8, rate=0.3, calls=150)[0] != first
    draws = random.Random(7)
    expected = [draws.choice(PROMPT_FAULTS) if draws.random() < 0.3 else None for _ in range(150)]
    assert Counter(fault for fault in expected if fault) == Counter(ledger.faults)
    assert ledger.calls == 150 == ledger.healthy + ledger.faulty
    assert 25 <= ledger.faulty <= 65
    assert first.count(429) == sum(count for fault, count in ledger.faults.items() if fault.name.startswith("BUSY"))
    assert first.count(0) == sum(ledger.faults.get(f, 0) for f in (Fault.RESET_AT_ONCE, Fault.RESET_MIDWAY, Fault.CUT))
    assert ledger.told_calls * TOKENS[0] >= ledger.told_prompt_tokens > ledger.healthy * TOKENS[0]
    assert statuses(seed=1, rate=1.0, calls=20)[1].healthy == 0


def test_client_disconnects_are_counted() -> None:
    with serving(None, None, Fault.SLOW, delay=2.0, pace=0.05) as server:
        for body in (BODY, STREAMED, BODY):
            with pytest.raises(httpx2.ReadTimeout):
                post(server, body)
        assert eventually(server, lambda ledger: ledger.hung_up == 3)
        ledger = server.ledger
    assert (ledger.calls, ledger.healthy, ledger.faulty, ledger.in_flight) == (3, 0, 1, 0)
    assert (ledger.told_calls, ledger.prompt_tokens) == (0, 0)


def test_stream_can_be_abandoned_between_words() -> None:
    with serving(pace=0.1) as server, httpx2.Client(timeout=5, trust_env=False, verify=False) as client:
        with client.stream("POST", f"{server.url}/chat/completions", json=STREAMED) as reply:
            first = next(row for row in reply.iter_lines() if row)
        assert eventually(server, lambda ledger: ledger.hung_up == 1)
        assert (server.ledger.healthy, server.ledger.in_flight) == (0, 0)
    assert "assistant" in first


@pytest.mark.long
def test_stopping_server_closes_client_connections() -> None:
    async def left_waiting() -> ServerLog:
        async with httpx2.AsyncClient(timeout=5, trust_env=False, verify=False) as client:
            with serving(delay=5.0) as server:
                call = asyncio.ensure_future(client.post(f"{server.url}/chat/completions", json=BODY))
                while not server.ledger.calls:
                    await asyncio.sleep(0.01)
            with pytest.raises(httpx2.TransportError):
                await call
            return server.ledger

    ledger = asyncio.run(left_waiting())
    assert (ledger.calls, ledger.hung_up, ledger.in_flight) == (1, 0, 0)
