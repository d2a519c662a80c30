"""Zero-shot by next token: what the options' probabilities come to."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from epicrisis.answering.confidence import estimate_confidence
from epicrisis.answering.strategies.zero_shot import zero_shot
from epicrisis.core.answers import Notice
from epicrisis.core.types import Question
from epicrisis.testing.chat import ScriptedModel
from tests.support.strategies import OPEN_QUESTION, run, world

ASKED = Question("What is it?", options={"A": "gout", "B": "scurvy", "C": "rickets"}, form="choice")


def telling(told: Mapping[str, float]) -> ScriptedModel:
    return ScriptedModel(lambda _: "A", probabilities=lambda _: told)


def test_most_probable_option_is_choice() -> None:
    model = telling({"A": 0.2, "B": 0.6, "C": 0.1})
    answer = run(zero_shot, world(model, ()), ASKED)
    assert (answer.state, answer.choice, answer.text, answer.decided_by) == ("answered", "B", "scurvy", "probability")
    assert answer.distribution == pytest.approx({"A": 2 / 9, "B": 6 / 9, "C": 1 / 9})
    confidence = estimate_confidence(answer)
    assert confidence is not None
    assert confidence.value == pytest.approx(2 / 3)
    (request,) = model.requests
    assert (request.max_tokens, request.schema, request.options) == (1, None, ("A", "B", "C"))
    assert "A. gout\nB. scurvy\nC. rickets" in request.messages[-1].content


def test_options_without_probability_count_as_zero() -> None:
    answer = run(zero_shot, world(telling({"C": 0.9}), ()), ASKED)
    assert (answer.choice, dict(answer.distribution)) == ("C", {"A": 0.0, "B": 0.0, "C": 1.0})


def test_equally_probable_options_are_no_choice() -> None:
    answer = run(zero_shot, world(telling({"A": 0.25, "B": 0.25, "C": 0.1}), ()), ASKED)
    assert (answer.state, answer.choice, answer.decided_by) == ("abstained", None, "tie")


def test_probabilities_of_equal_texts_are_summed() -> None:
    asked = Question("Which?", options={"A": "other", "B": "same", "C": "same"}, form="choice")
    answer = run(zero_shot, world(telling({"A": 0.4, "B": 0.3, "C": 0.3}), ()), asked)
    assert answer.choice == "B"
    confidence = estimate_confidence(answer)
    assert confidence is not None
    assert confidence.value == pytest.approx(0.6)


def test_low_option_probability_is_noted() -> None:
    asked = world(telling({"A": 0.02, "B": 0.01, "C": 0.01}), ())
    assert run(zero_shot, asked, ASKED).choice == "A"
    assert [notice.message for notice in asked.of(Notice)] == [
        "only 4 % of the next token's probability is on the options"
    ]


@pytest.mark.parametrize("model", [ScriptedModel(lambda _: "A"), telling({})])
def test_missing_probabilities_are_unparsed_with_remedy(model: ScriptedModel) -> None:
    answer = run(zero_shot, world(model, ()), ASKED)
    assert answer.state == "unparsed"
    assert answer.failure is not None
    assert "choose a model that reports log-probabilities" in answer.failure.message


def test_question_without_options_is_rejected() -> None:
    answer = run(zero_shot, world(telling({"A": 1.0}), ()), OPEN_QUESTION)
    assert answer.state == "failed"
    assert answer.failure is not None
    assert "closed-book" in answer.failure.message
