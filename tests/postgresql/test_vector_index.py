"""The index of vectors in PostgreSQL: its recall is measured."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from typer.testing import CliRunner

from epicrisis.cli.program import app
from epicrisis.core.errors import StorageError
from epicrisis.core.protocols import StoredDocument, Vectors
from epicrisis.core.types import Document, Scope
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.engines import index_recall
from epicrisis.library.postgresql import database_table as table
from epicrisis.library.postgresql import index_build, search
from epicrisis.library.postgresql.database_vector_index import GraphReport
from epicrisis.library.write.ingest import add_documents
from epicrisis.testing.hashing_encoder import HashingEncoder
from epicrisis.testing.stores import build_stored_document
from tests.postgresql.conftest import LibraryDatabase
from tests.support.postgresql_server import OWNER, READER, WRITER

pytestmark = pytest.mark.postgresql
DIMENSIONS, PASSAGES, K = 32, 3000, 16
FEW_LINKS = "DROP INDEX passages_vector; CREATE INDEX passages_vector ON passages USING hnsw(vector halfvec_ip_ops)"
"""`WITH` follows, so that a few thousand passages are as hard to find as millions."""


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat a library of a few thousand passages as large."""
    monkeypatch.setattr(search, "EXACT_PASSAGES", 100)
    monkeypatch.setattr(index_recall, "QUERIES", 60)


def make_vectors() -> Vectors:
    """Return unit vectors around 60 centres, rounded to float16."""
    dice = np.random.default_rng(1)
    rows = 2 * dice.normal(size=(60, DIMENSIONS))[dice.integers(60, size=PASSAGES)]
    rows += dice.normal(size=rows.shape)
    half = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float16)
    return np.asarray(half, dtype=np.float32)


VECTORS = make_vectors()


def make_documents() -> list[StoredDocument]:
    """Return documents of one passage each, with the dates of 30 years."""
    documents = []
    for number, vector in enumerate(VECTORS):
        date = str(1990 + number % 30)
        documents.append(build_stored_document(f"d{number}", "aspirin", vectors=[vector.tolist()], date=date))
    return documents


@pytest.fixture
def library(database: LibraryDatabase) -> Iterator[LibraryStore]:
    """A library with the passages and its index, open for writing."""
    with database.create(dimensions=DIMENSIONS) as library:
        library.prepare_bulk()
        library.add(make_documents())
        library.compact()
        library.optimize()
        yield library


