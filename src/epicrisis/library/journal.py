"""The journal of open batches, and the tables of documents and source files that were acknowledged: one SQLite file.

A batch is open from before the first engine is touched until all of them hold it. Knows ids and hashes, no text; does
not know what the engines hold.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from . import marks
from .foreign import ours
from .marks import Statement

NAME = "journal.sqlite"
_SCHEMA = """
CREATE TABLE journal(sequence INTEGER PRIMARY KEY AUTOINCREMENT, document_ids TEXT NOT NULL);
CREATE TABLE documents(
    id TEXT PRIMARY KEY, content_hash BLOB NOT NULL, passages INTEGER NOT NULL, revision TEXT
) WITHOUT ROWID;
CREATE TABLE deleted(id TEXT PRIMARY KEY, revision TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE sources(
    sha256 TEXT PRIMARY KEY, name TEXT NOT NULL, bytes INTEGER NOT NULL, added TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE state(documents INTEGER NOT NULL, passages INTEGER NOT NULL, vectors INTEGER NOT NULL,
    words INTEGER NOT NULL);
INSERT INTO state VALUES (0, 0, 0, 0);
"""


@dataclass(frozen=True, slots=True)
class Row:
    """One acknowledged document."""

    id: str
    content_hash: str
    passages: int
    revision: str | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """A file that was added whole. `name` without its folder; `added` is ISO 8601, UTC."""

    sha256: str
    name: str
    bytes: int
    added: str


@dataclass(frozen=True, slots=True)
class Marks:
    """How far each engine was when the last batch was acknowledged: an engine that is behind lost something.

    `vectors` is the version of the Lance table, `words` tantivy's opstamp. Both only grow.
    """

    vectors: int
    words: int


class Journal:
    """One connection; every transaction is durable (`synchronous=FULL`) when it returns."""

    def __init__(self, folder: Path, name: str = NAME) -> None:
        self._folder = folder
        with ours(folder):
            # The caller's lock serialises the threads; the server's worker threads share one connection.
            self._db = sqlite3.connect(folder / name, timeout=60, isolation_level=None, check_same_thread=False)
            self._db.execute("PRAGMA synchronous=FULL")

    @classmethod
    def create(cls, folder: Path, name: str = NAME) -> Journal:
        """A new, empty journal. The file must not be there."""
        journal = cls(folder, name)
        with ours(folder):
            journal._db.execute("PRAGMA journal_mode=WAL")
            journal._db.executescript(f"BEGIN;{_SCHEMA}COMMIT;")
        return journal

    def close(self) -> None:
        with ours(self._folder):
            self._db.close()

    def begin(self, document_ids: Sequence[str]) -> int:
        """Opens a batch; its sequence number."""
        with self._transaction():
            row = self._db.execute(
                "INSERT INTO journal(document_ids) VALUES (?) RETURNING sequence", (json.dumps(list(document_ids)),)
            ).fetchone()
        return int(row[0])

    def open_batches(self) -> list[tuple[int, list[str]]]:
        """(sequence, document ids) of what was begun and not finished, in order."""
        with ours(self._folder):
            rows = self._db.execute("SELECT sequence, document_ids FROM journal ORDER BY sequence").fetchall()
        return [(sequence, json.loads(ids)) for sequence, ids in rows]

    def finish(self, sequence: int, document_ids: Sequence[str], rows: Iterable[Row], at: Marks) -> None:
        """Acknowledges a batch: `rows` are what is left of its documents; those without a row are gone."""
        with self._transaction():
            self._remove(document_ids)
            self._insert(rows)
            self._db.execute("DELETE FROM journal WHERE sequence = ?", (sequence,))
            self._mark(at)

    def rebuild(self, rows: Iterable[Row], at: Marks) -> None:
        """Fills an empty journal; rows of the same document are added up."""
        with self._transaction():
            for row in rows:
                self._db.execute(
                    "INSERT INTO documents VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET passages = passages + ?",
                    (row.id, bytes.fromhex(row.content_hash), row.passages, row.revision, row.passages),
                )
            self._count(*self.recount())
            self._mark(at)

    def documents(self) -> Iterator[Row]:
        """All acknowledged documents, in the order of their ids."""
        with ours(self._folder):
            for document_id, digest, passages, revision in self._db.execute("SELECT * FROM documents ORDER BY id"):
                yield Row(document_id, digest.hex(), passages, revision)

    def hashes(self, document_ids: Sequence[str]) -> Mapping[str, str]:
        """`content_hash` of those that are there."""
        with ours(self._folder):
            found = self._db.execute(
                "SELECT id, content_hash FROM documents WHERE id IN (SELECT value FROM json_each(?))",
                (json.dumps(list(document_ids)),),
            )
            return {document_id: digest.hex() for document_id, digest in found}

    def revisions(self, document_ids: Sequence[str]) -> Mapping[str, str | None]:
        """The revision of those that are there, or were deleted; a deleted one always has one."""
        ids = (json.dumps(list(document_ids)),)
        among = "WHERE id IN (SELECT value FROM json_each(?))"
        with ours(self._folder):
            there = dict(self._db.execute(f"SELECT id, revision FROM documents {among}", ids))
            gone = dict(self._db.execute(f"SELECT id, revision FROM deleted {among}", ids))
        return {each: max(there.get(each) or "", gone.get(each, "")) or None for each in (*there, *gone)}

    def bury(self, deleted: Mapping[str, str]) -> None:
        """Remembers documents as deleted at these revisions, whether they were there or not."""
        with self._transaction():
            self._db.executemany(
                "INSERT INTO deleted VALUES (?, ?) "
                "ON CONFLICT DO UPDATE SET revision = max(revision, excluded.revision)",
                deleted.items(),
            )

    def buried(self) -> Mapping[str, str]:
        """All documents remembered as deleted, with their revisions."""
        with ours(self._folder):
            return dict(self._db.execute("SELECT id, revision FROM deleted"))

    def add_source(self, source: Source) -> None:
        """Remembers a file as added whole."""
        with self._transaction():
            values = (source.sha256, source.name, source.bytes, source.added)
            self._db.execute("INSERT OR REPLACE INTO sources VALUES (?, ?, ?, ?)", values)

    def sources(self) -> list[Source]:
        """The files that were added whole, in the order of their addition."""
        with ours(self._folder):
            rows = self._db.execute("SELECT sha256, name, bytes, added FROM sources ORDER BY added, name").fetchall()
        return [Source(*row) for row in rows]

    # -- marks --------------------------------------------------------------------------------------------------------

    @property
    def has_marks(self) -> bool:
        """Whether the library keeps statements about articles already."""
        with ours(self._folder):
            return marks.there_are(self._db)

    def make_marks(self, statements: Iterable[Statement]) -> None:
        """Make the tables of statements where they are not there, with these in them."""
        with self._transaction():
            for command in filter(str.strip, marks.SCHEMA.split(";")):
                self._db.execute(command)
            known = list(statements)
            marks.replace_of(self._db, list({each.source for each in known}), known)

    def state(self, sources: Sequence[str], statements: Iterable[Statement]) -> None:
        """Put these statements in the place of all that the sources have said before."""
        with self._transaction():
            marks.replace_of(self._db, sources, statements)

    def statements(self, targets: Sequence[str] | None = None) -> list[Statement]:
        """Return the statements about these targets, or all of them."""
        if not self.has_marks:
            return []
        with ours(self._folder):
            if targets is not None:
                return marks.of_targets(self._db, targets)
            return [Statement(*row) for row in self._db.execute("SELECT target, source, mark, day FROM marks")]

    def due(self) -> list[str]:
        """Return the targets whose documents may not say yet what is stated of them."""
        if not self.has_marks:
            return []
        with ours(self._folder):
            return [row[0] for row in self._db.execute("SELECT target FROM due ORDER BY target")]

    def settle_due(self, targets: Sequence[str]) -> None:
        """Forget that these are due."""
        with self._transaction():
            self._db.executemany("DELETE FROM due WHERE target = ?", [(target,) for target in targets])

    def count(self) -> tuple[int, int]:
        """(documents, passages) acknowledged."""
        with ours(self._folder):
            documents, passages = self._db.execute("SELECT documents, passages FROM state").fetchone()
        return int(documents), int(passages)

    def recount(self) -> tuple[int, int]:
        """The same, counted row by row."""
        with ours(self._folder):
            query = "SELECT count(*), coalesce(sum(passages), 0) FROM documents"
            documents, passages = self._db.execute(query).fetchone()
        return int(documents), int(passages)

    def marks(self) -> Marks:
        with ours(self._folder):
            return Marks(*self._db.execute("SELECT vectors, words FROM state").fetchone())

    def data_version(self) -> int:
        """Changes whenever another connection committed anything."""
        with ours(self._folder):
            return int(self._db.execute("PRAGMA data_version").fetchone()[0])

    def _remove(self, document_ids: Sequence[str]) -> None:
        known = "FROM documents WHERE id IN (SELECT value FROM json_each(?))"
        ids = (json.dumps(list(document_ids)),)
        documents, passages = self._db.execute(f"SELECT count(*), coalesce(sum(passages), 0) {known}", ids).fetchone()
        self._db.execute(f"DELETE {known}", ids)
        self._count(-documents, -passages)

    def _insert(self, rows: Iterable[Row]) -> None:
        documents = passages = 0
        for row in rows:
            self._db.execute(
                "INSERT INTO documents VALUES (?, ?, ?, ?)",
                (row.id, bytes.fromhex(row.content_hash), row.passages, row.revision),
            )
            documents += 1
            passages += row.passages
        self._count(documents, passages)

    def _count(self, documents: int, passages: int) -> None:
        self._db.execute("UPDATE state SET documents = documents + ?, passages = passages + ?", (documents, passages))

    def _mark(self, at: Marks) -> None:
        self._db.execute("UPDATE state SET vectors = ?, words = ?", (at.vectors, at.words))

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with ours(self._folder):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
