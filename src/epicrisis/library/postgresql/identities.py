"""The identities of the patients of a library in PostgreSQL.

A role that may only read gets them from a function with more rights: they tell which patient a question is about.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from epicrisis.library.patient_identities import IdentityTable
from epicrisis.library.postgresql.database import Database
from epicrisis.library.postgresql.journal import storable_ids

_COUNT_CHANGE = "UPDATE library SET version = version + 1"


class PostgresqlIdentities(IdentityTable):
    """The table `patients` of a library in PostgreSQL."""

    def __init__(self, folder: Path, database: Database) -> None:
        super().__init__(folder)
        self._database = database

    def read(self, patients: Sequence[str] | None) -> Sequence[tuple[str, str]]:
        if patients is None:
            return self._rows("SELECT id, identity FROM list_identities()")
        return self._rows("SELECT id, identity FROM list_identities() WHERE id = ANY(%s)", storable_ids(list(patients)))

    def version(self) -> int:
        """Return 0: the version of the passages counts changes of identities too, so that one read tells both."""
        return 0

    def write(self, rows: Sequence[tuple[str, str]]) -> None:
        with self._database.write() as connection, connection.cursor() as cursor:
            cursor.executemany("DELETE FROM patients WHERE id = %s", [(patient,) for patient, _ in rows])
            cursor.executemany("INSERT INTO patients(id, identity) VALUES (%s, %s)", rows)
            connection.execute(_COUNT_CHANGE)

    def forget(self, patients: Sequence[str]) -> None:
        with self._database.write() as connection:
            connection.execute("DELETE FROM patients WHERE id = ANY(%s)", (list(patients),))
            connection.execute(_COUNT_CHANGE)

    def declare(self, what: str, at: str) -> None:
        with self._database.write() as connection:
            connection.execute("INSERT INTO declared VALUES (%s, %s) ON CONFLICT DO NOTHING", (what, at))

    def is_declared(self, what: str) -> bool:
        return bool(self._rows("SELECT 1 FROM declared WHERE what = %s", what))

    def _rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        return self._database.query(query, *values)
