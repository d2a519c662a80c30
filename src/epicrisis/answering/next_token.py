"""Zero-shot by next token: which option's letter would the model write next? (The context-retrieval study, Table 1.)

One prompt and no text: the options' log-probabilities decide, renormalised over the options. An endpoint that tells
none fails, with the cure.
"""

from __future__ import annotations

import math
from dataclasses import replace

from epicrisis.answering.baselines import PROMPTS
from epicrisis.answering.strategy_context import Context, call_model, make_unanswered
from epicrisis.answering.structured_request import Sampling
from epicrisis.answering.voting import TIE
from epicrisis.answers import Answer, AnswerStarted, Failure, Notice
from epicrisis.errors import ChatError
from epicrisis.prompts import render
from epicrisis.protocols import ChatRequest
from epicrisis.question_options import first_same_option
from epicrisis.types import Question

NAME = "zero-shot"
LITTLE = 0.5
"""Below this share of all probability the model meant to write something else than a letter."""


async def zero_shot(question: Question, context: Context) -> Answer:
    """The most probable option; two that are equally probable are no choice."""
    if not question.options:
        cure = f"{NAME} reads the probabilities of options and this question has none: ask it closed-book"
        return Answer(question, NAME, "failed", failure=Failure("NoOptions", cure))
    prompt = render(PROMPTS, "next_token", question=question.text, options=question.options)
    drawn = context.sampling.get("writer", Sampling())
    request = ChatRequest(
        prompt.messages, max_tokens=1, top_p=drawn.top_p, seed=context.seed, options=tuple(question.options)
    )
    context.emit(AnswerStarted(NAME, documents=0))
    try:
        reply = await call_model(context, "writer", NAME, prompt, request)
    except ChatError as error:
        return make_unanswered(question, NAME, error)
    told = reply.option_logprobs
    if told is None or not told.values:
        cure = "the endpoint told the probability of no option: name a model that tells log-probabilities"
        return Answer(question, NAME, "failed", failure=Failure("NoLogprobs", cure))
    if told.mass < LITTLE:
        context.emit(Notice("model", f"only {100 * told.mass:.0f} % of the next token's probability is on the options"))
    distribution = dict.fromkeys(question.options, 0.0)
    for letter, logprob in told.values.items():
        # What is on two letters of one text is on that text.
        distribution[first_same_option(question.options, letter)] += math.exp(logprob)
    most = max(distribution.values())
    leaders = [letter for letter, share in distribution.items() if share == most]
    answer = Answer(question, NAME, "abstained", distribution=distribution, decided_by=TIE)
    if len(leaders) > 1:
        return answer
    return replace(
        answer, state="answered", choice=leaders[0], text=question.options[leaders[0]], decided_by="probability"
    )
