"""What the engines raise when the disk fails, as they have been seen to word it, comes out with its cure."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from epicrisis.core.errors import InputError, LibraryDamaged, StorageError
from epicrisis.library.base.engine_errors import translate_errors

FULL = [
    OSError(28, "No space left on device"),
    OSError(122, "Disk quota exceeded"),
    OSError(27, "File too large"),
    RuntimeError("lance error: LanceError(IO): File too large (os error 27), /x/lance-file/src/writer.rs:191:9"),
    RuntimeError("lance error: LanceError(IO): Unable to copy data to file: No space left on device (os error 28)"),
    ValueError("An IO error occurred: 'No space left on device (os error 28)'"),
    sqlite3.OperationalError("database or disk is full"),
]
REFUSED = [
    PermissionError(13, "Permission denied"),
    ValueError("Failed to open file for write: 'PermissionDenied'"),
    ValueError(
        "An error occurred in a thread: 'An index writer was killed.. A worker thread encountered an error "
        "(io::Error most likely) or panicked.'"
    ),
    sqlite3.OperationalError("unable to open database file"),
    sqlite3.OperationalError("disk I/O error"),
]
READ_ONLY = [
    OSError(30, "Read-only file system"),
    sqlite3.OperationalError("attempt to write a readonly database"),
    ValueError("Failed to acquire Lockfile: IoError(Os { code: 30, message: 'Read-only file system' }). None"),
]
BROKEN = [
    RuntimeError("lance error: Not found: tmp/l/passages.lance/_deletions/0-6.arrow, /x/lance-io/src/local.rs:273:40"),
    ValueError("Table 'passages' was not found"),
    FileNotFoundError(2, "No such file or directory"),
    sqlite3.DatabaseError("file is not a database"),
]


@pytest.mark.parametrize("error", FULL, ids=str)
def test_translate_errors_full_disk_raises_storage_error(error: Exception) -> None:
    with (
        pytest.raises(StorageError, match="/lib: no room left to write; free disk space"),
        translate_errors(Path("/lib")),
    ):
        raise error


@pytest.mark.parametrize("error", REFUSED, ids=str)
def test_translate_errors_refusing_disk_raises_storage_error(error: Exception) -> None:
    with (
        pytest.raises(StorageError, match=r"/lib: the disk refused .* check free space"),
        translate_errors(Path("/lib")),
    ):
        raise error


@pytest.mark.parametrize("error", READ_ONLY, ids=str)
def test_translate_errors_read_only_media_raises_storage_error(error: Exception) -> None:
    with pytest.raises(StorageError, match=r"/lib is read-only.* copy the library"), translate_errors(Path("/lib")):
        raise error


class PanicException(BaseException):
    """As pyo3 names a panic; its own class cannot be imported."""


def test_translate_errors_engine_panic_raises_library_damaged() -> None:
    with pytest.raises(LibraryDamaged, match="range end index"), translate_errors(Path("/lib")):
        raise PanicException("range end index 9 out of range for slice of length 3")
    with pytest.raises(KeyboardInterrupt), translate_errors(Path("/lib")):
        raise KeyboardInterrupt


@pytest.mark.parametrize("error", BROKEN, ids=str)
def test_translate_errors_unreadable_part_raises_library_damaged(error: Exception) -> None:
    with pytest.raises(LibraryDamaged, match="epicrisis library repair") as caught, translate_errors(Path("/lib")):
        raise error
    assert ".rs:" not in caught.value.message
    assert caught.value.__cause__ is error


def test_translate_errors_own_errors_are_unchanged() -> None:
    with pytest.raises(InputError, match="mine"), translate_errors(Path("/lib")):
        raise InputError("mine")
    with pytest.raises(KeyError), translate_errors(Path("/lib")):
        raise KeyError("a mistake of ours is not the disk's")
