"""The baseline strategies: closed book, chain of thought, plain RAG, full context, and the most probable next token."""

from __future__ import annotations

import math
from dataclasses import replace

from epicrisis.answering.document_answers import answer_from_documents, conclude
from epicrisis.answering.one_prompt import answer_in_one_prompt, check_route
from epicrisis.answering.paper_prompts import NotebookReply
from epicrisis.answering.reply_parsing import AnswerFormat
from epicrisis.answering.strategy_context import TIE, Context, make_unanswered, render_question
from epicrisis.answering.structured_request import Unreadable
from epicrisis.core.answers import Answer, AnswerStarted, Failure, Notice, Retrieved
from epicrisis.core.errors import ChatError, ContextOverflow, EndpointRejected, InputError
from epicrisis.core.partitioning import take_before_gap
from epicrisis.core.printable import agree, count_noun
from epicrisis.core.protocols import ChatModel, ChatRequest
from epicrisis.core.question_options import first_same_option
from epicrisis.core.types import Question

NOTHING_IN_SCOPE = Failure(
    "NothingInScope",
    "no note of this patient's record is within the scope: check the settings of scope (as_of, since, types, journals "
    "and hide)",
)


async def closed_book(question: Question, context: Context) -> Answer:
    """Answer from the question alone (BriefContext's lower bound)."""
    return await _answer_from_memory(question, context, "closed-book", reasoning=False)


async def chain_of_thought(question: Question, context: Context) -> Answer:
    """Answer from the question alone, with the steps written out before the answer (MIRAGE's CoT)."""
    return await _answer_from_memory(question, context, "chain-of-thought", reasoning=True)


async def _answer_from_memory(question: Question, context: Context, strategy: str, *, reasoning: bool) -> Answer:
    prompt = render_question(strategy.replace("-", "_"), question)
    reply_format: AnswerFormat | NotebookReply = AnswerFormat(question.options, reasoning=reasoning)
    if context.paper_prompts is not None and not reasoning:
        prompt, reply_format = context.paper_prompts.build_closed_book(question)
    context.emit(AnswerStarted(strategy, documents=0))
    try:
        reply = await context.ask("writer", strategy, prompt, reply_format, stream=True)
    except (ChatError, Unreadable) as error:
        return make_unanswered(question, strategy, error)
    return conclude(question, strategy, reply)


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


async def full_context(question: Question, context: Context) -> Answer:
    """Answer from one prompt with every note of the patient's record in the scope, oldest first (EHR study, 4.2).

    A record that exceeds the model's window is not cut; the state is then `over-window`.
    """
    strategy = "full-context"
    ranking = await context.record(question)
    context.emit(Retrieved(ranking))
    if not ranking.hits:
        return Answer(question, strategy, "failed", failure=NOTHING_IN_SCOPE)
    try:
        return await answer_from_documents(question, context, ranking.passages, strategy)
    except ContextOverflow as error:
        n = len(ranking.hits)
        overflow = ContextOverflow(
            f"the record's {count_noun(n, 'note')} {agree(n, 'does', 'do')} not fit the model's window: choose a model "
            "with a larger window, or --strategy rag or brief-context",
            usage=error.usage,
        )
        return Answer(question, strategy, "over-window", failure=overflow.as_failure())
    except (ChatError, Unreadable) as error:
        return make_unanswered(question, strategy, error)


ZERO_SHOT = "zero-shot"
NO_LOGPROBS = "reports no probability for any option: choose a model that reports log-probabilities"
_SAMPLE = Question("Is ice cold?", {"A": "yes", "B": "no"}, "choice")
LOW_MASS = 0.5
"""Below this share of the probability on the letters, the model was likely to write something else."""


async def check_option_logprobs(model: ChatModel) -> None:
    """Raise InputError if the model reports no log-probabilities of options. It is asked one short question."""
    request = ChatRequest(render_question("next_token", _SAMPLE).messages, max_tokens=1, options=tuple(_SAMPLE.options))
    try:
        reply = await model.complete(request)
    except EndpointRejected as error:
        raise InputError(f"{ZERO_SHOT} cannot be asked: {error}") from None
    if reply.option_logprobs is None:
        raise InputError(f"{ZERO_SHOT} cannot be asked: {model.name} {NO_LOGPROBS}")


async def zero_shot(question: Question, context: Context) -> Answer:
    """Answer with the option whose letter is the most probable next token; abstain if two are equally probable.

    The log-probabilities are normalised over the options. No text is generated (the context-retrieval study, Table 1).
    """
    if not question.options:
        message = f"{ZERO_SHOT} reads the probabilities of options and this question has none: ask it closed-book"
        return Answer(question, ZERO_SHOT, "failed", failure=Failure("NoOptions", message))
    prompt = render_question("next_token", question)
    top_p = context.sampling_of("writer").top_p
    request = ChatRequest(
        prompt.messages, max_tokens=1, top_p=top_p, seed=context.seed, options=tuple(question.options)
    )
    context.emit(AnswerStarted(ZERO_SHOT, documents=0))
    try:
        reply = await context.call_model("writer", ZERO_SHOT, prompt, request)
    except ChatError as error:
        return make_unanswered(question, ZERO_SHOT, error)
    logprobs = reply.option_logprobs
    if logprobs is None or not logprobs.values:
        # The call was answered, and its reply holds nothing that can be counted.
        failure = Failure("NoLogprobs", f"the endpoint {NO_LOGPROBS}")
        return Answer(question, ZERO_SHOT, "unparsed", failure=failure)
    if logprobs.mass < LOW_MASS:
        message = f"only {100 * logprobs.mass:.0f} % of the next token's probability is on the options"
        context.emit(Notice("model", message))
    distribution = dict.fromkeys(question.options, 0.0)
    for letter, logprob in logprobs.values.items():
        # Options with the same text share their probability.
        distribution[first_same_option(question.options, letter)] += math.exp(logprob)
    highest = max(distribution.values())
    leaders = [letter for letter, share in distribution.items() if share == highest]
    answer = Answer(question, ZERO_SHOT, "abstained", distribution=distribution, decided_by=TIE)
    if len(leaders) > 1:
        return answer
    choice = leaders[0]
    return replace(answer, state="answered", choice=choice, text=question.options[choice], decided_by="probability")
