"""A library in PostgreSQL: any number of servers read it, and one process at a time writes to it.

A write is one transaction for documents, passages, vectors and words, durable when the call returns. A scope's patient
is named to the server, whose row-level security then shows no other patient's rows.
"""

from __future__ import annotations

import dataclasses
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from epicrisis.core.errors import InputError, LibraryDamaged, LibraryError, StorageError
from epicrisis.core.protocols import ScoredId, StoredDocument, Vectors
from epicrisis.core.types import Passage, Scope
from epicrisis.library.base import manifest as manifests
from epicrisis.library.base.manifest import LibraryManifest
from epicrisis.library.base.passage_table import ALL_COLUMNS, PassageTable, check_documents, check_scope
from epicrisis.library.core.library_parts import LibraryInfo
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.engines.index_recall import DEFAULT_RECALL, IndexReport
from epicrisis.library.engines.vector_search import check_query_vector
from epicrisis.library.postgresql import database_schema as schemas
from epicrisis.library.postgresql import database_vector_index as vector_index
from epicrisis.library.postgresql import rewriting, search
from epicrisis.library.postgresql.database import Database
from epicrisis.library.postgresql.database_journal import PostgresqlJournal, storable_ids
from epicrisis.library.postgresql.database_table import PostgresqlTable, parse_columns
from epicrisis.library.postgresql.index_build import build_vector_index
from epicrisis.system.remote_libraries import record_address

_PASSAGE_COLUMNS = [name for name in ALL_COLUMNS if name not in ("last_day", "facets", "vector")]
_QUOTED_COLUMNS = ", ".join(f'"{column}"' for column in _PASSAGE_COLUMNS)
_SELECT_PASSAGES = f"SELECT {_QUOTED_COLUMNS} FROM passages WHERE"
_SIZES = ("passages", "documents")
_LOST_WORDS = {
    "standby": "this server is a standby, and the word index is not in the log of its primary: name the primary in the "
    f"URL too, or create the tablespace {schemas.WORD_TABLESPACE} "
    "(docs/deployment.md#a-standby-failover-and-read-replicas). Searches with --by dense work",
    "primary": "words are missing from the index of the server, which was promoted or restored, or is being filled by "
    "its first addition or a copy: repeat the addition or copy, or run `epicrisis library optimize URL`, as a member "
    f"of {schemas.WRITER}. Searches with --by dense work",
}
"""Why a search by words fails on a server, and what to do."""


