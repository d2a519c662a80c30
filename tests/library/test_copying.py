"""Copies of libraries that are brought up to date. Copies into databases are in `tests/postgresql`."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from epicrisis.core.types import Scope
from epicrisis.corpus.base.reader_base import ArticleStatement
from epicrisis.library.core.journal import IngestedFile, open_journal
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.write.copying import copy_library
from epicrisis.testing.stores import DIMENSIONS, build_stored_document

PAPER = dataclasses.replace(build_stored_document("paper", "aspirin"), revision="1")
FILE = IngestedFile("1" * 64, "papers.jsonl", 10, "2026-01-01T00:00:00+00:00")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A library that was copied once, to `copy` beside it."""
    with LibraryStore.create(
        tmp_path / "source", encoder_fingerprint="t", encoder_name="t", dimensions=DIMENSIONS, max_tokens=9, overlap=0
    ) as library:
        library.add([PAPER, build_stored_document("other", "warfarin")])
        library.add_source(FILE)
    copy_library(tmp_path / "source", tmp_path / "copy")
    return tmp_path / "source"


@pytest.mark.slow
def test_document_marked_after_the_first_copy_is_marked_in_the_second(source: Path) -> None:
    statement = ArticleStatement("notice", ("paper",), "retracted", 20200101)
    with LibraryStore.open(source, write=True) as library:
        library.replace_statements(["notice"], [statement])
        library.update_due_marks()
    copy = source.with_name("copy")
    assert copy_library(source, copy).copied == 1
    with LibraryStore.open(copy) as library:
        assert [hit.id for hit in library.search_words("aspirin", 5, Scope(without_retracted=True))] == []
    with LibraryStore.open(source, write=True) as library:
        library.replace_statements(["notice"], [])
        library.update_due_marks()
    assert copy_library(source, copy).copied == 1
    assert copy_library(source, copy).copied == 0


@pytest.mark.slow
def test_document_with_only_a_newer_revision_is_copied_again(source: Path) -> None:
    with LibraryStore.open(source, write=True) as library:
        library.add([dataclasses.replace(PAPER, revision="2")])
    assert copy_library(source, source.with_name("copy")).copied == 1
    with LibraryStore.open(source.with_name("copy")) as copy:
        assert copy.revisions(["paper"]) == {"paper": "2"}


def test_file_forgotten_by_the_source_is_forgotten_by_the_copy(source: Path) -> None:
    with LibraryStore.open(source, write=True) as library, open_journal(library.path) as journal:
        journal.forget_sources([FILE])
    copy_library(source, source.with_name("copy"))
    with LibraryStore.open(source.with_name("copy")) as copy, open_journal(copy.path) as journal:
        assert journal.sources() == []
