"""Test the endings of cases: empty, refused and wrong answers are distinct."""

from __future__ import annotations

from typing import Any

import pytest

from epicrisis.core.types import AnswerState, Question
from epicrisis.evaluation.grading.scored_answers import ENDINGS, Ending, classify_ending, is_refusal
from epicrisis.pipeline.recording.answer_record import RunRecord
from tests.support.measuring import question, record


def ending_of_json(value: dict[str, Any]) -> Ending:
    return classify_ending(RunRecord.model_validate(value))


@pytest.mark.parametrize(
    ("state", "text", "failure", "ending"),
    [
        ("answered", "80 mg.", None, "answered"),
        ("answered", "  \n", None, "empty"),
        ("failed", "", "EmptyReply", "empty"),
        ("unparsed", "", "EmptyReply", "empty"),
        ("failed", "", "ReplyWithheld", "refused"),
        ("answered", "I'm sorry, but I can't assist with that request.", None, "refused"),
        ("unparsed", "As an AI language model, I do not give doses.", None, "refused"),
        ("failed", "", "ContextOverflow", "over-window"),
        ("failed", "", "EndpointTimeout", "failed"),
        ("unparsed", "what is this", "Unreadable", "unparsed"),
        ("abstained", "I cannot help with this: the notes do not say.", None, "abstained"),
    ],
)
def test_ending_follows_state_failure_and_text(
    state: AnswerState, text: str, failure: str | None, ending: Ending
) -> None:
    assert ending_of_json(record(question(), text, state, failure=failure)) == ending
    assert ending in ENDINGS


def test_ending_of_withheld_refusal_is_refused() -> None:
    withheld = record(question(), "", "abstained")
    withheld["answer"]["withheld"] = {"text": "I'm sorry, but I can't assist with that request.", "reason": "it quotes"}
    assert ending_of_json(withheld) == "refused"
    withheld["answer"]["withheld"]["text"] = "80 mg."
    assert ending_of_json(withheld) == "abstained"


@pytest.mark.parametrize(
    "text",
    [
        "I cannot help with that.",
        "I can't provide medical advice about a real patient.",
        "I won't answer this.",
        "Sorry, I am unable to assist with medical questions.",
        "I must decline to answer.",
        "As an AI, I do not know.",
        "I'm really sorry, but as a language model I have no view.",
        "I am not able to discuss that.",
    ],
)
def test_is_refusal_accepts_refusals(text: str) -> None:
    assert is_refusal(text)


@pytest.mark.parametrize(
    "text",
    [
        "Pulmonary embolism cannot be excluded.",
        "The patient said 'I cannot help with the stairs'.",
        "I cannot find the dose in the notes.",
        "Unfortunately the patient died.",
        "Sorry, the dose is not stated.",
        "Aid for walking was given.",
        "The patient was unable to answer questions.",
        "As an inpatient he had 40 mg.",
        "I can help with this: 40 mg.",
        "",
    ],
)
def test_is_refusal_rejects_answers(text: str) -> None:
    assert not is_refusal(text)


def test_ending_of_choice_ignores_its_words() -> None:
    sample = Question("Which?", options={"A": "I cannot help with it", "B": "40 mg"}, form="choice", id="c", gold="A")
    line: dict[str, Any] = record(sample, "I cannot help with it", "answered")
    line["answer"]["choice"] = "A"
    assert ending_of_json(line) == "answered"
    line["answer"]["text"] = ""
    assert ending_of_json(line) == "answered", "a letter is an answer without words"
