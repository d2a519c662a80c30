"""Connections to the database of a library: a pool for reading, and one connection for the only writer.

Reads run in transactions of one snapshot. A read for a scope names its patient, and runs as the role READER where this
user may take it, so that row-level security is the boundary even for users with more rights.
"""

from __future__ import annotations

import atexit
import re
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar
from urllib.parse import urlsplit

from epicrisis.core.errors import LibraryBusy, LibraryDamaged, LibraryError, LibraryMissing
from epicrisis.core.printable import quote_for_shell
from epicrisis.library.postgresql import database_schema as schemas
from epicrisis.library.postgresql.connection_check import ConnectionCheck, begin_pipeline, read_process
from epicrisis.library.postgresql.database_errors import explain_connection_fault, translate_database_errors
from epicrisis.system.local_only import permit_host
from epicrisis.system.remote_libraries import LibraryAddress, find_address, format_parameters, parse_parameters

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg_pool import ConnectionPool

_MIN_SERVER, _MIN_VECTOR = 17, (0, 8)
POOL_SIZE = 10
"""Connections that a process opens at most to read a library."""
_POOL_WAIT_S, _RECONNECT_S = 15, 5
_CONNECTION = {
    "application_name": "epicrisis",
    "connect_timeout": "10",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "25000",
}
"""Parameters of connections that a URL may change. Without them a client waits hours for a server out of reach."""
_PORT = re.compile(r":\d*$")
_EXTRA = "libraries in PostgreSQL need the extra postgresql: `pip install 'epicrisis[postgresql]'`"
D = TypeVar("D", bound="Database")
_databases: dict[Path, Database] = {}
_locks: defaultdict[Path, threading.Lock] = defaultdict(threading.Lock)
"""A lock for each library, so that a server that does not answer holds up nobody who uses another one."""


@atexit.register
def _close_databases() -> None:
    """Close the connections before the interpreter takes down the threads of their pools."""
    for database in list(_databases.values()):
        database.close()


def find_database(folder: Path) -> Database:
    """Return the database of the library that this folder represents.

    Raise LibraryError without the extra `postgresql`, or if the server cannot be reached.
    """
    return open_database(folder, Database)


def open_database(folder: Path, kind: type[D]) -> D:
    """Return the database that this folder represents, one of each folder. Raise LibraryError as `find_database`."""
    address = find_address(folder)
    assert address is not None
    with _locks[folder]:
        database = _databases.get(folder)
        if not isinstance(database, kind) or database.address != address:
            database = _databases[folder] = kind(address)
        return database


