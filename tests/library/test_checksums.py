"""Changed bits in the data files of a library are noticed, and never written again as if they were right."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from epicrisis.core.errors import LibraryDamaged
from epicrisis.library.core.journal import Journal
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.core.repair import repair_library
from epicrisis.library.engines import checksums
from epicrisis.library.engines.engine_choice import TableEngine
from epicrisis.library.write import health
from epicrisis.library.write.health_report import HealthReport
from tests.library.conftest import Killer
from tests.support.library_documents import COUNT, add


@pytest.fixture
def engine() -> TableEngine:
    """SQLite's rows have checksums of their own, see test_sqlite_table.py."""
    return "lance"


def read_recorded(folder: Path) -> dict[str, str]:
    with closing(Journal(folder)) as journal:
        return dict(journal.files())


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat no data file as small."""
    monkeypatch.setattr(checksums, "SMALL_BYTES", 0)


def flip_bit(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def run_check(folder: Path) -> HealthReport:
    with LibraryStore.open(folder) as library:
        return health.check_health(library)


def list_data_files(folder: Path) -> Iterator[Path]:
    return iter(sorted((folder / "passages.lance" / "data").glob("*.lance")))


@pytest.mark.long
def test_checksums_every_batch_records_its_files(folder: Path) -> None:
    with LibraryStore.open(folder, write=True) as library:
        for step in (lambda: add(library, 1, COUNT), lambda: library.delete(["doc:1"]), library.optimize):
            step()
            files = read_recorded(folder)
            assert files is not None
            named = {path.relative_to(folder).as_posix() for path in list_data_files(folder)}
            assert {"manifest.json", *named} <= files.keys()
            assert checksums.verify_data_files(folder, files) == checksums.Damage(files=len(files))
    assert run_check(folder).problems == ()


@pytest.mark.slow
def test_checksums_killed_batch_is_recorded_by_next_writer(killer: Killer, folder: Path) -> None:
    killer.kill("add", folder, "table-written", 0)
    LibraryStore.open(folder, write=True).close()
    files = read_recorded(folder)
    assert files is not None
    assert {path.relative_to(folder).as_posix() for path in list_data_files(folder)} <= files.keys()
    assert run_check(folder).problems == ()


def flip_vector_bit(folder: Path) -> Path:
    """Flip the last bit of a number of a stored vector. Return the file."""
    with LibraryStore.open(folder) as library:
        (_, _, vector), *_ = library.open_table().some_vectors(1)
    for path in list_data_files(folder):
        place = path.read_bytes().find(vector.astype("<f2").tobytes())
        if place >= 0:
            flip_bit(path, place)
            return path
    raise AssertionError("the vector is in no file")


@pytest.mark.slow
def test_open_small_library_with_flipped_bit_is_refused(folder: Path) -> None:
    path = flip_vector_bit(folder)
    with pytest.raises(LibraryDamaged, match=path.name):
        LibraryStore.open(folder)
    with pytest.raises(LibraryDamaged, match=path.name):
        repair_library(folder)


def test_check_health_flipped_vector_bit_is_problem(folder: Path, large: None) -> None:
    """Every passage is read all the same, and every vector is finite: nothing but the checksum tells."""
    path = flip_vector_bit(folder)
    report = run_check(folder)
    (problem,) = report.problems
    assert path.name in problem
    assert report.rows.no_vector.count == 0


@pytest.mark.slow
def test_check_health_damaged_earlier_version_is_notice_and_is_removed(folder: Path) -> None:
    """Nothing reads it but Lance's own clearing of old versions, which would fail for good."""
    oldest = max((folder / "passages.lance" / "_versions").glob("*.manifest"))
    oldest.write_bytes(b"damaged")
    report = run_check(folder)
    assert report.problems == ()
    assert [notice for notice in report.notices if oldest.name in notice]
    with LibraryStore.open(folder, write=True) as library:
        add(library, 1, COUNT)
    assert not oldest.exists()
    assert run_check(folder).problems == ()


@pytest.mark.slow
def test_check_health_flipped_word_index_bit_is_problem(folder: Path) -> None:
    path = next((folder / "words").glob("*.pos"))
    flip_bit(path, 0)
    (problem,) = run_check(folder).problems
    assert path.name in problem
    assert "library repair" in problem
    repair_library(folder)
    assert run_check(folder).problems == ()


def test_compact_and_optimize_damaged_library_are_refused(folder: Path, large: None) -> None:
    path = flip_vector_bit(folder)
    with LibraryStore.open(folder, write=True) as library:
        with pytest.raises(LibraryDamaged, match=path.name):
            library.compact()
        with pytest.raises(LibraryDamaged, match=path.name):
            library.optimize()


def test_repair_damaged_library_keeps_checksums(folder: Path, large: None) -> None:
    before = read_recorded(folder)
    assert before is not None
    path = flip_vector_bit(folder)
    repair_library(folder)
    after = read_recorded(folder)
    assert after is not None
    name = path.relative_to(folder).as_posix()
    assert after[name] == before[name]


@pytest.mark.slow
def test_journal_with_null_hash_is_reported_as_damaged(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "journal.sqlite")) as database, database:
        database.execute("PRAGMA writable_schema = ON")
        database.execute(
            "UPDATE sqlite_master SET sql = replace(sql, 'content_hash BLOB NOT NULL', 'content_hash BLOB')"
        )
    with closing(sqlite3.connect(folder / "journal.sqlite")) as database, database:
        database.execute("UPDATE documents SET content_hash = NULL")
    with LibraryStore.open(folder) as library:
        with pytest.raises(LibraryDamaged, match="epicrisis library repair"):
            library.content_hashes(["doc:1"])
        with pytest.raises(LibraryDamaged, match="epicrisis library repair"):
            health.check_health(library)
    repair_library(folder)
    assert run_check(folder).problems == ()
