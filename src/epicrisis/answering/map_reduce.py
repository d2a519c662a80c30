"""ContextMap and ContextReduce (npj Digital Medicine 2025, Methods; preprint, Algorithms 1, 2).

Map calls read all parts of the ranking concurrently, and each may report that it found nothing. A reduce call sums up
the findings in the order of the parts. The answer lists the parts whose map call failed (errata C1 to C5).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, Literal

from epicrisis.answering.document_answers import (
    DocumentsRequest,
    answer_from_documents,
    build_documents_request,
    cite_reply,
    conclude_from_documents,
    list_quotations,
    wants_confidence,
    wants_span,
)
from epicrisis.answering.paper_prompts import MapReducePrompts, NotebookReply
from epicrisis.answering.reply_parsing import MAX_CONFIDENCE, AnswerFormat, ParsedReply
from epicrisis.answering.sentence_numbers import (
    CitedText,
    NumberedSentences,
    cite_named_sentences,
    number_quotations,
)
from epicrisis.answering.strategy_context import (
    CONFIDENCE_PROMPTS,
    NUMBERED_PROMPTS,
    PROMPTS,
    Context,
    gather_all,
    get_failed_state,
    make_failure,
    make_unanswered,
    make_unread_failure,
    render_question,
)
from epicrisis.answering.structured_request import Unreadable
from epicrisis.core.answers import (
    Answer,
    AnswerStarted,
    MapFinished,
    MapStarted,
    Notice,
    PartialAnswer,
    Quotation,
    Usage,
)
from epicrisis.core.errors import ChatError, ContextOverflow
from epicrisis.core.partitioning import partition_passages, split_in_half
from epicrisis.core.prompts import MARK_LABELS, Prompt, fence
from epicrisis.core.references import find_passage_study
from epicrisis.core.types import ArticleMark, Passage, Question

NAME = "brief-context"


async def map_reduce(question: Question, context: Context, passages: tuple[Passage, ...]) -> Answer:
    """Answer with ContextMap over the parts, then ContextReduce over the findings.

    Raises ChatError if no call could be made: the model does not report its window, or a single passage exceeds it.
    """
    if not passages:
        return await answer_from_documents(question, context, passages, NAME)
    requests = await partition(question, context, passages)
    numbers = itertools.count(len(requests))
    calls = [_map_part(question, context, number, request, numbers) for number, request in enumerate(requests)]
    partials = tuple(itertools.chain.from_iterable(await gather_all(calls)))
    return replace(await _reduce(question, context, partials, passages), partials=partials)


async def partition(question: Question, context: Context, passages: Sequence[Passage]) -> list[DocumentsRequest]:
    """Return the map requests of parts of `context.options.partition` passages, halved to fit the window.

    Raises ContextOverflow.
    """
    queue = partition_passages(passages, context.options.partition, context.count)
    requests: list[DocumentsRequest] = []
    while queue:
        part = queue.pop(0)
        request = await build_documents_request(question, context, part, "map")
        if await request.fits(context, "map"):
            requests.append(request)
            continue
        if len(part) == 1:
            raise ContextOverflow(
                f"passage {part[0].id} alone does not fit the model's window: choose a model with a larger window"
            )
        queue[:0] = _halve(context, part)
    return requests


def _halve(context: Context, part: tuple[Passage, ...]) -> tuple[tuple[Passage, ...], tuple[Passage, ...]]:
    context.emit(Notice("re-partitioned", f"{len(part)} passages do not fit the model's window: halved"))
    return split_in_half(part, context.count)


async def _map_part(
    question: Question, context: Context, number: int, request: DocumentsRequest, numbers: Iterator[int]
) -> list[PartialAnswer]:
    """Return the finding of one part, or why it has none. Never raises ChatError or Unreadable.

    If the part exceeds the window after all, both halves are read; the second half takes the next of `numbers`.
    """
    part, stage = request.passages, f"map {number}"
    ids = tuple(map(attrgetter("id"), part))
    context.emit(MapStarted(number, ids, len(request.sentences.quotations), request.sentences.selected_by))
    tracked, usages = context.track_usage()
    try:
        reply = await tracked.ask("map", stage, request.prompt, request.reply_format)
    except (ChatError, Unreadable) as error:
        if isinstance(error, ContextOverflow) and len(part) > 1:
            halves = _halve(context, part)
            first_half, second_half = [await build_documents_request(question, context, half, "map") for half in halves]
            partials = await _map_part(question, context, number, first_half, numbers)
            return partials + await _map_part(question, context, next(numbers), second_half, numbers)
        partial = PartialAnswer(
            partition=number, passages=ids, state=get_failed_state(error), failure=make_failure(error)
        )
    else:
        state: Literal["relevant", "nothing"] = "relevant" if reply.has_answer else "nothing"
        quotations = list_quotations(await cite_reply(context, stage, request, reply))
        partial = PartialAnswer(
            partition=number,
            passages=ids,
            state=state,
            text=reply.text,
            choice=reply.choice,
            quotations=quotations,
            rationale=reply.rationale,
            confidence=reply.confidence,
        )
    partial = replace(partial, usage=sum(usages, Usage()))
    context.emit(MapFinished(partial))
    return [partial]


async def _reduce(
    question: Question, context: Context, partials: Sequence[PartialAnswer], passages: tuple[Passage, ...]
) -> Answer:
    unread = [partial.partition for partial in partials if partial.is_unread]
    context.report_missing(unread, len(partials), "part", "could not be read")
    findings = [partial for partial in partials if partial.state == "relevant"]
    paper_prompts = _find_paper_prompts(question, context)
    if not findings and not unread and paper_prompts is None:
        return Answer(
            question=question, strategy=NAME, state="abstained", text="None of the passages bears on the question."
        )
    if findings or not unread:
        passages_by_id = {passage.id: passage for passage in passages}
        try:
            reply, claims = await _sum_up(question, context, findings, passages_by_id)
            if reply.has_answer or not unread:
                return conclude_from_documents(question, context, NAME, reply, claims, passages)
        except (ChatError, Unreadable) as error:
            return make_unanswered(question, NAME, error)
    # An unread part may hold the answer.
    state, failure = make_unread_failure(partials, "no other answers the question")
    return Answer(question=question, strategy=NAME, state=state, failure=failure)


def _find_paper_prompts(question: Question, context: Context) -> MapReducePrompts | None:
    """Return the prompts of a paper, whose reduce call answers without findings too, or None where ours are used."""
    return None if wants_span(question, context) else context.map_reduce_prompts


async def _sum_up(
    question: Question,
    context: Context,
    findings: Sequence[PartialAnswer],
    passages: Mapping[str, Passage],
    *,
    is_half: bool = False,
) -> tuple[ParsedReply, tuple[CitedText, ...]]:
    """Return the reply of the reduce call, and its claims with the quotations of the findings.

    Findings that do not fit one prompt are summed up in halves at the same time. If only one half has an answer, it is
    the reply. The reply to a half has a confidence if findings have.
    """
    sentences = NumberedSentences()
    if context.options.citing == "numbers":
        quotations = itertools.chain.from_iterable(map(attrgetter("quotations"), findings))
        verified = [quotation for quotation in quotations if quotation.start is not None]
        sentences = await number_quotations(question, context, verified)
    prompt, reply_format = build_reduce_request(question, context, findings, passages, sentences, is_half=is_half)
    if await context.fits("reduce", prompt, reply_format):
        context.emit(AnswerStarted("reduce", len(findings), len(sentences.quotations)))
        try:
            reply = await context.ask(
                "reduce", "reduce", prompt, reply_format, stream=True, offered=sentences.quotations
            )
        except ContextOverflow:
            if len(findings) <= 2:
                raise
        else:
            return reply, await _cite_findings(context, findings, reply, sentences)
    elif len(findings) <= 2:
        raise ContextOverflow("two findings do not fit the model's window: choose a model with a larger window")
    message = f"{len(findings)} findings do not fit the model's window: summed up by halves"
    context.emit(Notice("re-partitioned", message))
    middle = len(findings) // 2
    halves = (findings[:middle], findings[middle:])
    replies = await gather_all(_sum_up(question, context, half, passages, is_half=True) for half in halves)
    answered = [
        (half, reply, claims) for half, (reply, claims) in zip(halves, replies, strict=True) if reply.has_answer
    ]
    if not answered:
        return ParsedReply(has_answer=False), ()
    if len(answered) == 1:
        _, reply, claims = answered[0]
        return reply, claims
    summaries: list[PartialAnswer] = []
    for half, reply, claims in answered:
        summary = replace(
            half[0],
            text=reply.text,
            choice=reply.choice,
            quotations=list_quotations(claims),
            rationale=reply.rationale,
            confidence=reply.confidence,
        )
        summaries.append(summary)
    return await _sum_up(question, context, summaries, passages, is_half=is_half)


async def _cite_findings(
    context: Context, findings: Sequence[PartialAnswer], reply: ParsedReply, sentences: NumberedSentences
) -> tuple[CitedText, ...]:
    """Return the claims of a reduce reply with the sentences that they name, or with those of the named findings."""
    if not reply.has_answer:
        return ()
    if reply.claims:
        return await cite_named_sentences(context, "reduce", reply.claims, sentences)
    quotations: list[Quotation] = []
    for number in reply.sources:
        quotations += findings[number - 1].quotations
    return (CitedText(reply.text, tuple(quotations)),)


def build_reduce_request(
    question: Question,
    context: Context,
    findings: Sequence[PartialAnswer],
    passages: Mapping[str, Passage],
    sentences: NumberedSentences,
    *,
    is_half: bool = False,
) -> tuple[Prompt, AnswerFormat | NotebookReply]:
    """Return the prompt with the findings, and its reply's format. The prompts of a paper show the findings alone.

    The sentences to name, if there are any, follow the first finding that quotes them. Other quotations are left out:
    they would make the prompt as long as a map call. With `map_confidence` findings have confidence and rationale, and
    so has the reply to a half of them (LLM x MapReduce, Zhou et al. 2024, sections 3.2 and 3.3).
    """
    paper_prompts = _find_paper_prompts(question, context)
    if paper_prompts is not None:
        return paper_prompts.build_reduce(question, list(map(attrgetter("text"), findings)))
    items: list[str] = []
    marks: list[list[ArticleMark]] = []
    places: list[dict[int, int]] = []
    numbers = {quotation: number for number, quotation in enumerate(sentences.quotations, 1)}
    n = len(numbers)
    with_confidence = wants_confidence(question, context)
    for finding in findings:
        sources = [passages[quotation.passage_id] for quotation in finding.quotations]
        source_marks = set(itertools.chain.from_iterable(map(attrgetter("marks"), sources)))
        marks.append([mark for mark in MARK_LABELS if mark in source_marks])
        newest = max((source.date or "" for source in sources), default="")
        option = f"option {finding.choice}" if finding.choice else ""
        if n and finding.choice:
            option = f'option "{question.options.get(finding.choice, finding.choice)}"'
        studies = _list_study_types(sources) if context.options.describe_sources else ""
        confidence = _describe_confidence(finding) if with_confidence else ""
        notes = ", ".join(filter(None, (option, newest, studies, confidence)))
        item = f"{finding.text} ({notes})" if notes else finding.text
        if with_confidence and finding.rationale:
            item = f"{item}\nReason: {finding.rationale}"
        item_places: dict[int, int] = {}
        for quotation in finding.quotations:
            if quotation in numbers:
                item_places[len(item) + 1] = numbers.pop(quotation)
                item = f"{item}\n{quotation.text}"
        items.append(item)
        places.append(item_places)
    documents = fence(items, label="finding", marks=marks, numbers=places)
    reply_format = AnswerFormat(
        question.options,
        sources=0 if n else len(findings),
        sentences=n,
        with_confidence=with_confidence and is_half,
    )
    folder = NUMBERED_PROMPTS if n else PROMPTS
    variables: dict[str, Any] = {}
    if with_confidence:
        folder, variables = CONFIDENCE_PROMPTS, {"numbered": n > 0, "is_half": is_half}
    prompt = render_question("reduce", question, folder, documents=documents, about=context.about, **variables)
    return prompt, reply_format


def _describe_confidence(finding: PartialAnswer) -> str:
    """Return such as `confidence 4 of 5`. An unknown confidence is called unknown."""
    if finding.confidence is None:
        return "confidence unknown"
    return f"confidence {finding.confidence:g} of {MAX_CONFIDENCE}"


def _list_study_types(sources: Sequence[Passage]) -> str:
    """Return the distinct study types of the sources, such as `randomised trial and cohort study`."""
    labels: dict[str, None] = {}
    for source in sources:
        study = find_passage_study(source)
        if study is not None:
            labels[study.label] = None
    return " and ".join(labels)
