"""BriefContext: preflight, ContextMap, ContextReduce (npj Digital Medicine 2025, Methods; preprint, Algorithms 1, 2).

The passages are partitioned in the order of the ranking. Each partition is read on its own, all at once; each reader
may report that it found nothing. What was found is summed up in partition order. A map call that failed says nothing
about its passages: it is retried, then named in the answer and left out (errata C1 to C5).
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from epicrisis.answering.baselines import PROMPTS, answer_from, conclude, documents_prompt
from epicrisis.answering.citations import locate_all, locate_span
from epicrisis.answering.extractive import SpanFormat, span_answer, wants_span
from epicrisis.answering.reply_parsing import FINDING_CHARACTERS, AnswerFormat, ParsedReply
from epicrisis.answering.strategy_context import Context, ask, fits, make_failure, make_unanswered
from epicrisis.answering.structured_request import Unreadable
from epicrisis.answers import (
    Answer,
    AnswerStarted,
    Event,
    Failure,
    MapFinished,
    MapStarted,
    ModelCalled,
    Notice,
    PartialAnswer,
    PreflightChecked,
    Quotation,
    Retrieved,
    Usage,
)
from epicrisis.errors import ChatError, ContextOverflow
from epicrisis.partitioning import partition_passages, split_in_half
from epicrisis.prompts import MARK_LABELS, Prompt, fence, render
from epicrisis.types import Passage, Preflight, Question

NAME = "brief-context"


async def brief_context(question: Question, context: Context) -> Answer:
    """Preflight where the context has one; then plain RAG where the rankings agree, else map and reduce."""
    ranking = await context.retrieve(question)
    context.emit(Retrieved(ranking))
    verdict = await _preflight(question, context)
    try:
        answer = await _answer(question, context, ranking.passages, verdict)
    except (ChatError, Unreadable) as error:
        answer = make_unanswered(question, NAME, error)
    return replace(answer, preflight=verdict)


async def _answer(
    question: Question, context: Context, passages: tuple[Passage, ...], verdict: Preflight | None
) -> Answer:
    """From one prompt where the rankings agree and it fits, else in parts."""
    if verdict is None or not verdict.rankings_agree or not passages:
        return await map_reduce(question, context, passages)
    try:
        return await answer_from(question, context, passages, NAME)
    except ContextOverflow:
        read = f"{len(passages)} passages do not fit the model's window in one prompt: read in parts"
        context.emit(Notice("re-partitioned", read))
    return await map_reduce(question, context, passages)


async def _preflight(question: Question, context: Context) -> Preflight | None:
    if context.preflight is None:
        return None
    verdict = await context.preflight(question)
    context.emit(PreflightChecked(verdict))
    return verdict


async def map_reduce(question: Question, context: Context, passages: tuple[Passage, ...]) -> Answer:
    """ContextMap over the partitions, then ContextReduce over what they found.

    Raises ChatError where nothing could be asked at all: the model does not say its window, or one passage exceeds it.
    """
    if not passages:
        return await answer_from(question, context, passages, NAME)
    partitions = await partition(question, context, passages)
    numbers = itertools.count(len(partitions))
    # All of them end before an error is raised: what was paid for is on record.
    read = await asyncio.gather(
        *(_map(question, context, i, part, numbers) for i, part in enumerate(partitions)), return_exceptions=True
    )
    partials: list[PartialAnswer] = []
    for part in read:
        if isinstance(part, BaseException):
            raise part
        partials += part
    answer = await _reduce(question, context, partials, passages)
    return replace(answer, partials=tuple(partials))


async def partition(question: Question, context: Context, passages: Sequence[Passage]) -> list[tuple[Passage, ...]]:
    """The passages in their order, `context.partition` documents to a part (or passages, as `context.count` has it),
    halved where a part does not fit the window.

    Raises ContextOverflow where a single passage does not fit.
    """
    waiting = partition_passages(passages, context.partition, context.count)
    parts: list[tuple[Passage, ...]] = []
    while waiting:
        part = waiting.pop(0)
        if await fits(context, "map", *_map_prompt(question, context, part)):
            parts.append(part)
            continue
        if len(part) == 1:
            raise ContextOverflow(
                f"passage {part[0].id} alone does not fit the model's window: name a model with a larger one"
            )
        waiting[:0] = split_in_half(part, context.count)
        context.emit(Notice("re-partitioned", f"{len(part)} passages do not fit the model's window: halved"))
    return parts


def _map_prompt(
    question: Question, context: Context, part: tuple[Passage, ...]
) -> tuple[Prompt, AnswerFormat | SpanFormat]:
    if wants_span(question, context):
        return documents_prompt(question, context, part, "extract"), SpanFormat(part)
    prompt = documents_prompt(question, context, part, "map")
    form = AnswerFormat(
        question.options,
        text_field="finding",
        text_characters=FINDING_CHARACTERS,
        documents=len(part),
        choice_may_be_null=True,
    )
    return prompt, form


async def _map(
    question: Question, context: Context, number: int, part: tuple[Passage, ...], numbers: Iterator[int]
) -> list[PartialAnswer]:
    """One partition, read. Never raises for a failed call: a failed partial is a result.

    Where the model says that it does not fit after all (its window or its count were not known), it is read in halves;
    the second takes the next of `numbers`.
    """
    ids = tuple(passage.id for passage in part)
    context.emit(MapStarted(number, ids))
    spent: list[Usage] = []

    def emit(event: Event) -> None:
        if isinstance(event, ModelCalled):
            spent.append(event.usage)
        context.emit(event)

    try:
        reply = await ask(replace(context, emit=emit), "map", f"map {number}", *_map_prompt(question, context, part))
    except ContextOverflow as error:
        if len(part) > 1:
            return await _map_halves(question, context, number, part, numbers)
        partial = PartialAnswer(number, ids, "failed", failure=make_failure(error))
    except (ChatError, Unreadable) as error:
        partial = PartialAnswer(number, ids, "failed", failure=make_failure(error))
    else:
        state: Literal["relevant", "nothing"] = "relevant" if reply.found else "nothing"
        if wants_span(question, context):
            quotations = tuple(locate_span(words, part[doc - 1]) for doc, words in reply.quotes)
        else:
            quotations = locate_all(reply.quotes, part)
        partial = PartialAnswer(number, ids, state, reply.text, reply.choice, quotations)
    partial = replace(partial, usage=sum(spent, Usage()))
    context.emit(MapFinished(partial))
    return [partial]


async def _map_halves(
    question: Question, context: Context, number: int, part: tuple[Passage, ...], numbers: Iterator[int]
) -> list[PartialAnswer]:
    context.emit(Notice("re-partitioned", f"{len(part)} passages do not fit the model's window: halved"))
    one, other = split_in_half(part, context.count)
    first = await _map(question, context, number, one, numbers)
    return first + await _map(question, context, next(numbers), other, numbers)


@dataclass(frozen=True, slots=True)
class _Finding:
    text: str
    choice: str | None
    quotations: tuple[Quotation, ...]


async def _reduce(
    question: Question, context: Context, partials: Sequence[PartialAnswer], passages: tuple[Passage, ...]
) -> Answer:
    failed = [partial for partial in partials if partial.state == "failed"]
    if failed:
        parts = ", ".join(str(partial.partition) for partial in failed)
        context.emit(Notice("left-out", f"{len(failed)} of {len(partials)} parts could not be read: {parts}"))
    findings = [_Finding(p.text, p.choice, p.quotations) for p in partials if p.state == "relevant"]
    if not findings:
        return _nothing_found(question, partials, failed)
    places = {passage.id: passage for passage in passages}
    try:
        reply, quotations = await _sum_up(question, context, findings, places)
        if wants_span(question, context) and (reply.found or not failed):
            return span_answer(question, NAME, reply, quotations, passages)
    except (ChatError, Unreadable) as error:
        return make_unanswered(question, NAME, error)
    if not reply.found and failed:
        return _nothing_found(question, partials, failed)
    return conclude(question, NAME, reply, quotations, passages)


def _nothing_found(question: Question, partials: Sequence[PartialAnswer], failed: Sequence[PartialAnswer]) -> Answer:
    """An abstention where every part was read; a failure where some were not, since the answer may stand there."""
    if not failed:
        return Answer(question, NAME, "abstained", text="None of the passages bears on the question.")
    first = failed[0].failure
    message = f"{len(failed)} of {len(partials)} parts could not be read and the others do not answer the question"
    return Answer(
        question, NAME, "failed", failure=Failure("MapFailed", f"{message}: {first.message if first else ''}")
    )


async def _sum_up(
    question: Question, context: Context, findings: Sequence[_Finding], places: Mapping[str, Passage]
) -> tuple[ParsedReply, tuple[Quotation, ...]]:
    """The reduce call, and the quotations behind the findings it named. Findings that do not fit one prompt are summed
    up by halves."""
    prompt, form = _reduce_prompt(question, context, findings, places)
    if await fits(context, "reduce", prompt, form):
        context.emit(AnswerStarted("reduce", documents=len(findings)))
        try:
            reply = await ask(context, "reduce", "reduce", prompt, form, stream=True)
            named = (findings[number - 1].quotations for number in reply.sources)
            return reply, tuple(itertools.chain.from_iterable(named))
        except ContextOverflow:
            if len(findings) <= 2:
                raise
    if len(findings) <= 2:
        raise ContextOverflow("two findings do not fit the model's window: name a model with a larger one")
    context.emit(
        Notice("re-partitioned", f"{len(findings)} findings do not fit the model's window: summed up by halves")
    )
    halves = (findings[: len(findings) // 2], findings[len(findings) // 2 :])
    replies = [await _sum_up(question, context, half, places) for half in halves]
    merged = [_Finding(reply.text, reply.choice, quotations) for reply, quotations in replies if reply.found]
    return await _sum_up(question, context, merged, places) if merged else (ParsedReply(found=False), ())


def _reduce_prompt(
    question: Question, context: Context, findings: Sequence[_Finding], places: Mapping[str, Passage]
) -> tuple[Prompt, AnswerFormat]:
    """What was found, not what it was found in: the paper's partial answers. With the quotations the reduce call alone
    would be as long as a map call; they wait here for the findings that are named."""
    items, marked = [], []
    for finding in findings:
        has = {mark for quotation in finding.quotations for mark in places[quotation.passage_id].marks}
        marked.append([mark for mark in MARK_LABELS if mark in has])
        newest = max((places[quotation.passage_id].date or "" for quotation in finding.quotations), default="")
        marks = ", ".join(filter(None, (f"option {finding.choice}" if finding.choice else "", newest)))
        items.append(f"{finding.text} ({marks})" if marks else finding.text)
    documents = fence(items, label="finding", marks=marked)
    told = {"question": question.text, "options": question.options, "about": context.about}
    prompt = render(PROMPTS, "reduce", documents=documents, **told)
    return prompt, AnswerFormat(question.options, sources=len(findings))
