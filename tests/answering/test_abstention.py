"""An answer from documents is withheld where nothing that it quotes stands in them."""

from __future__ import annotations

import dataclasses

import pytest

from epicrisis.answering.document_answers import withhold_unverified
from epicrisis.answers import Answer, Citation
from epicrisis.types import AnswerState
from tests.support.strategies import QUESTION

NOT_THERE = Citation(1, "d#0", "d", "Title", "source", "2015", 0, 9, "never said so", verified=False)
THERE = dataclasses.replace(NOT_THERE, number=2, verified=True)


def answer_with(*citations: Citation) -> Answer:
    return Answer(QUESTION, "rag", "answered", "It helps. [1]", "A", citations)


@pytest.mark.parametrize(
    ("citations", "reason"),
    [
        ((), "it quotes no document"),
        ((NOT_THERE,), "its only quotation was not found in the document it cites"),
        ((NOT_THERE, NOT_THERE), "none of its 2 quotations was found in the document it cites"),
    ],
)
def test_answer_without_verified_quotation_becomes_abstention(citations: tuple[Citation, ...], reason: str) -> None:
    answer = withhold_unverified(answer_with(*citations))
    assert (answer.state, answer.text, answer.choice, answer.citations) == ("abstained", "", None, ())
    assert answer.withheld is not None
    assert (answer.withheld.text, answer.withheld.choice) == ("It helps. [1]", "A")
    assert (answer.withheld.citations, answer.withheld.reason) == (citations, reason)


def test_answer_with_one_verified_quotation_is_kept() -> None:
    answer = answer_with(NOT_THERE, THERE)
    assert withhold_unverified(answer) is answer


@pytest.mark.parametrize("state", ["abstained", "unparsed", "failed", "over-window"])
def test_question_without_answer_keeps_its_state(state: AnswerState) -> None:
    answer = dataclasses.replace(answer_with(), state=state)
    assert withhold_unverified(answer) is answer


def test_unanswerable_option_is_kept_without_quotation() -> None:
    question = dataclasses.replace(QUESTION, options={"A": "5 mg", "B": "The record does not say"})
    untold = dataclasses.replace(answer_with(NOT_THERE), question=question, choice="B")
    assert withhold_unverified(untold) is untold
    assert withhold_unverified(dataclasses.replace(untold, choice="A")).state == "abstained"
