"""Ensemble refining: several drafts, then their synthesis (the context-retrieval study, section 5.1, figure 3)."""

from __future__ import annotations

import random
from dataclasses import replace
from operator import attrgetter

from epicrisis.answering.document_answers import conclude
from epicrisis.answering.drafts import answer_without_draft, build_first_request, write_draft
from epicrisis.answering.strategy import Strategy
from epicrisis.answering.strategy_context import Context, gather_all, make_unanswered, render_question
from epicrisis.answering.structured_request import Unreadable
from epicrisis.core.answers import Answer
from epicrisis.core.errors import ChatError, ContextOverflow
from epicrisis.core.printable import agree, count_noun
from epicrisis.core.prompts import fence
from epicrisis.core.types import Question

NAME = "ensemble-refining"
TEMPERATURES = tuple(i / 10 for i in range(11))
TOP_PS = (0.001, *TEMPERATURES[1:])
"""The values for drafts, all equally likely, as in the study's code."""


async def ensemble_refining(question: Question, context: Context) -> Answer:
    """Answer with the synthesis of N concurrent drafts."""
    try:
        prompt, reply_format = await build_first_request(question, context, NAME)
    except ChatError as error:
        return make_unanswered(question, NAME, error)
    calls = []
    for number in range(context.options.refine.drafts):
        generator = random.Random(f"{context.options.seed}/{question.key}/{number}")
        temperature, top_p = generator.choice(TEMPERATURES), generator.choice(TOP_PS)
        sampling = replace(context.sampling_of("writer"), temperature=temperature, top_p=top_p)
        calls.append(write_draft(context, number, prompt, reply_format, sampling))
    drafts = await gather_all(calls)
    answered = [draft for draft in drafts if draft.state == "answered"]
    if not answered:
        return answer_without_draft(question, NAME, drafts)
    failed = [draft for draft in drafts if draft.failure is not None]
    context.report_missing(list(map(attrgetter("number"), failed)), len(drafts), "draft", "failed or unreadable")
    answers = fence(map(attrgetter("text"), answered), label="answer")
    prompt = render_question("synthesis", question, answers=answers)
    try:
        if not await context.fits("writer", prompt, reply_format):
            size = f"{count_noun(len(answered), 'draft')} {agree(len(answered), 'does', 'do')}"
            raise ContextOverflow(f"{size} not fit the model's window: make fewer (refine.drafts)")
        reply = await context.ask("writer", "synthesis", prompt, reply_format, stream=True)
        answer = conclude(question, NAME, reply)
    except (ChatError, Unreadable) as error:
        answer = make_unanswered(question, NAME, error)
    return replace(answer, drafts=tuple(drafts), decided_by="synthesis")


STRATEGY = Strategy(
    name=NAME,
    run=ensemble_refining,
    label="Several drafts, refined",
    help="Several drafts at random temperatures, then one synthesis of them.",
    needs_library=False,
    needs_search=False,
    examples="optional",
)
