"""The vector index of a library above the limit of memory: what it says of itself is so, and it is never in the way."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from epicrisis.core.protocols import ScoredId, StoredDocument, Vectors
from epicrisis.core.types import Passage, Scope
from epicrisis.library.core import library_parts
from epicrisis.library.core import library_store as libraries
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.engines import index_recall, vector_search
from epicrisis.library.engines import vector_index as indexes
from epicrisis.library.engines.index_recall import K
from epicrisis.library.engines.lance_table import LanceTable
from epicrisis.library.engines.vector_index import PartitionReport, read_report
from epicrisis.library.engines.vector_search import VectorSearch
from epicrisis.retrieval.rankings import parse_document_id
from epicrisis.testing import stores
from epicrisis.testing.stores import check_store, hash_content

DIMENSIONS = 32
COUNT = 2000
LIMIT = 100
QUERIES = 30
ANNA = Scope(patient="anna")
"""Sees everything there is."""


@pytest.fixture(scope="module", autouse=True)
def small_limits() -> Iterator[None]:
    """Treat a library of a few thousand passages as large."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (vector_search, indexes, libraries, library_parts):
            patch.setattr(module, "EXACT_LIMIT", LIMIT)
        patch.setattr(index_recall, "QUERIES", QUERIES)
        yield


def vectors(count: int, seed: int, dimensions: int = DIMENSIONS) -> Vectors:
    """Return unit vectors around 40 centres, rounded to float16."""
    dice = np.random.default_rng(seed)
    centres = np.random.default_rng(1).normal(size=(40, dimensions))
    rows = centres[dice.integers(40, size=count)] + 1.5 * dice.normal(size=(count, dimensions))
    half = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float16)
    return np.asarray(half, dtype=np.float32)


def document(number: int, vector: Vectors, version: str = "1") -> StoredDocument:
    """Return a document of one passage. Dates cover 30 years, half are reviews, every tenth is Anna's."""
    name = f"d{number:05d}"
    metadata = {
        "publication_types": ["Review"] if number % 2 else ["Randomized Controlled Trial"],
        "journal": "Rare Journal" if number % 50 == 0 else "Common Journal",
        **({"retracted": True} if number % 5 == 1 else {}),
    }
    passage = Passage(
        id=f"{name}#0",
        document_id=name,
        ordinal=0,
        start=0,
        end=7,
        text="aspirin",
        date=None if number % 40 == 3 else str(1990 + number % 30),
        patient="anna" if number % 10 == 7 else None,
        metadata=metadata,
    )
    return StoredDocument(name, hash_content(name, version), (passage,), vector[None, :])


class Exact:
    """The same documents searched by brute force; knows nothing of the library."""

    def __init__(self, documents: Iterable[StoredDocument]) -> None:
        self.documents = {document.id: document for document in documents}

    def nearest(self, vector: Vectors, k: int, scope: Scope) -> list[str]:
        admitted = [document for document in self.documents.values() if scope.admits(document.passages[0])]
        rows = np.concatenate([document.vectors for document in admitted]).astype(np.float64)
        scores = np.round(rows @ vector.astype(np.float64), 9)
        passage_ids = [document.passages[0].id for document in admitted]
        return [passage_ids[row] for row in np.lexsort((np.asarray(passage_ids), -scores))[:k]]


@dataclass
class Ways:
    """How often vectors were searched by the index and by a scan."""

    counts: Counter[str]

    @property
    def only(self) -> str:
        (way,) = self.counts
        self.counts.clear()
        return way


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> Ways:
    search_ways = Ways(Counter())
    for name in ("approximate", "scan"):
        original: Callable[..., Any] = getattr(VectorSearch, name)

        def counted(*arguments: Any, _name: str = name, _original: Callable[..., Any] = original) -> Any:
            search_ways.counts[_name] += 1
            return _original(*arguments)

        monkeypatch.setattr(VectorSearch, name, counted)
    return search_ways


def index_name(library: LibraryStore) -> str | None:
    table = library.open_table()
    return VectorSearch(library.path, table).index_name() if isinstance(table, LanceTable) else None


def create(folder: Path, dimensions: int = DIMENSIONS) -> LibraryStore:
    return LibraryStore.create(
        folder,
        encoder_fingerprint="check",
        encoder_name="check",
        dimensions=dimensions,
        max_tokens=9,
        overlap=0,
        engine="lance",
    )


