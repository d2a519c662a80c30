"""Translate the errors of Lance, tantivy, SQLite and the file system into errors of this package."""

from __future__ import annotations

import errno
import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from epicrisis.core.errors import EpicrisisError, LibraryDamaged, StorageError

REPAIR = "copy the whole folder again, or run `epicrisis library repair`"

_ENGINE_EXCEPTIONS = (OSError, RuntimeError, ValueError, MemoryError, sqlite3.Error)
_PANIC = "PanicException"
"""The name of pyo3's class for a panic. It derives from BaseException, and each extension module has its own."""

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_REFUSED = {errno.EACCES, errno.EPERM, errno.EIO}
# Lance and tantivy are written in Rust. Their errors reach Python as RuntimeError, OSError or ValueError with the errno
# in the message.
_OS_ERROR = re.compile(r"\(os error (\d+)\)")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`")
_ERRNO_OF_TEXT = {
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
    """Translate engine errors raised in the block to StorageError (disk errors) or LibraryDamaged (all others).

    Rust panics and MemoryError are included, because damaged files cause both.
    """
    try:
        yield
    except EpicrisisError:
        raise
    except _ENGINE_EXCEPTIONS as error:
        raise _translate(error, path) from error
    except BaseException as error:
        if type(error).__name__ != _PANIC:
            raise
        raise _translate(error, path) from error


def _translate(error: BaseException, path: Path) -> EpicrisisError:
    number = error.errno if isinstance(error, OSError) else None
    if number is None:
        text = str(error)
        match = _OS_ERROR.search(text)
        phrases = (number for phrase, number in _ERRNO_OF_TEXT.items() if phrase in text)
        number = int(match[1]) if match else next(phrases, None)
    if number in _FULL:
        return StorageError(
            f"{path}: no room left to write; free disk space (or raise the quota) and run the same command again. "
            "Everything acknowledged so far is saved"
        )
    if number == errno.EROFS:
        return StorageError(
            f"{path} is read-only and cannot be changed ({_first_line(error)}): copy the library to a writable disk. "
            "Searching works without a copy"
        )
    if number in _REFUSED:
        return StorageError(
            f"{path}: the disk refused ({_first_line(error)}); check free space and permissions, and that the disk is "
            "not mounted read-only, then run the same command again. Everything acknowledged so far is saved"
        )
    return LibraryDamaged(f"{path} cannot be read: {_first_line(error)}; it may be half-copied: {REPAIR}")


def _first_line(error: BaseException) -> str:
    """Return the first line of the message, without source locations and without quoted text, such as ids."""
    if isinstance(error, sqlite3.Error):
        # SQLite's messages quote the file's content: "malformed database schema (...)".
        return str(getattr(error, "sqlite_errorname", type(error).__name__))
    lines = str(error).splitlines() or [type(error).__name__]
    return _QUOTED.sub("...", re.split(r", /\S+\.rs:\d+", lines[0])[0])[:300]
