"""Passages by their document and at random, of a real library."""

from __future__ import annotations

from pathlib import Path

import pytest

from epicrisis.core.types import Scope
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.core.passage_lookup import read_document_passages, sample_passages
from tests.support.library_documents import COUNT, add, create

ANNA = Scope(patient="anna")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> LibraryStore:
    folder = tmp_path_factory.mktemp("lookup") / "library"
    with create(folder) as new_library:
        add(new_library, 0, COUNT)
    return LibraryStore.open(folder)


@pytest.mark.slow
def test_read_document_passages_returns_passages_in_order(library: LibraryStore) -> None:
    by_document = read_document_passages(library, ["doc:1", "doc:7", "doc:nowhere"], Scope())
    assert list(by_document) == ["doc:1", "doc:7"]
    for name, passages in by_document.items():
        passage_ids = [passage.id for passage in passages]
        assert passage_ids == [f"{name}#{i}" for i in range(len(passages))]
        assert passages == library.fetch(passage_ids, Scope())
    assert read_document_passages(library, [], Scope()) == {}


@pytest.mark.slow
def test_read_document_passages_note_is_visible_only_to_its_patient(library: LibraryStore) -> None:
    assert read_document_passages(library, ["doc:0"], Scope()) == {}
    assert list(read_document_passages(library, ["doc:0"], ANNA)) == ["doc:0"]


@pytest.mark.slow
def test_sample_passages_depend_only_on_seed_and_contents(library: LibraryStore, tmp_path: Path) -> None:
    sample = sample_passages(library, 10, 0, Scope())
    assert len({passage.id for passage in sample}) == 10
    assert sample == sample_passages(library, 10, 0, Scope())
    assert sample == sample_passages(library, 25, 0, Scope())[:10]
    assert sample != sample_passages(library, 10, 1, Scope())
    with create(tmp_path / "other") as other:
        add(other, 1, COUNT)
        add(other, 0, COUNT)
        other.compact()
        other_ids = [passage.id for passage in sample_passages(other, 10, 0, Scope())]
        assert other_ids == [passage.id for passage in sample]


def test_sample_passages_small_scope_returns_all_admitted(library: LibraryStore) -> None:
    all_passages = sample_passages(library, 10_000, 0, ANNA)
    assert len(all_passages) == library.count()[1]
    literature = sample_passages(library, 10_000, 0, Scope())
    literature_ids = {passage.id for passage in literature}
    assert literature_ids == {passage.id for passage in all_passages if passage.patient is None}
    assert sample_passages(library, len(literature), 0, Scope()) == literature


def test_sample_passages_narrow_scope_returns_only_admitted(library: LibraryStore) -> None:
    all_passages = sample_passages(library, 10_000, 0, ANNA)
    for scope in (
        Scope(patient="anna", hidden=frozenset(passage.document_id for passage in all_passages[5:])),
        Scope(as_of="2010"),
        Scope(since="2015", patient="anna"),
        Scope(as_of="1800"),
    ):
        admitted = tuple(passage for passage in all_passages if scope.admits(passage))
        assert len(admitted) < len(all_passages)
        assert sample_passages(library, 10_000, 0, scope) == admitted
        assert sample_passages(library, 3, 0, scope) == admitted[:3]


def test_sample_passages_are_drawn_uniformly(library: LibraryStore) -> None:
    total = library.count()[1]
    times: dict[str, int] = {}
    for seed in range(20):
        for passage in sample_passages(library, 50, seed, ANNA):
            times[passage.id] = times.get(passage.id, 0) + 1
    assert sum(times.values()) == 1000
    assert len(times) > 0.98 * total
    assert max(times.values()) < 1000 / total + 4.5 * (1000 / total) ** 0.5
