"""OpenMedprompt: ensemble refining and self-reflection (the context-retrieval study, section 5.1, figures 3 and 4).

*Ensemble refining*: N drafts at random temperature and top-p after solved questions, then one synthesis of them.
*Self-reflection*: one draft after solved questions, then N rounds. In each round the model criticises the last draft, a
reward model scores it, and the writer reads both and writes a better one. As published, the last draft is the answer;
as corrected, it is the draft with the best reward (errata P8).

A draft that failed is left out and reported.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from epicrisis.answering.document_answers import conclude
from epicrisis.answering.reply_parsing import AnswerFormat
from epicrisis.answering.self_consistency import add_examples, announce_examples
from epicrisis.answering.strategy_context import (
    PROMPTS,
    Context,
    ask,
    fits,
    make_failure,
    make_unanswered,
    track_usage,
)
from epicrisis.answering.structured_request import Sampling, Unreadable, json_objects, object_schema
from epicrisis.answers import Answer, AnswerStarted, Draft, Drafted, Notice, Usage
from epicrisis.errors import ChatError, ContextOverflow
from epicrisis.prompts import Prompt, fence, render
from epicrisis.types import Example, Question

ENSEMBLE_REFINING, SELF_REFLECTION = "ensemble-refining", "self-reflection"
CRITIQUE_CHARACTERS = 600
TEMPERATURES = tuple(i / 10 for i in range(11))
TOP_PS = (0.001, *(i / 10 for i in range(1, 11)))
"""The values for drafts, all equally likely, as in the study's code."""
_NO_FAULT = "No fault was found."


async def ensemble_refining(question: Question, context: Context) -> Answer:
    """Answer with the synthesis of N concurrent drafts."""
    try:
        prompt, reply_format = await _build_first_request(question, context, ENSEMBLE_REFINING)
    except ChatError as error:
        return make_unanswered(question, ENSEMBLE_REFINING, error)
    calls = []
    for number in range(context.refining.drafts):
        sampling = _draw_sampling(question, context, number)
        calls.append(_draft(context, number, prompt, reply_format, sampling))
    # All calls finish before an error is raised, so that the trace holds everything that was paid for.
    drafts: list[Draft] = []
    for draft in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(draft, BaseException):
            raise draft
        drafts.append(draft)
    answered = [draft for draft in drafts if draft.state == "answered"]
    if not answered:
        return _answer_without_draft(question, ENSEMBLE_REFINING, drafts)
    failed = [draft for draft in drafts if draft.failure is not None]
    if failed:
        numbers = ", ".join(str(draft.number) for draft in failed)
        context.emit(Notice("left-out", f"{len(failed)} of {len(drafts)} drafts failed or were unreadable: {numbers}"))
    answer = await _synthesise(question, context, answered)
    return replace(answer, drafts=tuple(drafts), decided_by="synthesis")


async def self_reflection(question: Question, context: Context) -> Answer:
    """Answer with one draft and N rounds of criticism, scores and a better draft."""
    try:
        prompt, reply_format = await _build_first_request(question, context, SELF_REFLECTION)
    except ChatError as error:
        return make_unanswered(question, SELF_REFLECTION, error)
    drafts = [await _add_rewards(question, context, await _draft(context, 0, prompt, reply_format, None))]
    while len(drafts) <= context.refining.rounds and drafts[-1].state == "answered":
        number = len(drafts)
        try:
            drafts[-1] = replace(drafts[-1], critique=await _criticise(question, context, drafts[-1]))
        except (ChatError, Unreadable) as error:
            context.emit(Notice("left-out", f"round {number}: {error}; the earlier drafts remain"))
            break
        prompt, reply_format = _build_improvement_request(question, context, drafts[-1])
        draft = await _draft(context, number, prompt, reply_format, None)
        drafts.append(await _add_rewards(question, context, draft))
    answered = [draft for draft in drafts if draft.state == "answered"]
    if not answered:
        return _answer_without_draft(question, SELF_REFLECTION, drafts)
    if (last := drafts[-1]).state != "answered":
        message = f"round {last.number} of {context.refining.rounds} ended {last.state}: the earlier drafts remain"
        context.emit(Notice("left-out", message))
    best, decided_by = _choose_draft(context, answered)
    answer = Answer(question, SELF_REFLECTION, "answered", text=best.text, choice=best.choice)
    return replace(answer, drafts=tuple(drafts), decided_by=decided_by)


