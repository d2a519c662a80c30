"""Export of a library: the lines, added to another library, give the same documents and passages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from epicrisis.core.types import Document, Passage
from epicrisis.corpus.base.jsonl import read_documents
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.write.document_export import export_documents, to_json_line
from epicrisis.library.write.ingest import add_documents, open_or_create
from epicrisis.testing.hashing_encoder import HashingEncoder

ENCODER = HashingEncoder(max_tokens=40)
SENTENCES = "Aspirin prevents stroke, e.g. in adults. A table follows\nDrug | 5 mg | Fig.\nIbuprofen\n\nEnd. " * 12
PAGES = [0, 0, 300, 700]
DOCUMENTS = [
    Document(
        "a",
        SENTENCES.strip(),
        title="Long",
        source="s",
        date="2015-06",
        metadata={"authors": ["Li, A"], "pages": PAGES},
    ),
    Document("b", "  " + SENTENCES, metadata={"sections": [[40, 300, "Methods"], [300, 700, "Results"]]}),
    Document("c", "One line.", metadata={"pages": "12-19", "sections": ["Summary"]}),
    Document(
        "note:1",
        SENTENCES,
        title="Note",
        source="notes",
        date="2150-01-02T10:00",
        patient="anna",
        metadata={"note_type": "Progress note"},
    ),
]


def make_library(path: Path, documents: Sequence[Document]) -> dict[str, Passage]:
    with open_or_create(path, ENCODER, "hashing", overlap=8) as library:
        assert add_documents(library, documents, ENCODER, literature=True).added == len(documents)
        return read_passages(library)


def read_passages(library: LibraryStore) -> dict[str, Passage]:
    return {stored.passage.id: stored.passage for batch in library.open_table().batches() for stored in batch}


def test_exported_lines_give_the_same_passages_in_another_library(tmp_path: Path) -> None:
    passages = make_library(tmp_path / "first", DOCUMENTS)
    with LibraryStore.open(tmp_path / "first") as library:
        lines = [to_json_line(document) for document in export_documents(library, lambda passage: True)]
    (tmp_path / "x.jsonl").write_text("\n".join(lines), encoding="utf-8")
    documents = [item for item in read_documents(tmp_path / "x.jsonl") if isinstance(item, Document)]
    assert make_library(tmp_path / "second", documents) == passages
    with LibraryStore.open(tmp_path / "second") as library:
        again = [to_json_line(document) for document in export_documents(library, lambda passage: True)]
    assert sorted(again) == sorted(lines)


@pytest.mark.parametrize(("patient", "ids"), [(None, {"a", "b", "c"}), ("anna", {"note:1"}), ("bea", set())])
def test_only_wanted_documents_are_exported(tmp_path: Path, patient: str | None, ids: set[str]) -> None:
    make_library(tmp_path / "l", DOCUMENTS)
    with LibraryStore.open(tmp_path / "l") as library:
        documents = list(export_documents(library, lambda passage: passage.patient == patient))
    assert {document.id for document in documents} == ids
