"""Closed book, chain of thought and plain RAG."""

from __future__ import annotations

import json
from typing import Any

import pytest

from epicrisis.answering.reply_parsing import AnswerFormat
from epicrisis.answering.strategies.chain_of_thought import chain_of_thought
from epicrisis.answering.strategies.closed_book import closed_book
from epicrisis.answering.strategies.rag import rag
from epicrisis.core.answers import AnswerStarted, ModelCalled, Retrieved, TextDelta
from epicrisis.core.errors import EndpointRejected, ScopeViolation
from epicrisis.core.protocols import ChatRequest
from epicrisis.core.types import Scope
from epicrisis.testing.chat import ScriptedModel
from tests.support.strategies import (
    NOT_FOUND,
    OPEN_QUESTION,
    QUESTION,
    by_stage,
    items_of,
    passages,
    run,
    said,
    stages,
    world,
)

FROM_MEMORY: list[Any] = [(closed_book, "closed-book"), (chain_of_thought, "chain-of-thought")]
ANSWERED = said(answer="It does.", choice="A")
THOUGHT = json.dumps({"reasoning": "First, second.", "result": json.loads(ANSWERED)["result"]})


@pytest.mark.parametrize(("strategy", "name"), FROM_MEMORY)
def test_closed_book_makes_one_call_without_search(strategy: Any, name: str) -> None:
    model = ScriptedModel(by_stage(closed_book=ANSWERED, chain_of_thought=THOUGHT))
    asked = world(model, passages(4))
    answer = run(strategy, asked)
    assert (answer.strategy, answer.state, answer.text, answer.choice) == (name, "answered", "It does.", "A")
    assert (answer.citations, answer.partials, answer.preflight) == ((), (), None)
    assert asked.searches == []
    assert stages(model) == [name]
    assert [type(event) for event in asked.events if not isinstance(event, TextDelta)] == [AnswerStarted, ModelCalled]
    assert asked.of(AnswerStarted) == [AnswerStarted(name, 0)]
    assert "".join(delta.text for delta in asked.of(TextDelta)) == "It does."
    text = model.requests[0].messages[-1].content
    assert QUESTION.text in text
    assert "A. yes\nB. no\n" in text
    assert "<documents>" not in text
    assert "Trial" not in text


@pytest.mark.parametrize(("strategy", "name"), FROM_MEMORY)
@pytest.mark.parametrize(
    ("reply", "state"), [(NOT_FOUND, "abstained"), ("No idea.", "unparsed"), ('{"result": {"fou', "unparsed")]
)
def test_closed_book_without_choice_is_unparsed(strategy: Any, name: str, reply: str, state: str) -> None:
    answer = run(strategy, world(ScriptedModel(lambda _: reply), ()))
    assert (answer.strategy, answer.state, answer.choice) == (name, state, None)
    assert (answer.failure is None) == (state == "abstained")


def test_chain_of_thought_schema_has_reasons_before_choice() -> None:
    model = ScriptedModel(lambda _: THOUGHT)
    run(chain_of_thought, world(model, ()))
    assert list((model.requests[0].schema or {})["properties"]) == ["reasoning", "result"]


def test_open_question_prompt_has_no_options() -> None:
    model = ScriptedModel(lambda _: said(answer="It does."))
    answer = run(closed_book, world(model, ()), OPEN_QUESTION)
    assert (answer.state, answer.choice) == ("answered", None)
    assert "Options" not in model.requests[0].messages[-1].content


def test_rag_prompt_has_all_passages_in_order_after_question() -> None:
    found = passages(6)
    quote = "aspirin lowers risk number 4"
    model = ScriptedModel(lambda _: said(quotes=[{"doc": 5, "quote": quote}], answer="It does [doc 5].", choice="A"))
    asked = world(model, found)
    answer = run(rag, asked)
    (request,) = model.requests
    assert items_of(request) == [f"Title {i} (2015)\n{passage.text}" for i, passage in enumerate(found)]
    content = request.messages[-1].content
    assert content.index(QUESTION.text) < content.index("<documents>\n[doc 1] Title 0")
    assert (answer.strategy, answer.state, answer.choice, answer.text) == ("rag", "answered", "A", "It does. [1]")
    (citation,) = answer.citations
    assert (citation.passage_id, citation.verified) == ("d4#0", True)
    assert found[4].text[citation.start - 100 : citation.end - 100] == quote
    assert asked.of(Retrieved)[0].ranking.passages == found
    assert asked.of(AnswerStarted) == [AnswerStarted("rag", 6)]
    assert len(asked.searches) == 1


def test_rag_marks_unverified_citations() -> None:
    model = ScriptedModel(
        lambda _: said(quotes=[{"doc": 1, "quote": "never written there"}], answer="Yes.", choice="A")
    )
    (citation,) = run(rag, world(model, passages(2))).citations
    assert (citation.verified, citation.start, citation.quotation) == (False, 100, "never written there")


def test_rag_without_passages_abstains_without_call() -> None:
    model = ScriptedModel(lambda _: ANSWERED)
    answer = run(rag, world(model, ()))
    assert answer.state == "abstained"
    assert answer.failure is not None
    assert answer.failure.kind == "NothingRetrieved"
    assert model.requests == []


def test_rag_over_window_fails_with_remedy() -> None:
    window = AnswerFormat(QUESTION.options, documents=8).max_tokens + 700
    model = ScriptedModel(lambda _: ANSWERED, context_tokens=window)
    assert run(rag, world(model, passages(2, words=200))).state == "answered", "two of the eight would fit"
    model.requests.clear()
    answer = run(rag, world(model, passages(8, words=200)))
    assert (answer.state, model.requests) == ("over-window", [])
    assert answer.failure is not None
    assert answer.failure.kind == "ContextOverflow"
    for cure in ("8 passages", "-k", "larger window", "brief-context"):
        assert cure in answer.failure.message


def test_failed_call_gives_failed_answer() -> None:
    def refuses(_: ChatRequest) -> str:
        raise EndpointRejected("the key is wrong: check it")

    for strategy in (rag, closed_book, chain_of_thought):
        answer = run(strategy, world(ScriptedModel(refuses), passages(2)))
        assert answer.state == "failed"
        assert answer.failure is not None
        assert answer.failure.message == "the key is wrong: check it"


def test_unreadable_reply_is_requested_twice_then_unparsed() -> None:
    model = ScriptedModel(lambda _: "Hard to say.")
    answer = run(rag, world(model, passages(2)))
    assert (answer.state, answer.choice) == ("unparsed", None)
    assert [request.sample for request in model.requests] == [0, 1]


def test_passage_outside_scope_sends_no_request() -> None:
    model = ScriptedModel(lambda _: ANSWERED)
    with pytest.raises(ScopeViolation):
        run(rag, world(model, passages(3), scope=Scope(hidden=frozenset({"d2"}))))
    assert model.requests == []
