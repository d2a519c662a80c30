"""MedRAG's snippets, as its corpora have them on disk."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from epicrisis.core.types import Document
from epicrisis.corpus.articles.medrag import read_snippets, read_statpearls
from epicrisis.corpus.base.reader_base import Skipped

BOOK = {
    "id": "Anatomy_Gray_0",
    "title": "Anatomy_Gray",
    "content": "What is anatomy?",
    "contents": "Anatomy_Gray. What is anatomy?",
}
ABSTRACT: dict[str, Any] = {
    "id": "pubmed23n0001_0",
    "title": "[Biochemical studies on camomile components].",
    "content": "(--)-alpha-Bisabolol has an antipeptic action.",
    "contents": "[Biochemical studies on camomile components]. (--)-alpha-Bisabolol has an antipeptic action.",
    "PMID": 21,
}


def write(path: Path, *lines: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(json.dumps(line) for line in lines))
    return path


def test_textbook_snippets_form_documents(tmp_path: Path) -> None:
    path = write(tmp_path / "textbooks" / "chunk" / "Anatomy_Gray.jsonl", BOOK, {**BOOK, "id": "Anatomy_Gray_1"})
    first, second = read_snippets(path)
    assert first == Document("medrag:Anatomy_Gray_0", "What is anatomy?", title="Anatomy_Gray", source="Textbooks")
    assert isinstance(second, Document)
    assert second.id == "medrag:Anatomy_Gray_1"


def test_pubmed_snippet_keeps_pmid(tmp_path: Path) -> None:
    path = write(tmp_path / "pubmed" / "chunk" / "pubmed23n0001.jsonl", ABSTRACT)
    (document,) = read_snippets(path)
    assert document == Document(
        "pubmed:21",
        ABSTRACT["content"],
        title=ABSTRACT["title"],
        source="PubMed",
        metadata={"medrag_id": "pubmed23n0001_0"},
    )


def test_output_of_medrag_script_is_read(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", {"id": "PMID:21", "title": "T", "content": "C"})
    (document,) = read_snippets(path)
    assert isinstance(document, Document)
    assert (document.id, document.source) == ("pubmed:21", "PubMed")


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("statpearls/chunk/article-100024.jsonl", "StatPearls"),
        ("Wikipedia/chunk/wiki20220301en000.jsonl", "Wikipedia"),
        ("wikipedia/textbooks/a.jsonl", "Textbooks"),
        ("textbooks.jsonl", "Textbooks"),
        ("other/a.jsonl", "MedRAG"),
    ],
)
def test_corpus_is_detected_from_path(tmp_path: Path, name: str, source: str) -> None:
    (document,) = read_snippets(write(tmp_path / name, {**BOOK, "wiki_id": "12"}))
    assert isinstance(document, Document)
    assert (document.source, document.metadata) == (source, {"wiki_id": "12"})


def test_gzipped_snippets_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(json.dumps(BOOK).encode()))
    assert [item.id for item in read_snippets(path) if isinstance(item, Document)] == ["medrag:Anatomy_Gray_0"]


def test_line_without_snippet_is_reported(tmp_path: Path) -> None:
    lines: list[Any] = [
        {**BOOK, "content": "  "},
        {**BOOK, "id": None},
        {**BOOK, "title": 7},
        {**ABSTRACT, "PMID": "12a"},
        ["id"],
        BOOK,
        {"id": "a", "text": "a line of another format"},
    ]
    items = list(read_snippets(write(tmp_path / "a.jsonl", *lines)))
    assert [item.where for item in items if isinstance(item, Skipped)] == [f"line {n}" for n in (1, 2, 3, 4, 5, 7)]
    assert [item.reason for item in items if isinstance(item, Skipped)] == [
        "content: empty; a MedRAG snippet has id, title and content",
        "id: missing; a MedRAG snippet has id, title and content",
        "title: not a text",
        "PMID: not a number",
        "not a JSON object; each line must be one, with id and text",
        "content: empty; a MedRAG snippet has id, title and content",
    ]
    assert isinstance(items[5], Document)


def test_null_title_becomes_empty(tmp_path: Path) -> None:
    (document,) = read_snippets(write(tmp_path / "a.jsonl", {**BOOK, "title": None}))
    assert isinstance(document, Document)
    assert document.title == ""


# -- StatPearls -----------------------------------------------------------------------------------------------------


def chapter(path: Path, *sections: str, title: str = "Acne") -> list[Document]:
    body = "".join(f"<sec>{section}</sec>" for section in sections)
    path.write_text(f"<book-part><title-group><title>{title}</title></title-group><body>{body}</body></book-part>")
    return [item for item in read_statpearls(path) if isinstance(item, Document)]


def test_statpearls_chapter_is_split_into_snippets(tmp_path: Path) -> None:
    long = "word " * 60
    found = chapter(
        tmp_path / "article-7.nxml",
        f"<title>Etiology</title><p>{long}</p><p>Short  one.</p><p>{long}</p>",
        "<title> Doses </title><p><bold>Adults</bold></p><list><list-item><p>5 mg</p></list-item>"
        "<list-item><p>H<sub>2</sub>O</p></list-item></list><p>Plain.</p>",
    )
    assert [(item.id, item.title, item.text) for item in found] == [
        ("medrag:article-7_0", "Acne -- Etiology", f"{long.strip()} Short  one."),
        ("medrag:article-7_1", "Acne -- Etiology", long.strip()),
        ("medrag:article-7_2", "Acne -- Doses -- Adults", "5 mg H 2 O Plain."),
    ]
    assert {item.source for item in found} == {"StatPearls"}


def test_long_list_gives_one_snippet_per_item(tmp_path: Path) -> None:
    items = "".join(f"<list-item><p>{n} {'x' * 400}</p></list-item>" for n in range(3))
    found = chapter(tmp_path / "article-7.nxml", f"<title>T</title><p>Before.</p><list>{items}</list><p>After.</p>")
    assert [item.text[:7] for item in found] == ["Before.", "0 xxxxx", "1 xxxxx", "2 xxxxx", "After."]


def test_list_heading_ends_with_list(tmp_path: Path) -> None:
    item = f"<list><list-item><p>{'y' * 990}</p></list-item></list>"
    found = chapter(tmp_path / "a.nxml", f"<title>T</title><p><bold>H</bold></p>{item}<p>{'z' * 300}</p>")
    assert [item.title for item in found] == ["Acne -- T -- H", "Acne -- T"]


def test_nested_sections_are_separate(tmp_path: Path) -> None:
    found = chapter(tmp_path / "a.nxml", "<title>Outer</title><p>One.</p><sec><title>Inner</title><p>Two.</p></sec>")
    assert [(item.title, item.text) for item in found] == [("Acne -- Outer", "One."), ("Acne -- Inner", "Two.")]


@pytest.mark.parametrize("text", ["<a><b></a>", "<a/>", "<book-part><body><sec/></body></book-part>", "not xml"])
def test_chapter_without_snippets_is_reported(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.nxml"
    path.write_text(text)
    (item,) = read_statpearls(path)
    assert isinstance(item, Skipped)
    assert ";" in item.reason


def test_empty_snippet_keeps_number(tmp_path: Path) -> None:
    path = tmp_path / "a.nxml"
    long = "w " * 150
    path.write_text(f"<b><title>T</title><sec><title>S</title><p/><p>{long}</p></sec></b>")
    empty, full = read_statpearls(path)
    assert isinstance(empty, Skipped)
    assert (empty.where, empty.reason) == ("snippet 0", "empty")
    assert isinstance(full, Document)
    assert full.id == "medrag:a_1"
