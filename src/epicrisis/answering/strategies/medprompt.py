"""Medprompt: solved questions, then votes over shuffled options (the context-retrieval study, section 4.2)."""

from __future__ import annotations

from epicrisis.answering.strategy import Strategy
from epicrisis.answering.strategy_context import Context
from epicrisis.answering.voting import NO_EXAMPLES, find_examples, vote
from epicrisis.core.answers import Answer
from epicrisis.core.errors import InputError
from epicrisis.core.types import Question

NAME = "medprompt"


async def medprompt(question: Question, context: Context) -> Answer:
    """Answer like `self_consistency` after solved questions. Options are shuffled unless the settings say otherwise."""
    if context.examples is None:
        raise InputError(f"{NAME} {NO_EXAMPLES}")
    examples = await find_examples(question, context)
    return await vote(question, context, NAME, examples, shuffle=context.options.votes.shuffle is not False)


STRATEGY = Strategy(
    name=NAME,
    run=medprompt,
    label="Solved examples and votes (Medprompt)",
    help="Solved questions first, then the majority of votes over shuffled options.",
    needs_library=False,
    needs_search=False,
    examples="required",
)
