"""The files of stored answers: a folder for each owner, with a limit of age and number, and a note of what was removed.

    ANSWERS/HASH OF OWNER/ID.json       an answer
    ANSWERS/HASH OF OWNER/ID.removed    when and why an answer was removed
    ANSWERS/ID.json                     an answer of version 0.1, which had one folder for all

An answer removed for its age or for newer ones leaves a note for its page.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from epicrisis.core.errors import StorageError
from epicrisis.system.local_only import replace_file

KEEP_DAYS = 365
"""Days for which an answer is kept."""
KEEP_ANSWERS = 1_000
"""Answers of one user that are kept. The oldest goes first."""
STALE_SECONDS = 60.0
"""After this time, an incomplete file belongs to a process that was killed."""
DAY_SECONDS = 86_400.0
_ANSWER, _NOTE, _PART = ".json", ".removed", ".part"

RemovalReason: TypeAlias = Literal["age", "number"]


@dataclass(frozen=True, slots=True)
class AnswerRemoval:
    """When the server removed an answer, and why."""

    at: float
    """Seconds since the epoch."""
    reason: RemovalReason


class AnswerFiles:
    """The answers of every owner below one folder. Callers hold a lock around each method but `write`."""

    def __init__(self, folder: Path, keep_days: float = KEEP_DAYS, keep: int = KEEP_ANSWERS) -> None:
        self._folder = folder
        self._keep_seconds = keep_days * DAY_SECONDS
        self._keep = keep

    def write(self, id_: str, owner: str, content: bytes) -> None:
        """Store an answer. Its file is complete or absent, also after a kill. Raises StorageError."""
        path = self._folder_of(owner) / f"{id_}{_ANSWER}"
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _replace(path, content)

    def read(self, id_: str, owner: str) -> bytes | None:
        """Return the content of an answer of this owner, or None. An older answer may be of another owner."""
        for path in self._places(id_, owner):
            with suppress(FileNotFoundError):
                return path.read_bytes()
        return None

    def delete(self, id_: str, owner: str) -> None:
        """Delete an answer without a note."""
        for path in self._places(id_, owner):
            path.unlink(missing_ok=True)

    def find_removal(self, id_: str, owner: str) -> AnswerRemoval | None:
        """Return when and why an answer of this owner was removed, or None if it was not."""
        try:
            note = json.loads((self._folder_of(owner) / f"{id_}{_NOTE}").read_bytes())
            return AnswerRemoval(float(note["at"]), note["reason"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def drop(self, id_: str, owner: str, reason: RemovalReason) -> None:
        """Remove an answer and leave a note."""
        with suppress(OSError, StorageError):
            content = json.dumps({"at": time.time(), "reason": reason}).encode()
            _replace(self._folder_of(owner) / f"{id_}{_NOTE}", content)
            self.delete(id_, owner)

    def drop_surplus(self, owner: str) -> list[str]:
        """Remove the oldest answers of an owner beyond the limit. Return their ids."""
        paths = list(self._folder_of(owner).glob(f"*{_ANSWER}"))
        surplus = sorted(paths, key=_age_of, reverse=True)[: max(0, len(paths) - self._keep)]
        for path in surplus:
            self.drop(path.stem, owner, "number")
        return [path.stem for path in surplus]

    def is_expired(self, at: float) -> bool:
        """Return whether an answer of this time is older than answers may be."""
        return time.time() - at > self._keep_seconds

    def list_expired(self) -> Iterator[Path]:
        """Yield the files of answers that are older than answers may be, by the time of the file."""
        for path in (*self._folder.glob(f"*{_ANSWER}"), *self._folder.glob(f"*/*{_ANSWER}")):
            if _age_of(path) > self._keep_seconds:
                yield path

    def drop_file(self, path: Path) -> None:
        """Remove the file of an answer, and leave a note if its folder tells the owner."""
        with suppress(OSError, StorageError):
            if path.parent != self._folder:
                content = json.dumps({"at": time.time(), "reason": "age"}).encode()
                _replace(path.with_suffix(_NOTE), content)
            path.unlink(missing_ok=True)

    def clean(self) -> None:
        """Delete what a killed process left incomplete, and notes as old as answers may be."""
        for path in (*self._folder.glob(f"*{_PART}"), *self._folder.glob(f"*/*{_PART}")):
            if _age_of(path) > STALE_SECONDS:
                path.unlink(missing_ok=True)
        for path in self._folder.glob(f"*/*{_NOTE}"):
            if _age_of(path) > self._keep_seconds:
                path.unlink(missing_ok=True)

    def _folder_of(self, owner: str) -> Path:
        return self._folder / hashlib.sha256(owner.encode()).hexdigest()[:32]

    def _places(self, id_: str, owner: str) -> tuple[Path, Path]:
        name = f"{id_}{_ANSWER}"
        return self._folder_of(owner) / name, self._folder / name


def _age_of(path: Path) -> float:
    """Return the age of a file in seconds; 0 for a file that is gone."""
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return 0.0


def _replace(path: Path, content: bytes) -> None:
    try:
        replace_file(path, path.with_suffix(_PART), [content])
    except OSError as error:
        raise StorageError(f"the answer cannot be stored, so it is not shown: {error.strerror}") from error