def _choose_draft(context: Context, drafts: Sequence[Draft]) -> tuple[Draft, str]:
    """Return the draft with the best reward, or the last one, and the reason. Of equal rewards the later draft wins."""
    rewarded = [draft for draft in drafts if draft.rewards]
    if context.refining.keep == "last" or not rewarded:
        return drafts[-1], "last draft"
    judge = None if context.reward is None else context.reward.judge
    reason = "best reward" if judge is None else f"best mark, judged by {judge}"
    return max(rewarded, key=lambda draft: (mean_reward(draft), draft.number)), reason


def mean_reward(draft: Draft) -> float:
    """Return the mean of a draft's rewards over the attributes."""
    return fmean(draft.rewards.values())


def _answer_without_draft(question: Question, strategy: str, drafts: Sequence[Draft]) -> Answer:
    """Return an abstention if a draft abstained, else the state of the first draft."""
    first = next((draft for draft in drafts if draft.state == "abstained"), drafts[0])
    return Answer(question, strategy, first.state, text=first.text, failure=first.failure, drafts=tuple(drafts))


async def _build_first_request(question: Question, context: Context, strategy: str) -> tuple[Prompt, AnswerFormat]:
    """Return the prompt of a first draft, with solved questions if there are any. Raises ContextOverflow."""
    shown: tuple[Example, ...] = ()
    if context.examples is not None:
        examples = await context.examples(question)
        shown = examples.examples
        announce_examples(context, examples)
    context.emit(AnswerStarted(strategy, documents=len(shown)))
    prompt = render(PROMPTS, "chain_of_thought", question=question.text, options=question.options)
    prompt = add_examples(prompt, "chain_of_thought", shown, without_options=not question.options)
    reply_format = _reply_format(question)
    if not await fits(context, "writer", prompt, reply_format):
        raise ContextOverflow(
            f"{len(shown)} solved questions do not fit the model's window: show fewer (examples.k), or name a model "
            "with a larger one"
        )
    return prompt, reply_format


def _reply_format(question: Question) -> AnswerFormat:
    return AnswerFormat(question.options, reasoning=True)


async def _draft(
    context: Context, number: int, prompt: Prompt, reply_format: AnswerFormat, sampling: Sampling | None
) -> Draft:
    """Return one draft. The state of a draft whose call failed is `failed`."""
    tracked, usages = track_usage(context)
    draft = Draft(number, "abstained")
    try:
        reply = await ask(tracked, "writer", f"draft {number}", prompt, reply_format, sampling=sampling, sample=number)
    except Unreadable as error:
        draft = replace(draft, state="unparsed", failure=make_failure(error))
    except ChatError as error:
        draft = replace(draft, state="failed", failure=make_failure(error))
    else:
        draft = replace(draft, state="answered" if reply.found else "abstained", text=reply.text, choice=reply.choice)
    draft = replace(draft, usage=sum(usages, Usage()))
    context.emit(Drafted(draft))
    return draft


def _draw_sampling(question: Question, context: Context, number: int) -> Sampling:
    """Return random sampling parameters that depend on the seed, the question and the draft's number only."""
    generator = random.Random(f"{context.seed}/{question.key}/{number}")
    temperature, top_p = generator.choice(TEMPERATURES), generator.choice(TOP_PS)
    return replace(context.sampling_of("writer"), temperature=temperature, top_p=top_p)


