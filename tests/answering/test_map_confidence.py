"""Map findings with a rationale and a confidence, which the reduce call weighs (`map_confidence`)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from epicrisis.answering.reply_parsing import AnswerFormat
from epicrisis.answering.strategies.brief_context import brief_context
from epicrisis.answering.strategy_context import CONFIDENCE_PROMPTS, NUMBERED_PROMPTS, PROMPTS, render_question
from epicrisis.core.answers import MapFinished
from epicrisis.core.protocols import ChatRequest
from epicrisis.core.types import Question
from epicrisis.pipeline.components import describe_optional_prompts
from epicrisis.settings.settings import Settings
from epicrisis.settings.tables import DefenceSettings
from epicrisis.testing.chat import ScriptedModel
from tests.support.numbered_sentences import SENTENCES, claims, numbered_world
from tests.support.strategies import (
    OPEN_QUESTION,
    QUESTION,
    by_stage,
    items_of,
    maps,
    passages,
    per_part,
    reduces,
    run,
    said,
    world,
)

OPTIONS = {"A": "yes", "B": "no"}
REDUCED = said(sources=[2], answer="It does not.", choice="B")


def stated(trial: int, confidence: object, choice: str | None = "A", rationale: str = "It counts strokes.") -> str:
    """A map reply about the first document of its part."""
    quotes = [{"doc": 1, "quote": f"aspirin lowers risk number {trial}"}]
    return said(
        quotes=quotes, rationale=rationale, finding=f"Trial {trial} says so.", choice=choice, confidence=confidence
    )


def fields_of(request: ChatRequest) -> list[str]:
    """The fields of a reply that found something, in the order of the schema."""
    schema: Any = request.schema
    return list(schema["properties"]["result"]["anyOf"][0]["properties"])


def test_reduce_prompt_states_confidence_and_rationale_of_each_finding() -> None:
    script = per_part({0: stated(0, 2), 1: stated(1, 5, "B", "Its patients had strokes.")})
    model = ScriptedModel(by_stage(map=script, reduce=REDUCED))
    asked = world(model, passages(2), partition=1, map_confidence=True)
    answer = run(brief_context, asked)
    (request,) = reduces(model)
    assert items_of(request) == [
        "Trial 0 says so. (option A, 2015, confidence 2 of 5)\nReason: It counts strokes.",
        "Trial 1 says so. (option B, 2015, confidence 5 of 5)\nReason: Its patients had strokes.",
    ]
    assert "greater confidence" in request.messages[-1].content
    assert fields_of(request) == ["found", "sources", "answer", "choice"]
    assert [partial.confidence for partial in answer.partials] == [2, 5]
    assert [partial.rationale for partial in answer.partials] == ["It counts strokes.", "Its patients had strokes."]
    assert [event.partial.confidence for event in asked.of(MapFinished)] == [2, 5]
    assert answer.choice == "B"


@pytest.mark.parametrize("question", [QUESTION, OPEN_QUESTION])
def test_map_reply_has_information_rationale_answer_and_confidence_in_this_order(question: Question) -> None:
    choice = ["choice"] if question.options else []
    model = ScriptedModel(by_stage(map=stated(0, 4), reduce=said(sources=[1], answer="Yes.", choice="A")))
    run(brief_context, world(model, passages(1), map_confidence=True), question)
    assert fields_of(maps(model)[0]) == ["found", "quotes", "rationale", "finding", *choice, "confidence"]
    numbered = ScriptedModel(
        by_stage(
            map=said(sentences=[2], rationale="It says so.", finding="It helps.", choice="A", confidence=4),
            reduce=claims(("It does.", [1]), choice="A"),
        )
    )
    answer = run(brief_context, numbered_world(numbered, map_confidence=True), question)
    assert fields_of(maps(numbered)[0]) == ["found", "sentences", "rationale", "finding", *choice, "confidence"]
    (item,) = items_of(reduces(numbered)[0])
    assert item.endswith(f"confidence 4 of 5)\nReason: It says so.\n{SENTENCES[1]}")
    assert [citation.quotation for citation in answer.citations] == [SENTENCES[1]]


@pytest.mark.parametrize(
    ("stated_value", "value"),
    [
        (0, 0),
        (5, 5),
        (3.5, 3.5),
        ("4", 4),
        ("4/5", 4),
        ("2.5 of 5", 2.5),
        (6, None),
        (-1, None),
        (True, None),
        (None, None),
        ("high", None),
        (float("nan"), None),
        ([4], None),
    ],
)
def test_confidence_outside_the_scale_is_unknown(stated_value: object, value: float | None) -> None:
    form = AnswerFormat(OPTIONS, text_field="finding", documents=1, choice_may_be_null=True, with_confidence=True)
    reply = form.parse(said(finding="It helps.", choice="A", quotes=[], confidence=stated_value))
    assert (reply.has_answer, reply.confidence) == (True, value)


def test_finding_without_confidence_is_kept_and_called_unknown() -> None:
    """An endpoint that does not enforce the schema may leave the confidence out."""
    script = per_part({0: said(quotes=[], finding="It helps.", choice="A"), 1: stated(1, 5, "B", rationale="")})
    model = ScriptedModel(by_stage(map=script, reduce=REDUCED))
    answer = run(brief_context, world(model, passages(2), partition=1, map_confidence=True))
    assert items_of(reduces(model)[0]) == [
        "It helps. (option A, confidence unknown)",
        "Trial 1 says so. (option B, 2015, confidence 5 of 5)",
    ]
    assert [partial.confidence for partial in answer.partials] == [None, 5]


def test_findings_summed_up_in_halves_get_a_new_confidence() -> None:
    """A half of the findings is summed up with a confidence of its own, not with that of its first finding."""

    def reduce(request: ChatRequest) -> str:
        if "confidence" in fields_of(request):
            return said(sources=[1], rationale="Both agree.", answer="A half.", choice="A", confidence=3)
        return said(sources=[1], answer="The whole.", choice="A")

    script = per_part({i: stated(i, 1, rationale="Because " + "word " * 30) for i in range(16)})
    reducer = ScriptedModel(by_stage(reduce=reduce), context_tokens=1100)
    asked = world(
        ScriptedModel(by_stage(map=script)), passages(16), models={"reduce": reducer}, partition=1, map_confidence=True
    )
    answer = run(brief_context, asked)
    requests = reduces(reducer)
    assert len(requests) == 3
    assert ["confidence" in fields_of(request) for request in requests] == [True, True, False]
    assert items_of(requests[-1]) == ["A half. (option A, 2015, confidence 3 of 5)\nReason: Both agree."] * 2
    assert answer.text.startswith("The whole.")


def test_structured_findings_keep_the_confidence_and_drop_the_rationale() -> None:
    model = ScriptedModel(
        by_stage(
            map=said(sentences=[2], rationale="Tell everyone.", finding="It works.", choice="A", confidence=4),
            reduce=claims(("It does.", [1]), choice="A"),
        )
    )
    defence = DefenceSettings(structured_findings=True)
    run(brief_context, numbered_world(model, partition=1, map_confidence=True, defence=defence))
    for item in items_of(reduces(model)[0]):
        assert "confidence 4 of 5" in item
        assert "Tell everyone" not in item
        assert "It works" not in item


def test_spans_of_extractive_questions_have_no_confidence() -> None:
    question = Question("What prevents stroke?", form="extractive")
    extract = said(doc=1, span="aspirin lowers risk number 0")
    reduced = said(sources=[1], answer="aspirin lowers risk number 0")
    settings: dict[bool, list[str]] = {}
    for on in (False, True):
        model = ScriptedModel(by_stage(extract=extract, reduce=reduced))
        run(brief_context, world(model, passages(1), map_confidence=on), question)
        settings[on] = [request.messages[-1].content for request in model.requests]
    assert settings[True] == settings[False]


def test_requests_without_the_setting_ask_for_no_confidence() -> None:
    model = ScriptedModel(by_stage(map=stated(0, 4), reduce=said(sources=[1], answer="Yes.", choice="A")))
    answer = run(brief_context, world(model, passages(1)))
    assert answer.partials[0].confidence is None
    for request in model.requests:
        text = json.dumps(request.schema) + request.messages[-1].content
        assert "confidence" not in text
        assert "rationale" not in text


def test_recipe_names_the_prompts_only_when_the_setting_is_on() -> None:
    assert Settings().model_dump()["map_confidence"] is False
    assert list(describe_optional_prompts(Settings())) == ["numbered_prompts"]
    settings = Settings.model_validate({"map_confidence": True})
    assert settings.model_dump()["map_confidence"] is True
    assert list(describe_optional_prompts(settings)) == ["numbered_prompts", "confidence_prompts"]


def test_isolated_votes_with_map_confidence_are_rejected() -> None:
    with pytest.raises(ValueError, match="map_confidence"):
        Settings.model_validate({"map_confidence": True, "defence": {"isolated_votes": True}})


@pytest.mark.parametrize("numbered", [False, True])
@pytest.mark.parametrize("name", ["map", "reduce"])
def test_prompts_differ_from_those_without_confidence_in_the_instruction_only(name: str, numbered: bool) -> None:
    """A comparison of both must not compare the place of the question as well."""
    values: dict[str, Any] = {"documents": "DOCUMENTS", "about": ("About.",)}
    plain = render_question(name, QUESTION, NUMBERED_PROMPTS if numbered else PROMPTS, **values)
    changed = render_question(name, QUESTION, CONFIDENCE_PROMPTS, **values, numbered=numbered, is_half=False)
    assert changed.messages[0] == plain.messages[0]
    lines, other_lines = (prompt.messages[1].content.splitlines() for prompt in (plain, changed))
    kept = [line for line in lines if line not in other_lines]
    assert len(kept) == (2 if name == "map" else 1)
    assert all(line.startswith(("Report", "The JSON", "Sum up")) for line in kept)
    assert [line for line in other_lines if line in lines] == [line for line in lines if line not in kept]
