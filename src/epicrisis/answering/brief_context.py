"""BriefContext: preflight, ContextMap, ContextReduce (npj Digital Medicine 2025, Methods; preprint, Algorithms 1, 2).

Map calls read all parts of the ranking concurrently, and each may report that it found nothing. A reduce call sums up
the findings in the order of the parts. The answer lists the parts whose map call failed (errata C1 to C5).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Literal

from epicrisis.answering.document_answers import (
    answer_from_documents,
    build_documents_request,
    conclude_from_documents,
    locate_quotes,
)
from epicrisis.answering.reply_parsing import AnswerFormat, ParsedReply
from epicrisis.answering.strategy_context import Context, gather_all, make_failure, make_unanswered, render_question
from epicrisis.answering.structured_request import Unreadable
from epicrisis.answers import (
    Answer,
    AnswerStarted,
    Failure,
    MapFinished,
    MapStarted,
    Notice,
    PartialAnswer,
    PreflightChecked,
    Quotation,
    Retrieved,
    Usage,
)
from epicrisis.errors import ChatError, ContextOverflow
from epicrisis.partitioning import partition_passages, split_in_half
from epicrisis.prompts import MARK_LABELS, Prompt, fence
from epicrisis.types import Passage, Question

NAME = "brief-context"


async def brief_context(question: Question, context: Context) -> Answer:
    """Answer with plain RAG if the preflight check, if any, finds that the rankings agree, else with map and reduce."""
    ranking = await context.retrieve(question)
    context.emit(Retrieved(ranking))
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
                message = f"{len(passages)} passages do not fit the model's window in one prompt: read in parts"
                context.emit(Notice("re-partitioned", message))
        answer = answer or await map_reduce(question, context, passages)
    except (ChatError, Unreadable) as error:
        answer = make_unanswered(question, NAME, error)
    return replace(answer, preflight=verdict)


async def map_reduce(question: Question, context: Context, passages: tuple[Passage, ...]) -> Answer:
    """Answer with ContextMap over the parts, then ContextReduce over the findings.

    Raises ChatError if no call could be made: the model does not report its window, or a single passage exceeds it.
    """
    if not passages:
        return await answer_from_documents(question, context, passages, NAME)
    parts = await partition(question, context, passages)
    numbers = itertools.count(len(parts))
    calls = [_map_part(question, context, number, part, numbers) for number, part in enumerate(parts)]
    partials = tuple(itertools.chain.from_iterable(await gather_all(calls)))
    return replace(await _reduce(question, context, partials, passages), partials=partials)


async def partition(question: Question, context: Context, passages: Sequence[Passage]) -> list[tuple[Passage, ...]]:
    """Return the passages in parts of `context.partition`, halved to fit the window. Raises ContextOverflow."""
    queue = partition_passages(passages, context.partition, context.count)
    parts: list[tuple[Passage, ...]] = []
    while queue:
        part = queue.pop(0)
        if await context.fits("map", *build_documents_request(question, context, part, "map")):
            parts.append(part)
            continue
        if len(part) == 1:
            raise ContextOverflow(
                f"passage {part[0].id} alone does not fit the model's window: choose a model with a larger window"
            )
        queue[:0] = _halve(context, part)
    return parts


def _halve(context: Context, part: tuple[Passage, ...]) -> tuple[tuple[Passage, ...], tuple[Passage, ...]]:
    context.emit(Notice("re-partitioned", f"{len(part)} passages do not fit the model's window: halved"))
    return split_in_half(part, context.count)


async def _map_part(
    question: Question, context: Context, number: int, part: tuple[Passage, ...], numbers: Iterator[int]
) -> list[PartialAnswer]:
    """Return the finding of one part, or its failure. Never raises ChatError or Unreadable.

    If the part exceeds the window after all, both halves are read; the second half takes the next of `numbers`.
    """
    ids = tuple(map(attrgetter("id"), part))
    context.emit(MapStarted(number, ids))
    tracked, usages = context.track_usage()
    prompt, reply_format = build_documents_request(question, context, part, "map")
    try:
        reply = await tracked.ask("map", f"map {number}", prompt, reply_format)
    except (ChatError, Unreadable) as error:
        if isinstance(error, ContextOverflow) and len(part) > 1:
            first_half, second_half = _halve(context, part)
            partials = await _map_part(question, context, number, first_half, numbers)
            return partials + await _map_part(question, context, next(numbers), second_half, numbers)
        partial = PartialAnswer(number, ids, "failed", failure=make_failure(error))
    else:
        state: Literal["relevant", "nothing"] = "relevant" if reply.has_answer else "nothing"
        quotations = locate_quotes(question, context, reply, part)
        partial = PartialAnswer(number, ids, state, reply.text, reply.choice, quotations)
    partial = replace(partial, usage=sum(usages, Usage()))
    context.emit(MapFinished(partial))
    return [partial]


async def _reduce(
    question: Question, context: Context, partials: Sequence[PartialAnswer], passages: tuple[Passage, ...]
) -> Answer:
    failed = [partial for partial in partials if partial.state == "failed"]
    context.report_missing(list(map(attrgetter("partition"), failed)), len(partials), "parts could not be read")
    findings = [partial for partial in partials if partial.state == "relevant"]
    if not findings and not failed:
        return Answer(question, NAME, "abstained", text="None of the passages bears on the question.")
    if findings:
        passages_by_id = {passage.id: passage for passage in passages}
        try:
            reply, quotations = await _sum_up(question, context, findings, passages_by_id)
            if reply.has_answer or not failed:
                return conclude_from_documents(question, context, NAME, reply, quotations, passages)
        except (ChatError, Unreadable) as error:
            return make_unanswered(question, NAME, error)
    # An unread part may hold the answer.
    message = f"{len(failed)} of {len(partials)} parts could not be read and the others do not answer the question"
    first = failed[0].failure
    reason = first.message if first else ""
    return Answer(question, NAME, "failed", failure=Failure("MapFailed", f"{message}: {reason}"))


async def _sum_up(
    question: Question, context: Context, findings: Sequence[PartialAnswer], passages: Mapping[str, Passage]
) -> tuple[ParsedReply, tuple[Quotation, ...]]:
    """Return the reply of the reduce call and the quotations of the findings that it names.

    Findings that do not fit one prompt are summed up in halves.
    """
    prompt, reply_format = _build_reduce_request(question, context, findings, passages)
    if await context.fits("reduce", prompt, reply_format):
        context.emit(AnswerStarted("reduce", documents=len(findings)))
        try:
            reply = await context.ask("reduce", "reduce", prompt, reply_format, stream=True)
        except ContextOverflow:
            if len(findings) <= 2:
                raise
        else:
            quotations: list[Quotation] = []
            for number in reply.sources:
                quotations += findings[number - 1].quotations
            return reply, tuple(quotations)
    elif len(findings) <= 2:
        raise ContextOverflow("two findings do not fit the model's window: choose a model with a larger window")
    message = f"{len(findings)} findings do not fit the model's window: summed up by halves"
    context.emit(Notice("re-partitioned", message))
    middle = len(findings) // 2
    summaries: list[PartialAnswer] = []
    for half in (findings[:middle], findings[middle:]):
        reply, half_quotations = await _sum_up(question, context, half, passages)
        if reply.has_answer:
            summaries.append(replace(half[0], text=reply.text, choice=reply.choice, quotations=half_quotations))
    if not summaries:
        return ParsedReply(has_answer=False), ()
    return await _sum_up(question, context, summaries, passages)


def _build_reduce_request(
    question: Question, context: Context, findings: Sequence[PartialAnswer], passages: Mapping[str, Passage]
) -> tuple[Prompt, AnswerFormat]:
    """Return the prompt with the findings, and its reply's format. Quotations would make it as long as a map call."""
    items: list[str] = []
    marks = []
    for finding in findings:
        sources = [passages[quotation.passage_id] for quotation in finding.quotations]
        source_marks = set(itertools.chain.from_iterable(map(attrgetter("marks"), sources)))
        marks.append([mark for mark in MARK_LABELS if mark in source_marks])
        newest = max((source.date or "" for source in sources), default="")
        option = f"option {finding.choice}" if finding.choice else ""
        notes = ", ".join(filter(None, (option, newest)))
        items.append(f"{finding.text} ({notes})" if notes else finding.text)
    documents = fence(items, label="finding", marks=marks)
    prompt = render_question("reduce", question, documents=documents, about=context.about)
    return prompt, AnswerFormat(question.options, sources=len(findings))
