"""Extractive questions: words of a document, found there again, or no answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from epicrisis.answering.document_answers import SPAN_CHARACTERS, SpanFormat
from epicrisis.answering.strategies.brief_context import brief_context
from epicrisis.answering.strategies.rag import rag
from epicrisis.answering.structured_request import EmptyReply, Unreadable
from epicrisis.core.types import Passage, Question
from epicrisis.testing.chat import ScriptedModel
from tests.support.strategies import NOT_FOUND, by_stage, passages, run, said, stages, world

WHAT = Question("What does aspirin lower?", form="extractive")


def span(words: str, doc: int = 1) -> str:
    return said(doc=doc, span=words)


def says(reply: str) -> ScriptedModel:
    return ScriptedModel(lambda _: reply)


def test_extractive_answer_is_document_span() -> None:
    model = says(span("lowers  risk\nnumber 2", doc=3))
    answer = run(rag, world(model, passages(4)), WHAT)
    assert (answer.state, answer.text) == ("answered", "lowers risk number 2")
    (citation,) = answer.citations
    assert citation.verified
    assert citation.document_id == "d2"
    found = passages(4)[2]
    assert found.text[citation.start - found.start : citation.end - found.start] == "lowers risk number 2"


def test_one_word_answer_is_located_in_named_document() -> None:
    found = passages(4)
    reply = SpanFormat(found).parse(span("aspirin", doc=2))
    assert reply.quotes == ((2, "aspirin"),)
    assert SpanFormat(found).parse(span("risk number 3", doc=1)).quotes == ((4, "risk number 3"),)


def test_words_absent_from_documents_are_requested_again_then_unparsed() -> None:
    model = says(span("heals everything"))
    answer = run(rag, world(model, passages(2)), WHAT)
    assert (answer.state, len(model.requests)) == ("unparsed", 2)
    assert answer.failure is not None
    assert "document that the reply names" in answer.failure.message
    assert "heals" not in answer.failure.message


def test_truncated_copy_drops_last_word() -> None:
    note = Passage(id="n#0", document_id="n", ordinal=0, start=0, end=1000, text="word " * 200)
    longest = ("word " * 80)[:SPAN_CHARACTERS]
    assert len(longest) == SPAN_CHARACTERS
    filled = longest[:-3] + "p4s"
    assert SpanFormat((note,)).parse(span(filled)).text == ("word " * 79).strip()
    with pytest.raises(Unreadable):
        SpanFormat((note,)).parse(span("p4s " + longest[4:]))


def test_extractive_reply_without_answer_abstains() -> None:
    assert run(rag, world(says(NOT_FOUND), passages(2)), WHAT).state == "abstained"


def test_published_prompt_accepts_sentence() -> None:
    model = says(said(quotes=[{"doc": 1, "quote": "aspirin lowers risk"}], answer="It lowers risks."))
    asked = world(model, passages(2), extract="sentence")
    answer = run(rag, asked, WHAT)
    assert answer.text == "It lowers risks. [1]"


def test_map_reduce_answer_is_span_of_named_finding() -> None:
    def read(request: Any) -> str:
        return span("risk number 2") if "Trial 2" in request.messages[-1].content else NOT_FOUND

    model = ScriptedModel(by_stage(extract=read, reduce=said(sources=[1], answer="Risk number two.")))
    answer = run(brief_context, world(model, passages(4), partition=1), WHAT)
    assert (answer.state, answer.text) == ("answered", "risk number 2")
    assert [citation.document_id for citation in answer.citations] == ["d2"]
    assert stages(model).count("extract") == 4


def test_parts_with_absent_words_are_unparsed() -> None:
    model = ScriptedModel(by_stage(extract=span("words of nobody"), reduce=said(sources=[1], answer="Two.")))
    answer = run(brief_context, world(model, passages(2), partition=1), WHAT)
    assert answer.state == "unparsed"
    assert [partial.state for partial in answer.partials] == ["unparsed", "unparsed"]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("5 mg", "given 15 mg"),
        ("5", "a level of 5.5"),
        ("metoprolol 5", "metoprolol 50 mg"),
        ("no", "normal"),
        ("tension", "hypertension"),
        ("2", "on 1/2/2150"),
        ("12", "12,000 units"),
    ],
)
def test_span_has_whole_words_and_numbers(words: str, text: str) -> None:
    note = Passage(id="n#0", document_id="n", ordinal=0, start=0, end=len(text), text=text)
    with pytest.raises(Unreadable):
        SpanFormat((note,)).parse(span(words))


@pytest.mark.parametrize(("words", "text"), [("5 mg", "(5 mg)"), ("5.5", "a level of 5.5."), ("no", "no, never")])
def test_span_between_signs_is_whole(words: str, text: str) -> None:
    assert (
        SpanFormat((Passage(id="n#0", document_id="n", ordinal=0, start=0, end=len(text), text=text),))
        .parse(span(words))
        .text
        == words
    )


def test_short_span_of_other_document_is_no_answer() -> None:
    """`aspirin` stands everywhere; the document that was named must have it."""
    other = Passage(id="e#0", document_id="e", ordinal=0, start=0, end=8, text="Warfarin")
    with pytest.raises(Unreadable, match="the document that the reply names"):
        SpanFormat((other, *passages(1))).parse(span("aspirin", doc=1))
    assert SpanFormat((other, *passages(1))).parse(span("aspirin lowers risk", doc=1)).quotes[0][0] == 2


def test_empty_reply_differs_from_unreadable_reply() -> None:
    with pytest.raises(EmptyReply):
        SpanFormat(passages(1)).parse("  ")
    with pytest.raises(Unreadable, match="not a single JSON object"):
        SpanFormat(passages(1)).parse("aspirin")
    answer = run(rag, world(says(""), passages(1)))
    assert answer.failure is not None
    assert answer.failure.kind == "EmptyReply"


def test_schema_limits_document_numbers() -> None:
    import jsonschema_rs

    schema = SpanFormat(passages(2)).schema()
    assert jsonschema_rs.is_valid(schema, json.loads(span("x", doc=2)))
    assert not jsonschema_rs.is_valid(schema, json.loads(span("x", doc=3)))
    assert jsonschema_rs.is_valid(schema, json.loads(NOT_FOUND))
