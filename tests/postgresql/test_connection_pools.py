"""Libraries behind PgBouncer, many readers at once, and databases that answer late or store other characters."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import numpy as np
import pytest

from epicrisis.core.errors import LibraryBusy, LibraryError, StorageError
from epicrisis.core.types import Scope
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.postgresql import database as databases
from epicrisis.library.postgresql import database_table as table
from epicrisis.testing.stores import DIMENSIONS, build_stored_document
from tests.postgresql.conftest import LibraryDatabase, close_connections
from tests.support.pgbouncer import PROGRAM, run_pgbouncer
from tests.support.postgresql_server import OWNER, READER, WRITER

pytestmark = pytest.mark.postgresql
needs_pgbouncer = pytest.mark.skipif(PROGRAM is None, reason="PgBouncer is not installed (package pgbouncer)")
AXIS = np.eye(DIMENSIONS, dtype=np.float32)[0]


def through(url: str, port: int) -> str:
    """Return the URL with another port."""
    return url.replace(f":{urlsplit(url).port}/", f":{port}/")


def fill(database: LibraryDatabase) -> None:
    with database.create() as library:
        documents = [build_stored_document("paper", "aspirin")]
        for name in ("anna", "berta"):
            documents.append(build_stored_document(name, f"aspirin for {name}", patient=name))
        library.add(documents)


@needs_pgbouncer
@pytest.mark.parametrize("mode", ["session", "transaction"])
def test_searches_through_pgbouncer_equal_direct_ones(database: LibraryDatabase, mode: str) -> None:
    fill(database)
    direct = database.read()
    with run_pgbouncer(database.server, mode) as port:
        library = LibraryStore.open(through(database.url(READER), port))

        def search(number: int) -> bool:
            scope = Scope(patient=("anna", "berta", None)[number % 3])
            return (
                library.search_words("aspirin", 9, scope) == direct.search_words("aspirin", 9, scope) != ()
                and library.search_vectors(AXIS, 9, scope) == direct.search_vectors(AXIS, 9, scope) != ()
                and library.fetch_record(scope) == direct.fetch_record(scope)
                and library.count() == (3, 3)
            )

        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(search, range(60)))
        assert len(list(library.open_table().rows(["id"]))) == 1
        close_connections()


@needs_pgbouncer
def test_pgbouncer_in_session_mode_admits_one_writer(database: LibraryDatabase) -> None:
    fill(database)
    with run_pgbouncer(database.server, "session") as port:
        with LibraryStore.open(through(database.url(WRITER), port), write=True) as library:
            library.add([build_stored_document("b", "aspirin")])
            with pytest.raises(LibraryBusy, match="another process is writing to it"):
                LibraryStore.open(database.url(OWNER), write=True)
        close_connections()
    assert database.read().count() == (4, 4)


@needs_pgbouncer
def test_pgbouncer_in_transaction_mode_is_refused_for_writing(database: LibraryDatabase) -> None:
    fill(database)
    with run_pgbouncer(database.server, "transaction") as port:
        url = through(database.url(WRITER), port)
        for _ in range(2):
            with pytest.raises(LibraryError, match=r"shares the writer's connection .* set pool_mode = session"):
                LibraryStore.open(url, write=True)
        # No lock is left behind.
        with LibraryStore.open(database.url(WRITER), write=True) as library:
            library.add([build_stored_document("b", "aspirin")])
        close_connections()


def test_long_reads_leave_connections_for_others(database: LibraryDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve readers stop in the middle of a table, which ten connections of the pool could not all hold."""
    monkeypatch.setattr(databases, "_POOL_WAIT_S", 3)
    monkeypatch.setattr(table, "BATCH_ROWS", 2)
    fill(database)
    with LibraryStore.open(database.url(WRITER), write=True) as library:
        library.add([build_stored_document(f"d{number}", "aspirin") for number in range(9)])
    close_connections()
    reader = database.read()
    reads = [reader.open_table().rows(["id"]) for _ in range(12)]
    firsts = [next(rows) for rows in reads]
    assert reader.count() == (12, 12)
    for first, rows in zip(firsts, reads, strict=True):
        assert len({first["id"], *(row["id"] for row in rows)}) == 10


