"""Check whether the three parts of a library agree, by their counts and their last commits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from epicrisis.errors import LibraryDamaged
from epicrisis.library import journal as journals
from epicrisis.library import passage_table as tables
from epicrisis.library import word_index as indexes
from epicrisis.library.engine_errors import REPAIR
from epicrisis.library.journal import Checkpoint, IngestedFile, Journal
from epicrisis.library.manifest import LibraryManifest
from epicrisis.library.passage_table import PassageTable
from epicrisis.library.vector_index import IndexReport
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
    words: WordIndex
    journal: Journal

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
