"""Search the rows of a database for the strings of patients.

scan_tables(database, strings)      # ["hospital.items: 1 name, 12 windows of text"]
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from epicrisis.core.printable import count_noun
from epicrisis.library.postgresql.database import Database
from epicrisis.library.postgresql.database_errors import translate_database_errors
from epicrisis.library.postgresql.rewriting import list_tables
from epicrisis.operations.forgetting.patient_strings import PatientStrings

_BLOCK = 1 << 18
_COLUMNS = (
    "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped "
    "AND atttypid IN ('text'::regtype, 'bytea'::regtype, 'text[]'::regtype) "
    "AND attname NOT IN ('words', 'word') ORDER BY attnum"
)
"""Columns with text, without those with single words in lower case, which are made from the text of the same row."""


def scan_tables(database: Database, strings: PatientStrings) -> list[str]:
    """Return a line for each table of the schema with strings of the patients in its rows."""
    lines: list[str] = []
    with (
        database.connect() as connection,
        translate_database_errors(database.address),
        connection.transaction(),
    ):
        for name in list_tables(connection, database.schema):
            table = f'{database.quoted_schema}."{name}"'
            columns = [f'"{column}"' for (column,) in connection.execute(_COLUMNS.encode(), (table,)).fetchall()]
            if not columns:
                continue
            names = texts = 0
            with connection.cursor("forgetting_scan") as cursor:
                cursor.execute(f"SELECT {', '.join(columns)} FROM {table}".encode())
                for block in _join_rows(cursor):
                    hits = strings.find(block)
                    names += sum(hit.kind == "name" for hit in hits)
                    texts += sum(hit.kind == "text" for hit in hits)
            if names or texts:
                counts = f"{count_noun(names, 'name')}, {count_noun(texts, 'window')} of text"
                lines.append(f"{database.schema}.{name}: {counts}")
    return lines


def _join_rows(rows: Iterable[tuple[Any, ...]]) -> Iterator[bytes]:
    """Yield the values of rows, separated by zeros, some rows at a time."""
    values: list[bytes] = []
    size = 0
    for row in rows:
        for value in row:
            encoded = _encode(value)
            values += encoded
            size += sum(map(len, encoded))
        if size >= _BLOCK:
            yield b"\0".join(values)
            values, size = [], 0
    yield b"\0".join(values)


def _encode(value: Any) -> list[bytes]:
    if value is None:
        return []
    if isinstance(value, list):
        return [str(item).encode() for item in value]
    return [bytes(value)] if isinstance(value, bytes | memoryview) else [str(value).encode()]
