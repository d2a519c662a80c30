"""Every store keeps the contract of its seam."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from epicrisis.library.core import library_store as libraries
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.engines import vector_search
from epicrisis.library.engines.engine_choice import TableEngine
from epicrisis.testing.stores import DIMENSIONS, MemoryStore, check_store
from tests.library.conftest import BOTH_ENGINES


@pytest.fixture
def make_library(tmp_path: Path, engine: TableEngine) -> Callable[[], LibraryStore]:
    """Return a function that creates a library in a folder with an unusual name."""
    number = itertools.count()

    def create() -> LibraryStore:
        return LibraryStore.create(
            tmp_path / f"my library %20 é #{next(number)}",
            encoder_fingerprint="check",
            encoder_name="check",
            dimensions=DIMENSIONS,
            max_tokens=64,
            overlap=8,
            engine=engine,
        )

    return create


def test_memory_store_satisfies_store_contract() -> None:
    check_store(MemoryStore)


@pytest.mark.slow
@BOTH_ENGINES
def test_library_satisfies_store_contract(make_library: Callable[[], LibraryStore]) -> None:
    check_store(make_library)


@pytest.mark.long
@pytest.mark.parametrize("engine", ["lance"])
def test_library_above_exact_limit_satisfies_store_contract(
    make_library: Callable[[], LibraryStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector_search, "EXACT_LIMIT", 0)
    check_store(make_library)


@pytest.mark.slow
@BOTH_ENGINES
def test_library_compacting_after_every_write_satisfies_store_contract(
    make_library: Callable[[], LibraryStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(libraries, "_COMPACT_AFTER", 1)
    check_store(make_library)


def test_check_store_rejects_store_that_does_not_delete() -> None:
    class Forgetful(MemoryStore):
        def delete(self, document_ids: object) -> None:
            pass

    with pytest.raises(AssertionError, match="a deleted document is not counted"):
        check_store(Forgetful)
