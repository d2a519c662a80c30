"""The context of a strategy, and the only way in which a strategy calls a model."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias, TypeVar

from epicrisis.answering.defence import Defence
from epicrisis.answering.paper_prompts import MapReducePrompts, PaperPrompts
from epicrisis.answering.reply_stream import ReplyStream
from epicrisis.answering.structured_request import ReplyFormat, Sampling, Unreadable, fits_window, request_structured
from epicrisis.core.answers import Answer, Event, Failure, ModelCalled, Notice, PartialAnswer, Quotation, Usage
from epicrisis.core.errors import (
    ChatError,
    ContextOverflow,
    EndpointTimeout,
    EpicrisisError,
    ReplyEmpty,
    ReplyTruncated,
    ReplyWithheld,
)
from epicrisis.core.printable import count_noun
from epicrisis.core.prompts import Prompt, render
from epicrisis.core.protocols import ChatModel, ChatReply, ChatRequest, DeltaCallback
from epicrisis.core.types import (
    AnswerState,
    CharacterSpan,
    CountUnit,
    Examples,
    Preflight,
    Question,
    Ranking,
    Scope,
    SentenceRanking,
)
from epicrisis.settings.settings import AnswerOptions
from epicrisis.system.telemetry import span

T = TypeVar("T")
PROMPTS = "epicrisis.answering.prompts"
NUMBERED_PROMPTS = "epicrisis.answering.prompts.numbered"
"""The prompts of `citing = numbers`."""
CONFIDENCE_PROMPTS = "epicrisis.answering.prompts.confidence"
"""The prompts of `map_confidence`."""
MAJORITY, TIE = "majority", "tie"


@dataclass(frozen=True, slots=True)
class Rewarder:
    """A model that scores answers."""

    score: Callable[[Question, str, Context], Awaitable[Mapping[str, float]]]
    """Return the score of an answer by attribute. Raises ChatError and Unreadable."""
    judge: str | None = None
    """Name of the chat model that gives the scores, or None for a trained reward model."""


async def _refuse_record(_: Question) -> Ranking:
    raise EpicrisisError("full context reads a patient's record: give the library with that record")


async def _refuse_selection(_question: Question, _k: int, _ranking: Ranking | None) -> SentenceRanking:
    raise EpicrisisError("the selection of sentences reads a library: name one")


def _refuse_splitting(_: str) -> Iterable[CharacterSpan]:
    raise EpicrisisError("the neighbours of sentences need a sentence splitter: open a pipeline")


SentenceSplitting: TypeAlias = Callable[[str], Iterable[CharacterSpan]]
SentenceSelection: TypeAlias = Callable[[Question, int, Ranking | None], Awaitable[SentenceRanking]]
TextComparison: TypeAlias = Callable[[Sequence[str], Sequence[str]], Awaitable[Sequence[Sequence[float]]]]
"""Return for each text of the first list the similarity to each of the second; higher is more similar."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Everything that a strategy may use: the options of the answer, the models, and the ways to the evidence."""

    options: AnswerOptions
    models: Mapping[str, ChatModel]
    """By role: `writer`, `map`, `reduce`."""
    scope: Scope
    emit: Callable[[Event], None]
    retrieve: Callable[[Question], Awaitable[Ranking]]
    record: Callable[[Question], Awaitable[Ranking]] = _refuse_record
    """Return every note of the patient's record in chronological order."""
    preflight: Callable[[Question], Awaitable[Preflight]] | None = None
    examples: Callable[[Question], Awaitable[Examples]] | None = None
    """Find solved questions for the prompt. None without a library of examples."""
    reward: Rewarder | None = None
    select_sentences: SentenceSelection = _refuse_selection
    """Return the best sentences, at most so many, of the ranking, or of a search without a ranking."""
    read_whole: Callable[[Ranking], Awaitable[Ranking]] | None = None
    """Return the ranking with the other passages of its first documents behind it. None: only the ranking is read."""
    split_sentences: SentenceSplitting = _refuse_splitting
    """Return the spans of the sentences of a text, in order."""
    compare_texts: TextComparison | None = None
    """Compare texts by the encoder. None without one."""
    ranks: Mapping[str, int] = field(default_factory=dict)
    """The rank of each passage by the search, for the selection of numbered sentences. Empty for a whole record."""
    sampling: Mapping[str, Sampling] = field(default_factory=dict)
    deadline: float | None = None
    """A time of `time.monotonic()`."""
    about: tuple[str, ...] = ()
    """Lines before the documents of a prompt: the patient, the order, the meaning of the question's time words."""
    record_about: tuple[str, ...] = ()
    """The same lines for a prompt with the whole record."""
    prompt_tokens: int | None = None
    """Limit for all prompts of a question together, of strategies that can be cut."""
    paper_prompts: PaperPrompts | None = None
    """The prompts of a paper for rag, brief-context and closed-book, in place of ours."""
    streams: bool = True
    """Whether replies are read while they are written, where a strategy shows them."""

    @property
    def count(self) -> CountUnit:
        """The unit of `k` and of a partition for this question."""
        return self.options.count_unit(self.scope.patient)

    @property
    def defence(self) -> Defence:
        """What is done to prompts and replies against documents that attack the reader."""
        return Defence(self.options.defence)

    @property
    def map_reduce_prompts(self) -> MapReducePrompts | None:
        """The prompts of a paper for map and reduce calls, or None for ours."""
        return self.paper_prompts if isinstance(self.paper_prompts, MapReducePrompts) else None

    def sampling_of(self, role: str) -> Sampling:
        """Return the sampling parameters of a role."""
        return self.sampling.get(role, Sampling())

    def report_missing(self, numbers: Sequence[int], total: int, noun: str, problem: str) -> None:
        """Emit a notice of the parts, drafts or votes without a result, if there are any."""
        if numbers:
            listed = ", ".join(map(str, numbers))
            self.emit(Notice("left-out", f"{len(numbers)} of {count_noun(total, noun)} {problem}: {listed}"))

    def track_usage(self) -> tuple[Context, list[Usage]]:
        """Return a copy of the context and a list that collects the usage of each call made with the copy."""
        usages: list[Usage] = []

        def emit(event: Event) -> None:
            if isinstance(event, ModelCalled):
                usages.append(event.usage)
            self.emit(event)

        return replace(self, emit=emit), usages

    async def ask(
        self,
        role: str,
        stage: str,
        prompt: Prompt,
        reply_format: ReplyFormat[T],
        *,
        stream: bool = False,
        sampling: Sampling | None = None,
        sample: int = 0,
        offered: Sequence[Quotation] = (),
    ) -> T:
        """Send a prompt to the model of a role and return the value of the reply, as `request_structured` does.

        `sampling` replaces the role's parameters, and `sample` distinguishes draws of one prompt. With `stream` the
        text of the reply's `answer` or claims, the `offered` sentences that they name and its choice are emitted while
        they arrive.
        """
        shown_format = reply_format
        reply_stream = ReplyStream(stage, shown_format, self.defence.remove_marks, offered)
        prompt, reply_format = self.defence.protect_prompt(prompt), self.defence.protect_format(reply_format, role)

        def on_delta(piece: str | None) -> None:
            nonlocal reply_stream
            if piece is None:
                reply_stream = ReplyStream(stage, shown_format, self.defence.remove_marks, offered)
                message = f"{stage}: the reply broke off and starts again; discard the text so far"
                self.emit(Notice("restarted", message))
                return
            for delta in reply_stream.feed(piece):
                self.emit(delta)

        async def send(request: ChatRequest) -> ChatReply:
            is_streamed = stream and self.streams and request.sample == sample
            return await self.call_model(role, stage, prompt, request, on_delta if is_streamed else None)

        def on_retry(error: Exception) -> None:
            self.emit(Notice("asked-again", f"{stage}: {error}; asked once more"))

        parameters = sampling or self.sampling_of(role)
        return await request_structured(
            send, prompt, reply_format, parameters, self.options.seed, sample=sample, on_retry=on_retry
        )

    async def call_model(
        self, role: str, stage: str, prompt: Prompt, request: ChatRequest, on_delta: DeltaCallback | None = None
    ) -> ChatReply:
        """Send one request and return the reply. Emit `ModelCalled` even if the call fails. Raises ChatError."""
        model = self.models[role]

        def record_call(finish_reason: str, usage: Usage) -> None:
            self.emit(
                ModelCalled(
                    stage=stage,
                    model=model.name,
                    prompt_sha256=prompt.sha256,
                    template=prompt.template,
                    seed=request.seed,
                    sample=request.sample,
                    finish_reason=finish_reason,
                    usage=usage,
                    at=time.time(),
                )
            )

        try:
            # A stage may have a number: `map 3`.
            with span(stage.partition(" ")[0]) as step:
                reply = await self._complete_before_deadline(model, request, on_delta)
                step.set({"epicrisis.replayed": reply.usage.replayed_calls > 0})
        except ChatError as error:
            record_call(type(error).__name__, error.usage)
            raise
        record_call(reply.finish_reason, reply.usage)
        if reply.usage.failed_calls:
            self.emit(
                Notice(
                    "retried", f"{stage}: {count_noun(reply.usage.failed_calls, 'failed attempt')} before this reply"
                )
            )
        for note in reply.notes:
            self.emit(Notice("model", f"{stage}: {note}"))
        return reply

    async def _complete_before_deadline(
        self, model: ChatModel, request: ChatRequest, on_delta: DeltaCallback | None
    ) -> ChatReply:
        if self.deadline is None:
            return await model.complete(request, on_delta)
        seconds = self.deadline - time.monotonic()
        usage = Usage()
        try:
            if seconds > 0:
                # The cost of a cancelled call is unknown.
                usage = Usage(calls=1, failed_calls=1, uncounted_calls=1, cost=None)
                async with asyncio.timeout(seconds):
                    return await model.complete(request, on_delta)
        except TimeoutError:
            pass
        raise EndpointTimeout("the question's deadline passed: raise the setting deadline_seconds", usage=usage)

    async def fits(self, role: str, prompt: Prompt, reply_format: ReplyFormat[Any]) -> bool:
        """Return whether the prompt and the longest reply fit the model's window; True if the window is unknown."""
        prompt, reply_format = self.defence.protect_prompt(prompt), self.defence.protect_format(reply_format, role)
        return await fits_window(self.models[role], prompt, reply_format, self.sampling_of(role).max_reasoning_tokens)


