"""The process of the server: connections that send no request end, and a stop lets running questions finish.

server = GracefulServer(make_config(app, "127.0.0.1", 8080, stop_seconds=60), app.state.questions)
await server.serve()
"""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
import time
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from epicrisis.server.libraries.asked_questions import Questions

HEADER_SECONDS = 10.0
"""The longest time for the headers of a request to arrive, from the connection or the last response on."""
_POLL_SECONDS = 0.05


class HeaderDeadline:
    """A part of an HTTP protocol of uvicorn: closes a connection whose request has not arrived in `HEADER_SECONDS`.

    uvicorn limits only a connection on which nothing arrives after a response. One that sends a header a minute would
    stay open (slowloris).
    """

    loop: asyncio.AbstractEventLoop
    transport: asyncio.Transport
    cycle: Any
    """The request and its response, of uvicorn. None before the first request."""
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Start the time of the first request."""
        super().connection_made(transport)  # type: ignore[misc]
        self._start_deadline()

    def on_response_complete(self) -> None:
        """Start the time of the next request."""
        super().on_response_complete()  # type: ignore[misc]
        self._start_deadline()

    def connection_lost(self, error: Exception | None) -> None:
        """Forget the deadline."""
        super().connection_lost(error)  # type: ignore[misc]
        self._cancel_deadline()

    def _start_deadline(self) -> None:
        self._cancel_deadline()
        if not self.transport.is_closing():
            self._deadline = self.loop.call_later(HEADER_SECONDS, self._close_without_request)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _close_without_request(self) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()


def make_config(app: FastAPI, host: str, port: int, stop_seconds: float, **more: Any) -> uvicorn.Config:
    """Return how uvicorn serves the application. `more`: further settings of uvicorn."""
    protocol = type("DeadlineProtocol", (HeaderDeadline, AutoHTTPProtocol), {})
    return uvicorn.Config(
        app,
        host=host,
        port=port,
        http=protocol,
        ws="none",
        access_log=False,
        log_level="warning",
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=int(stop_seconds),
        **more,
    )


class GracefulServer(uvicorn.Server):
    """A server that refuses new questions from the signal on, while it finishes the running ones.

    It listens until they have ended, so that clients and load balancers read a refusal and not a broken connection.
    """

    def __init__(self, config: uvicorn.Config, questions: Questions) -> None:
        super().__init__(config)
        self._questions = questions

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Open the sockets. What is loaded by now stays: its garbage collection would hold up all clients for 0.2 s."""
        await super().startup(sockets)
        gc.collect()
        gc.freeze()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Refuse new questions, and stop when the running ones have ended. A second Ctrl-C stops at once.

        uvicorn would send itself the signal again when it has stopped, before libraries and models are closed.
        """
        self._questions.refuse_new()
        if self.should_exit and sig == signal.SIGINT:
            self.force_exit = True
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Wait for running questions, then close the connections: in `timeout_graceful_shutdown` seconds at most."""
        limit = self.config.timeout_graceful_shutdown or 0
        end = time.monotonic() + limit
        while self._questions.running and not self.force_exit and time.monotonic() < end:
            await asyncio.sleep(_POLL_SECONDS)
        self.config.timeout_graceful_shutdown = max(1, round(end - time.monotonic()))
        await super().shutdown(sockets)
