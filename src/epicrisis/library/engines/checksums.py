"""Checksums of a library's data files, to detect damage.

Files of the passage table never change after being written. The journal records their SHA-256 with the batch that wrote
them. Files of the word index end with a CRC-32 that tantivy writes but does not check.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from epicrisis.core.errors import LibraryDamaged
from epicrisis.library.base import manifest
from epicrisis.library.base.engine_errors import translate_errors
from epicrisis.library.engines import lance_table, sqlite_table, vector_index, word_index

SMALL_BYTES = 16 << 20
"""Bytes of small files checked whenever a library is opened (about 10 ms)."""
_DATA = f"{lance_table.NAME}/data/"
_VERSIONS = f"{lance_table.NAME}/_versions/"
_TRANSACTIONS = f"{lance_table.NAME}/_transactions/"
_ROW_FILES = (_DATA, f"{lance_table.NAME}/_deletions/")
_LAST_VERSION = 2**64 - 1
_BLOCK = 1 << 20
_REWRITTEN = {vector_index.NAME}
"""Files that change. Their checksum is recorded again with every batch."""
_FOOTER = struct.Struct("<II")
_FOOTER_MAGIC = 1337
_MAX_FILE_ROWS = 1 << 20
_SMALL_LIBRARY_BYTES = 4 << 30


@dataclass(frozen=True, slots=True)
class ChecksumChanges:
    """SHA-256 of new and changed files, and the removed files, by path within the library."""

    updated: Mapping[str, str]
    removed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Damage:
    """Damaged and missing data files, by path within the library."""

    files: int
    """Number of files with a checksum."""
    changed: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    superseded: tuple[str, ...] = ()
    """Changed or missing files of earlier versions, no longer in use."""
    words: tuple[str, ...] = ()
    """Damaged files of the word index."""


def find_checksum_changes(folder: Path, recorded: Iterable[str]) -> ChecksumChanges:
    """Compare the data files with the recorded ones and hash the new ones."""
    existing = _list_data_files(folder)
    known_names = set(recorded)
    updated = {}
    with translate_errors(folder):
        for name in existing:
            if name not in known_names or name in _REWRITTEN:
                updated[name] = sha256(folder / name)
    return ChecksumChanges(updated, tuple(sorted(known_names - existing.keys())))


def verify_data_files(folder: Path, recorded: Mapping[str, str]) -> Damage:
    """Read every data file once and return the damage."""
    changed, missing = _compare(folder, recorded)
    # Changed files may have disappeared since, so they are added to the existing ones.
    current = _select_current(folder, {*_list_data_files(folder), *changed})
    path_of_index = folder / word_index.NAME
    damaged_words = []
    with translate_errors(path_of_index):
        meta = json.loads((path_of_index / word_index.META).read_bytes())
        # A writer may be creating files of other segments.
        segments = {segment["segment_id"].replace("-", "") for segment in meta["segments"]}
        for path in sorted(path_of_index.iterdir()):
            try:
                if path.name.partition(".")[0] in segments and not _has_valid_crc(path):
                    damaged_words.append(f"{word_index.NAME}/{path.name}")
            except FileNotFoundError:
                continue
    return Damage(
        files=len(recorded),
        changed=tuple(sorted(current.intersection(changed))),
        missing=tuple(missing),
        superseded=tuple(sorted(set(changed) - current)),
        words=tuple(damaged_words),
    )


def check_small_files(folder: Path, recorded: Mapping[str, str]) -> None:
    """Raise LibraryDamaged if a small file in use differs from its checksum.

    This runs before the engines read the files, because damaged ones make them exhaust the memory. In a small library
    every file of the passage table is checked, in a large one only those without passages.
    """
    sizes = _list_data_files(folder)
    current = _select_current(folder, sizes) - {vector_index.NAME}
    total = 0
    small = {}
    for name in sorted(current & recorded.keys(), key=lambda name: sizes[name]):
        total += sizes[name]
        if total > SMALL_BYTES:
            break
        small[name] = recorded[name]
    if changed := _compare(folder, small)[0]:
        raise LibraryDamaged(_describe_damage(folder, changed))


def check_before_compaction(folder: Path, recorded: Mapping[str, str], dimensions: int) -> None:
    """Raise LibraryDamaged if a data file to be read by a compaction changed.

    A compaction would copy the damage and give the copy a valid checksum. Files with the maximum number of rows are
    not joined, so they are skipped in large libraries. Damaged descriptions of earlier versions are removed, because
    Lance reads all of them when it removes old versions.
    """
    sizes = _list_data_files(folder)
    current = _select_current(folder, sizes)
    is_small = sum(sizes.values()) < _SMALL_LIBRARY_BYTES
    full_bytes = _MAX_FILE_ROWS * dimensions * 2
    joined, earlier = {}, {}
    for name in sizes.keys() & recorded.keys():
        if name not in current:
            if name.startswith(_VERSIONS):
                earlier[name] = recorded[name]
        elif name.startswith(_ROW_FILES) and (is_small or sizes[name] < full_bytes):
            joined[name] = recorded[name]
    if changed := _compare(folder, joined)[0]:
        raise LibraryDamaged(_describe_damage(folder, changed))
    with translate_errors(folder):
        for name in _compare(folder, earlier)[0]:
            (folder / name).unlink(missing_ok=True)


def _describe_damage(folder: Path, names: Sequence[str]) -> str:
    """Return the error message for changed data files."""
    rest = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return (
        f"{folder}: {', '.join(names[:3])}{rest} changed after being written (a damaged disk?): restore the folder "
        "from a backup, or create the library again"
    )


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, as 64 hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def list_current_files(folder: Path) -> set[str]:
    """Return the names of the data files of the newest version: the table, the manifest and the index's report."""
    return _select_current(folder, _list_data_files(folder))


