"""Passages and vectors of a small library, in one SQLite file.

The file is in WAL mode: readers and the writer do not wait for each other. Deleted rows are overwritten with zeros
(`secure_delete`), and the write-ahead log is emptied after them. `purge` also rewrites the file, which returns the
space and does not depend on how SQLite moves rows within its pages. Each row has checksums: SQLite itself does not
notice changed bits in texts and vectors.
"""

from __future__ import annotations

import json
import os
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from epicrisis.core.errors import LibraryDamaged
from epicrisis.library.base.engine_errors import translate_errors
from epicrisis.library.base.passage_table import (
    ALL_COLUMNS,
    BATCH_ROWS,
    Columns,
    PassageTable,
    sql_in,
)
from epicrisis.library.base.sqlite_files import connect

NAME = "passages.sqlite"
_COLUMNS = tuple(name for name in ALL_COLUMNS if name not in ("text", "vector"))
"""The columns of the table `passages`, without its row number."""
_SEARCHED = ("id", "document_id", "patient", "last_day", "facets", "vector")
"""What a search by vector reads: the checksum of the vector is over all of it."""
_SCHEMA = """
PRAGMA journal_mode=WAL;
BEGIN;
CREATE TABLE passages(
    row INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, document_id TEXT NOT NULL, title TEXT NOT NULL,
    source TEXT NOT NULL, metadata TEXT NOT NULL, ordinal INTEGER NOT NULL, "start" INTEGER NOT NULL,
    "end" INTEGER NOT NULL, date TEXT, patient TEXT, content_hash BLOB NOT NULL, revision TEXT, last_day INTEGER,
    facets TEXT NOT NULL
);
CREATE INDEX passages_by_document ON passages(document_id);
CREATE INDEX passages_by_patient ON passages(patient) WHERE patient IS NOT NULL;
CREATE TABLE texts(row INTEGER PRIMARY KEY, text TEXT NOT NULL, checksum INTEGER NOT NULL);
CREATE TABLE vectors(row INTEGER PRIMARY KEY, vector BLOB NOT NULL, checksum INTEGER NOT NULL);
CREATE TABLE state(
    version INTEGER NOT NULL, dimensions INTEGER NOT NULL, rows INTEGER NOT NULL, must_purge INTEGER NOT NULL
);
"""
_RESTORE = "restore the folder from a backup, or create the library again"
_PURGE_WAIT_MS = 2000


