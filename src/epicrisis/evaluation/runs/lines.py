"""A file of JSON lines that only grows, each line on the disk before it counts. Knows nothing of what a line says."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from epicrisis.errors import StorageError


def whole_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """(number from 1, line) in the file's order; none where there is no file.

    What a kill left half-written behind the last whole line is taken back when the last one was read; a reader that
    breaks off, because the lines are none of its own, leaves the file as it is.
    """
    if not path.exists():
        return
    whole = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                break
            yield number, line
            whole += len(line)
    if whole < path.stat().st_size:
        os.truncate(path, whole)


def append_line(path: Path, value: Mapping[str, Any]) -> None:
    """Durable when it returns. Raises StorageError where the disk does not take it."""
    line = json.dumps(value, ensure_ascii=False) + "\n"
    try:
        with path.open("ab") as file:
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise StorageError(
            f"{path} cannot be written ({error.strerror}): free some space and run the same command again"
        ) from error
