"""A chat endpoint on loopback with configurable faults: a real HTTP server for tests of clients.

It uses plain sockets, so resets, cut bodies and endless streams are real. A ledger counts its replies and faults for
comparison with the client.
"""

from __future__ import annotations

import asyncio
import json
import random
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from http import HTTPStatus
from types import TracebackType
from typing import Any, Self

from epicrisis.testing.chat import count_words
from tests.support import faults as wire
from tests.support.faults import Fault, WireResponse
from tests.support.replies import schema_reply

_MOMENT = 0.01
"""Seconds between the pieces of an endless reply, and before a reset, so that the client reads earlier data."""

_UNREAD = 65536
"""Unread bytes of a client before an endless reply waits."""


@dataclass(frozen=True, slots=True)
class ServerLog:
    """Counts of requests and replies. A call is a request for a chat completion. It counts as `healthy`, as one of
    `faults`, as `refused`, as given up by the client, or as in flight."""

    connections: int = 0
    requests: int = 0
    """Requests of all paths."""
    calls: int = 0
    in_flight: int = 0
    most_in_flight: int = 0
    healthy: int = 0
    """Complete replies without a fault."""
    refused: int = 0
    """Rejected calls: a wrong key, an unsupported parameter, a prompt beyond the window."""
    faults: Mapping[Fault, int] = field(default_factory=dict)
    hung_up: int = 0
    """Calls the client gave up before the end of the reply."""
    told_calls: int = 0
    """Complete replies with right usage."""
    told_prompt_tokens: int = 0
    told_completion_tokens: int = 0
    prompt_tokens: int = 0
    """Tokens of all complete replies, with or without usage."""
    completion_tokens: int = 0

    @property
    def faulty(self) -> int:
        return sum(self.faults.values())

    @property
    def untold_calls(self) -> int:
        """Calls without right usage."""
        return self.calls - self.told_calls


@dataclass(frozen=True, slots=True)
class ReceivedRequest:
    """A request, with header names in lower case. `at` is a time of `time.monotonic()`."""

    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]
    at: float


