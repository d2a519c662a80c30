"""The journal of a library: open batches, acknowledged documents and source files, in one SQLite file.

    with open_journal(library.path) as journal:
        for file in journal.list_files():
            print(file.path, file.documents)

A batch is open from before the first engine is changed until all engines have the change. The journal holds ids and
content hashes, no text. Documents of PubMed's files and notes of patients have no file recorded: later files may hold
newer versions of them.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import starmap
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from epicrisis.core.errors import LibraryDamaged
from epicrisis.core.types import Origin
from epicrisis.corpus.base.reader_base import ArticleStatement
from epicrisis.library.base.engine_errors import REPAIR, translate_errors
from epicrisis.library.base.remote_store import is_in_database, load_database_engine
from epicrisis.library.base.sqlite_files import connect, rewrite_file

if TYPE_CHECKING:
    from epicrisis.library.engines.checksums import ChecksumChanges

NAME = "journal.sqlite"
MAX_PREFIX_IDS = 1_000
"""Ids that `ids_with_prefix` returns at most."""
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
CREATE TABLE source_files(number INTEGER PRIMARY KEY, path BLOB NOT NULL UNIQUE);
CREATE TABLE origins(
    id TEXT PRIMARY KEY, file INTEGER NOT NULL, name TEXT NOT NULL, sha256 TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX named_by_name ON origins(name) WHERE name != '';
CREATE INDEX named_by_sha256 ON origins(sha256) WHERE name != '';
CREATE INDEX named_by_file ON origins(file) WHERE name != '';
CREATE TABLE coming_origins(
    sequence INTEGER NOT NULL, id TEXT NOT NULL, content_hash BLOB NOT NULL, path BLOB NOT NULL, name TEXT NOT NULL,
    sha256 TEXT NOT NULL, PRIMARY KEY(sequence, id)
) WITHOUT ROWID;
CREATE TABLE data_files(path TEXT PRIMARY KEY, sha256 TEXT NOT NULL) WITHOUT ROWID;
"""
_STATEMENTS = """
CREATE TABLE IF NOT EXISTS marks(
    target TEXT NOT NULL, source TEXT NOT NULL, mark TEXT NOT NULL, day INTEGER, PRIMARY KEY(target, source, mark)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS marks_by_source ON marks(source);
CREATE TABLE IF NOT EXISTS due(target TEXT PRIMARY KEY) WITHOUT ROWID;
"""
"""Tables of statements, which a library gets with its first statement.

A target with changed statements is `due` until the library's documents carry its new marks.
"""
_SELECT_STATEMENTS = "SELECT target, source, mark, day FROM marks"
_Key = tuple[str, str, str]
"""Target, source and mark of a statement."""
_SETTLE_ORIGINS = (
    "INSERT OR IGNORE INTO source_files(path) SELECT path FROM coming_origins WHERE sequence = ?",
    "INSERT OR REPLACE INTO origins SELECT coming.id, number, name, sha256 FROM coming_origins AS coming "
    "JOIN source_files USING (path) JOIN documents ON documents.id = coming.id "
    "AND documents.content_hash = coming.content_hash WHERE sequence = ?",
    "DELETE FROM coming_origins WHERE sequence = ?",
)


@dataclass(frozen=True, slots=True)
class DocumentRow:
    """An acknowledged document."""

    id: str
    content_hash: str
    passages: int
    revision: str | None = None


@dataclass(frozen=True, slots=True)
class IngestedFile:
    """A file that was added completely."""

    sha256: str
    name: str
    """Name without its folder."""
    bytes: int
    added: str
    """ISO 8601, UTC."""


@dataclass(frozen=True, slots=True)
class LibraryFile:
    """A file that was added to a library."""

    path: str
    """Absolute, with links resolved. Only the name if the library does not record the folder."""
    documents: int | None
    """Documents that the library has of this file; None if their file is not recorded."""
    passages: int | None
    added: str
    """When it was last added completely, ISO 8601 in UTC. Empty if unknown."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The state of each engine at the last acknowledged batch, as growing numbers. An engine behind has lost data."""

    vectors: int
    """Version of the passage table."""
    words: int
    """Opstamp of the tantivy index."""


