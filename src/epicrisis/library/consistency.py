"""Do the three parts of a library agree? Knows what each part counts and how far it has come, not what is in it."""

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
    """What a library holds. `exact`: vectors are searched exactly. `bytes_on_disk` by part. `index` as it was measured;
    `unindexed` passages are scanned beside it. `sources` are the files that were added whole.

    `open_batches` counts what was begun and not finished: a writer is at work, or was killed and the next one settles
    it. `problems` are sentences with their cure; none means sound.
    """

    path: str
    manifest: LibraryManifest
    documents: int
    passages: int
    exact: bool
    index: IndexReport | None
    unindexed: int
    sources: tuple[IngestedFile, ...]
    bytes_on_disk: Mapping[str, int]
    open_batches: int
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LibraryParts:
    """The parts of one open library."""

    folder: Path
    table: PassageTable
    words: WordIndex
    journal: Journal

    def marks(self) -> Checkpoint:
        """How far the engines are."""
        return Checkpoint(self.table.version, self.words.mark())

    def problems(self, acknowledged: int) -> list[str]:
        """Where the parts disagree, each with its cure, while no batch is open; `acknowledged` passages."""
        self.words.refresh()
        self.table.refresh()
        counts = {
            f"{journals.NAME}'s own count": self.journal.count()[1],
            tables.NAME: self.table.count(),
            indexes.NAME: self.words.count(),
        }
        found = [
            f"{name} has {count} passages, but {acknowledged} were acknowledged; run `epicrisis library repair`"
            for name, count in counts.items()
            if count != acknowledged
        ]
        if not found and self.marks() != self.journal.marks():
            found = [f"{journals.NAME} does not know the last writes (half-copied?); run `epicrisis library repair`"]
        return found

    def check_whole(self) -> None:
        """Raises LibraryDamaged where an engine is behind what was acknowledged: part of it was not copied."""
        # Read first: a writer at work only moves the engines further on.
        then = self.journal.marks()
        self.table.refresh()
        self.table.check()
        now = self.marks()
        for name, there, acknowledged in (
            (tables.NAME, now.vectors, then.vectors),
            (indexes.NAME, now.words, then.words),
        ):
            if there < acknowledged:
                raise LibraryDamaged(
                    f"{self.folder / name} is older ({there}) than the journal says ({acknowledged}): {REPAIR}"
                )

    def check_in_step(self) -> None:
        """For a writer, no batch open. Raises LibraryDamaged where the journal lacks what the engines have.

        Adding would then put passages there twice.
        """
        problems = self.problems(self.journal.count()[1])
        if problems:
            raise LibraryDamaged(f"{self.folder}: {problems[0]}")
