"""A limit for all prompts of a question together: how much of a ranking a strategy can read for it.

An experiment gives every strategy the same number of prompt tokens (docs/design/experiments.md, Equal tokens). The
prompts are rendered and counted by the models that will read them. Only the length of findings, which a reduce call
reads, is unknown before the map calls: each counts as long as a finding may be.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Literal

from epicrisis.answering.document_answers import build_documents_request
from epicrisis.answering.map_reduce import build_reduce_request
from epicrisis.answering.reply_parsing import (
    FINDING_CHARACTERS,
    MAX_QUOTES,
    QUOTE_CHARACTERS,
    RATIONALE_CHARACTERS,
)
from epicrisis.answering.sentence_numbers import NumberedSentences
from epicrisis.answering.strategy import find_strategy
from epicrisis.answering.strategy_context import Context
from epicrisis.core.answers import PartialAnswer
from epicrisis.core.errors import InputError
from epicrisis.core.partitioning import group_passages, partition_passages
from epicrisis.core.prompts import Prompt
from epicrisis.core.types import Passage, Question, Ranking

LIMIT, PLANNED = "prompt_limit", "planned_prompts"
"""Parameters of a ranking that was cut: the limit, and the tokens of the prompts that read it."""
DOCUMENT_ORDER = "document_order"
"""Parameter of a ranking whose passages, once it is cut, are read in the order of their documents."""
_FILLER = "the trial found a difference in the outcome between both groups, and "
_NOTES = ", 2020, randomised trial and systematic review or meta-analysis"


async def cut_ranking(question: Question, context: Context, ranking: Ranking, strategy: str, limit: int) -> Ranking:
    """Return the longest beginning of the ranking that the strategy can read within `limit` prompt tokens.

    The best passage is read however long it is. Raises ChatError, and InputError for a strategy or a route without a
    limit.
    """
    cut = find_strategy(strategy).cut
    if cut is None or context.options.route == "full-context":
        raise InputError(f"prompts of {strategy}, route {context.options.route}, have no limit: leave the limit out")
    return await cut(question, context, ranking, limit)


async def cut_to_limit(
    ranking: Ranking, count_prompts: Callable[[tuple[Passage, ...]], Awaitable[int]], limit: int
) -> Ranking:
    """Return the longest beginning of the ranking whose prompts have at most `limit` tokens; at least one passage."""

    async def count_first(n: int) -> int:
        return await count_prompts(ranking.passages[:n])

    n, planned = await _find_largest(len(ranking.hits), count_first, limit)
    parameters = {**ranking.parameters, LIMIT: limit, PLANNED: planned}
    cut = replace(ranking, hits=ranking.hits[:n], parameters=parameters)
    return _order_by_document(cut) if DOCUMENT_ORDER in ranking.parameters else cut


def _order_by_document(ranking: Ranking) -> Ranking:
    """Return the hits in the order of the text, documents in the order of their best passages. Ranks stay."""
    places: dict[str, int] = {}
    for place, document_id in enumerate(ranking.document_ids):
        places.setdefault(document_id, place)
    hits = sorted(ranking.hits, key=lambda hit: (places[hit.passage.document_id], hit.passage.ordinal))
    return replace(ranking, hits=tuple(hits))


async def fit_sentences(
    question: Question, context: Context, cut: Callable[[int], tuple[Passage, ...]], sentences: int, limit: int
) -> int:
    """Return how many of the best sentences the prompts of the strategy focused can hold within `limit` tokens.

    `cut` returns the passages of that many sentences. With a route, half of the limit is for BriefContext. The best
    sentence is read however long it is. Raises ChatError.
    """
    share = limit // 2 if context.options.route != "off" else limit

    async def count_prompts(n: int) -> int:
        return await count_rotated_prompts(question, context, cut(n))

    return (await _find_largest(sentences, count_prompts, share))[0]


async def count_map_reduce(question: Question, context: Context, passages: Sequence[Passage]) -> int:
    """Return the prompt tokens of BriefContext for these passages, with findings as long as they may be."""
    total = 0
    parts = partition_passages(passages, context.options.partition, context.count)
    for part in parts:
        total += await _count_request(question, context, part, "map")
    findings: list[PartialAnswer] = []
    for number in range(len(parts)):
        findings.append(_make_longest_finding(number, context))
    prompt, _ = build_reduce_request(question, context, findings, {}, NumberedSentences())
    return total + await _count_prompt(context, "reduce", prompt)


def _make_longest_finding(number: int, context: Context) -> PartialAnswer:
    """Return a finding as long as one may be, with the sentences that the reduce call may name."""
    length = FINDING_CHARACTERS + len(_NOTES)
    if context.options.citing == "numbers":
        length += MAX_QUOTES * QUOTE_CHARACTERS
    rationale = _fill(RATIONALE_CHARACTERS) if context.options.map_confidence else ""
    return PartialAnswer(
        partition=number,
        passages=(),
        state="relevant",
        text=_fill(length),
        choice="A",
        rationale=rationale,
        confidence=5.0,
    )


def _fill(length: int) -> str:
    """Return words of this length, in characters."""
    return (_FILLER * (1 + length // len(_FILLER)))[:length]


async def _find_largest(most: int, count: Callable[[int], Awaitable[int]], limit: int) -> tuple[int, int]:
    """Return the largest number up to `most`, at least 1, whose count is within the limit, and its count.

    Counts rise with the number; where one does not, a smaller number may be returned. Without anything to count the
    number is 0.
    """
    if not most:
        return 0, 0
    best, tokens = 1, await count(1)
    low, high = 2, most
    while low <= high and tokens <= limit:
        middle = (low + high) // 2
        total = await count(middle)
        if total <= limit:
            best, tokens, low = middle, total, middle + 1
        else:
            high = middle - 1
    return best, tokens


async def count_rotated_prompts(question: Question, context: Context, passages: tuple[Passage, ...]) -> int:
    """Return the tokens of one prompt with these passages, times its rotations."""
    rotations = max(1, min(context.options.rotations, len(group_passages(passages, context.count))))
    return rotations * await _count_request(question, context, passages, "rag")


async def _count_request(
    question: Question, context: Context, passages: tuple[Passage, ...], template: Literal["rag", "map"]
) -> int:
    quiet = replace(context, emit=lambda event: None)
    request = await build_documents_request(question, quiet, passages, template)
    return await _count_prompt(context, "map" if template == "map" else "writer", request.prompt)


async def _count_prompt(context: Context, role: str, prompt: Prompt) -> int:
    return await context.models[role].count_tokens(context.defence.protect_prompt(prompt).messages)
