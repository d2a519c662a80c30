"""Open the table of a library with its engine, and move a grown library to the other engine.

SQLite holds libraries of up to EXACT_LIMIT passages, and LanceDB (the extra `large`) larger ones. The file
`passages.sqlite` decides: while it exists it is the table, and a folder `passages.lance` next to it is the copy of an
unfinished move.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeAlias

from epicrisis.core.errors import LibraryDamaged
from epicrisis.library.base.engine_errors import translate_errors
from epicrisis.library.base.manifest import sync_path
from epicrisis.library.base.passage_table import ALL_COLUMNS, PassageTable
from epicrisis.library.base.remote_store import is_in_database, load_database_engine
from epicrisis.library.engines import lance_table, sqlite_table
from epicrisis.library.engines.lance_table import LanceTable
from epicrisis.library.engines.sqlite_table import SqliteTable
from epicrisis.library.engines.vector_search import MatrixSearch, VectorSearch

TableEngine: TypeAlias = Literal["sqlite", "lance"]
NAMES = (sqlite_table.NAME, lance_table.NAME)
_DIGEST_RANGE = 1 << 256


def table_name(folder: Path) -> str:
    """Return the name of the file or folder that holds the passages of a library."""
    return next((name for name in NAMES if (folder / name).exists()), sqlite_table.NAME)


def create_table(folder: Path, dimensions: int, engine: TableEngine) -> PassageTable:
    """Create an empty table. Raise LibraryError for `lance` without the extra `large`."""
    table = LanceTable if engine == "lance" else SqliteTable
    return table(folder, dimensions, create=True)


def open_table(folder: Path, dimensions: int) -> PassageTable:
    """Open the table of a library at its newest version. Raise LibraryError if it needs the extra `large`."""
    if is_in_database(folder):
        remote: PassageTable = load_database_engine().open_table(folder, dimensions)
        return remote
    table = LanceTable if table_name(folder) == lance_table.NAME else SqliteTable
    return table(folder, dimensions)


def make_vector_search(folder: Path, table: PassageTable) -> MatrixSearch:
    """Return the vector search over this table."""
    return VectorSearch(folder, table) if isinstance(table, LanceTable) else MatrixSearch(table)


def copy_to_lance(folder: Path, table: PassageTable, on_step: Callable[[str], None]) -> LanceTable:
    """Copy the passages into a new Lance table and compare the copy. An unfinished earlier copy is replaced.

    The library still uses `table` until `remove_sqlite`. Raise LibraryDamaged if the copy differs.
    """
    with translate_errors(folder):
        shutil.rmtree(folder / lance_table.NAME, ignore_errors=True)
    copy = LanceTable(folder, table.dimensions, create=True)
    passages, done = table.count(), 0
    for columns in table.read_columns(ALL_COLUMNS):
        copy.append(columns)
        done += len(columns["id"])
        on_step(f"moving {passages:,} passages to LanceDB, for large libraries: {done / passages:.0%}")
    on_step("comparing the moved passages")
    if compute_digest(copy) != compute_digest(table):
        raise LibraryDamaged(
            f"{folder}: the copy of the passages in LanceDB differs, so the library stays as it is: check the disk, "
            "then run `epicrisis library optimize`"
        )
    return copy


def remove_sqlite(folder: Path) -> None:
    """Remove the SQLite table of a library, whose Lance table then takes its place."""
    with translate_errors(folder):
        (folder / sqlite_table.NAME).unlink()
        for suffix in ("-wal", "-shm"):
            (folder / f"{sqlite_table.NAME}{suffix}").unlink(missing_ok=True)
        sync_path(folder)


def compute_digest(table: PassageTable) -> tuple[int, int]:
    """Return the number of rows and the sum of the SHA-256 of all rows, in any order."""
    rows = total = 0
    for columns in table.read_columns(ALL_COLUMNS):
        vectors = [vector.tobytes() for vector in columns["vector"]]
        for values in zip(*({**columns, "vector": vectors}[name] for name in ALL_COLUMNS), strict=True):
            digest = hashlib.sha256(repr(values).encode("utf-8", "surrogatepass")).digest()
            total = (total + int.from_bytes(digest, "big")) % _DIGEST_RANGE
            rows += 1
    return rows, total
