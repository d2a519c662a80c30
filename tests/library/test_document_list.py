"""The list of documents: pages, conditions and counts, from titles and metadata alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from epicrisis.core.types import Document
from epicrisis.library.core import document_list
from epicrisis.library.core.document_list import DocumentFilter, count_documents, list_documents
from epicrisis.library.core.library_store import LibraryStore
from tests.support.patient_records import library


def paper(number: int, title: str, date: str | None, **metadata: object) -> Document:
    return Document(
        f"paper:{number}",
        f"Text {number} speaks of zebrafish.",
        title=title,
        source="journal",
        date=date,
        metadata=metadata,
    )


PAPERS = [
    paper(1, "Aspirin in stroke: a randomised trial", "2010-05", authors=["Müller A", "Smith B"]),
    paper(2, "Aspirin after surgery", "2011", authors=["Jones C"], publication_types=["Review"]),
    paper(3, "50% of 'patients' improved", None, retracted=True),
    paper(4, "A cohort of nurses", "1999-12-31", authors="not a list"),
]
NOTE = Document("note:1", "Aspirin was given.", title="Aspirin note", date="2150-01", patient="1")


@pytest.fixture
def store(tmp_path: Path) -> LibraryStore:
    return library(tmp_path / "lib", [*PAPERS, NOTE])


@pytest.mark.parametrize(
    ("wanted", "ids"),
    [
        (DocumentFilter(), {"paper:1", "paper:2", "paper:3", "paper:4"}),
        (DocumentFilter(words="ASPIRIN"), {"paper:1", "paper:2"}),
        (DocumentFilter(words="müller"), {"paper:1"}),
        (DocumentFilter(words="MÜLLER stroke"), {"paper:1"}),
        (DocumentFilter(words="50% 'patients'"), {"paper:3"}),
        (DocumentFilter(words="paper:4"), {"paper:4"}),
        (DocumentFilter(words="zebrafish"), set()),
        (DocumentFilter(words="review"), set()),
        (DocumentFilter(words="x' OR 'a' = 'a"), set()),
        (DocumentFilter(first_year=2010), {"paper:1", "paper:2"}),
        (DocumentFilter(last_year=2010), {"paper:1", "paper:4"}),
        (DocumentFilter(first_year=1999, last_year=1999), {"paper:4"}),
        (DocumentFilter(study_type="randomised-trial"), {"paper:1"}),
        (DocumentFilter(study_type="cohort"), {"paper:4"}),
    ],
)
def test_list_with_conditions_has_these_documents(store: LibraryStore, wanted: DocumentFilter, ids: set[str]) -> None:
    page = list_documents(store, wanted)
    assert {entry.id for entry in page.documents} == ids
    assert (page.matches, page.is_complete) == (len(ids), True)


def test_pages_hold_every_document_once(tmp_path: Path) -> None:
    documents = [paper(number, f"Title {number}", "2000") for number in range(120)]
    store = library(tmp_path / "lib", documents)
    ids: list[str] = []
    for offset in (0, 50, 100, 150):
        page = list_documents(store, DocumentFilter(), offset)
        assert page.matches == 120
        ids += [entry.id for entry in page.documents]
    assert len(ids) == 120
    assert set(ids) == {document.id for document in documents}


def test_search_by_study_type_stops_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document_list, "SCANNED_DOCUMENTS", 10)
    store = library(tmp_path / "lib", [paper(number, f"Title {number}", "2000") for number in range(30)])
    page = list_documents(store, DocumentFilter(study_type="cohort"))
    assert (page.documents, page.is_complete) == ((), False)


def test_counts_leave_out_notes(store: LibraryStore) -> None:
    counts = count_documents(store)
    assert counts.documents == 4
    assert counts.years == {1999: 1, 2010: 1, 2011: 1}
    assert (counts.undated, counts.retracted) == (1, 1)
    assert counts.study_types == {"randomised-trial": 1, "cohort": 1, "narrative-review": 1}
    assert (counts.unknown_types, counts.counted_types) == (1, 4)


def test_list_reads_text_only_of_documents_whose_type_nothing_else_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "Women were randomly assigned to zinc or placebo."
    trial = Document("paper:5", text, title="Zinc in aspirin users", source="journal", date="2012")
    store = library(tmp_path / "lib", [*PAPERS, trial])
    read: list[tuple[str, list[str]]] = []
    rows = document_list._read_rows

    def record(library_: LibraryStore, condition: str, columns: list[str]) -> object:
        read.append((condition, columns))
        return rows(library_, condition, columns)

    monkeypatch.setattr(document_list, "_read_rows", record)
    page = list_documents(store, DocumentFilter(words="aspirin"))
    studies = {entry.id: entry.study.type for entry in page.documents if entry.study is not None}
    assert studies == {"paper:1": "randomised-trial", "paper:2": "narrative-review", "paper:5": "randomised-trial"}
    (condition,) = [condition for condition, columns in read if "text" in columns]
    assert "paper:5" in condition
    assert "paper:1" not in condition
    # Counts and the search by type know the same type.
    assert count_documents(store).study_types["randomised-trial"] == 2
    found = list_documents(store, DocumentFilter(study_type="randomised-trial")).documents
    assert {entry.id for entry in found} == {"paper:1", "paper:5"}
