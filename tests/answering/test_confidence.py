"""Test the confidence of answers: its components, their mean, and the calibrated value."""

from __future__ import annotations

from dataclasses import replace

import pytest

from epicrisis.answering.confidence import ConfidenceCalibration, add_confidence, estimate_confidence
from epicrisis.answering.strategies.brief_context import brief_context
from epicrisis.core.answers import Answer, Claim, Confidence, PartialAnswer, Vote, VoteMargin
from epicrisis.core.types import Question, SupportState
from epicrisis.testing.chat import ScriptedModel
from tests.support.strategies import NOT_FOUND, finding, passages, run, said, world

ASKED = Question("Does it help?", options={"A": "yes", "B": "no", "C": " yes "}, form="choice")
ANSWER = Answer(question=ASKED, strategy="brief-context", state="answered", text="It helps.", choice="A")
CALIBRATION = ConfidenceCalibration(
    slope=4.0, intercept=-2.0, strategy="brief-context", models=("qwen",), components=("parts",), n=100
)


def partial(state: str, choice: str | None = None) -> PartialAnswer:
    return PartialAnswer(partition=0, passages=("d#0",), state=state, choice=choice)  # type: ignore[arg-type]


def claims(*states: SupportState) -> tuple[Claim, ...]:
    return tuple(Claim("It helps.", support=state, checked_by="rules") for state in states)


def test_relevant_parts_with_same_option_are_counted() -> None:
    parts = (
        partial("relevant", "A"),
        partial("relevant", "C"),  # the same text as A
        partial("relevant", "B"),
        partial("relevant"),
        partial("nothing"),
        partial("failed"),
    )
    assert estimate_confidence(replace(ANSWER, partials=parts)) == Confidence(0.5, {"parts": 0.5})


def test_parts_without_choice_give_no_confidence() -> None:
    assert estimate_confidence(replace(ANSWER, partials=(partial("relevant"), partial("nothing")))) is None
    assert estimate_confidence(replace(ANSWER, partials=(partial("nothing"),))) is None
    assert estimate_confidence(ANSWER) is None


def test_distribution_of_votes_and_of_letter_have_own_names() -> None:
    answer = replace(ANSWER, distribution={"A": 0.75, "B": 0.25})
    vote = Vote(number=0, letter_order=("A", "B", "C"), state="answered", choice="A")
    assert estimate_confidence(answer) == Confidence(0.75, {"probability": 0.75})
    assert estimate_confidence(replace(answer, votes=(vote,))) == Confidence(0.75, {"votes": 0.75})


def test_isolated_votes_are_votes_and_no_agreement_of_parts() -> None:
    margin = VoteMargin("documents", 4, {"A": 3, "B": 1}, "A", 1)
    parts = (partial("relevant", "A"), partial("relevant", "B"))
    answer = replace(ANSWER, distribution={"A": 0.75, "B": 0.25}, margin=margin, partials=parts)
    assert estimate_confidence(answer) == Confidence(0.75, {"votes": 0.75})


def test_only_checked_claims_are_counted() -> None:
    checked = replace(ANSWER, claims=(*claims("supported", "contradicted", "not-checked"), Claim("It is cheap.")))
    assert estimate_confidence(checked) == Confidence(pytest.approx(1 / 3), {"claims": pytest.approx(1 / 3)})  # type: ignore[arg-type, dict-item]
    assert estimate_confidence(replace(ANSWER, claims=(Claim("It is cheap."),))) is None


def test_value_is_mean_of_known_components() -> None:
    checked = replace(ANSWER, claims=claims("supported"), withheld_claims=claims("contradicted"))
    answer = replace(checked, partials=(partial("relevant", "A"),))
    assert estimate_confidence(answer) == Confidence(0.75, {"parts": 1.0, "claims": 0.5})


@pytest.mark.parametrize("state", ["abstained", "unparsed", "failed", "over-window"])
def test_answer_without_answered_state_has_no_confidence(state: str) -> None:
    answer = replace(ANSWER, distribution={"A": 0.5, "B": 0.5}, state=state)  # type: ignore[arg-type]
    assert estimate_confidence(answer) is None
    assert add_confidence(answer, CALIBRATION).confidence is None


def test_open_answer_has_confidence_of_its_claims_alone() -> None:
    answer = Answer(
        question=Question("What helps?"),
        strategy="brief-context",
        state="answered",
        text="Rest.",
        claims=claims("supported"),
    )
    answer = replace(answer, partials=(partial("relevant"),))
    assert estimate_confidence(answer) == Confidence(1.0, {"claims": 1.0})


def test_calibrated_value_is_logistic_in_confidence() -> None:
    answer = add_confidence(replace(ANSWER, partials=(partial("relevant", "A"), partial("relevant", "B"))), CALIBRATION)
    assert answer.confidence == Confidence(0.5, {"parts": 0.5}, calibrated=0.5)
    certain = add_confidence(replace(ANSWER, partials=(partial("relevant", "A"),)), CALIBRATION).confidence
    assert certain is not None
    assert certain.calibrated == pytest.approx(0.8807970779778823)  # 1 / (1 + e^-2)


def test_calibration_of_other_answers_does_not_apply() -> None:
    answer = replace(ANSWER, partials=(partial("relevant", "A"),))
    for other in (
        replace(answer, strategy="rag"),
        replace(answer, claims=claims("supported")),
        replace(answer, choice=None, partials=(), claims=claims("supported")),
    ):
        confidence = add_confidence(other, CALIBRATION).confidence
        assert confidence is not None
        assert confidence.calibrated is None
    assert CALIBRATION.fits("brief-context", {"qwen"}, "quotes")
    assert not CALIBRATION.fits("rag", {"qwen"}, "quotes")
    assert not CALIBRATION.fits("brief-context", {"qwen", "llama"}, "quotes")
    assert not CALIBRATION.fits("brief-context", {"qwen"}, "numbers")
    assert replace(CALIBRATION, citing="numbers").fits("brief-context", {"qwen"}, "numbers")


def test_calibration_of_strategy_without_citations_fits_any_way_of_citing() -> None:
    votes = replace(CALIBRATION, strategy="zero-shot")
    assert votes.fits("zero-shot", {"qwen"}, "numbers")
    assert votes.fits("zero-shot", {"qwen"}, "quotes")


def test_probability_of_steep_calibration_is_finite() -> None:
    steep = replace(CALIBRATION, slope=1e6, intercept=-5e5)
    assert 0 <= steep.probability(0.0) < 1e-300
    assert steep.probability(1.0) == 1.0


def test_brief_context_answer_has_agreement_of_its_parts() -> None:
    """Of four parts one finds nothing, and one of the three others disagrees."""
    choices = {0: "A", 1: "A", 2: "B"}

    def reply(request: object) -> str:
        content = request.messages[-1].content  # type: ignore[attr-defined]
        if "finding" in content and "Trial" not in content:
            return said(claims=[], answer="It helps.", choice="A", sources=[1])
        for number, choice in choices.items():
            if f"Trial {number} found" in content:
                return finding(choice=choice)
        return NOT_FOUND

    answer = run(brief_context, world(ScriptedModel(reply), passages(4), partition=1))
    assert [part.state for part in answer.partials] == ["relevant", "relevant", "relevant", "nothing"]
    assert answer.state == "answered"
    confidence = estimate_confidence(answer)
    assert confidence is not None
    assert confidence.components == {"parts": pytest.approx(2 / 3)}
