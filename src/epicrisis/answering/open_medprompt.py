"""OpenMedprompt: ensemble refining and self-reflection (the context-retrieval study, section 5.1, figures 3 and 4).

*Ensemble refining*: N drafts at varied temperature and top-p with solved questions shown, then one synthesis of them.
*Self-reflection*: one draft with solved questions shown, then N rounds in which the model says what is wrong with the
last draft, a reward model scores it, and the writer, who sees both, writes a better one. The last draft is the answer
as published; as corrected the one that the reward model scores best (errata P8).

A draft that failed is named and left out. Which reward model it is, nobody knows here.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from epicrisis.answering.baselines import PROMPTS, conclude
from epicrisis.answering.example_messages import announce, with_examples
from epicrisis.answering.reply_parsing import AnswerFormat
from epicrisis.answering.strategy_context import Context, ask, fits, make_failure, make_unanswered, track_usage
from epicrisis.answering.structured_request import Sampling, Unreadable
from epicrisis.answers import Answer, AnswerStarted, Draft, Drafted, Notice, Usage
from epicrisis.errors import ChatError, ContextOverflow
from epicrisis.prompts import Prompt, fence, render
from epicrisis.types import AnswerState, Example, Question

ENSEMBLE_REFINING, SELF_REFLECTION = "ensemble-refining", "self-reflection"
CRITIQUE_CHARACTERS = 600
TEMPERATURES = tuple(i / 10 for i in range(11))
TOP_PS = (0.001, *(i / 10 for i in range(1, 11)))
"""What drafts are drawn at, each as likely as any other: the study's code."""
_NO_FAULT = "No fault was found."


async def ensemble_refining(question: Question, context: Context) -> Answer:
    """N drafts all at once, and their synthesis."""
    try:
        prompt, form = await _first(question, context, ENSEMBLE_REFINING)
    except ChatError as error:
        return make_unanswered(question, ENSEMBLE_REFINING, error)
    asked = (_draft(context, i, prompt, form, _varied(question, context, i)) for i in range(context.refining.drafts))
    # All of them end before an error is raised: what was paid for is on record.
    drafts: list[Draft] = []
    for each in await asyncio.gather(*asked, return_exceptions=True):
        if isinstance(each, BaseException):
            raise each
        drafts.append(each)
    good = [draft for draft in drafts if draft.state == "answered"]
    if not good:
        return _without(question, ENSEMBLE_REFINING, drafts)
    if lost := [draft for draft in drafts if draft.failure is not None]:
        numbers = ", ".join(str(draft.number) for draft in lost)
        context.emit(Notice("left-out", f"{len(lost)} of {len(drafts)} drafts could not be had or read: {numbers}"))
    answer = await _synthesis(question, context, good)
    return replace(answer, drafts=tuple(drafts), decided_by="synthesis")


async def self_reflection(question: Question, context: Context) -> Answer:
    """One draft, and N rounds of a critique, scores and a better one."""
    try:
        prompt, form = await _first(question, context, SELF_REFLECTION)
    except ChatError as error:
        return make_unanswered(question, SELF_REFLECTION, error)
    drafts = [await _scored(question, context, await _draft(context, 0, prompt, form, None))]
    while len(drafts) <= context.refining.rounds and drafts[-1].state == "answered":
        number = len(drafts)
        try:
            drafts[-1] = replace(drafts[-1], critique=await _critique(question, context, drafts[-1]))
        except (ChatError, Unreadable) as error:
            context.emit(Notice("left-out", f"round {number}: {error}; what came before stands"))
            break
        better, form = _improved_prompt(question, context, drafts[-1])
        drafts.append(await _scored(question, context, await _draft(context, number, better, form, None)))
    good = [draft for draft in drafts if draft.state == "answered"]
    if not good:
        return _without(question, SELF_REFLECTION, drafts)
    if (last := drafts[-1]).state != "answered":
        ended = f"round {last.number} of {context.refining.rounds} ended {last.state}: what came before stands"
        context.emit(Notice("left-out", ended))
    kept, how = _kept(context, good)
    answer = Answer(question, SELF_REFLECTION, "answered", text=kept.text, choice=kept.choice)
    return replace(answer, drafts=tuple(drafts), decided_by=how)


def _kept(context: Context, drafts: Sequence[Draft]) -> tuple[Draft, str]:
    """The draft that is the answer, and why; of equal rewards the later one."""
    rewarded = [draft for draft in drafts if draft.rewards]
    if context.refining.keep == "last" or not rewarded:
        return drafts[-1], "last draft"
    judge = None if context.reward is None else context.reward.judge
    how = "best reward" if judge is None else f"best mark, judged by {judge}"
    return max(rewarded, key=lambda draft: (reward_of(draft), draft.number)), how


def reward_of(draft: Draft) -> float:
    """The mean over the attributes."""
    return fmean(draft.rewards.values())


