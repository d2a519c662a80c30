"""Temporary folders. What a killed process left behind is removed when the next folder of that kind is made.

with Scratch("epicrisis-pubmed-") as folder:
    (folder / "part").write_bytes(data)
"""

from __future__ import annotations

import shutil
import tempfile
import time
import weakref
from pathlib import Path

from filelock import FileLock, Timeout

_LOCK = ".in-use"
_YOUNG_SECONDS = 60.0


class TemporaryFolder:
    """A new folder, readable by its owner alone. Use it as a context manager, or call `close`.

    Raises OSError where the folder cannot be made.
    """

    def __init__(self, prefix: str, place: Path | None = None) -> None:
        place = place or Path(tempfile.gettempdir())
        remove_abandoned_folders(prefix, place)
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
        # The system frees it when the process ends, however it ends.
        lock = FileLock(self.path / _LOCK, timeout=0, thread_local=False)
        lock.acquire()
        self._removed = weakref.finalize(self, _remove, self.path, lock)

    def close(self) -> None:
        """Remove the folder. Idempotent."""
        self._removed()

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.close()


def remove_abandoned_folders(prefix: str, place: Path) -> None:
    """Remove the folders of this prefix whose process no longer runs, but for those of another user."""
    for folder in place.glob(f"{prefix}*"):
        try:
            if folder.is_symlink() or not folder.is_dir():
                continue
            # Another process may have made it this moment, and not yet locked it.
            if not (folder / _LOCK).exists() and time.time() - folder.stat().st_mtime < _YOUNG_SECONDS:
                continue
            lock = FileLock(folder / _LOCK, timeout=0, thread_local=False)
            lock.acquire()
        except (OSError, Timeout):
            continue
        _remove(folder, lock)


def _remove(folder: Path, lock: FileLock) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    lock.release(force=True)
    # On some systems the lock's file cannot be removed before it is free.
    shutil.rmtree(folder, ignore_errors=True)
