"""Zero shot: the most probable next token."""

from __future__ import annotations

import math
from dataclasses import replace

from epicrisis.answering.strategy import Strategy
from epicrisis.answering.strategy_context import TIE, Context, make_unanswered, render_question
from epicrisis.core.answers import Answer, AnswerStarted, Failure, Notice
from epicrisis.core.errors import ChatError, EndpointRejected, InputError
from epicrisis.core.protocols import ChatModel, ChatRequest
from epicrisis.core.question_options import first_same_option
from epicrisis.core.types import Question

ZERO_SHOT = "zero-shot"
NO_LOGPROBS = "reports no probability for any option: choose a model that reports log-probabilities"
_SAMPLE = Question("Is ice cold?", options={"A": "yes", "B": "no"}, form="choice")
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
        return Answer(question=question, strategy=ZERO_SHOT, state="failed", failure=Failure("NoOptions", message))
    prompt = render_question("next_token", question)
    top_p = context.sampling_of("writer").top_p
    request = ChatRequest(
        prompt.messages, max_tokens=1, top_p=top_p, seed=context.options.seed, options=tuple(question.options)
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
        return Answer(question=question, strategy=ZERO_SHOT, state="unparsed", failure=failure)
    if logprobs.mass < LOW_MASS:
        message = f"only {100 * logprobs.mass:.0f} % of the next token's probability is on the options"
        context.emit(Notice("model", message))
    distribution = dict.fromkeys(question.options, 0.0)
    for letter, logprob in logprobs.values.items():
        # Options with the same text share their probability.
        distribution[first_same_option(question.options, letter)] += math.exp(logprob)
    highest = max(distribution.values())
    leaders = [letter for letter, share in distribution.items() if share == highest]
    answer = Answer(question=question, strategy=ZERO_SHOT, state="abstained", distribution=distribution, decided_by=TIE)
    if len(leaders) > 1:
        return answer
    choice = leaders[0]
    return replace(answer, state="answered", choice=choice, text=question.options[choice], decided_by="probability")


STRATEGY = Strategy(
    name=ZERO_SHOT,
    run=zero_shot,
    label="Without documents, first word",
    help="The option whose letter is the most probable next token.",
    needs_library=False,
    needs_search=False,
)