DOCUMENTS = [document(number, vector) for number, vector in enumerate(vectors(COUNT, 0))]
EXACT = Exact(DOCUMENTS)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a closed library without an index."""
    folder = tmp_path_factory.mktemp("plain") / "library"
    with create(folder) as library:
        library.add(DOCUMENTS)
    return folder


@pytest.fixture(scope="module")
def indexed(plain: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a closed library with an index."""
    folder = tmp_path_factory.mktemp("indexed") / "library"
    shutil.copytree(plain, folder)
    with LibraryStore.open(folder, write=True) as library:
        report = library.optimize(recall=0.9)
    assert report is not None
    assert report.good
    return folder


@pytest.fixture
def folder(indexed: Path, tmp_path: Path) -> Path:
    """Return a copy of `indexed` to change."""
    return Path(shutil.copytree(indexed, tmp_path / "library"))


def list_ids(hits: Sequence[ScoredId]) -> list[str]:
    return [hit.id for hit in hits]


def measure_recall(library: LibraryStore, scope: Scope, k: int = K, exact: Exact = EXACT, queries: int = 40) -> float:
    """Return the share of the k nearest passages that a search finds, for other queries than the library's own."""
    dice = np.random.default_rng(99)
    hit_count = 0
    for number in dice.choice(COUNT, queries, replace=False):
        own_id, vector = f"d{number:05d}#0", DOCUMENTS[number].vectors[0]
        expected = [id_ for id_ in exact.nearest(vector, k + 1, scope) if id_ != own_id][:k]
        hits = [id_ for id_ in list_ids(library.search_vectors(vector, k + 1, scope)) if id_ != own_id][:k]
        hit_count += len(set(expected) & set(hits))
    return hit_count / (k * queries)


def matches_exact(library: LibraryStore, scope: Scope = ANNA, exact: Exact = EXACT, queries: int = 5) -> bool:
    return all(
        list_ids(library.search_vectors(vector, 20, scope)) == exact.nearest(vector, 20, scope)
        for vector in vectors(queries, 7)
    )


# -- it says of itself what is so --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_optimize_small_library_builds_no_index(tmp_path: Path) -> None:
    with create(tmp_path / "l") as library:
        library.add(DOCUMENTS[:LIMIT])
        assert library.optimize() is None
        assert index_name(library) is None
        assert (library.info().exact, library.info().index) == (True, None)
        assert read_report(tmp_path / "l") is None
        library.add(DOCUMENTS[LIMIT : LIMIT + 1])
        assert library.info().exact
        assert library.optimize() is not None


@pytest.mark.long
def test_optimize_reports_index_and_uses_it(plain: Path, tmp_path: Path, ways: Ways) -> None:
    steps: list[str] = []
    with LibraryStore.open(shutil.copytree(plain, tmp_path / "l"), write=True) as library:
        assert matches_exact(library)
        assert ways.only == "scan"
        assert (library.info().exact, library.info().unindexed) == (True, COUNT)
        returned = library.optimize(recall=0.9, on_step=steps.append)
        report = read_report(tmp_path / "l")
        assert report is not None
        assert report == returned == library.info().index
        assert (report.passages, report.partitions, report.queries, report.asked) == (COUNT, 45, QUERIES, 0.9)
        assert 0.9 <= report.recall <= 1.0
        assert report.filtered_recall is not None
        assert 0.9 <= report.filtered_recall <= 1.0
        assert (library.info().exact, library.info().unindexed, library.info().problems) == (False, 0, ())
        ways.counts.clear()
        library.search_vectors(DOCUMENTS[0].vectors[0], 5, ANNA)
        assert ways.only == "approximate"
    assert [step for step in steps if "partitions" in step] == ["building an index of 45 partitions"]
    assert steps[-1] == f"measuring {report.probes} probes"


