"""How far the reading of files is, in files and bytes, for a display."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from epicrisis.corpus.base.reader_base import FileFingerprint, ReaderItem, printable_path, read_position


class ReadingProgress:
    """Counts files and bytes that were read. `on_file` is called at the start of each file."""

    def __init__(self, on_file: Callable[[], None] | None = None) -> None:
        self.files = 0
        """All files to read."""
        self.bytes = 0
        """Their size together."""
        self.files_read = 0
        self.current = ""
        """The name of the file that is read, on one printable line."""
        self._bytes_read = 0
        self._path: Path | None = None
        self._on_file = on_file or (lambda: None)

    @property
    def bytes_read(self) -> int:
        """Return the bytes of the files read completely, and those of the present file as far as they are known."""
        position = 0 if self._path is None else min(read_position(self._path), _size_of(self._path))
        return self._bytes_read + position

    def expect(self, paths: Iterable[Path]) -> None:
        """Add files to those that will be read."""
        for path in paths:
            self.files += 1
            self.bytes += _size_of(path)

    def follow(self, paths: Sequence[Path], items: Iterable[ReaderItem]) -> Iterator[ReaderItem]:
        """Yield the items of these files, whose ends their fingerprints mark."""
        remaining = deque(paths)
        self._start(remaining[0])
        for item in items:
            yield item
            if isinstance(item, FileFingerprint) and len(remaining) > 1:
                self._finish(remaining.popleft())
                self._start(remaining[0])
        for path in remaining:
            self._finish(path)

    def _start(self, path: Path) -> None:
        self._path, self.current = path, printable_path(path.name)
        self._on_file()

    def _finish(self, path: Path) -> None:
        self.files_read += 1
        self._bytes_read += _size_of(path)
        self._path = None


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
