"""Finished answers with the passages they cite, so that a reload, a shared link and print show the same highlights.

    answers = AnswerStore(folder)
    stored = answers.add(StoredAnswer(answer=answer, library="trials"))
    answers.find(stored.id, owner="")

An answer's id cannot be guessed. An answer is found only for its owner.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from types import MappingProxyType
from typing import TYPE_CHECKING

from pydantic import TypeAdapter

from epicrisis.core.answers import Answer, Citation, Usage
from epicrisis.core.types import Passage
from epicrisis.pipeline.components import build_scope
from epicrisis.pipeline.question_evidence import find_time_restriction
from epicrisis.server.libraries.asked_questions import Inquiry
from epicrisis.server.libraries.reading import read_documents
from epicrisis.server.libraries.resources import OpenLibrary
from epicrisis.server.state.stored_answer_files import KEEP_ANSWERS, KEEP_DAYS, AnswerFiles, AnswerRemoval

if TYPE_CHECKING:
    from epicrisis.server.state.shared_state.shared_answers import AnswerTable
    from epicrisis.server.state.shared_state.shared_database import StateDatabase

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


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredAnswer:
    """A finished answer as the server keeps it."""

    id: str = field(default_factory=lambda: secrets.token_urlsafe(_ID_BYTES))
    answer: Answer
    passages: tuple[Passage, ...] = ()
    """The passages that the answer cites, as they were when it was written."""
    library: str
    """The id of the library among those of the server."""
    owner: str = ""
    """The owner id of the user who asked (`Caller.owner`)."""
    at: float = field(default_factory=lambda: time.time())
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
        """The patient of the record or of the question, also if a strategy reads no library."""
        return self.answer.patient or self.answer.question.patient


_STORED = TypeAdapter(StoredAnswer)


class AnswerStore:
    """Keeps answers in memory and, with a folder, in one file each that only its owner can read; or in a database."""

    def __init__(
        self,
        folder: Path | None = None,
        keep_days: float = KEEP_DAYS,
        keep: int = KEEP_ANSWERS,
        database: StateDatabase | None = None,
    ) -> None:
        """Answers older than `keep_days`, and those of a user beyond `keep`, are removed from folder or database."""
        self.keep_days = keep_days
        self.keep = keep
        self._files: AnswerFiles | AnswerTable | None = None if folder is None else AnswerFiles(folder, keep_days, keep)
        self._max_in_memory = MAX_IN_MEMORY
        if database is not None:
            from epicrisis.server.state.shared_state.shared_answers import AnswerTable

            self._files = AnswerTable(database, keep_days, keep)
            # Another process may delete an answer.
            self._max_in_memory = 0
        self._answers: OrderedDict[str, StoredAnswer] = OrderedDict()
        self._lock = Lock()

    def add(self, stored: StoredAnswer) -> StoredAnswer:
        """Keep a new answer. Its file is complete or absent, also after a kill. Raises StorageError."""
        if self._files is not None:
            self._files.write(stored.id, stored.owner, _STORED.dump_json(stored))
        with self._lock:
            self._remember(stored)
            surplus = [] if self._files is None else self._files.drop_surplus(stored.owner)
            for removed in surplus:
                self._answers.pop(removed, None)
        return stored

    def find(self, id_: str, owner: str = "") -> StoredAnswer | None:
        """Return the answer with this id, or None if there is none or if it belongs to another user."""
        if not _ID.fullmatch(id_):
            return None
        # Read under the lock, so that a deletion in between does not leave the answer in memory.
        with self._lock:
            stored = self._answers.get(id_)
            if stored is None and self._files is not None:
                stored = self._read(id_, owner)
            if stored is None or stored.owner != owner:
                return None
            if self._files is not None and self._files.is_expired(stored.at):
                self._files.drop(id_, owner, "age")
                self._answers.pop(id_, None)
                return None
        return stored

    def find_removal(self, id_: str, owner: str = "") -> AnswerRemoval | None:
        """Return when and why the server removed an answer of this owner, or None if it did not."""
        if self._files is None or not _ID.fullmatch(id_):
            return None
        return self._files.find_removal(id_, owner)

    def remove(self, id_: str, owner: str = "") -> bool:
        """Delete an answer from memory and disk. Return whether it was there and belonged to the owner."""
        if self.find(id_, owner) is None:
            return False
        with self._lock:
            if self._files is not None:
                self._files.delete(id_, owner)
            self._answers.pop(id_, None)
        return True

    def remove_expired(self) -> None:
        """Remove answers beyond the age limit, and the incomplete files of a killed process."""
        if self._files is None:
            return
        if isinstance(self._files, AnswerFiles):
            for path in self._files.list_expired():
                with self._lock:
                    stored = self._parse(_read_bytes(path))
                    if stored is None:
                        self._files.drop_file(path)
                    elif self._files.is_expired(stored.at):
                        self._files.drop(stored.id, stored.owner, "age")
                        self._answers.pop(stored.id, None)
        self._files.clean()

    def _read(self, id_: str, owner: str) -> StoredAnswer | None:
        """Return the answer of a file, or None without a file or for one of another version."""
        assert self._files is not None
        stored = self._parse(self._files.read(id_, owner))
        if stored is not None:
            self._remember(stored)
        return stored

    def _parse(self, content: bytes | None) -> StoredAnswer | None:
        try:
            return None if content is None else _STORED.validate_json(content)
        except ValueError:
            return None

    def _remember(self, stored: StoredAnswer) -> None:
        self._answers[stored.id] = stored
        while len(self._answers) > self._max_in_memory:
            self._answers.popitem(last=False)


def _read_bytes(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


async def store_answer(
    answers: AnswerStore,
    inquiry: Inquiry,
    answer: Answer,
    settings: Mapping[str, str] = MappingProxyType({}),
    follow_up: FollowUp | None = None,
) -> StoredAnswer:
    """Keep the answer to a question with the passages it cites, so that its page shows them later."""
    passages = await collect_cited_passages(inquiry.library, answer)
    stored = StoredAnswer(
        answer=answer,
        passages=passages,
        library=inquiry.library.name,
        owner=inquiry.caller.owner,
        reason=inquiry.reason,
        left_out=await list_left_out(inquiry, answer),
        settings=dict(settings),
        follow_up=follow_up,
    )
    return await asyncio.to_thread(answers.add, stored)


async def collect_cited_passages(library: OpenLibrary, answer: Answer) -> tuple[Passage, ...]:
    """Return the passages to store with an answer: those that its citations touch, and the first of each document.

    The first passage of an article states its size and population.
    """
    citations = answer.shown_citations
    document_ids = list(dict.fromkeys(citation.document_id for citation in citations))
    cited_passages: list[Passage] = []
    for passage in await read_documents(library, answer.patient, document_ids):
        touched = any(touches(citation, passage) for citation in citations)
        if touched or passage.ordinal == 0:
            cited_passages.append(passage)
    return tuple(cited_passages)


async def list_left_out(inquiry: Inquiry, answer: Answer) -> tuple[str, ...]:
    """Return the ids of the notes that the time filter left out of the first attempt, in order."""
    if answer.narrowing == "none":
        return ()
    pipeline = inquiry.pipeline
    scope = build_scope(pipeline.settings.scope, inquiry.question.patient)
    restriction = await find_time_restriction(pipeline, inquiry.question, scope)
    return tuple(sorted(restriction.hidden))


def touches(citation: Citation, passage: Passage) -> bool:
    """Return whether the quotation of a citation is in a passage, or partly."""
    is_same = citation.document_id == passage.document_id
    return is_same and citation.start < passage.end and passage.start < citation.end
