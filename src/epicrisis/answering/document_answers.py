"""Answers from documents: the prompt with the documents, the reply's format, and the answer with its citations.

The answer to an extractive question is a span: words of one document, copied word for word (EHR study, 4.2).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, Literal

from epicrisis.answering.citations import MIN_WORDS, cite, cite_claims, locate_all, locate_span
from epicrisis.answering.paper_prompts import NotebookReply
from epicrisis.answering.reply_parsing import (
    CLAIM_TEXT,
    FINDING_CHARACTERS,
    AnswerFormat,
    ParsedReply,
    numbers_schema,
    read_sentence_numbers,
)
from epicrisis.answering.sentence_numbers import (
    CitedText,
    NumberedSentences,
    cite_named_sentences,
    select_numbered_sentences,
)
from epicrisis.answering.strategy_context import CONFIDENCE_PROMPTS, NUMBERED_PROMPTS, PROMPTS, Context, render_question
from epicrisis.answering.structured_request import EmptyReply, Unreadable, json_objects, object_schema, text_schema
from epicrisis.core.answers import Answer, AnswerStarted, Failure, Notice, Quotation, WithheldAnswer
from epicrisis.core.errors import ContextOverflow
from epicrisis.core.printable import agree, count_noun
from epicrisis.core.prompts import Prompt, check_scope, fence_passages
from epicrisis.core.question_options import is_unanswerable
from epicrisis.core.types import Passage, Question

SPAN_CHARACTERS = 400
NOTHING_RETRIEVED = Failure("NothingRetrieved", "no passage of the library matches the question")
_DENIAL = re.compile(
    r"(?ix)^ (?:(?:the|these|this|provided|given|retrieved|available|above)\s+){0,4}"
    r"(?:documents?|abstracts?|evidence|stud(?:y|ies)|texts?|findings?|notes?|records?|information|passages?|sources?"
    r"|articles?) (?:\s+(?:provided|given|above))?"
    r"\s+ (?:do|does|did)\s+not\s+ (?:[a-z]{1,20}ly\s+){0,2}"
    r"(?: (?:answer|address)\b | (?:state|say|mention|provide|contain|specify|give|discuss|include|indicate)\b"
    r"(?:\s+[a-z]{1,20}){0,3} \s+(?:whether|information|answers?|if|which|what|how)\b)"
)
"""The beginning of a claim such as `The documents do not state whether...`."""
_INSTEAD = re.compile(r"(?i)\b(?:but|however|although|though|while|suggest\w{0,3})\b")


def wants_span(question: Question, context: Context) -> bool:
    """Return whether the answer must be words of a document."""
    return question.form == "extractive" and context.options.extract == "span"


def wants_confidence(question: Question, context: Context) -> bool:
    """Return whether map replies have a rationale and a confidence. Words of a document have none."""
    return context.options.map_confidence and not wants_span(question, context)


@dataclass(frozen=True, slots=True)
class DocumentsRequest:
    """A prompt with documents, the format of its reply, and the sentences that the reply may name."""

    passages: tuple[Passage, ...]
    prompt: Prompt
    reply_format: AnswerFormat | SpanFormat | NotebookReply
    sentences: NumberedSentences = field(default_factory=NumberedSentences)
    """Empty for a reply that quotes."""

    async def fits(self, context: Context, role: str) -> bool:
        """Return whether the prompt and the longest reply fit the window of the role's model."""
        return await context.fits(role, self.prompt, self.reply_format)


async def build_documents_request(
    question: Question, context: Context, passages: tuple[Passage, ...], template: Literal["rag", "map"] = "rag"
) -> DocumentsRequest:
    """Return the request for an answer (`rag`), a finding (`map`) or a span of passages.

    Passages without a sentence to number are quoted regardless of `citing`. The prompts of a paper neither quote nor
    number.
    """
    prompts = context.paper_prompts if template == "rag" else context.map_reduce_prompts
    if prompts is not None and not wants_span(question, context):
        request = prompts.build_reading(question, passages, context.scope, template, context.about)
        return DocumentsRequest(passages, *request)
    sentences = NumberedSentences()
    if context.options.citing == "numbers":
        # Before the selection, because a reranker may be another machine.
        check_scope(passages, context.scope)
        sentences = await select_numbered_sentences(question, context, passages)
        if not sentences.quotations:
            context.emit(Notice("sentences", "these passages have no complete sentence to number: the reply quotes"))
    n = len(sentences.quotations)
    answer_format = AnswerFormat(question.options, documents=0 if n else len(passages), sentences=n)
    reply_format: AnswerFormat | SpanFormat = answer_format
    if wants_span(question, context):
        reply_format = SpanFormat(_narrow_passages(passages, sentences), by_number=True) if n else SpanFormat(passages)
    elif template == "map":
        reply_format = replace(
            answer_format,
            text_field="finding",
            text_characters=FINDING_CHARACTERS,
            choice_may_be_null=True,
            with_confidence=wants_confidence(question, context),
        )
    name = "extract" if wants_span(question, context) else template
    documents = fence_passages(
        passages, context.scope, sentences.quotations, with_study=context.options.describe_sources
    )
    folder = NUMBERED_PROMPTS if n else PROMPTS
    variables: dict[str, Any] = {}
    if isinstance(reply_format, AnswerFormat) and reply_format.with_confidence:
        folder, variables = CONFIDENCE_PROMPTS, {"numbered": n > 0}
    prompt = render_question(name, question, folder, documents=documents, about=context.about, **variables)
    return DocumentsRequest(passages, prompt, reply_format, sentences)


