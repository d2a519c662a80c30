"""Chain of thought: the question alone, with the steps written out."""

from __future__ import annotations

from epicrisis.answering.strategies.closed_book import answer_from_memory
from epicrisis.answering.strategy import Strategy
from epicrisis.answering.strategy_context import Context
from epicrisis.core.answers import Answer
from epicrisis.core.types import Question


async def chain_of_thought(question: Question, context: Context) -> Answer:
    """Answer from the question alone, with the steps written out before the answer (MIRAGE's CoT)."""
    return await answer_from_memory(question, context, "chain-of-thought", reasoning=True)


STRATEGY = Strategy(
    name="chain-of-thought",
    run=chain_of_thought,
    label="Without documents, with reasoning",
    help="The question alone, with the steps written out before the answer.",
    needs_library=False,
    needs_search=False,
)
