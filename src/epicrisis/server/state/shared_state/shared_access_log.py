"""The access log of all server processes in PostgreSQL. The role of the server can only add to it."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from epicrisis.privacy.access_log import START, AccessLog, AuditResult, remove_names, verify_entries
from epicrisis.server.state.shared_state.shared_database import StateDatabase

_LOCK = "SELECT pg_advisory_xact_lock('access_log'::regclass::oid::bigint)"
_BATCH = 1_000


class AccessTable(AccessLog):
    """The table `access_log`. Entries of all processes form one chain."""

    def __init__(self, database: StateDatabase) -> None:
        self._database = database

    @property
    def name(self) -> str:
        """How messages name the log."""
        return f"{self._database.address.public}, access_log"

    def verify(self, head: str | None = None) -> AuditResult:
        """Return whether every entry fits the one before it. With `head`, its entry must exist too.

        There is no `access.head`: no server process may change or delete a row.
        """
        return verify_entries(self.entries(), head)

    def append(self, entry: Mapping[str, Any]) -> None:
        """Write an entry of `build_entry`. Blocks until it is durable. Raises StateUnavailable."""
        with self._database.transact() as connection:
            # Entries after the last one that this transaction sees would break the chain.
            connection.execute(_LOCK)
            row = connection.execute("SELECT number, hash FROM access_log ORDER BY number DESC LIMIT 1").fetchone()
            number, previous = row or (0, START)
            sealed = self.seal(entry, number + 1, previous)
            values = number + 1, previous, sealed["hash"], json.dumps(sealed)
            connection.execute("INSERT INTO access_log(number, previous, hash, entry) VALUES (%s, %s, %s, %s)", values)

    def forget(self, patients: Collection[str]) -> int:
        """Take the names of these patients out of the entries about them, see `AccessLog.forget`.

        Only the owner of the table may, since the trigger that protects entries rests meanwhile.
        """
        changed = 0
        with self._database.transact() as connection:
            connection.execute(_LOCK)
            connection.execute("ALTER TABLE access_log DISABLE TRIGGER access_entry")
            for entry in self.entries():
                if entry.get("patient") in patients and "commitment" in entry:
                    command = "UPDATE access_log SET entry = %s WHERE number = %s"
                    connection.execute(command, (json.dumps(remove_names(entry)), entry["number"]))
                    changed += 1
            connection.execute("ALTER TABLE access_log ENABLE TRIGGER access_entry")
        return changed

    def _read_key(self) -> str:
        return self._database.read_key("access-log")

    def entries(self) -> Iterator[Mapping[str, Any]]:
        """Yield the entries in order. One that is no JSON object, or does not fit its row, has an empty hash.

        Raises StateUnavailable, also without the right to read the log.
        """
        last = 0
        while True:
            query = "SELECT number, previous, hash, entry FROM access_log WHERE number > %s ORDER BY number LIMIT %s"
            rows = self._database.rows(query, last, _BATCH)
            for number, previous, hash_, text in rows:
                entry = _parse_entry(text)
                if (number, previous, hash_) != (entry.get("number"), entry.get("previous"), entry.get("hash")):
                    entry["hash"] = ""
                yield entry
            if not rows:
                return
            last = rows[-1][0]


def _parse_entry(text: str) -> dict[str, Any]:
    """Return an entry, or an empty one in place of what is no JSON object: a server may insert any text."""
    try:
        entry = json.loads(text)
    except ValueError:
        return {}
    return entry if isinstance(entry, dict) else {}
