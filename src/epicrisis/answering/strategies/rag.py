"""Plain RAG: one prompt with all passages of the ranking."""

from __future__ import annotations

from dataclasses import replace

from epicrisis.answering.one_prompt import answer_in_one_prompt, check_route
from epicrisis.answering.prompt_budget import count_map_reduce, count_rotated_prompts, cut_to_limit
from epicrisis.answering.strategy import Strategy
from epicrisis.answering.strategy_context import Context, make_unanswered
from epicrisis.answering.structured_request import Unreadable
from epicrisis.core.answers import Answer, Retrieved
from epicrisis.core.errors import ChatError
from epicrisis.core.partitioning import take_before_gap
from epicrisis.core.types import Passage, Question, Ranking


async def rag(question: Question, context: Context) -> Answer:
    """Answer from one prompt with all k passages in the order of the ranking.

    The settings `adaptive_k`, `rotations` and `route` change this; see `one_prompt`.
    """
    check_route(context)
    everything = await context.retrieve(question)
    ranking = take_before_gap(everything)
    context.emit(Retrieved(ranking))
    context = replace(context, ranks=everything.ranks)
    try:
        return await answer_in_one_prompt(question, context, ranking.passages, "rag", everything.passages)
    except (ChatError, Unreadable) as error:
        return make_unanswered(question, "rag", error)


async def cut(question: Question, context: Context, ranking: Ranking, limit: int) -> Ranking:
    """Return the beginning of the ranking that one prompt, its rotations and its second way can read."""

    async def count_prompts(passages: tuple[Passage, ...]) -> int:
        second = await count_map_reduce(question, context, passages) if context.options.route == "brief-context" else 0
        return second + await count_rotated_prompts(question, context, passages)

    return await cut_to_limit(ranking, count_prompts, limit)


STRATEGY = Strategy(
    name="rag",
    run=rag,
    label="Read everything found in one prompt",
    help="One prompt with all documents found, in the order of the ranking.",
    routes=True,
    cut=cut,
)
