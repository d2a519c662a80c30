"""Checksums of the data files of a library, so that changed bits are noticed.

The files of the passages never change once they are written: their SHA-256 stands in the journal from the batch that
wrote them. The files of the word index end with a checksum (CRC-32) that tantivy writes and does not read.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from . import index, manifest, vectors, words
from .foreign import ours

_BLOCK = 1 << 20
_REWRITTEN = {index.NAME}
"""Recorded anew with every batch: the other files never change."""
_TAIL = struct.Struct("<II")
_MAGIC = 1337
_FULL_ROWS = 1 << 20
_SMALL_LIBRARY = 4 << 30


@dataclass(frozen=True, slots=True)
class Digests:
    """SHA-256 by path within the library: `written` are new or changed, `gone` are no longer there."""

    written: Mapping[str, str]
    gone: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Damage:
    """What is wrong with the data files of a library, by their paths within it.

    `recorded` is False where the library has no checksums of its passages. `changed` files are not as they were
    written, `missing` ones are not there; `words` are those of the word index that are damaged.
    """

    recorded: bool
    files: int
    changed: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    words: tuple[str, ...] = ()


def unrecorded(folder: Path, recorded: Iterable[str]) -> Digests:
    """Return what has changed since these files were recorded. Reads only what is new."""
    there = _data_files(folder)
    known = set(recorded)
    new = [name for name in there if name not in known or name in _REWRITTEN]
    with ours(folder):
        written = {name: sha256(folder / name) for name in new}
    return Digests(written, tuple(sorted(known - there.keys())))


def verified(folder: Path, recorded: Mapping[str, str] | None) -> Damage:
    """Read every data file once and return what is wrong; `recorded` is None where nothing was."""
    changed, missing = _compared(folder, recorded or {})
    return Damage(
        recorded=recorded is not None,
        files=len(recorded or {}),
        changed=tuple(changed),
        missing=tuple(missing),
        words=tuple(_damaged_words(folder)),
    )


def changed_before_compaction(folder: Path, recorded: Mapping[str, str], dimensions: int) -> list[str]:
    """Return the data files that are not as they were written, among those that a compaction reads.

    It would write them again, damage included, and with a checksum of its own. Files that hold as many rows as a file
    can are not joined with others: of large libraries they are left out.
    """
    there = _data_files(folder)
    total = sum(there.values())
    full = _FULL_ROWS * dimensions * 2
    read = {name: digest for name, digest in recorded.items() if total < _SMALL_LIBRARY or there.get(name, 0) < full}
    parts = {f"{vectors.NAME}/data", f"{vectors.NAME}/_deletions"}
    return _compared(folder, {name: read[name] for name in read if str(Path(name).parent) in parts})[0]


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, as 64 hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _data_files(folder: Path) -> dict[str, int]:
    """Map the data files of the library to their sizes. Temporary files, and Lance's hint, are no data files."""
    found = {}
    with ours(folder):
        candidates = [folder / manifest.NAME, folder / index.NAME, *(folder / vectors.NAME).rglob("*")]
        for path in candidates:
            named = not path.name.startswith(".") and "#" not in path.name and path.name != vectors.HINT
            try:
                if named and path.is_file():
                    found[path.relative_to(folder).as_posix()] = path.stat().st_size
            except FileNotFoundError:
                continue
    return found


def _compared(folder: Path, recorded: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Return the files that are not as they were recorded, and those that are not there."""
    changed, missing = [], []
    with ours(folder):
        for name, digest in sorted(recorded.items()):
            try:
                if sha256(folder / name) != digest:
                    changed.append(name)
            except FileNotFoundError:
                missing.append(name)
    return changed, missing


def _damaged_words(folder: Path) -> list[str]:
    """Return the files of the word index, as last committed, whose content is not what their checksum says."""
    place = folder / words.NAME
    damaged = []
    with ours(place):
        # A writer at work may have others under way.
        segments = {
            segment["segment_id"].replace("-", "")
            for segment in json.loads((place / words.META).read_bytes())["segments"]
        }
        for path in sorted(place.iterdir()):
            if path.name.partition(".")[0] not in segments:
                continue
            try:
                if not _has_its_crc(path):
                    damaged.append(f"{words.NAME}/{path.name}")
            except FileNotFoundError:
                continue
    return damaged


def _has_its_crc(path: Path) -> bool:
    """Whether the CRC-32 at the end of a file of tantivy's is that of what stands before it."""
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(max(0, size - _TAIL.size))
        tail = file.read()
        if len(tail) < _TAIL.size:
            return False
        length, magic = _TAIL.unpack(tail)
        end = size - _TAIL.size - length
        if magic != _MAGIC or end < 0:
            return False
        file.seek(end)
        try:
            crc = json.loads(file.read(length))["crc"]
        except (ValueError, TypeError, KeyError, RecursionError):
            return False
        file.seek(0)
        actual, left = 0, end
        while left and (block := file.read(min(_BLOCK, left))):
            actual = zlib.crc32(block, actual)
            left -= len(block)
    return bool(actual == crc)
