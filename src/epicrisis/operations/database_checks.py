"""Check a PostgreSQL server and its library: versions, access rules, durability, replication and connections."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from epicrisis.core.printable import count_noun
from epicrisis.library.postgresql import database_schema as schemas
from epicrisis.library.postgresql.database import POOL_SIZE, Database, find_database
from epicrisis.operations.cluster_parts import CheckState, ClusterCheck, ClusterPart, ServerTables
from epicrisis.system.local_only import is_local

if TYPE_CHECKING:
    from psycopg import Connection

    Row = tuple[Any, ...]

_SETTINGS = (
    "archive_mode",
    "data_checksums",
    "fsync",
    "full_page_writes",
    "log_min_duration_statement",
    "log_statement",
    "max_connections",
    "reserved_connections",
    "superuser_reserved_connections",
    "synchronous_commit",
    "synchronous_standby_names",
)
_PROTECTED = ("documents", "new_words", "origins", "passages")
MAX_LAG_BYTES = 64 * 2**20
"""A standby that is further behind is a problem: four segments of the server's log."""

_LOG_TRIGGERS = 2
"""Of the table with the access log, which refuse changes of its entries."""


class _Checks:
    """Collects the checks of one part."""

    def __init__(self, part: str) -> None:
        self.part = part
        self.checks: list[ClusterCheck] = []

    def add(self, topic: str, state: CheckState, message: str) -> None:
        self.checks.append(ClusterCheck(self.part, topic, state, message))

    def require(self, topic: str, holds: bool, fact: str, fault: str) -> None:
        """Add `fact` if it holds, else the problem `fault`."""
        self.add(topic, "ok" if holds else "problem", fact if holds else fault)


def check_database(
    part: ClusterPart, folder: Path, servers: int, tables: ServerTables | None
) -> Iterator[ClusterCheck]:
    """Yield the checks of the database of a library, and whether it admits this number of servers.

    Raise LibraryError or StorageError if the server cannot be reached, or has no library.
    """
    database = find_database(folder)
    checks = _Checks(part.name)
    # Through a pool such as PgBouncer, only such a transaction finds the tables of the library.
    with database.read() as connection:
        values: dict[str, str] = dict(
            _fetch(connection, "SELECT name, setting FROM pg_settings WHERE name = ANY(%s)", list(_SETTINGS))
        )
        _check_versions(checks, connection)
        _check_encryption(checks, connection)
        _check_role(checks, connection)
        _check_durability(checks, values)
        _check_replication(checks, connection, values)
        _check_connections(checks, values, servers, 3 if database.names_hosts else 2)
        _check_statement_log(checks, values)
        if tables is not None:
            _check_server_tables(checks, connection, tables)
        yield from checks.checks
        checks.checks.clear()
        _check_library(checks, database, connection)
    yield from checks.checks


def _fetch(connection: Connection[Any], query: str, *values: object) -> list[Row]:
    return connection.execute(query.encode(), values or None).fetchall()


def _check_versions(checks: _Checks, connection: Connection[Any]) -> None:
    query = "SELECT extname, extversion FROM pg_extension WHERE extname IN ('vector', 'pg_textsearch')"
    extensions: dict[str, str] = dict(_fetch(connection, query))
    missing = sorted({"vector", "pg_textsearch"} - extensions.keys())
    ((number,),) = _fetch(connection, "SHOW server_version")
    listed = ", ".join(f"{name} {extensions[name]}" for name in sorted(extensions))
    commands = ", ".join(f"CREATE EXTENSION {name}" for name in missing)
    fault = f"PostgreSQL {number} lacks {' and '.join(missing)}: as an administrator run {commands}"
    checks.require("versions", not missing, f"PostgreSQL {number}, {listed}", fault)


def _check_encryption(checks: _Checks, connection: Connection[Any]) -> None:
    rows = _fetch(connection, "SELECT ssl, version FROM pg_stat_ssl WHERE pid = pg_backend_pid()")
    is_encrypted = bool(rows) and bool(rows[0][0])
    host = connection.info.host
    if is_encrypted:
        checks.add("connection", "ok", f"encrypted, {rows[0][1]}")
    elif is_local(host) or host.startswith("/"):
        checks.add("connection", "ok", "not encrypted, on this machine")
    else:
        checks.add(
            "connection", "problem", "not encrypted: set hostssl in pg_hba.conf, and sslmode=verify-full in the URL"
        )


