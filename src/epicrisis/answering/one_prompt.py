"""Answers from one prompt, with two rivals of BriefContext that need no training: rotated documents, and a second way.

`rotations`: several prompts with the documents in rotated order, whose answers vote. This is the control for the place
of the evidence: every document is read in several places.

`route`: a question that the documents do not answer in one prompt goes to BriefContext or to the whole record
(Self-Route, Li et al. 2024).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from operator import itemgetter

from epicrisis.answering.document_answers import answer_from_documents, chose_unanswerable
from epicrisis.answering.map_reduce import map_reduce
from epicrisis.answering.strategy_context import TIE, Context, gather_all, make_unanswered
from epicrisis.answering.structured_request import Unreadable
from epicrisis.answering.voting import count_votes
from epicrisis.core.answers import (
    Answer,
    AnswerStarted,
    Event,
    ModelCalled,
    Notice,
    Retrieved,
    TextDelta,
    Usage,
    Vote,
    Voted,
)
from epicrisis.core.errors import ChatError, InputError
from epicrisis.core.partitioning import group_passages
from epicrisis.core.printable import count_noun
from epicrisis.core.prompts import TIME_ORDER_STATEMENT
from epicrisis.core.types import CountUnit, Passage, Question

CITATIONS = "citations"
"""What decides between the votes on an open question."""


def check_route(context: Context) -> None:
    """Raise InputError if a question without a patient would go to the whole record."""
    if context.options.route == "full-context" and context.scope.patient is None:
        raise InputError(
            "setting route: full-context reads a patient's record: say whose (--patient), or use route=brief-context"
        )


async def answer_in_one_prompt(
    question: Question,
    context: Context,
    passages: tuple[Passage, ...],
    strategy: str,
    everything: tuple[Passage, ...],
) -> Answer:
    """Return the answer from these passages, by votes if there are rotations.

    If they do not answer the question, and there is a route, return the answer of BriefContext from `everything`, or
    that from the whole record. Raises ChatError and Unreadable.
    """
    if context.options.rotations > 1:
        answer = await answer_by_rotations(question, context, passages, strategy)
    else:
        answer = await answer_from_documents(question, context, passages, strategy)
    if context.options.route == "off" or not _says_unanswerable(answer):
        return answer
    message = f"the documents in one prompt do not answer the question: asked again by {context.options.route}"
    context.emit(Notice("routed", message))
    if context.options.route == "brief-context":
        return replace(await map_reduce(question, context, everything), strategy=strategy)
    record = await context.record(question)
    context.emit(Retrieved(record))
    context_of_record = replace(context, about=context.record_about, ranks=record.ranks)
    return await answer_from_documents(question, context_of_record, record.passages, strategy)


def _says_unanswerable(answer: Answer) -> bool:
    """Return whether the model said that the documents do not answer the question. A tied vote does not say so."""
    if answer.state == "abstained":
        return answer.failure is None and answer.decided_by != TIE
    return answer.state == "answered" and chose_unanswerable(answer)


def rotate_passages(passages: Sequence[Passage], count: CountUnit, n: int) -> list[tuple[Passage, ...]]:
    """Return `n` orders of the passages, or fewer if there are fewer documents. The first is the given one.

    Order `i` begins with the document at `i / n` of the list. Passages of a document stay together.
    """
    groups = group_passages(passages, count)
    n = max(1, min(n, len(groups)))
    orders: list[tuple[Passage, ...]] = []
    for number in range(n):
        first = number * len(groups) // n
        orders.append(tuple(itertools.chain(*groups[first:], *groups[:first])))
    return orders


async def answer_by_rotations(
    question: Question, context: Context, passages: tuple[Passage, ...], strategy: str
) -> Answer:
    """Return the answer with the majority of the rotated prompts, or for an open question the one whose citations
    agree most with those of the others.

    The state is that of the votes: an abstention if more abstain, or if options are tied under the tie rule. Raises
    ChatError and Unreadable if there is only one order.
    """
    orders = rotate_passages(passages, context.count, context.options.rotations)
    if len(orders) < context.options.rotations:
        message = (
            f"{count_noun(len(orders), 'rotation')} instead of {context.options.rotations}: there are no more documents"
        )
        context.emit(Notice("rotations", message))
    if len(orders) == 1:
        return await answer_from_documents(question, context, passages, strategy)
    calls = [_answer_rotated(question, context, number, order, strategy) for number, order in enumerate(orders)]
    ballots = await gather_all(calls)
    votes = tuple(map(itemgetter(0), ballots))
    missing = [vote.number for vote in votes if vote.state not in ("answered", "abstained")]
    context.report_missing(missing, len(votes), "rotation", "gave no answer")
    return replace(_decide(question, context, votes, list(map(itemgetter(1), ballots))), votes=votes)


async def _answer_rotated(
    question: Question, context: Context, number: int, passages: tuple[Passage, ...], strategy: str
) -> tuple[Vote, Answer]:
    """Return the vote of one order, with its answer. Never raises ChatError or Unreadable."""

    def emit(event: Event) -> None:
        """Emit the events of one vote of several: no streamed text, and only the start of the first vote."""
        if isinstance(event, ModelCalled):
            event = replace(event, stage=f"vote {number}")
        is_repetition = isinstance(event, AnswerStarted) and number > 0
        if not (is_repetition or isinstance(event, TextDelta)):
            context.emit(event)

    about = context.about
    if number:
        about = tuple(filter(TIME_ORDER_STATEMENT.__ne__, about))
    tracked, usages = replace(context, emit=emit, about=about).track_usage()
    try:
        answer = await answer_from_documents(question, tracked, passages, strategy)
    except (ChatError, Unreadable) as error:
        answer = make_unanswered(question, strategy, error)
    usage = sum(usages, Usage())
    letters = tuple(question.options)
    vote = Vote(
        number=number,
        letter_order=letters,
        state=answer.state,
        choice=answer.choice,
        text=answer.text,
        usage=usage,
        failure=answer.failure,
    )
    context.emit(Voted(vote))
    return vote, answer


def _decide(question: Question, context: Context, votes: Sequence[Vote], answers: Sequence[Answer]) -> Answer:
    """Return the answer of the winning vote, or one that says why none wins."""
    answered = [answer for answer in answers if answer.state == "answered"]
    if not answered:
        # An abstention says most of the question. The reply of a lost call is not known (`choose_failed_state`).
        order = ("abstained", "failed", "unparsed", "over-window")
        return min(answers, key=lambda answer: order.index(answer.state))
    if not question.options:
        abstentions = [answer for answer in answers if answer.state == "abstained"]
        if len(abstentions) > len(answered):
            return abstentions[0]
        return replace(choose_by_citations(answered), decided_by=CITATIONS)
    tally = count_votes(votes, tuple(question.options), context.options.votes.tie)
    if tally.choice is None:
        text = "The votes are tied between options." if tally.decided_by == TIE else ""
        winner = Answer(question=question, strategy=answers[0].strategy, state=tally.state, text=text)
    else:
        winner = choose_by_citations([answer for answer in answered if answer.choice == tally.choice])
    return replace(winner, distribution=tally.distribution, decided_by=tally.decided_by)


def choose_by_citations(answers: Sequence[Answer]) -> Answer:
    """Return the answer whose verified citations agree most with those of the others; of equal ones the first.

    Agreement is the overlap of the cited passages (Jaccard), and lowest for an answer without a verified citation.
    """
    cited: list[frozenset[str]] = []
    for answer in answers:
        cited.append(frozenset(citation.passage_id for citation in answer.citations if citation.verified))
    best, highest = 0, -1.0
    for number, passage_ids in enumerate(cited):
        overlap = 0.0
        for place, other in enumerate(cited):
            if passage_ids and place != number:
                overlap += len(passage_ids & other) / len(passage_ids | other)
        # An answer with a citation that no other has still comes before one without.
        agreement = overlap + bool(passage_ids)
        if agreement > highest:
            best, highest = number, agreement
    return answers[best]
