"""Files of JSON lines: append durably, read what killed processes left, sort. No text is quoted in error messages.

append_line(path, {"id": 7})
for line in read_lines(path):
    print(line.number, line.value)
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from pydantic_core import from_json

from epicrisis.core.errors import InputError, StorageError
from epicrisis.core.printable import printable_json, replace_surrogates
from epicrisis.system.local_only import open_private

_BLOCK = 1 << 16
_MAX_DIGITS = 18
"""Digits of the largest integer that a line may hold."""


@dataclass(frozen=True, slots=True)
class Line:
    """One JSON object of a file."""

    number: int
    """From 1."""
    start: int
    """Offset of its first byte."""
    value: dict[str, Any]


def read_lines(path: Path, *, fast: bool = False) -> Iterator[Line]:
    """Yield the JSON objects of a file in order; nothing if there is no file. The file is not changed.

    With `fast`, numbers may be outside of the range that records hold: enough to find a line, not to use it.

    Skips blank lines and an incomplete last line, which a killed process leaves. A complete last line without a
    newline counts. Raises InputError if another line is not a JSON object, or if the file cannot be read.
    """
    start = 0
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                value = _parse_quickly(line) if fast else None
                if value is None:
                    value = _parse_object(line)
                if value is not None:
                    yield Line(number, start, value)
                elif line.strip() and not _is_incomplete(line):
                    raise InputError(f"{path}, line {number}, is not a JSON object: repair it, or choose another file")
                start += len(line)
    except FileNotFoundError:
        return
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}): choose another file") from error


def read_latest_lines(path: Path, identity: Callable[[dict[str, Any]], Hashable]) -> Iterator[Line]:
    """Yield the last line of each identity, in the order of the first lines, one at a time in memory.

    Raises InputError as `read_lines` does.
    """
    latest = {identity(line.value): (line.number, line.start) for line in read_lines(path, fast=True)}
    with path.open("rb") as file:
        for number, start in latest.values():
            file.seek(start)
            yield Line(number, start, _parse_object(file.readline()) or {})


def append_line(path: Path, value: Mapping[str, Any]) -> None:
    """Append one line, as `append_lines` does."""
    append_lines(path, [value])


def append_lines(path: Path, values: Iterable[Mapping[str, Any]]) -> None:
    """Append lines. They are on the disk when this returns, and only the owner may read the file.

    The caller holds the lock. Removes an incomplete last line first. Raises StorageError if the disk refuses a line;
    then the file holds nothing of any.
    """
    content = b"".join(map(dump_line, values))
    try:
        with io.FileIO(open_private(path, os.O_RDWR | os.O_APPEND), "r+") as file:
            size = _repair_end(file)
            try:
                _write_all(file, content)
                os.fsync(file.fileno())
            except OSError:
                file.truncate(size)
                raise
    except OSError as error:
        raise StorageError(
            f"{path} cannot be written ({error.strerror}): free some space and run the same command again"
        ) from error


def dump_line(value: Mapping[str, Any]) -> bytes:
    """Return one line with its end."""
    text = printable_json(json.dumps(value, ensure_ascii=False)) + "\n"
    # A model may write half of a surrogate pair, which has no UTF-8. Escaped, it is still JSON.
    return text.encode(errors="backslashreplace")


def sort_lines(path: Path, sort_key: Callable[[Line], int]) -> None:
    """Sort the lines of a file, completely or not at all. The order of lines with equal keys does not change.

    The caller holds the lock. A file that is sorted, or is not a regular file, is not touched. Raises InputError as
    `read_lines` does, and StorageError.
    """
    target = path.resolve()
    if not target.is_file():
        return
    starts = [(sort_key(line), line.start) for line in read_lines(target)]
    if starts == sorted(starts):
        return
    new = target.with_name(f".{target.name}.sorted")
    try:
        with target.open("rb") as old, io.FileIO(open_private(new, os.O_RDWR | os.O_TRUNC), "r+") as file:
            for _, start in sorted(starts):
                old.seek(start)
                _write_all(file, old.readline().rstrip(b"\n") + b"\n")
            os.fsync(file.fileno())
        new.replace(target)
    except OSError as error:
        raise StorageError(f"{path} cannot be sorted ({error.strerror}): free some space") from error
    finally:
        new.unlink(missing_ok=True)


def acquire_lock(path: Path, lock: FileLock | None = None) -> FileLock:
    """Return the lock of the process that adds to a file or folder. The system releases it when the process ends.

    Without `lock` it is `.NAME.lock` next to the file, and a second call in this process returns the same lock. Raises
    InputError if another process holds it, and StorageError if it cannot be created.
    """
    lock_path = path.with_name(f".{path.name}.lock")
    lock = lock or FileLock(lock_path, timeout=0, thread_local=False, is_singleton=True, mode=0o600)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        raise InputError(f"another process is using {path}: wait until it ends, or stop it") from None
    except OSError as error:
        raise StorageError(
            f"{path} cannot be written ({error.strerror}): free some space, or choose another"
        ) from error
    return lock


def parse_json(text: str | bytes) -> Any:
    """Return the JSON value of a text.

    Raises ValueError if the text is not JSON or holds a number that no record can hold, and RecursionError if it is
    nested too deeply.
    """
    return json.loads(text, parse_int=_parse_integer, parse_float=_parse_finite, parse_constant=_parse_finite)


def _parse_quickly(line: bytes) -> dict[str, Any] | None:
    """Return the object of a usual line, at a fraction of the time of `_parse_object`; None for any other line."""
    try:
        value = from_json(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _parse_object(line: bytes) -> dict[str, Any] | None:
    try:
        # Earlier versions wrote halves of surrogate pairs, escaped, as models had written them.
        value = parse_json(replace_surrogates(line.decode("utf-8-sig", "surrogatepass")))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _parse_integer(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise ValueError("a number is too large")
    return int(digits)


def _parse_finite(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise ValueError("a number is not finite")
    return value


def _is_incomplete(line: bytes) -> bool:
    return line.startswith(b"{") and not line.endswith(b"\n")


def _repair_end(file: io.FileIO) -> int:
    """Remove an incomplete last line, or end a complete one with a newline. Return the size of the file."""
    end = position = file.seek(0, os.SEEK_END)
    tail = b""
    while position and b"\n" not in tail:
        size = min(_BLOCK, position)
        position -= size
        file.seek(position)
        tail = file.read(size) + tail
    tail = tail.rpartition(b"\n")[2]
    if not tail:
        return end
    if _is_incomplete(tail) and _parse_object(tail) is None:
        return file.truncate(end - len(tail))
    _write_all(file, b"\n")
    return end + 1


def _write_all(file: io.FileIO, content: bytes) -> None:
    remaining = memoryview(content)
    while remaining:
        remaining = remaining[file.write(remaining) :]
