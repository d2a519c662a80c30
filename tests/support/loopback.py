"""An endpoint on loopback that is healthy, strange or hostile as told: a real HTTP server in a thread."""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from typing import Any


@dataclass
class Scripted:
    """One response. `hangs`: after what it has sent it keeps the connection and says nothing more."""

    body: Any = ""
    status: int = 200
    kind: str = "application/json"
    hangs: bool = False
    headers: dict[str, str] = field(default_factory=dict)
    whole: Any = None
    """The body for requests that want no stream, as JSON."""


@dataclass
class Endpoint:
    """Answers each path with its script, the last response for ever; 404 for what has none. Keeps what was asked."""

    script: dict[str, list[Scripted]] = field(default_factory=dict)
    asked: list[tuple[str, dict[str, Any], dict[str, str]]] = field(default_factory=list)
    raw: list[bytes] = field(default_factory=list)
    """The bodies as they came."""
    url: str = ""
    connections: set[tuple[str, int]] = field(default_factory=set)
    closing: threading.Event = field(default_factory=threading.Event)

    def next(self, path: str) -> Scripted:
        responses = self.script.get(path, [Scripted({"error": {"message": "no such path"}}, 404)])
        return responses.pop(0) if len(responses) > 1 else responses[0]

    def bodies(self, path: str) -> list[dict[str, Any]]:
        return [body for asked, body, _ in self.asked if asked == path]


class _Handler(BaseHTTPRequestHandler):
    endpoint: Endpoint
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def _answer(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.endpoint.raw.append(raw)
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = json.loads(raw) if raw else {}
        self.endpoint.asked.append((self.path, request, headers))
        self.endpoint.connections.add(self.client_address)
        reply = self.endpoint.next(self.path)
        if reply.whole is not None and not request.get("stream"):
            reply = Scripted(reply.whole)
        body = reply.body if isinstance(reply.body, str) else json.dumps(reply.body)
        self.send_response(reply.status)
        self.send_header("Content-Type", reply.kind)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        if not reply.hangs:
            self.send_header("Content-Length", str(len(body.encode())))
        self.end_headers()
        self.wfile.write(body.encode())
        self.wfile.flush()
        if reply.hangs:
            self.endpoint.closing.wait(30)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    """With the usual 5, Linux resets some of many connections that are opened at once."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing of a connection that the client closed, as it may when it no longer needs the answer."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def run_in_thread(server: HTTPServer) -> Iterator[str]:
    """Run a server during the block, and yield its URL."""
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def serving() -> Iterator[Endpoint]:
    """Run an endpoint. At the end of the block it stops and releases hanging responses."""
    endpoint = Endpoint()
    server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"endpoint": endpoint}))
    with run_in_thread(server) as endpoint.url:
        try:
            yield endpoint
        finally:
            endpoint.closing.set()


def completion(text: str | None, finish: str = "stop", usage: dict[str, Any] | None = None) -> dict[str, Any]:
    reply: dict[str, Any] = {
        "model": "served",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish}],
    }
    return reply | ({"usage": usage} if usage else {})


USAGE = {"prompt_tokens": 50, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 20}}


def answer_with(text: str) -> Scripted:
    """Return a healthy response: a stream of words, or the whole reply, as the request wants it."""
    stream = sse(*re.findall(r"\s*\S+", text), usage=USAGE)
    return Scripted(stream, kind="text/event-stream", whole=completion(text, usage=USAGE))


def sse(*pieces: str, usage: dict[str, Any] | None = None, finish: str | None = "stop") -> str:
    events: list[dict[str, Any]] = [{"choices": [{"delta": {"content": piece}}], "model": "served"} for piece in pieces]
    events += [{"choices": [{"delta": {}, "finish_reason": finish}]}] if finish else []
    events += [{"choices": [], "usage": usage}] if usage else []
    return "".join(f"data: {json.dumps(event)}\n\n" for event in events) + ("data: [DONE]\n\n" if finish else "")