class HostileServer:
    """Serves chat completions (also under Azure's paths), /v1/models and vLLM's /tokenize at `url`.

    `reply` returns the text for the body of a request; one word is one token. The share `rate` of the chat calls fails
    with one of `faults`, drawn by `seed` in order of arrival. `script` has the faults of the first calls instead (None:
    healthy).

    In seconds: `delay` before each reply, `pace` between the events of a stream, `slow` before the reply of
    `Fault.SLOW`, `retry_after` in faults with a retry time (rounded up to whole seconds).

    `api_key`, if given, is required. `refuses` has unsupported parameters: `{"max_tokens", "temperature"}` for a
    reasoning model of OpenAI, `{"response_format"}` for an old server. `context_tokens` is the window for prompt and
    reply. `keep_bodies` fills `received`.

    An error raised by `reply` is raised again at the end of the `with` block.
    """

    def __init__(
        self,
        reply: Callable[[dict[str, Any]], str] = schema_reply,
        *,
        faults: Sequence[Fault] = tuple(Fault),
        rate: float = 0.0,
        seed: int = 0,
        script: Iterable[Fault | None] = (),
        delay: float = 0.0,
        pace: float = 0.0,
        slow: float = 30.0,
        retry_after: float = 1.0,
        api_key: str | None = None,
        refuses: Collection[str] = (),
        context_tokens: int | None = None,
        model: str = "hostile",
        keep_bodies: bool = False,
    ) -> None:
        self._reply = reply
        self._faults, self._rate, self._random, self._script = faults, rate, random.Random(seed), deque(script)
        self._delay, self._pace, self._slow, self._retry_after = delay, pace, slow, retry_after
        self._api_key, self._refuses, self._context_tokens = api_key, frozenset(refuses), context_tokens
        self._model = model
        self._keep_bodies = keep_bodies
        self._kept: list[ReceivedRequest] = []
        self._broken: list[BaseException] = []
        # Only the server's thread replaces it, so that readers see consistent counts.
        self.ledger = ServerLog()
        self.url = ""

    @property
    def received(self) -> tuple[ReceivedRequest, ...]:
        """The requests so far, with `keep_bodies`."""
        return tuple(self._kept)

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="hostile-server", daemon=True)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._open(), self._loop).result()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        if error is None and self._broken:
            raise self._broken[0]

    async def _open(self) -> None:
        self._connections: set[_Connection] = set()
        self._closing = False
        self._server = await self._loop.create_server(lambda: _Connection(self), "127.0.0.1", 0, backlog=1024)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"

    async def _close(self) -> None:
        self._server.close()
        await _turns()  # Clients that closed their connection by now count as hung up.
        self._closing = True
        for connection in self._connections:
            connection.transport.abort()
        await _turns()

    def _begin(self, received: ReceivedRequest) -> tuple[WireResponse, Fault | None]:
        """Return the response to a chat call, and count it as started."""
        body = dict(received.body)
        response, fault = self._unauthorized(received) or self._refusal(body), None
        if response is None:
            if self._script:
                fault = self._script.popleft()
            elif self._random.random() < self._rate:
                fault = self._random.choice(self._faults)
            reply = wire.build_reply(body, self._reply(body), self._model)
            response = wire.respond(reply, fault, self._retry_after, self._slow)
            if fault is not None:
                faults = self.ledger.faults
                self.ledger = replace(self.ledger, faults={**faults, fault: faults.get(fault, 0) + 1})
            self._count(calls=1, in_flight=1)
        else:
            self._count(calls=1, in_flight=1, refused=1)
        self.ledger = replace(self.ledger, most_in_flight=max(self.ledger.most_in_flight, self.ledger.in_flight))
        return response, fault

    def _finish(self, response: WireResponse, fault: Fault | None) -> None:
        """Count the call as finished before its last bytes are sent, so the ledger is up to date."""
        if response.tokens is None:
            self._count(in_flight=-1)
            return
        prompt, completion = response.tokens
        right = int(response.usage_is_right)
        self._count(
            in_flight=-1,
            healthy=int(fault is None),
            told_calls=right,
            told_prompt_tokens=right * prompt,
            told_completion_tokens=right * completion,
            prompt_tokens=prompt,
            completion_tokens=completion,
        )

    def _other(self, received: ReceivedRequest) -> WireResponse:
        """Return the response to any other request."""
        if refusal := self._unauthorized(received):
            return refusal
        match received.path.rpartition("/")[2]:
            case "models":
                entry = {"id": self._model, "object": "model", "created": 0, "owned_by": "epicrisis"}
                return wire.build_json_response(
                    {"object": "list", "data": [entry | {"max_model_len": self._context_tokens}]}
                )
            case "tokenize":
                count = count_words(received.body.get("prompt") or wire.read_prompt(received.body))
                return wire.build_json_response(
                    {"count": count, "max_model_len": self._context_tokens, "tokens": list(range(count))}
                )
        return wire.build_json_response({"detail": "Not Found"}, 404)

    def _unauthorized(self, received: ReceivedRequest) -> WireResponse | None:
        key = received.headers.get("authorization", "").removeprefix("Bearer ") or received.headers.get("api-key")
        if self._api_key is None or key == self._api_key:
            return None
        return wire.build_error(401, f"Incorrect API key provided: {key}.", "invalid_request_error", "invalid_api_key")

    def _refusal(self, body: Mapping[str, Any]) -> WireResponse | None:
        if not body.get("messages"):
            return wire.build_error(400, "'messages' must be a list that is not empty", "invalid_request_error")
        if refusal := wire.refuse_unsupported(body, self._refuses):
            return refusal
        prompt, room = count_words(wire.read_prompt(body)), wire.read_token_limit(body) or 1
        if self._context_tokens is not None and prompt + room > self._context_tokens:
            return wire.build_overflow_error("vllm", prompt, self._context_tokens, room)
        return None

    def _count(self, **counts: int) -> None:
        self.ledger = replace(self.ledger, **{name: getattr(self.ledger, name) + n for name, n in counts.items()})


