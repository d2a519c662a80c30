"""Closed book: the question alone."""

from __future__ import annotations

from epicrisis.answering.document_answers import conclude
from epicrisis.answering.paper_prompts import NotebookReply
from epicrisis.answering.reply_parsing import AnswerFormat
from epicrisis.answering.strategy import Strategy
from epicrisis.answering.strategy_context import Context, make_unanswered, render_question
from epicrisis.answering.structured_request import Unreadable
from epicrisis.core.answers import Answer, AnswerStarted
from epicrisis.core.errors import ChatError
from epicrisis.core.types import Question


async def closed_book(question: Question, context: Context) -> Answer:
    """Answer from the question alone (BriefContext's lower bound)."""
    return await answer_from_memory(question, context, "closed-book", reasoning=False)


async def answer_from_memory(question: Question, context: Context, strategy: str, *, reasoning: bool) -> Answer:
    """Answer from the question alone, with the steps written out before the answer or not."""
    prompt = render_question(strategy.replace("-", "_"), question)
    reply_format: AnswerFormat | NotebookReply = AnswerFormat(question.options, reasoning=reasoning)
    if context.paper_prompts is not None and not reasoning:
        prompt, reply_format = context.paper_prompts.build_closed_book(question)
    context.emit(AnswerStarted(strategy, documents=0))
    try:
        reply = await context.ask("writer", strategy, prompt, reply_format, stream=True)
    except (ChatError, Unreadable) as error:
        return make_unanswered(question, strategy, error)
    return conclude(question, strategy, reply)


STRATEGY = Strategy(
    name="closed-book",
    run=closed_book,
    label="Without documents",
    help="The question alone, as a lower bound.",
    needs_library=False,
    needs_search=False,
)
