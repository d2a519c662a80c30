"""BriefContext: preflight, ContextMap, ContextReduce (npj Digital Medicine 2025, Methods)."""

from __future__ import annotations

from dataclasses import replace

from epicrisis.answering.document_answers import answer_from_documents
from epicrisis.answering.isolated_votes import isolated_votes
from epicrisis.answering.map_reduce import NAME, map_reduce
from epicrisis.answering.prompt_budget import count_map_reduce, cut_to_limit
from epicrisis.answering.strategy import Strategy
from epicrisis.answering.strategy_context import Context, make_unanswered
from epicrisis.answering.structured_request import Unreadable
from epicrisis.core.answers import Answer, Notice, PreflightChecked, Retrieved
from epicrisis.core.errors import ChatError, ContextOverflow
from epicrisis.core.printable import agree, count_noun
from epicrisis.core.types import Passage, Question, Ranking


async def brief_context_or_votes(question: Question, context: Context) -> Answer:
    """Answer by isolated votes if the defence asks for them, else with BriefContext."""
    if context.options.defence.isolated_votes:
        return await isolated_votes(question, context)
    return await brief_context(question, context)


async def brief_context(question: Question, context: Context) -> Answer:
    """Answer with plain RAG if the preflight check, if any, finds that the rankings agree, else with map and reduce."""
    ranking = await context.retrieve(question)
    context.emit(Retrieved(ranking))
    context = replace(context, ranks=ranking.ranks)
    passages, verdict = ranking.passages, None
    if context.preflight is not None:
        verdict = await context.preflight(question)
        context.emit(PreflightChecked(verdict))
    answer: Answer | None = None
    try:
        if verdict is not None and verdict.rankings_agree and passages:
            try:
                answer = await answer_from_documents(question, context, passages, NAME)
            except ContextOverflow:
                size = f"{count_noun(len(passages), 'passage')} {agree(len(passages), 'does', 'do')}"
                message = f"{size} not fit the model's window in one prompt: read in parts"
                context.emit(Notice("re-partitioned", message))
        answer = answer or await map_reduce(question, context, passages)
    except (ChatError, Unreadable) as error:
        answer = make_unanswered(question, NAME, error)
    return replace(answer, preflight=verdict)


async def cut(question: Question, context: Context, ranking: Ranking, limit: int) -> Ranking:
    """Return the beginning of the ranking whose parts and findings fit the limit."""

    async def count_prompts(passages: tuple[Passage, ...]) -> int:
        return await count_map_reduce(question, context, passages)

    return await cut_to_limit(ranking, count_prompts, limit)


STRATEGY = Strategy(
    name=NAME,
    run=brief_context_or_votes,
    label="Read in parts, then combine (BriefContext)",
    help="One short prompt for each part of the documents found, then one that combines what they found.",
    checks_rankings=True,
    cut=cut,
)
