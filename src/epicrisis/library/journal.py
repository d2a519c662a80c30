"""The journal of open batches, and the tables of documents and source files that were acknowledged: one SQLite file.

A batch is open from before the first engine is touched until all of them hold it. Knows ids and hashes, no text; does
not know what the engines hold.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from epicrisis.errors import LibraryDamaged, StorageError
from epicrisis.library import retraction_statements
from epicrisis.library.engine_errors import REPAIR, translate_errors
from epicrisis.library.retraction_statements import Statement
from epicrisis.types import Origin

if TYPE_CHECKING:
    from epicrisis.library.checksums import ChecksumChanges

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
_ORIGINS = """
CREATE TABLE IF NOT EXISTS source_files(number INTEGER PRIMARY KEY, path BLOB NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS origins(
    id TEXT PRIMARY KEY, file INTEGER NOT NULL, name TEXT NOT NULL, sha256 TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS named_by_name ON origins(name) WHERE name != '';
CREATE INDEX IF NOT EXISTS named_by_sha256 ON origins(sha256) WHERE name != '';
CREATE INDEX IF NOT EXISTS named_by_file ON origins(file) WHERE name != '';
CREATE TABLE IF NOT EXISTS coming_origins(
    sequence INTEGER NOT NULL, id TEXT NOT NULL, content_hash BLOB NOT NULL, path BLOB NOT NULL, name TEXT NOT NULL,
    sha256 TEXT NOT NULL, PRIMARY KEY(sequence, id)
) WITHOUT ROWID;
"""
"""Where documents came from: tables that libraries of earlier versions get with their next writer."""
_ORIGIN = "SELECT id, path, name, sha256 FROM origins JOIN source_files ON number = file"
_FILES = "CREATE TABLE IF NOT EXISTS data_files(path TEXT PRIMARY KEY, sha256 TEXT NOT NULL) WITHOUT ROWID;"
"""Libraries of earlier versions lack it, until `record_files`."""


def _connected(path: Path) -> sqlite3.Connection:
    """Open the journal. On read-only media, where SQLite cannot put its files beside it, as a file that never changes.

    Raises StorageError where these hold writes that a killed process left: they would not be seen.
    """
    database = _connection(str(path))
    try:
        database.execute("PRAGMA synchronous=FULL")
        if path.exists():
            database.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError:
        database.close()
        if not path.is_file() or os.access(path.parent, os.W_OK):
            raise
    else:
        return database
    log = path.with_name(f"{path.name}-wal")
    if log.exists() and log.stat().st_size:
        raise StorageError(
            f"{path.parent} is read-only, and was not closed by its last writer: copy it to a disk that can be "
            "written, run `epicrisis library info` on the copy, and use that"
        )
    return _connection(f"{path.absolute().as_uri()}?immutable=1")


def _connection(name: str) -> sqlite3.Connection:
    # The caller's lock serialises the threads; the server's worker threads share one connection.
    return sqlite3.connect(
        name, timeout=60, isolation_level=None, check_same_thread=False, uri=name.startswith("file:///")
    )


def _ids(text: str) -> list[str]:
    """Return the document ids of a batch. Raises ValueError for anything but a JSON list of texts."""
    ids = json.loads(text)
    if not isinstance(ids, list) or not all(isinstance(each, str) for each in ids):
        raise ValueError("a batch does not name its documents")
    return ids


@dataclass(frozen=True, slots=True)
class DocumentRow:
    """One acknowledged document."""

    id: str
    content_hash: str
    passages: int
    revision: str | None = None


@dataclass(frozen=True, slots=True)
class IngestedFile:
    """A file that was added whole. `name` without its folder; `added` is ISO 8601, UTC."""

    sha256: str
    name: str
    bytes: int
    added: str


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """How far each engine was when the last batch was acknowledged: an engine that is behind lost something.

    `vectors` is the version of the Lance table, `words` tantivy's opstamp. Both only grow.
    """

    vectors: int
    words: int


class Journal:
    """One connection; every transaction is durable (`synchronous=FULL`) when it returns."""

    def __init__(self, folder: Path, name: str = NAME) -> None:
        self._folder = folder
        with translate_errors(folder):
            self._db = _connected(folder / name)
        self._is_prepared = False

    @classmethod
    def create(cls, folder: Path, name: str = NAME) -> Journal:
        """A new, empty journal. The file must not be there."""
        journal = cls(folder, name)
        with translate_errors(folder):
            journal._db.execute("PRAGMA journal_mode=WAL")
            journal._db.executescript(f"BEGIN;{_SCHEMA}{_FILES}COMMIT;")
        return journal

    def close(self) -> None:
        with translate_errors(self._folder):
            self._db.close()

    def begin(self, document_ids: Sequence[str], origins: Mapping[str, tuple[str, Origin]] | None = None) -> int:
        """Open a batch and return its sequence number. `origins` are content hash and origin of those that have one.

        They count once a document of that very hash is acknowledged.
        """
        self._prepare()
        with self._transaction():
            row = self._db.execute(
                "INSERT INTO journal(document_ids) VALUES (?) RETURNING sequence", (json.dumps(list(document_ids)),)
            ).fetchone()
            if origins:
                self._db.executemany(
                    "INSERT INTO coming_origins VALUES (?, ?, ?, ?, ?, ?)",
                    (
                        (row[0], id_, bytes.fromhex(digest), os.fsencode(origin.path), origin.name, origin.sha256)
                        for id_, (digest, origin) in origins.items()
                    ),
                )
        return int(row[0])

    def open_batches(self) -> list[tuple[int, list[str]]]:
        """(sequence, document ids) of what was begun and not finished, in order."""
        with translate_errors(self._folder):
            rows = self._db.execute("SELECT sequence, document_ids FROM journal ORDER BY sequence").fetchall()
        with translate_errors(self._folder):
            return [(int(sequence), _ids(ids)) for sequence, ids in rows]

    def finish(
        self,
        sequence: int,
        document_ids: Sequence[str],
        rows: Iterable[DocumentRow],
        at: Checkpoint,
        files: ChecksumChanges | None,
    ) -> None:
        """Acknowledge a batch. `rows` are what is left of its documents; those without a row are gone.

        `files` are the data files that the batch wrote and removed; None where the library records none.
        """
        self._prepare()
        with self._transaction():
            before = self._hashes(document_ids)
            self._remove(document_ids)
            self._insert(rows)
            self._settle_origins(sequence, before)
            self._db.execute("DELETE FROM journal WHERE sequence = ?", (sequence,))
            self._mark(at)
            if files is not None:
                self._set_files(files)

    def rebuild(self, rows: Iterable[DocumentRow], at: Checkpoint, files: ChecksumChanges | None = None) -> None:
        """Put these rows in the place of all documents; rows of the same document are added up."""
        with self._transaction():
            self._db.execute("DELETE FROM documents")
            self._db.execute("UPDATE state SET documents = 0, passages = 0")
            for row in rows:
                self._db.execute(
                    "INSERT INTO documents VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET passages = passages + ?",
                    (row.id, bytes.fromhex(row.content_hash), row.passages, row.revision, row.passages),
                )
            self._count(*self.recount())
            self._mark(at)
            if files is not None:
                self._set_files(files)

    def record_files(self) -> None:
        """From now on the data files are recorded, also in a library of an earlier version."""
        with translate_errors(self._folder):
            self._db.execute(_FILES)

    def files(self) -> Mapping[str, str] | None:
        """Map the recorded data files to their SHA-256. Return None where the library records none."""
        with translate_errors(self._folder):
            if not self._db.execute("SELECT 1 FROM sqlite_master WHERE name = 'data_files'").fetchone():
                return None
            rows = self._db.execute("SELECT path, sha256 FROM data_files").fetchall()
        return {str(path): str(digest) for path, digest in rows}

    def set_files(self, files: Mapping[str, str]) -> None:
        """Remember the SHA-256 of these data files."""
        with self._transaction():
            self._db.executemany("INSERT OR REPLACE INTO data_files VALUES (?, ?)", files.items())

    def check(self) -> None:
        """Raise LibraryDamaged where SQLite finds the file inconsistent. Reads all of it."""
        with translate_errors(self._folder):
            result = self._db.execute("PRAGMA integrity_check(1)").fetchone()
        if result != ("ok",):
            raise LibraryDamaged(f"{self._folder / NAME} is inconsistent: {REPAIR}")

    def _set_files(self, files: ChecksumChanges) -> None:
        self._db.executemany("INSERT OR REPLACE INTO data_files VALUES (?, ?)", files.written.items())
        self._db.executemany("DELETE FROM data_files WHERE path = ?", [(name,) for name in files.gone])

    def documents(self) -> Iterator[DocumentRow]:
        """All acknowledged documents, in the order of their ids."""
        with translate_errors(self._folder):
            for values in self._db.execute("SELECT * FROM documents ORDER BY id"):
                yield self._row(*values)

    def hashes(self, document_ids: Sequence[str]) -> Mapping[str, str]:
        """`content_hash` of those that are there."""
        with translate_errors(self._folder):
            return {document_id: digest.hex() for document_id, digest in self._hashes(document_ids).items()}

    def revisions(self, document_ids: Sequence[str]) -> Mapping[str, str | None]:
        """The revision of those that are there, or were deleted; a deleted one always has one."""
        ids = (json.dumps(list(document_ids)),)
        among = "WHERE id IN (SELECT value FROM json_each(?))"
        with translate_errors(self._folder):
            there = dict(self._db.execute(f"SELECT id, revision FROM documents {among}", ids))
            gone = dict(self._db.execute(f"SELECT id, revision FROM deleted {among}", ids))
        return {each: max(there.get(each) or "", gone.get(each, "")) or None for each in (*there, *gone)}

    def origins(self, document_ids: Sequence[str]) -> Mapping[str, Origin]:
        """Map each document whose file is known to that file. For a writer."""
        return dict(self._origins("WHERE id IN (SELECT value FROM json_each(?))", json.dumps(list(document_ids))))

    def named_at(self, path: str) -> Origin | None:
        """Return the origin of a document that is named by the file at this path. For a writer."""
        found = self._origins("WHERE path = ? AND name != '' LIMIT 1", os.fsencode(path))
        return next((origin for _, origin in found), None)

    def named_with(self, sha256: str) -> Origin | None:
        """Return the origin of a document that is named by a file of this content. For a writer."""
        found = self._origins("WHERE sha256 = ? AND name != '' ORDER BY name LIMIT 1", sha256)
        return next((origin for _, origin in found), None)

    def all_origins(self) -> Mapping[str, Origin]:
        """Map all documents whose file is known to that file. For a writer."""
        return dict(self._origins("WHERE id != ?", ""))

    def set_origins(self, origins: Mapping[str, Origin]) -> None:
        """Remember the files of documents that are there already."""
        self._prepare()
        with self._transaction():
            for id_, origin in origins.items():
                path = os.fsencode(origin.path)
                self._db.execute("INSERT OR IGNORE INTO source_files(path) VALUES (?)", (path,))
                self._db.execute(
                    "INSERT OR REPLACE INTO origins SELECT ?, number, ?, ? FROM source_files WHERE path = ?",
                    (id_, origin.name, origin.sha256, path),
                )

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
        with translate_errors(self._folder):
            return dict(self._db.execute("SELECT id, revision FROM deleted"))

    def add_source(self, source: IngestedFile) -> None:
        """Remembers a file as added whole."""
        with self._transaction():
            values = (source.sha256, source.name, source.bytes, source.added)
            self._db.execute("INSERT OR REPLACE INTO sources VALUES (?, ?, ?, ?)", values)

    def sources(self) -> list[IngestedFile]:
        """The files that were added whole, in the order of their addition."""
        with translate_errors(self._folder):
            rows = self._db.execute("SELECT sha256, name, bytes, added FROM sources ORDER BY added, name").fetchall()
        return [IngestedFile(*row) for row in rows]

    # -- marks --------------------------------------------------------------------------------------------------------

    @property
    def has_marks(self) -> bool:
        """Whether the library keeps statements about articles already."""
        with translate_errors(self._folder):
            return retraction_statements.has_tables(self._db)

    def make_marks(self, statements: Iterable[Statement]) -> None:
        """Make the tables of statements where they are not there, with these in them."""
        with self._transaction():
            for command in filter(str.strip, retraction_statements.SCHEMA.split(";")):
                self._db.execute(command)
            known = list(statements)
            retraction_statements.replace_statements(self._db, list({each.source for each in known}), known)

    def state(self, sources: Sequence[str], statements: Iterable[Statement]) -> None:
        """Put these statements in the place of all that the sources have said before."""
        with self._transaction():
            retraction_statements.replace_statements(self._db, sources, statements)

    def statements(self, targets: Sequence[str] | None = None) -> list[Statement]:
        """Return the statements about these targets, or all of them."""
        if not self.has_marks:
            return []
        with translate_errors(self._folder):
            if targets is not None:
                return retraction_statements.read_statements(self._db, targets)
            return [Statement(*row) for row in self._db.execute("SELECT target, source, mark, day FROM marks")]

    def due(self) -> list[str]:
        """Return the targets whose documents may not say yet what is stated of them."""
        if not self.has_marks:
            return []
        with translate_errors(self._folder):
            return [row[0] for row in self._db.execute("SELECT target FROM due ORDER BY target")]

    def settle_due(self, targets: Sequence[str]) -> None:
        """Forget that these are due."""
        with self._transaction():
            self._db.executemany("DELETE FROM due WHERE target = ?", [(target,) for target in targets])

    def count(self) -> tuple[int, int]:
        """(documents, passages) acknowledged."""
        with translate_errors(self._folder):
            documents, passages = self._db.execute("SELECT documents, passages FROM state").fetchone()
        return int(documents), int(passages)

    def recount(self) -> tuple[int, int]:
        """The same, counted row by row."""
        with translate_errors(self._folder):
            query = "SELECT count(*), coalesce(sum(passages), 0) FROM documents"
            documents, passages = self._db.execute(query).fetchone()
        return int(documents), int(passages)

    def marks(self) -> Checkpoint:
        with translate_errors(self._folder):
            return Checkpoint(*self._db.execute("SELECT vectors, words FROM state").fetchone())

    def data_version(self) -> int:
        """Changes whenever another connection committed anything."""
        with translate_errors(self._folder):
            return int(self._db.execute("PRAGMA data_version").fetchone()[0])

    def _prepare(self) -> None:
        """Make the tables of origins where an earlier version made the journal."""
        if not self._is_prepared:
            with self._transaction():
                for statement in _ORIGINS.split(";"):
                    self._db.execute(statement)
            self._is_prepared = True

    def _hashes(self, document_ids: Sequence[str]) -> dict[str, bytes]:
        among = "WHERE id IN (SELECT value FROM json_each(?))"
        ids = (json.dumps(list(document_ids)),)
        hashes = {}
        for document_id, digest in self._db.execute(f"SELECT id, content_hash FROM documents {among}", ids):
            hashes[self._row(document_id, digest).id] = digest
        return hashes

    def _origins(self, where: str, value: str | bytes) -> list[tuple[str, Origin]]:
        with translate_errors(self._folder):
            self._prepare()
            rows = self._db.execute(f"{_ORIGIN} {where}", (value,)).fetchall()
        return [(id_, Origin(os.fsdecode(path), name, sha256)) for id_, path, name, sha256 in rows]

    def _settle_origins(self, sequence: int, before: Mapping[str, bytes]) -> None:
        """Forget the origins of documents that were changed or deleted, and take those that came with this batch."""
        after = self._hashes(list(before))
        changed = [id_ for id_, digest in before.items() if after.get(id_) != digest]
        self._db.execute("DELETE FROM origins WHERE id IN (SELECT value FROM json_each(?))", (json.dumps(changed),))
        self._db.execute(
            "INSERT OR IGNORE INTO source_files(path) SELECT path FROM coming_origins WHERE sequence = ?", (sequence,)
        )
        self._db.execute(
            "INSERT OR REPLACE INTO origins SELECT coming.id, number, name, sha256 FROM coming_origins AS coming "
            "JOIN source_files USING (path) JOIN documents ON documents.id = coming.id "
            "AND documents.content_hash = coming.content_hash WHERE sequence = ?",
            (sequence,),
        )
        self._db.execute("DELETE FROM coming_origins WHERE sequence = ?", (sequence,))

    def _row(self, document_id: Any, digest: Any, passages: Any = 0, revision: Any = None) -> DocumentRow:
        """Return a row of `documents`. Raises LibraryDamaged where a value is not of the type it was written with."""
        if not (
            isinstance(document_id, str)
            and isinstance(digest, bytes)
            and isinstance(passages, int)
            and isinstance(revision, str | None)
        ):
            raise LibraryDamaged(f"{self._folder / NAME} holds a document that cannot be read: {REPAIR}")
        return DocumentRow(document_id, digest.hex(), passages, revision)

    def _remove(self, document_ids: Sequence[str]) -> None:
        known = "FROM documents WHERE id IN (SELECT value FROM json_each(?))"
        ids = (json.dumps(list(document_ids)),)
        documents, passages = self._db.execute(f"SELECT count(*), coalesce(sum(passages), 0) {known}", ids).fetchone()
        self._db.execute(f"DELETE {known}", ids)
        self._count(-documents, -passages)

    def _insert(self, rows: Iterable[DocumentRow]) -> None:
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

    def _mark(self, at: Checkpoint) -> None:
        self._db.execute("UPDATE state SET vectors = ?, words = ?", (at.vectors, at.words))

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with translate_errors(self._folder):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
