"""Search files for the strings of patients: raw bytes, and the contents of gzip and zip files.

    for found in scan_files([folder], strings):
        print(found.path, found.names, found.texts)

SQLite files and their logs are searched as raw bytes, unused pages included.
"""

from __future__ import annotations

import gzip
import os
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from epicrisis.operations.forgetting.patient_strings import WINDOW, PatientStrings

_BLOCK = 1 << 18
_OVERLAP = 4096
"""Bytes that are searched with the block before and after: more than the longest name."""


@dataclass(frozen=True, slots=True)
class FileMatch:
    """A file with strings of the patients, or one that could not be read."""

    path: Path
    names: int = 0
    texts: int = 0
    unreadable: str = ""
    """Why it could not be searched."""


def list_files(places: Iterable[Path], left_out: Collection[Path] = ()) -> list[Path]:
    """Return all files of these files and folders, once each, without those below `left_out`."""
    files: dict[Path, None] = {}
    for place in places:
        if place.is_file():
            files[place] = None
        for parent, folders, names in os.walk(place):
            folders[:] = [name for name in folders if Path(parent, name) not in left_out]
            for name in sorted(names):
                path = Path(parent, name)
                if path.is_file() and not path.is_symlink():
                    files[path] = None
    return list(files)


def scan_files(
    files: Iterable[Path], strings: PatientStrings, on_file: Callable[[Path], object] = lambda path: None
) -> Iterator[FileMatch]:
    """Yield the files with strings of the patients in their name or content, and those that cannot be read."""
    for path in files:
        on_file(path)
        try:
            match = scan_file(path, strings)
        except FileNotFoundError:
            continue
        except (OSError, EOFError, zlib.error, zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
            yield FileMatch(path, unreadable=str(error) or type(error).__name__)
            continue
        if match.names or match.texts:
            yield match


def scan_file(path: Path, strings: PatientStrings) -> FileMatch:
    """Return how often a file contains strings of the patients, each name and window counted. Raises OSError."""
    names = 1 if strings.is_in(path.name) else 0
    texts = 0
    with path.open("rb") as file:
        start = file.read(4)
        file.seek(0)
        for block in _read_blocks(file):
            for hit in strings.find(block):
                names += hit.kind == "name"
                texts += hit.kind == "text"
    for content in _read_members(path, start):
        for hit in strings.find(content):
            names += hit.kind == "name"
            texts += hit.kind == "text"
    return FileMatch(path, names, texts)


def _read_members(path: Path, start: bytes) -> Iterator[bytes]:
    """Yield the decompressed content of a gzip or zip file in blocks."""
    if start.startswith(b"\x1f\x8b"):
        with gzip.open(path, "rb") as file:
            yield from _read_blocks(file)
    elif start == b"PK\x03\x04":
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                yield member.filename.encode()
                with archive.open(member) as part:
                    yield from _read_blocks(part)


def _read_blocks(file: IO[bytes] | gzip.GzipFile) -> Iterator[bytes]:
    """Yield the content in blocks that overlap."""
    rest = b""
    while data := file.read(_BLOCK):
        yield rest + data
        rest = (rest + data)[-max(_OVERLAP, WINDOW) :]
