"""OpenMedprompt: ensemble refining and self-reflection (the context-retrieval study, section 5.1, figures 3 and 4).

*Ensemble refining*: N drafts at random temperature and top-p after solved questions, then one synthesis of them.
*Self-reflection*: one draft after solved questions, then N rounds. In each round the model criticises the last draft, a
reward model scores it, and the writer reads both and writes a better one. As published, the last draft is the answer;
as corrected, it is the draft with the best reward (errata P8).

A draft that failed is left out and reported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from epicrisis.answering.reply_parsing import AnswerFormat
from epicrisis.answering.strategy_context import (
    Context,
    choose_failed_state,
    get_failed_state,
    make_failure,
    render_question,
)
from epicrisis.answering.structured_request import Sampling, Unreadable, json_objects, object_schema
from epicrisis.answering.voting import build_requests, find_examples
from epicrisis.core.answers import Answer, AnswerStarted, Draft, Drafted, Notice, Usage
from epicrisis.core.errors import ChatError
from epicrisis.core.prompts import Prompt, fence
from epicrisis.core.types import Question

REWARD_ROLE = "reward"
ATTRIBUTES = ("truthfulness", "honesty", "helpfulness")
BEST_MARK = 5


def answer_without_draft(question: Question, strategy: str, drafts: Sequence[Draft]) -> Answer:
    """Return an abstention if a draft abstained, else `failed` if a call was lost, else `unparsed`."""
    states = [draft.state for draft in drafts]
    state = "abstained" if "abstained" in states else choose_failed_state(states)
    first = drafts[states.index(state)]
    return Answer(
        question=question,
        strategy=strategy,
        state=first.state,
        text=first.text,
        failure=first.failure,
        drafts=tuple(drafts),
    )


async def build_first_request(question: Question, context: Context, strategy: str) -> tuple[Prompt, AnswerFormat]:
    """Return the prompt of a first draft, with solved questions if there are any. Raises ContextOverflow."""
    examples = await find_examples(question, context)
    context.emit(AnswerStarted(strategy, documents=len(examples)))
    return (await build_requests(question, context, examples, [question.options]))[0]


async def write_draft(
    context: Context, number: int, prompt: Prompt, reply_format: AnswerFormat, sampling: Sampling | None
) -> Draft:
    """Return one draft. Never raises ChatError or Unreadable."""
    tracked, usages = context.track_usage()
    draft = Draft(number=number, state="abstained")
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


async def add_rewards(question: Question, context: Context, draft: Draft) -> Draft:
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
