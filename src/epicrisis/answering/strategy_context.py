"""What a strategy is handed, and the one way it calls a model.

Knows no retrieval, no store and no settings: `retrieve` and `preflight` are functions.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

from epicrisis.answering.refining import Refining
from epicrisis.answering.reply_parsing import TextStream, Unreadable
from epicrisis.answering.voting import Voting
from epicrisis.answers import Answer, Event, Failure, ModelCalled, Notice, TextDelta, Usage
from epicrisis.errors import ChatError, ContextOverflow, EndpointTimeout, EpicrisisError, ReplyTruncated, ReplyWithheld
from epicrisis.prompts import Prompt
from epicrisis.protocols import ChatModel, ChatReply, ChatRequest, DeltaCallback
from epicrisis.types import AnswerState, CountUnit, Examples, ExtractionTarget, Preflight, Question, Ranking, Scope

Read = TypeVar("Read", covariant=True)

ANSWER = "answer"
"""The field of a reply that streams."""
SECOND_TRY_TEMPERATURE = 0.5
"""At temperature 0 the same prompt gives the same unreadable reply."""

TEMPLATE_BYTES = 1024
"""More than a chat template adds to the messages of one prompt."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the model of a role draws. `max_reasoning_tokens`: its room for thinking, 0 where it does not think."""

    temperature: float = 0.0
    top_p: float = 1.0
    max_reasoning_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Rewarder:
    """What says how good an answer is."""

    score: Callable[[Question, str, Context], Awaitable[Mapping[str, float]]]
    """By attribute. Raises ChatError, Unreadable."""
    judge: str | None = None
    """The chat model that gives marks where no trained reward model is at hand."""


async def _no_record(_: Question) -> Ranking:
    raise EpicrisisError("full context reads a patient's record: name the library that holds it")


@dataclass(frozen=True, slots=True)
class Context:
    """Everything a strategy may use. `deadline` is a time of `time.monotonic()`."""

    models: Mapping[str, ChatModel]
    """By role: `writer`, `map`, `reduce`."""
    scope: Scope
    emit: Callable[[Event], None]
    retrieve: Callable[[Question], Awaitable[Ranking]]
    preflight: Callable[[Question], Awaitable[Preflight]] | None = None
    partition: int = 4
    count: CountUnit = "documents"
    """What `partition` counts."""
    seed: int = 0
    sampling: Mapping[str, Sampling] = field(default_factory=dict)
    """By role."""
    deadline: float | None = None
    voting: Voting = field(default_factory=Voting)
    examples: Callable[[Question], Awaitable[Examples]] | None = None
    """The solved questions to show; `None` where no library of them is named."""
    refining: Refining = field(default_factory=Refining)
    reward: Rewarder | None = None
    record: Callable[[Question], Awaitable[Ranking]] = _no_record
    """Every note of the patient's record, whole, in the order of time."""
    extract: ExtractionTarget = "span"
    """What answers an extractive question."""
    about: tuple[str, ...] = ()
    """What stands before the documents in a prompt: whose they are, in what order, what the question's time means."""


def spent_by(context: Context) -> tuple[Context, list[Usage]]:
    """The same context, and a list that its calls' usage goes to as well: what one of several side by side took."""
    spent: list[Usage] = []

    def emit(event: Event) -> None:
        if isinstance(event, ModelCalled):
            spent.append(event.usage)
        context.emit(event)

    return replace(context, emit=emit), spent


class ReplyFormat(Protocol[Read]):
    """What is asked of a reply: its schema, its greatest length, and how it is read."""

    @property
    def max_tokens(self) -> int: ...

    def schema(self) -> Mapping[str, Any]: ...

    def read(self, text: str) -> Read:
        """Raises Unreadable."""


