"""Files as bytes, unpacked where they are gzip; JSON from outside is looked at before it is parsed.

A gzip file of 10 MB can unpack to 10 GB, and 10 MB of JSON can take 300 MB of memory: both are bounded here.
"""

from __future__ import annotations

import gzip
import io
from pathlib import Path
from typing import IO, Any, cast

MOST_TIMES = 200
"""How many times its own size a gzip file may unpack to. Text unpacks to 3 to 30 times its size."""
ALWAYS = 1024**3
"""Bytes that any gzip file may unpack to."""
MOST_VALUES = 20_000_000
"""Values of a JSON file that is parsed as a whole: some 2 GB of memory."""

_GZIP = b"\x1f\x8b"


def open_packed(path: Path) -> IO[bytes]:
    """Open a file for reading, unpacked where it is gzip.

    Raises OSError. Reading may raise EOFError and zlib.error too, and OSError where far too much is unpacked.
    """
    if not is_packed(path):
        return path.open("rb")
    return cast(IO[bytes], io.BufferedReader(_Unpacked(path), 1 << 17))


def is_packed(path: Path) -> bool:
    """Return whether the file is gzip: by its content, since browsers unpack `.gz` and keep the name."""
    with path.open("rb") as file:
        return file.read(2) == _GZIP


def check_value_count(raw: bytes, most: int = MOST_VALUES) -> None:
    """Raise ValueError for JSON of more than `most` values, counted from above by its commas and brackets."""
    if sum(raw.count(mark) for mark in (b",", b"[", b"{")) > most:
        raise ValueError(f"holds more than {most:,} values; split it")


class _Unpacked(io.RawIOBase):
    """What a gzip file unpacks to, as long as it is not too much."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._most = max(ALWAYS, MOST_TIMES * path.stat().st_size)
        self._file = gzip.GzipFile(path)
        self._read = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._file.read1(len(buffer))
        self._read += len(data)
        if self._read > self._most:
            raise OSError(f"it unpacks to more than {self._most / 2**30:.1f} GB, over {MOST_TIMES} times its size")
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._file.close()
        super().close()
