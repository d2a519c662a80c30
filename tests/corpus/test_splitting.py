"""The character splitter gives what langchain's gives, with offsets that hold."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epicrisis.core.types import Document
from epicrisis.corpus.base.chunking import split_by_characters

COUNT = 890
SHA256 = "a1bcc6643896316eb8cc508424a3bf2ec4b315b6c2885048e3cffd99a34f6449"
TEXTS = st.text(alphabet=st.sampled_from("ab \n\t\u2028é"), max_size=200)


def texts(text: str, size: int, overlap: int) -> list[str]:
    return [passage.text for passage in split_by_characters(Document("d", text), size, overlap)]


def by_strings(text: str, size: int, overlap: int, separators: tuple[str, ...] = ("\n\n", "\n", " ", "")) -> list[str]:
    """The published behaviour, written over strings and lists: an independent second opinion."""
    while separators[0] and separators[0] not in text:
        separators = separators[1:]
    mark = separators[0]
    parts = list(text) if not mark else text.split(mark)
    parts = [part if not mark or n == 0 else mark + part for n, part in enumerate(parts)]
    out: list[str] = []
    held: list[str] = []

    def flush() -> None:
        window: list[str] = []
        for part in held:
            if sum(map(len, window)) + len(part) > size:
                out.append("".join(window))
                while sum(map(len, window)) > overlap or (window and sum(map(len, window)) + len(part) > size):
                    window.pop(0)
            window.append(part)
        out.append("".join(window))
        held.clear()

    for part in parts:
        if len(part) < size:
            held.append(part)
            continue
        flush()
        out += by_strings(part, size, overlap, separators[1:])
    flush()
    return [chunk.strip() for chunk in out if chunk.strip()]


@pytest.mark.slow
@given(TEXTS, st.integers(2, 40), st.data())
def test_character_splitter_matches_published_passages(text: str, size: int, data: st.DataObject) -> None:
    overlap = data.draw(st.integers(0, size - 1))
    assert texts(text, size, overlap) == by_strings(text.strip(), size, overlap)


@given(TEXTS, st.integers(2, 40))
def test_character_splitter_keeps_text_and_offsets(text: str, size: int) -> None:
    passages = split_by_characters(Document("d", text), size, size // 3)
    covered = set()
    for ordinal, passage in enumerate(passages):
        assert (passage.id, passage.ordinal, passage.document_id) == (f"d#{ordinal}", ordinal, "d")
        assert passage.text == text[passage.start : passage.end] == passage.text.strip()
        assert 0 < len(passage.text) <= size
        covered |= set(range(passage.start, passage.end))
    assert all(text[n].isspace() for n in range(len(text)) if n not in covered)


@pytest.mark.parametrize(
    ("text", "size", "overlap", "expected"),
    [
        ("", 10, 2, []),
        (" \n ", 10, 2, []),
        ("  short ", 10, 2, ["short"]),
        ("aaa bbb ccc ddd", 8, 4, ["aaa bbb", "bbb ccc", "ccc ddd"]),
        ("aaa bbb ccc ddd", 8, 3, ["aaa bbb", "ccc ddd"]),
        ("one two\n\nthree four five", 10, 0, ["one two", "three", "four five"]),
        ("abcdefghij", 4, 1, ["abcd", "defg", "ghij"]),
    ],
)
def test_character_splitter_matches_manual_example(text: str, size: int, overlap: int, expected: list[str]) -> None:
    assert texts(text, size, overlap) == expected


def test_character_splitter_passages_carry_document_fields() -> None:
    document = Document(
        "d", "some text", title="title", source="source", date="2015-06", patient="p1", metadata={"journal": "J"}
    )
    (passage,) = split_by_characters(document)
    assert (passage.title, passage.source, passage.date, passage.patient) == ("title", "source", "2015-06", "p1")
    assert passage.metadata == {"journal": "J"}


@pytest.mark.parametrize(("size", "overlap"), [(10, 10), (10, -1), (1, 0), (0, 0)])
def test_character_splitter_with_invalid_sizes_raises(size: int, overlap: int) -> None:
    with pytest.raises(ValueError, match="size must be greater"):
        split_by_characters(Document("d", "text"), size, overlap)


@pytest.mark.data
def test_character_splitter_matches_langchain_on_real_articles(data_folder: Path) -> None:
    """Hash and count of what langchain-text-splitters 1.1.3 gives for COVID-QA's first 30 articles."""
    articles = json.loads((data_folder / "covid_qa" / "200423_covidQA.json").read_text())["data"][:30]
    found = [texts(article["paragraphs"][0]["context"], 1000, 200) for article in articles]
    assert sum(map(len, found)) == COUNT
    assert hashlib.sha256(json.dumps(found).encode()).hexdigest() == SHA256
