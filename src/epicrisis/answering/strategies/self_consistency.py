"""Self-consistency: the majority of several chains of thought (the context-retrieval study, section 3.1)."""

from __future__ import annotations

from epicrisis.answering.strategy import Strategy
from epicrisis.answering.strategy_context import Context
from epicrisis.answering.voting import vote
from epicrisis.core.answers import Answer
from epicrisis.core.types import Question

NAME = "self-consistency"


async def self_consistency(question: Question, context: Context) -> Answer:
    """Answer with the majority of N chains of thought. Options are shuffled only if the settings say so."""
    return await vote(question, context, NAME, (), shuffle=context.options.votes.shuffle or False)


STRATEGY = Strategy(
    name=NAME,
    run=self_consistency,
    label="Without documents, by votes",
    help="The majority of several chains of thought.",
    needs_library=False,
    needs_search=False,
)
