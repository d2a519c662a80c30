"""The cache of replies: one SQLite file, shared by all processes that use it, and the layer that answers from it.

A row is a reply under a 32-byte hash of all that decides it: the model's fingerprint and every field of the request.
`docs/design/chat.md` gives the reasons for the file's settings.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import json
import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, fields, is_dataclass, replace
from datetime import UTC, datetime
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from epicrisis.core.answers import Usage
from epicrisis.core.errors import InputError, NotCached, StorageError
from epicrisis.core.protocols import Capabilities, ChatModel, ChatReply, ChatRequest, DeltaCallback, Message
from epicrisis.core.serialization import PLAIN_TYPES
from epicrisis.models.chat.layers import Layer
from epicrisis.system.local_only import open_private

T = TypeVar("T")
KEY_VERSION = 1
"""The version of the keys' meaning. Another version ignores all stored replies."""
APPLICATION_ID = 0x45504943
FORMAT = 1
BUSY_SECONDS = 30.0
_TABLES = (
    "CREATE TABLE replies(key BLOB PRIMARY KEY, reply TEXT NOT NULL, created TEXT NOT NULL)",
    "CREATE TABLE told(key BLOB PRIMARY KEY, value TEXT NOT NULL)",
)
_INSERT_REPLY = "INSERT OR IGNORE INTO replies VALUES (?, ?, ?)"
_INSERT_FACT = "INSERT OR REPLACE INTO told VALUES (?, ?)"


@dataclass(frozen=True, slots=True)
class _Write:
    """A row that waits to be written, and the future of who waits for it."""

    statement: str
    row: tuple[bytes | str, ...]
    future: asyncio.Future[None] | None


@dataclass(slots=True)
class _Flight:
    """A call in progress, and the number of callers that make or await it."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    reply: ChatReply | None = None
    callers: int = 0


class CachedModel(Layer):
    """Answers completions, token counts and capabilities from the cache if it has them. Failures are not cached.

    A cached reply costs nothing: its usage says `replayed_calls=1` and its former cost as `replayed_tokens`.
    Simultaneous equal requests are sent once; the later callers receive the first one's reply, or send the request
    again if it failed or was cancelled. A reply that cannot be stored is returned with a note. If the cache only
    replays, a missing reply raises NotCached.
    """

    def __init__(self, inner: ChatModel, cache: ReplyCache) -> None:
        super().__init__(inner)
        self._cache = cache
        self._fingerprint: str | None = None
        self._capabilities: Capabilities | None = None
        """Those in the cache, as far as this process knows: every question asks for them."""
        self._flights: dict[bytes, _Flight] = {}

    async def complete(self, request: ChatRequest, on_delta: DeltaCallback | None = None) -> ChatReply:
        key = compute_reply_key(await self.fingerprint(), request)
        reply = self._cache.get(key)
        if reply is None and not self._cache.replay:
            async with self._enter_flight(key) as flight:
                if flight.reply is None:
                    flight.reply = reply = await self._inner.complete(request, on_delta)
                    try:
                        await self._cache.put(key, reply)
                    except (StorageError, InputError) as error:
                        return replace(reply, notes=(*reply.notes, f"this reply was not cached: {error}"))
                    return reply
                reply = flight.reply
        if reply is None:
            raise self._make_not_cached_error("reply to this request")
        if on_delta is not None and reply.text:
            on_delta(reply.text)
        tokens = reply.usage.prompt_tokens + reply.usage.completion_tokens
        return replace(reply, usage=Usage(replayed_calls=1, replayed_tokens=tokens))

    async def count_tokens(self, messages: Sequence[Message]) -> int:
        key = _hash_parts("tokens", await self.fingerprint(), tuple(messages))
        if (count := self._cache.get_fact(key, int)) is not None:
            return count
        if self._cache.replay:
            raise self._make_not_cached_error("count of these tokens")
        count = await self._inner.count_tokens(messages)
        self._cache.put_fact(key, count)
        return count

    async def capabilities(self) -> Capabilities:
        """Return the model's current capabilities; when replaying, the last ones stored."""
        current = None if self._cache.replay else await self._inner.capabilities()
        if current is not None and current == self._capabilities:
            return current
        key = _hash_parts("capabilities", await self.fingerprint())
        stored = self._cache.get_fact(key, Capabilities)
        if current is None:
            if stored is None:
                raise self._make_not_cached_error("capabilities")
            return stored
        if current != stored:
            self._cache.put_fact(key, current)
        self._capabilities = current
        return current

    async def fingerprint(self) -> str:
        """Return the fingerprint, asked for once: a cached reply must not wait for a place at the endpoint."""
        if self._fingerprint is None:
            self._fingerprint = await self._inner.fingerprint()
        return self._fingerprint

    @asynccontextmanager
    async def _enter_flight(self, key: bytes) -> AsyncIterator[_Flight]:
        """Admit one caller at a time for each key, in order."""
        flight = self._flights.setdefault(key, _Flight())
        flight.callers += 1
        try:
            async with flight.lock:
                yield flight
        finally:
            flight.callers -= 1
            if not flight.callers:
                del self._flights[key]

    def _make_not_cached_error(self, subject: str) -> NotCached:
        return NotCached(f"{self._cache.path} has no {subject} by {self.name}: run it once with cache.mode = on")