def render_question(template: str, question: Question, folder: str = PROMPTS, **values: Any) -> Prompt:
    """Return the prompt of a template with the question, its options and these values."""
    return render(folder, template, question=question.text, options=question.options, **values)


async def gather_all(calls: Iterable[Awaitable[T]]) -> list[T]:
    """Return the results of concurrent calls. All finish before an error is raised: the trace holds what was paid."""
    results: list[T] = []
    for result in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
        results.append(result)
    return results


_ANSWERED = (Unreadable, ReplyEmpty, ReplyTruncated, ReplyWithheld)
"""Errors of calls that the model answered, with nothing that can be counted."""


def get_failed_state(error: ChatError | Unreadable) -> Literal["failed", "unparsed"]:
    """Return the state of a part, draft, vote or answer after this error, the same for every strategy.

    `unparsed`: the model answered, and its reply cannot be read: prose, broken JSON, no text, cut at its limit, or
    withheld by a filter. `failed`: the call was not made or not answered.
    """
    return "unparsed" if isinstance(error, _ANSWERED) else "failed"


def choose_failed_state(states: Iterable[str]) -> Literal["failed", "unparsed"]:
    """Return the state of an answer that several calls could have given, and none gave.

    A lost call decides, since its reply is not known: it may be the answer, and the next attempt may get it.
    """
    return "failed" if "failed" in states else "unparsed"


