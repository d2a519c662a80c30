"""A library in PostgreSQL keeps the contract of passage stores, in one transaction for each write."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from epicrisis.core.errors import LibraryBusy, LibraryError, LibraryMissing, StorageError
from epicrisis.core.types import Document, Scope
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.postgresql import database_table as table
from epicrisis.library.postgresql import search
from epicrisis.library.write.ingest import add_documents
from epicrisis.testing.hashing_encoder import HashingEncoder
from epicrisis.testing.stores import DIMENSIONS, build_stored_document, check_store
from tests.postgresql.conftest import LibraryDatabase
from tests.support.postgresql_server import OWNER, READER, WRITER

pytestmark = pytest.mark.postgresql


@pytest.mark.parametrize("way", ["exact", "through the indexes"])
def test_library_satisfies_store_contract(
    make_library: Callable[[], LibraryStore], way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way != "exact":
        monkeypatch.setattr(search, "EXACT_PASSAGES", -1)
        monkeypatch.setattr(search, "EXACT_WORD_PASSAGES", -1)
    check_store(make_library)


def test_text_with_nul_and_noncharacter_returns_unchanged(make_library: Callable[[], LibraryStore]) -> None:
    store = make_library()
    text = "a\0b \ufdd0 \ufdd00 \ufdd01 aspirin"
    document = build_stored_document("a", text, title="\0", metadata={"note": "x\0y"})
    store.add([document])
    assert store.fetch(["a#0"], Scope()) == document.passages
    assert [hit.id for hit in store.search_words("aspirin", 3, Scope())] == ["a#0"]


def test_failed_write_leaves_library_unchanged(
    make_library: Callable[[], LibraryStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_library()
    store.add([build_stored_document("a", "aspirin")])
    with monkeypatch.context() as patch:
        patch.setattr(table, "insert_passages", lambda connection, columns: connection.execute("SELECT 1 / 0"))
        with pytest.raises(LibraryError, match="PostgreSQL reports DivisionByZero 22012; its log says more"):
            store.add([build_stored_document("a", "warfarin", version="2"), build_stored_document("b", "aspirin")])
    assert store.count() == (1, 1)
    assert store.fetch(["a#0"], Scope())[0].text == "aspirin"
    store.add([build_stored_document("b", "aspirin")])
    assert store.count() == (2, 2)


def test_second_writer_waits_for_the_first(database: LibraryDatabase) -> None:
    with database.create():
        with pytest.raises(LibraryBusy, match="this process is writing to it already"):
            LibraryStore.open(database.url(WRITER), write=True)
        with pytest.raises(LibraryBusy, match="another process is writing to it"):
            LibraryStore.open(database.url(OWNER), write=True)
    LibraryStore.open(database.url(OWNER), write=True).close()


def test_reader_sees_old_or_new_version_of_a_document(database: LibraryDatabase) -> None:
    """A search and a fetch while the document is replaced find one of both, and never none."""
    with database.create() as store:
        store.add([build_stored_document("a", "aspirin 0")])
        reader = database.read()

        def replace() -> None:
            for number in range(60):
                store.add([build_stored_document("a", f"aspirin {number}", version=str(number))])

        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(replace)
            searches = 0
            while not writing.done() or searches == 0:
                assert [hit.id for hit in reader.search_words("aspirin", 2, Scope())] == ["a#0"]
                assert len(reader.fetch(["a#0"], Scope())) == 1
                searches += 1
            writing.result()


def test_reader_cannot_write_whatever_it_calls(database: LibraryDatabase) -> None:
    database.create().close()
    reader = database.read()
    with pytest.raises(LibraryError, match="is open for reading"):
        reader.add([build_stored_document("a", "aspirin")])
    with (
        database.server.connect(database.name, "ward_app") as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute("DELETE FROM epicrisis.documents")


def test_missing_library_names_the_command(database: LibraryDatabase) -> None:
    with pytest.raises(LibraryMissing, match=r"has no library in the schema epicrisis.*epicrisis library add"):
        LibraryStore.open(database.url(WRITER))


def test_names_that_server_cannot_store_match_nothing(make_library: Callable[[], LibraryStore]) -> None:
    store = make_library()
    store.add([build_stored_document("a", "aspirin"), build_stored_document("b", "aspirin", patient="anna")])
    for odd in ("anna\0", "\ud800"):
        scope = Scope(patient=odd, hidden=frozenset({odd}))
        assert [hit.id for hit in store.search_words("aspirin", 3, scope, ["a#0", "b#0", odd])] == ["a#0"]
        assert store.fetch([odd, "b#0"], scope) == store.fetch_record(scope) == ()
        assert store.content_hashes([odd]) == {}
        assert store.search_words("aspirin", 3, Scope(journals=frozenset({odd}))) == ()
        store.delete([odd])


def test_first_addition_builds_the_indexes_at_its_end(database: LibraryDatabase) -> None:
    """An empty library is filled without indexes, and one that was interrupted is finished by the next addition."""
    encoder = HashingEncoder(DIMENSIONS, max_tokens=64)
    with database.create(fingerprint=encoder.fingerprint) as store:
        store.prepare_addition()
        store.add([build_stored_document("a", "aspirin", vectors=[[0.5] * DIMENSIONS])])
        with pytest.raises(StorageError, match="is being filled by its first addition"):
            store.search_words("aspirin", 2, Scope())
    with LibraryStore.open(database.url(WRITER), write=True) as store:
        report = add_documents(store, [Document("b", "B", title="aspirin again", source="test")], encoder)
        assert report.added == 1
        assert {hit.id for hit in store.search_words("aspirin", 2, Scope())} == {"a#0", "b#0"}
        with store._database.read() as connection:  # type: ignore[attr-defined]
            query = "SELECT count(*) FROM pg_index WHERE indexrelid IN (to_regclass(%s), to_regclass(%s))"
            assert connection.execute(query, ("passages_words", "passages_vector")).fetchone() == (2,)


def test_deletion_on_one_machine_removes_cached_replies_on_others(
    database: LibraryDatabase,
) -> None:
    """Each URL has a folder of its own, as each machine has. A deletion by the source keeps the replies."""
    with database.create() as store:
        store.add([build_stored_document("a", "aspirin"), build_stored_document("b", "aspirin")])
        reader = database.read()
        replies = reader.path / "replies.sqlite"
        replies.touch()
        reader.open_table().refresh()
        store.delete(["b"], {"b": "1"})
        reader.open_table().refresh()
        assert replies.exists()
        store.delete(["a"])
        reader.open_table().refresh()
        assert not replies.exists()
        replies.touch()
        LibraryStore.open(database.url(READER))
        assert replies.exists()
