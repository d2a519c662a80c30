"""OpenMedprompt: ensemble refining and self-reflection (the context-retrieval study, section 5.1, figures 3 and 4).

*Ensemble refining*: N drafts at random temperature and top-p after solved questions, then one synthesis of them.
*Self-reflection*: one draft after solved questions, then N rounds. In each round the model criticises the last draft, a
reward model scores it, and the writer reads both and writes a better one. As published, the last draft is the answer;
as corrected, it is the draft with the best reward (errata P8).

A draft that failed is left out and reported.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from statistics import fmean
from typing import Any

from epicrisis.answering.document_answers import conclude
from epicrisis.answering.reply_parsing import AnswerFormat
from epicrisis.answering.self_consistency import build_requests, find_examples
from epicrisis.answering.strategy_context import (
    Context,
    choose_failed_state,
    gather_all,
    get_failed_state,
    make_failure,
    make_unanswered,
    render_question,
)
from epicrisis.answering.structured_request import Sampling, Unreadable, json_objects, object_schema
from epicrisis.core.answers import Answer, AnswerStarted, Draft, Drafted, Notice, Usage
from epicrisis.core.errors import ChatError, ContextOverflow
from epicrisis.core.printable import agree, count_noun
from epicrisis.core.prompts import Prompt, fence
from epicrisis.core.types import Question

ENSEMBLE_REFINING, SELF_REFLECTION = "ensemble-refining", "self-reflection"
CRITIQUE_CHARACTERS = 600
TEMPERATURES = tuple(i / 10 for i in range(11))
TOP_PS = (0.001, *TEMPERATURES[1:])
"""The values for drafts, all equally likely, as in the study's code."""
_NO_FAULT = "No fault was found."
REWARD_ROLE = "reward"
ATTRIBUTES = ("truthfulness", "honesty", "helpfulness")
BEST_MARK = 5


async def ensemble_refining(question: Question, context: Context) -> Answer:
    """Answer with the synthesis of N concurrent drafts."""
    try:
        prompt, reply_format = await _build_first_request(question, context, ENSEMBLE_REFINING)
    except ChatError as error:
        return make_unanswered(question, ENSEMBLE_REFINING, error)
    calls = []
    for number in range(context.refining.drafts):
        generator = random.Random(f"{context.seed}/{question.key}/{number}")
        temperature, top_p = generator.choice(TEMPERATURES), generator.choice(TOP_PS)
        sampling = replace(context.sampling_of("writer"), temperature=temperature, top_p=top_p)
        calls.append(_draft(context, number, prompt, reply_format, sampling))
    drafts = await gather_all(calls)
    answered = [draft for draft in drafts if draft.state == "answered"]
    if not answered:
        return _answer_without_draft(question, ENSEMBLE_REFINING, drafts)
    failed = [draft for draft in drafts if draft.failure is not None]
    context.report_missing(list(map(attrgetter("number"), failed)), len(drafts), "draft", "failed or unreadable")
    answers = fence(map(attrgetter("text"), answered), label="answer")
    prompt = render_question("synthesis", question, answers=answers)
    try:
        if not await context.fits("writer", prompt, reply_format):
            size = f"{count_noun(len(answered), 'draft')} {agree(len(answered), 'does', 'do')}"
            raise ContextOverflow(f"{size} not fit the model's window: make fewer (refine.drafts)")
        reply = await context.ask("writer", "synthesis", prompt, reply_format, stream=True)
        answer = conclude(question, ENSEMBLE_REFINING, reply)
    except (ChatError, Unreadable) as error:
        answer = make_unanswered(question, ENSEMBLE_REFINING, error)
    return replace(answer, drafts=tuple(drafts), decided_by="synthesis")


