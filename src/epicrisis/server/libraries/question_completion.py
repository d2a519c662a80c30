"""Complete a follow-up question from the conversation before it, with the chat model of a library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from epicrisis.answering.follow_up import ConversationTurn, complete_question
from epicrisis.answering.structured_request import ModelClient
from epicrisis.core.answers import Usage
from epicrisis.pipeline.components import read_sampling
from epicrisis.pipeline.pipeline import Pipeline

COMPLETING = "Completing the question from the conversation"
NO_MODEL = (
    "There is no chat model that could complete the question from the conversation. The last message alone was asked."
)
NOT_COMPLETED = (
    "The chat model could not complete the question from the conversation. The last message alone was asked."
)


@dataclass(frozen=True, slots=True)
class CompletedQuestion:
    """The question that was asked in place of the last message."""

    text: str
    by: Literal["last-message", "chat-model"] = "last-message"
    notice: str = ""
    """Why the conversation was not used, if there was one."""
    usage: Usage = field(default_factory=Usage)


async def complete(
    pipeline: Pipeline, turns: Sequence[ConversationTurn], question: str, patient: str | None = None
) -> CompletedQuestion:
    """Return the question with what it refers to put in by the chat model, or the question with the reason."""
    model = pipeline.protect_models(patient, lambda event: None).get("writer")
    if model is None:
        return CompletedQuestion(question, notice=NO_MODEL)
    sampling = read_sampling(pipeline.settings)["writer"]
    client = ModelClient(model, sampling, pipeline.settings.seed)
    reply = await complete_question(client, turns, question)
    if reply.value is None:
        return CompletedQuestion(question, notice=NOT_COMPLETED, usage=reply.usage)
    return CompletedQuestion(reply.value, "chat-model", usage=reply.usage)