def table_version(names: Iterable[str]) -> int:
    """Return the version of the table with these data files, -1 without one."""
    newest = _find_newest(names)
    return -1 if newest is None else _version_number(newest)


def _find_newest(names: Iterable[str]) -> str | None:
    """Return the file that describes the newest version of the table, or None."""
    return max((name for name in names if name.startswith(_VERSIONS)), key=_version_number, default=None)


def _version_number(name: str) -> int:
    """Return the version described by a file. Lance names these files so that the newest sorts first."""
    stem = Path(name).stem
    if not stem.isdecimal():
        return -1
    return _LAST_VERSION - int(stem) if len(stem) == len(str(_LAST_VERSION)) else int(stem)


def _select_current(folder: Path, names: Iterable[str]) -> set[str]:
    """Return the data files that the newest version of the library may read."""
    newest = _find_newest(names)
    with translate_errors(folder):
        try:
            description = (folder / newest).read_bytes() if newest else b""
        except FileNotFoundError:
            description = b""
    current = {newest} if newest else set()
    for name in names:
        if name.startswith(_DATA):
            # The description contains the names of its row files.
            if Path(name).name.encode() in description:
                current.add(name)
        elif not name.startswith((_VERSIONS, _TRANSACTIONS)):
            current.add(name)
    return current


def _list_data_files(folder: Path) -> dict[str, int]:
    """Map the library's data files to their sizes in bytes, without temporary files and Lance's hint."""
    sizes = {}
    with translate_errors(folder):
        candidates = [folder / manifest.NAME, folder / vector_index.NAME]
        # Beside a table in SQLite, which has checksums of its own, Lance's files are those of an unfinished move.
        if not (folder / sqlite_table.NAME).exists():
            candidates += (folder / lance_table.NAME).rglob("*")
        for path in candidates:
            is_data = not path.name.startswith(".") and "#" not in path.name and path.name != lance_table.HINT
            try:
                if is_data and path.is_file():
                    sizes[path.relative_to(folder).as_posix()] = path.stat().st_size
            except FileNotFoundError:
                continue
    return sizes


def _compare(folder: Path, recorded: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Return the changed files and the missing files."""
    changed, missing = [], []
    with translate_errors(folder):
        for name, digest in sorted(recorded.items()):
            try:
                if sha256(folder / name) != digest:
                    changed.append(name)
            except FileNotFoundError:
                missing.append(name)
    return changed, missing


def _has_valid_crc(path: Path) -> bool:
    """Return whether a tantivy file's content has the CRC-32 in its footer."""
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(max(0, size - _FOOTER.size))
        footer = file.read()
        if len(footer) < _FOOTER.size:
            return False
        length, magic = _FOOTER.unpack(footer)
        end = size - _FOOTER.size - length
        if magic != _FOOTER_MAGIC or end < 0:
            return False
        file.seek(end)
        try:
            crc = json.loads(file.read(length))["crc"]
        except (ValueError, TypeError, KeyError, RecursionError):
            return False
        file.seek(0)
        actual, remaining = 0, end
        while remaining and (block := file.read(min(_BLOCK, remaining))):
            actual = zlib.crc32(block, actual)
            remaining -= len(block)
    return bool(actual == crc)
