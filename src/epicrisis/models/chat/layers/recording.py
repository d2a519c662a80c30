"""Every prompt and every reply, in a file, for whoever asks for it. It holds their texts: only its owner can read it.

Knows nothing of what the texts mean.
"""

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
from epicrisis.errors import EpicrisisError, StorageError
from epicrisis.models.chat.layers.layer import Layer
from epicrisis.printable import printable_json
from epicrisis.privacy import open_private
from epicrisis.protocols import ChatModel, ChatReply, ChatRequest, DeltaCallback
from epicrisis.serialization import to_json


class RecordingModel(Layer):
    """Wraps a ChatModel; every completion becomes a JSON line at the end of the file, however it ends.

    Keys: `time` (ISO 8601, UTC, when it began), `seconds`, `model`, `request` with all its fields, `reply` or `error`
    (`kind`, `message`), `usage`, `replayed`. Several models and processes may share the file. Raises StorageError where
    it cannot be written, which is known before the first call.
    """

    def __init__(self, inner: ChatModel, path: Path) -> None:
        super().__init__(inner)
        self._path = path
        self._prepared = False

    async def complete(self, request: ChatRequest, on_delta: DeltaCallback | None = None) -> ChatReply:
        self._prepare()
        at, started = datetime.now(UTC).isoformat(timespec="milliseconds"), time.monotonic()

        def record(usage: Usage, **outcome: Any) -> None:
            told = {"time": at, "seconds": round(time.monotonic() - started, 3), "model": self.name, "request": request}
            self._append({**told, **outcome, "usage": usage, "replayed": usage.replayed_calls > 0})

        try:
            reply = await self._inner.complete(request, on_delta)
        except EpicrisisError as error:
            record(error.usage, error=error.as_failure())
            raise
        except asyncio.CancelledError:
            with suppress(StorageError):
                record(Usage(cost=None), error=Failure("Cancelled", "nobody waited for the reply any more"))
            raise
        record(reply.usage, reply=reply)
        return reply

    def _prepare(self) -> None:
        """A kill or a full disk leaves half a line: the next one must not go on in it."""
        if self._prepared:
            return
        with self._opened() as file:
            if os.fstat(file).st_size:
                os.lseek(file, -1, os.SEEK_END)
                if os.read(file, 1) != b"\n":
                    os.write(file, b"\n")
        self._prepared = True

    def _append(self, record: dict[str, Any]) -> None:
        """In one piece, so that lines of several processes do not mix."""
        line = printable_json(json.dumps(to_json(record), ensure_ascii=False)).encode() + b"\n"
        with self._opened() as file:
            while line:
                line = line[os.write(file, line) :]

    @contextmanager
    def _opened(self) -> Iterator[int]:
        """For this moment only: calls may end when the model is closed already."""
        try:
            file = open_private(self._path, os.O_RDWR | os.O_APPEND)
            try:
                yield file
            finally:
                os.close(file)
        except OSError as error:
            raise StorageError(
                f"{self._path}: calls cannot be recorded there ({error.strerror}): free disk space, name another file, "
                "or leave out --record; replies that came are in the cache, where it is on"
            ) from error
