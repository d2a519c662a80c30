"""Find the new and changed files of folders, once they have stopped growing.

Folders are read again and again, instead of asking the operating system for events: those do not arrive from network
shares, and a scan also notices changes from before the watch.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from epicrisis.corpus.reader_base import is_visible


class _Stamp(NamedTuple):
    size: int
    modified: int


class FolderWatch:
    """Remembers which files were taken, by size and time of modification.

    A file is ready if two scans saw it unchanged, or if it was last modified `settle_seconds` before its first scan.
    Hidden files and empty files are never ready: programs create files so before they write them.
    """

    def __init__(self, folders: Sequence[Path], settle_seconds: float, now: Callable[[], float] = time.time) -> None:
        self._folders = folders
        self._settle = settle_seconds
        self._now = now
        self._last: dict[Path, _Stamp] = {}
        self._taken: dict[Path, _Stamp] = {}
        self.gone: set[Path] = set()
        """The files that were taken and are no longer there."""
        self.closed: dict[Path, OSError] = {}
        """The folders that the last scan could not list."""

    def scan(self) -> list[Path]:
        """Return the files that are ready and not taken yet, sorted. They count as taken once `take` is called."""
        present: dict[Path, _Stamp] = {}
        ready = []
        self.closed = {}
        for path, stamp in self._list_files():
            present[path] = stamp
            is_first = path not in self._last
            is_old = is_first and self._now() - stamp.modified / 1e9 >= self._settle
            if stamp.size and self._taken.get(path) != stamp and (is_old or self._last.get(path) == stamp):
                ready.append(path)
        self._last = present
        self.gone = set(self._taken).difference(present)
        return sorted(ready)

    def take(self, paths: Sequence[Path]) -> None:
        """Remember that these files were read in the state of the last scan."""
        for path in paths:
            self._taken[path] = self._last[path]

    @property
    def waiting(self) -> int:
        """Return how many files of the last scan are not taken yet, such as growing ones."""
        return sum(stamp.size > 0 and self._taken.get(path) != stamp for path, stamp in self._last.items())

    def _list_files(self) -> Iterator[tuple[Path, _Stamp]]:
        for folder in self._folders:
            for parent, folders, names in os.walk(folder, onerror=self._note_closed):
                folders[:] = [name for name in folders if not name.startswith(".")]
                for name in names:
                    if is_visible(name):
                        # A file may disappear between listing and looking.
                        with suppress(OSError):
                            status = os.stat(Path(parent, name))
                            yield Path(parent, name), _Stamp(status.st_size, status.st_mtime_ns)

    def _note_closed(self, error: OSError) -> None:
        self.closed[Path(error.filename)] = error
