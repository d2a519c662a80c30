"""Errors of the engines below the library (Lance, tantivy, SQLite, the file system), told as ours.

Knows how their messages look, nothing of what the engines were asked to do.
"""

from __future__ import annotations

import errno
import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from epicrisis.errors import EpicrisisError, LibraryDamaged, StorageError

REPAIR = "copy the whole folder again, or run `epicrisis library repair`"

_RAISED = (OSError, RuntimeError, ValueError, MemoryError, sqlite3.Error)
_PANIC = "PanicException"
"""pyo3's class for a panic, one in each extension module; it derives from BaseException and cannot be imported."""

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_REFUSED = {errno.EACCES, errno.EPERM, errno.EIO}
# Lance and tantivy are Rust: their errors reach Python as RuntimeError, OSError or ValueError with the errno in words.
_OS_ERROR = re.compile(r"\(os error (\d+)\)")
_WORDS = {
    "No space left": errno.ENOSPC,
    "disk is full": errno.ENOSPC,
    "quota": errno.EDQUOT,
    "File too large": errno.EFBIG,
    "Read-only file system": errno.EROFS,
    "readonly database": errno.EROFS,
    "Permission denied": errno.EACCES,
    "PermissionDenied": errno.EACCES,
    "unable to open database file": errno.EACCES,
    "disk I/O error": errno.EIO,
    "io::Error": errno.EIO,
}


@contextmanager
def translate_errors(path: Path) -> Iterator[None]:
    """Maps what the engines raise within to StorageError (disk) or LibraryDamaged (all else), both with the cure.

    Damaged files make their Rust code panic too, and ask for more memory than there is.
    """
    try:
        yield
    except EpicrisisError:
        raise
    except _RAISED as error:
        raise _as_ours(error, path) from error
    except BaseException as error:
        if type(error).__name__ != _PANIC:
            raise
        raise _as_ours(error, path) from error


def _as_ours(error: BaseException, path: Path) -> EpicrisisError:
    number = _errno(error)
    if number in _FULL:
        return StorageError(
            f"{path}: no room left to write; free disk space (or raise the quota) and run the same command again: "
            "what was acknowledged is kept"
        )
    if number == errno.EROFS:
        return StorageError(
            f"{path} is read-only, and cannot be changed ({_first_line(error)}): copy the library to a disk that can "
            "be written; searching works as it is"
        )
    if number in _REFUSED:
        return StorageError(
            f"{path}: the disk refused ({_first_line(error)}); check free space, permissions and that it is not "
            "mounted read-only, then run the same command again: what was acknowledged is kept"
        )
    return LibraryDamaged(f"{path} cannot be read: {_first_line(error)}; it may be half-copied: {REPAIR}")


def _errno(error: BaseException) -> int | None:
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    text = str(error)
    if said := _OS_ERROR.search(text):
        return int(said[1])
    return next((number for words, number in _WORDS.items() if words in text), None)


_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`")


def _first_line(error: BaseException) -> str:
    """Return the first line without the place in the engine's source code and without what it quotes, such as an id."""
    if isinstance(error, sqlite3.Error):
        # Its words name what stands in the file: "malformed database schema (...)".
        return str(getattr(error, "sqlite_errorname", type(error).__name__))
    lines = str(error).splitlines() or [type(error).__name__]
    return _QUOTED.sub("...", re.split(r", /\S+\.rs:\d+", lines[0])[0])[:300]