class _Connection(asyncio.Protocol):
    """The connection of a client. It answers one request after the other."""

    transport: asyncio.Transport

    def __init__(self, server: HostileServer) -> None:
        self._server = server
        self._buffer = bytearray()
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._server._connections.add(self)
        self._server._count(connections=1)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server._connections.discard(self)
        if self._task is not None:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._next()

    def _next(self) -> None:
        if self._task is None and (received := self._parse_request()) is not None:
            self._task = asyncio.get_running_loop().create_task(self._answer(received))
            self._task.add_done_callback(self._answered)

    def _parse_request(self) -> ReceivedRequest | None:
        """Return the next complete request, or None."""
        head, separator, rest = self._buffer.partition(b"\r\n\r\n")
        if not separator:
            return None
        first, *lines = head.decode("latin-1").split("\r\n")
        headers: dict[str, str] = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        length = int(headers.get("content-length", 0))
        if len(rest) < length:
            return None
        self._buffer = rest[length:]
        try:
            body = json.loads(rest[:length] or b"{}")
        except ValueError:
            body = {}
        path = first.split(" ")[1].partition("?")[0]
        return ReceivedRequest(path, headers, body if isinstance(body, dict) else {}, time.monotonic())

    async def _answer(self, received: ReceivedRequest) -> None:
        server = self._server
        server._count(requests=1)
        if server._keep_bodies:
            server._kept.append(received)
        if received.path.endswith("/chat/completions"):
            response, fault = server._begin(received)
            try:
                last = await self._all_but_last(response)
            except asyncio.CancelledError:
                server._count(in_flight=-1, hung_up=int(not server._closing))
                raise
            server._finish(response, fault)
        else:
            response = server._other(received)
            last = _head(response) + response.pieces[0]
        self.transport.write(last)
        await self._end(response, close=received.headers.get("connection", "").lower() == "close")

    async def _all_but_last(self, response: WireResponse) -> bytes:
        """Wait and write as the response requires, and return its last bytes."""
        server = self._server
        await asyncio.sleep(server._delay + response.late)
        parts = [_head(response), *map(partial(_framed, response), response.pieces)]
        while response.repeated:
            if self.transport.get_write_buffer_size() < _UNREAD:
                self.transport.write(b"".join(parts))
            parts = [_framed(response, response.repeated)]
            await asyncio.sleep(max(server._pace, _MOMENT))
        if response.chunked and response.ending == "whole":
            parts.append(b"0\r\n\r\n")
        if server._pace and response.chunked:
            for part in parts[:-1]:
                self.transport.write(part)
                await asyncio.sleep(server._pace)
            return parts[-1]
        return b"".join(parts)

    async def _end(self, response: WireResponse, *, close: bool) -> None:
        if response.ending != "whole":
            await asyncio.sleep(_MOMENT)
        if response.ending == "reset":
            # A linger time of zero resets the connection.
            linger = struct.pack("ii", 1, 0)
            self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.transport.abort()
        elif response.ending == "closed" or close:
            self.transport.close()

    def _answered(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            self._server._broken.append(error)
            self.transport.abort()
        elif not self.transport.is_closing():
            self._next()


def _head(response: WireResponse) -> bytes:
    if response.status == 0:
        return b""
    length = len(response.pieces[0]) if response.promised is None and response.pieces else response.promised
    framing = "Transfer-Encoding: chunked" if response.chunked else f"Content-Length: {length}"
    lines = [f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}", f"Content-Type: {response.kind}"]
    lines += [framing, *map(": ".join, response.headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def _framed(response: WireResponse, piece: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(piece), piece) if response.chunked else piece


async def _turns() -> None:
    """Let the loop see what the sockets hold already, and act on it."""
    for _ in range(5):
        await asyncio.sleep(0)
