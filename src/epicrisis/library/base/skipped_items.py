"""The items that an addition skipped: counted by reason for the summary, and all of them in a file of the library."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from epicrisis.corpus.base.reader_base import Skipped
from epicrisis.system.local_only import open_private

SKIPPED_FILE = "skipped.jsonl"
"""The file in the library's folder with all items that the last addition skipped. It has no text of documents."""
MAX_REASONS = 30
"""Maximum number of reasons that are told apart."""
OTHER_REASONS = "other reasons"
_MAX_NAMES = 3
_NUMBER = re.compile(r"\d[\d,.]*(?<=\d)", re.ASCII)


@dataclass(frozen=True, slots=True)
class SkippedReason:
    """Why something was skipped, and what to do."""

    reason: str
    count: int
    names: tuple[str, ...]
    """The first files or documents."""


def group_by_reason(items: Iterable[Skipped]) -> tuple[SkippedReason, ...]:
    """Return the reasons of the items with counts and first names, the most frequent first."""
    reasons = SkippedItems()
    for item in items:
        reasons.add(item)
    return reasons.by_reason()


class SkippedItems:
    """Counts skipped items by reason. With a library's folder, the first one replaces the file of an earlier addition.

    Reasons that differ in numbers only, such as the place of an invalid byte, are one reason.
    """

    def __init__(self, library: Path | None = None) -> None:
        self._counts: dict[str, int] = {}
        self._names: dict[str, list[str]] = {}
        self._wordings: dict[str, str] = {}
        self._path = None if library is None else library / SKIPPED_FILE
        self._file: IO[str] | None = None
        if self._path is not None:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)

    def add(self, item: Skipped) -> None:
        """Count an item, and write it to the file. A full disk does not stop the addition."""
        key = _NUMBER.sub("#", item.reason)
        if key not in self._counts and len(self._counts) >= MAX_REASONS:
            key = OTHER_REASONS
        self._wordings.setdefault(key, key if key == OTHER_REASONS else item.reason)
        self._counts[key] = self._counts.get(key, 0) + 1
        names = self._names.setdefault(key, [])
        if len(names) < _MAX_NAMES:
            names.append(", ".join(filter(None, (item.path, item.where))))
        if self._path is not None:
            line = json.dumps({"path": item.path, "where": item.where, "reason": item.reason}, ensure_ascii=False)
            with suppress(OSError):
                if self._file is None:
                    self._file = os.fdopen(open_private(self._path, os.O_WRONLY | os.O_TRUNC), "w", 1, encoding="utf-8")
                self._file.write(line + "\n")

    def by_reason(self) -> tuple[SkippedReason, ...]:
        """Return the reasons, the most frequent first."""
        reasons: list[SkippedReason] = []
        for key in sorted(self._counts, key=self._counts.__getitem__, reverse=True):
            reasons.append(SkippedReason(self._wordings[key], self._counts[key], tuple(self._names[key])))
        return tuple(reasons)

    def close(self) -> None:
        """Close the file, if there is one."""
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
            self._file = None
