"""Rewrite the tables of a schema, so that no file of them holds anything of deleted rows.

    list_copies(database)       where copies stay nevertheless; raises LibraryError without the right
    rewrite_tables(database)

A deleted row stays in the file of its table until the server vacuums it, and in an index until it is rebuilt.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from epicrisis.core.errors import LibraryBusy, LibraryError
from epicrisis.library.postgresql.database import Database
from epicrisis.library.postgresql.database_errors import translate_database_errors

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.errors import Diagnostic

COPIES = (
    "the write-ahead log of the database with its archive, its standbys and backups, the log of the server and "
    "pg_stat_statements (docs/deployment.md#after-a-patient-was-forgotten says how to remove them)"
)
"""Where a database keeps copies that no statement removes."""
STATISTICS = (
    "statistics of the planner with single values of deleted rows: an administrator runs VACUUM FULL "
    "pg_catalog.pg_statistic"
)
"""What stays if this user may not vacuum the catalog."""
_LOCK_SECONDS = 60
_TABLES = (
    "SELECT relname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace "
    "WHERE nspname = %s AND relkind = 'r' ORDER BY relname"
)
_FOREIGN_TABLES = _TABLES.replace(" ORDER BY", " AND NOT has_table_privilege(pg_class.oid, 'MAINTAIN') ORDER BY")
_MAY_VACUUM_STATISTICS = (
    "SELECT has_table_privilege('pg_catalog.pg_statistic', 'MAINTAIN') OR pg_has_role(datdba, 'USAGE') "
    "FROM pg_database WHERE datname = current_database()"
)
_NUMBER = re.compile(r"\d+")


def list_copies(database: Database) -> tuple[str, ...]:
    """Return where copies of deleted rows stay after `rewrite_tables`.

    Raise LibraryError for a user who may not rewrite every table. The server would leave such a table out.
    """
    with database.connect() as connection, translate_database_errors(database.address):
        if names := list_tables(connection, database.schema, _FOREIGN_TABLES):
            raise LibraryError(
                f"{database.address.public}: this user may not write the tables {', '.join(names)} anew, so deleted "
                f"rows would stay in their files: name the owner of the schema {database.schema} in the URL"
            )
        may_vacuum = _may_vacuum_statistics(connection)
    return (COPIES,) if may_vacuum else (COPIES, STATISTICS)


def list_tables(connection: Connection[Any], schema: str, query: str = _TABLES) -> list[str]:
    """Return the names of the tables of a schema."""
    return [name for (name,) in connection.execute(query.encode(), (schema,)).fetchall()]


def rewrite_tables(database: Database) -> None:
    """Rewrite all tables of the schema, with their indexes and the statistics of the planner.

    Raise LibraryBusy if a transaction of another session uses a table, or still sees rows that were deleted: they would
    be copied into the new files.
    """
    from psycopg.errors import LockNotAvailable

    with database.connect() as connection, translate_database_errors(database.address):
        connection.execute(f"SET lock_timeout = '{_LOCK_SECONDS}s'".encode())
        tables = [f'{database.quoted_schema}."{name}"' for name in list_tables(connection, database.schema)]
        if _may_vacuum_statistics(connection):
            tables.append("pg_catalog.pg_statistic")
        rows_left: list[int] = []
        connection.add_notice_handler(lambda notice: _count_rows_left(notice, rows_left))
        for table in tables:
            try:
                # Statistics of the rows that are left replace the old ones, whose rows are removed at the end.
                connection.execute(f"VACUUM (FULL, ANALYZE, VERBOSE) {table}".encode())
            except LockNotAvailable:
                rows_left.append(1)
            if any(rows_left):
                raise LibraryBusy(
                    f"{database.address.public}: a transaction of another session uses {table} or still sees its "
                    "deleted rows: stop the servers, look into pg_stat_activity, pg_prepared_xacts and "
                    "pg_replication_slots, then run the same command again"
                )


def _may_vacuum_statistics(connection: Connection[Any]) -> bool:
    return connection.execute(_MAY_VACUUM_STATISTICS).fetchone() == (True,)


def _count_rows_left(notice: Diagnostic, counts: list[int]) -> None:
    """Note how many deleted rows VACUUM had to copy. The number comes first in the detail in every language."""
    number = _NUMBER.search(notice.message_detail or "")
    if number is not None:
        counts.append(int(number[0]))