def _narrow_passages(passages: Sequence[Passage], sentences: NumberedSentences) -> tuple[Passage, ...]:
    """Return for each sentence its passage, cut to the sentence."""
    by_id = {passage.id: passage for passage in passages}
    narrow: list[Passage] = []
    for quotation in sentences.quotations:
        assert quotation.start is not None
        assert quotation.end is not None
        passage = by_id[quotation.passage_id]
        narrow.append(replace(passage, start=quotation.start, end=quotation.end, text=quotation.text))
    return tuple(narrow)


async def answer_from_documents(
    question: Question, context: Context, passages: tuple[Passage, ...], strategy: str
) -> Answer:
    """Return the answer from one prompt with all these passages. Raises ChatError and Unreadable."""
    if not passages:
        return Answer(question=question, strategy=strategy, state="abstained", failure=NOTHING_RETRIEVED)
    request = await build_documents_request(question, context, passages)
    sentences = request.sentences
    context.emit(AnswerStarted("rag", len(passages), len(sentences.quotations), sentences.selected_by))
    if not await request.fits(context, "writer"):
        n = len(passages)
        raise ContextOverflow(
            f"{count_noun(n, 'passage')} {agree(n, 'does', 'do')} not fit the model's window: take fewer (-k), a "
            "model with a larger window, or --strategy brief-context"
        )
    reply = await context.ask(
        "writer", "rag", request.prompt, request.reply_format, stream=True, offered=sentences.quotations
    )
    claims = await cite_reply(context, "rag", request, reply)
    return conclude_from_documents(question, context, strategy, reply, claims, passages)


async def cite_reply(
    context: Context, stage: str, request: DocumentsRequest, reply: ParsedReply
) -> tuple[CitedText, ...]:
    """Return the claims of a reply to a request with their quotations, or none if the reply found nothing."""
    if not reply.has_answer:
        return ()
    if isinstance(request.reply_format, SpanFormat):
        places = request.reply_format.passages
        spans = tuple(locate_span(words, places[number - 1]) for number, words in reply.quotes)
        return (CitedText(reply.text, spans),)
    if reply.claims:
        return await cite_named_sentences(context, stage, reply.claims, request.sentences)
    return (CitedText(reply.text, locate_all(reply.quotes, request.passages)),)


def conclude_from_documents(
    question: Question,
    context: Context,
    strategy: str,
    reply: ParsedReply,
    claims: Sequence[CitedText],
    passages: Sequence[Passage],
) -> Answer:
    """Return the answer that a reply gives. Raises Unreadable if no quotation of a span is in its document."""
    if not reply.has_answer or not wants_span(question, context):
        return conclude(question, strategy, reply, claims, passages)
    for quotation in list_quotations(claims):
        if quotation.verified:
            _, citations, cited = cite_claims([(quotation.text, (quotation,))], passages)
            # The words of the document as they are, also if they resemble a marker.
            claim = replace(cited[0], text=quotation.text)
            return Answer(
                question=question,
                strategy=strategy,
                state="answered",
                text=quotation.text,
                citations=citations,
                claims=(claim,),
            )
    raise Unreadable("the documents contain none of the words that the reply names")


def conclude(
    question: Question,
    strategy: str,
    reply: ParsedReply,
    claims: Sequence[CitedText] = (),
    passages: Sequence[Passage] = (),
) -> Answer:
    """Return the answer that a reply gives, with its citations; an abstention if the reply found nothing.

    Without documents the answer has no claims, and its text is that of the reply.
    """
    if not reply.has_answer:
        return Answer(question=question, strategy=strategy, state="abstained", text=reply.text)
    if not claims:
        text, _ = cite(reply.text, (), ())
        return Answer(question=question, strategy=strategy, state="answered", text=text, choice=reply.choice)
    text, citations, cited = cite_claims([(claim.text, claim.quotations) for claim in claims], passages)
    return Answer(
        question=question,
        strategy=strategy,
        state="answered",
        text=text,
        choice=reply.choice,
        citations=citations,
        claims=cited,
    )


def list_quotations(claims: Sequence[CitedText]) -> tuple[Quotation, ...]:
    """Return the quotations of all claims."""
    return tuple(itertools.chain.from_iterable(map(attrgetter("quotations"), claims)))


