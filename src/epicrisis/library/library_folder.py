"""The library's folder as a folder: its lock, its parts, their sizes. Knows nothing of what is in the parts."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from filelock import FileLock, Timeout

from epicrisis.errors import LibraryBusy, LibraryDamaged, LibraryError
from epicrisis.library import journal, manifest, passage_table, word_index
from epicrisis.library.checksums import check_small_files
from epicrisis.library.engine_errors import REPAIR, translate_errors

LOCK = "write.lock"
PARTS = (journal.NAME, passage_table.NAME, word_index.NAME)
REPLIES = "replies.sqlite"
"""Models' replies about the documents, which may quote them; kept here by those above, no part of the library."""


def acquire_lock(folder: Path) -> FileLock:
    """The one writer's lock, taken; the system frees it when the process ends, however it ends. Raises LibraryBusy."""
    # Not per thread: whoever closes the library frees the lock.
    lock = FileLock(folder / LOCK, timeout=0, thread_local=False)
    with translate_errors(folder):
        try:
            lock.acquire()
        except Timeout:
            raise LibraryBusy(
                f"another process is writing to {folder}: wait until it ends, or stop it; reading works meanwhile"
            ) from None
    return lock


def check_vacant(folder: Path) -> None:
    """Raises LibraryError unless a library may be made here: nothing there, or one whose making was broken off."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise LibraryError(f"{folder} is a file: name a folder that is empty or not there yet")
    with translate_errors(folder):
        names = {entry.name for entry in folder.iterdir()}
    if manifest.NAME in names:
        if manifest.read_manifest(folder).complete:
            raise LibraryError(f"{folder} holds a library already: open it, or name another folder")
    elif names - {LOCK, manifest.TEMPORARY}:
        raise LibraryError(f"{folder} is not empty and no library: name a folder that is empty or not there yet")


def check_parts(folder: Path) -> None:
    """Raise LibraryDamaged where a part is not there at all, or small files of one are not as they were written."""
    missing = [part for part in PARTS if not (folder / part).exists()]
    if missing:
        raise LibraryDamaged(f"{folder} lacks {', '.join(missing)}: half-copied; {REPAIR}")
    with closing(journal.Journal(folder)) as opened:
        recorded = opened.files()
    check_small_files(folder, recorded or {})


def remove_parts(folder: Path, *parts: str) -> None:
    """Removes these parts, with what SQLite keeps beside its file."""
    with translate_errors(folder):
        for name in (name for part in parts for name in _files_of(part)):
            path = folder / name
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)


def _files_of(part: str) -> tuple[str, ...]:
    """Return the names of a part and of SQLite's files beside it; a rollback journal would be applied to a new file."""
    return (part, f"{part}-wal", f"{part}-shm", f"{part}-journal")


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files that a killed writer left in the parts. For the holder of the write lock alone."""
    with translate_errors(folder):
        for part in (passage_table.NAME, word_index.NAME):
            for path in (folder / part).rglob(".tmp*"):
                if path.is_file():
                    path.unlink(missing_ok=True)


def measure_parts(folder: Path) -> Mapping[str, int]:
    """Bytes by part; files that go away meanwhile (a writer at work) count as nothing."""
    return {part: sum(map(_size, [folder / part, *(folder / part).rglob("*")])) for part in PARTS}


def _size(path: Path) -> int:
    try:
        return path.stat().st_size if path.is_file() else 0
    except FileNotFoundError:
        return 0
