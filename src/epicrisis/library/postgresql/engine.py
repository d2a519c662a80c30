"""Open the parts of the library in PostgreSQL that a folder stands for. See `library.remote_store`.

Every function raises LibraryError or StorageError if the server cannot be used.
"""

from __future__ import annotations

from pathlib import Path

from epicrisis.library.manifest import LibraryManifest
from epicrisis.library.postgresql.database import find_database
from epicrisis.library.postgresql.errors import translate_database_errors
from epicrisis.library.postgresql.identities import PostgresqlIdentities
from epicrisis.library.postgresql.journal import PostgresqlJournal
from epicrisis.library.postgresql.store import PostgresqlLibrary, read_library
from epicrisis.library.postgresql.table import PostgresqlTable

_TABLES_WITH_NAMES = ("passages", "documents", "deleted", "sources", "origins", "marks", "due", "patients")


def create_library(folder: Path, manifest: LibraryManifest) -> PostgresqlLibrary:
    """Create a library, and open it for writing."""
    return PostgresqlLibrary.create_in(find_database(folder), folder, manifest)


def open_library(folder: Path, *, write: bool) -> PostgresqlLibrary:
    """Open a library."""
    return PostgresqlLibrary.open_in(find_database(folder), folder, write=write)


def read_manifest(folder: Path) -> LibraryManifest:
    """Return the manifest of a library. Raise LibraryMissing or LibraryDamaged."""
    return read_library(find_database(folder))[1]


def open_table(folder: Path, dimensions: int) -> PostgresqlTable:
    """Open the passages of a library."""
    return PostgresqlTable(folder, dimensions, find_database(folder))


def open_journal(folder: Path) -> PostgresqlJournal:
    """Open the records of files and documents of a library."""
    return PostgresqlJournal(folder, find_database(folder))


def open_identities(folder: Path) -> PostgresqlIdentities:
    """Open the identities of the patients of a library."""
    return PostgresqlIdentities(folder, find_database(folder))


def rewrite_tables(folder: Path) -> None:
    """Write the tables with text and names anew, with their indexes, so that nothing of deleted rows stays in them.

    The write-ahead log, its archive and standbys have their own copies. Raise LibraryError for a user who does not own
    the tables.
    """
    database = find_database(folder)
    with database.connect() as connection, translate_database_errors(database.address):
        for name in _TABLES_WITH_NAMES:
            connection.execute(f"VACUUM (FULL, ANALYZE) {database.quoted_schema}.{name}".encode())
