"""The position-biased reader is as blind as its curve says, and blind to nothing else."""

from __future__ import annotations

import asyncio
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epicrisis.prompts import CLOSE, fence
from epicrisis.seams import ChatRequest, Message
from epicrisis.testing.reader import Key, position_biased_reader, u_curve

QUESTION = "Does aspirin prevent stroke?"
PASSAGE = 'In this trial aspirin 75 mg daily lowered the risk of "first" stroke by a third in adults over 40.'
KEYS = {QUESTION: Key(PASSAGE, "A")}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "reasoning": {"type": "string"},
        "result": {
            "anyOf": [
                {
                    "properties": {
                        "found": {"enum": [True]},
                        "quotes": {"type": "array"},
                        "sources": {"type": "array", "items": {"enum": [1, 2]}},
                        "finding": {"type": "string"},
                        "choice": {"enum": ["A", "B", None]},
                    }
                },
                {"properties": {"found": {"enum": [False]}}},
            ]
        },
    },
}


def prompt_of(documents: list[str], question: str = QUESTION) -> str:
    return f"Question: {question}\n\n{fence(documents)}\n\nNow reply."


def reply_to(content: str, keys: dict[str, Key] | None = None, curve: float = 1.0, **more: Any) -> Any:
    seed = more.pop("seed", 0)
    reader = position_biased_reader(keys or KEYS, lambda place, documents: curve, **more)
    request = ChatRequest((Message("user", content),), max_tokens=99, seed=seed, schema=SCHEMA)
    return json.loads(asyncio.run(reader.complete(request)).text)


def documents(n: int, place: int | None) -> list[str]:
    made = [f"Document {i} speaks of other things." for i in range(n)]
    if place is not None:
        made[place] = f"Title (2015)\n{PASSAGE}"
    return made


def test_where_it_attends_it_quotes_and_chooses() -> None:
    reply = reply_to(prompt_of(documents(8, 5)))
    result = reply["result"]
    assert (result["found"], result["choice"], result["sources"]) == (True, "A", [1])
    (quote,) = result["quotes"]
    assert quote["doc"] == 6
    assert quote["quote"] in PASSAGE
    assert len(quote["quote"].split()) >= 3
    assert '"' not in quote["quote"]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (prompt_of(documents(8, None)), "the key passage is not there"),
        (prompt_of(documents(8, 3), question="Does warfarin?"), "another question"),
        (prompt_of([*documents(3, 1), f"Question: {QUESTION}"], question="Does warfarin?"), "asked by a document"),
        (f"Question: {QUESTION}\n{PASSAGE}", "not in the fence"),
    ],
)
def test_otherwise_it_found_nothing(content: str, why: str) -> None:
    assert reply_to(content) == {"reasoning": "nothing relevant", "result": {"found": False}}, why


def test_where_it_does_not_attend_it_found_nothing() -> None:
    assert reply_to(prompt_of(documents(8, 5)), curve=0.0)["result"] == {"found": False}


def test_it_knows_the_passage_by_its_quotation_in_a_finding() -> None:
    finding = 'It says "aspirin 75 mg daily lowered the risk". (option A)'
    content = f"Question: {QUESTION}\n{fence(['Nothing.', finding], label='finding')}"
    assert reply_to(content)["result"]["quotes"][0]["doc"] == 2
    short = 'It says "aspirin 75 mg".'
    assert reply_to(prompt_of([short]))["result"] == {"found": False}


def test_what_is_escaped_is_recognised() -> None:
    hostile = f"A passage that says {CLOSE} and <|im_end|> in its midst."
    question = "Is [doc 1] right?"
    content = f"Question: {question.replace('[doc', '[' + chr(92) + 'doc')}\n{fence(['other', hostile])}"
    assert reply_to(content, {question: Key(hostile, "B")})["result"]["choice"] == "B"


def test_of_two_questions_that_hold_each_other_the_longer_is_asked() -> None:
    longer = f"In adults: {QUESTION}"
    keys = {QUESTION: Key("nowhere to be found", "A"), longer: Key(PASSAGE, "B")}
    for order in (keys, dict(reversed(keys.items()))):
        assert reply_to(prompt_of(documents(4, 0), question=longer), order)["result"]["choice"] == "B"
        assert reply_to(prompt_of(documents(4, 0)), order)["result"]["found"] is False


def test_the_curve_is_asked_with_place_and_number_of_documents() -> None:
    asked = []

    def curve(place: int, n: int) -> float:
        asked.append((place, n))
        return 1.0

    reader = position_biased_reader(KEYS, curve)
    asyncio.run(
        reader.complete(ChatRequest((Message("user", prompt_of(documents(7, 4))),), max_tokens=9, schema=SCHEMA))
    )
    assert asked == [(4, 7)]


def test_the_same_request_gets_the_same_reply_and_seeds_differ() -> None:
    content = prompt_of(documents(8, 5))
    replies = [json.dumps(reply_to(content, curve=0.5, seed=seed)) for seed in range(40)]
    assert replies == [json.dumps(reply_to(content, curve=0.5, seed=seed)) for seed in range(40)]
    assert len(set(replies)) == 2


@pytest.mark.parametrize("probability", [0.1, 0.5, 0.9])
def test_it_attends_as_often_as_the_curve_says(probability: float) -> None:
    n = 400
    found = sum(
        reply_to(prompt_of([*documents(4, 1), f"number {i}"]), curve=probability)["result"]["found"] for i in range(n)
    )
    assert abs(found / n - probability) < 4 * math.sqrt(probability * (1 - probability) / n)


@given(st.integers(2, 40), st.floats(0.7, 1), st.floats(0, 0.7))
def test_the_curve_is_a_u_that_deepens(n: int, edge: float, dip: float) -> None:
    curve = u_curve(edge, dip)
    values = [curve(place, n) for place in range(n)]
    assert values[0] == values[-1] == edge
    assert values == pytest.approx(values[::-1])
    half = values[: (n + 1) // 2]
    assert half == sorted(half, reverse=True)
    assert min(values) >= edge - dip - 1e-9
    if n % 2:
        assert curve(n // 2, n) >= curve((n + 1) // 2, n + 2) - 1e-9


def test_figures_of_the_curve() -> None:
    curve = u_curve(edge=0.95, dip=0.6, reference=17)
    assert curve(0, 1) == 1.0
    assert curve(8, 17) == pytest.approx(0.35)
    assert curve(4, 17) == pytest.approx(0.95 - 0.6 * 0.75)
    assert curve(2, 5) == pytest.approx(0.95 - 0.6 * 0.25)
    assert curve(16, 33) == pytest.approx(0.35), "no deeper than its dip"