async def self_reflection(question: Question, context: Context) -> Answer:
    """Answer with one draft and N rounds of criticism, scores and a better draft."""
    try:
        prompt, reply_format = await _build_first_request(question, context, SELF_REFLECTION)
    except ChatError as error:
        return make_unanswered(question, SELF_REFLECTION, error)
    judge = None if context.reward is None else context.reward.judge
    critique_format = AnswerFormat({}, text_field="critique", text_characters=CRITIQUE_CHARACTERS)
    drafts = [await _add_rewards(question, context, await _draft(context, 0, prompt, reply_format, None))]
    while len(drafts) <= context.refining.rounds and drafts[-1].state == "answered":
        number, last = len(drafts), drafts[-1]
        answer_text = fence([last.text], label="answer")
        try:
            critique_prompt = render_question("critique", question, answer=answer_text)
            reply = await context.ask("writer", f"critique {last.number}", critique_prompt, critique_format)
        except (ChatError, Unreadable) as error:
            context.emit(Notice("left-out", f"round {number}: {error}; the earlier drafts remain"))
            break
        drafts[-1] = replace(last, critique=reply.text if reply.has_answer else _NO_FAULT)
        prompt = render_question(
            "improvement",
            question,
            answer=answer_text,
            critique=drafts[-1].critique,
            rewards={name: f"{value:.2f}" for name, value in last.rewards.items()},
            judged=judge is not None,
        )
        draft = await _draft(context, number, prompt, reply_format, None)
        drafts.append(await _add_rewards(question, context, draft))
    answered = [draft for draft in drafts if draft.state == "answered"]
    if not answered:
        return _answer_without_draft(question, SELF_REFLECTION, drafts)
    if (last := drafts[-1]).state != "answered":
        message = f"round {last.number} of {context.refining.rounds} ended {last.state}: the earlier drafts remain"
        context.emit(Notice("left-out", message))
    rewarded = [draft for draft in answered if draft.rewards]
    best, decided_by = answered[-1], "last draft"
    if context.refining.keep != "last" and rewarded:
        # Of equal rewards the later draft wins.
        best = max(rewarded, key=lambda draft: (fmean(draft.rewards.values()), draft.number))
        decided_by = "best reward" if judge is None else f"best mark, judged by {judge}"
    answer = Answer(question, SELF_REFLECTION, "answered", text=best.text, choice=best.choice)
    return replace(answer, drafts=tuple(drafts), decided_by=decided_by)


def _answer_without_draft(question: Question, strategy: str, drafts: Sequence[Draft]) -> Answer:
    """Return an abstention if a draft abstained, else `failed` if a call was lost, else `unparsed`."""
    states = [draft.state for draft in drafts]
    state = "abstained" if "abstained" in states else choose_failed_state(states)
    first = drafts[states.index(state)]
    return Answer(question, strategy, first.state, text=first.text, failure=first.failure, drafts=tuple(drafts))


async def _build_first_request(question: Question, context: Context, strategy: str) -> tuple[Prompt, AnswerFormat]:
    """Return the prompt of a first draft, with solved questions if there are any. Raises ContextOverflow."""
    examples = await find_examples(question, context)
    context.emit(AnswerStarted(strategy, documents=len(examples)))
    return (await build_requests(question, context, examples, [question.options]))[0]


async def _draft(
    context: Context, number: int, prompt: Prompt, reply_format: AnswerFormat, sampling: Sampling | None
) -> Draft:
    """Return one draft. Never raises ChatError or Unreadable."""
    tracked, usages = context.track_usage()
    draft = Draft(number, "abstained")
    try:
        reply = await tracked.ask("writer", f"draft {number}", prompt, reply_format, sampling=sampling, sample=number)
    except (ChatError, Unreadable) as error:
        draft = replace(draft, state=get_failed_state(error), failure=make_failure(error))
    else:
        draft = replace(
            draft, state="answered" if reply.has_answer else "abstained", text=reply.text, choice=reply.choice
        )
    draft = replace(draft, usage=sum(usages, Usage()))
    context.emit(Drafted(draft))
    return draft


async def _add_rewards(question: Question, context: Context, draft: Draft) -> Draft:
    """Return the draft with its rewards. Without a reward model, or if it fails, return it unchanged."""
    if context.reward is None or draft.state != "answered":
        return draft
    try:
        return replace(draft, rewards=await context.reward.score(question, draft.text, context))
    except (ChatError, Unreadable) as error:
        context.emit(Notice("left-out", f"draft {draft.number} has no reward: {error}"))
        return draft


class RewardFormat:
    """The format of a reply with a mark from 1 to 5 for each attribute."""

    max_tokens = 30 + 20 * len(ATTRIBUTES)

    def schema(self) -> Mapping[str, Any]:
        """Return the JSON schema: an object with a whole number from 1 to 5 for each attribute."""
        mark = {"type": "integer", "minimum": 1, "maximum": BEST_MARK}
        return object_schema(dict.fromkeys(ATTRIBUTES, mark))

    def parse(self, text: str) -> Mapping[str, float]:
        """Return the mark of each attribute. Raises Unreadable."""
        for reply in json_objects(text, frozenset(ATTRIBUTES)):
            marks: dict[str, Any] = {name: reply.get(name) for name in ATTRIBUTES}
            if all(type(mark) is int and 1 <= mark <= BEST_MARK for mark in marks.values()):
                return dict(zip(marks, map(float, marks.values()), strict=True))
        raise Unreadable(f"the reply gives no marks from 1 to {BEST_MARK}")


async def request_reward(question: Question, text: str, context: Context) -> Mapping[str, float]:
    """Return the marks that a chat model gives an answer by attribute, in another scale than ArmoRM's scores."""
    answer = fence([text], label="answer")
    prompt = render_question("reward", question, answer=answer)
    return await context.ask(REWARD_ROLE, "reward", prompt, RewardFormat())
