"""The sign-ins of users of an identity provider in PostgreSQL."""

from __future__ import annotations

import hashlib
import time

from pydantic import TypeAdapter

from epicrisis.server.base.users import Caller
from epicrisis.server.state.shared_state.shared_database import StateDatabase

_RENEW_SECONDS = 60.0
"""A value that did not change is written again after this time."""


_CALLER = TypeAdapter(Caller)


class SharedMap:
    """Keeps callers for some seconds by the clock of the database. Names are stored as hashes."""

    def __init__(self, database: StateDatabase, kind: str, seconds: float) -> None:
        self._database = database
        self._kind = kind
        self._seconds = seconds
        self._written: dict[str, tuple[float, Caller]] = {}

    def set(self, key: str, value: Caller) -> None:
        """Keep the caller under the key from now on, and remove those that have expired."""
        at, caller = self._written.get(key, (0.0, None))
        if caller == value and time.monotonic() - at < min(_RENEW_SECONDS, self._seconds / 2):
            return
        command = (
            "INSERT INTO items(kind, id, part, at, content) VALUES (%s, %s, '', extract(epoch FROM now()) + %s, %s) "
            "ON CONFLICT (kind, id, part) DO UPDATE SET at = excluded.at, content = excluded.content"
        )
        self._database.rows(command, self._kind, _hash(key), self._seconds, _CALLER.dump_json(value))
        self._database.rows("DELETE FROM items WHERE kind = %s AND at < extract(epoch FROM now())", self._kind)
        if len(self._written) > 1_000:
            self._written.clear()
        self._written[key] = time.monotonic(), value

    def get(self, key: str) -> Caller | None:
        """Return the caller, or None if there is none any more."""
        query = "SELECT content FROM items WHERE kind = %s AND id = %s AND at > extract(epoch FROM now())"
        for (content,) in self._database.rows(query, self._kind, _hash(key)):
            return _CALLER.validate_json(content)
        return None

    def values(self) -> list[Caller]:
        """Return the callers that have not expired, the latest last."""
        query = "SELECT content FROM items WHERE kind = %s AND at > extract(epoch FROM now()) ORDER BY at"
        return [_CALLER.validate_json(content) for (content,) in self._database.rows(query, self._kind)]

    def remove(self, key: str) -> None:
        """Forget the caller."""
        self._written.pop(key, None)
        self._database.rows("DELETE FROM items WHERE kind = %s AND id = %s", self._kind, _hash(key))


def _hash(key: str) -> str:
    """Return the hash of a key: who reads the table cannot make the cookie of a session from it."""
    return hashlib.sha256(key.encode()).hexdigest()