def _check_role(checks: _Checks, connection: Connection[Any]) -> None:
    query = (
        "SELECT current_user, rolsuper, rolbypassrls, "
        "EXISTS (SELECT FROM pg_roles r WHERE r.rolname = %s AND pg_has_role(current_user, r.oid, 'MEMBER')), "
        "EXISTS (SELECT FROM pg_roles r WHERE r.rolname = %s AND pg_has_role(current_user, r.oid, 'MEMBER')) "
        "FROM pg_roles WHERE rolname = current_user"
    )
    ((user, is_superuser, bypasses, reads, writes),) = _fetch(connection, query, schemas.READER, schemas.WRITER)
    if is_superuser or bypasses:
        reason = "a superuser" if is_superuser else "a role that bypasses row-level security (BYPASSRLS)"
        message = f"{user} is {reason}: servers should connect as a member of {schemas.READER} only"
        checks.add("role", "problem", message)
    elif writes:
        message = f"{user} may write: good for additions; servers should connect as a member of {schemas.READER} only"
        checks.add("role", "note", message)
    else:
        fault = f"{user} may not read libraries: GRANT {schemas.READER} TO {user}"
        checks.require("role", reads, f"{user} may read, and not write", fault)


def _check_durability(checks: _Checks, values: Mapping[str, str]) -> None:
    unsafe = [name for name in ("fsync", "full_page_writes", "synchronous_commit") if values.get(name) == "off"]
    fault = f"{', '.join(unsafe)} off: a crash can lose or damage saved documents: set to on in postgresql.conf"
    checks.require("durability", not unsafe, "every acknowledged write is on the disk", fault)
    if values.get("data_checksums") == "on":
        checks.add("checksums", "ok", "data checksums are on")
    else:
        checks.add("checksums", "note", "data checksums are off, so a damaged disk goes unnoticed: run pg_checksums -e")
    if values.get("archive_mode") == "off":
        message = (
            "the log is not archived: a restore ends at the last dump or base backup "
            "(docs/deployment.md#back-up-and-restore)"
        )
        checks.add("archive", "note", message)
    else:
        checks.add("archive", "ok", "the log is archived")


def _check_replication(checks: _Checks, connection: Connection[Any], values: Mapping[str, str]) -> None:
    ((is_standby,),) = _fetch(connection, "SELECT pg_is_in_recovery()")
    if is_standby:
        query = (
            "SELECT pg_wal_lsn_diff(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn()), "
            "(SELECT count(*) FROM pg_stat_wal_receiver)"
        )
        ((behind, receivers),) = _fetch(connection, query)
        message = f"a standby, {_format_lag(behind)} behind what it has received"
        fault = "a standby that receives nothing: check primary_conninfo, and that the primary runs"
        checks.require("replication", bool(receivers), message, fault)
        return
    query = (
        "SELECT application_name, state, sync_state, pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn) "
        "FROM pg_stat_replication"
    )
    standbys = _fetch(connection, query)
    if not standbys:
        wanted = values.get("synchronous_standby_names")
        if wanted:
            message = "no standby is connected, and writes wait for one (synchronous_standby_names): start the standby"
            checks.add("replication", "problem", message)
        else:
            checks.add("replication", "note", "a primary without a standby: after a failure, restore a backup")
    for name, state, sync_state, behind in standbys:
        if state is None:
            message = "this role may not see the standbys: GRANT pg_monitor to it, or run the check as such a role"
            checks.add("replication", "unknown", message)
            return
        is_behind = behind is None or behind > MAX_LAG_BYTES
        kind = "synchronous" if sync_state in ("sync", "quorum") else "asynchronous: a failover may lose writes"
        fault = f"standby {name} is {state}, {_format_lag(behind)} behind: check its disk and network"
        fact = f"standby {name}, {kind}, {_format_lag(behind)} behind"
        checks.require("replication", state == "streaming" and not is_behind, fact, fault)