async def ask(
    context: Context,
    role: str,
    stage: str,
    prompt: Prompt,
    form: ReplyFormat[Read],
    *,
    stream: bool = False,
    sampling: Sampling | None = None,
    sample: int = 0,
) -> Read:
    """One reply, read. An unreadable, overlong or withheld one is asked for once more, with another draw.

    `sampling` in place of the role's own; `sample` tells draws of the same prompt apart; with `stream` the text of the
    reply's `answer` is told as it comes.

    Raises ChatError where the call failed, ReplyTruncated where both replies ended by length, Unreadable where
    neither could be read.
    """
    drawn = sampling or context.sampling.get(role, Sampling())
    request = ChatRequest(
        prompt.messages,
        form.max_tokens,
        temperature=drawn.temperature,
        top_p=drawn.top_p,
        seed=context.seed,
        sample=sample,
        schema=form.schema(),
        max_reasoning_tokens=drawn.max_reasoning_tokens,
    )
    on_delta = _deltas(context, stage) if stream else None
    try:
        return form.read((await call(context, role, stage, prompt, request, on_delta)).text)
    except (Unreadable, ReplyTruncated, ReplyWithheld) as error:
        context.emit(Notice("asked-again", f"{stage}: {error}; asked once more"))
    hotter = max(drawn.temperature, SECOND_TRY_TEMPERATURE)
    again = replace(request, sample=sample + 1, seed=context.seed + 1, temperature=hotter)
    return form.read((await call(context, role, stage, prompt, again, None)).text)


def _deltas(context: Context, stage: str) -> DeltaCallback:
    """Emits the answer's text, and only that, out of the JSON that streams by."""
    stream = TextStream(ANSWER)

    def on_delta(piece: str | None) -> None:
        nonlocal stream
        if piece is None:
            stream = TextStream(ANSWER)
            context.emit(Notice("restarted", f"{stage}: the reply broke off; what came of it is void, it starts over"))
            return
        text = stream.feed(piece)
        if text:
            context.emit(TextDelta(stage, text))

    return on_delta


async def call(
    context: Context, role: str, stage: str, prompt: Prompt, request: ChatRequest, on_delta: DeltaCallback | None = None
) -> ChatReply:
    """One reply as it came; the call is on record however it ends. Raises ChatError, ReplyTruncated."""
    model = context.models[role]

    def record(finish_reason: str, usage: Usage) -> None:
        context.emit(
            ModelCalled(
                stage,
                model.name,
                prompt.sha256,
                prompt.template,
                request.seed,
                request.sample,
                finish_reason,
                usage,
                at=time.time(),
            )
        )

    try:
        reply = await _within_deadline(context, model, request, on_delta)
    except ChatError as error:
        record(type(error).__name__, error.usage)
        raise
    record(reply.finish_reason, reply.usage)
    if reply.usage.failed_calls:
        context.emit(Notice("retried", f"{stage}: {reply.usage.failed_calls} failed tries before this reply"))
    for note in reply.notes:
        context.emit(Notice("model", f"{stage}: {note}"))
    if reply.finish_reason == "length" and not request.options:
        raise ReplyTruncated(
            f"the reply was cut at {request.max_tokens} tokens: this model does not keep to the form it was asked for"
        )
    return reply


async def _within_deadline(
    context: Context, model: ChatModel, request: ChatRequest, on_delta: DeltaCallback | None
) -> ChatReply:
    if context.deadline is None:
        return await model.complete(request, on_delta)
    left = context.deadline - time.monotonic()
    spent = Usage()
    try:
        if left > 0:
            # What a call that is given up had cost, nobody says.
            spent = Usage(calls=1, failed_calls=1, uncounted_calls=1, cost=None)
            async with asyncio.timeout(left):
                return await model.complete(request, on_delta)
    except TimeoutError:
        pass
    raise EndpointTimeout("the question's deadline passed: give --deadline more seconds", usage=spent)


async def fits(context: Context, role: str, prompt: Prompt, form: ReplyFormat[Any]) -> bool:
    """Whether the prompt and the longest reply fit the model's window; True where the window is not known.

    The tokens are counted only where it could be otherwise: no token stands for less than one byte.
    """
    model = context.models[role]
    window = (await model.capabilities()).context_tokens
    if window is None:
        return True
    room = window - form.max_tokens - context.sampling.get(role, Sampling()).max_reasoning_tokens
    most = TEMPLATE_BYTES + sum(len(message.content.encode()) for message in prompt.messages)
    return most <= room or await model.count_tokens(prompt.messages) <= room


def failure_of(error: ChatError | Unreadable) -> Failure:
    """The value that stands for a failed call or an unreadable reply."""
    return error.as_failure() if isinstance(error, ChatError) else Failure(type(error).__name__, str(error))


def unanswered(question: Question, strategy: str, error: ChatError | Unreadable) -> Answer:
    """The answer that stands for a question whose last call failed or could not be read, or whose prompt is longer than
    the window, so that nobody was asked."""
    state: AnswerState = "failed" if isinstance(error, ChatError) else "unparsed"
    if isinstance(error, ContextOverflow):
        state = "over-window"
    return Answer(question, strategy, state, failure=failure_of(error))
