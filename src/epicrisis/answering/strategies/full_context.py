"""Full context: one prompt with the whole record of a patient."""

from __future__ import annotations

from epicrisis.answering.document_answers import answer_from_documents
from epicrisis.answering.strategy import Strategy
from epicrisis.answering.strategy_context import Context, make_unanswered
from epicrisis.answering.structured_request import Unreadable
from epicrisis.core.answers import Answer, Failure, Retrieved
from epicrisis.core.errors import ChatError, ContextOverflow
from epicrisis.core.printable import agree, count_noun
from epicrisis.core.types import Question

NOTHING_IN_SCOPE = Failure(
    "NothingInScope",
    "no note of this patient's record is within the scope: check the settings of scope (as_of, since, types, journals "
    "and hide)",
)


async def full_context(question: Question, context: Context) -> Answer:
    """Answer from one prompt with every note of the patient's record in the scope, oldest first (EHR study, 4.2).

    A record that exceeds the model's window is not cut; the state is then `over-window`.
    """
    strategy = "full-context"
    ranking = await context.record(question)
    context.emit(Retrieved(ranking))
    if not ranking.hits:
        return Answer(question=question, strategy=strategy, state="failed", failure=NOTHING_IN_SCOPE)
    try:
        return await answer_from_documents(question, context, ranking.passages, strategy)
    except ContextOverflow as error:
        n = len(ranking.hits)
        overflow = ContextOverflow(
            f"the record's {count_noun(n, 'note')} {agree(n, 'does', 'do')} not fit the model's window: choose a model "
            "with a larger window, or --strategy rag or brief-context",
            usage=error.usage,
        )
        return Answer(question=question, strategy=strategy, state="over-window", failure=overflow.as_failure())
    except (ChatError, Unreadable) as error:
        return make_unanswered(question, strategy, error)


STRATEGY = Strategy(
    name="full-context",
    run=full_context,
    label="Read the whole record of the patient",
    help="One prompt with every note of one patient, oldest first.",
    needs_search=False,
)
