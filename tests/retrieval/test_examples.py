"""Solved questions out of a ranking: distinct, and never the question itself."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epicrisis.core.errors import InputError
from epicrisis.core.types import Passage, Question
from epicrisis.retrieval.solved_questions import choose_examples, is_same_question, read_example, shingle_similarity

STEM = (
    "A 21-year-old sailor complains of fever, of pain on passing water and of a swollen right knee. A culture of the "
    "joint fluid shows a bacterium that does not ferment maltose and has no capsule. The drug that he is given blocks "
    "the building of its wall. Which one of these drugs was it?"
)


def passage(name: str, text: str, ordinal: int = 0, **more: Any) -> Passage:
    told = {"question": text, "options": {"A": "yes", "B": "no"}, "choice": "A", "answer": "Yes.", **more}
    return Passage(
        id=f"{name}#{ordinal}", document_id=name, ordinal=ordinal, start=0, end=len(text), text=text, metadata=told
    )


def test_examples_are_unique_in_ranking_order() -> None:
    found = [passage("a", "One?"), passage("a", "One?", 1), passage("b", "Two?"), passage("c", "Three?")]
    examples = choose_examples(found, Question("Else?"), 2, 0.8)
    assert [each.id for each in examples.examples] == ["a", "b"]
    assert examples.left_out == ()


def test_question_itself_is_excluded_and_named() -> None:
    found = [
        passage("same", STEM.upper(), question_id="x"),
        passage("id", "Wholly otherwise worded?", question_id="medqa_test_0"),
        passage("other", "Which drug helps in gout?"),
    ]
    examples = choose_examples(found, Question(STEM, id="medqa_test_0"), 5, 0.8)
    assert [each.id for each in examples.examples] == ["other"]
    assert examples.left_out == ("same", "id")


def test_number_alone_is_no_id() -> None:
    """Many sets count from 0."""
    assert not is_same_question(Question("Else?", id="0012"), STEM, "0012", 0.8)
    assert is_same_question(Question("Else?", id="medqa-0012"), STEM, "medqa-0012", 0.8)


@pytest.mark.parametrize(
    ("changed", "leaks"),
    [
        (STEM.replace("21", "22"), True),
        (STEM.replace(".", " ,"), True),
        (STEM[: len(STEM) // 2], False),
        ("Which one of these drugs was it?", False),
        (STEM.replace("right knee", "left elbow").replace("maltose", "glucose").replace("wall", "ribosome"), False),
    ],
)
def test_question_similarity_threshold_decides_equality(changed: str, leaks: bool) -> None:
    assert is_same_question(Question(STEM), changed, "", 0.8) == leaks


@pytest.mark.slow
@given(st.text(max_size=60), st.text(max_size=60))
def test_similarity_is_symmetric_and_one_for_equal_texts(one: str, other: str) -> None:
    assert shingle_similarity(one, one) == 1
    assert shingle_similarity(one, other) == shingle_similarity(other, one)
    assert 0 <= shingle_similarity(one, other) <= 1


@pytest.mark.parametrize("changes", [{"question": None}, {"answer": 3}, {"choice": "C"}, {"options": "A, B"}])
def test_passage_without_solved_question_is_rejected(changes: dict[str, Any]) -> None:
    with pytest.raises(
        InputError, match="a is not a solved question: give a library that `epicrisis examples build` made"
    ):
        read_example(passage("a", "One?", **changes))


def test_open_example_has_no_options_and_no_choice() -> None:
    example = read_example(passage("a", "One?", options={}, choice=None, reasoning="So."))
    assert (example.text, example.options, example.choice, example.reasoning) == ("One?", {}, None, "So.")
