"""Stored answers of all users in PostgreSQL, with a limit of age and number, and a note of what was removed."""

from __future__ import annotations

import json
import time

from epicrisis.server.state.shared_state.shared_database import StateDatabase
from epicrisis.server.state.stored_answer_files import DAY_SECONDS, AnswerRemoval, RemovalReason

_WHERE = "kind = 'answer' AND id = %s AND owner = %s AND part = %s"
_ANSWER, _NOTE = "answer", "removed"


class AnswerTable:
    """The answers of every owner, as `AnswerFiles` has them below a folder."""

    def __init__(self, database: StateDatabase, keep_days: float, keep: int) -> None:
        self._database = database
        self._keep_seconds = keep_days * DAY_SECONDS
        self._keep = keep

    def write(self, id_: str, owner: str, content: bytes) -> None:
        """Store an answer. It is durable when this returns. Raises StateUnavailable."""
        self._insert(id_, owner, _ANSWER, content)

    def read(self, id_: str, owner: str) -> bytes | None:
        """Return the content of an answer of this owner, or None."""
        for (content,) in self._database.rows(f"SELECT content FROM items WHERE {_WHERE}", id_, owner, _ANSWER):
            return bytes(content)
        return None

    def delete(self, id_: str, owner: str) -> None:
        """Delete an answer without a note."""
        self._database.rows(f"DELETE FROM items WHERE {_WHERE}", id_, owner, _ANSWER)

    def find_removal(self, id_: str, owner: str) -> AnswerRemoval | None:
        """Return when and why an answer of this owner was removed, or None if it was not."""
        for (content,) in self._database.rows(f"SELECT content FROM items WHERE {_WHERE}", id_, owner, _NOTE):
            note = json.loads(content)
            return AnswerRemoval(float(note["at"]), note["reason"])
        return None

    def drop(self, id_: str, owner: str, reason: RemovalReason) -> None:
        """Remove an answer and leave a note."""
        with self._database.transact():
            if self.read(id_, owner) is not None:
                note = json.dumps({"at": time.time(), "reason": reason}).encode()
                self._insert(id_, owner, _NOTE, note)
                self.delete(id_, owner)

    def drop_surplus(self, owner: str) -> list[str]:
        """Remove the oldest answers of an owner beyond the limit. Return their ids."""
        query = "SELECT id FROM items WHERE kind = 'answer' AND owner = %s AND part = %s ORDER BY at DESC, id OFFSET %s"
        ids = [id_ for (id_,) in self._database.rows(query, owner, _ANSWER, self._keep)]
        for id_ in ids:
            self.drop(id_, owner, "number")
        return ids

    def is_expired(self, at: float) -> bool:
        """Return whether an answer of this time is older than answers may be."""
        return time.time() - at > self._keep_seconds

    def clean(self) -> None:
        """Remove the answers that are too old, with a note each, and notes as old as answers may be."""
        query = "SELECT id, owner FROM items WHERE kind = 'answer' AND part = %s AND at < %s"
        for id_, owner in self._database.rows(query, _ANSWER, time.time() - self._keep_seconds):
            self.drop(id_, owner, "age")
        command = "DELETE FROM items WHERE kind = 'answer' AND part = %s AND at < %s"
        self._database.rows(command, _NOTE, time.time() - self._keep_seconds)

    def _insert(self, id_: str, owner: str, part: str, content: bytes) -> None:
        command = (
            "INSERT INTO items(kind, id, part, owner, content) VALUES ('answer', %s, %s, %s, %s) ON CONFLICT DO NOTHING"
        )
        self._database.rows(command, id_, part, owner, content)