def measure_recall(library: LibraryStore, since: int | None = None) -> float:
    """Compare searches for 200 passages with brute force, as a user of the library would."""
    newer = np.array([since is None or 1990 + number % 30 >= since for number in range(PASSAGES)])
    found = 0
    for number in range(0, PASSAGES, PASSAGES // 200):
        scores = VECTORS @ VECTORS[number]
        scores[number] = -np.inf
        scores[~newer] = -np.inf
        expected = {f"d{row}#0" for row in np.argsort(-scores)[:K]}
        scope = Scope(since=None if since is None else str(since))
        found += len(expected & {hit.id for hit in library.search_vectors(VECTORS[number], K + 1, scope)})
    return found / (200 * K)


def count_index_links(database: LibraryDatabase) -> list[str]:
    with database.server.connect(database.name) as connection:
        row = connection.execute(
            "SELECT coalesce(reloptions, '{}') FROM pg_class WHERE oid = 'epicrisis.passages_vector'::regclass"
        ).fetchone()
    assert row is not None
    return list(row[0])


def use_index_of_few_links(database: LibraryDatabase) -> None:
    with database.server.connect(database.name) as connection:
        connection.execute("SET search_path = epicrisis, public")
        connection.execute(f"{FEW_LINKS} WITH (m = 2, ef_construction = 4)".encode())
        connection.execute(f"ALTER INDEX passages_vector OWNER TO {OWNER}".encode())


def wait_until(is_true: Callable[[], bool]) -> None:
    """Wait, and fail after two minutes."""
    for _ in range(2400):
        if is_true():
            return
        time.sleep(0.05)
    pytest.fail("it did not happen")


def test_optimize_measures_what_searches_find(library: LibraryStore, database: LibraryDatabase) -> None:
    report = library.info().index
    assert isinstance(report, GraphReport)
    assert (report.passages, report.queries, report.asked) == (PASSAGES, 60, 0.95)
    assert (report.m, report.ef_construction) == (32, 128)
    assert report.filtered_recall is not None
    assert report.recall == pytest.approx(measure_recall(library), abs=0.03)
    assert report.filtered_recall == pytest.approx(measure_recall(library, 2017), abs=0.03)
    assert report.good
    with database.read() as reader:
        assert reader.info().index == report


def test_poor_recall_is_reported_and_searches_go_on(library: LibraryStore, database: LibraryDatabase) -> None:
    use_index_of_few_links(database)
    # A scan that goes on long enough finds the rest.
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(search.INDEX_SETTINGS, "hnsw.ef_search", "1")
        patch.setitem(search.INDEX_SETTINGS, "hnsw.iterative_scan", "strict_order")
        report = library.optimize(1.0)
        assert isinstance(report, GraphReport)
        assert not report.good
        assert report.recall < 0.95
        assert report.recall == pytest.approx(measure_recall(library), abs=0.08)
        assert (report.m, report.ef_construction) == (2, 4)
        library.close()
        result = CliRunner().invoke(app, ["library", "optimize", database.url(OWNER), "--recall", "1"])
    assert result.exit_code == 2
    assert "graph with m 2, ef_construction 4" in result.stdout
    assert "the index does not reach recall 1.0, so searches may miss some of the nearest passages" in result.stderr
    assert "graph with m 2" in CliRunner().invoke(app, ["library", "info", database.url(READER)]).stdout


def test_bulk_addition_forgets_the_measurement(library: LibraryStore) -> None:
    assert library.info().index is not None
    library.prepare_bulk()
    assert library.info().index is None
    library.compact()
    assert library.info().index is None
    assert library.optimize() is not None


def test_small_library_is_not_measured(database: LibraryDatabase) -> None:
    with database.create(dimensions=DIMENSIONS) as library:
        library.add(make_documents()[:100])
        assert library.optimize() is None
        assert library.info().index is None


def test_build_reports_its_progress(library: LibraryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_build, "_LOOK_SECONDS", 0.001)
    steps: list[str] = []
    library.optimize(rebuild=True, on_step=steps.append)
    shares = [step for step in steps if re.fullmatch(r"\d+% of the vector index", step)]
    assert len(set(shares)) > 1


def test_exception_of_the_progress_takes_the_build_back(
    library: LibraryStore, database: LibraryDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the page does when its user cancels."""
    monkeypatch.setattr(index_build, "_LOOK_SECONDS", 0.001)
    use_index_of_few_links(database)

    def cancel(step: str) -> None:
        if "%" in step:
            raise ValueError("cancelled")

    with pytest.raises(ValueError, match="cancelled"):
        library.optimize(rebuild=True, on_step=cancel)
    assert count_index_links(database) == ["m=2", "ef_construction=4"]
    library.optimize(rebuild=True)
    assert count_index_links(database) == ["m=32", "ef_construction=128"]


def test_killed_command_does_not_keep_the_library_locked(library: LibraryStore, database: LibraryDatabase) -> None:
    """The server notices that the client is gone, although its statement would go on for minutes."""
    library.close()
    command = [sys.executable, "-m", "epicrisis", "library", "optimize", "--rebuild", database.url(OWNER)]
    with database.server.connect(database.name) as connection, connection.transaction():
        connection.execute("SELECT count(*) FROM epicrisis.passages")
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND query ~ 'build_vector_index'"
        with database.server.connect(database.name) as looking:
            wait_until(lambda: looking.execute(query).fetchone() == (1,))
            process.kill()
            process.wait()
            query = query.replace("wait_event = 'PgSleep'", "pid <> pg_backend_pid()")
            wait_until(lambda: looking.execute(query).fetchone() == (0,))
        with LibraryStore.open(database.url(WRITER), write=True) as writer:
            assert writer.count()[0] > 0


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"recall": null}', "[" * 100_000])
def test_damaged_report_counts_as_none(library: LibraryStore, database: LibraryDatabase, text: str) -> None:
    saved = library.info().index
    assert isinstance(saved, GraphReport)
    texts = [text, json.dumps(dataclasses.asdict(saved) | {"recall": None})]
    for damaged in texts:
        with database.server.connect(database.name) as connection:
            connection.execute("UPDATE epicrisis.library SET vector_report = %s", (damaged,))
        assert library.info().index is None


def test_dates_before_the_year_1000_are_measured(database: LibraryDatabase) -> None:
    documents = []
    for number, vector in enumerate(VECTORS):
        date = f"{100 + number % 30:04d}-05-01"
        documents.append(build_stored_document(f"d{number}", "aspirin", vectors=[vector.tolist()], date=date))
    with database.create(dimensions=DIMENSIONS) as library:
        library.add(documents)
        report = library.optimize()
    assert report is not None
    assert report.filtered_recall is not None
    assert report.filtered_recall > 0.95


def test_repeated_addition_builds_the_indexes_of_an_interrupted_one(
    database: LibraryDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C during the build leaves the documents. The same addition then adds nothing, and builds."""
    encoder = HashingEncoder(DIMENSIONS)
    documents = [Document(f"d{number}", f"aspirin {number}", date="2020") for number in range(200)]
    with database.create(dimensions=DIMENSIONS, fingerprint=encoder.fingerprint) as library:

        def interrupt(database: object, on_step: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(table, "build_vector_index", interrupt)
            with pytest.raises(KeyboardInterrupt):
                add_documents(library, documents, encoder)
        with pytest.raises(StorageError, match="repeat the addition"):
            library.search_words("aspirin", 3, Scope())
        report = add_documents(library, documents, encoder)
        assert (report.added, report.unchanged) == (0, 200)
        assert len(library.search_words("aspirin", 3, Scope())) == 3
        assert count_index_links(database) == ["m=32", "ef_construction=128"]


def test_searches_go_on_while_the_index_is_replaced(library: LibraryStore, database: LibraryDatabase) -> None:
    """A long read of the table keeps the old index in use; the new one waits for its end, and searches do not."""
    with database.server.connect(database.name) as connection:
        reading = connection.transaction()
        reading.__enter__()
        connection.execute("SELECT count(*) FROM epicrisis.passages")
        done = threading.Event()

        def rebuild() -> None:
            library.optimize(rebuild=True)
            done.set()

        thread = threading.Thread(target=rebuild)
        thread.start()
        reader = database.read()
        for _ in range(20):
            assert len(reader.search_vectors(VECTORS[0], K, Scope())) == K
            assert not done.wait(0.1)
        reading.__exit__(None, None, None)
        thread.join(60)
        assert done.is_set()
        reader.close()
