"""Layers that write prompts and replies to a file (setting `record`) or to the log, readable by the owner only."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from epicrisis.answers import Failure, Usage
from epicrisis.errors import ChatError, EpicrisisError, StorageError
from epicrisis.logs import log_call
from epicrisis.models.chat.layers.layer import Layer
from epicrisis.printable import printable_json
from epicrisis.privacy import open_private
from epicrisis.protocols import ChatModel, ChatReply, ChatRequest, DeltaCallback
from epicrisis.serialization import to_json


class RecordingModel(Layer):
    """Appends a JSON line to the file for every completion, failures included.

    Keys: `time` (of the start, ISO 8601, UTC), `seconds`, `model`, `request` with all its fields, `reply` or `error`
    (`kind`, `message`), `usage`, `replayed`. Several models and processes may share the file. Raises StorageError
    before the first call if the file cannot be written.
    """

    def __init__(self, inner: ChatModel, path: Path) -> None:
        super().__init__(inner)
        self._path = path
        self._prepared = False

    async def complete(self, request: ChatRequest, on_delta: DeltaCallback | None = None) -> ChatReply:
        self._prepare()
        moment, start = datetime.now(UTC).isoformat(timespec="milliseconds"), time.monotonic()

        def record(usage: Usage, **outcome: Any) -> None:
            seconds = round(time.monotonic() - start, 3)
            call = {"time": moment, "seconds": seconds, "model": self.name, "request": request}
            self._append({**call, **outcome, "usage": usage, "replayed": usage.replayed_calls > 0})

        try:
            reply = await self._inner.complete(request, on_delta)
        except EpicrisisError as error:
            record(error.usage, error=error.as_failure())
            raise
        except asyncio.CancelledError:
            with suppress(StorageError):
                record(Usage(cost=None), error=Failure("Cancelled", "the call was cancelled"))
            raise
        record(reply.usage, reply=reply)
        return reply

    def _prepare(self) -> None:
        """Complete the last line if a kill or a full disk broke it off."""
        if self._prepared:
            return
        with self._open() as file:
            if os.fstat(file).st_size:
                os.lseek(file, -1, os.SEEK_END)
                if os.read(file, 1) != b"\n":
                    os.write(file, b"\n")
        self._prepared = True

    def _append(self, record: dict[str, Any]) -> None:
        """Write the line in one piece, so that the lines of several processes do not mix."""
        line = printable_json(json.dumps(to_json(record), ensure_ascii=False)).encode() + b"\n"
        with self._open() as file:
            while line:
                line = line[os.write(file, line) :]

    @contextmanager
    def _open(self) -> Iterator[int]:
        """Open the file for one write: calls may end after the model is closed."""
        try:
            file = open_private(self._path, os.O_RDWR | os.O_APPEND)
            try:
                yield file
            finally:
                os.close(file)
        except OSError as error:
            raise StorageError(
                f"{self._path}: calls cannot be recorded there ({error.strerror}): free disk space, choose another "
                "file, or leave out the setting record; the cache, if it is on, has the replies so far"
            ) from error


class LoggedModel(Layer):
    """Writes each prompt and its reply or error to the log. See `logs.log_call`."""

    async def complete(self, request: ChatRequest, on_delta: DeltaCallback | None = None) -> ChatReply:
        try:
            reply = await self._inner.complete(request, on_delta)
        except ChatError as error:
            log_call(request, error)
            raise
        log_call(request, reply)
        return reply
