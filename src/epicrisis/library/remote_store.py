"""Open and create libraries that are not in their folder, by the kind of their address."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from epicrisis.errors import LibraryError
from epicrisis.remote_libraries import find_address

if TYPE_CHECKING:
    from epicrisis.library.inventory import LibraryInventory
    from epicrisis.library.library import LibraryStore
    from epicrisis.library.manifest import LibraryManifest
    from epicrisis.library.passage_table import PassageTable
    from epicrisis.library.patient_identities import IdentityTable


def is_in_database(folder: Path) -> bool:
    """Return whether this folder stands for a library in PostgreSQL."""
    address = find_address(folder)
    return address is not None and address.scheme == "postgresql"


def create_in_database(folder: Path, manifest: LibraryManifest) -> LibraryStore:
    """Create the library that this folder stands for, and open it for writing."""
    from epicrisis.library.postgresql.database import find_database
    from epicrisis.library.postgresql.store import PostgresqlLibrary

    return PostgresqlLibrary.create_in(find_database(folder), folder, manifest)


def open_in_database(folder: Path, *, write: bool) -> LibraryStore:
    """Open the library that this folder stands for."""
    from epicrisis.library.postgresql.database import find_database
    from epicrisis.library.postgresql.store import PostgresqlLibrary

    return PostgresqlLibrary.open_in(find_database(folder), folder, write=write)


def read_manifest_in_database(folder: Path) -> LibraryManifest:
    """Return the manifest of the library that this folder stands for.

    Raise LibraryMissing, LibraryDamaged, and LibraryError or StorageError if the server cannot be used.
    """
    from epicrisis.library.postgresql.database import find_database
    from epicrisis.library.postgresql.store import read_library

    return read_library(find_database(folder))[1]


def open_table_in_database(folder: Path, dimensions: int) -> PassageTable:
    """Open the passages of the library that this folder stands for."""
    from epicrisis.library.postgresql.database import find_database
    from epicrisis.library.postgresql.table import PostgresqlTable

    return PostgresqlTable(folder, dimensions, find_database(folder))


def open_journal_in_database(folder: Path) -> LibraryInventory:
    """Open the records of the library that this folder stands for."""
    from epicrisis.library.postgresql.database import find_database
    from epicrisis.library.postgresql.journal import PostgresqlJournal

    return PostgresqlJournal(folder, find_database(folder))


def open_identities_in_database(folder: Path) -> IdentityTable:
    """Open the identities of patients of the library that this folder stands for."""
    from epicrisis.library.postgresql.database import find_database
    from epicrisis.library.postgresql.identities import PostgresqlIdentities

    return PostgresqlIdentities(folder, find_database(folder))


def check_in_folder(folder: Path, command: str, advice: str) -> None:
    """Raise LibraryError if this command, which is for libraries in folders, is given one in a database."""
    if is_in_database(folder):
        raise LibraryError(f"{command} is for libraries in folders: {advice}")
