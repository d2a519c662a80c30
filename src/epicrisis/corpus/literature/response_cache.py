"""Responses of literature services on disk: one private file with the time of each response."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Self

from epicrisis.core.errors import StorageError
from epicrisis.system.local_only import open_private

CACHE_FILE = "literature.sqlite"
"""The file in the home folder. It shows which articles were fetched and what was searched."""
_SECONDS_PER_DAY = 86_400


class ResponseCache:
    """Keeps responses by key for some days. Older ones are fetched again, as articles are corrected and retracted."""

    def __init__(self, home: Path, max_days: float, now: Callable[[], float] = time.time) -> None:
        """Open the cache in the home folder, or create it. Raises StorageError."""
        self._path = home / CACHE_FILE
        self._now = now
        self._max_seconds = max_days * _SECONDS_PER_DAY
        try:
            os.close(open_private(self._path, os.O_RDWR))
            self._db = sqlite3.connect(self._path, isolation_level=None)
            self._db.execute("CREATE TABLE IF NOT EXISTS responses(key TEXT PRIMARY KEY, fetched REAL, body BLOB)")
            self._db.execute("DELETE FROM responses WHERE fetched < ?", (now() - self._max_seconds,))
        except (OSError, sqlite3.Error) as error:
            raise StorageError(
                f"{self._path} cannot be used ({error}): delete it if it is damaged; it holds copies of responses only"
            ) from error

    def get(self, key: str) -> bytes | None:
        """Return a response that is not too old, or None."""
        row = None
        with suppress(sqlite3.Error):
            row = self._db.execute("SELECT fetched, body FROM responses WHERE key = ?", (key,)).fetchone()
        if row is None or self._now() - row[0] >= self._max_seconds:
            return None
        return bytes(row[1])

    def put(self, key: str, body: bytes) -> None:
        """Store a response. A full disk or a busy file only costs the next fetch."""
        with suppress(sqlite3.Error):
            self._db.execute("INSERT OR REPLACE INTO responses VALUES (?, ?, ?)", (key, self._now(), body))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()
