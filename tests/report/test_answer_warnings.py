"""Warnings that an answer's own words and quotations give."""

from __future__ import annotations

from dataclasses import replace

import pytest

from epicrisis.core.answers import Answer, Citation, Claim
from epicrisis.core.types import Question
from epicrisis.report.answer_content import build_answer_content
from epicrisis.report.answer_warnings import list_warnings

DRUGS = {"A": "amiodarone", "B": "flecainide", "C": "propranolol", "D": "The record does not say"}
QUESTION = Question("Which drug increased mortality?", options=DRUGS, form="choice")


def cite(quotation: str, title: str = "Drugs after infarction") -> Citation:
    return Citation(
        number=1,
        passage_id="d#0",
        document_id="d",
        title=title,
        source="",
        date="1991",
        start=0,
        end=len(quotation),
        quotation=quotation,
        verified=True,
    )


def answer_with(choice: str | None, quotation: str, text: str = "It did.", **fields: object) -> Answer:
    answer = Answer(
        question=QUESTION, strategy="focused", state="answered", text=text, choice=choice, citations=(cite(quotation),)
    )
    return replace(answer, **fields)  # type: ignore[arg-type]


def test_option_in_no_quotation_is_named() -> None:
    answer = answer_with("C", "Deaths from heart disease were fewer.")
    assert list(list_warnings(answer)) == ["Its quoted sentences do not name “propranolol”: read them."]
    assert build_answer_content(answer).warnings == tuple(list_warnings(answer))


@pytest.mark.parametrize(
    ("choice", "options"),
    [
        ("B", DRUGS),
        ("D", DRUGS),
        ("A", {"A": "yes", "B": "no"}),
        ("A", {"A": "No difference", "B": "Lower"}),
        (None, {}),
    ],
)
def test_option_in_quotation_or_without_term_gives_no_warning(choice: str | None, options: dict[str, str]) -> None:
    question = Question("Q?", options=options, form="choice" if options else "open")
    answer = answer_with(choice, "More died on flecainide.", question=question)
    assert list(list_warnings(answer)) == []


def test_claim_that_denies_the_choice_is_warned_of() -> None:
    claims = (Claim("The documents do not answer the question directly.", (1,)), Claim("More died.", (1,)))
    (warning,) = list_warnings(answer_with("B", "More died on flecainide.", claims=claims))
    assert "yet it chose an option" in warning
    assert list(list_warnings(answer_with("D", "More died on flecainide.", claims=claims))) == []
    assert list(list_warnings(answer_with(None, "More died on flecainide.", claims=claims))) == []
    assert list(list_warnings(answer_with("B", "More died on flecainide.", claims=claims[1:]))) == []


@pytest.mark.parametrize(
    ("claim", "is_title"),
    [
        ("Drugs after infarction", True),
        ("drugs after infarction (1991, randomised trial (by its abstract)).", True),
        ("Drugs after infarction (1991)", True),
        ("Drugs after infarction increased mortality.", False),
    ],
)
def test_claim_that_repeats_title_is_warned_of(claim: str, is_title: bool) -> None:
    answer = answer_with(None, "More died.", claims=(Claim(claim, (1,)),))
    assert bool(list(list_warnings(answer))) == is_title


def test_answer_without_citation_or_without_documents() -> None:
    assert list(list_warnings(answer_with("A", "x", citations=()))) == ["It cites nothing: do not rely on it."]
    assert list(list_warnings(answer_with("A", "x", citations=(), strategy="closed-book"))) == []
    assert list(list_warnings(answer_with("A", "x", state="abstained"))) == []


def test_option_with_fewer_than_half_of_its_words_quoted_is_named() -> None:
    question = replace(QUESTION, options={"A": "stroke", "B": "coronary heart disease"})
    answer = replace(answer_with("B", "It was not recommended to prevent chronic disease."), question=question)
    assert list(list_warnings(answer)) == ["Its quoted sentences do not name “coronary heart disease”: read them."]
    named = replace(answer_with("B", "Heart disease was less frequent."), question=question)
    assert not list(list_warnings(named))


@pytest.mark.parametrize(("choice", "warned"), [("A", True), ("B", False)])
def test_yes_beside_a_quotation_without_benefit_is_a_warning(choice: str, warned: bool) -> None:
    question = replace(QUESTION, options={"A": "Yes", "B": "No"})
    answer = replace(answer_with(choice, "Without oxygen there was no benefit."), question=question)
    expected = ["It says yes, and a quoted sentence speaks of no effect, benefit or difference: read it."]
    assert list(list_warnings(answer)) == (expected if warned else [])
