"""Passages: exact slices that lose nothing and fit."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epicrisis.core.types import Document, Passage
from epicrisis.corpus.base import chunking
from epicrisis.corpus.base.chunking import chunk_document, find_sentences
from epicrisis.corpus.readers.sources import read_sources

TEXT = "Aspirin was given. It helped a lot. Nobody died. The end came in 1990."


def words(text: str) -> Sequence[tuple[int, int]]:
    return [match.span() for match in re.finditer(r"\S+", text)]


def gpt_like(text: str) -> Sequence[tuple[int, int]]:
    """Tokens of up to three characters, the white space before a word its own, three tokens for one emoji."""
    spans = [match.span() for match in re.finditer(r"\s?\S{1,3}|\s", text)]
    return [span for span in spans for _ in range(3 if text[span[1] - 1] > "\uffff" else 1)]


def _document(text: str, title: str = "") -> Document:
    return Document(id="d", text=text, title=title)


def _slices(text: str, max_tokens: int, overlap: int = 0, title: str = "") -> list[str]:
    return [passage.text for passage in chunk_document(_document(text, title), words, max_tokens, overlap)]


def _check(text: str, passages: Sequence[Passage]) -> None:
    """What holds for any tokenizer: exact trimmed slices in order, and no character lost but white space."""
    covered = 0
    for ordinal, passage in enumerate(passages):
        assert passage.id == f"d#{ordinal}"
        assert passage.text == text[passage.start : passage.end]
        assert passage.text == passage.text.strip() != ""
        assert ordinal == 0 or passages[ordinal - 1].start < passage.start
        assert not text[covered : passage.start].strip()
        assert covered < passage.end
        covered = passage.end
    assert not text[covered:].strip()


TEXTS = st.text(max_size=300) | st.lists(
    st.sampled_from(["a", "Word", "e.g.", "3.5", "end.", "why?", "x" * 9, "😀", ".", "\u200b", "\n", "  ", "\u2028"]),
    max_size=80,
).map(" ".join)


@pytest.mark.long
@given(TEXTS, st.integers(1, 12), st.data())
def test_chunking_keeps_every_word_in_passages_within_limit(text: str, max_tokens: int, data: st.DataObject) -> None:
    overlap = data.draw(st.integers(0, max_tokens - 1))
    passages = chunk_document(_document(text), words, max_tokens, overlap)
    _check(text, passages)
    tokens = words(text)
    for passage in passages:
        assert len(words(passage.text)) <= max_tokens
    for start, end in tokens:
        assert any(passage.start <= start and end <= passage.end for passage in passages)
    for left, right in itertools.pairwise(passages):
        shared = text[right.start : max(left.end, right.start)]
        assert len(words(shared)) <= overlap
        assert not shared or right.start in {start for start, _ in find_sentences(text)}
    if len(tokens) <= max_tokens:
        assert [passage.text for passage in passages] == ([text.strip()] if text.strip() else [])


@pytest.mark.long
@given(TEXTS, st.integers(3, 12), st.data())
def test_chunking_handles_tokens_with_spaces_and_shared_characters(
    text: str, max_tokens: int, data: st.DataObject
) -> None:
    overlap = data.draw(st.integers(0, max_tokens - 1))
    passages = chunk_document(_document(text), gpt_like, max_tokens, overlap)
    _check(text, passages)
    for passage in passages:
        inside = [1 for start, end in gpt_like(text) if start < passage.end and passage.start < end]
        assert len(inside) <= max_tokens


@pytest.mark.slow
@given(TEXTS, st.integers(1, 12))
def test_chunking_passage_again_returns_one_passage(text: str, max_tokens: int) -> None:
    for passage in chunk_document(_document(text), words, max_tokens, 0):
        assert [again.text for again in chunk_document(_document(passage.text), words, max_tokens, 0)] == [passage.text]


def test_chunking_matches_manual_example() -> None:
    assert _slices(TEXT, 7) == ["Aspirin was given. It helped a lot.", "Nobody died. The end came in 1990."]
    assert _slices(TEXT, 7, overlap=4) == [
        "Aspirin was given. It helped a lot.",
        "It helped a lot. Nobody died.",
        "Nobody died. The end came in 1990.",
    ]
    assert _slices(TEXT, 14) == [TEXT]
    assert _slices(f" \n{TEXT}\n", 14) == [TEXT]


def test_long_sentence_is_split_between_words_without_overlap() -> None:
    assert _slices("one two three four five. Six.", 2, overlap=1) == ["one two", "three four", "five. Six."]


def test_word_is_split_only_if_it_exceeds_limit() -> None:
    def letters(text: str) -> Sequence[tuple[int, int]]:
        return [match.span() for match in re.finditer(r"\S", text)]

    assert [p.text for p in chunk_document(_document("abc defg hi"), letters, 4, 0)] == ["abc", "defg", "hi"]
    assert [p.text for p in chunk_document(_document("abcdefghij"), letters, 4, 0)] == ["abcd", "efgh", "ij"]


def test_character_with_more_tokens_than_limit_stays_whole() -> None:
    def three_each(text: str) -> Sequence[tuple[int, int]]:
        return [(i, i + 1) for i in range(len(text)) for _ in range(3)]

    assert [p.text for p in chunk_document(_document("😀😁😂"), three_each, 2, 0)] == ["😀", "😁", "😂"]


def test_whitespace_gives_no_passage_and_untokenised_text_gives_one() -> None:
    assert _slices("", 5) == _slices(" \n\t\u2003", 5) == []
    assert [p.text for p in chunk_document(_document(" \u200b "), lambda _: (), 5, 0)] == ["\u200b"]


def test_title_reduces_passage_size_to_at_least_half_the_window() -> None:
    text = " ".join("abcdefghijkl")
    assert [len(piece.split()) for piece in _slices(text, 8)] == [8, 4]
    assert [len(piece.split()) for piece in _slices(text, 8, title="one two")] == [5, 5, 2]
    assert [len(piece.split()) for piece in _slices(text, 8, title="a title of very many words indeed")] == [4, 4, 4]
    assert [len(piece.split()) for piece in _slices("a b", 1, title="title")] == [1, 1]


def test_passages_carry_document_fields() -> None:
    document = Document(
        "pubmed:1", TEXT, title="T", source="PubMed", date="2015-06", patient="p1", metadata={"section": "x"}
    )
    first, second = chunk_document(document, words, 9, 0)
    assert second == Passage(
        id="pubmed:1#1",
        document_id="pubmed:1",
        ordinal=1,
        start=TEXT.index("Nobody"),
        end=len(TEXT),
        text="Nobody died. The end came in 1990.",
        title="T",
        source="PubMed",
        date="2015-06",
        patient="p1",
        metadata={"section": "x"},
    )
    assert first.id == "pubmed:1#0"


def test_chunking_tokenizes_text_once() -> None:
    asked: list[str] = []

    def spans(text: str) -> Sequence[tuple[int, int]]:
        asked.append(text)
        return words(text)

    chunk_document(_document(TEXT, "Title"), spans, 4, 2)
    assert sorted(asked) == sorted([TEXT, "Title"])


@pytest.mark.parametrize("sentence", ["One came. ", "one and\n"])
def test_chunking_long_text_in_blocks_equals_chunking_it_whole(sentence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    document = _document(sentence * 200)
    whole = chunk_document(document, words, 40, 8)
    lengths = []

    def spans(text: str) -> Sequence[tuple[int, int]]:
        lengths.append(len(text))
        return words(text)

    monkeypatch.setattr(chunking, "_BLOCK", 256)
    assert chunk_document(document, spans, 40, 8) == whole
    assert max(lengths) <= 256
    assert len(lengths) >= 5


def test_chunking_long_word_is_given_to_the_tokenizer_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunking, "_BLOCK", 256)
    passages = chunk_document(_document("x" * 2_000), words, 4, 0)
    assert [len(passage.text) for passage in passages] == [1024, 976]


@pytest.mark.parametrize(("max_tokens", "overlap"), [(0, 0), (4, 4), (4, -1)])
def test_chunking_with_invalid_sizes_raises(max_tokens: int, overlap: int) -> None:
    with pytest.raises(ValueError, match="max_tokens must be greater than overlap"):
        chunk_document(_document(TEXT), words, max_tokens, overlap)


@pytest.mark.parametrize(
    "expected",
    [
        ["Dr. J. Smith gave 3.5 mg vs. placebo (e.g. aspirin).", "See Fig. 2!", '"Yes."', "He left."],
        ["Smith et al. found p < .05.", "Was it 3.5?", "No."],
        ["pt denies pain.", "takes it b.i.d. with food.", "i.e. twice."],
        ["It was seen at www.example.org.", "Nobody knew…", "The end."],
        ["30 min.", "Then nothing."],
    ],
)
def test_split_sentences_returns_expected_spans(expected: list[str]) -> None:
    text = " ".join(expected)
    assert [text[start:end] for start, end in find_sentences(text)] == expected


@pytest.mark.parametrize("gap", [" ", "    " * 9, "\n"])
@pytest.mark.parametrize("block", range(6, 20))
def test_split_sentences_at_end_of_block(block: int, gap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunking, "_BLOCK", block)
    text = gap.join(['He said "stop."))]', "It was 3.5.", "No"])
    assert [text[start:end] for start, end in find_sentences(text)] == ['He said "stop."))]', "It was 3.5.", "No"]


def test_split_sentences_ends_sentence_at_line_break() -> None:
    text = "Plan\r\n- aspirin, e.g.\n\n- rest \u2028 home"
    assert [text[start:end] for start, end in find_sentences(text)] == ["Plan", "- aspirin, e.g.", "- rest", "home"]


@pytest.mark.long
@pytest.mark.timeout(60)
@pytest.mark.parametrize("unit", ["x", ".", '."', ". ", " ", "\n", "a.b"])
def test_chunking_large_note_takes_linear_time(unit: str) -> None:
    """Two million characters that a backtracking splitter, or one that looks back, takes hours for."""
    text = "begin." + unit * (2_000_000 // len(unit)) + "end."
    passages = chunk_document(_document(text), lambda t: [(i, i + 1) for i in range(len(t))], 256, 32)
    _check(text, passages)
    assert max(passage.end - passage.start for passage in passages) <= 256


@pytest.mark.slow
@pytest.mark.data
def test_chunking_real_abstracts_keeps_invariants(data_folder: Path) -> None:
    passages = 0
    documents = [
        item for item in read_sources([data_folder / "pubmedqa" / "ori_pqal.json"]) if isinstance(item, Document)
    ]
    assert len(documents) == 1000
    for document in documents:
        made = chunk_document(document, words, 128, 32)
        passages += len(made)
        assert all(len(words(passage.text)) <= 128 for passage in made)
        assert {word for passage in made for word in passage.text.split()} == set(document.text.split())
    assert 2_000 < passages < 2_500


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("Falls were rarer with vitamin D. Fractures were not.", 2),
        ("It was written by J. Smith. He died.", 2),
        ("Events in group B. Deaths in group A.", 2),
    ],
)
def test_letter_that_names_a_thing_ends_a_sentence_and_an_initial_does_not(text: str, count: int) -> None:
    assert len(list(find_sentences(text))) == count
