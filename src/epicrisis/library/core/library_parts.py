"""The parts of a library: the files in its folder, the second half of every write, checks, and the repair."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from filelock import FileLock, Timeout

from epicrisis.core.errors import LibraryBusy, LibraryDamaged, LibraryError
from epicrisis.core.printable import agree, count_noun
from epicrisis.core.protocols import ScoredId
from epicrisis.core.types import Origin, Scope
from epicrisis.library.base import manifest as manifests
from epicrisis.library.base.engine_errors import REPAIR, translate_errors
from epicrisis.library.base.manifest import LibraryManifest, sync_path
from epicrisis.library.base.passage_table import PassageTable, StoredPassage
from epicrisis.library.base.remote_store import is_in_database
from epicrisis.library.base.sqlite_files import connect, rewrite_file
from epicrisis.library.core import journal as journals
from epicrisis.library.core import patient_identities
from epicrisis.library.core.journal import Checkpoint, DocumentRow, IngestedFile, Journal, Statement
from epicrisis.library.engines import engine_choice as tables
from epicrisis.library.engines import lance_table, sqlite_table
from epicrisis.library.engines import word_index as indexes
from epicrisis.library.engines.checksums import ChecksumChanges, check_small_files, find_checksum_changes
from epicrisis.library.engines.index_recall import IndexReport
from epicrisis.library.engines.vector_index import read_report
from epicrisis.library.engines.vector_search import EXACT_LIMIT, MatrixSearch
from epicrisis.library.engines.word_index import WordIndex, version_of
from epicrisis.system.remote_libraries import show_library

LOCK = "write.lock"
PARTS = (journals.NAME, *tables.NAMES, indexes.NAME)
"""All files and folders that `remove_parts` removes before a library is built. A library has one table."""
REPLIES = "replies.sqlite"
"""Cached model replies, which may quote the documents. The file lies in the folder but is no part of the library."""
REBUILT = f"{journals.NAME}.new"
"""The new journal during a repair. A killed repair leaves it next to the old one."""
_MARGIN = 64
_SCORE_DIGITS = 4


def acquire_lock(folder: Path) -> FileLock:
    """Acquire the write lock and return it. The system releases it when the process ends. Raise LibraryBusy."""
    # Any thread may close the library, so the lock is not bound to one.
    lock = FileLock(folder / LOCK, timeout=0, thread_local=False)
    with translate_errors(folder):
        try:
            lock.acquire()
        except Timeout:
            raise LibraryBusy(
                f"another process is writing to {show_library(folder)}: wait until it ends, or stop it. Reading works "
                "meanwhile"
            ) from None
    return lock


def check_vacant(folder: Path) -> None:
    """Raise LibraryError unless a library can be created here.

    The folder must be missing, empty, or left by an interrupted creation.
    """
    if not folder.exists():
        return
    if not folder.is_dir():
        raise LibraryError(f"{folder} is a file: choose an empty or new folder")
    with translate_errors(folder):
        names = {entry.name for entry in folder.iterdir()}
    if manifests.NAME in names:
        if manifests.read_manifest(folder).complete:
            raise LibraryError(f"{folder} holds a library already: open it, or choose another folder")
    elif names - {LOCK, manifests.TEMPORARY}:
        raise LibraryError(f"{folder} is not empty and no library: choose an empty or new folder")


def check_parts(folder: Path) -> None:
    """Raise LibraryDamaged if a part is missing, or if a small file differs from its checksum."""
    if is_in_database(folder):
        return
    parts = (journals.NAME, tables.table_name(folder), indexes.NAME)
    missing = [part for part in parts if not (folder / part).exists()]
    if missing:
        raise LibraryDamaged(f"{folder} lacks {', '.join(missing)}: half-copied; {REPAIR}")
    with closing(Journal(folder)) as journal:
        checksums = journal.files()
    check_small_files(folder, checksums)


def remove_parts(folder: Path, *parts: str) -> None:
    """Remove these parts, including SQLite's auxiliary files: a rollback journal would be applied to a new file."""
    with translate_errors(folder):
        for part in parts:
            for name in (part, f"{part}-wal", f"{part}-shm", f"{part}-journal"):
                path = folder / name
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink(missing_ok=True)


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files of a killed writer. The caller holds the write lock."""
    with translate_errors(folder):
        for part in (lance_table.NAME, indexes.NAME):
            for path in (folder / part).rglob(".tmp*"):
                if path.is_file():
                    path.unlink(missing_ok=True)
    # One of both is left by an unfinished move to the other engine, or its auxiliary files are.
    is_moved = tables.table_name(folder) == lance_table.NAME
    remove_parts(folder, sqlite_table.NAME if is_moved else lance_table.NAME)


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryInfo:
    """Summary of a library's content and state."""

    path: str
    manifest: LibraryManifest
    documents: int
    passages: int
    exact: bool
    """True if vector search is exact."""
    index: IndexReport | None
    """The last measurement of the vector index."""
    unindexed: int
    """Passages missing from the vector index. Searches scan them."""
    sources: tuple[IngestedFile, ...]
    """Files that were added completely."""
    bytes_on_disk: Mapping[str, int]
    outgrown: bool
    """True if the passages are searched in memory although there are too many: the extra `large` is missing."""
    open_batches: int
    """Unfinished batches. A writer is at work, or was killed and the next writer will finish them."""
    problems: tuple[str, ...]
    """Sentences that name each problem and its cure. Empty for a sound library."""


