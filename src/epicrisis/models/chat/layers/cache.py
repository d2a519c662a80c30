"""Replies of chat models on disk: one SQLite file, shared by all processes that use it.

A row is a reply under 32 bytes that stand for all that decides it. Knows nothing of what those are made of. Why it lies
on disk as it does: docs/design/chat.md.
"""

from __future__ import annotations

import asyncio
import errno
import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from pydantic import TypeAdapter, ValidationError

from epicrisis.errors import EpicrisisError, InputError, StorageError
from epicrisis.privacy import open_private
from epicrisis.protocols import ChatReply

T = TypeVar("T")

APPLICATION_ID = 0x45504943
FORMAT = 1
BUSY_SECONDS = 30.0
"""How long one process waits for another's write."""

_TABLES = (
    "CREATE TABLE replies(key BLOB PRIMARY KEY, reply TEXT NOT NULL, created TEXT NOT NULL)",
    "CREATE TABLE told(key BLOB PRIMARY KEY, value TEXT NOT NULL)",
)
_KEEP_REPLY = "INSERT OR IGNORE INTO replies VALUES (?, ?, ?)"
_KEEP_TOLD = "INSERT OR REPLACE INTO told VALUES (?, ?)"

_Write: TypeAlias = tuple[str, tuple[bytes | str, ...], "Future[None]"]


@dataclass(frozen=True, slots=True)
class CacheStats:
    """`bytes` on disk."""

    replies: int
    bytes: int


class ReplyCache:
    """The file at `path`, opened here where it is there, else made at the first use. With `replay` nothing is made or
    written, and a file that is not there is empty.

    Reads run where they are asked for (tens of microseconds), writes in one thread, together where several wait.
    Everything raises InputError where the file is no cache or damaged, StorageError where it cannot be written; both
    are known before a call is paid for.
    """

    def __init__(self, path: Path, *, replay: bool = False) -> None:
        self.path = path
        self.replay = replay
        self._opening = threading.Lock()
        self._reader: sqlite3.Connection | None = None
        self._writer: sqlite3.Connection | None = None
        self._thread = ThreadPoolExecutor(1, "replies")
        self._waiting: deque[_Write] = deque()
        if path.exists():
            self._open()
        elif not replay:
            _check_room_for(path)

    def get(self, key: bytes) -> ChatReply | None:
        """The reply under this key."""
        reply: ChatReply | None = self._read("SELECT reply FROM replies WHERE key = ?", key, ChatReply)
        return reply

    async def put(self, key: bytes, reply: ChatReply) -> None:
        """Durable when it returns, also where it is cancelled meanwhile. The first reply under a key stays."""
        row = (key, _json(reply), datetime.now(UTC).isoformat(timespec="seconds"))
        await asyncio.shield(asyncio.wrap_future(self._write(_KEEP_REPLY, row)))

    def told(self, key: bytes, shape: type[T]) -> T | None:
        """What a model told of itself or of a prompt."""
        told: T | None = self._read("SELECT value FROM told WHERE key = ?", key, shape)
        return told

    def keep_told(self, key: bytes, value: Any) -> None:
        """Kept some time soon, or not: it costs nothing to be told once more."""
        self._write(_KEEP_TOLD, (key, _json(value)))

    def stats(self) -> CacheStats:
        with _ours(self.path):
            sizes = [_size(self.path), _size(Path(f"{self.path}-wal"))]
            if not sizes[0]:
                return CacheStats(0, 0)
            count = self._open().execute("SELECT count(*) FROM replies").fetchone()[0]
        return CacheStats(count, sum(sizes))

    def clear(self) -> int:
        """Takes everything out, off the disk too; the number of replies there were."""
        if not _size(self.path):
            return 0
        self._open()
        return self._thread.submit(self._clear).result()

    def close(self) -> None:
        """Writes what waits. Idempotent; used once more it opens again."""
        with self._opening, _ours(self.path):
            self._thread.shutdown()
            self._thread = ThreadPoolExecutor(1, "replies")
            self._disconnect()

    # -- the file ---------------------------------------------------------------------------------------------------

    def _read(self, query: str, key: bytes, shape: Any) -> Any:
        if self.replay and self._reader is None and not self.path.exists():
            return None
        with _ours(self.path):
            row = (self._reader or self._open()).execute(query, (key,)).fetchone()
        try:
            return None if row is None else _adapter(shape).validate_json(row[0])
        except ValidationError:
            raise _no_cache(self.path, "a row cannot be read") from None

    def _open(self) -> sqlite3.Connection:
        with self._opening, _ours(self.path):
            if self._reader is not None:
                return self._reader
            try:
                if self.replay:
                    self._reader = _connect_read_only(self.path)
                    _check(self._reader, self.path)
                else:
                    os.close(open_private(self.path, os.O_RDWR))
                    self._writer = _connect(self.path)
                    # A reply that was paid for survives a power cut too; those that wait together are written together.
                    self._writer.execute("PRAGMA synchronous=FULL")
                    _settle(self._writer, self.path)
                    self._reader = _connect(self.path)
                return self._reader
            except BaseException:
                self._disconnect()
                raise

    def _disconnect(self) -> None:
        for db in (self._writer, self._reader):
            if db is not None:
                db.close()
        self._reader = self._writer = None

    def _write(self, statement: str, row: tuple[bytes | str, ...]) -> Future[None]:
        self._open()
        done: Future[None] = Future()
        self._waiting.append((statement, row, done))
        self._thread.submit(self._commit)
        return done

    def _commit(self) -> None:
        """Everything that waits, in one transaction. In the thread."""
        writes: list[_Write] = []
        while self._waiting:
            writes.append(self._waiting.popleft())
        try:
            if writes:
                with self._transaction() as db:
                    for statement, row, _ in writes:
                        db.execute(statement, row)
        except BaseException as error:
            for _, _, done in writes:
                done.set_exception(error)
            raise
        for _, _, done in writes:
            done.set_result(None)

    def _clear(self) -> int:
        with self._transaction() as db:
            count = int(db.execute("SELECT count(*) FROM replies").fetchone()[0])
            db.execute("DELETE FROM replies")
            db.execute("DELETE FROM told")
        with _ours(self.path):
            db.execute("VACUUM")
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return count

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        if self._writer is None:
            raise StorageError(f"{self.path} is open for replaying alone: give --cache on")
        with _ours(self.path):
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                yield self._writer
                self._writer.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    self._writer.execute("ROLLBACK")
                raise


