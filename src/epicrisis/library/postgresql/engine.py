"""Open the parts of the library in PostgreSQL that a folder represents. See `library.remote_store`.

Every function raises LibraryError or StorageError if the server cannot be used.
"""

from __future__ import annotations

from pathlib import Path

from epicrisis.library.manifest import LibraryManifest
from epicrisis.library.postgresql.database import find_database
from epicrisis.library.postgresql.identities import PostgresqlIdentities
from epicrisis.library.postgresql.journal import PostgresqlJournal
from epicrisis.library.postgresql.store import PostgresqlLibrary, read_library
from epicrisis.library.postgresql.table import PostgresqlTable


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
