"""Searches in PostgreSQL find what a library in a folder finds: by words on BioASQ's passages, and by vectors."""

from __future__ import annotations

import gzip
import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest

from epicrisis.core.protocols import StoredDocument, Vectors
from epicrisis.core.types import Scope
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.engines.word_index import analyze_words
from epicrisis.library.postgresql import search
from epicrisis.testing.stores import build_stored_document
from tests.postgresql.conftest import LibraryDatabase, close_connections
from tests.support.postgresql_server import READER, PostgresqlServer

pytestmark = [pytest.mark.postgresql, pytest.mark.data]

Recorder: TypeAlias = Callable[[str, object], None]
PASSAGES, QUESTIONS, DIMENSIONS, K = 8_000, 100, 48, 16
SHARES = {"100 %": 1, "10 %": 10, "1 %": 100, "0.1 %": 1000}
"""Filters: every how many passages each admits one."""


@dataclass(frozen=True)
class TwinLibraries:
    """The same passages in a folder and in PostgreSQL."""

    folder: LibraryStore
    database: LibraryStore
    questions: list[str]
    vectors: Vectors


@pytest.fixture(scope="module")
def twins(
    server: PostgresqlServer, data_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TwinLibraries]:
    """Add BioASQ's passages to both kinds of library. Vectors are random projections of their words."""
    texts: list[str] = []
    with gzip.open(data_folder / "bioasq" / "passages.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in itertools.islice(lines, PASSAGES):
            texts.append(json.loads(line)["text"])
    mirage = json.loads((data_folder / "mirage" / "benchmark.json").read_text(encoding="utf-8"))
    questions = [entry["question"] for entry in itertools.islice(mirage["bioasq"].values(), QUESTIONS)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EPICRISIS_HOME", str(tmp_path_factory.mktemp("home")))
        server.create_database("twins")
        database = LibraryDatabase(server, "twins").create(dimensions=DIMENSIONS)
        folder = LibraryStore.create(
            tmp_path_factory.mktemp("twin") / "library",
            encoder_fingerprint="check",
            encoder_name="check",
            dimensions=DIMENSIONS,
            max_tokens=64,
            overlap=8,
        )
        database.prepare_bulk()
        documents = list(map(build_document, range(len(texts)), texts))
        for first in range(0, len(documents), 4000):
            database.add(documents[first : first + 4000])
            folder.add(documents[first : first + 4000])
        database.optimize()
        yield TwinLibraries(folder, database, questions, np.stack(list(map(project_words, questions))))
        folder.close()
        database.close()
        close_connections()


_directions: dict[str, Any] = {}


def project_words(text: str) -> Vectors:
    """Return the sum of a random direction for each word, of length 1."""
    total = np.zeros(DIMENSIONS)
    for word in set(analyze_words(text)):
        if word not in _directions:
            seed = int.from_bytes(word.encode()[:8].ljust(8, b"\0"), "big")
            _directions[word] = np.random.default_rng(seed).standard_normal(DIMENSIONS)
        total += _directions[word]
    return (total / (np.linalg.norm(total) + 1e-9)).astype(np.float32)


def build_document(number: int, text: str) -> StoredDocument:
    """Return a passage with the journals `one in 10`, `one in 100`... that it is in by its number."""
    journal = next(name for name, step in reversed(SHARES.items()) if number % step == 0)
    types = [name for name, step in SHARES.items() if number % step == 0]
    metadata = {"journal": journal, "publication_types": types}
    vectors = [project_words(text).tolist()]
    return build_stored_document(f"pubmed:{number}", text, vectors=vectors, metadata=metadata)


@pytest.mark.parametrize("way", ["scored one by one", "through the index"])
def test_bm25_ranks_like_tantivy(
    twins: TwinLibraries, way: str, monkeypatch: pytest.MonkeyPatch, record_testsuite_property: Recorder
) -> None:
    is_indexed = way == "through the index"
    monkeypatch.setattr(search, "EXACT_WORD_PASSAGES", -1 if is_indexed else PASSAGES * 2)
    shared = equal = total = 0
    questions = twins.questions[: QUESTIONS if is_indexed else 20]
    for question in questions:
        expected = [hit.id for hit in twins.folder.search_words(question, K, Scope())]
        actual = [hit.id for hit in twins.database.search_words(question, K, Scope())]
        shared += len(set(actual) & set(expected))
        equal += actual == expected
        total += len(expected)
    record_testsuite_property(f"BM25 {way}: share of tantivy's, equal rankings", f"{shared / total:.4f}, {equal}")
    assert shared / total >= 0.995
    assert equal >= len(questions) * 0.95


@pytest.mark.parametrize("share", SHARES)
def test_vectors_rank_like_the_library_in_a_folder(twins: TwinLibraries, share: str) -> None:
    """Few passages are compared one by one: the ranking is the same, with the same scores."""
    scope = Scope(publication_types=frozenset({share}))
    for vector in twins.vectors[:20]:
        assert twins.database.search_vectors(vector, K, scope) == twins.folder.search_vectors(vector, K, scope)


@pytest.mark.parametrize("share", SHARES)
def test_vector_index_finds_what_exact_search_finds(
    twins: TwinLibraries, share: str, monkeypatch: pytest.MonkeyPatch, record_testsuite_property: Recorder
) -> None:
    monkeypatch.setattr(search, "EXACT_PASSAGES", -1)
    scope = Scope(publication_types=frozenset({share}))
    found = 0
    total = 0
    for vector in twins.vectors:
        expected = {hit.id for hit in twins.folder.search_vectors(vector, K, scope)}
        found += len(expected & {hit.id for hit in twins.database.search_vectors(vector, K, scope)})
        total += len(expected)
    record_testsuite_property(f"recall@{K} through the index, filter passes {share}", f"{found / total:.4f}")
    assert found / total >= 0.95


def test_planner_estimates_choose_the_way(twins: TwinLibraries) -> None:
    """After statistics were read, the estimates of filters are near their number of passages."""
    engine = twins.database
    with engine._database.read_for(None) as connection:  # type: ignore[attr-defined]
        for share, step in SHARES.items():
            scope = Scope(publication_types=frozenset({share}))
            estimate = search.estimate_passages(connection, search.build_filter(scope))
            assert PASSAGES / step / 4 <= estimate <= PASSAGES / step * 4, share


def test_filter_by_type_reads_few_pages_under_row_level_security(
    server: PostgresqlServer, twins: TwinLibraries
) -> None:
    """The condition itself makes a reader's server read every page. The list of ids reads those of its passages."""
    scope_filter = search.build_filter(Scope(publication_types=frozenset({"0.1 %"})))
    pages = {}
    with server.connect("twins", READER) as connection:
        connection.execute("SET search_path = epicrisis, public")
        for condition in (scope_filter.facets, f"{scope_filter.facets} AND {scope_filter.listing}"):
            query = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT id FROM passages WHERE {condition}"
            row = connection.execute(query.encode(), scope_filter.values).fetchone()
            assert row is not None
            plan = row[0][0]["Plan"]
            assert plan["Actual Rows"] == PASSAGES / 1000
            pages[condition] = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
    alone, listed = pages.values()
    assert listed < alone / 5


@pytest.mark.parametrize("share", ["100 %", "1 %"])
def test_words_with_a_filter_rank_like_the_library_in_a_folder(twins: TwinLibraries, share: str) -> None:
    scope = Scope(publication_types=frozenset({share}), journals=frozenset({"1 %", "0.1 %"}))
    for question in twins.questions[:20]:
        expected = [hit.id for hit in twins.folder.search_words(question, K, scope)]
        assert [hit.id for hit in twins.database.search_words(question, K, scope)] == expected
