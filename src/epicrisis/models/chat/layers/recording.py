"""Every prompt and every reply, in a file, for whoever asks for it. It holds their texts: only its owner can read it.

Knows nothing of what the texts mean.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from epicrisis.errors import EpicrisisError, StorageError
from epicrisis.models.chat.layers.layer import Layer
from epicrisis.plain import to_json
from epicrisis.privacy import open_private
from epicrisis.seams import ChatModel, ChatReply, ChatRequest, OnDelta
from epicrisis.types import Failure, Usage


class RecordingModel(Layer):
    """Wraps a ChatModel; every completion becomes a JSON line at the end of the file, however it ends.

    Keys: `time` (ISO 8601, UTC, when it began), `seconds`, `model`, `request` with all its fields, `reply` or `error`
    (`kind`, `message`), `usage`, `replayed`. Several models and processes may share the file; it is opened before the
    first call. Raises StorageError where it cannot be written.
    """

    def __init__(self, inner: ChatModel, path: Path) -> None:
        super().__init__(inner)
        self._path = path
        self._file: int | None = None

    async def complete(self, request: ChatRequest, on_delta: OnDelta | None = None) -> ChatReply:
        file = self._opened()
        at, started = datetime.now(UTC).isoformat(timespec="milliseconds"), time.monotonic()

        def record(usage: Usage, **outcome: Any) -> None:
            told = {"time": at, "seconds": round(time.monotonic() - started, 3), "model": self.name, "request": request}
            self._append(file, {**told, **outcome, "usage": usage, "replayed": usage.replayed_calls > 0})

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

    async def aclose(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            os.close(file)
        await self._inner.aclose()

    def _opened(self) -> int:
        if self._file is None:
            try:
                self._file = file = open_private(self._path, os.O_RDWR | os.O_APPEND)
                # A kill or a full disk leaves half a line; the next one must not go on in it.
                if os.fstat(file).st_size:
                    os.lseek(file, -1, os.SEEK_END)
                    if os.read(file, 1) != b"\n":
                        os.write(file, b"\n")
            except OSError as error:
                raise self._unwritable(error) from error
        return self._file

    def _append(self, file: int, record: dict[str, Any]) -> None:
        """In one piece, so that lines of several processes do not mix."""
        line = json.dumps(to_json(record), ensure_ascii=False).encode(errors="surrogatepass") + b"\n"
        try:
            while line:
                line = line[os.write(file, line) :]
        except OSError as error:
            raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> StorageError:
        return StorageError(
            f"{self._path}: calls cannot be recorded there ({error.strerror}): free disk space, name another file, or "
            "leave out --record; replies that came are in the cache, where it is on"
        )
