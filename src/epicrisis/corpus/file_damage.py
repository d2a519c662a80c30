"""Damage of files, plain or gzip: what reading them may raise, in words, and whether a file unpacks to its end."""

from __future__ import annotations

import zlib
from pathlib import Path

from epicrisis.corpus.compression import is_packed, open_packed
from epicrisis.corpus.reader_base import os_error_reason

READ_ERRORS = (OSError, EOFError, zlib.error)
"""What reading an opened file may raise; gzip's own error is an OSError."""
_PIECE = 1 << 20


def describe_read_error(error: Exception) -> str:
    """Return why the file breaks off, as a sentence with its cure."""
    cause = os_error_reason(error) if isinstance(error, OSError) else str(error)
    return f"the file breaks off ({cause}); fetch or make it again"


def check_unpacks(path: Path) -> None:
    """Read a gzip file to its end, where its checksum stands; a plain file has none and is not read.

    Raises one of `BROKEN`. A reader that streams has given what was garbled before it comes to the checksum.
    """
    if is_packed(path):
        with open_packed(path) as file:
            while file.read(_PIECE):
                pass


def describe_damage(path: Path, *, cut_short: bool = True) -> str:
    """Return why the file does not unpack, empty where it does. One that is `cut_short` has right bytes up to there."""
    try:
        check_unpacks(path)
    except EOFError as error:
        return describe_read_error(error) if cut_short else ""
    except (OSError, zlib.error) as error:
        return describe_read_error(error)
    return ""