def compute_reply_key(fingerprint: str, request: ChatRequest) -> bytes:
    """Compute the 32-byte key of a request: equal for requests with the same reply, else different.

    Mappings are equal in any order, except for the schema: models write the fields of a reply in its order.
    """
    values = _get_fields(request)
    if request.schema is not None:
        values["schema"] = _canonicalise(json.dumps(request.schema, default=dict))
    return _hash_parts("reply", fingerprint, values)


@lru_cache(maxsize=64)
def _canonicalise(text: str) -> str:
    """Return JSON text with whole floats as integers. The calls of a run share few schemas."""
    return json.dumps(_to_key_json(json.loads(text)))


def _hash_parts(*parts: Any) -> bytes:
    text = json.dumps([KEY_VERSION, *_to_key_json(parts)], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).digest()


def _to_key_json(value: Any) -> Any:
    """Return the value as JSON data, whole floats as integers."""
    if type(value) in PLAIN_TYPES:
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if is_dataclass(value):
        value = _get_fields(value)
    if isinstance(value, Mapping):
        return {str(key): _to_key_json(item) for key, item in value.items()}
    return list(map(_to_key_json, value)) if isinstance(value, (list, tuple)) else value


def _get_fields(value: Any) -> dict[str, Any]:
    return {item.name: getattr(value, item.name) for item in fields(value)}


@dataclass(frozen=True, slots=True)
class CacheStats:
    """The number of replies, and the bytes of the file on disk."""

    replies: int
    bytes: int


