"""The folder of a library: its lock, its parts and their sizes."""

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
"""Cached model replies, which may quote the documents. The file lies in the folder but is no part of the library."""


def acquire_lock(folder: Path) -> FileLock:
    """Acquire the write lock and return it. The system releases it when the process ends. Raise LibraryBusy."""
    # Any thread may close the library, so the lock is not bound to one.
    lock = FileLock(folder / LOCK, timeout=0, thread_local=False)
    with translate_errors(folder):
        try:
            lock.acquire()
        except Timeout:
            raise LibraryBusy(
                f"another process is writing to {folder}: wait until it ends, or stop it. Reading works meanwhile"
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
    if manifest.NAME in names:
        if manifest.read_manifest(folder).complete:
            raise LibraryError(f"{folder} holds a library already: open it, or choose another folder")
    elif names - {LOCK, manifest.TEMPORARY}:
        raise LibraryError(f"{folder} is not empty and no library: choose an empty or new folder")


def check_parts(folder: Path) -> None:
    """Raise LibraryDamaged if a part is missing, or if a small file differs from its checksum."""
    missing = [part for part in PARTS if not (folder / part).exists()]
    if missing:
        raise LibraryDamaged(f"{folder} lacks {', '.join(missing)}: half-copied; {REPAIR}")
    with closing(journal.Journal(folder)) as open_journal:
        checksums = open_journal.files()
    check_small_files(folder, checksums or {})


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
        for part in (passage_table.NAME, word_index.NAME):
            for path in (folder / part).rglob(".tmp*"):
                if path.is_file():
                    path.unlink(missing_ok=True)


def measure_parts(folder: Path) -> Mapping[str, int]:
    """Return the size of each part in bytes. Files removed by a writer during the count are ignored."""
    sizes = {}
    for part in PARTS:
        path = folder / part
        sizes[part] = sum(map(_file_size, [path, *path.rglob("*")]))
    return sizes


def _file_size(path: Path) -> int:
    try:
        return path.stat().st_size if path.is_file() else 0
    except FileNotFoundError:
        return 0
