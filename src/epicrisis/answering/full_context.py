"""Full context: a patient's whole record in one prompt, oldest note first (EHR study, 4.2, Include All).

A record that does not fit the model's window is not cut: that is how the question ends (state `over-window`). Where the
scope leaves no note of it nobody is asked (state `failed`).
"""

from __future__ import annotations

from epicrisis.answering.baselines import answer_from
from epicrisis.answering.strategy_context import Context, make_unanswered
from epicrisis.answering.structured_request import Unreadable
from epicrisis.answers import Answer, Failure, Retrieved
from epicrisis.errors import ChatError, ContextOverflow
from epicrisis.types import Question

NAME = "full-context"
NOTHING_IN_SCOPE = Failure(
    "NothingInScope",
    "no note of this patient's record lies within the scope: check --as-of, --since, --type, --journal and --hide",
)


async def full_context(question: Question, context: Context) -> Answer:
    """One prompt with every note of the record that the scope admits, in the order in which they were written."""
    ranking = await context.record(question)
    context.emit(Retrieved(ranking))
    if not ranking.hits:
        return Answer(question, NAME, "failed", failure=NOTHING_IN_SCOPE)
    try:
        return await answer_from(question, context, ranking.passages, NAME)
    except ContextOverflow as error:
        over = ContextOverflow(
            f"the record's {len(ranking.hits)} notes do not fit the model's window: name a model with a larger one, or "
            "--strategy rag or brief-context",
            usage=error.usage,
        )
        return Answer(question, NAME, "over-window", failure=over.as_failure())
    except (ChatError, Unreadable) as error:
        return make_unanswered(question, NAME, error)
