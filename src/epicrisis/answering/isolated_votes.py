"""Isolated votes: read each document alone, and take the majority of their choices without a reduce call.

No text of one document reaches the call that reads another, so m false documents move at most m votes. `VoteMargin`
says how many would have to be false to change the answer (compare RobustRAG, Xiang et al. 2024, section 4.1).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Literal

from epicrisis.answering.citations import cite_claims
from epicrisis.answering.document_answers import (
    NOTHING_RETRIEVED,
    DocumentsRequest,
    build_documents_request,
    cite_reply,
    list_quotations,
)
from epicrisis.answering.map_reduce import NAME
from epicrisis.answering.strategy_context import (
    MAJORITY,
    TIE,
    Context,
    choose_failed_state,
    gather_all,
    get_failed_state,
    make_failure,
    make_unanswered,
    make_unread_failure,
)
from epicrisis.answering.structured_request import Unreadable
from epicrisis.core.answers import (
    Answer,
    MapFinished,
    MapStarted,
    Notice,
    PartialAnswer,
    Retrieved,
    Usage,
    VoteMargin,
)
from epicrisis.core.errors import ChatError, ContextOverflow, InputError
from epicrisis.core.partitioning import split_in_half
from epicrisis.core.printable import count_noun
from epicrisis.core.question_options import first_same_option, is_unanswerable
from epicrisis.core.references import build_reference
from epicrisis.core.study_identity import CitedArticle, group_studies
from epicrisis.core.types import CountUnit, Passage, Question


async def isolated_votes(question: Question, context: Context) -> Answer:
    """Answer with the majority of the choices of single documents or passages, as `context.count` says.

    There is no preflight check, because it may put all documents into one prompt. Raises InputError for a question
    without options, whose answers cannot be counted.
    """
    if not question.options:
        raise InputError(
            f"question {question.id}: isolated votes count options, and this question has none: ask it with options, "
            "or set defence.isolated_votes=false"
        )
    ranking = await context.retrieve(question)
    context.emit(Retrieved(ranking))
    if not ranking.passages:
        return Answer(question=question, strategy=NAME, state="abstained", failure=NOTHING_RETRIEVED)
    context = replace(context, ranks=ranking.ranks)
    units = _group_units(ranking.passages, context.count)
    _name_copies(ranking.passages, context)
    try:
        requests = [await build_documents_request(question, context, unit, "map") for unit in units]
        calls = [_read_unit(question, context, number, request) for number, request in enumerate(requests)]
        partials = await gather_all(calls)
    except (ChatError, Unreadable) as error:
        return make_unanswered(question, NAME, error)
    return replace(_decide(question, context, partials, ranking.passages), partials=tuple(partials))


def _name_copies(passages: Sequence[Passage], context: Context) -> None:
    """Name documents that are one study. Each still votes: a false document must not take the vote of another one."""
    documents = {passage.document_id: passage for passage in reversed(passages) if passage.patient is None}
    articles = [CitedArticle(id_, passage.title, build_reference(passage)) for id_, passage in documents.items()]
    groups = group_studies(articles)
    copies = sum(groups.find(id_) != id_ for id_ in documents)
    if copies:
        context.emit(
            Notice("votes", f"{count_noun(copies, 'vote')} of documents that are copies of a study read before")
        )


def count_isolated_votes(votes: Sequence[str | None], unit: CountUnit) -> VoteMargin:
    """Return the count of the votes, None for a document without a vote. Ties and no votes have no choice.

    One false document takes a vote from the leading option and gives it to the next. So the lead has to be at least
    twice the number of false documents to be lost.
    """
    counts = Counter(vote for vote in votes if vote is not None)
    ordered = counts.most_common()
    lead = ordered[0][1] - (ordered[1][1] if len(ordered) > 1 else 0) if ordered else 0
    choice = ordered[0][0] if lead else None
    return VoteMargin(unit, len(votes), dict(sorted(counts.items())), choice, (lead + 1) // 2)


def _group_units(passages: Sequence[Passage], count: CountUnit) -> list[tuple[Passage, ...]]:
    """Return the passages of each vote. All passages of a document have one vote if documents are counted."""
    if count == "passages":
        return [(passage,) for passage in passages]
    units: dict[str, list[Passage]] = {}
    for passage in passages:
        units.setdefault(passage.document_id, []).append(passage)
    return list(map(tuple, units.values()))


async def _read_unit(question: Question, context: Context, number: int, request: DocumentsRequest) -> PartialAnswer:
    """Return what one document says. Never raises ChatError or Unreadable."""
    ids = tuple(map(attrgetter("id"), request.passages))
    context.emit(MapStarted(number, ids, len(request.sentences.quotations), request.sentences.selected_by))
    tracked, usages = context.track_usage()
    partial = await _read_passages(question, tracked, number, request)
    partial = replace(partial, usage=sum(usages, Usage()))
    context.emit(MapFinished(partial))
    return partial


async def _read_passages(question: Question, context: Context, number: int, request: DocumentsRequest) -> PartialAnswer:
    """Return what the passages say. If they exceed the window, both halves are read and have one vote together."""
    passages, stage = request.passages, f"map {number}"
    ids = tuple(map(attrgetter("id"), passages))
    try:
        if len(passages) > 1 and not await request.fits(context, "map"):
            raise ContextOverflow("these passages do not fit the model's window")
        reply = await context.ask("map", stage, request.prompt, request.reply_format)
        quotations = list_quotations(await cite_reply(context, stage, request, reply))
    except (ChatError, Unreadable) as error:
        if isinstance(error, ContextOverflow) and len(passages) > 1:
            message = f"{len(passages)} passages of a document do not fit the model's window: halved"
            context.emit(Notice("re-partitioned", message))
            halves: list[PartialAnswer] = []
            for half in split_in_half(passages, context.count):
                half_request = await build_documents_request(question, context, half, "map")
                halves.append(await _read_passages(question, context, number, half_request))
            return _join_halves(halves[0], halves[1])
        return PartialAnswer(partition=number, passages=ids, state=get_failed_state(error), failure=make_failure(error))
    state: Literal["relevant", "nothing"] = "relevant" if reply.has_answer else "nothing"
    return PartialAnswer(
        partition=number, passages=ids, state=state, text=reply.text, choice=reply.choice, quotations=quotations
    )


def _join_halves(one: PartialAnswer, two: PartialAnswer) -> PartialAnswer:
    """Return both halves of a document as one. Halves with different choices have none."""
    ids = (*one.passages, *two.passages)
    unread = [half for half in (one, two) if half.is_unread]
    if unread:
        state = choose_failed_state([half.state for half in unread])
        return replace(next(half for half in unread if half.state == state), passages=ids)
    relevant = [half for half in (one, two) if half.state == "relevant"]
    if not relevant:
        return replace(one, passages=ids)
    choices = {half.choice for half in relevant if half.choice is not None}
    return replace(
        relevant[0],
        passages=ids,
        text=" ".join(filter(None, (half.text for half in relevant))),
        choice=choices.pop() if len(choices) == 1 else None,
        quotations=(*one.quotations, *two.quotations),
    )


def _get_vote(question: Question, context: Context, partial: PartialAnswer) -> str | None:
    """Return the option that a document votes for. That the document does not say is no vote."""
    choice = partial.choice
    if partial.state != "relevant" or choice is None or is_unanswerable(choice, question.options):
        return None
    is_verified = any(map(attrgetter("verified"), partial.quotations))
    if not is_verified and context.options.unverified != "keep":
        return None
    return first_same_option(question.options, choice)


def _decide(
    question: Question, context: Context, partials: Sequence[PartialAnswer], passages: Sequence[Passage]
) -> Answer:
    """Return the answer with the most votes, or an abstention for a tie or no vote."""
    unread = [partial.partition for partial in partials if partial.is_unread]
    context.report_missing(unread, len(partials), "part", "could not be read")
    votes = [_get_vote(question, context, partial) for partial in partials]
    margin = count_isolated_votes(votes, context.count)
    n_votes = sum(margin.votes.values())
    distribution = {letter: margin.votes.get(letter, 0) / n_votes for letter in question.options} if n_votes else {}
    if margin.choice is None:
        if unread:
            # An unread part may hold the answer.
            state, failure = make_unread_failure(partials, "the others do not decide")
            return Answer(
                question=question, strategy=NAME, state=state, failure=failure, margin=margin, distribution=distribution
            )
        text = f"The votes of the {margin.unit} are tied." if n_votes else f"None of the {margin.unit} has a vote."
        decided_by = TIE if n_votes else ""
        return Answer(
            question=question,
            strategy=NAME,
            state="abstained",
            text=text,
            margin=margin,
            distribution=distribution,
            decided_by=decided_by,
        )
    if len(unread) >= margin.needed:
        context.emit(Notice("margin", f"the {count_noun(len(unread), 'unread part')} could change the answer"))
    option = question.options[margin.choice]
    rows = [partial for partial, vote in zip(partials, votes, strict=True) if vote == margin.choice]
    claims = [(partial.text or option, partial.quotations) for partial in rows]
    text, citations, cited = cite_claims(claims, passages)
    return Answer(
        question=question,
        strategy=NAME,
        state="answered",
        text=text,
        choice=margin.choice,
        citations=citations,
        claims=cited,
        margin=margin,
        distribution=distribution,
        decided_by=MAJORITY,
    )
