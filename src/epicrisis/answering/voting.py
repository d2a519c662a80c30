"""Votes: the majority of several votes (the context-retrieval study, sections 3.1 and 4.2).

Each vote writes out its steps and states a choice. With shuffling, each vote sees the options in a different order, and
its letter is mapped back (errata P2, P3). Medprompt also shows solved questions.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter

from epicrisis.answering.reply_parsing import AnswerFormat
from epicrisis.answering.strategy_context import (
    MAJORITY,
    PROMPTS,
    TIE,
    Context,
    choose_failed_state,
    gather_all,
    get_failed_state,
    make_failure,
    make_unanswered,
)
from epicrisis.answering.structured_request import Unreadable
from epicrisis.core.answers import Answer, AnswerStarted, ExamplesFound, Failure, Notice, Usage, Vote, Voted
from epicrisis.core.errors import ChatError, ContextOverflow
from epicrisis.core.printable import agree, count_noun
from epicrisis.core.prompts import Prompt, escape, render
from epicrisis.core.protocols import Message
from epicrisis.core.question_options import first_same_option
from epicrisis.core.types import AnswerState, Example, Question, TieRule

NO_EXAMPLES = (
    "shows solved questions: give a library of them with examples.library (--examples), made by `epicrisis examples "
    "build`"
)


async def find_examples(question: Question, context: Context) -> tuple[Example, ...]:
    """Return the solved questions to show, if any. Emit their ids, without their texts, and the notes of the search."""
    if context.examples is None:
        return ()
    result = await context.examples(question)
    ids = tuple(map(attrgetter("id"), result.examples))
    models = set(map(attrgetter("model"), result.examples))
    context.emit(ExamplesFound(ids, result.left_out, tuple(sorted(models))))
    for note in result.notes:
        context.emit(Notice("search", f"solved questions: {note}"))
    return result.examples


async def build_requests(
    question: Question, context: Context, examples: Sequence[Example], orders: Sequence[Mapping[str, str]]
) -> list[tuple[Prompt, AnswerFormat]]:
    """Return a prompt and the format of its reply for each order of the options. Raises ContextOverflow.

    The examples are earlier turns of the conversation, the best one last, in the format of the prompt and its reply.
    """
    turns: list[Message] = []
    for example in reversed(examples):
        if not question.options and example.choice is not None:
            example = replace(example, options={}, choice=None, answer=example.options[example.choice])
        _, text = render(PROMPTS, "chain_of_thought", question=example.text, options=example.options).messages
        # The texts of examples are data, and are escaped like documents.
        result: dict[str, object] = {"found": True, "answer": escape(example.answer)}
        if example.choice is not None:
            result["choice"] = example.choice
        reply = {"reasoning": escape(example.reasoning), "result": result} if example.reasoning else {"result": result}
        turns += [text, Message("assistant", json.dumps(reply, ensure_ascii=False))]
    requests = []
    for options in orders:
        prompt = render(PROMPTS, "chain_of_thought", question=question.text, options=options)
        system, *rest = prompt.messages
        prompt = replace(prompt, messages=(system, *turns, *rest))
        requests.append((prompt, AnswerFormat(options, reasoning=True)))
    if not await context.fits("writer", *requests[0]):
        size = f"{count_noun(len(examples), 'solved question')} {agree(len(examples), 'does', 'do')}"
        raise ContextOverflow(
            f"{size} not fit the model's window: show fewer (examples.k), or choose a model with a larger window"
        )
    return requests


async def vote(
    question: Question, context: Context, strategy: str, examples: Sequence[Example], *, shuffle: bool
) -> Answer:
    """Answer with the majority of the votes, each of which sees the examples."""
    if not question.options:
        message = f"{strategy} counts votes for options and this question has none: ask it by ensemble-refining"
        return Answer(question=question, strategy=strategy, state="failed", failure=Failure("NoOptions", message))
    n = context.options.votes.n
    orders = (keep_order(question.options),) * n
    if shuffle:
        orders = shuffle_options(question.options, n, f"{context.options.seed}/{question.key}")
    if shuffle and n % len(question.options):
        counts = f"{count_noun(n, 'vote')} over {len(question.options)} options"
        message = f"{counts}: the options are not equally often in every place"
        context.emit(Notice("unbalanced", message))
    context.emit(AnswerStarted(strategy, documents=len(examples)))
    try:
        requests = await build_requests(question, context, examples, list(map(attrgetter("options"), orders)))
    except ChatError as error:
        return make_unanswered(question, strategy, error)
    calls = []
    for number, (order, request) in enumerate(zip(orders, requests, strict=True)):
        calls.append(_cast_vote(context, number, order, *request))
    votes = await gather_all(calls)
    tally = count_votes(votes, tuple(question.options), context.options.votes.tie)
    missing = [vote for vote in votes if vote.state in ("failed", "unparsed")]
    context.report_missing(list(map(attrgetter("number"), missing)), len(votes), "vote", "failed or unreadable")
    answer = Answer(
        question=question,
        strategy=strategy,
        state=tally.state,
        choice=tally.choice,
        votes=tuple(votes),
        distribution=tally.distribution,
        decided_by=tally.decided_by,
    )
    if tally.choice is not None:
        return replace(answer, text=_choose_text(question, votes, tally.choice))
    if tally.decided_by == TIE:
        return replace(answer, text="The votes are tied between options.")
    if tally.state == "abstained":
        return answer
    return replace(answer, failure=next(vote.failure for vote in missing if vote.state == tally.state))


async def _cast_vote(
    context: Context, number: int, order: ShuffledOptions, prompt: Prompt, reply_format: AnswerFormat
) -> Vote:
    """Return one vote. Never raises ChatError or Unreadable."""
    tracked, usages = context.track_usage()
    voting = context.options.votes
    sampling = replace(context.sampling_of("writer"), temperature=voting.temperature, top_p=voting.top_p)
    vote = Vote(number=number, letter_order=order.letters, state="abstained")
    try:
        reply = await tracked.ask("writer", f"vote {number}", prompt, reply_format, sampling=sampling, sample=number)
    except (ChatError, Unreadable) as error:
        vote = replace(vote, state=get_failed_state(error), failure=make_failure(error))
    else:
        if reply.has_answer and reply.choice is not None:
            vote = replace(vote, state="answered", choice=order.restore_letter(reply.choice))
        vote = replace(vote, text=reply.text)
    vote = replace(vote, usage=sum(usages, Usage()))
    context.emit(Voted(vote))
    return vote


def _choose_text(question: Question, votes: Sequence[Vote], choice: str) -> str:
    """Return the text of the first vote for this choice without letters of another order, else the option's text."""
    letters = "".join(question.options)
    # "a" and "I" are words.
    small = letters.lower().replace("a", "").replace("i", "") or letters
    mention = re.compile(rf"\b[{letters}{small}]\b|(?i:\b[{letters}][)\].:]|\boptions? [{letters}]\b)")
    for vote in votes:
        if vote.choice == choice and (vote.letter_order == tuple(question.options) or not mention.search(vote.text)):
            return vote.text
    return question.options[choice]


