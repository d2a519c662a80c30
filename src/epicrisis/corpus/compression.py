"""Open plain and gzip files alike, with a limit on the unpacked size, and describe damage found while reading.

A gzip file of 10 MB can unpack to 10 GB.
"""

from __future__ import annotations

import gzip
import io
import zlib
from pathlib import Path
from typing import IO, Any, cast

from epicrisis.corpus.reader_base import os_error_reason

MAX_UNPACK_RATIO = 200
"""Limit of the unpacked size as a multiple of the gzip file's size. Text unpacks to 3 to 30 times its size."""
UNPACK_ALLOWANCE = 1024**3
"""Bytes that any gzip file may unpack to, with any ratio."""
READ_ERRORS = (OSError, EOFError, zlib.error)
"""Exceptions raised while reading a damaged file; gzip's own error is an OSError."""

_GZIP_MAGIC = b"\x1f\x8b"
_PIECE_BYTES = 1 << 20


def open_packed(path: Path) -> IO[bytes]:
    """Open a file for reading and unpack it if it is gzip.

    Raises OSError. Reading raises one of `READ_ERRORS` for a damaged file, and OSError beyond the size limit.
    """
    if not _is_packed(path):
        return path.open("rb")
    return cast(IO[bytes], io.BufferedReader(_GzipReader(path), 1 << 17))


def _is_packed(path: Path) -> bool:
    # The name is not used: browsers unpack `.gz` and keep the name.
    with path.open("rb") as file:
        return file.read(2) == _GZIP_MAGIC


def describe_read_error(error: Exception) -> str:
    """Return why a file breaks off and what to do, as one phrase."""
    cause = os_error_reason(error) if isinstance(error, OSError) else str(error)
    return f"the file breaks off ({cause}); fetch it again or recreate it"


def describe_damage(path: Path, *, include_truncated: bool = True) -> str:
    """Return why a gzip file cannot be read to the checksum at its end, or an empty string; a plain file has none.

    `include_truncated=False` accepts a truncated file, which is correct up to its end.
    """
    try:
        if _is_packed(path):
            with open_packed(path) as file:
                while file.read(_PIECE_BYTES):
                    pass
    except READ_ERRORS as error:
        is_truncated = isinstance(error, EOFError)
        return "" if is_truncated and not include_truncated else describe_read_error(error)
    return ""


class _GzipReader(io.RawIOBase):
    """The unpacked content of a gzip file, limited in size."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._limit = max(UNPACK_ALLOWANCE, MAX_UNPACK_RATIO * path.stat().st_size)
        self._file = gzip.GzipFile(path)
        self._size = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._file.read1(len(buffer))
        self._size += len(data)
        if self._size > self._limit:
            size = f"{self._limit / 2**30:.1f} GB"
            raise OSError(f"it unpacks to more than {size}, over {MAX_UNPACK_RATIO} times its size")
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._file.close()
        super().close()