class PostgresqlLibrary(LibraryStore):
    """A library in PostgreSQL. Open it with `LibraryStore.open`, which finds it by its folder."""

    def __init__(self, folder: Path, manifest: LibraryManifest, database: Database, *, write: bool) -> None:
        """Use `LibraryStore.open` or `create` instead. A writer has the database open for writing already."""
        self.path = folder
        self.manifest = manifest
        self.settled_deletions: frozenset[str] = frozenset()
        self._thread_lock = threading.RLock()
        self._database = database
        self._is_writer = write
        self._journal = self._records = PostgresqlJournal(folder, database)
        self._passages = PostgresqlTable(folder, manifest.dimensions, database)
        record_address(folder, database.address)
        self._passages.refresh()

    @property
    def _table(self) -> PassageTable:
        return self._passages

    @classmethod
    def create_in(cls, database: Database, folder: Path, manifest: LibraryManifest) -> Self:
        """Create an empty library in one transaction, and open it for writing. Raise LibraryError if there is one."""
        if manifest.dimensions > schemas.MAX_DIMENSIONS:
            raise InputError(
                f"PostgreSQL indexes vectors of up to {schemas.MAX_DIMENSIONS} dimensions, and {manifest.encoder_name} "
                f"has {manifest.dimensions}: choose another encoder"
            )
        complete = manifests.mark_complete(manifest)
        database.open_writer()
        try:
            with database.write() as connection:
                connection.execute(f"CREATE SCHEMA IF NOT EXISTS {database.quoted_schema}".encode())
                # Without the schema's name a table of another program in the schema of the extensions would count.
                query = "SELECT to_regclass(%s) IS NOT NULL"
                if connection.execute(query, (f"{database.quoted_schema}.library",)).fetchone() == (True,):
                    raise LibraryError(f"{database.address.public} holds a library already: open it")
                # Whoever may write to a library may change every table of its schema.
                if connection.execute(query, (f"{database.quoted_schema}.access_log",)).fetchone() == (True,):
                    raise LibraryError(
                        f"{database.address.public}: the schema {database.schema} holds users and access log of a "
                        "server: name another one with ?schema="
                    )
                database.create_extensions(connection)
                version = schemas.migrate(
                    connection, database.quoted_schema, database.extensions, 0, manifest.dimensions
                )
                text = json.dumps(dataclasses.asdict(complete), sort_keys=True)
                connection.execute("INSERT INTO library(schema_version, manifest) VALUES (%s, %s)", (version, text))
                connection.execute("SELECT build_vector_index(), rebuild_word_index()")
            database.renew()
        except BaseException:
            database.close_writer()
            raise
        return cls(folder, complete, database, write=True)

    @classmethod
    def open_in(cls, database: Database, folder: Path, *, write: bool) -> Self:
        """Open the library of a database. A writer upgrades its tables, and applies marks that are due."""
        newest = len(schemas.MIGRATIONS)
        if not write:
            version, manifest = read_library(database)
            if version < newest:
                raise LibraryError(
                    f"{database.address.public} has tables of version {version}, and this program reads {newest}: the "
                    "owner of the schema upgrades them with `epicrisis library optimize URL`"
                )
            return cls(folder, manifest, database, write=False)
        database.open_writer()
        try:
            # Another writer may have upgraded the tables until the lock was taken.
            version, manifest = read_library(database)
            if version < newest:
                with database.write() as connection:
                    schemas.migrate(
                        connection, database.quoted_schema, database.extensions, version, manifest.dimensions
                    )
                    connection.execute("UPDATE library SET schema_version = %s", (newest,))
            library = cls(folder, manifest, database, write=True)
            # A copy that was interrupted goes on without an index.
            database.rebuild_words(f"words_changed IS DISTINCT FROM '-infinity' AND ({schemas.WORDS_LOST})")
            library.update_due_marks()
        except BaseException:
            database.close_writer()
            raise
        return library

    def close(self) -> None:
        """Give up writing. Connections for reading stay for the next library of this process. Idempotent."""
        with self._thread_lock:
            if self._is_writer:
                self._is_writer = False
                self._database.close_writer()

    def _settle(self) -> None:
        """Raise LibraryError for a reader. There is nothing to finish: a write is one transaction."""
        if not self._is_writer:
            raise LibraryError(f"{self._database.address.public} is open for reading: open it with write=True")

    @contextmanager
    def _change(self, document_ids: Sequence[str]) -> Iterator[None]:
        """Open a transaction that changes these documents, and count them again at its end."""
        with self._database.write() as connection:
            # Readers of the counts wait for nobody; another writer would wait here.
            connection.execute("SELECT FROM library FOR UPDATE")
            before = self._records.count_among(document_ids)
            yield
            self._records.update_counts(document_ids, before)

    def add(self, documents: Sequence[StoredDocument]) -> None:
        """Add or replace all documents in one transaction. Readers see the old or the new version of each.

        Raise ValueError for documents that do not fit this library, LibraryError for a reader.
        """
        if not documents:
            return
        check_documents(documents, self.manifest.dimensions)
        with self._thread_lock:
            self._settle()
            with self._change([document.id for document in documents]):
                self._passages.write(documents, self._records.write_documents(documents))

    def delete(self, document_ids: Sequence[str], revisions: Mapping[str, str] | None = None) -> None:
        """Delete documents in one transaction, see `LibraryStore.delete`."""
        with self._thread_lock:
            self._settle()
            existing = list(self._journal.hashes(document_ids))
            with self._change(existing):
                if revisions is None:
                    self._records.count_deletion()
                else:
                    self._journal.record_deletions(revisions)
                self._records.delete_documents(existing)
            self._passages.refresh()

    def _write_marks(self, marks: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        with self._change(sorted(marks)):
            self._passages.write_marks(marks)

    def compact(self, on_step: Callable[[str], None] | None = None) -> None:
        """Build missing indexes, and that of words after large additions. Raise LibraryError for a reader."""
        with self._thread_lock:
            self._settle()
            self._passages.compact(on_step or (lambda step: None))

    def optimize(
        self, recall: float = DEFAULT_RECALL, *, rebuild: bool = False, on_step: Callable[[str], None] | None = None
    ) -> IndexReport | None:
        """Build or rebuild the vector index, take new words into their index, renew the statistics, measure the recall.

        Return None if every search is exact. Searches use the index also below `recall`.
        """
        report_step = on_step or (lambda step: None)
        with self._thread_lock:
            self._settle()
            with self._database.write() as connection:
                if connection.execute(
                    "SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = to_regclass('library')"
                ).fetchone() == (True,):
                    schemas.grant_access(connection, self._database.quoted_schema)
                    schemas.drop_invalid_indexes(connection)
            if rebuild:
                build_vector_index(self._database, report_step)
            self._passages.build_indexes("new_passages > 0", report_step)
            report_step("reading statistics")
            self._passages.read_statistics()
            return vector_index.measure_index(self._database, self._passages, recall, report_step)

    def list_copies(self) -> tuple[str, ...]:
        """Return where copies of deleted documents stay after `purge`. Raise LibraryError without the right to it."""
        return rewriting.list_copies(self._database)

    def purge(self, on_step: Callable[[str], None]) -> None:
        """Rewrite all tables, see `LibraryStore.purge`.

        Raise LibraryBusy if another session uses them, and LibraryError for a user who may not rewrite them.
        """
        with self._thread_lock:
            self._settle()
            self.list_copies()
            on_step("writing the tables anew")
            self.prepare_bulk()
            rewriting.rewrite_tables(self._database)

    def prepare_bulk(self) -> None:
        """Drop the indexes of vectors and words, which `compact` builds in less time than the additions would.

        Until then searches by words raise StorageError.
        """
        with self._thread_lock, self._database.write() as connection:
            connection.execute("SELECT drop_vector_index(), drop_word_index()")
            connection.execute("UPDATE library SET words_changed = '-infinity', vector_report = NULL")

    def prepare_addition(self) -> None:
        """Fill an empty library without indexes. `compact` builds them."""
        if self.count() == (0, 0):
            self.prepare_bulk()

    def move_if_large(self, on_step: Callable[[str], None]) -> bool:
        """Return False: the server holds libraries of every size."""
        return False

    def search_vectors(self, vector: Vectors, k: int, scope: Scope) -> tuple[ScoredId, ...]:
        """Search by vector, see PassageStore. Raise InputError for a vector of another dimension or not finite."""
        check_scope(scope)
        vector = check_query_vector(vector, self.manifest)
        if k < 1:
            return ()
        with self._database.read_for(search.find_patient(scope), search.INDEX_SETTINGS) as connection:
            return search.search_vectors(connection, vector, k, scope)

    def search_words(
        self, query: str, k: int, scope: Scope, within: Sequence[str] | None = None
    ) -> tuple[ScoredId, ...]:
        """Search by words, see PassageStore."""
        check_scope(scope)
        if k < 1:
            return ()
        database, patient = self._database, search.find_patient(scope)
        with database.read_for(patient) as connection:
            words = search.read_word_state(connection)
            if not words.lacking:
                return search.search_words(connection, database.quoted_schema, words, query, k, scope, within)
        if words.lacking == "standby" and database.names_hosts:
            with database.read_for(patient, primary=True) as connection:
                words = search.read_word_state(connection)
                if not words.lacking:
                    return search.search_words(connection, database.quoted_schema, words, query, k, scope, within)
        raise StorageError(f"{database.address.public}: {_LOST_WORDS[words.lacking]}")

    def _read_passages(self, scope: Scope, condition: str, value: object) -> list[Passage]:
        """Return the passages in scope that meet the condition, in no particular order."""
        with self._database.read_for(search.find_patient(scope)) as connection:
            cursor = connection.execute(f"{_SELECT_PASSAGES} {condition}".encode(), (value,))
        if not (rows := cursor.fetchall()):
            return []
        passages = [stored.passage for stored in self._passages.parse(parse_columns(_PASSAGE_COLUMNS, rows))]
        return [passage for passage in passages if scope.admits(passage)]

    def fetch(self, passage_ids: Sequence[str], scope: Scope) -> tuple[Passage, ...]:
        """Fetch the existing passages of the scope, see PassageStore."""
        check_scope(scope)
        if not passage_ids:
            return ()
        passages = self._read_passages(scope, "id = ANY(%s)", storable_ids(passage_ids))
        by_id = {passage.id: passage for passage in passages}
        return tuple(by_id[passage_id] for passage_id in passage_ids if passage_id in by_id)

    def fetch_record(self, scope: Scope) -> tuple[Passage, ...]:
        """Return the record of the scope's patient, see PassageStore."""
        check_scope(scope)
        if (patient := search.find_patient(scope)) is None:
            return ()
        passages = self._read_passages(scope, "patient = %s", patient)
        return tuple(sorted(passages, key=lambda passage: (passage.document_id, passage.ordinal)))

    def open_table(self) -> PassageTable:
        """Return the table of passages."""
        return self._passages

    def vectors_of(self, document_ids: Sequence[str]) -> Mapping[tuple[str, str], Vectors]:
        """Map (title, text) of all passages of these documents to their vectors `(d,)`, with float16 precision."""
        return self._passages.vectors_of(document_ids)

    def info(self) -> LibraryInfo:
        """Return a summary. A user with all rights also has the documents counted one by one."""
        with self._database.read() as connection:
            sizes: dict[str, int] = {}
            for name in _SIZES:
                row = connection.execute("SELECT pg_total_relation_size(to_regclass(%s))", (name,)).fetchone()
                sizes[name] = int(row[0]) if row else 0
            row = connection.execute("SELECT vector_report FROM library").fetchone()
        documents, passages = self._journal.count()
        return LibraryInfo(
            path=self._database.address.public,
            manifest=self.manifest,
            documents=documents,
            passages=passages,
            exact=passages <= search.EXACT_PASSAGES,
            index=vector_index.read_report(row[0]) if row is not None else None,
            unindexed=0,
            sources=tuple(self._journal.sources()),
            bytes_on_disk=sizes,
            outgrown=False,
            open_batches=0,
            problems=(),
        )


def read_library(database: Database) -> tuple[int, LibraryManifest]:
    """Return the version of the tables and the manifest. Raise LibraryMissing or LibraryDamaged."""
    version, text = database.read_library()
    try:
        return version, LibraryManifest(**json.loads(text))
    except (ValueError, TypeError):
        raise LibraryDamaged(
            f"{database.address.public}: the manifest cannot be read: restore the database from its backup"
        ) from None
