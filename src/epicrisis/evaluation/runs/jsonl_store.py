"""A file of JSON lines that only grows, each on the disk before it counts; one process at a time adds to it.

Knows nothing of what a line says.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from epicrisis.errors import InputError, StorageError
from epicrisis.printable import printable_json, replace_surrogates
from epicrisis.privacy import open_private

_BLOCK = 1 << 16
_DIGITS = 18
"""Of the largest whole number that a line may hold."""


@dataclass(frozen=True, slots=True)
class Line:
    """One object of the file."""

    number: int
    """From 1."""
    start: int
    """Bytes before it."""
    value: dict[str, Any]


def read_lines(path: Path) -> Iterator[Line]:
    """The file's objects in their order; none where there is no file.

    Blank lines are passed over, and so is what a kill left half-written behind the last line; a last line that an
    editor left without its end counts. The file stays as it is. Raises InputError where another line is no JSON object,
    and where it cannot be read.
    """
    start = 0
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                value = _object(line)
                if value is not None:
                    yield Line(number, start, value)
                elif line.strip() and not _is_half(line):
                    raise InputError(f"{path}, line {number}, is no JSON object: mend it, or name another file")
                start += len(line)
    except FileNotFoundError:
        return
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}): name another file") from error


def append_line(path: Path, value: Mapping[str, Any]) -> None:
    """Durable when it returns, in a file that is its owner's alone. The caller holds its lock.

    Takes back what was left half-written before. Raises StorageError where the disk does not take the line: then
    nothing of it is there.
    """
    text = printable_json(json.dumps(value, ensure_ascii=False)) + "\n"
    try:
        with io.FileIO(open_private(path, os.O_RDWR | os.O_APPEND), "r+") as file:
            whole = _mended(file)
            try:
                # Half a surrogate pair, as a model may write it, is no text; escaped it is still JSON.
                _write(file, text.encode(errors="backslashreplace"))
                os.fsync(file.fileno())
            except OSError:
                file.truncate(whole)
                raise
    except OSError as error:
        raise StorageError(
            f"{path} cannot be written ({error.strerror}): free some space and run the same command again"
        ) from error


def sort_lines(path: Path, place: Callable[[Line], int]) -> None:
    """Put the file's lines in the order of their places, whole or not at all; those of one place keep their order.

    A file that is in order, or is no regular one, stays as it is. The caller holds its lock. Raises InputError as
    `read_lines`, and StorageError.
    """
    target = path.resolve()
    if not target.is_file():
        return
    starts = [(place(line), line.start) for line in read_lines(target)]
    if starts == sorted(starts):
        return
    new = target.with_name(f".{target.name}.sorted")
    try:
        with target.open("rb") as old, io.FileIO(open_private(new, os.O_RDWR | os.O_TRUNC), "r+") as file:
            for _, start in sorted(starts):
                old.seek(start)
                _write(file, old.readline().rstrip(b"\n") + b"\n")
            os.fsync(file.fileno())
        new.replace(target)
    except OSError as error:
        raise StorageError(f"{path} cannot be put in order ({error.strerror}): free some space") from error
    finally:
        new.unlink(missing_ok=True)


def alone(path: Path, lock: FileLock | None = None) -> FileLock:
    """The lock of whoever adds to that file or folder, taken; the system frees it when the process ends, however it
    ends. By itself it lies beside the file (`.NAME.lock`), and whoever asks again in this process has it too.

    Raises InputError where another process holds it, StorageError where the disk takes none.
    """
    beside = path.with_name(f".{path.name}.lock")
    taken = lock or FileLock(beside, timeout=0, thread_local=False, is_singleton=True)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        taken.acquire()
    except Timeout:
        raise InputError(f"another process is at work on {path}: wait until it ends, or stop it") from None
    except OSError as error:
        raise StorageError(f"{path} cannot be written ({error.strerror}): free some space, or name another") from error
    return taken


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        # Earlier versions wrote halves of surrogate pairs, escaped, as models had written them.
        value = parsed(replace_surrogates(line.decode("utf-8-sig", "surrogatepass")))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def parsed(text: str | bytes) -> Any:
    """Return the JSON value. Raises ValueError where it is none or holds a number that no record holds, and
    RecursionError for one that is nested too deep."""
    return json.loads(text, parse_int=_integer, parse_float=_finite, parse_constant=_finite)


def _integer(digits: str) -> int:
    """Return the number. Raises ValueError for one that no counter of ours can hold: sums of it would overflow."""
    if len(digits) > _DIGITS:
        raise ValueError("a number is too large")
    return int(digits)


def _finite(text: str) -> float:
    """Return the number. Raises ValueError for `NaN`, `Infinity` and what is as large: no record holds them."""
    value = float(text)
    if not isfinite(value):
        raise ValueError("a number is not finite")
    return value


def _is_half(line: bytes) -> bool:
    return line.startswith(b"{") and not line.endswith(b"\n")


def _mended(file: io.FileIO) -> int:
    """Bytes of the file, now that nothing half-written stands behind its last line and that one has its end."""
    end = at = file.seek(0, os.SEEK_END)
    tail = b""
    while at and b"\n" not in tail:
        size = min(_BLOCK, at)
        at -= size
        file.seek(at)
        tail = file.read(size) + tail
    tail = tail.rpartition(b"\n")[2]
    if not tail:
        return end
    if _is_half(tail) and _object(tail) is None:
        return file.truncate(end - len(tail))
    _write(file, b"\n")
    return end + 1


def _write(file: io.FileIO, content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[file.write(left) :]
