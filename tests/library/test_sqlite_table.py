"""Passages in SQLite: damage is noticed, deleted text is gone, readers keep their version, large libraries move."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from epicrisis.core.errors import LibraryDamaged, LibraryError
from epicrisis.core.types import Document, Scope
from epicrisis.library.core import library_parts
from epicrisis.library.core import library_store as libraries
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.engines import lance_table, vector_search
from epicrisis.library.engines.engine_choice import TableEngine, table_name
from epicrisis.library.engines.lance_table import LanceTable
from epicrisis.library.engines.sqlite_table import SqliteTable
from epicrisis.library.write.health import check_health
from epicrisis.library.write.ingest import add_documents
from epicrisis.retrieval.retriever import Retriever
from tests.library.conftest import BOTH_ENGINES
from tests.support.library_documents import COUNT, Contents, add, contents, create, encoder

SECRET = "Zebulon-Quackenbush"


@pytest.fixture
def small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat the corpus as too large for SQLite."""
    for module in (libraries, library_parts, vector_search):
        monkeypatch.setattr(module, "EXACT_LIMIT", 20)


# -- the same with both engines ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_both_engines_hold_the_same(tmp_path: Path) -> None:
    with create(tmp_path / "small") as small, create(tmp_path / "large", "lance") as large:
        for version in (0, 1):
            for library in (small, large):
                add(library, version, COUNT)
                library.delete(["doc:3", "doc:4"])
        assert contents(small) == contents(large)
        vector = encoder().encode_queries(["aspirin and stroke"])[0]
        for scope in (Scope(), Scope(patient="anna"), Scope(as_of="2020-05"), Scope(hidden=frozenset({"doc:1"}))):
            assert small.search_vectors(vector, 30, scope) == large.search_vectors(vector, 30, scope)
            assert small.search_words("aspirin stroke", 30, scope) == large.search_words("aspirin stroke", 30, scope)


@pytest.mark.slow
@BOTH_ENGINES
def test_check_health_of_sound_library_has_no_problems(engine: TableEngine, folder: Path) -> None:
    with LibraryStore.open(folder) as library:
        report = check_health(library)
    assert report.problems == ()
    assert report.agreement.compared
    assert report.contents.passages == report.library.passages


# -- damage -----------------------------------------------------------------------------------------------------------


def read_all(folder: Path) -> Contents:
    with LibraryStore.open(folder) as library:
        return contents(library)


@pytest.mark.slow
def test_flipped_bits_are_never_read_as_passages(folder: Path) -> None:
    """Each of 60 flipped bits is refused, or lies where nothing is stored."""
    before = read_all(folder)
    path = folder / "passages.sqlite"
    whole = path.read_bytes()
    dice = random.Random(1)
    refused = 0
    for _ in range(60):
        damaged = bytearray(whole)
        damaged[dice.randrange(100, len(whole))] ^= 1 << dice.randrange(8)
        path.write_bytes(damaged)
        try:
            after = read_all(folder)
        except LibraryDamaged:
            refused += 1
        else:
            assert (after.table, after.vectors) == (before.table, before.vectors)
    assert refused > 10
    path.write_bytes(whole)
    assert read_all(folder) == before


@pytest.mark.parametrize("column", ["text", "vector", "patient"])
def test_changed_row_is_refused_and_reported_by_check(column: str, folder: Path) -> None:
    change = {
        "text": "UPDATE texts SET text = text || ' not' WHERE row = 3",
        "vector": "UPDATE vectors SET vector = zeroblob(length(vector)) WHERE row = 3",
        "patient": "UPDATE passages SET patient = 'berta' WHERE row = 3",
    }[column]
    with closing(sqlite3.connect(folder / "passages.sqlite")) as database, database:
        database.execute(change)
    with LibraryStore.open(folder) as library:
        retriever = Retriever(library, encoder())
        with pytest.raises(LibraryDamaged, match="restore the folder from a backup"):
            retriever.rank("aspirin", 1000, "dense", Scope(patient="anna"))
        with pytest.raises(LibraryDamaged, match=r"passages\.sqlite"):
            check_health(library)


# -- deleted text -----------------------------------------------------------------------------------------------------


def find_secret(folder: Path) -> list[str]:
    """Return the files of the table that hold the secret."""
    return [path.name for path in folder.glob("passages.sqlite*") if SECRET.encode() in path.read_bytes()]


def write_notes(library: LibraryStore, secret: str) -> None:
    documents = []
    for number in range(300):
        text = f"Note {number} on a fever." if number % 7 else f"Note {number} tells that {secret} has a fever."
        documents.append(Document(f"n:{number:03}", text, title=secret if number % 7 == 0 else "", patient="anna"))
    random.Random(2).shuffle(documents)
    add_documents(library, documents, encoder(), passages_per_batch=40)