class Database:
    """The database of one library. Thread-safe, and open until the process ends: idle connections are closed."""

    default_schema: ClassVar[str] = schemas.DEFAULT_SCHEMA
    pool_wait_s: ClassVar[float | None] = None
    """The longest wait for a connection. None: `_POOL_WAIT_S`."""

    def __init__(self, address: LibraryAddress) -> None:
        try:
            import pgvector  # noqa: F401
            import psycopg_pool  # noqa: F401
        except ImportError:
            raise LibraryError(_EXTRA) from None
        self.address = address
        parts = urlsplit(address.url)
        parameters = dict(parse_parameters(parts.query))
        self.schema = parameters.pop("schema", self.default_schema)
        parameters = {**_CONNECTION, **parameters}
        user, mark, hosts = parts.netloc.rpartition("@")
        # The guard of the network knows hosts in lower case. A host that begins with / is the folder of a socket.
        hosts = ",".join(host if host.startswith("%") else host.lower() for host in hosts.split(","))
        query = format_parameters(parameters.items())
        self._conninfo = parts._replace(netloc=f"{user}{mark}{hosts}", query=query).geturl()
        query = format_parameters({**parameters, "target_session_attrs": "read-write"}.items())
        self._primary = parts._replace(netloc=f"{user}{mark}{hosts}", query=query).geturl()
        self._has_hosts = "," in hosts or "," in parameters.get("host", "")
        # The server is named as the place of the library: it is contacted also where notes may go nowhere else.
        for host in (*hosts.split(","), *parameters.get("host", "").split(",")):
            with permit_host(_PORT.sub("", host)):
                pass
        self._extensions = ""
        self._reads_as = ""
        self._is_pooled = False
        self._has_vectors = False
        self._writer: Connection[Any] | None = None
        self._writer_process: int | None = None
        self._write_lock = threading.RLock()
        self._writing = threading.local()
        self._check_reader = ConnectionCheck()
        self.check_server()
        self._pool = self._open_pool(self._conninfo)
        self._primary_pool = self._open_pool(self._primary) if self._has_hosts else None

    def _open_pool(self, conninfo: str) -> ConnectionPool[Connection[Any]]:
        from psycopg_pool import ConnectionPool

        return ConnectionPool(
            conninfo,
            min_size=0,
            max_size=POOL_SIZE,
            timeout=self.pool_wait_s or _POOL_WAIT_S,
            # The pool would wait ever longer between attempts, also after the server is back.
            reconnect_timeout=_RECONNECT_S,
            kwargs={"autocommit": True},
            configure=self._configure_reader,
            check=self._check_reader,
            open=True,
        )

    @property
    def quoted_schema(self) -> str:
        """The name of the schema as an SQL identifier."""
        return _quote(self.schema)

    @property
    def extensions(self) -> str:
        """The schemas of the extensions, as SQL identifiers with commas. `public` before they are installed."""
        return self._extensions or "public"

    def check_server(self) -> None:
        """Read the versions of the server and its extensions, and the roles of this user.

        Raise LibraryError if the server cannot be reached or is too old.
        """
        with self.connect() as connection, translate_database_errors(self.address):
            # A pool such as PgBouncer gives its clients process ids of its own.
            self._is_pooled = read_process(connection) != connection.info.backend_pid
            if connection.info.server_version // 10_000 < _MIN_SERVER:
                raise LibraryError(
                    f"{self.address.public}: the server is PostgreSQL {connection.info.server_version // 10_000}: "
                    f"install version {_MIN_SERVER} or newer"
                )
            encoding = connection.info.parameter_status("server_encoding")
            if encoding != "UTF8":
                raise LibraryError(
                    f"{self.address.public}: the database stores text as {encoding}, which lacks characters of "
                    "documents: create one with CREATE DATABASE name TEMPLATE template0 ENCODING 'UTF8'"
                )
            self._read_extensions(connection)
            query = "SELECT 1 FROM pg_roles WHERE rolname = %s AND pg_has_role(current_user, oid, 'SET')"
            if connection.execute(query, (schemas.READER,)).fetchone():
                self._reads_as = schemas.READER

    def _read_extensions(self, connection: Connection[Any]) -> None:
        query = (
            "SELECT extname, extversion, nspname FROM pg_extension "
            "JOIN pg_namespace ON extnamespace = pg_namespace.oid WHERE extname IN ('vector', 'pg_textsearch')"
        )
        versions: dict[str, str] = {}
        places: dict[str, None] = {}
        for name, version, place in connection.execute(query):
            versions[name], places[place] = version, None
        self._extensions = ", ".join(map(_quote, places))
        self._has_vectors = "vector" in versions
        version = tuple(map(int, versions.get("vector", "99").split(".")[:2]))
        if version < _MIN_VECTOR:
            raise LibraryError(
                f"{self.address.public}: the extension vector is {versions['vector']}: install pgvector 0.8 or newer, "
                "and run ALTER EXTENSION vector UPDATE"
            )

    def create_extensions(self, connection: Connection[Any]) -> None:
        """Create missing extensions. Raise LibraryError, with the commands, if this user may not or one is missing."""
        import psycopg

        for name in ("vector", "pg_textsearch"):
            try:
                with connection.transaction():
                    connection.execute(f"CREATE EXTENSION IF NOT EXISTS {name} SCHEMA public".encode())
            except psycopg.Error:
                preload = ""
                if name == "pg_textsearch":
                    preload = ", and add pg_textsearch to shared_preload_libraries of postgresql.conf"
                raise LibraryError(
                    f"{self.address.public}: the database lacks the extension {name}: install it on the server"
                    f"{preload}; then an administrator runs CREATE EXTENSION {name} "
                    "(docs/deployment.md#set-up-postgresql-once)"
                ) from None
        self._read_extensions(connection)
        self._configure(connection, is_writer=True)
        if command := schemas.close_index_functions(connection):
            raise LibraryError(
                f"{self.address.public}: everybody may print the words of an index of pg_textsearch, so also those of "
                f"patients' notes: an administrator runs {command}"
            )

    def renew(self) -> None:
        """Make new connections, with the types of newly created extensions."""
        self._close_pools()
        self._pool = self._open_pool(self._conninfo)
        self._primary_pool = self._open_pool(self._primary) if self._has_hosts else None

    def close(self) -> None:
        """Close all connections. No call may follow."""
        self.close_writer()
        self._close_pools()

    def _close_pools(self) -> None:
        for pool in (self._pool, self._primary_pool):
            if pool is not None:
                pool.close(timeout=1)

    @contextmanager
    def connect(self) -> Iterator[Connection[Any]]:
        """Open a connection of its own. Raise LibraryError or StorageError if the server cannot be reached."""
        import psycopg

        try:
            connection = psycopg.connect(self._conninfo, autocommit=True)
        except psycopg.Error as error:
            raise explain_connection_fault(error, self.address) from None
        with connection:
            with translate_database_errors(self.address):
                self._configure(connection)
            yield connection

    def _configure(self, connection: Connection[Any], *, is_writer: bool = False) -> None:
        if self._is_pooled and not is_writer:
            # The next transaction may run on another connection of the pool, and others on this one.
            connection.prepare_threshold = None
        else:
            # Ids in conditions are quoted for this syntax (`sql_text`) and encoding.
            connection.execute("SET standard_conforming_strings = on")
            connection.execute("SET client_encoding = 'UTF8'")
            connection.execute(f"SET search_path = {self._search_path}".encode())
        if self._has_vectors:
            from pgvector.psycopg.halfvec import register_halfvec_info
            from psycopg.types import TypeInfo

            with connection.transaction():
                self._set_path(connection)
                info = TypeInfo.fetch(connection, "halfvec")
            if info is not None:
                register_halfvec_info(connection, info)

    @property
    def _search_path(self) -> str:
        return f"{self.quoted_schema}, {self.extensions}"

    def _set_path(self, connection: Connection[Any]) -> None:
        """Set the search path for this transaction, if the connection cannot keep it."""
        if self._is_pooled:
            connection.execute("SELECT set_config('search_path', %s, true)", (self._search_path,))

    def _configure_reader(self, connection: Connection[Any]) -> None:
        from psycopg import IsolationLevel

        self._configure(connection)
        connection.isolation_level = IsolationLevel.REPEATABLE_READ
        connection.read_only = True

    def query(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Return the rows of one statement, read as in `read`, in one round trip."""
        if getattr(self._writing, "active", False):
            with self.read() as connection:
                return connection.execute(statement.encode(), values or None).fetchall()
        with translate_database_errors(self.address):
            with self._pool.connection() as connection, begin_pipeline(connection):
                self._set_path(connection)
                cursor = connection.execute(statement.encode(), values or None)
            return cursor.fetchall()

    @contextmanager
    def read(self) -> Iterator[Connection[Any]]:
        """Read one snapshot, with all rights of this user. Within `write` it is the writer's transaction."""
        if getattr(self._writing, "active", False):
            assert self._writer is not None
            with translate_database_errors(self.address):
                yield self._writer
            return
        with translate_database_errors(self.address), self._pool.connection() as connection, connection.transaction():
            self._set_path(connection)
            yield connection

    @contextmanager
    def read_long(self) -> Iterator[Connection[Any]]:
        """Read one snapshot as `read` does, on a connection of its own, which may stay open for as long as it takes."""
        if getattr(self._writing, "active", False):
            with self.read() as connection:
                yield connection
            return
        with self.connect() as connection, translate_database_errors(self.address):
            self._configure_reader(connection)
            with connection.transaction():
                self._set_path(connection)
                yield connection

    @property
    def names_hosts(self) -> bool:
        """Whether the URL names several hosts, of which one is the primary."""
        return self._has_hosts

    @contextmanager
    def read_for(
        self, patient: str | None, settings: Mapping[str, str] | None = None, *, primary: bool = False
    ) -> Iterator[Connection[Any]]:
        """Read one snapshot of literature and this patient's notes. `settings` hold until its end.

        Statements go to the server when a result is fetched; that of the last may be fetched after the block. `primary`
        asks the primary among the hosts of the URL.
        """
        values = {schemas.PATIENT_SETTING: "" if patient is None else f"p:{patient}", **(settings or {})}
        if self._is_pooled:
            values["search_path"] = self._search_path
        if self._reads_as:
            values["role"] = self._reads_as
        command = "SELECT " + ", ".join(["set_config(%s, %s, true)"] * len(values))
        arguments: list[str] = []
        for name, value in values.items():
            arguments += (name, value)
        pool = self._primary_pool if primary and self._primary_pool is not None else self._pool
        with (
            translate_database_errors(self.address),
            pool.connection() as connection,
            begin_pipeline(connection),
        ):
            connection.execute(command.encode(), arguments)
            yield connection

    def open_writer(self) -> None:
        """Connect for writing, as the only writer of this library. Raise LibraryBusy if there is another one."""
        import psycopg

        if self._writer is not None:
            raise LibraryBusy(f"{self.address.public}: this process is writing to it already: wait until it has ended")
        try:
            connection = psycopg.connect(self._primary, autocommit=True)
        except psycopg.Error as error:
            raise explain_connection_fault(error, self.address) from None
        try:
            with translate_database_errors(self.address):
                self._check_session(connection)
                self._configure(connection, is_writer=True)
                # Otherwise the server builds an index to its end, and the library is locked, after this process died.
                with suppress(psycopg.Error):
                    connection.execute("SET client_connection_check_interval = '1s'")
                row = connection.execute(
                    "SELECT pg_try_advisory_lock(hashtextextended('epicrisis ' || %s, 0))", (self.schema,)
                ).fetchone()
            if row is None or not row[0]:
                raise LibraryBusy(
                    f"{self.address.public}: another process is writing to it: wait until it ends, or stop it. Reading "
                    "works meanwhile"
                )
        except BaseException:
            connection.close()
            raise
        self._writer = connection
        self._writer_process = read_process(connection)

    def _check_session(self, connection: Connection[Any]) -> None:
        """Raise LibraryError if a pool such as PgBouncer gives this connection to others between transactions."""
        if not self._is_pooled:
            return
        process = read_process(connection)
        with self.connect() as other, other.transaction():
            # While this transaction has the server's connection, the first one gets another.
            if process in (read_process(other), None) or process != read_process(connection):
                raise self._explain_pool()

    def _explain_pool(self) -> LibraryError:
        return LibraryError(
            f"{self.address.public}: a pool of connections (PgBouncer) shares the writer's connection between "
            "transactions, so nothing would keep a second writer away: name the server itself in the URL, or set "
            "pool_mode = session. Reading works"
        )

    def close_writer(self) -> None:
        """Give up writing. Idempotent."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    @contextmanager
    def write(self) -> Iterator[Connection[Any]]:
        """Open a transaction that is durable when the block ends. Within another one, join it."""
        if self._writer is None:
            raise LibraryError(f"{self.address.public} is open for reading: open it with write=True")
        if getattr(self._writing, "active", False):
            yield self._writer
            return
        with self._write_lock:
            self._writing.active = True
            try:
                with translate_database_errors(self.address), self._writer.transaction():
                    if self._is_pooled and read_process(self._writer) != self._writer_process:
                        raise self._explain_pool()
                    yield self._writer
            finally:
                self._writing.active = False

    def rebuild_words(self, condition: str) -> bool:
        """Replace the word index by a new one while it is in use, if the table `library` meets the condition.

        A built index survives the death of the server, and finds every hit. Words that pg_textsearch 0.6 takes in at
        other times do neither. Return whether it was built. Raise LibraryBusy if a long read keeps the old one in use.
        """
        from psycopg import errors

        with self._write_lock, translate_database_errors(self.address):
            assert self._writer is not None
            if self._writer.execute(f"SELECT 1 FROM library WHERE {condition}".encode()).fetchone() is None:
                return False
            try:
                self._writer.execute("SELECT rebuild_word_index()")
            except errors.LockNotAvailable:
                raise self.explain_long_read("word") from None
            return True

    def explain_long_read(self, index: str) -> LibraryBusy:
        """Return the error for a new index of words or vectors that could not replace the old one."""
        return LibraryBusy(
            f"{self.address.public}: a long read, such as an export, keeps the new {index} index from replacing the "
            "old one: run `epicrisis library optimize URL` when it has ended. Everything added is saved"
        )

    def read_library(self) -> tuple[int, str]:
        """Return the version of the schema and the manifest. Raise LibraryMissing if there is no library."""
        query = (
            "SELECT to_regclass(%s) IS NOT NULL, has_schema_privilege(oid, 'USAGE') FROM pg_namespace "
            "WHERE nspname = %s"
        )
        with self.read() as connection:
            row = connection.execute(query, (f"{self.quoted_schema}.library", self.schema)).fetchone()
            if row is not None and not row[1]:
                raise LibraryError(
                    f"{self.address.public}: this user may not read the schema {self.schema}: GRANT {schemas.READER} "
                    f"or {schemas.WRITER} to it (docs/deployment.md#set-up-postgresql-once)"
                )
            if row is None or not row[0]:
                command = f"epicrisis library add {quote_for_shell(self.address.public)} FILES"
                raise LibraryMissing(
                    f"{self.address.public} has no library in the schema {self.schema}: check the URL, or create one "
                    f"with `{command}`"
                )
            row = connection.execute("SELECT schema_version, manifest FROM library").fetchone()
        if row is None:
            raise LibraryDamaged(f"{self.address.public}: the table library is empty: restore the database's backup")
        version, newest = int(row[0]), len(schemas.MIGRATIONS)
        if version > newest:
            raise LibraryDamaged(
                f"{self.address.public} has tables of version {version}, this program reads up to {newest}: install a "
                "newer epicrisis"
            )
        return version, str(row[1])


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
