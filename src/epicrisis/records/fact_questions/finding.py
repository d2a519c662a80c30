"""Find what the structured facts of a record say about a question. Nothing else of the folder is imported before."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from epicrisis.answering.strategy_context import Context
from epicrisis.core.types import Passage, Question
from epicrisis.records.fact_questions.fact_evidence import NO_FACTS, FactAnswer


async def find_facts(
    question: Question, context: Context, fetch: Callable[[], Awaitable[Sequence[Passage]]]
) -> FactAnswer:
    """Return what the structured facts say about a question. Without a patient, nothing is read or imported."""
    if context.scope.patient is None:
        return NO_FACTS
    # Its patterns take a tenth of a second to compile.
    from epicrisis.records.fact_questions.fact_answer import answer_from_facts

    return await answer_from_facts(question, context, fetch)