@pytest.mark.long
@pytest.mark.parametrize("target", [0.5, 0.8])
def test_optimize_reported_recall_matches_search(
    target: float, folder: Path, monkeypatch: pytest.MonkeyPatch, ways: Ways
) -> None:
    """Against brute force, on other passages than those it was measured on."""
    monkeypatch.setattr(index_recall, "QUERIES", 100)
    with LibraryStore.open(folder, write=True) as library:
        report = library.optimize(recall=target)
        assert report is not None
        assert report.good
        assert report.recall < 0.99, "it says too little to be checked"
        ways.counts.clear()
        assert measure_recall(library, ANNA, queries=100) == pytest.approx(report.recall, abs=0.05)
        # The newest tenth of the dated is that of the last three years.
        assert measure_recall(library, Scope(patient="anna", since="2017"), queries=60) == pytest.approx(
            report.filtered_recall, abs=0.06
        )
        assert ways.only == "approximate"


@pytest.mark.slow
def test_optimize_equal_passages_have_full_recall(tmp_path: Path) -> None:
    """Of twenty equal neighbours any sixteen are the nearest."""
    rows = np.repeat(vectors(30, 3), 20, axis=0)
    with create(tmp_path / "l") as library:
        library.add([document(number, row) for number, row in enumerate(rows)])
        report = library.optimize(recall=1.0)
        assert report is not None
        assert report.recall == 1.0


@pytest.mark.long
def test_optimize_recall_below_target_searches_exactly(
    folder: Path, monkeypatch: pytest.MonkeyPatch, ways: Ways
) -> None:
    """Without looking again at the vectors, codes of one bit a dimension cannot tell near neighbours apart."""
    monkeypatch.setattr(indexes, "_REFINEMENTS", (1,))
    with LibraryStore.open(folder, write=True) as library:
        report = library.optimize(recall=0.999)
        assert report is not None
        assert report.recall < 0.99
        assert not report.good
        assert library.info().exact
        ways.counts.clear()
        assert matches_exact(library)
        assert ways.only == "scan"
        # The same index is good for who asks for less.
        again = library.optimize(recall=report.recall - 0.1)
        assert again is not None
        assert again.good
        ways.counts.clear()
        library.search_vectors(DOCUMENTS[0].vectors[0], 5, ANNA)
        assert ways.only == "approximate"


def test_index_report_filtered_recall_below_target_is_not_good() -> None:
    report = PartitionReport(
        passages=COUNT,
        partitions=45,
        probes=2,
        refine=10,
        recall=0.99,
        filtered_recall=0.94,
        queries=200,
        asked=0.95,
        measured="2026-01-01T00:00:00+00:00",
    )
    assert not report.good
    assert [_change_report(report, filtered_recall=value).good for value in (0.95, None)] == [True, True]
    assert not _change_report(report, filtered_recall=None, recall=0.94).good


def _change_report(report: PartitionReport, **changes: Any) -> PartitionReport:
    return dataclasses.replace(report, **changes)


@pytest.mark.slow
def test_optimize_undated_documents_have_no_filtered_recall(tmp_path: Path) -> None:
    with create(tmp_path / "l") as library:
        undated = [document(40 * number + 3, vector) for number, vector in enumerate(vectors(LIMIT + 20, 0))]
        assert {stored.passages[0].date for stored in undated} == {None}
        library.add(undated)
        report = library.optimize(recall=0.5)
        assert report is not None
        assert report.filtered_recall is None


@pytest.mark.long
def test_optimize_grown_library_rebuilds_index(folder: Path) -> None:
    def steps(library: LibraryStore, **how: Any) -> set[str]:
        messages: list[str] = []
        library.optimize(recall=0.5, on_step=messages.append, **how)
        return {step for step in messages if step.startswith("building")}

    with LibraryStore.open(folder, write=True) as library:
        assert steps(library) == set()
        assert steps(library, rebuild=True) == {"building an index of 45 partitions"}
        more = [document(number + COUNT, vector) for number, vector in enumerate(vectors(COUNT + 1, 5))]
        library.add(more[:-1])
        assert steps(library) == set()
        report = read_report(folder)
        assert report is not None
        assert (report.passages, report.partitions) == (2 * COUNT, 45)
        indexes.write_report(folder, _change_report(report, passages=COUNT - 1))
        assert steps(library) == {"building an index of 63 partitions"}


# -- what changes afterwards -------------------------------------------------------------------------------------------


