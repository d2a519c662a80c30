"""Finished answers with the passages they cite, so that a reload, a shared link and print show the same highlights.

    answers = AnswerStore(folder)
    stored = answers.add(answer, passages, library="trials", owner="")
    answers.find(stored.id, owner="")

An answer's id cannot be guessed. An answer is found only for its owner.
"""

from __future__ import annotations

import os
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from threading import Lock
from types import MappingProxyType
from typing import TYPE_CHECKING

from epicrisis.answers import Answer, Usage
from epicrisis.errors import StorageError
from epicrisis.privacy import open_private
from epicrisis.types import Passage

if TYPE_CHECKING:
    from pydantic import TypeAdapter

MAX_IN_MEMORY = 200
"""Answers kept in memory. With a folder, older ones are read from it again; without one, they are gone."""
ANSWERS_FOLDER = "answers"
"""Name of the folder of the answers, in the folder of the server."""
_ID = re.compile(r"[A-Za-z0-9_-]{32}")
_ID_BYTES = 24


@dataclass(frozen=True, slots=True)
class FollowUp:
    """How a follow-up question came from the answer before it."""

    previous: str
    """Id of the answer before it."""
    words: str
    """The question as it was typed."""
    is_completed: bool
    """Whether the chat model put in what the words refer to."""
    notice: str = ""
    """Why the words alone were asked, if they were."""
    usage: Usage = field(default_factory=Usage)
    """The call that completed the question."""


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """A finished answer as the server keeps it."""

    id: str
    answer: Answer
    passages: tuple[Passage, ...]
    """The passages that the answer cites, as they were when it was written."""
    library: str
    """The id of the library among those of the server."""
    owner: str
    """The owner id of the user who asked (`Caller.owner`)."""
    at: float
    """Seconds since the epoch."""
    reason: str | None = None
    """Why the owner read the record of a patient who was not assigned."""
    left_out: tuple[str, ...] = ()
    """Ids of the notes that the time filter left out at first."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """The filters of the form, by field. A follow-up question has the same."""
    follow_up: FollowUp | None = None

    @property
    def patient(self) -> str | None:
        """The patient whose record was read or whom the question names, also if a strategy reads no library."""
        return self.answer.patient or self.answer.question.patient


class AnswerStore:
    """Keeps answers in memory and, with a folder, in one file each that only its owner can read."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._answers: OrderedDict[str, StoredAnswer] = OrderedDict()
        self._lock = Lock()

    def add(
        self,
        answer: Answer,
        passages: Sequence[Passage],
        *,
        library: str,
        owner: str = "",
        reason: str | None = None,
        left_out: Sequence[str] = (),
        settings: Mapping[str, str] = MappingProxyType({}),
        follow_up: FollowUp | None = None,
    ) -> StoredAnswer:
        """Keep an answer under a new id. Its file is complete or absent, also after a kill. Raises StorageError."""
        id_ = secrets.token_urlsafe(_ID_BYTES)
        stored = StoredAnswer(
            id_,
            answer,
            tuple(passages),
            library,
            owner,
            time.time(),
            reason,
            tuple(left_out),
            dict(settings),
            follow_up,
        )
        if self._folder is not None:
            path = self._folder / f"{id_}.json"
            part = path.with_suffix(".part")
            try:
                with os.fdopen(open_private(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb") as file:
                    file.write(_adapter().dump_json(stored))
                part.replace(path)
            except OSError as error:
                raise StorageError(f"the answer cannot be stored, so it is not shown: {error.strerror}") from None
        with self._lock:
            self._remember(stored)
        return stored

    def find(self, id_: str, owner: str = "") -> StoredAnswer | None:
        """Return the answer with this id, or None if there is none or if it belongs to another user."""
        if not _ID.fullmatch(id_):
            return None
        # Read under the lock, so that a deletion in between does not leave the answer in memory.
        with self._lock:
            stored = self._answers.get(id_)
            if stored is None and self._folder is not None:
                stored = self._read(self._folder / f"{id_}.json")
        return stored if stored is not None and stored.owner == owner else None

    def remove(self, id_: str, owner: str = "") -> bool:
        """Delete an answer from memory and disk. Return whether it was there and belonged to the owner."""
        if self.find(id_, owner) is None:
            return False
        with self._lock:
            if self._folder is not None:
                (self._folder / f"{id_}.json").unlink(missing_ok=True)
            self._answers.pop(id_, None)
        return True

    def _read(self, path: Path) -> StoredAnswer | None:
        """Return the answer of a file, or None without a file or for one of another version."""
        try:
            stored = _adapter().validate_json(path.read_bytes())
        except (FileNotFoundError, ValueError):
            return None
        self._remember(stored)
        return stored

    def _remember(self, stored: StoredAnswer) -> None:
        self._answers[stored.id] = stored
        while len(self._answers) > MAX_IN_MEMORY:
            self._answers.popitem(last=False)


@cache
def _adapter() -> TypeAdapter[StoredAnswer]:
    from pydantic import TypeAdapter

    return TypeAdapter(StoredAnswer)