@dataclass(frozen=True, slots=True)
class ShuffledOptions:
    """A question's options in the order of one vote."""

    options: Mapping[str, str]
    """As the model sees them, under the question's letters in their usual order."""
    letters: tuple[str, ...]

    def restore_letter(self, letter: str) -> str:
        """Return the question's letter of the option shown under `letter`; of options with one text the first."""
        texts = dict(zip(self.letters, self.options.values(), strict=True))
        in_order = {place: texts[place] for place in self.options}
        return first_same_option(in_order, self.letters[list(self.options).index(letter)])


def keep_order(options: Mapping[str, str]) -> ShuffledOptions:
    """Return the options in their own order."""
    return ShuffledOptions(options, tuple(options))


def shuffle_options(options: Mapping[str, str], votes: int, seed: int | str) -> tuple[ShuffledOptions, ...]:
    """Return an order of the options for each vote.

    Each block of as many votes as options is a Latin square: a random order and its rotations, shuffled. No option is
    more than one vote ahead of another in a place (errata P3: the study's code falls back to the original order when
    its permutations run out). Another seed for each question keeps the same option from being ahead for all.
    """
    letters = tuple(options)
    generator = random.Random(seed)
    orders: list[tuple[str, ...]] = []
    while len(orders) < votes and letters:
        first = tuple(generator.sample(letters, len(letters)))
        square = [first[i:] + first[:i] for i in range(len(letters))]
        orders += generator.sample(square, len(square))
    shuffled: list[ShuffledOptions] = []
    for order in orders[:votes]:
        texts = map(options.__getitem__, order)
        shuffled.append(ShuffledOptions(dict(zip(letters, texts, strict=True)), order))
    return tuple(shuffled)


@dataclass(frozen=True, slots=True)
class Tally:
    """The result of counting votes. Only the state `answered` has a choice."""

    state: AnswerState
    choice: str | None = None
    decided_by: str = ""
    distribution: Mapping[str, float] = field(default_factory=dict)
    """Each option's share of all votes. The remainder to 1 abstained, failed or was unreadable."""


def count_votes(votes: Sequence[Vote], options: Sequence[str], tie: TieRule = "abstain") -> Tally:
    """Return the option with the most votes, or an abstention if more votes abstain or options are tied.

    If no vote has a choice, the state is `abstained` if a vote abstained, else `failed` if a call was lost, else
    `unparsed`.
    """
    in_order = sorted(votes, key=attrgetter("number"))
    counts = Counter(vote.choice for vote in in_order if vote.choice is not None)
    states = Counter(map(attrgetter("state"), votes))
    if not counts:
        if states["abstained"]:
            return Tally("abstained")
        return Tally(choose_failed_state(states))
    distribution = {letter: counts[letter] / len(votes) for letter in options}
    highest = max(counts.values())
    leaders = [letter for letter, count in counts.items() if count == highest]
    if states["abstained"] > highest:
        return Tally("abstained", None, MAJORITY, distribution)
    if len(leaders) == 1:
        return Tally("answered", leaders[0], MAJORITY, distribution)
    if tie == "first-vote":
        return Tally("answered", leaders[0], tie, distribution)
    return Tally("abstained", None, TIE, distribution)
