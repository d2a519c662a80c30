"""Extractive questions, as corrected: the answer is words of one document, found there again (EHR study, 4.2).

Words that stand in none of the documents are no answer: they are asked for once more, and then the reply is unreadable.
Knows no retrieval and no scoring.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from epicrisis.answering.citations import MIN_WORDS, cite, locate_span
from epicrisis.answering.reply_parsing import ParsedReply
from epicrisis.answering.strategy_context import Context
from epicrisis.answering.structured_request import EmptyReply, Unreadable, json_objects, object_schema
from epicrisis.answers import Answer, Quotation
from epicrisis.types import Passage, Question

SPAN_CHARACTERS = 400


def wants_span(question: Question, context: Context) -> bool:
    """Whether the answer has to be words of a document."""
    return question.form == "extractive" and context.extract == "span"


@dataclass(frozen=True, slots=True)
class SpanFormat:
    """A reply that copies words out of one of these documents."""

    passages: Sequence[Passage]

    @property
    def max_tokens(self) -> int:
        """Room for the longest span, at two characters a token and some JSON around."""
        return SPAN_CHARACTERS // 2 + 100

    def schema(self) -> dict[str, Any]:
        """`result` is either found with a document and its words, or not found."""
        found = {
            "found": {"type": "boolean", "enum": [True]},
            "doc": {"type": "integer", "enum": list(range(1, len(self.passages) + 1))},
            "span": {"type": "string", "minLength": 1, "maxLength": SPAN_CHARACTERS},
        }
        nothing = {"found": {"type": "boolean", "enum": [False]}}
        return object_schema({"result": {"anyOf": [object_schema(found), object_schema(nothing)]}})

    def read(self, text: str) -> ParsedReply:
        """The words as the document has them, with its number. Raises Unreadable where no document has them."""
        if not text.strip():
            raise EmptyReply("the reply is empty")
        results = [found.get("result", found) for found in json_objects(text, frozenset({"result", "found", "span"}))]
        if len(results) != 1 or not isinstance(results[0], Mapping):
            raise Unreadable("the reply is no one JSON object with words of a document")
        (result,) = results
        if result.get("found") is False:
            return ParsedReply(found=False)
        span = result.get("span")
        if not isinstance(span, str) or not re.search(r"\w", span):
            raise Unreadable("the reply copies no words")
        if len(span) == SPAN_CHARACTERS:
            # A schema ends a longer copy wherever it is then, and its last letters may only fill the room.
            span = span.rsplit(maxsplit=1)[0]
        number, quotation = self._located(span, result.get("doc"))
        return ParsedReply(True, quotation.text, quotes=((number, quotation.text),))

    def _located(self, span: str, doc: object) -> tuple[int, Quotation]:
        """In the document that was named; more than a few words also in the first other one that has them."""
        numbers = list(range(1, len(self.passages) + 1))
        numbers.sort(key=lambda number: number != doc)
        if doc in numbers and len(span.split()) < MIN_WORDS:
            numbers = numbers[:1]
        for number in numbers:
            quotation = locate_span(span, self.passages[number - 1])
            if quotation.verified:
                return number, quotation
        raise Unreadable("the words that the reply copies do not stand in the document that it names")


def answer_with(question: Question, strategy: str, span: Quotation, passages: Sequence[Passage]) -> Answer:
    """The answer whose text is the span, word for word."""
    _, citations = cite("", (span,), {passage.id: passage for passage in passages})
    return Answer(question, strategy, "answered", text=span.text, citations=citations)


def span_answer(
    question: Question, strategy: str, reply: ParsedReply, quotations: Sequence[Quotation], passages: Sequence[Passage]
) -> Answer:
    """Of a reply that sums up what was found: the first of its quotations that stands where it was said to.

    Raises Unreadable where none does.
    """
    if not reply.found:
        return Answer(question, strategy, "abstained", text=reply.text)
    verified = next((quotation for quotation in quotations if quotation.verified), None)
    if verified is None:
        raise Unreadable("none of the words that were named stands in the documents")
    return answer_with(question, strategy, verified, passages)