class ReplyCache:
    """The cache file at `path`. It is opened at once if it exists, else created at the first use.

    With `replay` nothing is written, and a missing file counts as empty. Writes run in a thread of their own, several
    in one transaction. Raises InputError if the file is damaged or no cache, StorageError if it cannot be written; both
    before a call is paid for.
    """

    def __init__(self, path: Path, *, replay: bool = False) -> None:
        self.path = path
        self.replay = replay
        self._lock = threading.Lock()
        self._reader: sqlite3.Connection | None = None
        self._writer: sqlite3.Connection | None = None
        self._thread = ThreadPoolExecutor(1, "replies")
        self._queue: deque[_Write] = deque()
        self._is_commit_due = False
        if path.exists():
            self._open()
        elif not replay:
            folder = next(parent for parent in path.absolute().parents if parent.exists())
            if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
                raise _make_write_error(path, f"{folder} is not a writable folder")

    def get(self, key: bytes) -> ChatReply | None:
        """Return the reply stored under this key, if any."""
        reply: ChatReply | None = self._read("SELECT reply FROM replies WHERE key = ?", key, ChatReply)
        return reply

    async def put(self, key: bytes, reply: ChatReply) -> None:
        """Store the reply unless the key has one. It is on disk on return, and even if the caller is cancelled."""
        row = (key, _to_json(reply), datetime.now(UTC).isoformat(timespec="seconds"))
        future = asyncio.get_running_loop().create_future()
        self._enqueue(_Write(_INSERT_REPLY, row, future))
        await future

    def get_fact(self, key: bytes, shape: type[T]) -> T | None:
        """Return a stored property of a model or prompt, such as a token count, if any."""
        fact: T | None = self._read("SELECT value FROM told WHERE key = ?", key, shape)
        return fact

    def put_fact(self, key: bytes, value: Any) -> None:
        """Store a property of a model or prompt in the background. A failure is ignored: asking again is free."""
        self._enqueue(_Write(_INSERT_FACT, (key, _to_json(value)), None))

    def stats(self) -> CacheStats:
        with _map_errors(self.path):
            sizes = [_get_size(self.path), _get_size(Path(f"{self.path}-wal"))]
            if not sizes[0]:
                return CacheStats(0, 0)
            count = self._open().execute("SELECT count(*) FROM replies").fetchone()[0]
        return CacheStats(count, sum(sizes))

    def clear(self) -> int:
        """Delete all content, from the disk too. Return the number of deleted replies."""
        if not _get_size(self.path):
            return 0
        self._open()

        def delete_all() -> int:
            with self._transaction() as db:
                count = int(db.execute("SELECT count(*) FROM replies").fetchone()[0])
                db.execute("DELETE FROM replies")
                db.execute("DELETE FROM told")
            with _map_errors(self.path):
                db.execute("VACUUM")
                db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            return count

        return self._thread.submit(delete_all).result()

    def close(self) -> None:
        """Complete all writes and close the file. A further use opens it again."""
        with self._lock, _map_errors(self.path):
            self._thread.shutdown()
            self._thread = ThreadPoolExecutor(1, "replies")
            self._disconnect()

    def _read(self, query: str, key: bytes, shape: Any) -> Any:
        if self.replay and self._reader is None and not self.path.exists():
            return None
        with _map_errors(self.path):
            row = (self._reader or self._open()).execute(query, (key,)).fetchone()
        try:
            return None if row is None else _get_adapter(shape).validate_json(row[0])
        except ValidationError:
            raise _make_format_error(self.path, "a row cannot be read") from None

    def _open(self) -> sqlite3.Connection:
        with self._lock, _map_errors(self.path):
            if self._reader is not None:
                return self._reader
            try:
                if self.replay:
                    self._reader = _connect(self.path, "mode=ro")
                    try:
                        self._reader.execute("SELECT 1 FROM sqlite_master").fetchone()
                    except sqlite3.OperationalError:
                        # The folder may be one in which SQLite cannot create its additional files.
                        if _get_size(Path(f"{self.path}-wal")):
                            raise
                        self._reader.close()
                        self._reader = _connect(self.path, "immutable=1")
                    _check_format(self._reader, self.path)
                else:
                    os.close(open_private(self.path, os.O_RDWR))
                    self._writer = _connect(self.path)
                    # A reply that was paid for must survive a power cut. Waiting writes share one transaction.
                    self._writer.execute("PRAGMA synchronous=FULL")
                    _prepare_tables(self._writer, self.path)
                    self._reader = _connect(self.path)
                return self._reader
            except BaseException:  # an open file must not remain, also after Ctrl-C
                self._disconnect()
                raise

    def _disconnect(self) -> None:
        for db in (self._writer, self._reader):
            if db is not None:
                db.close()
        self._reader = self._writer = None

    def _enqueue(self, write: _Write) -> None:
        self._open()
        self._queue.append(write)
        if not self._is_commit_due:
            self._is_commit_due = True
            try:
                self._thread.submit(self._commit)
            except RuntimeError:
                # Closed meanwhile. The next write must raise as well instead of waiting.
                self._is_commit_due = False
                raise

    def _commit(self) -> None:
        """Execute all waiting writes in one transaction. Runs in the thread."""
        writes: list[_Write] = []
        # Before the queue is read, so that a write that comes later causes another commit.
        self._is_commit_due = False
        while self._queue:
            writes.append(self._queue.popleft())
        if not writes:
            return
        failure: BaseException | None = None
        try:
            with self._transaction() as db:
                for write in writes:
                    db.execute(write.statement, write.row)
        except BaseException as error:  # noqa: BLE001 - those who wait for the writes raise it
            failure = error
        # One call for all that wait in a loop: each call wakes it by a write to a socket.
        waiting: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
        for write in writes:
            if write.future is not None:
                waiting.setdefault(write.future.get_loop(), []).append(write.future)
        for loop, futures in waiting.items():
            # A loop that is closed has nobody who waits.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(_settle, futures, failure)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        if self._writer is None:
            raise StorageError(f"{self.path} is open for replay only: set cache.mode to on")
        with _map_errors(self.path), self._writer:
            self._writer.execute("BEGIN IMMEDIATE")
            yield self._writer


