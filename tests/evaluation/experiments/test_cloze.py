"""Test cloze questions, made from sentences of the documents with one number removed."""

from __future__ import annotations

import pytest

from epicrisis.core.errors import InputError
from epicrisis.core.types import Passage
from epicrisis.evaluation.experiments.cloze import GAP, LETTERS, draw_questions


def make_passage(document: str, text: str, ordinal: int = 0) -> Passage:
    return Passage(id=f"{document}#{ordinal}", document_id=document, ordinal=ordinal, start=0, end=len(text), text=text)


def make_sentence(number: str, name: str) -> str:
    return f"In the trial of {name} the risk was lower in {number} patients who took it in the morning."


MANY = [make_passage(f"d{i}", f"Short one. {make_sentence(str(10 + i), f'drug {chr(97 + i)}')}") for i in range(12)]


def test_draw_questions_removed_number_is_right_option() -> None:
    dataset, keys = draw_questions(MANY, 10)
    assert len(dataset.questions) == 10
    for question in dataset.questions:
        key = keys[question.id]
        right = question.options[question.gold or ""]
        assert question.gold_documents == (key.document_id,)
        assert question.text.count(GAP) == 1
        text = question.text.partition('"')[2].partition('"')[0]
        assert text.replace(GAP, right) in key.text
        assert tuple(question.options) == tuple(LETTERS)
        assert len(set(question.options.values())) == len(LETTERS)


def test_draw_questions_options_are_consecutive_numbers() -> None:
    for question in draw_questions(MANY, 12)[0].questions:
        numbers = sorted(map(int, question.options.values()))
        assert numbers == list(range(numbers[0], numbers[0] + 4))


def test_draw_questions_rank_of_right_option_is_uniform() -> None:
    """Whoever takes the second least number without reading is right as often as chance."""
    many = [make_passage(f"d{i}", make_sentence(str(100 + i), f"drug {i}x")) for i in range(400)]
    ranks = [
        sorted(question.options.values(), key=int).index(question.options[question.gold or ""])
        for question in draw_questions(many, 400)[0].questions
    ]
    assert all(75 <= ranks.count(rank) <= 125 for rank in range(4))


def test_draw_questions_options_keep_decimal_form() -> None:
    decimals = [make_passage(f"e{i}", make_sentence(f"{i}.5", f"pill {chr(97 + i)}")) for i in range(1, 6)]
    dataset, _ = draw_questions([*MANY, *decimals], 16)
    for question in dataset.questions:
        assert len({"." in option for option in question.options.values()}) == 1


@pytest.mark.parametrize(
    "text",
    [
        "Between 1990 and the end of the study the authors followed all of the patients in the town.",
        "The expression of CD4 was higher in those who took the drug than in all of the others there.",
        "Of 20 patients who took the drug in the morning 15 were well again before the study ended.",
        "The dose was 2-3 tablets in the morning for all of the patients who took part in the study.",
        "The year in which the last of the patients was seen by the authors of the study was 1998.",
        "It was 5.",
        "In all of the 12 patients (n=12) of the study the risk was lower than in all of the others.",
        "Of those with 4 or more the expression of CD4 was higher than in all of the others of the town.",
        "Of all patients who took the drug in the morning \u0661\u0662 were well again before the study ended.",
    ],
)
def test_draw_questions_from_unsuitable_text_raises_input_error(text: str) -> None:
    with pytest.raises(InputError, match="yield 0 questions"):
        draw_questions([make_passage("only", text), *[make_passage(f"o{i}", "No number.") for i in range(5)]], 1)


def test_draw_questions_takes_one_per_document_and_refuses_too_many() -> None:
    twice = [make_passage("d", make_sentence(str(10 + i), f"drug {i}x"), i) for i in range(8)]
    with pytest.raises(InputError, match="yield 0 questions of their own, not 1: ask for fewer with -n"):
        draw_questions(twice, 1)
    with pytest.raises(InputError, match="yield 12 questions of their own, not 13"):
        draw_questions(MANY, 13)


def test_draw_questions_is_deterministic() -> None:
    assert draw_questions(MANY, 8)[0].sha256 == draw_questions(MANY, 8)[0].sha256
    assert draw_questions(MANY, 8)[0].sha256 != draw_questions(MANY[::-1], 8)[0].sha256