class LibraryParts:
    """The parts of one open library."""

    def __init__(self, folder: Path, table: PassageTable, words: WordIndex, journal: Journal) -> None:
        self.folder = folder
        self.table = table
        self.vectors: MatrixSearch = tables.make_vector_search(folder, table)
        self.words = words
        self.journal = journal
        self.before_read: Callable[[], object] = lambda: None
        """Called before each search. A copy of a library on object storage looks for a newer version."""

    def close(self) -> None:
        try:
            self.words.close()
        finally:
            self.vectors.close()
            self.table.close()
            self.journal.close()

    def use_table(self, table: PassageTable) -> None:
        """Use another handle or engine from here on."""
        self.table.close()
        self.vectors.close()
        self.table, self.vectors = table, tables.make_vector_search(self.folder, table)

    def reopen_if_moved(self) -> PassageTable:
        """Return the table, opened again if a writer has moved it to the other engine."""
        self.before_read()
        if self.table.is_moved():
            self.use_table(tables.open_table(self.folder, self.table.dimensions))
        return self.table

    def newest_table(self) -> PassageTable:
        """Return the table at its newest version, opened again if a writer has moved it to the other engine."""
        self.reopen_if_moved().refresh()
        return self.table

    def is_outgrown(self) -> bool:
        """Return whether SQLite holds more passages than it is made for."""
        return self.table.name == sqlite_table.NAME and self.journal.count()[1] > EXACT_LIMIT

    def move_to_lance(self, on_step: Callable[[str], None]) -> None:
        """Move the passages to LanceDB. After a kill the library has one table or the other, with all passages."""
        copy = tables.copy_to_lance(self.folder, self.table, on_step)
        sequence = self.journal.begin([])
        # The next writer records the version of the table that it finds.
        self.journal.forget_table_version()
        self.table.close()
        try:
            tables.remove_sqlite(self.folder)
        finally:
            self.use_table(tables.open_table(self.folder, copy.dimensions))
        self.acknowledge(sequence, [], [], self.checkpoint())

    def rewrite(self, on_step: Callable[[str], None]) -> None:
        """Rewrite all files, so that none holds anything of deleted documents."""
        sequence = self.journal.begin([])
        on_step("writing all passages anew")
        self.table.rewrite()
        on_step("building the word index anew")
        self.words.rebuild(chain.from_iterable(self.table.batches()))
        self.acknowledge(sequence, [], [], self.checkpoint())
        on_step("writing the journal anew")
        with translate_errors(self.folder):
            self.journal.rewrite()
            if (self.folder / patient_identities.NAME).exists():
                with closing(connect(self.folder / patient_identities.NAME)) as identities:
                    rewrite_file(identities)

    def finish_batch(self, sequence: int, document_ids: Sequence[str], passages: Sequence[StoredPassage]) -> None:
        """Update the word index and acknowledge the batch. `passages` are those of the documents in the table."""
        opstamp = self.words.replace(document_ids, passages)
        self.acknowledge(sequence, document_ids, document_rows(passages), Checkpoint(self.table.version, opstamp))

    def acknowledge(
        self, sequence: int, document_ids: Sequence[str], rows: Sequence[DocumentRow], checkpoint: Checkpoint
    ) -> None:
        """Close the batch and record the checksums of its files."""
        files = find_checksum_changes(self.folder, self.journal.files())
        self.journal.finish(sequence, document_ids, rows, checkpoint, files)

    def search_words(self, query: str, k: int, scope: Scope, within: Sequence[str] | None) -> tuple[ScoredId, ...]:
        """Return the `k` best passages in scope by BM25 score, best first, ties by passage id.

        Passages committed during the search may be missing.
        """
        limit = k + _MARGIN
        self.reopen_if_moved()
        while True:
            patients = self.vectors.has_patients()
            # The words are refreshed before the table, so that the table is at least as new.
            self.words.refresh()
            hits = self.words.search(query, limit, scope, within, patients=patients)
            with self.table.snapshot():
                if not patients and self.vectors.has_patients():
                    # The first patient's passages were committed meanwhile, and nothing kept them out.
                    continue
                ranking = [(-round(score, _SCORE_DIGITS), passage_id) for passage_id, score in self._drop_old(hits)]
                ranking.sort()
                # The result is final if no passage that was not fetched can tie with the last result.
                if len(hits) < limit or (len(ranking) >= k and -ranking[k - 1][0] > round(hits[-1][2], _SCORE_DIGITS)):
                    result = self.mark_retracted([(passage_id, -score) for score, passage_id in ranking[:k]])
                    # A retraction may be in the table already, and not yet in the words.
                    return tuple(hit for hit in result if not (scope.without_retracted and hit.is_retracted))
            limit *= 4

    def _drop_old(self, hits: Sequence[tuple[str, int, float]]) -> list[tuple[str, float]]:
        """Return (passage id, score) of the hits with the version of the table. The caller reads a snapshot."""
        if Checkpoint(self.table.version, self.words.loaded_opstamp) == self.journal.checkpoint():
            # No writer was at work between both commits, so the words are those of this version of the table.
            return [(passage_id, score) for passage_id, _, score in hits]
        hashes = self.table.hashes([passage_id for passage_id, _, _ in hits])
        current = []
        for passage_id, version, score in hits:
            if version == version_of(hashes.get(passage_id, "")):
                current.append((passage_id, score))
        return current

    def mark_retracted(self, ranking: Sequence[tuple[str, float]]) -> tuple[ScoredId, ...]:
        """Return (passage id, score) with the mark of retracted articles. The caller reads from a snapshot."""
        retracted = self.table.find_retracted([passage_id for passage_id, _ in ranking])
        return tuple(ScoredId(passage_id, score, passage_id in retracted) for passage_id, score in ranking)

    def checkpoint(self) -> Checkpoint:
        """Return the current state of the engines."""
        return Checkpoint(self.table.version, self.words.opstamp())

    def problems(self, acknowledged: int) -> list[str]:
        """Return the contradictions between the parts, each with its cure. No batch may be open.

        `acknowledged` is the number of acknowledged passages.
        """
        self.words.refresh()
        self.table.refresh()
        counts = {
            f"{journals.NAME}'s own count": self.journal.count()[1],
            self.table.name: self.table.count(),
            indexes.NAME: self.words.count(),
        }
        problems = []
        for name, count in counts.items():
            if count != acknowledged:
                problems.append(
                    f"{name} has {count_noun(count, 'passage')}, but {acknowledged} "
                    f"{agree(acknowledged, 'was', 'were')} acknowledged; run `epicrisis library repair`"
                )
        if not problems and self.checkpoint() != self.journal.checkpoint():
            problems.append(f"{journals.NAME} lacks the last writes (half-copied?); run `epicrisis library repair`")
        return problems

    def check_whole(self) -> None:
        """Raise LibraryDamaged if an engine is behind the journal, for example after an incomplete copy."""
        # The journal is read first, because a writer at work only moves the engines forward.
        acknowledged = self.journal.checkpoint()
        self.table.refresh()
        self.table.check()
        current = self.checkpoint()
        for name, actual, minimum in (
            (self.table.name, current.vectors, acknowledged.vectors),
            (indexes.NAME, current.words, acknowledged.words),
        ):
            if actual < minimum:
                raise LibraryDamaged(
                    f"{self.folder / name} is older ({actual}) than the journal says ({minimum}): {REPAIR}"
                )

    def check_in_step(self) -> None:
        """Raise LibraryDamaged if the journal lacks passages of the engines. A writer would add these a second time."""
        if problems := self.problems(self.journal.count()[1]):
            raise LibraryDamaged(f"{self.folder}: {problems[0]}")

    def info(self, manifest: LibraryManifest) -> LibraryInfo:
        """Count the passages of all parts and return a summary."""
        self.newest_table()
        for _ in range(5):
            before = self.journal.data_version()
            documents, passages = self.journal.recount()
            batches = len(self.journal.open_batches())
            problems = [] if batches else self.problems(passages)
            # If a writer has finished a batch meanwhile, the counts may be of different states.
            if self.journal.data_version() == before:
                break
        is_large = passages > EXACT_LIMIT
        index = read_report(self.folder) if is_large else None
        sizes = {}
        for part in (journals.NAME, self.table.name, indexes.NAME):
            sizes[part] = sum(map(_file_size, [self.folder / part, *(self.folder / part).rglob("*")]))
        return LibraryInfo(
            path=str(self.folder),
            manifest=manifest,
            documents=documents,
            passages=passages,
            exact=index is None or not index.good,
            index=index,
            unindexed=self.vectors.unindexed() if is_large else 0,
            sources=tuple(self.journal.sources()),
            bytes_on_disk=sizes,
            outgrown=self.is_outgrown(),
            open_batches=batches,
            problems=tuple(problems),
        )


