"""The progress of adding documents: files, passages and their rate, remaining time, the file that is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from epicrisis.cli.progress import open_progress
from epicrisis.core.printable import count_noun

if TYPE_CHECKING:
    from rich.progress import Progress

    from epicrisis.library.ingest_batches import IngestProgress


class IngestDisplay:
    """Shows the counts of an addition, and the files that are read, if `files` is given to their reader."""

    def __init__(self, progress: Progress, description: str) -> None:
        from epicrisis.corpus.reading_progress import ReadingProgress

        self.files = ReadingProgress(self.show)
        self._progress = progress
        self._task = progress.add_task(description, total=None, counts="", file="")
        self._last: IngestProgress | None = None

    def show(self, counts: IngestProgress | None = None) -> None:
        """Show the present file, and new counts if there are any."""
        self._last = last = counts or self._last
        files = self.files
        parts = []
        if files.files:
            parts.append(f"{min(files.files_read + 1, files.files):,} of {count_noun(files.files, 'file')}")
        elif last is not None:
            parts.append(f"{last.documents:,} read, {last.saved:,} saved")
        if last is not None:
            parts.append(last.step or f"{last.passages / max(last.seconds, 1e-9):,.0f} passages per s")
        self._progress.update(
            self._task,
            total=files.bytes or None,
            completed=files.bytes_read,
            counts=", ".join(parts),
            file=files.current,
        )


@contextmanager
def show_ingest(description: str, *, quiet: bool) -> Iterator[IngestDisplay]:
    """Show the progress of an addition during the block, if not `quiet`."""
    with open_progress("counts", "file", quiet=quiet, transient=True, counts=False) as progress:
        yield IngestDisplay(progress, description)


def describe_counts(added: int, counts: Mapping[str, int]) -> str:
    """Return what an addition did, without zeros: `3 documents added, 1 replaced, 2 skipped`."""
    parts = [count_noun(added, "document") + " added"]
    for name, count in counts.items():
        if count:
            parts.append(f"{count:,} {name}")
    return ", ".join(parts)