def make_unread_failure(partials: Sequence[PartialAnswer], problem: str) -> tuple[AnswerState, Failure]:
    """Return state and failure of an answer whose unread parts may hold what the others do not say.

    The kind of the failure is that of all unread parts, if they have one in common.
    """
    unread = [partial for partial in partials if partial.is_unread]
    state = choose_failed_state([partial.state for partial in unread])
    failures = [partial.failure for partial in unread if partial.state == state and partial.failure is not None]
    kinds = {failure.kind for failure in failures}
    kind = kinds.pop() if state == "unparsed" and len(kinds) == 1 else "MapFailed"
    reason = failures[0].message if failures else ""
    parts = f"{len(unread)} of {count_noun(len(partials), 'part')} could not be read"
    return state, Failure(kind, f"{parts} and {problem}: {reason}")


def make_failure(error: ChatError | Unreadable) -> Failure:
    """Return the record of a failed call or an unreadable reply."""
    return error.as_failure() if isinstance(error, ChatError) else Failure(type(error).__name__, str(error))


def make_unanswered(question: Question, strategy: str, error: ChatError | Unreadable) -> Answer:
    """Return the answer to a question whose last call failed, was unreadable or exceeded the model's window."""
    state: AnswerState = "over-window" if isinstance(error, ContextOverflow) else get_failed_state(error)
    return Answer(question=question, strategy=strategy, state=state, failure=make_failure(error))
