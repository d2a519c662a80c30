"""Checksums of the data files of a library, so that changed bits are noticed.

The files of the passages never change once they are written: their SHA-256 stands in the journal from the batch that
wrote them. The files of the word index end with a checksum (CRC-32) that tantivy writes and does not read.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from epicrisis.errors import LibraryDamaged
from epicrisis.library import manifest, passage_table, vector_index
from epicrisis.library import word_index as words
from epicrisis.library.engine_errors import translate_errors

SMALL_BYTES = 16 << 20
"""Bytes of small files that are compared whenever a library is opened: about 10 ms."""
_DATA = f"{passage_table.NAME}/data/"
_VERSIONS = f"{passage_table.NAME}/_versions/"
_TRANSACTIONS = f"{passage_table.NAME}/_transactions/"
_ROWS = (_DATA, f"{passage_table.NAME}/_deletions/")
_LAST_VERSION = 2**64 - 1
_BLOCK = 1 << 20
_REWRITTEN = {vector_index.NAME}
"""Recorded anew with every batch: the other files never change."""
_TAIL = struct.Struct("<II")
_MAGIC = 1337
_FULL_ROWS = 1 << 20
_SMALL_LIBRARY = 4 << 30


@dataclass(frozen=True, slots=True)
class ChecksumChanges:
    """SHA-256 by path within the library: `written` are new or changed, `gone` are no longer there."""

    written: Mapping[str, str]
    gone: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Damage:
    """What is wrong with the data files of a library, by their paths within it.

    `recorded` is False where the library has no checksums of its passages. `changed` files are not as they were
    written, `missing` ones are not there; `superseded` ones are either, and of earlier versions, which nothing reads.
    `words` are those of the word index that are damaged.
    """

    recorded: bool
    files: int
    changed: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    superseded: tuple[str, ...] = ()
    words: tuple[str, ...] = ()


def find_checksum_changes(folder: Path, recorded: Iterable[str]) -> ChecksumChanges:
    """Return what has changed since these files were recorded. Reads only what is new."""
    there = _data_files(folder)
    known = set(recorded)
    new = [name for name in there if name not in known or name in _REWRITTEN]
    with translate_errors(folder):
        written = {name: sha256(folder / name) for name in new}
    return ChecksumChanges(written, tuple(sorted(known - there.keys())))


def verify_data_files(folder: Path, recorded: Mapping[str, str] | None) -> Damage:
    """Read every data file once and return what is wrong; `recorded` is None where nothing was."""
    changed, missing = _compared(folder, recorded or {})
    # A name that is missing is judged as one that is there.
    read = _current(folder, {*_data_files(folder), *changed})
    return Damage(
        recorded=recorded is not None,
        files=len(recorded or {}),
        changed=tuple(name for name in changed if name in read),
        missing=tuple(missing),
        superseded=tuple(name for name in changed if name not in read),
        words=tuple(_damaged_words(folder)),
    )


def check_small_files(folder: Path, recorded: Mapping[str, str]) -> None:
    """Raise LibraryDamaged where a small file that the library reads is not as it was written.

    It is done before the engines read them: of a damaged one they ask for so much memory that the process ends. Of a
    small library that is every file of the passages, of a large one what is not its data.
    """
    there = _data_files(folder)
    read = _current(folder, there) - {vector_index.NAME}
    left = SMALL_BYTES
    small = {}
    for name in sorted(read & recorded.keys(), key=lambda name: there[name]):
        left -= there[name]
        if left < 0:
            break
        small[name] = recorded[name]
    if changed := _compared(folder, small)[0]:
        raise LibraryDamaged(describe_damage(folder, changed))


def find_damage_before_compaction(folder: Path, recorded: Mapping[str, str], dimensions: int) -> list[str]:
    """Return the data files that are not as they were written, among those that a compaction reads.

    It would write them again, damage included, and with a checksum of its own. Files that hold as many rows as a file
    can are not joined with others: of large libraries they are left out.
    """
    there = _data_files(folder)
    total = sum(there.values())
    full = _FULL_ROWS * dimensions * 2
    names = _current(folder, there) & recorded.keys()
    names = {name for name in names if total < _SMALL_LIBRARY or there[name] < full}
    return _compared(folder, {name: recorded[name] for name in names if name.startswith(_ROWS)})[0]


def remove_damaged_versions(folder: Path, recorded: Mapping[str, str]) -> None:
    """Remove descriptions of earlier versions that are damaged. Lance reads them all where it removes old ones."""
    there = _data_files(folder)
    earlier = there.keys() - _current(folder, there)
    versions = {name: recorded[name] for name in earlier & recorded.keys() if name.startswith(_VERSIONS)}
    with translate_errors(folder):
        for name in _compared(folder, versions)[0]:
            (folder / name).unlink(missing_ok=True)


def describe_damage(folder: Path, names: Sequence[str]) -> str:
    """Return what an error says of changed data files."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return (
        f"{folder}: {', '.join(names[:3])}{more} changed after being written (a damaged disk?): copy the folder again "
        "from a backup, or make the library anew"
    )


def _current(folder: Path, names: Iterable[str]) -> set[str]:
    """Return those of the data files that the newest version of the library reads, or may read."""
    versions = [name for name in names if name.startswith(_VERSIONS)]
    newest = max(versions, key=_version, default=None)
    with translate_errors(folder):
        try:
            description = (folder / newest).read_bytes() if newest else b""
        except FileNotFoundError:
            description = b""
    found = {newest} if newest else set()
    for name in names:
        if name.startswith(_DATA):
            # The names of the files of rows stand there as they are.
            if Path(name).name.encode() in description:
                found.add(name)
        elif not name.startswith((_VERSIONS, _TRANSACTIONS)):
            found.add(name)
    return found


def _version(name: str) -> int:
    """Return the version that a file describes: they are named so that the newest comes first."""
    stem = Path(name).stem
    if not stem.isdecimal():
        return -1
    return _LAST_VERSION - int(stem) if len(stem) == len(str(_LAST_VERSION)) else int(stem)


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, as 64 hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _data_files(folder: Path) -> dict[str, int]:
    """Map the data files of the library to their sizes. Temporary files, and Lance's hint, are no data files."""
    found = {}
    with translate_errors(folder):
        candidates = [folder / manifest.NAME, folder / vector_index.NAME, *(folder / passage_table.NAME).rglob("*")]
        for path in candidates:
            named = not path.name.startswith(".") and "#" not in path.name and path.name != passage_table.HINT
            try:
                if named and path.is_file():
                    found[path.relative_to(folder).as_posix()] = path.stat().st_size
            except FileNotFoundError:
                continue
    return found


def _compared(folder: Path, recorded: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Return the files that are not as they were recorded, and those that are not there."""
    changed, missing = [], []
    with translate_errors(folder):
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
    describe_damage = []
    with translate_errors(place):
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
                    describe_damage.append(f"{words.NAME}/{path.name}")
            except FileNotFoundError:
                continue
    return describe_damage


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
