"""The one way to call a model: second tries, deadlines, what is on record, what streams."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from epicrisis.answering.reply_parsing import AnswerFormat, ParsedReply
from epicrisis.answering.strategy_context import make_failure, make_unanswered
from epicrisis.answering.structured_request import SECOND_TRY_TEMPERATURE, Sampling, Unreadable
from epicrisis.core.answers import Failure, ModelCalled, Notice, TextDelta, Usage
from epicrisis.core.errors import (
    ChatError,
    EndpointBusy,
    EndpointRejected,
    EndpointTimeout,
    ReplyTruncated,
    ReplyWithheld,
)
from epicrisis.core.prompts import Prompt
from epicrisis.core.protocols import Capabilities, ChatReply, ChatRequest, DeltaCallback, Message
from epicrisis.testing.chat import ScriptedModel
from tests.support.strategies import NOT_FOUND, OPEN_QUESTION, World, said, world

PROMPT = Prompt((Message("system", "Be brief."), Message("user", "Why?")), "why@000000000000")
FORM = AnswerFormat({"A": "yes", "B": "no"})
GOOD = said(answer="It does so.", choice="A")


def in_turn(*replies: str | ChatError) -> ScriptedModel:
    """Says one after the other."""
    waiting = list(replies)

    def script(_: ChatRequest) -> str:
        reply = waiting.pop(0)
        if isinstance(reply, ChatError):
            raise reply
        return reply

    return ScriptedModel(script)


def ask_in(asked: World, **more: Any) -> ParsedReply:
    return asyncio.run(asked.context.ask("writer", "stage", PROMPT, FORM, **more))


def test_valid_reply_makes_one_call() -> None:
    model = in_turn(GOOD)
    asked = world(model, (), seed=7, sampling={"writer": Sampling(0.25), "map": Sampling(1.0)})
    assert ask_in(asked) == ParsedReply(has_answer=True, text="It does so.", choice="A")
    (request,) = model.requests
    assert request == ChatRequest(
        PROMPT.messages, max_tokens=FORM.max_tokens, temperature=0.25, seed=7, sample=0, schema=FORM.schema()
    )
    (called,) = asked.events
    assert isinstance(called, ModelCalled)
    assert (called.stage, called.model, called.finish_reason, called.seed, called.sample) == (
        "stage",
        "scripted",
        "stop",
        7,
        0,
    )
    assert (called.prompt_sha256, called.template) == (PROMPT.sha256, "why@000000000000")
    assert called.usage == Usage(calls=1, prompt_tokens=3, completion_tokens=len(GOOD.split()))


def test_role_without_temperature_sends_none() -> None:
    model = in_turn(GOOD)
    ask_in(world(model, (), sampling={"map": Sampling(1.0)}))
    assert model.requests[0].temperature == 0.0


@pytest.mark.parametrize(("temperature", "second"), [(0.0, SECOND_TRY_TEMPERATURE), (0.9, 0.9)])
def test_unreadable_reply_is_requested_again(temperature: float, second: float) -> None:
    model = in_turn("I cannot say.", GOOD)
    asked = world(model, (), seed=7, sampling={"writer": Sampling(temperature)})
    assert ask_in(asked).choice == "A"
    first, again = model.requests
    assert (again.sample, again.seed, again.temperature) == (1, 8, second)
    assert (again.messages, again.schema, again.max_tokens) == (first.messages, first.schema, first.max_tokens)
    (notice,) = asked.of(Notice)
    assert notice.kind == "asked-again"
    assert notice.message.startswith("stage: the reply states no choices")
    assert [called.sample for called in asked.of(ModelCalled)] == [0, 1]


def test_two_unreadable_replies_give_unreadable() -> None:
    model = in_turn("I cannot say.", "Nor can I.", GOOD)
    asked = world(model, ())
    with pytest.raises(Unreadable):
        ask_in(asked)
    assert len(model.requests) == len(asked.of(ModelCalled)) == 2


def test_failed_call_is_recorded_without_retry() -> None:
    model = in_turn(EndpointRejected("no such model", usage=Usage(calls=2, failed_calls=2)), GOOD)
    asked = world(model, ())
    with pytest.raises(EndpointRejected, match="no such model"):
        ask_in(asked)
    assert len(model.requests) == 1
    (called,) = asked.of(ModelCalled)
    assert called.finish_reason == "EndpointRejected"
    assert called.usage == Usage(calls=3, failed_calls=3)


class _Ends(ScriptedModel):
    """Replies that end as said, or that cost failed tries before."""

    def __init__(self, *ends: str, failed: int = 0) -> None:
        super().__init__(lambda _: GOOD)
        self._ends = list(ends)
        self._failed = failed

    async def complete(self, request: ChatRequest, on_delta: DeltaCallback | None = None) -> ChatReply:
        reply = await super().complete(request, on_delta)
        usage = Usage(calls=1 + self._failed, failed_calls=self._failed)
        return ChatReply(text=reply.text, finish_reason=self._ends.pop(0), model=reply.model, usage=usage)


def test_reply_ended_by_length_is_requested_again() -> None:
    model = _Ends("length", "stop")
    asked = world(model, ())
    assert ask_in(asked).choice == "A"
    assert [request.sample for request in model.requests] == [0, 1]
    assert [called.finish_reason for called in asked.of(ModelCalled)] == ["length", "stop"]
    assert f"cut at {FORM.max_tokens} tokens" in asked.of(Notice)[0].message


def test_two_replies_ended_by_length_give_truncated() -> None:
    with pytest.raises(ReplyTruncated):
        ask_in(world(_Ends("length", "length"), ()))


def test_failed_attempts_are_noted() -> None:
    asked = world(_Ends("stop", failed=2), ())
    ask_in(asked)
    (notice,) = asked.of(Notice)
    assert (notice.kind, notice.message) == ("retried", "stage: 2 failed attempts before this reply")


def test_stream_contains_only_answer_text() -> None:
    asked = world(in_turn(GOOD), ())
    ask_in(asked, stream=True)
    deltas = asked.of(TextDelta)
    assert "".join(delta.text for delta in deltas) == "It does so."
    assert len(deltas) > 1
    assert {delta.stage for delta in deltas} == {"stage"}
    assert not ask_events(stream=False)


def ask_events(*, stream: bool) -> list[TextDelta]:
    asked = world(in_turn(GOOD), ())
    ask_in(asked, stream=stream)
    return asked.of(TextDelta)


def test_restarted_reply_is_read_from_restart() -> None:
    class Restarts(ScriptedModel):
        async def complete(self, request: ChatRequest, on_delta: DeltaCallback | None = None) -> ChatReply:
            assert on_delta is not None
            for piece in ('{"result": {"found": true, "answer": "It nev', None):
                on_delta(piece)
            return await super().complete(request, on_delta)

    asked = world(Restarts(lambda _: GOOD), ())
    ask_in(asked, stream=True)
    shown = [event for event in asked.events if isinstance(event, (TextDelta, Notice))]
    kinds = [event.text if isinstance(event, TextDelta) else event.kind for event in shown]
    assert kinds[:2] == ["It nev", "restarted"]
    assert "".join(kinds[2:]) == "It does so."


def test_withheld_reply_is_requested_again() -> None:
    asked = world(in_turn(ReplyWithheld("filtered"), GOOD), ())
    assert ask_in(asked).choice == "A"
    assert [called.sample for called in asked.of(ModelCalled)] == [0, 1]
    with pytest.raises(ReplyWithheld):
        ask_in(world(in_turn(ReplyWithheld("filtered"), ReplyWithheld("filtered")), ()))


def test_reply_notes_are_recorded() -> None:
    class Notes(ScriptedModel):
        async def complete(self, request: ChatRequest, on_delta: DeltaCallback | None = None) -> ChatReply:
            return replace(await super().complete(request, on_delta), notes=("it takes no temperature",))

    asked = world(Notes(lambda _: GOOD), ())
    ask_in(asked)
    assert asked.of(Notice) == [Notice("model", "stage: it takes no temperature")]


def test_thinking_tokens_are_requested_and_reserved() -> None:
    sampling = {"writer": Sampling(1.0, 0.95, max_reasoning_tokens=500)}
    model = in_turn(GOOD)
    ask_in(world(model, (), sampling=sampling))
    (request,) = model.requests
    assert (request.temperature, request.top_p, request.max_reasoning_tokens) == (1.0, 0.95, 500)
    prompt = Prompt((Message("user", "word " * 1000),), "test@0")
    room = 1000 + FORM.max_tokens + 500
    for window, fit in ((room, True), (room - 1, False)):
        small = ScriptedModel(lambda _: GOOD, context_tokens=window)
        assert asyncio.run(world(small, (), sampling=sampling).context.fits("writer", prompt, FORM)) is fit


def test_tokens_are_counted_only_near_window() -> None:
    class Counts(ScriptedModel):
        async def count_tokens(self, messages: Sequence[Message]) -> int:
            raise AssertionError("not needed")

    prompt = Prompt((Message("user", "word " * 1000),), "test@0")
    asked = world(Counts(lambda _: GOOD), ())
    assert asyncio.run(asked.context.fits("writer", prompt, FORM))


class _Hangs(ScriptedModel):
    """Never replies."""

    async def complete(self, request: ChatRequest, on_delta: DeltaCallback | None = None) -> ChatReply:
        self.requests.append(request)
        await asyncio.Event().wait()
        raise AssertionError


def test_call_is_cancelled_at_deadline() -> None:
    model = _Hangs(lambda _: GOOD)
    asked = world(model, (), deadline=time.monotonic() + 0.02)
    with pytest.raises(EndpointTimeout, match="deadline_seconds"):
        ask_in(asked)
    assert len(model.requests) == 1
    (called,) = asked.of(ModelCalled)
    assert called.finish_reason == "EndpointTimeout"
    assert called.usage == Usage(calls=1, failed_calls=1, uncounted_calls=1, cost=None), (
        "what it had cost is unknown, not nothing"
    )


def test_no_call_is_sent_after_deadline() -> None:
    model = in_turn(GOOD)
    asked = world(model, (), deadline=time.monotonic())
    with pytest.raises(EndpointTimeout, match="deadline_seconds"):
        ask_in(asked)
    assert model.requests == []
    assert [called.usage for called in asked.of(ModelCalled)] == [Usage()]


def test_distant_deadline_has_no_effect() -> None:
    assert ask_in(world(in_turn(GOOD), (), deadline=time.monotonic() + 1000)).choice == "A"


class _Window(ScriptedModel):
    """Tells a window, or none."""

    def __init__(self, window: int | None, tokens: int) -> None:
        super().__init__(lambda _: GOOD)
        self._window, self._tokens = window, tokens

    async def count_tokens(self, messages: Sequence[Message]) -> int:
        assert messages == PROMPT.messages
        return self._tokens

    async def capabilities(self) -> Capabilities:
        return Capabilities(self._window, json_schema=True, exact_token_counts=True)


@pytest.mark.parametrize(("spare", "fitting"), [(0, True), (1, True), (-1, False)])
def test_prompt_and_longest_reply_must_fit_window(spare: int, fitting: bool) -> None:
    asked = world(_Window(100 + FORM.max_tokens + spare, 100), ())
    assert asyncio.run(asked.context.fits("writer", PROMPT, FORM)) is fitting


def test_unknown_window_accepts_any_prompt() -> None:
    assert asyncio.run(world(_Window(None, 10**9), ()).context.fits("writer", PROMPT, FORM)) is True


def test_failure_becomes_answer_state() -> None:
    assert make_failure(EndpointBusy("later")) == Failure("EndpointBusy", "later")
    assert make_failure(Unreadable("no choice")) == Failure("Unreadable", "no choice")
    assert make_unanswered(OPEN_QUESTION, "rag", EndpointBusy("later")).state == "failed"
    unparsed = make_unanswered(OPEN_QUESTION, "rag", Unreadable("no choice"))
    assert (unparsed.state, unparsed.choice, unparsed.strategy) == ("unparsed", None, "rag")
    assert NOT_FOUND != GOOD