def _without(question: Question, strategy: str, drafts: Sequence[Draft]) -> Answer:
    """No draft answers: abstained where one of them abstained, else as the first ended."""
    first = next((draft for draft in drafts if draft.state == "abstained"), drafts[0])
    return Answer(question, strategy, first.state, text=first.text, failure=first.failure, drafts=tuple(drafts))


# -- calls ------------------------------------------------------------------------------------------------------------


async def _first(question: Question, context: Context, strategy: str) -> tuple[Prompt, AnswerFormat]:
    """The prompt of a first draft, with the solved questions there are. Raises ContextOverflow."""
    examples: tuple[Example, ...] = ()
    if context.examples is not None:
        found = await context.examples(question)
        examples = found.examples
        announce(context, found)
    context.emit(AnswerStarted(strategy, documents=len(examples)))
    prompt = render(PROMPTS, "chain_of_thought", question=question.text, options=question.options)
    prompt = with_examples(prompt, "chain_of_thought", examples, openly=not question.options)
    form = _form(question)
    if not await fits(context, "writer", prompt, form):
        raise ContextOverflow(
            f"{len(examples)} solved questions do not fit the model's window: show fewer (examples.k), or name a model "
            "with a larger one"
        )
    return prompt, form


def _form(question: Question) -> AnswerFormat:
    return AnswerFormat(question.options, reasoning=True)


async def _draft(context: Context, number: int, prompt: Prompt, form: AnswerFormat, sampling: Sampling | None) -> Draft:
    """One draft. Never raises for a failed call: a failed draft is a result."""
    counted, spent = track_usage(context)
    draft = Draft(number, "abstained")
    try:
        reply = await ask(counted, "writer", f"draft {number}", prompt, form, sampling=sampling, sample=number)
    except (ChatError, Unreadable) as error:
        state: AnswerState = "unparsed" if isinstance(error, Unreadable) else "failed"
        draft = replace(draft, state=state, failure=make_failure(error))
    else:
        draft = replace(draft, state="answered" if reply.found else "abstained", text=reply.text, choice=reply.choice)
    draft = replace(draft, usage=sum(spent, Usage()))
    context.emit(Drafted(draft))
    return draft


def _varied(question: Question, context: Context, number: int) -> Sampling:
    """Temperature and top-p of one draft, by the seed, the question and its number: more drafts change none of the
    first."""
    drawn = random.Random(f"{context.seed}/{question.key}/{number}")
    own = context.sampling.get("writer", Sampling())
    return replace(own, temperature=drawn.choice(TEMPERATURES), top_p=drawn.choice(TOP_PS))


async def _synthesis(question: Question, context: Context, drafts: Sequence[Draft]) -> Answer:
    """One answer out of the drafts."""
    answers = fence((draft.text for draft in drafts), label="answer")
    prompt = render(PROMPTS, "synthesis", question=question.text, options=question.options, answers=answers)
    form = _form(question)
    try:
        if not await fits(context, "writer", prompt, form):
            raise ContextOverflow(f"{len(drafts)} drafts do not fit the model's window: make fewer (refine.drafts)")
        reply = await ask(context, "writer", "synthesis", prompt, form, stream=True)
    except (ChatError, Unreadable) as error:
        return make_unanswered(question, ENSEMBLE_REFINING, error)
    return conclude(question, ENSEMBLE_REFINING, reply, (), ())


async def _critique(question: Question, context: Context, draft: Draft) -> str:
    """What is wrong with the draft. Raises ChatError, Unreadable."""
    prompt = render(PROMPTS, "critique", question=question.text, options=question.options, answer=_fenced(draft))
    form = AnswerFormat({}, text_field="critique", text_characters=CRITIQUE_CHARACTERS)
    reply = await ask(context, "writer", f"critique {draft.number}", prompt, form)
    return reply.text if reply.found else _NO_FAULT


def _improved_prompt(question: Question, context: Context, draft: Draft) -> tuple[Prompt, AnswerFormat]:
    """What the writer sees of the draft: its text, the critique, the scores."""
    prompt = render(
        PROMPTS,
        "improvement",
        question=question.text,
        options=question.options,
        answer=_fenced(draft),
        critique=draft.critique,
        rewards={name: f"{value:.2f}" for name, value in draft.rewards.items()},
        judged=context.reward is not None and context.reward.judge is not None,
    )
    return prompt, _form(question)


def _fenced(draft: Draft) -> str:
    return fence([draft.text], label="answer")


async def _scored(question: Question, context: Context, draft: Draft) -> Draft:
    """The draft with its rewards, where there is a reward model; where that fails, without them, and said."""
    if context.reward is None or draft.state != "answered":
        return draft
    try:
        rewards = await context.reward.score(question, draft.text, context)
    except (ChatError, Unreadable) as error:
        context.emit(Notice("left-out", f"draft {draft.number} has no reward: {error}"))
        return draft
    return replace(draft, rewards=rewards)