def _settle(futures: Sequence[asyncio.Future[None]], failure: BaseException | None) -> None:
    """End the waiting for writes. Those whose caller was cancelled are done."""
    for future in futures:
        if future.done():
            continue
        if failure is None:
            future.set_result(None)
        else:
            future.set_exception(failure)


def _connect(path: Path, options: str = "mode=rw") -> sqlite3.Connection:
    address = f"{path.absolute().as_uri()}?{options}"
    return sqlite3.connect(address, BUSY_SECONDS, isolation_level=None, check_same_thread=False, uri=True)


def _prepare_tables(db: sqlite3.Connection, path: Path) -> None:
    """Create the tables in an empty file, in one transaction. A process killed meanwhile leaves an empty file."""
    is_empty = "SELECT count(*) = 0 FROM sqlite_master"
    if db.execute(is_empty).fetchone()[0]:
        db.execute("BEGIN IMMEDIATE")
        if db.execute(is_empty).fetchone()[0]:
            for statement in _TABLES:
                db.execute(statement)
            db.execute(f"PRAGMA application_id={APPLICATION_ID}")
            db.execute(f"PRAGMA user_version={FORMAT}")
        db.execute("COMMIT")
    _check_format(db, path)
    if db.execute("PRAGMA journal_mode").fetchone()[0] == "wal":
        return
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            db.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            # SQLite does not wait for another process here.
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _check_format(db: sqlite3.Connection, path: Path) -> None:
    if db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        raise _make_format_error(path, "another program created it")
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if version != FORMAT:
        raise _make_format_error(path, f"its format is {version}, this version reads {FORMAT}")


@cache
def _get_adapter(shape: Any) -> TypeAdapter[Any]:
    return TypeAdapter(shape)


def _to_json(value: Any) -> str:
    shape: Any = type(value)
    return _get_adapter(shape).dump_json(value).decode()


def _get_size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


_DAMAGES = {sqlite3.SQLITE_NOTADB: "no SQLite file", sqlite3.SQLITE_CORRUPT: "damaged pages"}


@contextmanager
def _map_errors(path: Path) -> Iterator[None]:
    """Raise the errors of SQLite and of the operating system as the package's own exceptions."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_ERROR):
            # SQLite's own message may quote the file's content, and with it clinical notes.
            raise _make_format_error(path, _DAMAGES.get(code, "it lacks the tables of a cache")) from error
        if code == sqlite3.SQLITE_FULL or (isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)):
            message = f"{path}: no space left for replies: free disk space, or set cache.mode to off"
            raise StorageError(message) from error
        reason = error.strerror if isinstance(error, OSError) else getattr(error, "sqlite_errorname", "")
        raise _make_write_error(path, reason or type(error).__name__) from error


def _make_write_error(path: Path, reason: str) -> StorageError:
    return StorageError(
        f"{path}: replies cannot be cached there ({reason}): set cache.path to a writable file, or cache.mode to off"
    )


def _make_format_error(path: Path, reason: str) -> InputError:
    return InputError(
        f"{path} is no cache of replies, or damaged ({reason}): delete it (it only saves calls), or choose another "
        "file (cache.path)"
    )