def _check_room_for(path: Path) -> None:
    folder = next(each for each in path.absolute().parents if each.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise _unwritable(path, f"nothing can be made in {folder}")


def _connect(path: Path, options: str = "mode=rw") -> sqlite3.Connection:
    address = f"{path.absolute().as_uri()}?{options}"
    return sqlite3.connect(address, BUSY_SECONDS, isolation_level=None, check_same_thread=False, uri=True)


def _connect_read_only(path: Path) -> sqlite3.Connection:
    """Also in a folder where SQLite cannot make the files it keeps beside its own."""
    db = _connect(path, "mode=ro")
    try:
        db.execute("SELECT 1 FROM sqlite_master").fetchone()
    except sqlite3.OperationalError:
        if _size(Path(f"{path}-wal")):
            raise
        db.close()
        return _connect(path, "immutable=1")
    return db


def _settle(db: sqlite3.Connection, path: Path) -> None:
    """Makes the tables in an empty file. Whoever is killed within leaves an empty file."""
    empty = "SELECT count(*) = 0 FROM sqlite_master"
    if db.execute(empty).fetchone()[0]:
        db.execute("BEGIN IMMEDIATE")
        if db.execute(empty).fetchone()[0]:
            for statement in _TABLES:
                db.execute(statement)
            db.execute(f"PRAGMA application_id={APPLICATION_ID}")
            db.execute(f"PRAGMA user_version={FORMAT}")
        db.execute("COMMIT")
    _check(db, path)
    if db.execute("PRAGMA journal_mode").fetchone()[0] == "wal":
        return
    until = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            db.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            # SQLite does not wait for another process here.
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            time.sleep(0.01)


def _check(db: sqlite3.Connection, path: Path) -> None:
    if db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        raise _no_cache(path, "it is something else")
    made_by = db.execute("PRAGMA user_version").fetchone()[0]
    if made_by != FORMAT:
        raise _no_cache(path, f"its format is {made_by}, this version reads {FORMAT}")


@cache
def _adapter(shape: Any) -> TypeAdapter[Any]:
    return TypeAdapter(shape)


def _json(value: Any) -> str:
    shape: Any = type(value)
    return _adapter(shape).dump_json(value).decode()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


# -- errors ---------------------------------------------------------------------------------------------------------


_KINDS = {sqlite3.SQLITE_NOTADB: "no SQLite file", sqlite3.SQLITE_CORRUPT: "its pages are garbled"}


@contextmanager
def _ours(path: Path) -> Iterator[None]:
    """SQLite's errors and the system's as errors of the tree."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise _as_ours(error, path) from error


def _as_ours(error: sqlite3.Error | OSError, path: Path) -> EpicrisisError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_ERROR):
        # SQLite's own words may quote what stands in the file, which quotes notes.
        return _no_cache(path, _KINDS.get(code, "its tables are not those of a cache"))
    if code == sqlite3.SQLITE_FULL or (isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)):
        return StorageError(f"{path}: no room left for replies: free disk space, or give --cache off")
    reason = error.strerror if isinstance(error, OSError) else getattr(error, "sqlite_errorname", "")
    return _unwritable(path, reason or type(error).__name__)


def _unwritable(path: Path, reason: str) -> StorageError:
    return StorageError(
        f"{path}: replies cannot be kept there ({reason}): name a file that can be written (cache.path), or give "
        "--cache off"
    )


def _no_cache(path: Path, reason: str) -> InputError:
    return InputError(
        f"{path} is no cache of replies, or damaged ({reason}): delete it (it only saves calls), or name another file "
        "(cache.path)"
    )
