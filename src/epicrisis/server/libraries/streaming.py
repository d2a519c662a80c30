"""Send the events of a question as server-sent events, and stop the question when its client is gone.

The question and the client have separate speeds: a reader that is slow holds its own buffer and nothing else, and one
that reads nothing for `SEND_SECONDS` is disconnected.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Coroutine, MutableMapping
from contextlib import aclosing, suppress
from typing import Any, TypeVar

from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from epicrisis.core.answers import Answered, Event
from epicrisis.core.errors import EpicrisisError
from epicrisis.core.printable import printable_json
from epicrisis.core.serialization import to_json
from epicrisis.core.types import ReferenceFormat
from epicrisis.report.citation_styles import write_references
from epicrisis.server.base.http_errors import describe_error

MEDIA_TYPE = "text/event-stream"
KEEPALIVE_SECONDS = 15.0
SEND_SECONDS = 30.0
"""The longest wait for a client that does not read."""
T = TypeVar("T")


class ClientGone(Exception):
    """The client closed the connection before the answer was complete."""


def encode_event(event: Event, references: ReferenceFormat | None = None) -> bytes:
    """Return an event in the wire format. `answered` has no trace, as its events were sent before.

    With a format, `answered` also has the references of the answer.
    """
    data = to_json(event)
    name = data.pop("event")
    if isinstance(event, Answered):
        data["answer"].pop("trace")
        if references is not None:
            data["answer"]["references"] = write_references(event.answer, references)
    return format_event(name, data)


def format_event(name: str, data: Any) -> bytes:
    """Return a named event with JSON data in the wire format."""
    return format_sse_event(event=name, data_str=printable_json(json.dumps(data, ensure_ascii=False)))


class EventStream(Response):
    """A response that sends the pieces of `pieces` as they come. A client that disconnects ends it at once.

    `pieces` is closed in every case. This cancels its waiting. `on_end` is called at the end, also if nothing was sent.
    """

    media_type = MEDIA_TYPE

    def __init__(
        self,
        pieces: AsyncGenerator[bytes, None],
        headers: dict[str, str] | None = None,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no", **(headers or {})})
        del self.headers["content-length"]
        self._pieces = pieces
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream, or stop when the client is gone."""

        async def stream() -> None:
            async with aclosing(self._pieces):
                await _send_in_time(
                    send, {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
                )
                async for piece in self._pieces:
                    await _send_in_time(send, {"type": "http.response.body", "body": piece, "more_body": True})
                await _send_in_time(send, {"type": "http.response.body", "body": b"", "more_body": False})

        try:
            with suppress(ClientGone):
                await run_while_connected(stream(), receive)
        finally:
            self._on_end()


async def stream_events(
    events: AsyncGenerator[Event, None], hide: Callable[[str], str], references: ReferenceFormat | None = None
) -> AsyncGenerator[bytes, None]:
    """Yield the events in the wire format. An error becomes the last event, `error`, with a problem body.

    `references` is the format of the references of the answer, or None without them.
    """
    try:
        async with aclosing(events):
            async for event in events:
                if isinstance(event, Answered) and references is not None:
                    # A citation processor takes a while.
                    yield await asyncio.to_thread(encode_event, event, references)
                else:
                    yield encode_event(event)
    except EpicrisisError as error:
        yield format_event("error", describe_error(error, hide).to_json())


async def keep_alive(pieces: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Yield the pieces, and a comment where none comes for KEEPALIVE_SECONDS. Closing it closes `pieces`.

    The pieces are made ahead of a slow reader. Those that wait for it already are joined.
    """
    queue: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def work() -> None:
        try:
            async with aclosing(pieces):
                async for piece in pieces:
                    queue.put_nowait(piece)
        finally:
            queue.put_nowait(None)

    task = asyncio.create_task(work())
    try:
        while True:
            try:
                async with asyncio.timeout(KEEPALIVE_SECONDS):
                    piece = await queue.get()
            except TimeoutError:
                yield KEEPALIVE_COMMENT
                continue
            waiting = [piece]
            while not queue.empty():
                waiting.append(queue.get_nowait())
            is_last = waiting[-1] is None
            if joined := b"".join(filter(None, waiting)):
                yield joined
            if is_last:
                break
        await task
    finally:
        task.cancel()
        await asyncio.wait([task])


async def run_while_connected(work: Coroutine[Any, Any, T], receive: Receive) -> T:
    """Return the result of `work`. Raises ClientGone, and cancels the work, if the client disconnects before.

    The body of the request was read already.
    """
    task = asyncio.create_task(work)
    gone = asyncio.create_task(_wait_for_disconnect(receive))
    try:
        await asyncio.wait([task, gone], return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientGone
    finally:
        task.cancel()
        gone.cancel()
        await asyncio.wait([task, gone])


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _send_in_time(send: Send, message: MutableMapping[str, Any]) -> None:
    try:
        async with asyncio.timeout(SEND_SECONDS):
            await send(message)
    except (TimeoutError, OSError):
        raise ClientGone from None
