"""The database with the state of a server: transactions, and one error for all its faults.

database = open_state_database(folder)
with database.transact() as connection:
    connection.execute(...)
"""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from epicrisis.core.errors import EpicrisisError, LibraryError, SettingsError
from epicrisis.library.postgresql.connection_check import read_process
from epicrisis.library.postgresql.database import Database, open_database
from epicrisis.library.postgresql.database_errors import translate_database_errors
from epicrisis.server.base.http_errors import StateUnavailable, StateUncertain
from epicrisis.server.state.shared_state import shared_schema as schemas
from epicrisis.system.remote_libraries import LibraryAddress

if TYPE_CHECKING:
    from psycopg import Connection

P = ParamSpec("P")
T = TypeVar("T")
RETRY_SECONDS = 5
_MIN_SERVER = 17
_SILENT_SECONDS = 1.0
"""After a failed connection, requests are refused at once for this time, so that they do not fill all threads."""
_THREADS = 8
_IDLE_SECONDS = 10
"""After this time the server ends a transaction whose process does nothing, so that its locks are free for others."""
_UNCERTAIN = (
    "the connection to the database of the server broke while a change was stored: look whether it is there before you "
    "repeat the request"
)
_LIMIT_IDLE = "SELECT set_config('idle_in_transaction_session_timeout', %s, %s)"
_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('epicrisis state ' || %s, 0))"


def open_state_database(folder: Path) -> StateDatabase:
    """Return the database with the state of the server that this folder represents, its tables of the newest version.

    Raises SettingsError if the tables are missing or of another version and this user may not change them, and
    LibraryError if the database cannot be reached.
    """
    return open_database(folder, StateDatabase)


