"""The library: a folder that stores and searches passages, and stays consistent if it is killed at any moment.

    manifest.json    what the library is; makes the folder a library      write.lock    held by the only writer
    journal.sqlite   open batches and acknowledged documents
    passages.sqlite  passages and vectors, the source of truth; `passages.lance` in a large library
    words/           BM25 index, built from them
    index.json       quality of the vector index: searches scan if it is too low

A write has four steps: open a batch in the journal, one atomic commit of the table, one tantivy commit, close the batch
and acknowledge its documents. The next write finishes open batches from the content of the table.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from filelock import FileLock

from epicrisis.core.errors import LibraryDamaged, LibraryError, StorageError
from epicrisis.core.protocols import ScoredId, StoredDocument, Vectors
from epicrisis.core.types import Document, Origin, Passage, Scope
from epicrisis.corpus.base.reader_base import ArticleStatement
from epicrisis.library.base import manifest as manifests
from epicrisis.library.base.engine_errors import translate_errors
from epicrisis.library.base.manifest import LibraryManifest
from epicrisis.library.base.passage_table import PassageTable, StoredPassage, check_documents, check_scope, sql_in
from epicrisis.library.base.remote_store import load_engine
from epicrisis.library.core import library_parts as parts
from epicrisis.library.core.journal import IngestedFile, Journal, statements_about
from epicrisis.library.core.library_parts import LibraryInfo, LibraryParts
from epicrisis.library.core.retraction_marking import (
    compute_marks,
    find_changed_marks,
    find_documents,
    read_library_statements,
)
from epicrisis.library.engines import engine_choice as tables
from epicrisis.library.engines.checksums import check_before_compaction
from epicrisis.library.engines.engine_choice import TableEngine
from epicrisis.library.engines.index_recall import DEFAULT_RECALL, IndexReport
from epicrisis.library.engines.lance_table import has_lance
from epicrisis.library.engines.vector_index import read_search_parameters, refresh_index
from epicrisis.library.engines.vector_search import EXACT_LIMIT, VectorSearch, check_query_vector
from epicrisis.library.engines.word_index import WordIndex
from epicrisis.system.local_only import restrict_to_owner
from epicrisis.system.remote_libraries import library_folder

_COMPACT_AFTER = 200
FILTERS_FROM = 5_000
"""Minimum number of passages for indexes of the filter columns, which then pay off at the first search."""


class LibraryStore:
    """A PassageStore on disk for one writer and any number of readers at a time. It is thread-safe.

    Use `create` or `open`. Errors of the engines are raised as StorageError or LibraryDamaged.
    """

    def __init__(
        self, folder: Path, manifest: LibraryManifest, lock: FileLock | None, *, build: TableEngine | None = None
    ) -> None:
        """Use `create` or `open` instead. `lock` is acquired, or None for a reader. `build` creates all parts."""
        self.path = folder
        self.manifest = manifest
        self._write_lock = lock
        self._thread_lock = threading.RLock()
        self._writes = 0
        # A new library is private until its owner gives others access. A library with notes stays private.
        self._private = build is not None
        self.settled_deletions: frozenset[str] = frozenset()
        """The documents whose deletion a killed writer began and this writer finished."""
        if build is None:
            table = tables.open_table(folder, manifest.dimensions)
        else:
            table = tables.create_table(folder, manifest.dimensions, build)
        words = WordIndex(folder, create=build is not None)
        self._journal = Journal(folder) if build is None else Journal.create(folder)
        self._parts = LibraryParts(folder, table, words, self._journal)

    @property
    def _table(self) -> PassageTable:
        return self._parts.table

    @classmethod
    def create(
        cls,
        path: Path | str,
        *,
        encoder_fingerprint: str,
        encoder_name: str,
        dimensions: int,
        max_tokens: int,
        overlap: int,
        splitter: str = "tokens",
        engine: TableEngine = "sqlite",
    ) -> LibraryStore:
        """Create an empty library and open it for writing. After a kill it can be created again.

        A library in SQLite moves to the other engine when it has grown. Raise InputError for impossible numbers,
        LibraryError if the folder is not empty or the engine is not installed, LibraryBusy or StorageError.
        """
        folder = library_folder(path).absolute()
        manifest = manifests.build_manifest(
            encoder_fingerprint, encoder_name, dimensions, max_tokens=max_tokens, overlap=overlap, splitter=splitter
        )
        if (module := load_engine(folder)) is not None:
            library: LibraryStore = module.create_library(folder, manifest)
            return library
        return cls._create(folder, manifest, engine)

    @classmethod
    def _create(cls, folder: Path, manifest: LibraryManifest, engine: TableEngine) -> Self:
        parts.check_vacant(folder)
        with translate_errors(folder):
            # The library may hold patients' records, so only its owner gets access.
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            restrict_to_owner(folder)
        lock = parts.acquire_lock(folder)
        try:
            parts.check_vacant(folder)
            manifests.write_manifest(folder, manifest)
            return cls._build(folder, manifest, lock, engine)
        except BaseException:
            lock.release()
            raise

    @classmethod
    def open(cls, path: Path | str, *, write: bool = False, encoder_fingerprint: str | None = None) -> LibraryStore:
        """Open the library at `path`. A writer acquires the lock and finishes the batches and marks of a killed writer.

        Raise LibraryMissing, LibraryDamaged, LibraryBusy (another writer), EncoderMismatch (for another fingerprint
        than the library's) or StorageError.
        """
        folder = library_folder(path).absolute()
        manifest = manifests.read_manifest(folder)
        if encoder_fingerprint is not None:
            manifests.check_encoder(folder, manifest, encoder_fingerprint)
        if (module := load_engine(folder)) is not None:
            library: LibraryStore = module.open_library(folder, write=write)
            return library
        lock = parts.acquire_lock(folder) if write else None
        try:
            if lock is not None:
                manifest = manifests.read_manifest(folder)
                if not manifest.complete:
                    return cls._build(folder, manifest, lock)
            return cls._open(folder, manifest, lock)
        except BaseException:
            if lock is not None:
                lock.release()
            raise

    @classmethod
    def _build(cls, folder: Path, manifest: LibraryManifest, lock: FileLock, engine: TableEngine = "sqlite") -> Self:
        """Create the parts, then mark the manifest complete, so that an interrupted creation is recognised."""
        parts.remove_parts(folder, *parts.PARTS)
        complete = manifests.mark_complete(manifest)
        library = cls(folder, complete, lock, build=engine)
        library._journal.rebuild([], library._parts.checkpoint())
        manifests.write_manifest(folder, complete)
        return library

    @classmethod
    def _open(cls, folder: Path, manifest: LibraryManifest, lock: FileLock | None) -> Self:
        if not manifest.complete:
            raise LibraryDamaged(
                f"{folder} is being created, or its creation was interrupted: try again in a moment, or repeat the "
                "command that creates it"
            )
        parts.check_parts(folder)
        if lock is not None:
            parts.remove_leftovers(folder)
            parts.remove_parts(folder, parts.REBUILT)
        library = cls(folder, manifest, lock)
        try:
            library._parts.check_whole()
            if lock is not None:
                library.update_due_marks()
                library._parts.check_in_step()
                if library._table.has_notes():
                    library._make_private()
        except BaseException:
            library._parts.close()
            raise
        return library

    def close(self) -> None:
        """Release the lock and the files. Further calls have no effect."""
        with self._thread_lock:
            try:
                if self._write_lock is not None and self._write_lock.is_locked:
                    # Where that fails, as on a full disk, the next writer does it.
                    with suppress(StorageError, LibraryDamaged):
                        self._table.purge()
                self._parts.close()
            finally:
                if self._write_lock is not None:
                    if self._private and self._write_lock.is_locked:
                        restrict_to_owner(self.path)
                    self._write_lock.release()

    def _make_private(self) -> None:
        """Remove other users' access, now and on `close`: engines create files with default permissions."""
        self._private = True
        restrict_to_owner(self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(self, documents: Sequence[StoredDocument]) -> None:
        """Add or replace all documents with one durable commit. Readers see the old or the new version of each.

        Raise ValueError for documents that do not fit this library, LibraryError for a reader.
        """
        if not documents:
            return
        check_documents(documents, self.manifest.dimensions)
        ids = [document.id for document in documents]
        with self._thread_lock:
            self._settle()
            passages = []
            for document in documents:
                for passage in document.passages:
                    passages.append(StoredPassage(passage, document.content_hash, document.revision))
            if not self._private and any(stored.passage.patient for stored in passages):
                self._make_private()
            replaced = self._journal.hashes(ids)
            origins = {}
            for document in documents:
                if document.origin is not None:
                    origins[document.id] = (document.content_hash, document.origin)
            sequence = self._journal.begin(ids, origins)
            self._table.write(documents, replaced)
            self._parts.finish_batch(sequence, ids, passages)
            self._writes += 1
            if self._writes % _COMPACT_AFTER == 0:
                self.compact()

    def delete(self, document_ids: Sequence[str], revisions: Mapping[str, str] | None = None) -> None:
        """Delete documents durably. Unknown ids are ignored. Raise LibraryError for a reader.

        `revisions` are given for deletions by the source, which are recorded. Without them a person has requested the
        deletion, and cached replies are removed because they may quote the documents.
        """
        with self._thread_lock:
            self._settle()
            if revisions is None:
                parts.remove_parts(self.path, parts.REPLIES)
            else:
                self._journal.record_deletions(revisions)
            existing = list(self._journal.hashes(document_ids))
            if existing:
                sequence = self._journal.begin(existing)
                self._table.delete(existing)
                self._parts.finish_batch(sequence, existing, [])

    def prepare_statements(self) -> None:
        """Create the tables of statements if they are missing, and fill them from the library's own notices."""
        with self._thread_lock:
            self._settle()
            if not self._journal.has_statements:
                self._table.refresh()
                self._journal.create_statements(read_library_statements(self._table))

    def replace_statements(self, sources: Sequence[str], articles: Sequence[ArticleStatement]) -> None:
        """Replace all earlier statements of the sources, durably.

        `update_due_marks` applies them to existing documents, and `compute_marks` to new ones.
        """
        with self._thread_lock:
            self.prepare_statements()
            self._journal.replace_statements(sources, statements_about(articles))

    def compute_marks(self, documents: Sequence[Document]) -> Mapping[str, list[dict[str, Any]]]:
        """Map the ids of marked documents to their marks, in the form of the metadata."""
        with self._thread_lock:
            return compute_marks(self._journal, documents)

    def update_due_marks(self) -> int:
        """Apply changed statements to existing documents and return the number of changed documents.

        After a kill the next call continues.
        """
        count = 0
        with self._thread_lock:
            self._settle()
            if targets := self._journal.due_targets():
                self._table.refresh()
                for ids in find_documents(self._journal, self._table, frozenset(targets)):
                    if marks := find_changed_marks(self._journal, self._table, ids):
                        self._write_marks(marks)
                    count += len(marks)
                self._journal.clear_due(targets)
        return count

    def _write_marks(self, marks: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        """Set the marks of these documents with one durable commit."""
        changed = sorted(marks)
        sequence = self._journal.begin(changed)
        self._table.write_marks(marks)
        self._parts.finish_batch(sequence, changed, self._table.passages_of(changed))

    def add_source(self, source: IngestedFile) -> None:
        """Record that a file was added completely. Raise LibraryError for a reader."""
        with self._thread_lock:
            self._settle()
            self._journal.add_source(source)

    def compact(self, on_step: Callable[[str], None] | None = None) -> None:
        """Join the small files of many commits, and index the filter columns of a large library.

        This is optional and has no effect on a full disk. A database also builds missing indexes, and tells `on_step`
        how far it is. Raise LibraryError for a reader.
        """
        with self._thread_lock:
            self._settle()
            check_before_compaction(self.path, self._journal.files(), self.manifest.dimensions)
            sequence = self._journal.begin([])
            # No document depends on the batch. If it stays open, the next write finishes it.
            with suppress(StorageError):
                self._table.compact()
                if self._table.count() >= FILTERS_FROM:
                    self._parts.vectors.build_filters()
                self._parts.acknowledge(sequence, [], [], self._parts.checkpoint())

    def optimize(
        self, recall: float = DEFAULT_RECALL, *, rebuild: bool = False, on_step: Callable[[str], None] | None = None
    ) -> IndexReport | None:
        """Join small files. Above EXACT_LIMIT passages also build or refresh the vector index and measure its recall.

        Searches do not use an index below `recall`. After a kill the next call starts over.
        """
        report_step = on_step or (lambda step: None)
        with self._thread_lock:
            self._settle()
            self.move_if_large(report_step)
            report_step("comparing checksums")
            check_before_compaction(self.path, self._journal.files(), self.manifest.dimensions)
            sequence = self._journal.begin([])
            report_step("joining small files")
            self._table.compact()
            passages = self._table.count()
            report, vectors = None, self._parts.vectors
            if passages > EXACT_LIMIT and isinstance(vectors, VectorSearch):
                report = refresh_index(self.path, vectors, passages, recall, rebuild, report_step)
            self._parts.acknowledge(sequence, [], [], self._parts.checkpoint())
        return report

    def purge(self, on_step: Callable[[str], None]) -> None:
        """Rewrite all files, so that none holds anything of deleted documents. Follow it with `optimize`."""
        with self._thread_lock:
            self._settle()
            self._parts.rewrite(on_step)

    def list_copies(self) -> tuple[str, ...]:
        """Return the places of copies of deleted documents after `purge`, except backups.

        Raise LibraryError if this user may not purge the library.
        """
        return ()

    def prepare_bulk(self) -> None:
        """Prepare for many additions, which end with `optimize`. A library in a folder needs no preparation."""

    def prepare_addition(self) -> None:
        """Prepare for an addition, which ends with `compact`. A library in a folder needs no preparation."""

    def move_if_large(self, on_step: Callable[[str], None]) -> bool:
        """Move more than EXACT_LIMIT passages to LanceDB. Return whether they stay, as the extra `large` is missing.

        After a kill the next call starts over. Raise LibraryError for a reader, StorageError or LibraryDamaged.
        """
        with self._thread_lock:
            if not self._parts.is_outgrown():
                return False
            if has_lance():
                self._settle()
                self._parts.move_to_lance(on_step)
            return not has_lance()

    def _settle(self) -> None:
        """Finish open batches: bring the word index and the journal in step with the table."""
        if self._write_lock is None or not self._write_lock.is_locked:
            raise LibraryError(f"{self.path} is open for reading: open it with write=True")
        if batches := self._journal.open_batches():
            # A failed write may still have reached the table.
            self._table.refresh()
        for sequence, ids in batches:
            passages = self._table.passages_of(ids)
            remaining = {stored.passage.document_id for stored in passages}
            self.settled_deletions |= self._journal.hashes(ids).keys() - remaining
            self._parts.finish_batch(sequence, ids, passages)

    def search_vectors(self, vector: Vectors, k: int, scope: Scope) -> tuple[ScoredId, ...]:
        """Search by vector, see PassageStore. Raise InputError for a vector of another dimension or not finite."""
        check_scope(scope)
        vector = check_query_vector(vector, self.manifest)
        if k < 1:
            return ()
        with self._thread_lock, self._parts.reopen_if_moved().snapshot():
            ranking = self._parts.vectors.nearest(vector, k, scope, read_search_parameters(self.path))
            return self._parts.mark_retracted(ranking)

    def search_words(
        self, query: str, k: int, scope: Scope, within: Sequence[str] | None = None
    ) -> tuple[ScoredId, ...]:
        """Search by words, see PassageStore. Documents being replaced during the search may be missing."""
        check_scope(scope)
        if k < 1:
            return ()
        with self._thread_lock:
            return self._parts.search_words(query, k, scope, within)

    def fetch(self, passage_ids: Sequence[str], scope: Scope) -> tuple[Passage, ...]:
        """Fetch the existing passages of the scope, see PassageStore."""
        check_scope(scope)
        with self._thread_lock:
            present = self._parts.newest_table().fetch(list(dict.fromkeys(passage_ids)))
        passages = [present[passage_id] for passage_id in passage_ids if passage_id in present]
        return tuple(passage for passage in passages if scope.admits(passage))

    def fetch_record(self, scope: Scope) -> tuple[Passage, ...]:
        """Return the record of the scope's patient, see PassageStore."""
        check_scope(scope)
        if scope.patient is None:
            return ()
        with self._thread_lock:
            rows = self._parts.newest_table().select(sql_in("patient", [scope.patient]))
        passages = [stored.passage for stored in rows if scope.admits(stored.passage)]
        return tuple(sorted(passages, key=lambda passage: (passage.document_id, passage.ordinal)))

    def open_table(self) -> PassageTable:
        """Return a new handle on the passage table, at its newest version."""
        return tables.open_table(self.path, self.manifest.dimensions)

    def content_hashes(self, document_ids: Sequence[str]) -> Mapping[str, str]:
        """Map the acknowledged documents among these to their content hashes."""
        with self._thread_lock:
            return self._journal.hashes(document_ids)

    def revisions(self, document_ids: Sequence[str]) -> Mapping[str, str | None]:
        """Map the documents among these that exist, or were deleted by their source, to their revisions."""
        with self._thread_lock:
            return self._journal.revisions(document_ids)

    def origins(self, document_ids: Sequence[str]) -> Mapping[str, Origin]:
        """Map the documents with a known file to this file."""
        with self._thread_lock:
            return self._journal.origins(document_ids)

    def find_origin(self, *, path: str | None = None, sha256: str = "") -> Origin | None:
        """Return the origin of a document named after the file at this path, or with this content, or None."""
        with self._thread_lock:
            return self._journal.find_origin(path=path, sha256=sha256)

    def set_origins(self, origins: Mapping[str, Origin]) -> None:
        """Record the files of existing documents. Raise LibraryError for a reader."""
        with self._thread_lock:
            self._settle()
            self._journal.set_origins(origins)

    def vectors_of(self, document_ids: Sequence[str]) -> Mapping[tuple[str, str], Vectors]:
        """Map (title, text) of all passages of these documents to their vectors `(d,)`, with float16 precision."""
        with self._thread_lock:
            return self._parts.newest_table().vectors_of(document_ids)

    def sources(self) -> list[IngestedFile]:
        """Return the files that were added completely."""
        with self._thread_lock:
            return self._journal.sources()

    def count(self) -> tuple[int, int]:
        """Return the numbers of acknowledged (documents, passages)."""
        with self._thread_lock:
            return self._journal.count()

    def info(self) -> LibraryInfo:
        """Return a summary, with the agreement of the parts. Takes seconds for millions of passages."""
        with self._thread_lock:
            return self._parts.info(self.manifest)
