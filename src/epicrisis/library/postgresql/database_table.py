"""The table of passages and vectors in PostgreSQL."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from epicrisis.core.errors import InputError
from epicrisis.library.base.engine_errors import translate_errors
from epicrisis.library.base.passage_table import (
    ALL_COLUMNS,
    BATCH_ROWS,
    Columns,
    NoteSummary,
    PassageTable,
    sql_in,
    sql_text,
)
from epicrisis.library.core.library_parts import REPLIES, remove_parts
from epicrisis.library.engines.word_index import analyze_words, round_length
from epicrisis.library.postgresql.database import Database
from epicrisis.library.postgresql.database_schema import MANY_NEW_WORDS, WORDS_LOST
from epicrisis.library.postgresql.index_build import build_vector_index, has_vector_index
from epicrisis.system.local_only import open_private

if TYPE_CHECKING:
    from psycopg import Connection

_DELETIONS = "deletions"
"""The file with the number of deletions after which this machine has removed its cached replies."""
_ESCAPE = "\ufdd0"
"""A code point without a character: the server stores no NUL, so NUL is stored as this and `0`."""
_TEXTS = ("text", "title", "source")
_JSON_ESCAPE = re.compile(
    r"\\(?:ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2}|u(0000|d[89a-f][0-9a-f]{2}|fdd0)|.)", re.DOTALL
)
"""An escape in JSON. The first group is NUL, half a surrogate pair or the mark, all of which need an escape here."""
_ESCAPED_JSON_ESCAPE = re.compile(r"\\(?:ufdd0([0-9a-f]{4})|.)", re.DOTALL)
_MAX_ID_BYTES = 2000
"""What fits into an index of the server."""
_ROWS = ", ".join(f'"{name}"' for name in (*ALL_COLUMNS, "words"))
_BUILD = "(SELECT word_build + 1 FROM library)"
_INSERT = f"INSERT INTO passages({_ROWS}, build) VALUES ({', '.join(['%b'] * (len(ALL_COLUMNS) + 1))}, {_BUILD})"
_INSERT_WORDS = (
    "INSERT INTO new_words(passage, patient, word, count, length) "
    "SELECT * FROM unnest(%s::text[], %s::text[], %s::text[], %s::integer[], %s::integer[])"
)
_COUNT_NEW = (
    "UPDATE library SET new_passages = new_passages + %s WHERE words_changed IS DISTINCT FROM '-infinity' RETURNING 1"
)
"""Changes nothing while the library is filled without indexes, see `PostgresqlLibrary.prepare_bulk`."""


class PostgresqlTable(PassageTable):
    """The passages of a library in PostgreSQL. A role that may only read sees literature alone."""

    name = "passages"

    def __init__(self, folder: Path, dimensions: int, database: Database) -> None:
        super().__init__(folder, dimensions)
        self._database = database
        self._deletions_file = folder / _DELETIONS
        self._deletions = -1

    @property
    def version(self) -> int:
        return self._read_state("version")

    def _read_state(self, name: str) -> int:
        rows = self._database.query(f"SELECT {name} FROM library")
        return int(rows[0][0]) if rows else 0

    def refresh(self) -> None:
        """Remove the cached replies of this machine after a deletion on any machine, since they may quote documents.

        Every statement reads the newest version.
        """
        self.refresh_version()

    def refresh_version(self) -> int:
        rows = self._database.query("SELECT version, deletions FROM library")
        version, deletions = rows[0] if rows else (0, 0)
        if deletions != self._deletions:
            self._remove_replies(int(deletions))
        return int(version)

    def _remove_replies(self, deletions: int) -> None:
        """Remove the cached replies unless this machine has done so after so many deletions."""
        with translate_errors(self._folder):
            path = self._deletions_file
            if (path.read_text(encoding="utf-8") if path.is_file() else "0") != str(deletions):
                remove_parts(self._folder, REPLIES)
                with os.fdopen(open_private(path, os.O_WRONLY | os.O_TRUNC), "w", encoding="utf-8") as file:
                    file.write(str(deletions))
        self._deletions = deletions

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Do nothing: each read of the table is of one version, and searches have a snapshot of their own."""
        yield

    def count(self, condition: str = "") -> int:
        if not condition:
            return self._read_state("passages")
        with self._database.read() as connection:
            row = connection.execute(f"SELECT count(*) FROM passages WHERE {condition}".encode()).fetchone()
        return int(row[0]) if row else 0

    def has_notes(self) -> bool:
        return self._read_state("notes") > 0

    def has_literature(self) -> bool:
        return self._read_state("passages - notes") > 0

    def read_columns(self, names: Sequence[str], condition: str = "", limit: int | None = None) -> Iterator[Columns]:
        where = f" WHERE {condition}" if condition else ""
        cut = f" LIMIT {limit:d}" if limit is not None else ""
        columns = ", ".join(f'"{name}"' for name in names)
        yield from self._read_batches(names, f"SELECT {columns} FROM passages{where}{cut}")

    def _read_batches(self, names: Sequence[str], query: str) -> Iterator[Columns]:
        """Yield the rows of a query in batches. A caller that takes its time keeps no connection from others.

        Reads of up to one batch, which most are, have ended before the first row is given out.
        """
        with self._database.read() as connection, connection.cursor("passages_read", withhold=False) as cursor:
            cursor.execute(query.encode(), binary=True)
            rows = cursor.fetchmany(BATCH_ROWS)
        if len(rows) < BATCH_ROWS:
            if rows:
                yield parse_columns(names, rows)
            return
        with self._database.read_long() as connection, connection.cursor("passages_read", withhold=False) as cursor:
            cursor.execute(query.encode(), binary=True)
            while rows := cursor.fetchmany(BATCH_ROWS):
                yield parse_columns(names, rows)

    def summarize_notes(self) -> Iterator[NoteSummary]:
        """Yield a summary of all notes of each patient.

        A role that may only read gets it from a function with more rights, which returns no text of the notes.
        """
        for patient, notes, dates, encounters, types in self._database.query("SELECT * FROM list_patients()"):
            note_types = Counter[str]()
            for text, count in (types or {}).items():
                note_types[_parse_value(text)] += count
            del note_types[""]
            yield NoteSummary(
                patient,
                notes,
                dates=tuple(filter(None, dates)),
                encounters=tuple(filter(None, map(_parse_value, encounters))),
                note_types=note_types,
            )

    def facet_condition(self, names: Iterable[str]) -> str:
        return f"facets && ARRAY[{', '.join(map(sql_text, sorted(names)))}]::text[]"

    def append(self, columns: Columns, replaced: Sequence[str] = ()) -> None:
        with self._database.write() as connection:
            if replaced:
                connection.execute("DELETE FROM passages WHERE document_id = ANY(%s)", (list(replaced),))
            insert_passages(connection, columns)

    def update(self, columns: Columns) -> None:
        with self._database.write() as connection:
            connection.execute("DELETE FROM passages WHERE id = ANY(%s)", (list(columns["id"]),))
            insert_passages(connection, columns)

    def delete(self, document_ids: Sequence[str]) -> None:
        with self._database.write() as connection:
            connection.execute(f"DELETE FROM passages WHERE {sql_in('document_id', document_ids)}".encode())

    def compact(self, on_step: Callable[[str], None] = lambda step: None) -> None:
        """Build missing indexes, and rebuild the word index after large additions.

        The server frees space by itself.
        """
        if self.build_indexes(MANY_NEW_WORDS, on_step):
            self.read_statistics()

    def build_indexes(self, condition: str, on_step: Callable[[str], None]) -> bool:
        """Build missing indexes. Return whether the word index was built: also if `library` meets the condition."""
        if not has_vector_index(self._database):
            build_vector_index(self._database, on_step)
        on_step("building the word index")
        return self._database.rebuild_words(f"{WORDS_LOST} OR {condition}")

    def read_statistics(self) -> None:
        """Renew the statistics by which the server plans searches. It also does so by itself, later."""
        with self._database.write() as connection:
            connection.execute("ANALYZE passages, documents")

    def check(self) -> None:
        """Do nothing: the server checks its own files."""

    def purge(self) -> None:
        """Do nothing: the server overwrites deleted rows in time (autovacuum)."""

    def close(self) -> None:
        """Do nothing: the connections belong to the database."""