class StateDatabase(Database):
    """Connections to the state of a server. Thread-safe."""

    default_schema = schemas.DEFAULT_SCHEMA
    pool_wait_s = 3.0

    def __init__(self, address: LibraryAddress) -> None:
        self._silent_until = 0.0
        self._current = threading.local()
        super().__init__(address)
        self.holder = secrets.token_hex(16)
        """The name of this process in leases."""
        self._threads = ThreadPoolExecutor(_THREADS, "epicrisis-state")
        self._upgrade()

    def check_server(self) -> None:
        """Raise LibraryError if the server cannot be reached or is too old."""
        # A standby of several hosts in the URL cannot be written to.
        self._conninfo = self._primary
        with self.connect() as connection, translate_database_errors(self.address):
            self._is_pooled = read_process(connection) != connection.info.backend_pid
            version = connection.info.server_version // 10_000
        if version < _MIN_SERVER:
            raise LibraryError(
                f"{self.address.public}: the server is PostgreSQL {version}: install version {_MIN_SERVER} or newer"
            )

    def _configure_reader(self, connection: Connection[Any]) -> None:
        self._configure(connection)
        if not self._is_pooled:
            self._limit_idle(connection)

    def _limit_idle(self, connection: Connection[Any], *, is_local: bool = False) -> None:
        """Limit how long transactions of this connection, or only the current one, may do nothing."""
        # A process that is suspended, or whose machine is lost, would hold its locks for hours.
        connection.execute(_LIMIT_IDLE, (f"{_IDLE_SECONDS}s", is_local))

    def _upgrade(self) -> None:
        """Create or upgrade the tables in one transaction, and renew the rights of the role, if this user may."""
        import psycopg

        try:
            with self.connect() as connection, connection.transaction():
                self._set_path(connection)
                self._limit_idle(connection, is_local=True)
                connection.execute(_LOCK, (self.schema,))
                version = self._read_version(connection)
                if version > len(schemas.MIGRATIONS):
                    raise SettingsError(
                        f"{self.address.public} has server tables of version {version}, this program knows up to "
                        f"{len(schemas.MIGRATIONS)}: install a newer epicrisis"
                    )
                if version == 0:
                    self._refuse_library(connection)
                    connection.execute(f"CREATE SCHEMA IF NOT EXISTS {self.quoted_schema}".encode())
                if version < len(schemas.MIGRATIONS):
                    schemas.migrate(connection, self.quoted_schema, version)
                query = "SELECT pg_has_role(current_user, nspowner, 'USAGE') FROM pg_namespace WHERE nspname = %s"
                row = connection.execute(query, (self.schema,)).fetchone()
                if row is not None and row[0]:
                    schemas.grant_access(connection, self.quoted_schema)
        except psycopg.errors.InsufficientPrivilege:
            raise SettingsError(
                f"{self.address.public}: the schema {self.schema} lacks the tables of this version of the server, or "
                f"this user may not use them: run `epicrisis users list --folder postgresql://OWNER@...` as a user who "
                f"may create it, after CREATE ROLE {schemas.SERVER} (docs/deployment.md#several-servers)"
            ) from None
        except psycopg.Error as error:
            raise LibraryError(
                f"{self.address.public}: the tables of the server cannot be read ({type(error).__name__}): check the "
                "database"
            ) from error

    def _refuse_library(self, connection: Connection[Any]) -> None:
        """Raise SettingsError if the schema holds a library, whose writers may change every table of it."""
        query = "SELECT to_regclass(%s) IS NOT NULL"
        if connection.execute(query, (f"{self.quoted_schema}.library",)).fetchone() == (True,):
            raise SettingsError(
                f"{self.address.public}: the schema {self.schema} holds a library, whose writers could change users "
                "and access log: leave out ?schema=, or name another one"
            )

    def _read_version(self, connection: Connection[Any]) -> int:
        """Return the version of the tables, 0 without tables."""
        row = connection.execute("SELECT to_regclass(%s)", (f"{self.quoted_schema}.state",)).fetchone()
        if row is None or row[0] is None:
            return 0
        row = connection.execute("SELECT version FROM state").fetchone()
        return 0 if row is None else int(row[0])

    def may_change_log(self) -> bool:
        """Return whether this user may change or delete entries of the access log."""
        query = "SELECT has_table_privilege('access_log', 'UPDATE, DELETE, TRUNCATE')"
        return bool(self.rows(query)[0][0])

    @contextmanager
    def transact(self) -> Iterator[Connection[Any]]:
        """Open a transaction that is durable when the block ends. Within another one of this thread, join it.

        Raises StateUnavailable, and StateUncertain if the connection breaks at the end: the database may have stored
        the transaction.
        """
        current = getattr(self._current, "connection", None)
        if current is not None:
            yield current
            return
        has_ended = False
        try:
            with self._explain(), self._pool.connection() as connection, connection.transaction():
                self._set_path(connection)
                if self._is_pooled:
                    self._limit_idle(connection, is_local=True)
                self._current.connection = connection
                try:
                    yield connection
                finally:
                    self._current.connection = None
                has_ended = True
        except StateUnavailable as error:
            if not has_ended:
                raise
            raise StateUncertain(_UNCERTAIN) from error

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Run one statement, in the transaction of this thread if there is one, and return its rows.

        Raises StateUnavailable.
        """
        current = getattr(self._current, "connection", None)
        if current is not None:
            return _fetch(current, query, values)
        if self._is_pooled:
            with self.transact() as connection:
                return _fetch(connection, query, values)
        with self._explain(), self._pool.connection() as connection:
            return _fetch(connection, query, values)

    async def call(self, work: Callable[P, T], *arguments: P.args, **keywords: P.kwargs) -> T:
        """Return the result of work in a thread for short queries, which searches of libraries do not occupy."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, lambda: work(*arguments, **keywords))

    def read_key(self, name: str) -> str:
        """Return the secret of this name that all processes share. The first one to ask makes it."""
        command = "INSERT INTO items(kind, id, part, content) VALUES ('key', %s, '', %s) ON CONFLICT DO NOTHING"
        self.rows(command, name, secrets.token_hex(32).encode())
        content: bytes = self.rows("SELECT content FROM items WHERE kind = 'key' AND id = %s", name)[0][0]
        return content.decode("ascii")

    def close(self) -> None:
        """Close all connections. No call may follow."""
        super().close()
        self._threads.shutdown(wait=False)

    @contextmanager
    def _explain(self) -> Iterator[None]:
        """Raise StateUnavailable for every fault of the database. It has no `retry_after` if the fault lasts.

        Errors of this package pass.
        """
        import psycopg

        if time.monotonic() < self._silent_until:
            raise StateUnavailable(_describe("a moment ago it did not answer"), retry_after=RETRY_SECONDS)
        try:
            yield
        except EpicrisisError:
            raise
        except psycopg.errors.InsufficientPrivilege as error:
            raise StateUnavailable(
                "this user of the database may not do this: name the owner of the schema in the URL for users and the "
                f"access log, and a member of {schemas.SERVER} for a server"
            ) from error
        except (psycopg.ProgrammingError, psycopg.DataError) as error:
            raise StateUnavailable(
                f"the database of the server refuses a statement ({type(error).__name__}): "
                "`epicrisis audit verify` and `epicrisis doctor --cluster` look for the cause"
            ) from error
        except psycopg.Error as error:
            if isinstance(error, psycopg.OperationalError):
                self._silent_until = time.monotonic() + _SILENT_SECONDS
            raise StateUnavailable(_describe(type(error).__name__), retry_after=RETRY_SECONDS) from error


def _fetch(connection: Connection[Any], query: str, values: tuple[object, ...]) -> list[tuple[Any, ...]]:
    cursor = connection.execute(query.encode(), values or None)
    return cursor.fetchall() if cursor.description else []


def _describe(reason: str) -> str:
    return f"the database of the server cannot be used ({reason}): repeat the request in a moment"
