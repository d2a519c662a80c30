"""Self-reflection: a draft, then rounds of criticism (the context-retrieval study, section 5.1, figure 4)."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean

from epicrisis.answering.drafts import add_rewards, answer_without_draft, build_first_request, write_draft
from epicrisis.answering.reply_parsing import AnswerFormat
from epicrisis.answering.strategy import Strategy
from epicrisis.answering.strategy_context import Context, make_unanswered, render_question
from epicrisis.answering.structured_request import Unreadable
from epicrisis.core.answers import Answer, Notice
from epicrisis.core.errors import ChatError
from epicrisis.core.prompts import fence
from epicrisis.core.types import Question

NAME = "self-reflection"
CRITIQUE_CHARACTERS = 600
_NO_FAULT = "No fault was found."


async def self_reflection(question: Question, context: Context) -> Answer:
    """Answer with one draft and N rounds of criticism, scores and a better draft."""
    try:
        prompt, reply_format = await build_first_request(question, context, NAME)
    except ChatError as error:
        return make_unanswered(question, NAME, error)
    judge = None if context.reward is None else context.reward.judge
    critique_format = AnswerFormat({}, text_field="critique", text_characters=CRITIQUE_CHARACTERS)
    drafts = [await add_rewards(question, context, await write_draft(context, 0, prompt, reply_format, None))]
    while len(drafts) <= context.options.refine.rounds and drafts[-1].state == "answered":
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
        draft = await write_draft(context, number, prompt, reply_format, None)
        drafts.append(await add_rewards(question, context, draft))
    answered = [draft for draft in drafts if draft.state == "answered"]
    if not answered:
        return answer_without_draft(question, NAME, drafts)
    if (last := drafts[-1]).state != "answered":
        message = (
            f"round {last.number} of {context.options.refine.rounds} ended {last.state}: the earlier drafts remain"
        )
        context.emit(Notice("left-out", message))
    rewarded = [draft for draft in answered if draft.rewards]
    best, decided_by = answered[-1], "last draft"
    if context.options.refine.keep != "last" and rewarded:
        # Of equal rewards the later draft wins.
        best = max(rewarded, key=lambda draft: (fmean(draft.rewards.values()), draft.number))
        decided_by = "best reward" if judge is None else f"best mark, judged by {judge}"
    answer = Answer(question=question, strategy=NAME, state="answered", text=best.text, choice=best.choice)
    return replace(answer, drafts=tuple(drafts), decided_by=decided_by)


STRATEGY = Strategy(
    name=NAME,
    run=self_reflection,
    label="A draft and its own criticism",
    help="One draft, then rounds in which the model criticises and improves it.",
    needs_library=False,
    needs_search=False,
    examples="optional",
    needs_reward=True,
)
