"""Temporary folders. A new folder removes those of the same kind left over from killed processes.

with TemporaryFolder("epicrisis-pubmed-") as folder:
    (folder / "part").write_bytes(data)
"""

from __future__ import annotations

import shutil
import tempfile
import time
import weakref
from contextlib import suppress
from pathlib import Path

from filelock import FileLock, Timeout

_LOCK = ".in-use"
_YOUNG_SECONDS = 60.0


class TemporaryFolder:
    """A new folder that only its owner can read. Use it as a context manager, or call `close`.

    Raises OSError if the folder cannot be created.
    """

    def __init__(self, prefix: str, parent: Path | None = None) -> None:
        parent = parent or Path(tempfile.gettempdir())
        remove_abandoned_folders(prefix, parent)
        self.path, lock = _make_locked_folder(prefix, parent)
        self._finalizer = weakref.finalize(self, _remove, self.path, lock)

    def close(self) -> None:
        """Remove the folder. Idempotent."""
        self._finalizer()

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.close()


def _make_locked_folder(prefix: str, parent: Path) -> tuple[Path, FileLock]:
    """Return a new folder with its lock, which the system releases when the process ends, however it ends."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        lock = FileLock(path / _LOCK, timeout=0, thread_local=False)
        # Another process that looks for abandoned folders locks and removes this one if it comes between.
        with suppress(Timeout):
            lock.acquire()
            return path, lock


def remove_abandoned_folders(prefix: str, parent: Path) -> None:
    """Remove this user's folders with this prefix whose processes have ended."""
    for folder in parent.glob(f"{prefix}*"):
        try:
            if folder.is_symlink() or not folder.is_dir():
                continue
            # Another process may have just created it, and not locked it yet.
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
    # Some systems cannot remove the lock file before its release.
    shutil.rmtree(folder, ignore_errors=True)