def _format_lag(behind: object) -> str:
    return "an unknown amount" if behind is None else f"{float(str(behind)) / 1e6:.1f} MB"


def _check_connections(checks: _Checks, values: Mapping[str, str], servers: int, pools: int) -> None:
    reserved = int(values.get("superuser_reserved_connections", 0)) + int(values.get("reserved_connections", 0))
    places = int(values["max_connections"]) - reserved
    # Pools of a server: for the library, for what it shares with the others, and for the primary among several hosts.
    needed = servers * pools * POOL_SIZE + 1
    plan = f"{count_noun(servers, 'server')} and a writer may open {count_noun(needed, 'connection')}, of {places}"
    fault = f"{plan}: raise max_connections to {needed + reserved} or more, and restart the database"
    checks.require("connections", needed <= places, plan, fault)


def _check_statement_log(checks: _Checks, values: Mapping[str, str]) -> None:
    logged = []
    if values.get("log_statement", "none") not in ("none", "ddl"):
        logged.append("log_statement")
    if values.get("log_min_duration_statement", "-1") != "-1":
        logged.append("log_min_duration_statement")
    message = f"{' and '.join(logged)} write statements with questions and ids to the server's log: switch off"
    checks.require("log", not logged, "statements are not logged", message)


def _check_server_tables(checks: _Checks, connection: Connection[Any], tables: ServerTables) -> None:
    """Check the tables of the servers' state, if the database has them."""
    query = (
        "SELECT has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT'), "
        "(SELECT count(*) FROM pg_trigger t JOIN pg_class l ON l.oid = t.tgrelid WHERE l.relnamespace = n.oid "
        "AND l.relname = 'access_log' AND NOT t.tgisinternal AND t.tgenabled = 'O') "
        "FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relname = 'state'"
    )
    for may_read, triggers in _fetch(connection, query, tables.schema):
        fault = "the triggers of the access log are off, so that entries may be changed: restore a backup"
        checks.require("access log", triggers == _LOG_TRIGGERS, "entries are only added", fault)
        if not may_read:
            message = f"this role may not read them: run the check as a member of {tables.role}"
            checks.add("server tables", "unknown", message)
            continue
        rows = _fetch(connection, f'SELECT version FROM "{tables.schema}".state')
        version = rows[0][0] if rows else 0
        cure = "as their owner run `epicrisis users list --folder URL`"
        if version > tables.version:
            cure = "install a newer epicrisis"
        fault = f"version {version}, and this program uses {tables.version}: {cure}"
        checks.require("server tables", version == tables.version, f"version {version}", fault)


def _check_library(checks: _Checks, database: Database, connection: Connection[Any]) -> None:
    version, _ = database.read_library()
    newest = len(schemas.MIGRATIONS)
    fault = f"version {version}, and this program reads {newest}: as the owner run `epicrisis library optimize URL`"
    checks.require("tables", version == newest, f"version {version}", fault)
    query = (
        "SELECT relname FROM pg_class WHERE relnamespace = %s::regnamespace AND relname = ANY(%s) "
        "AND NOT (relrowsecurity AND relforcerowsecurity) ORDER BY relname"
    )
    open_tables = [name for (name,) in _fetch(connection, query, database.quoted_schema, list(_PROTECTED))]
    fault = f"row-level security is off for {', '.join(open_tables)}: restore the library from a backup or a copy"
    checks.require("patients", not open_tables, "row-level security is on and forced", fault)
    names = schemas.find_open_index_functions(connection)
    fault = f"everybody may print the words of notes: as an administrator run REVOKE EXECUTE ON FUNCTION {names}"
    checks.require("index functions", not names, "closed", f"{fault} FROM PUBLIC")
    ((lost, documents, passages, number),) = _fetch(
        connection, f"SELECT {schemas.WORDS_LOST}, documents, passages, version FROM library"
    )
    fault = "words are missing from the index of words: as the importer run `epicrisis library optimize URL`"
    size = f"{count_noun(documents, 'document')}, {count_noun(passages, 'passage')}, version {number}"
    checks.require("content", not lost, size, fault)
