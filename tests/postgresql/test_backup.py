"""A dump of the database restores the library, with the rights of its roles."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg
import pytest

from epicrisis.library.library import LibraryStore
from epicrisis.testing.stores import build_stored_document
from epicrisis.types import Scope
from tests.postgresql.conftest import LibraryDatabase
from tests.support.postgresql_server import ADMIN, CLOSE_INDEX_FUNCTIONS, READER, WRITER

pytestmark = pytest.mark.postgresql
PAGE = Path(__file__).parents[2] / "docs" / "postgresql.md"


def test_restored_dump_is_the_library_with_its_boundary(database: LibraryDatabase) -> None:
    with database.create() as library:
        library.add([build_stored_document("paper", "aspirin lowers the risk")])
        library.add([build_stored_document(name, f"aspirin for {name}", patient=name) for name in ("anna", "berta")])
        library.compact()
    server = database.server
    target = LibraryDatabase(server, f"{database.name}_restored")
    dump = server.home / "dump"
    access = ("-h", "127.0.0.1", "-p", server.port, "-U", ADMIN)
    server.run("pg_dump", *access, "-Fc", "-f", dump, database.name)
    server.execute(f"CREATE DATABASE {target.name}")
    server.run("pg_restore", *access, "--exit-on-error", "-d", target.name, dump)
    reader = target.read()
    expected = database.read()
    for patient in (None, "anna"):
        scope = Scope(patient=patient)
        assert reader.search_words("aspirin", 9, scope) == expected.search_words("aspirin", 9, scope) != ()
    with server.connect(target.name, READER) as connection:
        connection.execute("SELECT set_config('epicrisis.patient', 'p:anna', false)")
        rows = connection.execute("SELECT patient FROM epicrisis.passages ORDER BY id").fetchall()
        assert rows == [("anna",), (None,)]
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("SELECT bm25_dump_index('epicrisis.passages_words')")
    with LibraryStore.open(target.url(WRITER), write=True) as library:
        library.add([build_stored_document("later", "aspirin")])
    assert reader.count() == (4, 4)


def test_page_for_administrators_has_the_commands_of_the_tests() -> None:
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    assert f"{CLOSE_INDEX_FUNCTIONS};" in text
    for role in ("epicrisis_reader", "epicrisis_writer"):
        assert re.search(rf"CREATE ROLE {role};", text)
    assert "CREATE EXTENSION vector; CREATE EXTENSION pg_textsearch;" in text
