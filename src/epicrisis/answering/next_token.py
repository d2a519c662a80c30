"""Zero-shot by next token: the most probable letter (the context-retrieval study, Table 1).

One prompt and no generated text. The log-probabilities of the options' letters decide, normalised over the options. An
endpoint that does not report them fails.
"""

from __future__ import annotations

import math
from dataclasses import replace

from epicrisis.answering.strategy_context import PROMPTS, Context, call_model, make_unanswered
from epicrisis.answering.voting import TIE
from epicrisis.answers import Answer, AnswerStarted, Failure, Notice
from epicrisis.errors import ChatError
from epicrisis.prompts import render
from epicrisis.protocols import ChatRequest
from epicrisis.question_options import first_same_option
from epicrisis.types import Question

ZERO_SHOT = "zero-shot"
LOW_MASS = 0.5
"""Below this share of the probability on the letters, the model was likely to write something else."""


async def zero_shot(question: Question, context: Context) -> Answer:
    """Answer with the most probable option; abstain if two are equally probable."""
    if not question.options:
        message = f"{ZERO_SHOT} reads the probabilities of options and this question has none: ask it closed-book"
        return Answer(question, ZERO_SHOT, "failed", failure=Failure("NoOptions", message))
    prompt = render(PROMPTS, "next_token", question=question.text, options=question.options)
    top_p = context.sampling_of("writer").top_p
    request = ChatRequest(
        prompt.messages, max_tokens=1, top_p=top_p, seed=context.seed, options=tuple(question.options)
    )
    context.emit(AnswerStarted(ZERO_SHOT, documents=0))
    try:
        reply = await call_model(context, "writer", ZERO_SHOT, prompt, request)
    except ChatError as error:
        return make_unanswered(question, ZERO_SHOT, error)
    logprobs = reply.option_logprobs
    if logprobs is None or not logprobs.values:
        message = "the endpoint reports no probability for any option: name a model that reports log-probabilities"
        return Answer(question, ZERO_SHOT, "failed", failure=Failure("NoLogprobs", message))
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
