"""Complete a follow-up question from the conversation before it, so that a search finds what it is about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from epicrisis.answering.structured_request import (
    JsonFormat,
    ModelClient,
    StructuredReply,
    Unreadable,
    read_object,
    text_schema,
)
from epicrisis.prompts import fence, render

PROMPTS = "epicrisis.answering.prompts.follow_up"
QUESTION_CHARACTERS = 1_000
"""The longest completed question. A longer last message gets its own length in addition."""


@dataclass(frozen=True, slots=True)
class ConversationTurn:
    """A message before the question."""

    role: Literal["user", "assistant"]
    text: str


async def complete_question(
    client: ModelClient, turns: Sequence[ConversationTurn], question: str
) -> StructuredReply[str]:
    """Return the question with what it refers to put in, or why there is none. The turns are fenced as data.

    Raises BudgetExceeded.
    """
    messages = fence(f"{turn.role}: {turn.text}" for turn in turns)
    prompt = render(PROMPTS, "complete", messages=messages, question=question)
    limit = QUESTION_CHARACTERS + len(question)
    return await client.request(prompt, JsonFormat({"question": text_schema(limit)}, limit, _read_question))


def _read_question(reply: str) -> str:
    value = read_object(reply, "question")["question"]
    if not isinstance(value, str) or not value.strip():
        raise Unreadable("the reply has no question")
    return " ".join(value.split())
