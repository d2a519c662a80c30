"""Test solved questions as documents: reading, counting, and leaks."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epicrisis.core.errors import InputError
from epicrisis.core.types import Document, Question
from epicrisis.corpus.base.reader_base import Skipped
from epicrisis.evaluation.synthesis.example_documents import (
    ExampleCount,
    count_examples,
    library_examples,
    read_built_examples,
    read_examples,
)
from epicrisis.evaluation.synthesis.solved_examples import Leak, find_leaks, find_leaks_among
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.write.ingest import add_documents, open_or_create
from epicrisis.retrieval.solved_questions import METADATA, is_same_question
from epicrisis.testing.hashing_encoder import HashingEncoder
from tests.evaluation.synthesis.test_solved_examples import (
    OPTIONS,
    make_reply,
    open_questions,
    questions,
    right,
    solve_all,
)
from tests.support.library_documents import add, create

ENCODER = HashingEncoder(16, max_tokens=8)
LINE: dict[str, Any] = {
    "id": "q-1",
    "question": "What stops bleeding?",
    "options": OPTIONS,
    "choice": "B",
    "reasoning": "It clots.",
    "answer": "Vitamin K.",
}


def write_lines(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def fill_library(folder: Path, *files: Path) -> LibraryStore:
    with open_or_create(folder, ENCODER, "hashing", overlap=0) as library:
        for file in files:
            add_documents(library, read_examples(file), ENCODER)
    return LibraryStore.open(folder)


def test_read_built_examples_returns_documents_with_metadata(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    solve_all([*questions(3), *open_questions(1)], right, path)
    documents = [document for document in read_built_examples(path) if isinstance(document, Document)]
    assert len(path.read_text().splitlines()) == 4, "the open one is answered wrongly, and no document"
    assert [document.id for document in documents] == [f"made/train/q-{i}" for i in range(3)]
    assert documents[1].text == questions(2)[1].text
    assert {*METADATA, "how", "model", "form"} == documents[0].metadata.keys()
    with fill_library(tmp_path / "library", path) as library:
        result = {passage.document_id: (passage, example) for passage, example in library_examples(library)}
        assert len(result) == 3
        assert library.count()[1] > 3, "a question longer than the encoder reads is several passages"
        passage, example = result["made/train/q-1"]
        assert (passage.source, passage.metadata["question_id"]) == ("made/train", "q-1")
        assert (example.text, example.options, example.choice) == (questions(2)[1].text, OPTIONS, "B")
        assert example.reasoning.endswith("The answer is B.")


def test_read_built_examples_ignores_incomplete_last_line(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    solve_all(questions(2), right, path)
    path.write_bytes(path.read_bytes()[:-9])
    assert [document.id for document in read_built_examples(path) if isinstance(document, Document)] == [
        "made/train/q-0"
    ]


def test_read_examples_accepts_minimal_lines_and_gzip(tmp_path: Path) -> None:
    plain = {"id": 7, "question": "Which?", "answer": "Zinc."}
    path = write_lines(
        tmp_path / "own.jsonl", LINE, plain, {**LINE, "id": "l", "options": ["iron", "zinc"], "set": "mine"}
    )
    packed = tmp_path / "own.jsonl.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    first, open_one, last = read_examples(path)
    assert isinstance(first, Document)
    assert (first.id, first.source) == ("own.jsonl/q-1", "own.jsonl")
    assert (first.metadata["how"], first.metadata["model"], first.metadata["form"]) == ("ready-made", "", "choice")
    assert isinstance(open_one, Document)
    assert (open_one.id, open_one.metadata["choice"], open_one.metadata["form"]) == ("own.jsonl/7", None, "open")
    assert isinstance(last, Document)
    assert (last.id, last.metadata["options"]) == ("mine/l", {"A": "iron", "B": "zinc"})
    assert len(list(read_examples(packed))) == 3


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"patient": "anna"}, "patient: examples are shown with questions about others"),
        ({"id": None}, "id: missing"),
        ({"choice": "D"}, "choice: none of the options"),
        ({"choice": None}, "choice: none of the options"),
        ({"answer": " "}, "answer: empty"),
        ({"question": ""}, "question: empty"),
        ({"options": {"yes": "no"}}, "options: each key must be one letter"),
    ],
)
def test_read_examples_skips_invalid_line_with_reason(changes: dict[str, Any], why: str, tmp_path: Path) -> None:
    bad, good = read_examples(write_lines(tmp_path / "own.jsonl", {**LINE, **changes}, LINE))
    assert isinstance(bad, Skipped)
    assert bad.where == "line 1"
    assert why in bad.reason
    assert "bleeding" not in bad.reason
    assert isinstance(good, Document)


def test_read_examples_ignores_lines_that_were_not_kept(tmp_path: Path) -> None:
    wrong = {"id": "q-2", "set": "x", "state": "wrong"}
    assert len(list(read_examples(write_lines(tmp_path / "own.jsonl", wrong, {**LINE, "state": "kept"})))) == 1


def test_count_examples_groups_by_set_method_model_and_form(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    solve_all([*questions(3), *open_questions(1)], lambda r: make_reply("A", "vitamin K", "It is vitamin K."), path)
    own = write_lines(tmp_path / "own.jsonl", LINE, {**LINE, "id": "q-2"})
    with fill_library(tmp_path / "library", path, own) as library:
        assert count_examples(library) == (
            ExampleCount("made/train", "solved", "solver", "choice", 1),
            ExampleCount("made/train", "solved", "solver", "open", 1),
            ExampleCount("own.jsonl", "ready-made", "", "choice", 2),
        )


def test_count_examples_in_other_library_raises_input_error(tmp_path: Path) -> None:
    with create(tmp_path / "library") as library:
        add(library, 0, 4)
        with pytest.raises(
            InputError, match="is not a solved question: give a library that `epicrisis examples build`"
        ):
            count_examples(library)


# -- leaks ------------------------------------------------------------------------------------------------------------


def test_find_leaks_by_id_or_text(tmp_path: Path) -> None:
    stem = "A sailor of forty has bleeding gums and bruises after months at sea. What does he lack most of all?"
    rows = [
        {**LINE, "id": "worded-alike", "question": stem.upper()},
        {**LINE, "id": "test-1", "question": "Something else altogether?"},
        {**LINE, "id": "12", "question": "Twelve is no name, many sets count from 0."},
        {**LINE, "id": "no-leak", "question": "A sailor of forty has a red eye. What does he lack?"},
    ]
    sample = [Question(stem, id="test-0"), Question("Which?", id="test-1"), Question("Who?", id="12")]
    with fill_library(tmp_path / "library", write_lines(tmp_path / "own.jsonl", *rows)) as library:
        assert find_leaks(library, sample, 0.8) == (
            Leak("own.jsonl/test-1", "test-1", True, 0.0),
            Leak("own.jsonl/worded-alike", "test-0", False, 1.0),
        )


_WORDS = st.lists(st.sampled_from("abcd"), max_size=9).map(" ".join)


@pytest.mark.slow
@given(
    st.lists(_WORDS, max_size=8),
    st.lists(_WORDS, max_size=8),
    st.sampled_from([0.1, 0.25, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]),
)
def test_find_leaks_equals_comparison_of_all_pairs(texts: Sequence[str], asked: Sequence[str], alike: float) -> None:
    of_set = [Question(text, id=f"q{i}") for i, text in enumerate(asked)]
    of_library = [(f"e{i}", text, f"q{i + 3}") for i, text in enumerate(texts)]
    everybody = [(e, q.id) for e, text, id_ in of_library for q in of_set if is_same_question(q, text, id_, alike)]
    assert [(leak.example, leak.question) for leak in find_leaks_among(of_library, of_set, alike)] == everybody


def test_find_leaks_compares_few_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    from epicrisis.evaluation.synthesis import solved_examples as module

    compared: list[str] = []

    def counted(question: Question, text: str, question_id: str, alike: float) -> bool:
        compared.append(question_id)
        return is_same_question(question, text, question_id, alike)

    monkeypatch.setattr(module, "is_same_question", counted)
    dice = random.Random(0)
    texts = [
        "Which of the following is the most likely " + " ".join(str(dice.random()) for _ in range(8))
        for _ in range(300)
    ]
    sample = [Question(text, id=f"q{i}") for i, text in enumerate(texts)]
    result = list(find_leaks_among(((f"e{i}", text, f"e{i}") for i, text in enumerate(texts)), sample, 0.8))
    assert [(leak.example[1:], leak.similarity) for leak in result] == [(str(i), 1.0) for i in range(300)]
    assert len(compared) == 300, "all begin alike, and none but its own is looked at"