def insert_passages(connection: Connection[Any], columns: Columns) -> None:
    """Insert rows with all columns in the caller's transaction. Raise InputError for an id that is too long."""
    from pgvector import HalfVector

    rows = list(_build_rows(columns, HalfVector))
    with connection.cursor() as cursor:
        cursor.executemany(_INSERT.encode(), rows)
        if cursor.execute(_COUNT_NEW, (len(rows),)).fetchone() is not None:
            texts = [row[-1] for row in rows]
            cursor.execute(_INSERT_WORDS, _count_words(columns["id"], columns["patient"], texts))


def _count_words(ids: Sequence[str], patients: Sequence[str | None], texts: Sequence[str]) -> tuple[list[Any], ...]:
    """Return the columns of `new_words` for the words of these passages, separated by spaces."""
    rows: list[tuple[str, str | None, str, int, int]] = []
    for id_, patient, text in zip(ids, patients, texts, strict=True):
        words = text.split()
        length = round_length(len(words))
        for word, count in Counter(words).items():
            rows.append((id_, patient, word, count, length))
    return tuple(map(list, zip(*rows, strict=True))) if rows else ([], [], [], [], [])


def _build_rows(columns: Columns, make_vector: Any) -> Iterator[tuple[Any, ...]]:
    for row in range(len(columns["id"])):
        values = {name: columns[name][row] for name in ALL_COLUMNS}
        for name in ("id", "patient", "revision"):
            if len((values[name] or "").encode()) > _MAX_ID_BYTES:
                raise InputError(
                    f"the {name} of {values['document_id'][:40]!a}... is longer than {_MAX_ID_BYTES} bytes, which "
                    "PostgreSQL cannot index: give the document a shorter one"
                )
        words = " ".join(analyze_words(f"{values['title']}\n{values['text']}"))
        for name in _TEXTS:
            values[name] = escape_nul(values[name])
        values["metadata"] = escape_json(values["metadata"])
        values["facets"] = list(map(escape_nul, values["facets"]))
        values["vector"] = make_vector(values["vector"])
        yield (*values.values(), words)


