"""The library: a folder on disk that keeps passages and finds them again, in step after a kill at any moment.

    manifest.json    what the library is; makes the folder one            write.lock    held by the one writer
    journal.sqlite   batches begun and not finished; documents acknowledged
    passages.lance   passages and vectors: the truth                      words/        BM25 index, made from it
    index.json       how good the vector index is, where there is one: searches scan where it is not good enough

A write goes: journal entry, one atomic Lance commit, one tantivy commit, journal entry done together with the table of
documents (acknowledged). Whatever is begun and not done is settled before the next write, from what Lance holds.

Does not know how documents are chunked or encoded.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import numpy as np
from filelock import FileLock

from epicrisis.corpus.reader_base import ArticleStatement
from epicrisis.errors import InputError, LibraryDamaged, LibraryError, StorageError
from epicrisis.library import manifest as manifests
from epicrisis.library.bm25_search import best_by_words
from epicrisis.library.checksums import changed_before_compaction, damaged, remove_damaged_versions, unrecorded
from epicrisis.library.consistency import LibraryInfo, LibraryParts
from epicrisis.library.engine_errors import ours
from epicrisis.library.journal import DocumentRow, IngestedFile, Journal, Marks
from epicrisis.library.library_folder import (
    PARTS,
    REPLIES,
    check_parts,
    check_vacant,
    clear,
    locked,
    remove_leftovers,
    sizes,
)
from epicrisis.library.manifest import LibraryManifest
from epicrisis.library.passage_checks import check_documents, check_scope
from epicrisis.library.passage_table import PassageTable, StoredPassage, stored_passages
from epicrisis.library.rebuild import REBUILT, rebuild, rows_of
from epicrisis.library.retraction_marking import (
    documents_named,
    marks_for,
    marks_to_change,
    statements_about,
    statements_in,
)
from epicrisis.library.vector_index import DEFAULT_RECALL, IndexReport, probing, read_report, refreshed
from epicrisis.library.vector_search import EXACT_LIMIT, Neighbours
from epicrisis.library.word_index import WordIndex
from epicrisis.privacy import local_path, restrict_to_owner
from epicrisis.protocols import StoredDocument, Vectors
from epicrisis.types import Document, Hit, Origin, Passage, Scope

_COMPACT_AFTER = 200
FILTERS_FROM = 5_000
"""From so many passages on an index of documents and patients pays for itself at the first search."""


class Library:
    """A PassageStore on disk. One writer at a time, any number of readers beside it; safe to call from threads.

    Made by `create` (then open for writing) or `open`. Engines' errors come out as StorageError or LibraryDamaged.
    """

    def __init__(self, folder: Path, manifest: LibraryManifest, lock: FileLock | None, *, build: bool = False) -> None:
        """Not for callers: use `create` or `open`. `lock` is held, and is None for a reader."""
        self._folder = folder
        self._manifest = manifest
        self._write_lock = lock
        self._threads = threading.RLock()
        self._writes = 0
        # A new library is its owner's alone until the owner lets others in; one with notes stays so.
        self._private = build
        self._settled_deletions: frozenset[str] = frozenset()
        self._table = PassageTable(folder, manifest.dimensions, create=build)
        self._neighbours = Neighbours(folder, self._table, manifest.dimensions)
        self._words = WordIndex(folder, create=build)
        self._journal = Journal.create(folder) if build else Journal(folder)
        self._parts = LibraryParts(folder, self._table, self._words, self._journal)

    # -- opening ------------------------------------------------------------------------------------------------------

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
    ) -> Self:
        """A new, empty library, open for writing. Killed half-way, it can be created again.

        Raises LibraryError where the folder holds a library or anything else, LibraryBusy, StorageError.
        """
        folder = local_path(path).absolute()
        manifest = manifests.new_manifest(
            encoder_fingerprint=encoder_fingerprint,
            encoder_name=encoder_name,
            dimensions=dimensions,
            max_tokens=max_tokens,
            overlap=overlap,
            splitter=splitter,
        )
        check_vacant(folder)
        with ours(folder):
            # Patients' records may lie here: others get in only when the owner lets them.
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            restrict_to_owner(folder)
        lock = locked(folder)
        try:
            check_vacant(folder)
            manifests.write_manifest(folder, manifest)
            return cls._build(folder, manifest, lock)
        except BaseException:
            lock.release()
            raise

    @classmethod
    def open(cls, path: Path | str, *, write: bool = False, encoder_fingerprint: str | None = None) -> Self:
        """The library at `path`. A writer takes the lock, and settles batches and marks that a killed one left behind.

        Raises LibraryMissing, LibraryDamaged, LibraryBusy (another writer), EncoderMismatch (where a fingerprint is
        given and is not the library's) or StorageError.
        """
        folder = local_path(path).absolute()
        manifest = manifests.read_manifest(folder)
        if encoder_fingerprint is not None:
            manifests.check_encoder(folder, manifest, encoder_fingerprint)
        lock = locked(folder) if write else None
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
    def _build(cls, folder: Path, manifest: LibraryManifest, lock: FileLock) -> Self:
        """Makes the parts; the manifest says complete only after that, so a kill in between leaves nothing in doubt."""
        clear(folder, *PARTS)
        complete = manifests.completed(manifest)
        library = cls(folder, complete, lock, build=True)
        library._journal.rebuild([], library._parts.marks())
        manifests.write_manifest(folder, complete)
        return library

    @classmethod
    def _open(cls, folder: Path, manifest: LibraryManifest, lock: FileLock | None) -> Self:
        if not manifest.complete:
            raise LibraryDamaged(
                f"{folder} is being made, or its making was broken off: try again in a moment, or run the command that "
                "makes it again"
            )
        check_parts(folder)
        if lock is not None:
            remove_leftovers(folder)
            clear(folder, REBUILT)
        library = cls(folder, manifest, lock)
        try:
            library._parts.check_whole()
            if lock is not None:
                library.mark_due()
                library._parts.check_in_step()
                if library._table.has_notes():
                    library._make_private()
        except BaseException:
            library._close_parts()
            raise
        return library

    def close(self) -> None:
        """Frees the lock and the files. Idempotent."""
        with self._threads:
            try:
                self._close_parts()
            finally:
                if self._write_lock is not None:
                    if self._private and self._write_lock.is_locked:
                        restrict_to_owner(self._folder)
                    self._write_lock.release()

    def _make_private(self) -> None:
        """Close the folder to others, now and when this writer ends: engines make their files by the umask."""
        self._private = True
        restrict_to_owner(self._folder)

    def _close_parts(self) -> None:
        try:
            self._words.close()
        finally:
            self._neighbours.close()
            self._journal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def path(self) -> Path:
        return self._folder

    @property
    def manifest(self) -> LibraryManifest:
        return self._manifest

    # -- writing ------------------------------------------------------------------------------------------------------

    def add(self, documents: Sequence[StoredDocument]) -> None:
        """All of them with one commit, durable when it returns; a reader sees each document's old version or its new.

        Raises ValueError for what is no StoredDocument of this library (see the seam), LibraryError for a reader.
        """
        if not documents:
            return
        check_documents(documents, self._manifest.dimensions)
        ids = [document.id for document in documents]
        with self._threads:
            self._settle()
            if not self._private and any(passage.patient for each in documents for passage in each.passages):
                self._make_private()
            replaced = self._journal.hashes(ids)
            origins = {each.id: (each.content_hash, each.origin) for each in documents if each.origin is not None}
            sequence = self._journal.begin(ids, origins)
            self._table.write(documents, replaced)
            self._finish(sequence, ids, stored_passages(documents))
            self._writes += 1
            if self._writes % _COMPACT_AFTER == 0:
                self.compact()

    def delete(self, document_ids: Sequence[str], revisions: Mapping[str, str] | None = None) -> None:
        """Durable when it returns. Unknown ids are no error. Raises LibraryError for a reader."""
        with self._threads:
            self._settle()
            if revisions is None:  # A person's wish, no update: replies that were kept may quote what goes.
                clear(self._folder, REPLIES)
            else:
                self._journal.bury(revisions)
            known = list(self._journal.hashes(document_ids))
            if known:
                sequence = self._journal.begin(known)
                self._table.delete(known)
                self._finish(sequence, known, [])

    @property
    def settled_deletions(self) -> frozenset[str]:
        """Return the documents whose deletion a killed writer began, and which this one brought to its end."""
        return self._settled_deletions

    def prepare_marks(self) -> None:
        """Make room for statements about articles; of a library that has none yet its own notices are read."""
        with self._threads:
            self._settle()
            if not self._journal.has_marks:
                self._table.refresh()
                self._journal.make_marks(statements_in(self._table))

    def state(self, sources: Sequence[str], marked: Sequence[ArticleStatement]) -> None:
        """Put what is stated here in the place of all that these sources stated before. Durable when it returns.

        Documents that are there say so after `mark_due`, those that are added later at once (`marks_for`).
        """
        with self._threads:
            self.prepare_marks()
            self._journal.state(sources, statements_about(marked))

    def marks_for(self, documents: Sequence[Document]) -> Mapping[str, list[dict[str, Any]]]:
        """Return what was stated of those of the documents that have marks, by id, as their metadata hold it."""
        with self._threads:
            return marks_for(self._journal, documents)

    def mark_due(self) -> int:
        """Bring the marks of documents in step with what was stated; return how many changed. Killed, it goes on."""
        count = 0
        with self._threads:
            self._settle()
            if due := self._journal.due():
                self._table.refresh()
                for ids in documents_named(self._journal, self._table, frozenset(due)):
                    if marks := marks_to_change(self._journal, self._table, ids):
                        sequence = self._journal.begin(changed := sorted(marks))
                        self._table.remark(marks)
                        self._finish(sequence, changed, self._table.passages_of(changed))
                    count += len(marks)
                self._journal.settle_due(due)
        return count

    def add_source(self, source: IngestedFile) -> None:
        """Remembers that a file was added whole. Raises LibraryError for a reader."""
        with self._threads:
            self._settle()
            self._journal.add_source(source)

    def compact(self) -> None:
        """Joins the small files that many commits leave behind, and indexes what fetches look at where there is much of
        it; never necessary, and on a disk too full left undone."""
        with self._threads:
            self._settle()
            self._check_files()
            sequence = self._journal.begin([])
            # No document depends on it: the batch stays open, and the next write settles it.
            with suppress(StorageError):
                self._table.compact()
                if self._table.count() >= FILTERS_FROM:
                    self._neighbours.build_filters()
                self._acknowledge(sequence, [], [], self._parts.marks())

    def optimize(
        self, recall: float = DEFAULT_RECALL, *, rebuild: bool = False, on_step: Callable[[str], None] | None = None
    ) -> IndexReport | None:
        """Joins small files; above EXACT_LIMIT passages builds or refreshes the index and measures its recall@16.

        An index below `recall` is not used. Killed at any moment, the library is whole; the next call begins again.
        """
        say = on_step or (lambda step: None)
        with self._threads:
            self._settle()
            say("comparing checksums")
            self._check_files()
            self._journal.record_files()
            sequence = self._journal.begin([])
            say("joining small files")
            self._table.compact()
            passages = self._table.count()
            report = None
            if passages > EXACT_LIMIT:
                report = refreshed(self._folder, self._neighbours, passages, recall, rebuild, say)
            self._acknowledge(sequence, [], [], self._parts.marks())
        return report

    def _settle(self) -> None:
        """Brings words and documents in step with Lance for every batch that was begun and not finished."""
        if self._write_lock is None or not self._write_lock.is_locked:
            raise LibraryError(f"{self._folder} is not open for writing: open it with write=True")
        if batches := self._journal.open_batches():
            # A write that failed may have reached Lance all the same.
            self._table.refresh()
        for sequence, ids in batches:
            passages = self._table.passages_of(ids)
            there = {stored.passage.document_id for stored in passages}
            self._settled_deletions |= self._journal.hashes(ids).keys() - there
            self._finish(sequence, ids, passages)

    def _finish(self, sequence: int, document_ids: Sequence[str], passages: Sequence[StoredPassage]) -> None:
        """The second half of every write: words, then the acknowledgement. `passages`: what Lance now holds of them."""
        words = self._words.replace(document_ids, passages)
        self._acknowledge(sequence, document_ids, rows_of(passages), Marks(self._table.version, words))

    def _acknowledge(
        self, sequence: int, document_ids: Sequence[str], rows: Sequence[DocumentRow], marks: Marks
    ) -> None:
        """Record the data files that the batch wrote, where the library records them, and end the batch."""
        recorded = self._journal.files()
        files = None if recorded is None else unrecorded(self._folder, recorded)
        self._journal.finish(sequence, document_ids, rows, marks, files)

    def _check_files(self) -> None:
        """Raise LibraryDamaged where a compaction would write changed bits again, as if they were right."""
        recorded = self._journal.files() or {}
        if names := changed_before_compaction(self._folder, recorded, self._manifest.dimensions):
            raise LibraryDamaged(damaged(self._folder, names))
        remove_damaged_versions(self._folder, recorded)

    # -- searching ----------------------------------------------------------------------------------------------------

    def search_vectors(self, vector: Vectors, k: int, scope: Scope) -> tuple[Hit, ...]:
        """See PassageStore. Raises InputError for a vector that is not of the library's dimension, or not finite."""
        check_scope(scope)
        vector = np.ascontiguousarray(vector, dtype=np.float32)
        if vector.shape != (self._manifest.dimensions,) or not np.isfinite(vector).all():
            raise InputError(
                f"the query's vector must be {self._manifest.dimensions} finite numbers, got shape {vector.shape}: "
                f"encode it with {self._manifest.encoder_name}"
            )
        if k < 1:
            return ()
        with self._threads:
            self._table.refresh()
            ranked = self._neighbours.nearest(vector, k, scope, probing(self._folder))
            known = self._table.fetch([passage_id for passage_id, _ in ranked])
        return tuple(Hit(known[passage_id].passage, score, rank) for rank, (passage_id, score) in enumerate(ranked))

    def search_words(self, query: str, k: int, scope: Scope, within: Sequence[str] | None = None) -> tuple[Hit, ...]:
        """See PassageStore. A document that is being replaced this very moment is not found by words."""
        check_scope(scope)
        if k < 1:
            return ()
        with self._threads:
            ranked = best_by_words(self._table, self._words, self._neighbours, query, k, scope, within)
            known = self._table.fetch([passage_id for passage_id, _ in ranked])
        hits = [(known[passage_id].passage, score) for passage_id, score in ranked]
        seen = [(passage, score) for passage, score in hits if scope.admits(passage)]
        return tuple(Hit(passage, score, rank) for rank, (passage, score) in enumerate(seen))

    def fetch(self, passage_ids: Sequence[str], scope: Scope) -> tuple[Passage, ...]:
        """See PassageStore. An id that is not there and one that may not be seen are told in the same words."""
        check_scope(scope)
        with self._threads:
            self._table.refresh()
            known = self._table.fetch(list(dict.fromkeys(passage_ids)))
        for passage_id in passage_ids:
            if passage_id not in known or not scope.admits(known[passage_id].passage):
                raise InputError(f"no passage {passage_id!r} in this scope: check the id, the patient and the date")
        return tuple(known[passage_id].passage for passage_id in passage_ids)

    def record(self, scope: Scope) -> tuple[Passage, ...]:
        """See PassageStore."""
        check_scope(scope)
        with self._threads:
            self._table.refresh()
            found = [] if scope.patient is None else self._table.of_patient(scope.patient)
        seen = (stored.passage for stored in found if scope.admits(stored.passage))
        return tuple(sorted(seen, key=lambda passage: (passage.document_id, passage.ordinal)))

    def content_hashes(self, document_ids: Sequence[str]) -> Mapping[str, str]:
        """`content_hash` of those of the documents that are there (acknowledged)."""
        with self._threads:
            return self._journal.hashes(document_ids)

    def revisions(self, document_ids: Sequence[str]) -> Mapping[str, str | None]:
        """The revision of those of the documents that are there or were taken back by their source."""
        with self._threads:
            return self._journal.revisions(document_ids)

    def origins(self, document_ids: Sequence[str]) -> Mapping[str, Origin]:
        """Map each of the documents whose file is known to that file. For a writer."""
        with self._threads:
            return self._journal.origins(document_ids)

    def named_at(self, path: str) -> Origin | None:
        """Return the origin of a document that is named by the file at this path. For a writer."""
        with self._threads:
            return self._journal.named_at(path)

    def named_with(self, sha256: str) -> Origin | None:
        """Return the origin of a document that is named by a file of this content. For a writer."""
        with self._threads:
            return self._journal.named_with(sha256)

    def set_origins(self, origins: Mapping[str, Origin]) -> None:
        """Remember the files of documents that are there. Raises LibraryError for a reader."""
        with self._threads:
            self._settle()
            self._journal.set_origins(origins)

    def vectors_of(self, document_ids: Sequence[str]) -> Mapping[tuple[str, str], Vectors]:
        """(title, text) -> vector `(d,)` of all passages of these documents, as they are stored (float16)."""
        with self._threads:
            self._table.refresh()
            return self._table.vectors_of(document_ids)

    def some_vectors(self, count: int) -> list[tuple[str, str, Vectors]]:
        """(title, text, vector) of the first passages of the table."""
        return self._table.some_vectors(count)

    def sources(self) -> list[IngestedFile]:
        """The files that were added whole."""
        with self._threads:
            return self._journal.sources()

    def count(self) -> tuple[int, int]:
        """(documents, passages), acknowledged."""
        with self._threads:
            return self._journal.count()

    def info(self) -> LibraryInfo:
        """What is there, and whether its parts agree. Counts everything: seconds for millions of passages."""
        with self._threads:
            for _ in range(5):
                before = self._journal.data_version()
                documents, passages = self._journal.recount()
                batches = len(self._journal.open_batches())
                problems = [] if batches else self._parts.problems(passages)
                # A writer at work: what was counted may be from before and after a batch of its.
                if self._journal.data_version() == before:
                    break
            index = read_report(self._folder) if passages > EXACT_LIMIT else None
        return LibraryInfo(
            path=str(self._folder),
            manifest=self._manifest,
            documents=documents,
            passages=passages,
            exact=passages <= EXACT_LIMIT or index is None or not index.good,
            index=index,
            unindexed=self._neighbours.unindexed() if passages > EXACT_LIMIT else 0,
            sources=tuple(self.sources()),
            bytes_on_disk=sizes(self._folder),
            open_batches=batches,
            problems=tuple(problems),
        )

    @classmethod
    def repair(cls, path: Path | str) -> LibraryInfo:
        """Make the word index and the table of documents anew from the passages. Killed half-way, run it again.

        A library whose creation was interrupted is completed, and is empty. Passages that Lance lost cannot be made:
        raises LibraryDamaged then. Raises LibraryBusy, StorageError.
        """
        folder = local_path(path).absolute()
        manifests.read_manifest(folder)
        lock = locked(folder)
        try:
            manifest = manifests.read_manifest(folder)
            if manifest.complete:
                rebuild(folder, manifest.dimensions)
            else:
                cls._build(folder, manifest, lock)._close_parts()
        finally:
            lock.release()
        with cls.open(folder) as library:
            return library.info()