def test_writers_of_two_threads_take_turns(database: LibraryDatabase) -> None:
    """A failed transaction of one thread takes nothing of the other's with it."""
    with database.create() as library:
        inner = library._database  # type: ignore[attr-defined]
        has_begun, may_fail = threading.Event(), threading.Event()

        def fail() -> None:
            with inner.write() as connection:
                connection.execute("INSERT INTO due VALUES ('first')")
                has_begun.set()
                may_fail.wait(1)
                connection.execute("SELECT 1 / 0")

        def write() -> None:
            has_begun.wait(5)
            with inner.write() as connection:
                connection.execute("INSERT INTO due VALUES ('second')")

        with ThreadPoolExecutor(2) as pool:
            failing, writing = pool.submit(fail), pool.submit(write)
            with pytest.raises(LibraryError):
                failing.result()
            writing.result()
        with inner.read() as connection:
            assert connection.execute("SELECT target FROM due").fetchall() == [("second",)]


def test_silent_server_holds_up_no_other_library(database: LibraryDatabase) -> None:
    """A server that accepts connections and says nothing keeps nobody from another one."""
    fill(database)
    close_connections()
    with socket.create_server(("127.0.0.1", 0)) as silent, ThreadPoolExecutor(1) as pool:
        url = f"postgresql://a@127.0.0.1:{silent.getsockname()[1]}/x?connect_timeout=60"
        waiting = pool.submit(LibraryStore.open, url)
        connection, _ = silent.accept()
        assert database.read().count() == (3, 3)
        assert not waiting.done()
        connection.close()
        with pytest.raises(StorageError, match="cannot be reached"):
            waiting.result()


def test_database_in_another_encoding_is_refused(database: LibraryDatabase) -> None:
    name = f"{database.name}_latin"
    database.server.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C'")
    with pytest.raises(LibraryError, match=r"stores text as SQL_ASCII.* TEMPLATE template0 ENCODING 'UTF8'"):
        LibraryStore.open(LibraryDatabase(database.server, name).url(OWNER))


def test_words_of_a_writer_that_ends_without_compacting_survive_a_restart(database: LibraryDatabase) -> None:
    fill(database)
    with LibraryStore.open(database.url(WRITER), write=True) as library:
        library.replace_statements([], [])
        library.add([build_stored_document("b", "zolpidem")])
    database.server.stop("immediate")
    database.server.start()
    close_connections()
    assert [hit.id for hit in database.read().search_words("zolpidem", 3, Scope())] == ["b#0"]


def stop_while_rebuilding(database: LibraryDatabase, library: LibraryStore) -> None:
    with library._database.write() as writer:  # type: ignore[attr-defined]
        writer.execute("SELECT rebuild_word_index()")
        database.server.stop("immediate")
        writer.execute("SELECT 1")


def test_rebuild_that_is_interrupted_leaves_no_index(database: LibraryDatabase) -> None:
    names = "SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid = 'epicrisis.passages'::regclass ORDER BY 1"
    fill(database)
    with database.server.connect(database.name) as connection:
        before = connection.execute(names.encode()).fetchall()
        connection.execute("CREATE INDEX passages_words_ccnew1 ON epicrisis.passages(id)")
        connection.execute(
            "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'epicrisis.passages_words_ccnew1'::regclass"
        )
    with LibraryStore.open(database.url(WRITER), write=True) as library:
        library.add([build_stored_document("b", "zolpidem")])
        with pytest.raises(StorageError):
            stop_while_rebuilding(database, library)
    database.server.start()
    with LibraryStore.open(database.url(OWNER), write=True) as library:
        library.optimize()
    with database.server.connect(database.name) as connection:
        assert connection.execute(names.encode()).fetchall() == before