@pytest.mark.slow
@pytest.mark.parametrize("change", ["delete", "replace"])
def test_removed_text_is_in_no_file_once_writer_closes(change: str, tmp_path: Path) -> None:
    folder = tmp_path / "library"
    with create(folder) as library:
        write_notes(library, SECRET)
        assert find_secret(folder)
        if change == "delete":
            library.delete([f"n:{number:03}" for number in range(0, 300, 7)])
        else:
            write_notes(library, "the patient")
    assert find_secret(folder) == []
    with LibraryStore.open(folder) as library:
        assert library.info().problems == ()


@pytest.mark.slow
def test_removed_text_of_killed_writer_is_gone_after_next_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "library"
    with create(folder) as library:
        write_notes(library, SECRET)
    with monkeypatch.context() as patched:
        patched.setattr(SqliteTable, "purge", lambda self: None)
        with LibraryStore.open(folder, write=True) as library:
            library.delete([f"n:{number:03}" for number in range(0, 300, 7)])
    size = (folder / "passages.sqlite").stat().st_size
    LibraryStore.open(folder, write=True).close()
    assert find_secret(folder) == []
    assert (folder / "passages.sqlite").stat().st_size < size


def test_deletion_beside_reader_of_old_version_is_purged_later(folder: Path) -> None:
    with LibraryStore.open(folder) as reader:
        table = reader.open_table()
        with table.snapshot():
            rows = table.count()
            with LibraryStore.open(folder, write=True) as library:
                library.delete(["doc:1"])
            assert table.count() == rows
    with closing(sqlite3.connect(folder / "passages.sqlite")) as database:
        assert database.execute("SELECT must_purge FROM state").fetchone() == (1,)
    LibraryStore.open(folder, write=True).close()
    with closing(sqlite3.connect(folder / "passages.sqlite")) as database:
        assert database.execute("SELECT must_purge FROM state").fetchone() == (0,)


# -- readers beside a writer ------------------------------------------------------------------------------------------


def test_snapshot_reads_one_version_beside_writer(folder: Path) -> None:
    with LibraryStore.open(folder, write=True) as writer:
        table = writer.open_table()
        with table.snapshot():
            version, rows = table.version, table.count()
            writer.delete(["doc:1"])
            assert (table.version, table.count()) == (version, rows)
            assert len(list(table.rows(["id"]))) == rows
        assert table.version > version
        assert table.count() < rows


# -- the move to LanceDB ----------------------------------------------------------------------------------------------


@pytest.fixture
def steps() -> list[str]:
    return []


@pytest.mark.slow
def test_add_moves_library_that_has_grown(folder: Path, small_limit: None, steps: list[str]) -> None:
    with LibraryStore.open(folder, write=True) as library, LibraryStore.open(folder) as reader:
        before = contents(reader)
        add_documents(
            library,
            [Document("new", "Aspirin.")],
            encoder(),
            on_progress=lambda progress: steps.append(progress.step),
        )
        assert isinstance(library.open_table(), LanceTable)
        # A reader follows at its next call.
        vector = encoder().encode_queries(["aspirin and stroke"])[0]
        assert reader.search_vectors(vector, 99, Scope()) == library.search_vectors(vector, 99, Scope())
        assert reader.search_words("aspirin", 99, Scope()) == library.search_words("aspirin", 99, Scope())
        library.delete(["new"])
        assert contents(reader) == before
    assert "comparing the moved passages" in steps
    assert any(step.startswith("moving") and step.endswith("100%") for step in steps)
    assert table_name(folder) == "passages.lance"
    assert list(folder.glob("passages.sqlite*")) == []
    with LibraryStore.open(folder) as library:
        report = check_health(library)
    assert (report.problems, report.files.changed) == ((), ())


def test_differing_copy_leaves_library_as_it_is(
    folder: Path, small_limit: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = read_all(folder)
    append = LanceTable.append

    def spoil(self: LanceTable, columns: dict[str, object], replaced: object = ()) -> None:
        append(self, {**columns, "title": ["?"] * len(columns["id"])})  # type: ignore[arg-type]

    with monkeypatch.context() as patched, LibraryStore.open(folder, write=True) as library:
        patched.setattr(LanceTable, "append", spoil)
        with pytest.raises(LibraryDamaged, match="stays as it is"):
            library.optimize()
        assert contents(library) == before
    assert table_name(folder) == "passages.sqlite"
    LibraryStore.open(folder, write=True).close()
    assert not (folder / "passages.lance").exists()


@pytest.fixture
def without_lance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "has_lance", lambda: False)
    monkeypatch.setattr(lance_table, "has_lance", lambda: False)


def test_grown_library_without_extra_stays_usable(folder: Path, small_limit: None, without_lance: None) -> None:
    with LibraryStore.open(folder, write=True) as library:
        assert add_documents(library, [Document("new", "Aspirin.")], encoder()).outgrown
        assert library.optimize() is None
        info = library.info()
    assert (info.outgrown, info.exact, info.problems) == (True, True, ())
    assert table_name(folder) == "passages.sqlite"


@pytest.mark.parametrize("engine", ["lance"])
def test_large_library_without_extra_names_it(engine: TableEngine, folder: Path, without_lance: None) -> None:
    with pytest.raises(LibraryError, match=r"pip install 'epicrisis\[large\]'"):
        LibraryStore.open(folder)
