"""The plain strategies: closed book, chain of thought, and plain RAG."""

from __future__ import annotations

from epicrisis.answering.citations import cite, locate_all, locate_span
from epicrisis.answering.extractive import SpanFormat, answer_with, wants_span
from epicrisis.answering.reply_parsing import AnswerFormat, ParsedReply
from epicrisis.answering.strategy_context import Context, ask, fits, make_unanswered
from epicrisis.answering.structured_request import Unreadable
from epicrisis.answers import Answer, AnswerStarted, Failure, Quotation, Retrieved
from epicrisis.errors import ChatError, ContextOverflow
from epicrisis.prompts import Prompt, fence_passages, render
from epicrisis.types import Passage, Question

PROMPTS = "epicrisis.answering.prompts"


async def closed_book(question: Question, context: Context) -> Answer:
    """The question alone (BriefContext's lower bound)."""
    return await _from_memory(question, context, "closed-book", reasoning=False)


async def chain_of_thought(question: Question, context: Context) -> Answer:
    """The question alone, with the steps written out before the answer (MIRAGE's CoT)."""
    return await _from_memory(question, context, "chain-of-thought", reasoning=True)


async def _from_memory(question: Question, context: Context, strategy: str, *, reasoning: bool) -> Answer:
    prompt = render(PROMPTS, strategy.replace("-", "_"), question=question.text, options=question.options)
    form = AnswerFormat(question.options, reasoning=reasoning)
    context.emit(AnswerStarted(strategy, documents=0))
    try:
        reply = await ask(context, "writer", strategy, prompt, form, stream=True)
    except (ChatError, Unreadable) as error:
        return make_unanswered(question, strategy, error)
    return conclude(question, strategy, reply, (), ())


async def rag(question: Question, context: Context) -> Answer:
    """All k passages in one prompt, in the order of the ranking."""
    ranking = await context.retrieve(question)
    context.emit(Retrieved(ranking))
    try:
        return await answer_from(question, context, ranking.passages, "rag")
    except (ChatError, Unreadable) as error:
        return make_unanswered(question, "rag", error)


async def answer_from(question: Question, context: Context, passages: tuple[Passage, ...], strategy: str) -> Answer:
    """One prompt with all these passages; no passages, no answer. Raises ChatError and Unreadable."""
    if not passages:
        failure = Failure("NothingRetrieved", "no passage of the library matches the question")
        return Answer(question, strategy, "abstained", failure=failure)
    prompt, form = documents_asked(question, context, passages)
    context.emit(AnswerStarted("rag", documents=len(passages)))
    if not await fits(context, "writer", prompt, form):
        raise ContextOverflow(
            f"{len(passages)} passages do not fit the model's window: take fewer (-k), a model with a larger "
            "window, or --strategy brief-context"
        )
    reply = await ask(context, "writer", "rag", prompt, form, stream=True)
    if isinstance(form, SpanFormat) and reply.found:
        ((number, words),) = reply.quotes
        return answer_with(question, strategy, locate_span(words, passages[number - 1]), passages)
    return conclude(question, strategy, reply, locate_all(reply.quotes, passages), passages)


def documents_asked(
    question: Question, context: Context, passages: tuple[Passage, ...]
) -> tuple[Prompt, SpanFormat | AnswerFormat]:
    """The one prompt with all these passages, and what is asked of its reply."""
    if wants_span(question, context):
        return documents_prompt(question, context, passages, "extract"), SpanFormat(passages)
    prompt = documents_prompt(question, context, passages, "rag")
    return prompt, AnswerFormat(question.options, documents=len(passages))


def documents_prompt(question: Question, context: Context, passages: tuple[Passage, ...], name: str) -> Prompt:
    """A prompt with documents: the question stands before them (query-aware contextualization)."""
    documents = fence_passages(passages, context.scope)
    told = {"question": question.text, "options": question.options, "about": context.about}
    return render(PROMPTS, name, documents=documents, **told)


def conclude(
    question: Question,
    strategy: str,
    reply: ParsedReply,
    quotations: tuple[Quotation, ...],
    passages: tuple[Passage, ...],
) -> Answer:
    """The answer of a reply: abstained where it found nothing, else with its citations."""
    if not reply.found:
        return Answer(question, strategy, "abstained", text=reply.text)
    text, citations = cite(reply.text, quotations, {passage.id: passage for passage in passages})
    return Answer(question, strategy, "answered", text=text, choice=reply.choice, citations=citations)
