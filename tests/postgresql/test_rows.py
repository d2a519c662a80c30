"""What is asked of the server, and what it cannot store or read and is escaped. No server is needed."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from epicrisis.core.errors import LibraryError
from epicrisis.core.types import Scope
from epicrisis.library.base.manifest import build_manifest
from epicrisis.library.base.passage_table import ALL_COLUMNS, Columns
from epicrisis.library.postgresql.database import Database
from epicrisis.library.postgresql.database_journal import PostgresqlJournal
from epicrisis.library.postgresql.database_table import (
    PostgresqlTable,
    _build_rows,
    escape_json,
    parse_columns,
    unescape_json,
)
from epicrisis.library.postgresql.engine import PostgresqlIdentities
from epicrisis.library.postgresql.search import build_filter
from epicrisis.library.postgresql.store import PostgresqlLibrary
from epicrisis.system.remote_libraries import LibraryAddress
from epicrisis.testing.stores import build_stored_document

HALF_PAIRS = ("\ud83d", "\ude00", "\ude00\ud83d", "\ud83d\U0001f600", "\ufdd0" + "0000", "\\\0", "\\u0000", "\0\0")


class ColumnsOnly(PostgresqlTable):
    """A table that keeps the columns that it should write."""

    def __init__(self) -> None:
        super().__init__(Path("unused"), 4, cast("Database", SimpleNamespace()))
        self.columns: Columns = {}

    def append(self, columns: Columns, replaced: Any = ()) -> None:
        self.columns = columns


@pytest.mark.parametrize("text", HALF_PAIRS)
def test_metadata_holds_only_what_the_server_reads_and_returns_unchanged(text: str) -> None:
    original = json.dumps({"note_type": text, text: "\U0001f600 \\ é"}, sort_keys=True)
    escaped = escape_json(original)
    assert unescape_json(escaped) == original
    values = "".join([key + value for key, value in json.loads(escaped).items()])
    assert "\0" not in values
    values.encode()


def test_row_with_nul_in_metadata_and_facets_returns_unchanged() -> None:
    table = ColumnsOnly()
    metadata = {"journal": "Blood \0 \ufdd0", "note_type": "letter \0", "publication_types": ["Review"]}
    table.write([build_stored_document("a", "aspirin", metadata=metadata)], [])
    before = {name: list(table.columns[name]) for name in ALL_COLUMNS}
    (row,) = _build_rows(table.columns, lambda vector: SimpleNamespace(to_numpy=lambda: vector))
    values = dict(zip((*ALL_COLUMNS, "words"), row, strict=True))
    assert "\0" not in json.dumps(json.loads(values["metadata"]), ensure_ascii=False)
    assert "\\u0000" not in values["metadata"]
    assert "\0" not in "".join(values["facets"])
    found = build_filter(Scope(journals=frozenset({"blood \0 \ufdd0"}))).values
    assert set(found["facets0"]) <= set(values["facets"])
    assert found["facets0"]
    after = parse_columns(ALL_COLUMNS, [row[:-1]])
    assert np.array_equal(after.pop("vector"), np.stack(before.pop("vector")))
    assert after == before


def test_name_that_the_server_cannot_store_is_not_asked_for() -> None:
    def refuse() -> Any:
        raise AssertionError

    database = cast("Database", SimpleNamespace(read=refuse))
    assert PostgresqlJournal(Path("unused"), database).ids_with_prefix("a\0") == []
    queries: list[tuple[str, tuple[object, ...]]] = []
    identities = PostgresqlIdentities(Path("unused"), database)
    identities._rows = lambda query, *values: queries.append((query, values)) or []  # type: ignore[method-assign, func-returns-value]
    identities.read(["anna", "b\0", "\ud800"])
    assert queries[0][1] == (["anna"],)


def test_creation_looks_for_a_library_in_its_own_schema_alone(tmp_path: Path) -> None:
    queries: list[tuple[object, ...]] = []

    def execute(command: str | bytes, values: tuple[object, ...] = ()) -> Any:
        queries.append((command, *values))
        return SimpleNamespace(fetchone=lambda: (True,))

    database = SimpleNamespace(
        quoted_schema='"ward7"',
        address=LibraryAddress("postgresql://u@h/db?schema=ward7"),
        open_writer=lambda: None,
        close_writer=lambda: None,
        write=lambda: nullcontext(SimpleNamespace(execute=execute)),
    )
    manifest = build_manifest("check", "check", 4, max_tokens=64, overlap=8, splitter="tokens")
    with pytest.raises(LibraryError, match="holds a library already"):
        PostgresqlLibrary.create_in(cast("Database", database), tmp_path, manifest)
    assert queries[-1][1:] == ('"ward7".library',)
