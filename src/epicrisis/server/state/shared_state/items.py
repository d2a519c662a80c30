"""Items in PostgreSQL: parts, written once, and logs of JSON lines, as `ItemFolder` has them in a folder."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from epicrisis.server.state.shared_state.shared_database import StateDatabase
from epicrisis.system.json_lines import dump_line

_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))"


class ItemTable:
    """The items of one kind in the tables `items` and `lines`. Every method raises StateUnavailable."""

    def __init__(self, database: StateDatabase, kind: str) -> None:
        self._database = database
        self._kind = kind

    def add(self, id_: str, parts: Mapping[str, bytes]) -> None:
        """Keep a new item, durable when this returns."""
        with self._database.transact():
            for name, content in parts.items():
                command = "INSERT INTO items(kind, id, part, content) VALUES (%s, %s, %s, %s)"
                self._database.rows(command, self._kind, id_, name, content)

    def ids(self, part: str) -> list[str]:
        """Return the ids of the items with this part."""
        rows = self._database.rows("SELECT id FROM items WHERE kind = %s AND part = %s", self._kind, part)
        return [id_ for (id_,) in rows]

    def has(self, id_: str, part: str) -> bool:
        """Return whether the item has this part."""
        query = "SELECT 1 FROM items WHERE kind = %s AND id = %s AND part = %s"
        return bool(self._database.rows(query, self._kind, id_, part))

    def read(self, id_: str, part: str) -> bytes | None:
        """Return a part of an item, or None without it."""
        query = "SELECT content FROM items WHERE kind = %s AND id = %s AND part = %s"
        for (content,) in self._database.rows(query, self._kind, id_, part):
            return bytes(content)
        return None

    def append(self, id_: str, log: str, value: Mapping[str, Any]) -> None:
        """Append a line to the log of the item, durable when this returns. An item has one log."""
        command = "INSERT INTO lines(kind, id, content) VALUES (%s, %s, %s)"
        self._database.rows(command, self._kind, id_, dump_line(value))

    def lines(self, id_: str, log: str) -> Iterator[dict[str, Any]]:
        """Yield the lines of the log."""
        query = "SELECT content FROM lines WHERE kind = %s AND id = %s ORDER BY number"
        for (content,) in self._database.rows(query, self._kind, id_):
            yield json.loads(content)

    def remove(self, id_: str, last_part: str) -> None:
        """Delete an item with its log."""
        with self._database.transact():
            for table in ("items", "lines"):
                self._database.rows(f"DELETE FROM {table} WHERE kind = %s AND id = %s", self._kind, id_)

    @contextmanager
    def locked(self, id_: str) -> Iterator[None]:
        """Lock an item against other writers, in one transaction."""
        with self._database.transact():
            self._database.rows(_LOCK, f"epicrisis {self._database.schema} {self._kind} {id_}")
            yield