class SqliteTable(PassageTable):
    """The passages of a small library."""

    name = NAME

    def __init__(self, folder: Path, dimensions: int, *, create: bool = False) -> None:
        super().__init__(folder, dimensions)
        self._path = folder / NAME
        with translate_errors(folder):
            if not create:
                self._identity = _identify(self._path)
            self._db = connect(self._path)
            # Unused parts of pages are overwritten with zeros, and no text reaches a temporary file.
            self._db.execute("PRAGMA secure_delete=ON")
            self._db.execute("PRAGMA temp_store=MEMORY")
            self._db.create_function("lower", 1, _lower, deterministic=True)
            self._db.create_function("contains", 2, _contains, deterministic=True)
            if create:
                self._db.executescript(f"{_SCHEMA}INSERT INTO state VALUES (0, {dimensions}, 0, 0);COMMIT;")
                self._identity = _identify(self._path)
            width = self._read_state("dimensions")
        if width != dimensions:
            raise LibraryDamaged(
                f"{folder}: vectors have {width} dimensions, and the manifest says {dimensions}: copy the whole folder "
                "again"
            )

    def __del__(self) -> None:
        # Most handles of `LibraryStore.open_table` are used once.
        with suppress(AttributeError, sqlite3.Error):
            self._db.close()

    @property
    def version(self) -> int:
        return self._read_state("version")

    def _read_state(self, name: str) -> int:
        with translate_errors(self._folder):
            row = self._db.execute(f"SELECT {name} FROM state").fetchone()
        if row is None or type(row[0]) is not int:
            raise self._damage()
        return row[0]

    def refresh(self) -> None:
        """Do nothing: every statement reads the newest version."""

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        with translate_errors(self._folder):
            self._db.execute("BEGIN")
        try:
            yield
        finally:
            with translate_errors(self._folder):
                self._db.execute("ROLLBACK")

    def count(self, condition: str = "") -> int:
        where = f" WHERE {condition}" if condition else ""
        with translate_errors(self._folder):
            return int(self._db.execute(f"SELECT count(*) FROM passages{where}").fetchone()[0])

    def is_moved(self) -> bool:
        try:
            return _identify(self._path) != self._identity
        except OSError:
            return True

    def close(self) -> None:
        with translate_errors(self._folder):
            self._db.close()

    def check(self) -> None:
        """Raise LibraryDamaged if the file is truncated or lacks rows. Only an index is read."""
        with translate_errors(self._folder):
            log = self._path.with_name(f"{NAME}-wal")
            pages = self._db.execute(
                "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
            ).fetchone()
            is_merged = not log.exists() or not log.stat().st_size
            query = "SELECT max(row) FROM passages UNION SELECT max(row) FROM texts UNION SELECT max(row) FROM vectors"
            with self.snapshot():
                is_whole = len(self._db.execute(query).fetchall()) == 1 and self.count() == self._read_state("rows")
            if not is_whole or (is_merged and self._path.stat().st_size < pages[0]):
                raise self._damage()

    def find_damage(self) -> tuple[str, ...]:
        try:
            with translate_errors(self._folder):
                rows = self._db.execute("PRAGMA integrity_check(1)").fetchall()
                for _ in self.read_columns(ALL_COLUMNS):
                    pass
        except LibraryDamaged:
            return (NAME,)
        return () if rows == [("ok",)] else (NAME,)

    def _damage(self) -> LibraryDamaged:
        return LibraryDamaged(f"{self._path} changed after being written (a damaged disk?): {_RESTORE}")

    def read_columns(self, names: Sequence[str], condition: str = "", limit: int | None = None) -> Iterator[Columns]:
        """Yield columns as PassageTable says. Checksums are compared for every row whose text or vector is read."""
        selected = list(names)
        joins = ""
        if "text" in names:
            selected = [*_COLUMNS, "text", "texts.checksum"]
            joins += " LEFT JOIN texts USING (row)"
        if "vector" in names:
            selected = [*dict.fromkeys((*selected, *_SEARCHED)), "vectors.checksum"]
            joins += " LEFT JOIN vectors USING (row)"
        columns = ", ".join(f'"{name}"' if name in ("start", "end") else name for name in selected)
        query = f"SELECT {columns} FROM passages{joins}"
        if condition:
            query += f" WHERE {condition}"
        if limit is not None:
            query += f" LIMIT {limit}"
        with translate_errors(self._folder):
            cursor = self._db.execute(query)
            while rows := cursor.fetchmany(BATCH_ROWS):
                batch = dict(zip(selected, map(list, zip(*rows, strict=True)), strict=True))
                self._verify(batch)
                yield self._decode(batch, names)

    def _verify(self, batch: Columns) -> None:
        """Raise LibraryDamaged if a row of the batch differs from its checksum."""
        if "texts.checksum" in batch:
            fields = zip(*(batch[name] for name in (*_COLUMNS, "text")), strict=True)
            if list(map(_checksum, fields)) != batch["texts.checksum"]:
                raise self._damage()
        if "vectors.checksum" in batch:
            vectors = batch["vector"]
            if not all(type(vector) is bytes and len(vector) == 2 * self.dimensions for vector in vectors):
                raise self._damage()
            rows = zip(*(batch[name] for name in _SEARCHED), strict=True)
            if list(map(_vector_checksum, rows)) != batch["vectors.checksum"]:
                raise self._damage()

    def _decode(self, batch: Columns, names: Sequence[str]) -> Columns:
        columns = {name: batch[name] for name in names}
        if "facets" in names:
            lists = {text: json.loads(text) for text in set(batch["facets"])}
            columns["facets"] = [lists[text] for text in batch["facets"]]
        if "vector" in names:
            import numpy as np

            numbers = np.frombuffer(b"".join(batch["vector"]), dtype="<f2")
            columns["vector"] = numbers.reshape(-1, self.dimensions)
        return columns

    def facet_condition(self, names: Iterable[str]) -> str:
        return f"EXISTS (SELECT 1 FROM json_each(facets) WHERE {sql_in('value', sorted(names))})"

    def append(self, columns: Columns, replaced: Sequence[str] = ()) -> None:
        with self._transaction():
            removed = self._remove(sql_in("document_id", replaced)) if replaced else 0
            self._insert(columns)
        if removed:
            self._empty_log()

    def update(self, columns: Columns) -> None:
        with self._transaction():
            self._remove(sql_in("id", columns["id"]))
            self._insert(columns)
        self._empty_log()

    def delete(self, document_ids: Sequence[str]) -> None:
        with self._transaction():
            self._remove(sql_in("document_id", document_ids))
        self._empty_log()

    def _remove(self, condition: str) -> int:
        rows = f"(SELECT row FROM passages WHERE {condition})"
        self._db.execute(f"DELETE FROM texts WHERE row IN {rows}")
        self._db.execute(f"DELETE FROM vectors WHERE row IN {rows}")
        removed = self._db.execute(f"DELETE FROM passages WHERE {condition}").rowcount
        self._db.execute("UPDATE state SET rows = rows - ?, must_purge = max(must_purge, ?)", (removed, removed > 0))
        return removed

    def _insert(self, columns: Columns) -> None:
        blobs = [vector.tobytes() for vector in columns["vector"].astype("<f2")]
        stored = {**columns, "facets": list(map(json.dumps, columns["facets"])), "vector": blobs}
        fields = list(zip(*(stored[name] for name in (*_COLUMNS, "text")), strict=True))
        first = self._db.execute("SELECT coalesce(max(row), 0) + 1 FROM passages").fetchone()[0]
        numbers = range(first, first + len(fields))
        names = ", ".join(f'"{name}"' for name in _COLUMNS)
        places = ", ".join("?" * len(_COLUMNS))
        rows = ((number, *values[:-1]) for number, values in zip(numbers, fields, strict=True))
        self._db.executemany(f"INSERT INTO passages(row, {names}) VALUES (?, {places})", rows)
        texts = ((number, values[-1], _checksum(values)) for number, values in zip(numbers, fields, strict=True))
        self._db.executemany("INSERT INTO texts VALUES (?, ?, ?)", texts)
        checksums = map(_vector_checksum, zip(*(stored[name] for name in _SEARCHED), strict=True))
        self._db.executemany("INSERT INTO vectors VALUES (?, ?, ?)", zip(numbers, blobs, checksums, strict=True))
        self._db.execute("UPDATE state SET rows = rows + ?", (len(fields),))

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with translate_errors(self._folder), self._db:
            self._db.execute("BEGIN IMMEDIATE")
            yield
            self._count_version()

    def _count_version(self) -> None:
        self._db.execute("UPDATE state SET version = version + 1")

    def _empty_log(self) -> bool:
        """Merge the write-ahead log, which may hold old rows, and truncate it. Return False if a reader prevents it."""
        with translate_errors(self._folder):
            self._db.execute(f"PRAGMA busy_timeout={_PURGE_WAIT_MS}")
            try:
                return bool(self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0)
            finally:
                self._db.execute("PRAGMA busy_timeout=60000")

    def purge(self) -> None:
        """Rewrite the file if rows were deleted since the last time. Needs its size again, in memory and on disk."""
        self.compact()

    def compact(self) -> None:
        """Rewrite the file without free space and remnants of deleted rows, unless there are none."""
        if not self._read_state("must_purge"):
            return
        with translate_errors(self._folder):
            self._db.execute("VACUUM")
            # If a long-running reader keeps the old pages, the next writer purges again.
            if self._empty_log():
                self._db.execute("UPDATE state SET must_purge = 0")


def _checksum(values: Sequence[Any]) -> int:
    """Return the CRC-32 of a row's values, of which each is text, a number, bytes or None."""
    return zlib.crc32(repr(tuple(values)).encode("utf-8", "surrogatepass"))


def _vector_checksum(values: Sequence[Any]) -> int:
    """Return the CRC-32 of the values of _SEARCHED."""
    return zlib.crc32(values[-1], _checksum(values[:-1]))


def _identify(path: Path) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_dev, status.st_ino


def _lower(text: str) -> str:
    return text.lower()


def _contains(text: str, part: str) -> bool:
    return part in text