@dataclass(frozen=True, slots=True)
class Statement:
    """What one source states about one target: a document id or a DOI, perhaps of a document added later."""

    target: str
    source: str
    mark: str
    day: int | None = None
    """Day as yyyymmdd, if known."""


def statements_about(articles: Iterable[ArticleStatement]) -> list[Statement]:
    """Return one statement for each name of each article."""
    statements = []
    for article in articles:
        statements += [Statement(target, article.source, article.mark, article.day) for target in article.targets]
    return statements


@contextmanager
def open_journal(folder: Path) -> Iterator[Journal]:
    """Open the journal of a library that is open, in whichever place it is."""
    journal: Journal = load_database_engine().open_journal(folder) if is_in_database(folder) else Journal(folder)
    try:
        yield journal
    finally:
        journal.close()


class Journal:
    """One connection to the journal. Every transaction is durable (`synchronous=FULL`) when its method returns.

    What is only read has the same queries in a folder and in PostgreSQL, except for the names below.
    """

    _among: ClassVar[str] = "IN (SELECT value FROM json_each(?))"
    """SQL after a column for one of several texts, see `_bind`."""
    _counts: ClassVar[str] = "state"
    """The table with the numbers of documents and passages."""
    _files: ClassVar[str] = "origins JOIN source_files ON number = file"
    """The table of documents and their files."""

    def __init__(self, folder: Path, name: str = NAME) -> None:
        self._folder = folder
        with translate_errors(folder):
            self._db = connect(folder / name)

    @classmethod
    def create(cls, folder: Path, name: str = NAME) -> Journal:
        """Create an empty journal. The file must not exist."""
        journal = cls(folder, name)
        with translate_errors(folder):
            journal._db.execute("PRAGMA journal_mode=WAL")
            journal._db.executescript(f"BEGIN;{_SCHEMA}COMMIT;")
        return journal

    def close(self) -> None:
        with translate_errors(self._folder):
            self._db.close()

    def begin(self, document_ids: Sequence[str], origins: Mapping[str, tuple[str, Origin]] | None = None) -> int:
        """Open a batch and return its sequence number.

        `origins` maps document ids to content hash and file. An origin takes effect once a document with this hash is
        acknowledged.
        """
        with self._transaction():
            row = self._db.execute(
                "INSERT INTO journal(document_ids) VALUES (?) RETURNING sequence", (json.dumps(list(document_ids)),)
            ).fetchone()
            for id_, (digest, origin) in (origins or {}).items():
                values = (row[0], id_, bytes.fromhex(digest), os.fsencode(origin.path), origin.name, origin.sha256)
                self._db.execute("INSERT INTO coming_origins VALUES (?, ?, ?, ?, ?, ?)", values)
        return int(row[0])

    def open_batches(self) -> list[tuple[int, list[str]]]:
        """Return (sequence, document ids) of each unfinished batch, in order."""
        rows = self._read("SELECT sequence, document_ids FROM journal ORDER BY sequence")
        with translate_errors(self._folder):
            batches = []
            for sequence, text in rows:
                ids = json.loads(text)
                if not isinstance(ids, list) or not all(isinstance(id_, str) for id_ in ids):
                    raise ValueError("the document ids of a batch are not a list of strings")
                batches.append((int(sequence), ids))
            return batches

    def finish(
        self,
        sequence: int,
        document_ids: Sequence[str],
        rows: Iterable[DocumentRow],
        checkpoint: Checkpoint,
        files: ChecksumChanges,
    ) -> None:
        """Close a batch and record its documents.

        `rows` are the remaining documents of the batch; documents without a row were deleted. `files` are the data
        files written and removed by the batch.
        """
        with self._transaction():
            before = self.hashes(document_ids)
            ids = (json.dumps(list(document_ids)),)
            query = f"SELECT count(*), coalesce(sum(passages), 0) FROM documents WHERE id {self._among}"
            removed_documents, removed_passages = self._db.execute(query, ids).fetchone()
            self._db.execute(f"DELETE FROM documents WHERE id {self._among}", ids)
            documents = passages = 0
            for row in rows:
                values = (row.id, bytes.fromhex(row.content_hash), row.passages, row.revision)
                self._db.execute("INSERT INTO documents VALUES (?, ?, ?, ?)", values)
                documents += 1
                passages += row.passages
            self._add_to_counts(documents - removed_documents, passages - removed_passages)
            # The files of changed and deleted documents are forgotten, and those of this batch recorded.
            after = self.hashes(list(before))
            changed = [id_ for id_, digest in before.items() if after.get(id_) != digest]
            self._db.execute(f"DELETE FROM origins WHERE id {self._among}", (json.dumps(changed),))
            for command in _SETTLE_ORIGINS:
                self._db.execute(command, (sequence,))
            self._db.execute("DELETE FROM journal WHERE sequence = ?", (sequence,))
            self._set_checkpoint(checkpoint)
            self._set_files(files)

    def rebuild(
        self, rows: Iterable[DocumentRow], checkpoint: Checkpoint, files: ChecksumChanges | None = None
    ) -> None:
        """Replace all documents with these rows. Passages of several rows of one document are added up."""
        with self._transaction():
            self._db.execute("DELETE FROM documents")
            self._db.execute("UPDATE state SET documents = 0, passages = 0")
            for row in rows:
                self._db.execute(
                    "INSERT INTO documents VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET passages = passages + ?",
                    (row.id, bytes.fromhex(row.content_hash), row.passages, row.revision, row.passages),
                )
            self._add_to_counts(*self.recount())
            self._set_checkpoint(checkpoint)
            if files is not None:
                self._set_files(files)

    def files(self) -> Mapping[str, str]:
        """Map data files to their SHA-256."""
        return {str(path): str(digest) for path, digest in self._read("SELECT path, sha256 FROM data_files")}

    def set_files(self, files: ChecksumChanges) -> None:
        """Record the changed checksums of data files."""
        with self._transaction():
            self._set_files(files)

    def rewrite(self) -> None:
        """Rewrite the file without remnants of deleted rows."""
        rewrite_file(self._db)

    def check(self) -> None:
        """Raise LibraryDamaged if SQLite reports an inconsistent file. The whole file is read."""
        if self._read("PRAGMA integrity_check(1)") != [("ok",)]:
            raise LibraryDamaged(f"{self._folder / NAME} is inconsistent: {REPAIR}")

    def documents(self) -> Iterator[DocumentRow]:
        """Yield all acknowledged documents, ordered by id."""
        with translate_errors(self._folder):
            for values in self._db.execute("SELECT * FROM documents ORDER BY id"):
                yield self._parse_row(*values)

    def hashes(self, document_ids: Sequence[str]) -> Mapping[str, str]:
        """Map the existing documents among these to their content hashes."""
        query = f"SELECT id, content_hash FROM documents WHERE id {self._among}"
        rows = starmap(self._parse_row, self._read(query, self._bind(document_ids)))
        return {row.id: row.content_hash for row in rows}

    def revisions(self, document_ids: Sequence[str]) -> Mapping[str, str | None]:
        """Map the existing and the deleted documents among these to their revisions. Deleted ones always have one."""
        ids = self._bind(document_ids)
        existing = dict(self._read(f"SELECT id, revision FROM documents WHERE id {self._among}", ids))
        deleted = dict(self._read(f"SELECT id, revision FROM deleted WHERE id {self._among}", ids))
        return {id_: max(existing.get(id_) or "", deleted.get(id_, "")) or None for id_ in (*existing, *deleted)}

    def passage_counts(self, document_ids: Sequence[str]) -> dict[str, int]:
        """Map the existing documents among these to the number of their passages."""
        query = f"SELECT id, passages FROM documents WHERE id {self._among}"
        return dict(self._read(query, self._bind(document_ids)))

    def ids_with_prefix(self, prefix: str) -> list[str]:
        """Return up to MAX_PREFIX_IDS ids of documents that begin with this text, in order."""
        # Ids with the same beginning are neighbours: nothing after the last of them is read.
        query = f"SELECT id FROM documents WHERE id BETWEEN ? AND ? ORDER BY id LIMIT {MAX_PREFIX_IDS}"
        return [id_ for (id_,) in self._read(query, prefix, f"{prefix}\U0010ffff")]

    def origins(self, document_ids: Sequence[str] | None = None) -> Mapping[str, Origin]:
        """Map these documents, or all, to their files if they are known."""
        if document_ids is None:
            return self._read_origins("id != ?", "")
        return self._read_origins(f"id {self._among}", self._bind(document_ids))

    def find_origin(self, *, path: str | None = None, sha256: str = "") -> Origin | None:
        """Return the origin of a document named after the file at this path, or with this content, or None."""
        if path is not None:
            origins = self._read_origins("path = ? AND name != '' LIMIT 1", os.fsencode(path))
        else:
            origins = self._read_origins("sha256 = ? AND name != '' ORDER BY name LIMIT 1", sha256)
        return next(iter(origins.values()), None)

    def list_files(self) -> list[LibraryFile]:
        """Return the files with documents in the library in order of their paths, then files without recorded ones."""
        sources = self.sources()
        rows = self._read_files()
        names = Counter(Path(path).name for path, *_ in rows)
        files: list[LibraryFile] = []
        matched: set[str] = set()
        for path, digest, documents, passages in rows:
            name = Path(path).name
            of_file = [source for source in sources if source.sha256 == digest]
            if not of_file and names[name] == 1:
                of_file = [source for source in sources if source.name == name]
            matched.update(source.sha256 for source in of_file)
            added = max((source.added for source in of_file), default="")
            files.append(LibraryFile(path, documents, passages, added))
        for source in sources:
            if source.sha256 not in matched and source.name not in names:
                files.append(LibraryFile(source.name, None, None, source.added))
        return files

    def documents_of_file(self, path: str) -> list[str]:
        """Return the ids of the documents that are recorded for the file at this path, in order."""
        rows = self._read(f"SELECT id FROM {self._files} WHERE path = ? ORDER BY id", os.fsencode(path))
        return [id_ for (id_,) in rows]

    def sources_of_file(self, path: str) -> list[IngestedFile]:
        """Return the versions of a file that were added completely, unless files of other folders have its name."""
        name = Path(path).name
        others = [other for other, *_ in self._read_files() if Path(other).name == name and other != path]
        return [] if others else [source for source in self.sources() if source.name == name]

    def set_origins(self, origins: Mapping[str, Origin]) -> None:
        """Record the files of existing documents."""
        with self._transaction():
            for id_, origin in origins.items():
                path = os.fsencode(origin.path)
                self._db.execute("INSERT OR IGNORE INTO source_files(path) VALUES (?)", (path,))
                self._db.execute(
                    "INSERT OR REPLACE INTO origins SELECT ?, number, ?, ? FROM source_files WHERE path = ?",
                    (id_, origin.name, origin.sha256, path),
                )

    def record_deletions(self, revisions: Mapping[str, str]) -> None:
        """Record documents as deleted at these revisions, even if they never existed."""
        with self._transaction():
            self._db.executemany(
                "INSERT INTO deleted VALUES (?, ?) "
                "ON CONFLICT DO UPDATE SET revision = max(revision, excluded.revision)",
                revisions.items(),
            )

    def deletions(self) -> Mapping[str, str]:
        """Map all documents recorded as deleted to their revisions."""
        return dict(self._read("SELECT id, revision FROM deleted"))

    def add_source(self, source: IngestedFile) -> None:
        """Record a file as added completely."""
        with self._transaction():
            values = (source.sha256, source.name, source.bytes, source.added)
            self._db.execute("INSERT OR REPLACE INTO sources VALUES (?, ?, ?, ?)", values)

    def sources(self) -> list[IngestedFile]:
        """Return the files that were added completely, in order of addition."""
        files = starmap(IngestedFile, self._read("SELECT sha256, name, bytes, added FROM sources"))
        return sorted(files, key=lambda file: (file.added, file.name))

    def forget_sources(self, sources: Sequence[IngestedFile]) -> None:
        """Forget that these files were added completely. The caller has the library open for writing."""
        with self._transaction():
            self._db.executemany("DELETE FROM sources WHERE sha256 = ?", [(source.sha256,) for source in sources])

    def forget_traces(self, document_ids: Sequence[str], is_theirs: Callable[[str], bool]) -> None:
        """Forget what is left of deleted documents: deletions by their sources, paths and names of their files.

        `is_theirs` decides about each other name. The caller has the library open for writing.
        """
        documents = set(document_ids)
        deleted = [id_ for id_ in self.deletions() if id_ in documents or is_theirs(id_)]
        self.forget_sources([source for source in self.sources() if is_theirs(source.name)])
        with self._transaction():
            self._db.executemany("DELETE FROM deleted WHERE id = ?", zip(deleted))
            self._db.execute("DELETE FROM source_files WHERE number NOT IN (SELECT file FROM origins)")
            if self.has_statements:
                self._db.executemany("DELETE FROM marks WHERE source = ?", zip(document_ids))

    @property
    def has_statements(self) -> bool:
        """Whether the library has tables of statements about articles."""
        return bool(self._read("SELECT 1 FROM sqlite_master WHERE name = 'due'"))

    def create_statements(self, statements: Iterable[Statement]) -> None:
        """Create the tables of statements if they are missing, and write these statements."""
        with self._transaction():
            for command in filter(str.strip, _STATEMENTS.split(";")):
                self._db.execute(command)
            rows = list(statements)
            self._replace_statements(list({statement.source for statement in rows}), rows)

    def replace_statements(self, sources: Sequence[str], statements: Iterable[Statement]) -> None:
        """Replace all earlier statements of the sources."""
        with self._transaction():
            self._replace_statements(sources, statements)

    def _replace_statements(self, sources: Sequence[str], statements: Iterable[Statement]) -> None:
        """Replace all statements of the sources and make changed targets due."""
        removed, changed, due = self._compare_statements(sources, statements)
        self._db.executemany("DELETE FROM marks WHERE target = ? AND source = ? AND mark = ?", removed)
        self._db.executemany("INSERT OR REPLACE INTO marks VALUES (?, ?, ?, ?)", changed)
        self._db.executemany("INSERT OR IGNORE INTO due VALUES (?)", due)

    def _compare_statements(
        self, sources: Sequence[str], statements: Iterable[Statement]
    ) -> tuple[set[_Key], list[tuple[str, str, str, int | None]], list[tuple[str]]]:
        """Return the statements of the sources that are not among these, those that are new, and both their targets."""
        new = {(item.target, item.source, item.mark): item.day for item in statements}
        query = f"{_SELECT_STATEMENTS} WHERE source {self._among}"
        rows = self._read(query, self._bind(sources))
        old = {(target, source, mark): day for target, source, mark, day in rows}
        removed = old.keys() - new.keys()
        changed = [(*key, day) for key, day in new.items() if key not in old or old[key] != day]
        return removed, changed, [(row[0],) for row in (*removed, *changed)]

    def statements(self, targets: Sequence[str] | None = None) -> list[Statement]:
        """Return the statements about these targets, or all statements."""
        if not self.has_statements:
            return []
        if targets is None:
            return list(starmap(Statement, self._read(_SELECT_STATEMENTS)))
        query = f"{_SELECT_STATEMENTS} WHERE target {self._among}"
        return list(starmap(Statement, self._read(query, self._bind(targets))))

    def due_targets(self) -> list[str]:
        """Return the targets whose documents may not carry their current marks yet."""
        if not self.has_statements:
            return []
        return [target for (target,) in self._read("SELECT target FROM due ORDER BY target")]

    def clear_due(self, targets: Sequence[str]) -> None:
        """Remove these targets from the due ones."""
        with self._transaction():
            self._db.executemany("DELETE FROM due WHERE target = ?", zip(targets))

    def count(self) -> tuple[int, int]:
        """Return the recorded numbers of acknowledged (documents, passages)."""
        ((documents, passages),) = self._read(f"SELECT documents, passages FROM {self._counts}")
        return int(documents), int(passages)

    def recount(self) -> tuple[int, int]:
        """Count the acknowledged (documents, passages) row by row."""
        ((documents, passages),) = self._read("SELECT count(*), coalesce(sum(passages), 0) FROM documents")
        return int(documents), int(passages)

    def checkpoint(self) -> Checkpoint:
        """Return the state of the engines at the last acknowledged batch."""
        (row,) = self._read("SELECT vectors, words FROM state")
        return Checkpoint(*row)

    def forget_table_version(self) -> None:
        """Record that the table of passages may be at any version, because another table is about to take its place."""
        with self._transaction():
            self._db.execute("UPDATE state SET vectors = 0")

    def data_version(self) -> int:
        """Return a number that changes when another connection commits."""
        ((version,),) = self._read("PRAGMA data_version")
        return int(version)

    def _read(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with translate_errors(self._folder):
            return self._db.execute(query, values).fetchall()

    def _bind(self, ids: Sequence[str]) -> object:
        """Return the value of `_among` for these ids."""
        return json.dumps(list(ids))

    def _read_origins(self, condition: str, value: object) -> dict[str, Origin]:
        rows = self._read(f"SELECT id, path, name, sha256 FROM {self._files} WHERE {condition}", value)
        return {id_: Origin(os.fsdecode(path), name, sha256) for id_, path, name, sha256 in rows}

    def _read_files(self) -> list[tuple[str, str, int, int]]:
        rows = self._read(
            f"SELECT path, max(origins.sha256), count(*), sum(passages) FROM {self._files} "
            "JOIN documents USING (id) GROUP BY path ORDER BY path"
        )
        return [(os.fsdecode(path), digest, documents, int(passages)) for path, digest, documents, passages in rows]

    def _parse_row(self, document_id: Any, digest: Any, passages: Any = 0, revision: Any = None) -> DocumentRow:
        """Return a row of `documents`. Raise LibraryDamaged if a value has a wrong type."""
        if not (
            isinstance(document_id, str)
            and isinstance(digest, bytes)
            and isinstance(passages, int)
            and isinstance(revision, str | None)
        ):
            raise LibraryDamaged(f"{self._folder / NAME} contains an unreadable document row: {REPAIR}")
        return DocumentRow(document_id, digest.hex(), passages, revision)

    def _add_to_counts(self, documents: int, passages: int) -> None:
        self._db.execute("UPDATE state SET documents = documents + ?, passages = passages + ?", (documents, passages))

    def _set_checkpoint(self, checkpoint: Checkpoint) -> None:
        self._db.execute("UPDATE state SET vectors = ?, words = ?", (checkpoint.vectors, checkpoint.words))

    def _set_files(self, files: ChecksumChanges) -> None:
        self._db.executemany("INSERT OR REPLACE INTO data_files VALUES (?, ?)", files.updated.items())
        self._db.executemany("DELETE FROM data_files WHERE path = ?", zip(files.removed))

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with translate_errors(self._folder), self._db:
            self._db.execute("BEGIN IMMEDIATE")
            yield
