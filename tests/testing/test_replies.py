"""What the fakes say satisfies the schema it is asked for, and depends on what it should."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from epicrisis.answering.reply_parsing import AnswerFormat
from epicrisis.answering.strategy_context import PROMPTS
from epicrisis.core.prompts import fence, render
from tests.support.replies import fill, schema_reply

OPTIONS = {"A": "yes", "B": "no", "C": "maybe"}
DOCUMENTS = ["Title (2015)\nAspirin lowers the risk of stroke.", 'The trial said "no effect" of warfarin at all.']
FORMS = {
    "map": AnswerFormat(OPTIONS, text_field="finding", documents=2, choice_may_be_null=True),
    "rag": AnswerFormat(OPTIONS, documents=2),
    "reduce": AnswerFormat(OPTIONS, sources=2),
    "closed_book": AnswerFormat(OPTIONS),
    "chain_of_thought": AnswerFormat(OPTIONS, reasoning=True),
}


def body_of(
    stage: str, question: str, form: AnswerFormat, documents: list[str] = DOCUMENTS, **more: object
) -> dict[str, Any]:
    prompt = render(PROMPTS, stage, about=(), question=question, options=form.options, documents=fence(documents))
    schema = {"type": "json_schema", "json_schema": {"name": "reply", "schema": form.schema()}}
    messages = [{"role": message.role, "content": message.content} for message in prompt.messages]
    return {"messages": messages, "response_format": schema, **more}


def satisfies(value: Any, schema: Mapping[str, Any]) -> bool:
    """An independent reading of the few words of JSON schema that ours use."""
    if "anyOf" in schema:
        return sum(satisfies(value, branch) for branch in schema["anyOf"]) == 1
    if "enum" in schema and value not in schema["enum"]:
        return False
    if schema.get("type") == "object":
        inner = schema["properties"]
        return set(value) == set(inner) == set(schema["required"]) and all(satisfies(value[n], inner[n]) for n in inner)
    if schema.get("type") == "array":
        return schema["minItems"] <= len(value) <= schema["maxItems"] and all(
            satisfies(item, schema["items"]) for item in value
        )
    if schema.get("type") == "string":
        return isinstance(value, str) and schema["minLength"] <= len(value) <= schema["maxLength"]
    return True


@pytest.mark.parametrize("stage", FORMS)
def test_reply_matches_schema_of_stage(stage: str) -> None:
    form = FORMS[stage]
    text = schema_reply(body_of(stage, "Does it help?", form))
    assert satisfies(json.loads(text), form.schema())
    reply = form.parse(text)
    assert reply.has_answer
    assert reply.choice in OPTIONS
    assert bool(reply.sources) == (stage == "reduce")
    for doc, words in reply.quotes:
        assert words in DOCUMENTS[doc - 1]
    assert bool(reply.quotes) == bool(form.documents)


def test_choice_depends_only_on_question() -> None:
    def choice(question: str, stage: str, documents: list[str] = DOCUMENTS, **more: object) -> str | None:
        return FORMS[stage].parse(schema_reply(body_of(stage, question, FORMS[stage], documents, **more))).choice

    questions = [f"Does drug {number} help?" for number in range(30)]
    choices = [choice(question, "reduce") for question in questions]
    assert set(choices) == set(OPTIONS)
    for stage in FORMS:
        assert [choice(question, stage) for question in questions] == choices
    assert [choice(question, "map", DOCUMENTS[1:]) for question in questions] == choices
    assert [choice(question, "rag", seed=5, temperature=0.9) for question in questions] == choices


def test_reply_without_schema_names_choice_in_prose() -> None:
    body = body_of("rag", "Does it help?", FORMS["rag"])
    held = FORMS["rag"].parse(schema_reply(body))
    free = FORMS["rag"].parse(schema_reply({**body, "response_format": None}))
    assert free.choice == held.choice
    open_form = AnswerFormat({}, documents=2)
    plain = schema_reply({"messages": [{"role": "user", "content": [{"type": "text", "text": "Why?"}]}]})
    assert open_form.parse(plain).has_answer


@pytest.mark.long
@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "string", "minLength": 6, "maxLength": 8}, "text.."),
        ({"type": "string", "maxLength": 2}, "te"),
        ({"type": "integer", "minimum": 3}, 3),
        ({"type": "number", "exclusiveMinimum": 3}, 4),
        ({"type": "integer", "maximum": -2}, -2),
        ({"type": "boolean"}, True),
        ({"type": ["null", "string"]}, None),
        ({"const": "x"}, "x"),
        ({"enum": ["b", "a"]}, "b"),
        ({"type": "array", "items": {"enum": [1, 2]}, "minItems": 2}, [1, 1]),
        ({"type": "array"}, []),
        ({"properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"oneOf": [{"const": 7}]}}}, {"a": 7}),
        ({"properties": {"named": {"type": "string"}}}, {"named": 5}),
        (
            {"anyOf": [{"properties": {"named": {"enum": [4]}}}, {"properties": {"named": {"enum": [5]}, "b": {}}}]},
            {"named": 5, "b": "text"},
        ),
        ({"anyOf": [{"properties": {"named": {"enum": [4]}}}]}, {"named": 5}),
    ],
)
def test_any_schema_gets_valid_reply(schema: dict[str, Any], value: object) -> None:
    assert fill(schema, {"named": 5}, "text") == value
