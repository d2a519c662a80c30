"""Answers from documents: the prompt with the documents, the reply's format, and the answer with its citations.

The answer to an extractive question is a span: words of one document, copied word for word (EHR study, 4.2).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, Literal

from epicrisis.answering.citations import MIN_WORDS, cite, locate_all, locate_span
from epicrisis.answering.reply_parsing import FINDING_CHARACTERS, AnswerFormat, ParsedReply
from epicrisis.answering.strategy_context import Context, render_question
from epicrisis.answering.structured_request import EmptyReply, Unreadable, json_objects, object_schema, text_schema
from epicrisis.answers import Answer, AnswerStarted, Failure, Quotation, WithheldAnswer
from epicrisis.errors import ContextOverflow
from epicrisis.prompts import Prompt, fence_passages
from epicrisis.question_options import is_unanswerable
from epicrisis.types import Passage, Question

SPAN_CHARACTERS = 400


def wants_span(question: Question, context: Context) -> bool:
    """Return whether the answer must be words of a document."""
    return question.form == "extractive" and context.extract == "span"


def build_documents_request(
    question: Question, context: Context, passages: tuple[Passage, ...], template: Literal["rag", "map"] = "rag"
) -> tuple[Prompt, AnswerFormat | SpanFormat]:
    """Return the prompt for an answer (`rag`), a finding (`map`) or a span of passages, and its reply's format."""
    reply_format: AnswerFormat | SpanFormat = AnswerFormat(question.options, documents=len(passages))
    if wants_span(question, context):
        reply_format = SpanFormat(passages)
    elif template == "map":
        reply_format = AnswerFormat(
            question.options,
            text_field="finding",
            text_characters=FINDING_CHARACTERS,
            documents=len(passages),
            choice_may_be_null=True,
        )
    name = "extract" if wants_span(question, context) else template
    documents = fence_passages(passages, context.scope)
    return render_question(name, question, documents=documents, about=context.about), reply_format


async def answer_from_documents(
    question: Question, context: Context, passages: tuple[Passage, ...], strategy: str
) -> Answer:
    """Return the answer from one prompt with all these passages. Raises ChatError and Unreadable."""
    if not passages:
        failure = Failure("NothingRetrieved", "no passage of the library matches the question")
        return Answer(question, strategy, "abstained", failure=failure)
    prompt, reply_format = build_documents_request(question, context, passages)
    context.emit(AnswerStarted("rag", documents=len(passages)))
    if not await context.fits("writer", prompt, reply_format):
        raise ContextOverflow(
            f"{len(passages)} passages do not fit the model's window: take fewer (-k), a model with a larger "
            "window, or --strategy brief-context"
        )
    reply = await context.ask("writer", "rag", prompt, reply_format, stream=True)
    quotations = locate_quotes(question, context, reply, passages)
    return conclude_from_documents(question, context, strategy, reply, quotations, passages)


def locate_quotes(
    question: Question, context: Context, reply: ParsedReply, passages: Sequence[Passage]
) -> tuple[Quotation, ...]:
    """Return the quotations of a reply with their places in the passages that the reply names."""
    if not wants_span(question, context):
        return locate_all(reply.quotes, passages)
    return tuple(locate_span(words, passages[number - 1]) for number, words in reply.quotes)


def conclude_from_documents(
    question: Question,
    context: Context,
    strategy: str,
    reply: ParsedReply,
    quotations: Sequence[Quotation],
    passages: Sequence[Passage],
) -> Answer:
    """Return the answer that a reply gives. Raises Unreadable if no quotation of a span is in its document."""
    if not reply.has_answer or not wants_span(question, context):
        return conclude(question, strategy, reply, quotations, passages)
    for quotation in quotations:
        if quotation.verified:
            _, citations = cite("", (quotation,), passages)
            return Answer(question, strategy, "answered", text=quotation.text, citations=citations)
    raise Unreadable("the documents contain none of the words that the reply names")


def conclude(
    question: Question,
    strategy: str,
    reply: ParsedReply,
    quotations: Sequence[Quotation] = (),
    passages: Sequence[Passage] = (),
) -> Answer:
    """Return the answer that a reply gives, with its citations; an abstention if the reply found nothing."""
    if not reply.has_answer:
        return Answer(question, strategy, "abstained", text=reply.text)
    text, citations = cite(reply.text, quotations, passages)
    return Answer(question, strategy, "answered", text=text, choice=reply.choice, citations=citations)


@dataclass(frozen=True, slots=True)
class SpanFormat:
    """The format of a reply that copies words from one of these documents."""

    passages: Sequence[Passage]

    @property
    def max_tokens(self) -> int:
        """Room for the longest span: two characters per token, plus the JSON punctuation."""
        return SPAN_CHARACTERS // 2 + 100

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema: `result` has either `found` true, a document and its words, or `found` false."""
        span = {
            "found": {"type": "boolean", "enum": [True]},
            "doc": {"type": "integer", "enum": list(range(1, len(self.passages) + 1))},
            "span": text_schema(SPAN_CHARACTERS),
        }
        nothing = {"found": {"type": "boolean", "enum": [False]}}
        return object_schema({"result": {"anyOf": [object_schema(span), object_schema(nothing)]}})

    def read(self, text: str) -> ParsedReply:
        """Return the words as they are in the document, with its number. Raises Unreadable if no document has them."""
        if not text.strip():
            raise EmptyReply("the reply is empty")
        objects = json_objects(text, frozenset({"result", "found", "span"}))
        result = objects[0].get("result", objects[0]) if len(objects) == 1 else None
        if not isinstance(result, Mapping):
            raise Unreadable("the reply is not a single JSON object with words of a document")
        if result.get("found") is False:
            return ParsedReply(has_answer=False)
        span = result.get("span")
        if not isinstance(span, str) or not re.search(r"\w", span):
            raise Unreadable("the reply copies no words")
        if len(span) == SPAN_CHARACTERS:
            # The schema cuts a longer copy, possibly within a word, and some models fill the room with other letters.
            span = span.rsplit(maxsplit=1)[0]
        # The document that the reply names comes first. The others count only for more than a few words.
        doc = result.get("doc")
        numbers = sorted(range(1, len(self.passages) + 1), key=lambda number: number != doc)
        if doc in numbers and len(span.split()) < MIN_WORDS:
            numbers = numbers[:1]
        for number in numbers:
            quotation = locate_span(span, self.passages[number - 1])
            if quotation.verified:
                return ParsedReply(True, quotation.text, quotes=((number, quotation.text),))
        raise Unreadable("the document that the reply names does not contain the words that the reply copies")


def withhold_unverified(answer: Answer) -> Answer:
    """Return an answer from documents unchanged if a quotation is verified, else as an abstention.

    Small models write quotations that are in no document. The abstention holds the model's answer under `withheld`,
    with the reason. An answer with an option like "the record does not say" is unchanged: no words of a record can show
    it.
    """
    is_verified = any(map(attrgetter("verified"), answer.citations))
    if answer.state != "answered" or is_verified or chose_unanswerable(answer):
        return answer
    n = len(answer.citations)
    if not n:
        reason = "it quotes no document"
    elif n == 1:
        reason = "its only quotation was not found in the document it cites"
    else:
        reason = f"none of its {n} quotations was found in the document it cites"
    withheld = WithheldAnswer(answer.text, reason, answer.choice, answer.citations)
    return replace(answer, state="abstained", text="", choice=None, citations=(), withheld=withheld)


def chose_unanswerable(answer: Answer) -> bool:
    """Return whether the answer chose an option like "the record does not say"."""
    return answer.choice is not None and is_unanswerable(answer.choice, answer.question.options)
