"""The parts of an open library, the second half of every write, and the checks that the parts agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from epicrisis.errors import LibraryDamaged
from epicrisis.library import journal as journals
from epicrisis.library import passage_table as tables
from epicrisis.library import word_index as indexes
from epicrisis.library.checksums import (
    describe_damage,
    find_checksum_changes,
    find_damage_before_compaction,
    remove_damaged_versions,
)
from epicrisis.library.engine_errors import REPAIR
from epicrisis.library.journal import Checkpoint, DocumentRow, IngestedFile, Journal
from epicrisis.library.library_folder import measure_parts
from epicrisis.library.manifest import LibraryManifest
from epicrisis.library.passage_table import PassageTable, StoredPassage
from epicrisis.library.rebuild import document_rows
from epicrisis.library.vector_index import IndexReport, read_report
from epicrisis.library.vector_search import EXACT_LIMIT, VectorSearch
from epicrisis.library.word_index import WordIndex


@dataclass(frozen=True, slots=True)
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
    """Size of each part."""
    open_batches: int
    """Unfinished batches. A writer is at work, or was killed and the next writer will finish them."""
    problems: tuple[str, ...]
    """Sentences that name each problem and its cure. Empty for a sound library."""


@dataclass(frozen=True, slots=True)
class LibraryParts:
    """The parts of one open library."""

    folder: Path
    table: PassageTable
    vectors: VectorSearch
    words: WordIndex
    journal: Journal

    def close(self) -> None:
        try:
            self.words.close()
        finally:
            self.vectors.close()
            self.journal.close()

    def finish_batch(self, sequence: int, document_ids: Sequence[str], passages: Sequence[StoredPassage]) -> None:
        """Update the word index and acknowledge the batch. `passages` are those of the documents in the Lance table."""
        opstamp = self.words.replace(document_ids, passages)
        self.acknowledge(sequence, document_ids, document_rows(passages), Checkpoint(self.table.version, opstamp))

    def acknowledge(
        self, sequence: int, document_ids: Sequence[str], rows: Sequence[DocumentRow], checkpoint: Checkpoint
    ) -> None:
        """Close the batch and record the checksums of its files."""
        checksums = self.journal.files()
        files = None if checksums is None else find_checksum_changes(self.folder, checksums)
        self.journal.finish(sequence, document_ids, rows, checkpoint, files)

    def check_before_compaction(self, dimensions: int) -> None:
        """Raise LibraryDamaged if a compaction would copy damaged files."""
        checksums = self.journal.files() or {}
        if names := find_damage_before_compaction(self.folder, checksums, dimensions):
            raise LibraryDamaged(describe_damage(self.folder, names))
        remove_damaged_versions(self.folder, checksums)

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
            tables.NAME: self.table.count(),
            indexes.NAME: self.words.count(),
        }
        problems = []
        for name, count in counts.items():
            if count != acknowledged:
                problems.append(
                    f"{name} has {count} passages, but {acknowledged} were acknowledged; run `epicrisis library repair`"
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
            (tables.NAME, current.vectors, acknowledged.vectors),
            (indexes.NAME, current.words, acknowledged.words),
        ):
            if actual < minimum:
                raise LibraryDamaged(
                    f"{self.folder / name} is older ({actual}) than the journal says ({minimum}): {REPAIR}"
                )

    def check_in_step(self) -> None:
        """Raise LibraryDamaged if the journal lacks passages of the engines. A writer would add these a second time.

        No batch may be open.
        """
        problems = self.problems(self.journal.count()[1])
        if problems:
            raise LibraryDamaged(f"{self.folder}: {problems[0]}")

    def info(self, manifest: LibraryManifest) -> LibraryInfo:
        """Count the passages of all parts and return a summary."""
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
        return LibraryInfo(
            path=str(self.folder),
            manifest=manifest,
            documents=documents,
            passages=passages,
            exact=index is None or not index.good,
            index=index,
            unindexed=self.vectors.unindexed() if is_large else 0,
            sources=tuple(self.journal.sources()),
            bytes_on_disk=measure_parts(self.folder),
            open_batches=batches,
            problems=tuple(problems),
        )
