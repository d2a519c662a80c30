"""A dump of the database restores the library, with the rights of its roles."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psycopg
import pytest

from epicrisis.core.errors import StorageError
from epicrisis.core.types import Scope
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.postgresql.database_schema import WORD_TABLESPACE
from epicrisis.testing.stores import DIMENSIONS, build_stored_document
from tests.postgresql.conftest import LibraryDatabase
from tests.support.postgresql_server import ADMIN, CLOSE_INDEX_FUNCTIONS, READER, WRITER, PostgresqlServer

pytestmark = pytest.mark.postgresql
PAGE = Path(__file__).parents[2] / "docs" / "deployment.md"


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


@pytest.fixture
def restored(server: PostgresqlServer) -> Iterator[PostgresqlServer]:
    """A second server, without data yet."""
    second = PostgresqlServer(server.folder, "restored")
    yield second
    second.remove()


@pytest.fixture(params=[True, False], ids=["with the tablespace", "without it"])
def is_logged(server: PostgresqlServer, request: pytest.FixtureRequest) -> Iterator[bool]:
    """Whether the word index is in the log of the server."""
    if request.param:
        server.create_tablespace()
    yield bool(request.param)
    if request.param:
        server.execute(f"DROP TABLESPACE {WORD_TABLESPACE}")


def test_base_backup_is_restored_to_a_moment_after_it(
    is_logged: bool, database: LibraryDatabase, restored: PostgresqlServer
) -> None:
    """The moment is that before a deletion by mistake. The word index was built after the base backup."""
    server = database.server
    archive = server.home / f"archive-{database.name}"
    archive.mkdir(mode=0o777)
    archive.chmod(0o777)
    server.execute(f"ALTER SYSTEM SET archive_command = 'cp %p {archive}/%f'", "SELECT pg_reload_conf()")
    try:
        with database.create() as library:
            library.add([build_stored_document("paper", "aspirin lowers the risk")])
            library.compact()
            restored.copy_from(server, "-X", "stream")
            library.add([build_stored_document("anna", "aspirin for anna", patient="anna")])
            library.compact()
            server.execute("SELECT pg_create_restore_point('before')")
            before = search_everything(database)
            library.delete(["anna"])
        archive_log(server)
    finally:
        server.execute("ALTER SYSTEM RESET archive_command", "SELECT pg_reload_conf()")
    with (restored.data / "postgresql.conf").open("a") as file:
        file.write(f"restore_command = 'cp {archive}/%f %p'\nrecovery_target_name = 'before'\n")
        file.write("recovery_target_action = 'promote'\n")
    (restored.data / "recovery.signal").touch()
    restored.start()
    copy = LibraryDatabase(restored, database.name)
    wait_for_promotion(restored)
    if not is_logged:
        with pytest.raises(StorageError, match=r"promoted or restored, .*library optimize"):
            search_everything(copy)
        with LibraryStore.open(copy.url(WRITER), write=True) as library:
            library.optimize()
    assert search_everything(copy) == before
    with LibraryStore.open(copy.url(WRITER), write=True) as library:
        library.add([build_stored_document("later", "aspirin")])
    assert copy.read().count() == (3, 3)


def archive_log(server: PostgresqlServer) -> None:
    """Wait until the log up to now is in the archive."""
    with server.connect() as connection:
        row = connection.execute("SELECT pg_walfile_name(pg_switch_wal())").fetchone()
        query = "SELECT coalesce(last_archived_wal >= %s, false) FROM pg_stat_archiver"
        while connection.execute(query, row).fetchone() != (True,):
            time.sleep(0.05)


def wait_for_promotion(server: PostgresqlServer) -> None:
    with server.connect() as connection:
        while connection.execute("SELECT pg_is_in_recovery()").fetchone() != (False,):
            time.sleep(0.05)


def search_everything(database: LibraryDatabase) -> list[object]:
    """Return rankings by words and vectors, and the record of a patient."""
    reader = database.read()
    scope = Scope(patient="anna")
    axis = np.eye(DIMENSIONS, dtype=np.float32)[0]
    rankings = [reader.search_words("aspirin risk", 9, scope), reader.search_vectors(axis, 9, scope)]
    return [*rankings, reader.fetch_record(scope), reader.count()]


def test_page_for_administrators_has_the_commands_of_the_tests() -> None:
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    assert f"{CLOSE_INDEX_FUNCTIONS};" in text
    for role in ("epicrisis_reader", "epicrisis_writer"):
        assert re.search(rf"CREATE ROLE {role};", text)
    assert "CREATE EXTENSION vector; CREATE EXTENSION pg_textsearch;" in text
