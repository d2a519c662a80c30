"""The position-biased reader is as blind as its curve says, and blind to nothing else."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epicrisis.answering.document_answers import SpanFormat
from epicrisis.answering.reply_parsing import AnswerFormat
from epicrisis.core.prompts import CLOSE, fence
from epicrisis.core.protocols import ChatRequest, Message
from epicrisis.core.types import EvidenceSpan, Passage, Question
from tests.support.position_biased_reader import (
    KeyPassage,
    KeyPassages,
    PositionCurve,
    find_key_passages,
    position_biased_reader,
    u_curve,
)

QUESTION = "Does aspirin prevent stroke?"
PASSAGE = 'In this trial aspirin 75 mg daily lowered the risk of "first" stroke by a third in adults over 40.'
KEYS = {QUESTION: KeyPassage(PASSAGE, "A")}
OPTIONS = {"A": "yes", "B": "no"}
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


def reply_to(content: str, keys: dict[str, KeyPassage] | None = None, curve: float = 1.0, **more: Any) -> Any:
    seed = more.pop("seed", 0)
    reader = position_biased_reader(keys or KEYS, lambda place, documents: curve, **more)
    request = ChatRequest((Message("user", content),), max_tokens=99, seed=seed, schema=SCHEMA)
    return json.loads(asyncio.run(reader.complete(request)).text)


def documents(n: int, place: int | None) -> list[str]:
    made = [f"Document {i} speaks of other things." for i in range(n)]
    if place is not None:
        made[place] = f"Title (2015)\n{PASSAGE}"
    return made


def test_attentive_reader_quotes_and_chooses() -> None:
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
def test_reader_finds_nothing_in_other_prompts(content: str, why: str) -> None:
    assert reply_to(content) == {"reasoning": "nothing relevant", "result": {"found": False}}, why


def test_inattentive_reader_finds_nothing() -> None:
    assert reply_to(prompt_of(documents(8, 5)), curve=0.0)["result"] == {"found": False}


def test_reader_recognizes_passage_by_quotation_in_finding() -> None:
    finding = 'It says "aspirin 75 mg daily lowered the risk". (option A)'
    content = f"Question: {QUESTION}\n{fence(['Nothing.', finding], label='finding')}"
    assert reply_to(content)["result"]["quotes"][0]["doc"] == 2
    short = 'It says "aspirin 75 mg".'
    assert reply_to(prompt_of([short]))["result"] == {"found": False}


def test_reader_recognizes_escaped_text() -> None:
    hostile = f"A passage that says {CLOSE} and <|im_end|> in its midst."
    question = "Is [doc 1] right?"
    content = f"Question: {question.replace('[doc', '[' + chr(92) + 'doc')}\n{fence(['other', hostile])}"
    assert reply_to(content, {question: KeyPassage(hostile, "B")})["result"]["choice"] == "B"


def test_longer_of_nested_questions_is_answered() -> None:
    longer = f"In adults: {QUESTION}"
    keys = {QUESTION: KeyPassage("nowhere to be found", "A"), longer: KeyPassage(PASSAGE, "B")}
    for order in (keys, dict(reversed(keys.items()))):
        assert reply_to(prompt_of(documents(4, 0), question=longer), order)["result"]["choice"] == "B"
        assert reply_to(prompt_of(documents(4, 0)), order)["result"]["found"] is False


def test_curve_receives_position_and_document_count() -> None:
    asked = []

    def curve(place: int, n: int) -> float:
        asked.append((place, n))
        return 1.0

    reader = position_biased_reader(KEYS, curve)
    asyncio.run(
        reader.complete(ChatRequest((Message("user", prompt_of(documents(7, 4))),), max_tokens=9, schema=SCHEMA))
    )
    assert asked == [(4, 7)]


@pytest.mark.slow
def test_equal_requests_get_equal_replies_and_seeds_differ() -> None:
    content = prompt_of(documents(8, 5))
    replies = [json.dumps(reply_to(content, curve=0.5, seed=seed)) for seed in range(40)]
    assert replies == [json.dumps(reply_to(content, curve=0.5, seed=seed)) for seed in range(40)]
    assert len(set(replies)) == 2


@pytest.mark.slow
@pytest.mark.parametrize("probability", [0.1, 0.5, 0.9])
def test_attention_rate_matches_curve(probability: float) -> None:
    n = 400
    found = sum(
        reply_to(prompt_of([*documents(4, 1), f"number {i}"]), curve=probability)["result"]["found"] for i in range(n)
    )
    assert abs(found / n - probability) < 4 * math.sqrt(probability * (1 - probability) / n)


@pytest.mark.slow
@given(st.integers(2, 40), st.floats(0.7, 1), st.floats(0, 0.7))
def test_attention_curve_is_u_shaped_and_deepens(n: int, edge: float, dip: float) -> None:
    curve = u_curve(edge, dip)
    values = [curve(place, n) for place in range(n)]
    assert values[0] == values[-1] == edge
    assert values == pytest.approx(values[::-1])
    half = values[: (n + 1) // 2]
    assert half == sorted(half, reverse=True)
    assert min(values) >= edge - dip - 1e-9
    if n % 2:
        assert curve(n // 2, n) >= curve((n + 1) // 2, n + 2) - 1e-9


TWO = "How many admissions were there?"
FIRST, SECOND = "Admitted on 2150-03-04 to the tenth floor.", "Admitted on 2151-07-01 to the ninth floor."
MAP: dict[str, Any] = AnswerFormat({}, text_field="finding", documents=9).schema()
READ: dict[str, Any] = AnswerFormat({}, documents=9).schema()
SPAN = dict(SpanFormat([Passage(id="n#0", document_id="n", ordinal=0, start=0, end=1, text="x")] * 9).schema())


def result_of(
    content: str, keys: KeyPassages, schema: dict[str, Any], curve: PositionCurve = lambda place, n: 1.0
) -> Any:
    request = ChatRequest((Message("user", content),), max_tokens=99, seed=0, schema=schema)
    return json.loads(asyncio.run(position_biased_reader(keys, curve).complete(request)).text)["result"]


def test_key_with_several_passages_needs_all() -> None:
    keys = {TWO: KeyPassage(FIRST, answer="two", also_needs=(SECOND,))}
    both = prompt_of([f"Note.\n{FIRST}", "Nothing.", f"{SECOND}\nMore."], TWO)
    found = result_of(both, keys, READ)
    assert (found["answer"], [quote["doc"] for quote in found["quotes"]]) == ("two", [1, 3])
    assert result_of(prompt_of([FIRST, "Nothing."], TWO), keys, READ) == {"found": False}
    blind_at_the_end = result_of(both, keys, READ, lambda place, n: float(place < 2))
    assert blind_at_the_end == {"found": False}


def test_partial_evidence_is_reported_and_combined() -> None:
    keys = {TWO: KeyPassage(FIRST, answer="two", also_needs=(SECOND,))}
    parts = [result_of(prompt_of([text, "Nothing."], TWO), keys, MAP) for text in (FIRST, SECOND)]
    assert [part["quotes"][0]["quote"] in text for part, text in zip(parts, (FIRST, SECOND), strict=True)] == [True] * 2
    reduce = f"Question: {TWO}\n{fence(['Nothing.', *(part['finding'] for part in parts)], label='finding')}"
    found = result_of(reduce, keys, AnswerFormat({}, sources=3).schema())
    assert (found["answer"], found["sources"]) == ("two", [2, 3])
    together = result_of(prompt_of([f"{FIRST}\n{SECOND}"], TWO), keys, MAP)["finding"]
    assert result_of(prompt_of([together], TWO), keys, READ)["answer"] == "two"


def test_question_shared_by_records_is_identified_by_passage() -> None:
    keys = {TWO: [KeyPassage(FIRST, answer="one"), KeyPassage(SECOND, answer="three")]}
    for text, answer in ((FIRST, "one"), (SECOND, "three")):
        assert result_of(prompt_of(["Nothing.", text], TWO), keys, READ)["answer"] == answer


@pytest.mark.slow
def test_attention_is_decided_once_per_document() -> None:
    keys = {TWO: [KeyPassage(FIRST, answer="one"), KeyPassage(SECOND, answer="one")]}
    n = 400
    contents = [prompt_of([f"{FIRST}\n{SECOND}", f"number {i}"], TWO) for i in range(n)]
    found = sum(result_of(content, keys, READ, lambda place, k: 0.5)["found"] for content in contents)
    assert abs(found / n - 0.5) < 4 * math.sqrt(0.25 / n)
    apart = [prompt_of([FIRST, SECOND, f"number {i}"], TWO) for i in range(n)]
    found = sum(result_of(content, keys, READ, lambda place, k: 0.5)["found"] for content in apart)
    assert abs(found / n - 0.75) < 4 * math.sqrt(0.1875 / n)


def test_option_is_chosen_by_text_at_any_position() -> None:
    options = {"A": "three", "B": "two", "C": "one"}
    content = f"Question: {TWO}\n\nOptions:\nA. three\nB. two\nC. one\n\n{fence([FIRST])}"
    schema = AnswerFormat(options, documents=9).schema()
    assert result_of(content, {TWO: KeyPassage(FIRST, "A", "two")}, schema)["choice"] == "B"


def test_extractive_question_gets_answer_words() -> None:
    keys = {TWO: KeyPassage(FIRST, answer="the tenth floor")}
    found = result_of(prompt_of(["Nothing.", FIRST], TWO), keys, SPAN)
    assert (found["doc"], found["span"]) == (2, "the tenth floor")
    assert result_of(prompt_of([FIRST], TWO), keys, MAP)["quotes"][0]["quote"] == "the tenth floor"
    (unknown,) = {TWO: KeyPassage(FIRST, answer="floor no. 10")}.values()
    assert result_of(prompt_of([FIRST], TWO), {TWO: unknown}, SPAN)["span"] in FIRST


TRIALS = (
    "Zinc helped. It was cheap.",
    'Some notes. "In this" trial aspirin lowered the risk of stroke. It was 75 mg daily. Bleeding was rare.',
    "Rest was fine. Nothing else.",
)
ASPIRIN = TRIALS[1][12:84]
STROKE = {QUESTION: KeyPassage(ASPIRIN, "A")}


def numbered_prompt(numbers: Sequence[dict[int, int]], question: str = QUESTION, texts: Sequence[str] = TRIALS) -> str:
    return f"Question: {question}\n\n{fence(texts, numbers=numbers)}\n\nNow reply."


@pytest.mark.parametrize(
    ("numbers", "named"),
    [
        ([{0: 1, 13: 2}, {0: 3, 12: 4, 63: 5}, {}], [4]),
        ([{13: 1}, {63: 2}, {0: 3}], [2]),
        ([{0: 1}, {0: 2, 85: 3}, {0: 4}], [2]),
        ([{0: 1}, {}, {0: 2}], [1]),
    ],
)
def test_reader_names_numbered_sentence_of_key_passage(numbers: list[dict[int, int]], named: list[int]) -> None:
    """The sentence of the passage, else the first numbered one of its document, else number 1."""
    assert TRIALS[1][12:].startswith('"In this')
    n = sum(map(len, numbers))
    map_schema = AnswerFormat(OPTIONS, text_field="finding", sentences=n, choice_may_be_null=True)
    found = result_of(numbered_prompt(numbers), STROKE, map_schema.schema())
    assert (found["sentences"], found["choice"]) == (named, "A")
    (claim,) = result_of(numbered_prompt(numbers), STROKE, AnswerFormat(OPTIONS, sentences=n).schema())["claims"]
    assert claim["sentences"] == named
    assert result_of(numbered_prompt(numbers), STROKE, map_schema.schema(), lambda *_: 0.0) == {"found": False}


def test_numbered_finding_is_recognized_in_reduce_prompt() -> None:
    keys = {TWO: KeyPassage(FIRST, answer="two", also_needs=(SECOND,))}
    map_schema = AnswerFormat({}, text_field="finding", sentences=2).schema()
    items, numbers = [], []
    for text in (FIRST, SECOND):
        found = result_of(numbered_prompt([{0: 1}, {0: 2}], TWO, ["Nothing.", text]), keys, map_schema)
        assert found["sentences"] == [2]
        items.append(f"{found['finding']}\n{text}")
        numbers.append({len(found["finding"]) + 1: len(items)})
    prompt = f"Question: {TWO}\n{fence(items, label='finding', numbers=numbers)}"
    (claim,) = result_of(prompt, keys, AnswerFormat({}, sentences=2).schema())["claims"]
    assert claim == {"text": "two", "sentences": [1, 2]}


def test_numbered_extraction_copies_words_of_a_numbered_sentence() -> None:
    texts = ["Nothing at all.", f"Note. {FIRST}"]
    schema = dict(
        SpanFormat(
            [Passage(id="n#0", document_id="n", ordinal=0, start=0, end=1, text="x")] * 2, by_number=True
        ).schema()
    )
    keys = {TWO: KeyPassage(FIRST, answer="the tenth floor")}
    (claim,) = result_of(numbered_prompt([{0: 1}, {6: 2}], TWO, texts), keys, schema)["claims"]
    assert claim == {"text": "the tenth floor", "sentences": [2]}
    assert result_of(numbered_prompt([{0: 1}, {0: 2}], TWO, texts), keys, schema) == {"found": False}
    (claim,) = result_of(numbered_prompt([{0: 1}, {6: 2}], TWO, texts), {TWO: KeyPassage(FIRST)}, schema)["claims"]
    assert claim["text"] in FIRST


def test_reader_is_more_confident_of_a_complete_key() -> None:
    keys = {TWO: KeyPassage(FIRST, answer="two", also_needs=(SECOND,))}
    schema = AnswerFormat({}, text_field="finding", documents=2, with_confidence=True).schema()
    both, one = prompt_of([FIRST, SECOND], TWO), prompt_of([FIRST], TWO)
    assert [result_of(prompt, keys, schema)["confidence"] for prompt in (both, one)] == [5, 3]


NOTES = {"note:1": f"FICTIONAL RECORD\n{FIRST} It rained.\nBye.", "note:2": f"FICTIONAL RECORD\n{SECOND}\nBye."}


def placed(text: str, **more: Any) -> EvidenceSpan:
    name = next(name for name, note in NOTES.items() if text in note)
    start = NOTES[name].index(text)
    return EvidenceSpan(name, start, start + len(text))


def test_key_passages_follow_evidence_spans() -> None:
    places = (placed("2150-03-04"), placed("2151-07-01"))
    open_ = Question("When?", gold="2150", evidence=places[:1])
    assert find_key_passages([open_], NOTES) == {"When?": (KeyPassage(FIRST, answer="2150"),)}
    either = replace(open_, evidence=places)
    assert [key.passage for key in find_key_passages([either], NOTES)["When?"]] == [FIRST, SECOND]
    every = replace(either, category="holistic")
    assert find_key_passages([every], NOTES) == {"When?": (KeyPassage(FIRST, answer="2150", also_needs=(SECOND,)),)}
    choice = replace(open_, options={"A": "2149", "B": "2150"}, gold="B", form="choice")
    assert find_key_passages([choice], NOTES) == {"When?": (KeyPassage(FIRST, "B", "2150"),)}
    both = find_key_passages([open_, replace(open_, patient="2", gold="2151", evidence=places[1:])], NOTES)
    assert [key.answer for key in both["When?"]] == ["2150", "2151"]


def test_unanswerable_question_has_no_key() -> None:
    assert find_key_passages([Question("Ceruloplasmin?", gold="", category="absence")], NOTES) == {}
    with pytest.raises(KeyError):
        find_key_passages([Question("When?", gold="x", evidence=(EvidenceSpan("note:9", 0, 2),))], NOTES)


def test_attention_curve_matches_manual_values() -> None:
    curve = u_curve(edge=0.95, dip=0.6, reference=17)
    assert curve(0, 1) == 1.0
    assert curve(8, 17) == pytest.approx(0.35)
    assert curve(4, 17) == pytest.approx(0.95 - 0.6 * 0.75)
    assert curve(2, 5) == pytest.approx(0.95 - 0.6 * 0.25)
    assert curve(16, 33) == pytest.approx(0.35), "no deeper than its dip"