@dataclass(frozen=True, slots=True)
class SpanFormat:
    """The format of a reply that copies words from one of these documents."""

    passages: Sequence[Passage]
    by_number: bool = False
    """Whether these are sentences, which the reply names in a claim by their numbers."""

    @property
    def max_tokens(self) -> int:
        """Room for the longest span: two characters per token, plus the JSON punctuation."""
        return SPAN_CHARACTERS // 2 + 100

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema: `result` has either `found` true, a document and its words, or `found` false."""
        span: dict[str, Any] = {"found": {"type": "boolean", "enum": [True]}}
        if self.by_number:
            claim = {CLAIM_TEXT: text_schema(SPAN_CHARACTERS), "sentences": numbers_schema(len(self.passages))}
            span["claims"] = {"type": "array", "minItems": 1, "maxItems": 1, "items": object_schema(claim)}
        else:
            span["doc"] = {"type": "integer", "enum": list(range(1, len(self.passages) + 1))}
            span["span"] = text_schema(SPAN_CHARACTERS)
        nothing = {"found": {"type": "boolean", "enum": [False]}}
        return object_schema({"result": {"anyOf": [object_schema(span), object_schema(nothing)]}})

    def parse(self, text: str) -> ParsedReply:
        """Return the words as they are in the document, with its number. Raises Unreadable if no document has them."""
        if not text.strip():
            raise EmptyReply("the reply is empty")
        objects = json_objects(text, frozenset({"result", "found", "claims" if self.by_number else "span"}))
        result = objects[0].get("result", objects[0]) if len(objects) == 1 else None
        if not isinstance(result, Mapping):
            raise Unreadable("the reply is not a single JSON object with words of a document")
        if result.get("found") is False:
            return ParsedReply(has_answer=False)
        span, cited = result.get("span"), [result.get("doc")]
        if self.by_number:
            span, cited = self._read_claim(result.get("claims"))
        if not isinstance(span, str) or not re.search(r"\w", span):
            raise Unreadable("the reply copies no words")
        if len(span) == SPAN_CHARACTERS:
            # The schema cuts a longer copy, possibly within a word, and some models fill the room with other letters.
            span = span.rsplit(maxsplit=1)[0]
        # The documents that the reply names come first. The others count only for more than a few words.
        numbers = sorted(range(1, len(self.passages) + 1), key=lambda number: number not in cited)
        n_cited = sum(number in cited for number in numbers)
        if n_cited and len(span.split()) < MIN_WORDS:
            numbers = numbers[:n_cited]
        for number in numbers:
            quotation = locate_span(span, self.passages[number - 1])
            if quotation.verified:
                return ParsedReply(has_answer=True, text=quotation.text, quotes=((number, quotation.text),))
        raise Unreadable("the document that the reply names does not contain the words that the reply copies")

    def _read_claim(self, claims: object) -> tuple[object, list[object]]:
        """Return the text of the first claim, and the numbers of the sentences that it names."""
        claim = claims[0] if isinstance(claims, list) and claims else None
        if not isinstance(claim, Mapping):
            return None, []
        numbers, _ = read_sentence_numbers(claim.get("sentences"), len(self.passages))
        return claim.get(CLAIM_TEXT), list(numbers)


def withhold_unverified(answer: Answer) -> Answer:
    """Return an answer from documents unchanged if a quotation is verified, else as an abstention.

    Small models write quotations that are in no document, and choose an option although all that they write is that the
    documents do not answer the question: that is an abstention too. It holds the model's answer under `withheld`, with
    the reason. An answer with an option like "the record does not say" is unchanged: no words of a record can show it.
    """
    if answer.state != "answered" or chose_unanswerable(answer):
        return answer
    denies = bool(answer.claims) and all(denies_answer(claim.text) for claim in answer.claims)
    if any(map(attrgetter("verified"), answer.citations)) and not denies:
        return answer
    n = len(answer.citations)
    if denies:
        reason = "its own words say that the documents do not answer the question"
    elif not n:
        reason = "it quotes no document"
    elif n == 1:
        reason = "its only quotation was not found in the document it cites"
    else:
        reason = f"none of its {n} quotations was found in the document it cites"
    withheld = WithheldAnswer(answer.text, reason, answer.choice, answer.citations)
    return replace(answer, state="abstained", text="", choice=None, citations=(), claims=(), withheld=withheld)


def denies_answer(text: str) -> bool:
    """Return whether a claim says only that the documents do not answer the question.

    A claim that also states what they say instead ("but they suggest...") is an answer.
    """
    return _DENIAL.match(text) is not None and _INSTEAD.search(text) is None


def chose_unanswerable(answer: Answer) -> bool:
    """Return whether the answer chose an option like "the record does not say"."""
    return answer.choice is not None and is_unanswerable(answer.choice, answer.question.options)