@pytest.mark.long
def test_indexed_library_finds_added_and_omits_deleted_documents(folder: Path, ways: Ways) -> None:
    fresh = vectors(40, 11)
    more = [document(COUNT + number, vector) for number, vector in enumerate(fresh[:30])]
    # Others in the place of the first ten, with vectors of their own.
    changed = [document(number, vector, "2") for number, vector in enumerate(fresh[30:])]
    deleted = [f"d{number:05d}" for number in range(100, 160)]
    now = {stored.id: stored for stored in [*DOCUMENTS, *more, *changed] if stored.id not in deleted}
    with LibraryStore.open(folder, write=True) as library:
        library.add(more)
        library.add(changed)
        library.delete(deleted)
        assert library.info().unindexed == 40
        for _ in range(2):
            ways.counts.clear()
            for stored in (*more[::5], *changed[::2]):
                assert list_ids(library.search_vectors(stored.vectors[0], 1, ANNA)) == [f"{stored.id}#0"]
            for number in (*range(0, 10, 3), *range(100, 160, 9)):
                hits = library.search_vectors(DOCUMENTS[number].vectors[0], 30, ANNA)
                assert f"d{number:05d}#0" not in list_ids(hits) or hits[0].score < 0.99
                assert not set(map(parse_document_id, list_ids(hits))) & set(deleted)
                assert len(hits) == 30
            assert measure_recall(library, ANNA, exact=Exact(now.values()), queries=20) >= 0.8
            assert ways.only == "approximate"
            report = library.optimize(recall=0.9)
            assert report is not None
            assert report.passages == len(now)
            assert library.info().unindexed == 0


@pytest.mark.long
def test_open_reader_uses_index_built_later(plain: Path, tmp_path: Path, ways: Ways) -> None:
    folder = Path(shutil.copytree(plain, tmp_path / "l"))
    with LibraryStore.open(folder) as reader:
        assert matches_exact(reader)
        assert ways.only == "scan"
        with LibraryStore.open(folder, write=True) as writer:
            writer.optimize(recall=0.9)
            extra = document(COUNT, -DOCUMENTS[0].vectors[0])
            writer.add([extra])
        ways.counts.clear()
        assert list_ids(reader.search_vectors(extra.vectors[0], 1, ANNA)) == [f"{extra.id}#0"]
        assert measure_recall(reader, ANNA) >= 0.85
        assert ways.only == "approximate"


# -- filters ----------------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(
    "scope",
    [
        Scope(),
        Scope(patient="bert"),
        Scope(patient="anna", since="2010"),
        Scope(patient="anna", as_of="1995"),
        Scope(patient="anna", since="2000", as_of="2010-06"),
        Scope(patient="anna", publication_types=frozenset({"review"})),
        Scope(patient="anna", journals=frozenset({"COMMON journal", "nowhere"})),
        Scope(patient="anna", without_retracted=True),
        Scope(patient="anna", hidden=frozenset(f"d{number:05d}" for number in range(0, COUNT, 7))),
        Scope(since="1995", publication_types=frozenset({"Review"}), without_retracted=True),
    ],
)
def test_search_vectors_broad_filter_keeps_recall(scope: Scope, indexed: Path, ways: Ways) -> None:
    with LibraryStore.open(indexed) as library:
        assert measure_recall(library, scope) >= 0.9
        assert ways.only == "approximate"
        for vector in vectors(5, 13):
            hits = library.search_vectors(vector, 40, scope)
            assert len(hits) == 40
            assert len(library.fetch(list_ids(hits), scope)) == 40


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scope", "few"),
    [
        (Scope(patient="anna", journals=frozenset({"rare journal"})), 0.0),
        (Scope(patient="anna", since="2019"), 0.0),
        (Scope(as_of="1989"), 0.0),
        # More than the limit, but a small share.
        (Scope(patient="anna", since="2017"), 0.2),
        (Scope(patient="anna", hidden=frozenset(f"d{number:05d}" for number in range(1800))), 0.2),
    ],
)
def test_search_vectors_narrow_filter_is_exact(
    scope: Scope, few: float, indexed: Path, ways: Ways, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector_search, "MIN_INDEX_SHARE", few)
    with LibraryStore.open(indexed) as library:
        if any(scope.admits(stored.passages[0]) for stored in DOCUMENTS):
            assert matches_exact(library, scope)
        else:
            assert library.search_vectors(DOCUMENTS[0].vectors[0], 5, scope) == ()
        assert ways.only == "scan"


# -- what may be wrong with it -----------------------------------------------------------------------------------------