async def _synthesise(question: Question, context: Context, drafts: Sequence[Draft]) -> Answer:
    answers = fence((draft.text for draft in drafts), label="answer")
    prompt = render(PROMPTS, "synthesis", question=question.text, options=question.options, answers=answers)
    reply_format = _reply_format(question)
    try:
        if not await fits(context, "writer", prompt, reply_format):
            raise ContextOverflow(f"{len(drafts)} drafts do not fit the model's window: make fewer (refine.drafts)")
        reply = await ask(context, "writer", "synthesis", prompt, reply_format, stream=True)
    except (ChatError, Unreadable) as error:
        return make_unanswered(question, ENSEMBLE_REFINING, error)
    return conclude(question, ENSEMBLE_REFINING, reply)


async def _criticise(question: Question, context: Context, draft: Draft) -> str:
    """Return the model's criticism of a draft. Raises ChatError and Unreadable."""
    prompt = render(
        PROMPTS,
        "critique",
        question=question.text,
        options=question.options,
        answer=fence([draft.text], label="answer"),
    )
    reply_format = AnswerFormat({}, text_field="critique", text_characters=CRITIQUE_CHARACTERS)
    reply = await ask(context, "writer", f"critique {draft.number}", prompt, reply_format)
    return reply.text if reply.found else _NO_FAULT


def _build_improvement_request(question: Question, context: Context, draft: Draft) -> tuple[Prompt, AnswerFormat]:
    """Return the prompt with the draft's text, its criticism and its rewards."""
    prompt = render(
        PROMPTS,
        "improvement",
        question=question.text,
        options=question.options,
        answer=fence([draft.text], label="answer"),
        critique=draft.critique,
        rewards={name: f"{value:.2f}" for name, value in draft.rewards.items()},
        judged=context.reward is not None and context.reward.judge is not None,
    )
    return prompt, _reply_format(question)


async def _add_rewards(question: Question, context: Context, draft: Draft) -> Draft:
    """Return the draft with its rewards. Without a reward model, or if it fails, return it unchanged."""
    if context.reward is None or draft.state != "answered":
        return draft
    try:
        rewards = await context.reward.score(question, draft.text, context)
    except (ChatError, Unreadable) as error:
        context.emit(Notice("left-out", f"draft {draft.number} has no reward: {error}"))
        return draft
    return replace(draft, rewards=rewards)


ROLE = "reward"
ATTRIBUTES = ("truthfulness", "honesty", "helpfulness")
BEST = 5


@dataclass(frozen=True, slots=True)
class RewardFormat:
    """The format of a reply with a mark for each attribute."""

    attributes: tuple[str, ...] = ATTRIBUTES

    @property
    def max_tokens(self) -> int:
        return 30 + 20 * len(self.attributes)

    def schema(self) -> Mapping[str, Any]:
        """Return the JSON schema: an object with a whole number from 1 to 5 for each attribute."""
        mark = {"type": "integer", "minimum": 1, "maximum": BEST}
        return object_schema(dict.fromkeys(self.attributes, mark))

    def read(self, text: str) -> Mapping[str, float]:
        """Return the mark of each attribute. Raises Unreadable."""
        for reply in json_objects(text, frozenset(self.attributes)):
            if all(map(_is_mark, map(reply.get, self.attributes))):
                return {name: float(reply[name]) for name in self.attributes}
        raise Unreadable(f"the reply gives no marks from 1 to {BEST}")


def _is_mark(value: object) -> bool:
    return type(value) is int and 1 <= value <= BEST


async def request_reward(question: Question, text: str, context: Context) -> Mapping[str, float]:
    """Return the marks of an answer by attribute. Raises ChatError and Unreadable."""
    answer = fence([text], label="answer")
    prompt = render(PROMPTS, "reward", question=question.text, options=question.options, answer=answer)
    return await ask(context, ROLE, "reward", prompt, RewardFormat())
