"""Marks of retraction in a library: whatever came first, after kills, and in libraries of before."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from epicrisis.core.types import Document, Passage, Scope, list_article_marks
from epicrisis.corpus.base.reader_base import ArticleStatement, ReaderItem
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.core.repair import repair_library
from epicrisis.library.write.health import check_health
from epicrisis.library.write.health_report import MARKS_DUE
from epicrisis.library.write.ingest import add_documents, open_or_create
from epicrisis.testing.hashing_encoder import HashingEncoder

ENCODER = HashingEncoder(16, max_tokens=16)
EVERYTHING, DEFAULT = Scope(), Scope(without_retracted=True)


def article(pmid: int, revised: int = 2000, relation: str | None = None, of: int = 0, **metadata: Any) -> Document:
    """Return a PubMed record. A `relation` makes it a notice about article `of`."""
    if relation is not None:
        metadata["corrections"] = [{"type": relation, "pmid": str(of)}]
    if relation == "RetractionOf":
        metadata["retraction_notice"] = True
    return Document(
        f"pubmed:{pmid}",
        f"Aspirin and stroke in trial {pmid}.",
        date=str(revised),
        metadata=metadata,
        revision=f"{revised}0101.01.0000000",
    )


def make_statement(number: int, mark: str, day: int | None, *targets: str) -> ArticleStatement:
    return ArticleStatement(f"retraction-watch:{number}", targets, mark, day)


def add_items(path: Path, *items: ReaderItem) -> int:
    """Add the items with one command; how many documents were marked anew."""
    with open_or_create(path, ENCODER, "hashing", overlap=0) as library:
        return add_documents(library, items, ENCODER).marked


def read_passages(path: Path, scope: Scope = EVERYTHING) -> dict[str, Passage]:
    """Return the passages of both searches, which must agree."""
    with LibraryStore.open(path) as library:
        vector = ENCODER.encode_queries(["aspirin stroke"])[0]
        dense = {hit.id: hit.is_retracted for hit in library.search_vectors(vector, 50, scope)}
        assert dense == {hit.id: hit.is_retracted for hit in library.search_words("aspirin", 50, scope)}
        passages = library.fetch(list(dense), scope)
        assert dense == {passage.id: passage.is_retracted for passage in passages}
    return {passage.document_id: passage for passage in passages}


def read_marks(path: Path) -> dict[str, tuple[str, ...]]:
    return {name: passage.marks for name, passage in read_passages(path).items() if passage.marks}


OLD, NOTICE = article(1), article(9, 2021, "RetractionOf", of=1)
LIST = make_statement(5, "retracted", 20210531, "pubmed:1")


@pytest.mark.parametrize("source", [NOTICE, LIST], ids=["notice", "list"])
@pytest.mark.parametrize("order", ["first", "last", "together", "together, last"])
def test_retraction_in_any_order_marks_article(source: Document | ArticleStatement, order: str, tmp_path: Path) -> None:
    path, other = tmp_path / "library", article(2)
    runs: dict[str, Sequence[Sequence[ReaderItem]]] = {
        "first": [[source], [OLD, other]],
        "last": [[OLD, other], [source]],
        "together": [[source, OLD, other]],
        "together, last": [[OLD, other, source]],
    }
    for items in runs[order]:
        add_items(path, *items)
    assert read_marks(path)["pubmed:1"] == ("retracted",)
    assert set(read_passages(path, DEFAULT)) == {"pubmed:2"}
    with LibraryStore.open(path) as library:
        assert check_health(library).problems == ()


def test_retraction_marking_encodes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_items(tmp_path / "library", OLD)
    monkeypatch.setattr(ENCODER, "encode_passages", lambda _: pytest.fail("encoded"), raising=False)
    assert add_items(tmp_path / "library", LIST) == 1
    assert read_marks(tmp_path / "library") == {"pubmed:1": ("retracted",)}


def test_unchanged_or_revised_article_keeps_mark(tmp_path: Path) -> None:
    path = tmp_path / "library"
    add_items(path, OLD, LIST)
    for again in (OLD, article(1, 2022, journal="Gut")):
        add_items(path, again)
        assert read_marks(path) == {"pubmed:1": ("retracted",)}


def test_revised_article_record_changes_own_mark(tmp_path: Path) -> None:
    path = tmp_path / "library"
    add_items(path, OLD)
    add_items(path, article(1, 2021, retracted=True))
    assert read_marks(path) == {"pubmed:1": ("retracted",)}
    add_items(path, article(1, 2022))
    assert read_marks(path) == {}


def test_revised_notice_moves_mark_to_other_article(tmp_path: Path) -> None:
    path = tmp_path / "library"
    add_items(path, OLD, article(2), NOTICE)
    add_items(path, article(9, 2022, "RetractionOf", of=2))
    assert read_marks(path) == {"pubmed:2": ("retracted",), "pubmed:9": ("retraction-notice",)}


@pytest.mark.parametrize("events", [(0, 1, 2), (1, 2, 0), (2, 1, 0)])
def test_reinstatement_lifts_only_earlier_retractions(events: tuple[int, ...], tmp_path: Path) -> None:
    statements = (
        make_statement(1, "retracted", 20200101, "pubmed:1"),
        make_statement(2, "reinstated", 20210101, "pubmed:1"),
        make_statement(3, "retracted", 20220101, "pubmed:1"),
    )
    path = tmp_path / "library"
    add_items(path, OLD)
    for number, event in enumerate(events, 1):
        add_items(path, statements[event])
        earlier = set(events[:number])
        expected = 2 in earlier or (0 in earlier and 1 not in earlier)
        assert (read_marks(path) == {"pubmed:1": ("retracted",)}) == expected


def test_reinstatement_keeps_retraction_of_same_or_unknown_day(tmp_path: Path) -> None:
    lift = make_statement(2, "reinstated", 20210101, "pubmed:1")
    for number, day in enumerate((20210101, None)):
        path = tmp_path / str(number)
        add_items(path, OLD, make_statement(1, "retracted", day, "pubmed:1"), lift)
        assert read_marks(path) == {"pubmed:1": ("retracted",)}


def test_concern_and_correction_are_marked_and_searched(tmp_path: Path) -> None:
    path = tmp_path / "library"
    add_items(
        path,
        OLD,
        make_statement(1, "corrected", 20200101, "pubmed:1"),
        article(8, 2020, "ExpressionOfConcernFor", of=1),
    )
    assert read_marks(path)["pubmed:1"] == ("expression-of-concern", "corrected")
    assert "pubmed:1" in read_passages(path, DEFAULT)


def test_document_of_other_source_is_marked_by_pmid_or_doi(tmp_path: Path) -> None:
    path = tmp_path / "library"
    by_doi = Document("pmc:PMC1", "Aspirin and stroke.", metadata={"doi": "10.1000/ABC"})
    by_pmid = Document("paper", "Aspirin and stroke again.", metadata={"pmid": "77"})
    note = Document("note", "Aspirin and stroke.", patient="anna", metadata={"pmid": "77"})
    add_items(path, by_doi, by_pmid, note)
    assert (
        add_items(
            path,
            make_statement(1, "retracted", 20200101, "doi:10.1000/abc"),
            make_statement(2, "retracted", None, "pubmed:77"),
        )
        == 2
    )
    assert read_marks(path) == {"pmc:PMC1": ("retracted",), "paper": ("retracted",)}
    later = Document("later", "Aspirin and stroke later.", metadata={"pmid": 77, "doi": "10.1/other"})
    add_items(path, later)
    assert read_marks(path)["later"] == ("retracted",)
    with LibraryStore.open(path) as library:
        (stored_note,) = library.fetch_record(Scope(patient="anna"))
    assert stored_note.marks == ()


@pytest.mark.parametrize("step", ["write_marks", "finish_batch", "clear_due", "replace_statements"])
def test_marking_interrupted_at_step_is_completed_by_next_addition(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "library"
    add_items(path, OLD, article(2))

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        owner = {
            "write_marks": "base.passage_table.PassageTable",
            "finish_batch": "core.library_parts.LibraryParts",
        }.get(step, "core.journal.Journal")
        patched.setattr(f"epicrisis.library.{owner}.{step}", killed)
        with pytest.raises(KeyboardInterrupt):
            add_items(path, NOTICE if step == "replace_statements" else LIST)
    again: ReaderItem = NOTICE if step == "replace_statements" else article(3)
    add_items(path, again)
    assert read_marks(path)["pubmed:1"] == ("retracted",)
    assert "pubmed:1" not in read_passages(path, DEFAULT)
    with LibraryStore.open(path) as library:
        assert library.info().problems == ()


def test_marking_interrupted_is_noticed_and_completed_by_next_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "library"
    add_items(path, OLD)

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("epicrisis.library.base.passage_table.PassageTable.write_marks", stopped)
        with pytest.raises(KeyboardInterrupt):
            add_items(path, LIST)
    with LibraryStore.open(path) as reader:
        assert MARKS_DUE in check_health(reader).notices
    with LibraryStore.open(path, write=True):
        pass
    assert read_marks(path) == {"pubmed:1": ("retracted",)}
    with LibraryStore.open(path) as reader:
        assert MARKS_DUE not in check_health(reader).notices


def test_earlier_library_is_marked_by_own_notices_at_next_addition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "library"
    old_notice = article(9, 2021, "RetractionOf", of=1, publication_types=["Retraction of Publication"])
    with monkeypatch.context() as before:
        before.setattr("epicrisis.library.write.ingest_batches.extract_statements", lambda _: ())
        add_items(path, OLD, old_notice)
    with sqlite3.connect(path / "journal.sqlite") as journal:
        journal.executescript("DROP TABLE marks; DROP TABLE due;")
    assert "pubmed:1" in read_passages(path, DEFAULT), "it opens and is searched as it is"
    assert add_items(path, article(3)) == 1
    assert read_marks(path)["pubmed:1"] == ("retracted",)


def test_repair_keeps_retraction_statements(tmp_path: Path) -> None:
    path = tmp_path / "library"
    add_items(path, OLD, LIST, make_statement(6, "retracted", 20200101, "pubmed:4"))
    repair_library(path)
    add_items(path, article(4))
    assert read_marks(path) == {"pubmed:1": ("retracted",), "pubmed:4": ("retracted",)}
    (path / "journal.sqlite").unlink()
    repair_library(path)
    add_items(path, article(5))
    assert read_marks(path) == {"pubmed:1": ("retracted",), "pubmed:4": ("retracted",)}


def test_library_without_marking_fails_retraction_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A retracted study without its mark: with the marking taken out the tests above must fail."""
    monkeypatch.setattr("epicrisis.library.core.library_store.find_documents", lambda *_: ())
    with pytest.raises(KeyError):
        test_retraction_in_any_order_marks_article(LIST, "last", tmp_path)


def test_list_article_marks_returns_gravest_first() -> None:
    metadata = {
        "corrections": [{"type": "ErratumIn"}, {"type": "ExpressionOfConcernIn"}, "no entry"],
        "marks": [{"mark": "retracted", "by": "retraction-watch:1"}, 3],
    }
    assert list_article_marks(metadata) == ("retracted", "expression-of-concern", "corrected")
    assert list_article_marks({"publication_types": ["Retraction Notice"]}) == ("retraction-notice",)
    assert list_article_marks({"marks": "retracted", "corrections": {}, "retracted": "no"}) == ()