def parse_columns(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> Columns:
    """Return rows of the table as columns."""
    columns: Columns = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    for name in _TEXTS:
        if name in columns:
            columns[name] = list(map(unescape_nul, columns[name]))
    if "metadata" in columns:
        columns["metadata"] = list(map(unescape_json, columns["metadata"]))
    if "facets" in columns:
        columns["facets"] = [list(map(unescape_nul, facets)) for facets in columns["facets"]]
    if "vector" in columns:
        columns["vector"] = np.stack([vector.to_numpy() for vector in columns["vector"]])
    return columns


def _parse_value(text: str | None) -> str:
    """Return a value of the metadata, given as JSON, as text. Return an empty one for none, and for an empty value."""
    return str(json.loads(unescape_json(text or "null")) or "")


def escape_nul(text: str) -> str:
    """Return the text without NUL. `unescape_nul` restores it."""
    if "\0" not in text and _ESCAPE not in text:
        return text
    return text.replace(_ESCAPE, f"{_ESCAPE}1").replace("\0", f"{_ESCAPE}0")


def unescape_nul(text: str) -> str:
    """Return the text given to `escape_nul`."""
    if _ESCAPE not in text:
        return text
    return text.replace(f"{_ESCAPE}0", "\0").replace(f"{_ESCAPE}1", _ESCAPE)


def escape_json(text: str) -> str:
    """Return JSON without NUL and halves of surrogate pairs, of which the server reads no field. Of ASCII only.

    `unescape_json` restores it.
    """
    return _JSON_ESCAPE.sub(_escape_unit, text)


def _escape_unit(match: re.Match[str]) -> str:
    return match[0] if match[1] is None else f"\\ufdd0{match[1]}"


def unescape_json(text: str) -> str:
    """Return the JSON given to `escape_json`."""
    return _ESCAPED_JSON_ESCAPE.sub(_unescape_unit, text)


def _unescape_unit(match: re.Match[str]) -> str:
    return match[0] if match[1] is None else f"\\u{match[1]}"