def _file_size(path: Path) -> int:
    """Return the size of a file in bytes, or 0 if a writer has removed it."""
    try:
        return path.stat().st_size if path.is_file() else 0
    except FileNotFoundError:
        return 0


@dataclass(frozen=True, slots=True)
class _JournalContent:
    """The content of the old journal that cannot be rebuilt from passages. Empty if the journal is unreadable."""

    name: str = ""
    """The file it was read from."""
    deletions: Mapping[str, str] = field(default_factory=dict)
    sources: Sequence[IngestedFile] = ()
    origins: Mapping[str, Origin] = field(default_factory=dict)
    statements: Sequence[Statement] | None = None
    """None if the journal has no tables of statements."""
    files: Mapping[str, str] = field(default_factory=dict)


def rebuild_from_passages(folder: Path, dimensions: int) -> None:
    """Rebuild the word index and the journal's table of documents from the passages, atomically.

    Deletions, source files, origins and statements are copied from the old journal if it is readable. The caller holds
    the write lock. Afterwards no batch is open. Raise LibraryDamaged if passages cannot be read, or StorageError.
    """
    old = _read_old_journal(folder)
    check_small_files(folder, old.files)
    table = tables.open_table(folder, dimensions)
    table.check()
    # A killed repair has already removed the old journal, so its new one is the only copy of the content.
    is_copied = old.name == REBUILT
    if not is_copied:
        remove_parts(folder, REBUILT)
    with closing(Journal(folder, REBUILT) if is_copied else Journal.create(folder, REBUILT)) as journal:
        if not is_copied:
            journal.record_deletions(old.deletions)
            if old.statements is not None:
                # This makes all targets due, so that the marks of all passages are checked again.
                journal.create_statements(old.statements)
            for source in old.sources:
                journal.add_source(source)
            journal.set_origins(old.origins)
            journal.set_files(ChecksumChanges(old.files))
        # The journal is removed first and replaced last, so that a killed repair does not leave a valid library.
        remove_parts(folder, journals.NAME, indexes.NAME)
        words = WordIndex(folder, create=True)
        opstamp = words.replace([], chain.from_iterable(table.batches()))
        words.close()
        # Old checksums stay, so that damaged files do not get valid ones.
        changes = ChecksumChanges({**old.files, **find_checksum_changes(folder, old.files).updated})
        rows = chain.from_iterable(map(document_rows, table.batches()))
        journal.rebuild(rows, Checkpoint(table.version, opstamp), changes)
    with translate_errors(folder):
        (folder / REBUILT).replace(folder / journals.NAME)
        sync_path(folder)


def _read_old_journal(folder: Path) -> _JournalContent:
    for name in (journals.NAME, REBUILT):
        if (folder / name).is_file():
            break
    else:
        return _JournalContent()
    try:
        with closing(Journal(folder, name)) as journal:
            statements = journal.statements() if journal.has_statements else None
            files = journal.files()
            return _JournalContent(name, journal.deletions(), journal.sources(), journal.origins(), statements, files)
    except LibraryDamaged:
        return _JournalContent()


def document_rows(passages: Sequence[StoredPassage]) -> list[DocumentRow]:
    """Return one row for each document of these passages."""
    by_document: dict[str, list[StoredPassage]] = {}
    for stored in passages:
        by_document.setdefault(stored.passage.document_id, []).append(stored)
    rows = []
    for document_id, parts in by_document.items():
        rows.append(DocumentRow(document_id, parts[-1].content_hash, len(parts), parts[-1].revision))
    return rows
