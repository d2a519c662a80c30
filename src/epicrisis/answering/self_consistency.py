"""Votes over one question: self-consistency, and Medprompt with solved questions shown before (the context-retrieval
study, sections 3.1 and 4.2).

Each vote writes its steps out and states a choice; with shuffling each sees the options in another order and its letter
is mapped back (errata P2, P3). What the votes come to is `voting`'s. Votes are asked all at once.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import replace

from epicrisis.answering.baselines import PROMPTS
from epicrisis.answering.example_messages import announce, with_examples
from epicrisis.answering.reply_parsing import AnswerFormat
from epicrisis.answering.shuffling import ShuffledOptions, as_they_are, shuffled
from epicrisis.answering.strategy_context import Context, ask, fits, make_failure, make_unanswered, track_usage
from epicrisis.answering.structured_request import Sampling, Unreadable
from epicrisis.answering.voting import TIE, tally
from epicrisis.answers import Answer, AnswerStarted, Failure, Notice, Usage, Vote, Voted
from epicrisis.errors import ChatError, ContextOverflow, InputError
from epicrisis.prompts import Prompt, render
from epicrisis.types import Example, Question

NO_EXAMPLES = (
    "medprompt shows solved questions: name a library of them with examples.library (--examples), made by `epicrisis "
    "examples build`"
)
SELF_CONSISTENCY, MEDPROMPT = "self-consistency", "medprompt"


async def self_consistency(question: Question, context: Context) -> Answer:
    """N chains of thought and the majority of their choices; options as they are unless the settings shuffle them."""
    return await _voted(question, context, SELF_CONSISTENCY, (), shuffle=context.voting.shuffle or False)


async def medprompt(question: Question, context: Context) -> Answer:
    """The same with solved questions shown before, and options shuffled unless the settings say otherwise."""
    if context.examples is None:
        raise InputError(NO_EXAMPLES)
    found = await context.examples(question)
    announce(context, found)
    return await _voted(question, context, MEDPROMPT, found.examples, shuffle=context.voting.shuffle is not False)


async def _voted(
    question: Question, context: Context, strategy: str, examples: Sequence[Example], *, shuffle: bool
) -> Answer:
    if not question.options:
        cure = f"{strategy} counts votes for options and this question has none: ask it by ensemble-refining"
        return Answer(question, strategy, "failed", failure=Failure("NoOptions", cure))
    n = context.voting.n
    orders = (as_they_are(question.options),) * n
    if shuffle:
        orders = shuffled(question.options, n, f"{context.seed}/{question.key}")
    if shuffle and n % len(question.options):
        uneven = f"{n} votes over {len(question.options)} options: not every option stands equally often in every place"
        context.emit(Notice("unbalanced", uneven))
    context.emit(AnswerStarted(strategy, documents=len(examples)))
    prompts = [_prompt(question, shown, examples) for shown in orders]
    try:
        if not await fits(context, "writer", *prompts[0]):
            raise ContextOverflow(
                f"{len(examples)} solved questions do not fit the model's window: show fewer (examples.k), or name a "
                "model with a larger one"
            )
    except ChatError as error:
        return make_unanswered(question, strategy, error)
    asked = (_vote(context, i, shown, *prompt) for i, (shown, prompt) in enumerate(zip(orders, prompts, strict=True)))
    # All of them end before an error is raised: what was paid for is on record.
    votes: list[Vote] = []
    for vote in await asyncio.gather(*asked, return_exceptions=True):
        if isinstance(vote, BaseException):
            raise vote
        votes.append(vote)
    return _concluded(question, context, strategy, votes)


def _prompt(question: Question, shown: ShuffledOptions, examples: Sequence[Example]) -> tuple[Prompt, AnswerFormat]:
    prompt = render(PROMPTS, "chain_of_thought", question=question.text, options=shown.options)
    return with_examples(prompt, "chain_of_thought", examples), AnswerFormat(shown.options, reasoning=True)


async def _vote(context: Context, number: int, shown: ShuffledOptions, prompt: Prompt, form: AnswerFormat) -> Vote:
    """One vote. Never raises for a failed call: a failed vote is a result."""
    counted, spent = track_usage(context)
    drawn = context.sampling.get("writer", Sampling())
    sampling = replace(drawn, temperature=context.voting.temperature, top_p=context.voting.top_p)
    vote = Vote(number, shown.letters, "abstained")
    try:
        reply = await ask(counted, "writer", f"vote {number}", prompt, form, sampling=sampling, sample=number)
    except (ChatError, Unreadable) as error:
        vote = replace(
            vote, state="unparsed" if isinstance(error, Unreadable) else "failed", failure=make_failure(error)
        )
    else:
        if reply.found and reply.choice is not None:
            vote = replace(vote, state="answered", choice=shown.own(reply.choice))
        vote = replace(vote, text=reply.text)
    vote = replace(vote, usage=sum(spent, Usage()))
    context.emit(Voted(vote))
    return vote


def _words(question: Question, votes: Sequence[Vote]) -> str:
    """What the first of these votes says that names no letter of another order, where letters mean other options; else
    the option alone."""
    letters = "".join(question.options)
    # "a" and "I" are words.
    small = letters.lower().replace("a", "").replace("i", "") or letters
    named = re.compile(rf"\b[{letters}{small}]\b|(?i:\b[{letters}][)\].:]|\boptions? [{letters}]\b)")
    own = (vote.text for vote in votes if vote.letter_order == tuple(question.options) or not named.search(vote.text))
    return next(own, question.options[votes[0].choice or ""])


def _concluded(question: Question, context: Context, strategy: str, votes: Sequence[Vote]) -> Answer:
    """The answer that the votes come to, in the words of a vote for it."""
    counted = tally(votes, tuple(question.options), context.voting.tie)
    lost = [vote for vote in votes if vote.state in ("failed", "unparsed")]
    if lost:
        numbers = ", ".join(str(vote.number) for vote in lost)
        context.emit(Notice("left-out", f"{len(lost)} of {len(votes)} votes could not be had or read: {numbers}"))
    answer = Answer(
        question,
        strategy,
        counted.state,
        choice=counted.choice,
        votes=tuple(votes),
        distribution=counted.distribution,
        decided_by=counted.decided_by,
    )
    if counted.choice is not None:
        return replace(answer, text=_words(question, [vote for vote in votes if vote.choice == counted.choice]))
    if counted.decided_by == TIE:
        return replace(answer, text="The votes are tied between options.")
    return answer if counted.state == "abstained" else replace(answer, failure=lost[0].failure)