def _make_report(**changes: object) -> str:
    whole = {
        "passages": COUNT,
        "partitions": 45,
        "probes": 2,
        "refine": 10,
        "recall": 1.0,
        "filtered_recall": None,
        "queries": 30,
        "asked": 0.9,
        "measured": "2026",
    }
    return json.dumps(whole | changes)


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "{",
        "[]",
        "null",
        "\udcff",
        '{"passages": 3}',
        _make_report(more=1),
        _make_report(recall="high"),
        _make_report(probes=None),
        _make_report(probes=0),
        _make_report(refine="10"),
        _make_report(asked=[]),
        _make_report(filtered_recall=""),
    ],
)
def test_search_vectors_invalid_index_report_is_exact(
    text: str | None, folder: Path, ways: Ways, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert json.loads(_make_report()).keys() == json.loads((folder / "index.json").read_text()).keys()
    (folder / "index.json").unlink()
    if text is not None:
        (folder / "index.json").write_text(text, errors="surrogateescape")
    with LibraryStore.open(folder) as library:
        assert matches_exact(library, queries=2)
        assert ways.only == "scan"
        assert (library.info().exact, library.info().index) == (True, None)


@pytest.mark.long
def test_optimize_damaged_index_report_rebuilds_index(folder: Path) -> None:
    (folder / "index.json").write_text("{")
    messages: list[str] = []
    with LibraryStore.open(folder, write=True) as library:
        report = library.optimize(recall=0.5, on_step=messages.append)
        assert "building an index of 45 partitions" in messages
        assert read_report(folder) == report


@pytest.mark.long
def test_search_vectors_missing_index_is_exact(folder: Path) -> None:
    """As of a folder that was copied with the report of another one."""
    with LibraryStore.open(folder, write=True) as library:
        table = library.open_table()
        assert isinstance(table, LanceTable)
        table.lance.drop_index(str(index_name(library)))
        assert matches_exact(library)
        library.optimize(recall=0.5)
        assert index_name(library) is not None


# -- the contract -----------------------------------------------------------------------------------------------------


class Indexed(LibraryStore):
    """Builds its index after every write; vectors get zeros behind them, which changes no inner product."""

    wide = 0

    def _padded(self, rows: Vectors) -> Vectors:
        return np.pad(rows, [(0, 0)] * (rows.ndim - 1) + [(0, self.wide)])

    def add(self, documents: Sequence[StoredDocument]) -> None:
        super().add(
            [
                StoredDocument(
                    document.id,
                    document.content_hash,
                    document.passages,
                    self._padded(document.vectors),
                    document.revision,
                )
                for document in documents
            ]
        )
        self.optimize(recall=0.0)

    def delete(self, document_ids: Sequence[str], revisions: Any = None) -> None:
        super().delete(document_ids, revisions)
        self.optimize(recall=0.0)

    def search_vectors(self, vector: Vectors, k: int, scope: Scope) -> tuple[ScoredId, ...]:
        return super().search_vectors(self._padded(vector), k, scope)


@pytest.mark.long
@pytest.mark.parametrize("wide", [0, 4])
def test_indexed_library_satisfies_store_contract(
    wide: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ways: Ways
) -> None:
    """All of one partition is probed and looked at again, so that nothing is left to chance.

    `wide` 4 makes vectors of 8 numbers, as the codes need; those of 4 are indexed in another way.
    """
    for module in (vector_search, indexes, libraries, library_parts):
        monkeypatch.setattr(module, "EXACT_LIMIT", 0)
    monkeypatch.setattr(indexes, "MAX_PARTITIONS", 1)
    monkeypatch.setattr(index_recall, "QUERIES", 2)
    monkeypatch.setattr(Indexed, "wide", wide)
    created: list[LibraryStore] = []

    def make() -> LibraryStore:
        created.append(
            Indexed.create(
                tmp_path / str(len(created)),
                encoder_fingerprint="check",
                encoder_name="check",
                dimensions=stores.DIMENSIONS + wide,
                max_tokens=9,
                overlap=0,
                engine="lance",
            )
        )
        return created[-1]

    check_store(make)
    assert sum(index_name(library) is not None for library in created) >= len(created) - 2
    assert ways.counts["approximate"] > 50
    for library in created:
        library.close()
