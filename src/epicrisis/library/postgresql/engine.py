"""Open the parts of the library in PostgreSQL that a folder represents. See `library.remote_store`.

Every function raises LibraryError or StorageError if the server cannot be used.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from epicrisis.library.base.manifest import LibraryManifest
from epicrisis.library.core.patient_identities import IdentityTable
from epicrisis.library.postgresql.database import Database, find_database
from epicrisis.library.postgresql.database_journal import PostgresqlJournal, storable_ids
from epicrisis.library.postgresql.database_table import PostgresqlTable
from epicrisis.library.postgresql.store import PostgresqlLibrary, read_library

_COUNT_CHANGE = "UPDATE library SET version = version + 1"


class PostgresqlIdentities(IdentityTable):
    """The table `patients` of a library in PostgreSQL."""

    def __init__(self, folder: Path, database: Database) -> None:
        super().__init__(folder)
        self._database = database

    def read(self, patients: Sequence[str] | None) -> Sequence[tuple[str, str]]:
        if patients is None:
            return self._rows("SELECT id, identity FROM list_identities()")
        return self._rows("SELECT id, identity FROM list_identities() WHERE id = ANY(%s)", storable_ids(list(patients)))

    def version(self) -> int:
        """Return 0: the version of the passages counts changes of identities too, so that one read tells both."""
        return 0

    def write(self, rows: Sequence[tuple[str, str]]) -> None:
        with self._database.write() as connection, connection.cursor() as cursor:
            cursor.executemany("DELETE FROM patients WHERE id = %s", [(patient,) for patient, _ in rows])
            cursor.executemany("INSERT INTO patients(id, identity) VALUES (%s, %s)", rows)
            connection.execute(_COUNT_CHANGE)

    def forget(self, patients: Sequence[str]) -> None:
        with self._database.write() as connection:
            connection.execute("DELETE FROM patients WHERE id = ANY(%s)", (list(patients),))
            connection.execute(_COUNT_CHANGE)

    def declare(self, what: str, at: str) -> None:
        with self._database.write() as connection:
            connection.execute("INSERT INTO declared VALUES (%s, %s) ON CONFLICT DO NOTHING", (what, at))

    def is_declared(self, what: str) -> bool:
        return bool(self._rows("SELECT 1 FROM declared WHERE what = %s", what))

    def _rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        return self._database.query(query, *values)


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
