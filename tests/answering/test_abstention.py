"""An answer from documents is withheld where nothing that it quotes stands in them."""

from __future__ import annotations

import dataclasses

import pytest

from epicrisis.answering.document_answers import denies_answer, withhold_unverified
from epicrisis.core.answers import Answer, Citation, Claim
from epicrisis.core.types import AnswerState
from tests.support.strategies import QUESTION

NOT_THERE = Citation(
    number=1,
    passage_id="d#0",
    document_id="d",
    title="Title",
    source="source",
    date="2015",
    start=0,
    end=9,
    quotation="never said so",
    verified=False,
)
THERE = dataclasses.replace(NOT_THERE, number=2, verified=True)


def answer_with(*citations: Citation) -> Answer:
    return Answer(
        question=QUESTION, strategy="rag", state="answered", text="It helps. [1]", choice="A", citations=citations
    )


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


@pytest.mark.parametrize(
    "text",
    [
        "The documents do not answer the question.",
        "The documents do not directly answer the question about landing. They only discuss taking off.",
        "These abstracts do not explicitly state whether aspirin is safe in children.",
        "The provided evidence does not provide information on the dose.",
    ],
)
def test_choice_of_answer_that_denies_an_answer_is_withheld(text: str) -> None:
    answer = dataclasses.replace(answer_with(THERE), claims=(Claim(text, (2,)),))
    withheld = withhold_unverified(answer).withheld
    assert withheld is not None
    assert withheld.reason == "its own words say that the documents do not answer the question"
    assert withheld.choice == "A"


@pytest.mark.parametrize(
    "text",
    [
        "The documents do not answer the question directly, but they suggest that repair is justified.",
        "The study did not report a difference in mortality.",
        "Dexamethasone does not lower mortality.",
        "The evidence does not support routine screening.",
    ],
)
def test_claim_about_medicine_does_not_deny_an_answer(text: str) -> None:
    assert not denies_answer(text)


def test_answer_with_one_claim_besides_a_denial_is_kept() -> None:
    claims = (Claim("The documents do not answer the question.", (2,)), Claim("Aspirin helps.", (2,)))
    answer = dataclasses.replace(answer_with(THERE), claims=claims)
    assert withhold_unverified(answer) is answer


def test_unanswerable_option_is_kept_with_a_denial() -> None:
    question = dataclasses.replace(QUESTION, options={"A": "5 mg", "B": "The record does not say"})
    claims = (Claim("The record does not state which dose.", (2,)),)
    untold = dataclasses.replace(answer_with(THERE), question=question, choice="B", claims=claims)
    assert withhold_unverified(untold) is untold
