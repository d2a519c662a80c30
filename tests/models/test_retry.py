"""Retries: which failures, how often, in what rhythm, and who pays."""

import asyncio
from collections.abc import Iterator

import pytest

from epicrisis.errors import (
    ChatError,
    EndpointBusy,
    EndpointRejected,
    EndpointUnreachable,
    EpicrisisError,
    ReplyInvalid,
)
from epicrisis.models.chat.retry import RetryingModel
from epicrisis.seams import ChatReply, ChatRequest, Message
from epicrisis.testing.chat import ScriptedModel, check_chat_model

REQUEST = ChatRequest((Message("user", "one two three"),), max_tokens=5)


def failing(*errors: ChatError) -> ScriptedModel:
    """Raises these in turn, then says yes."""
    left: Iterator[ChatError] = iter(errors)

    def script(_: ChatRequest) -> str:
        for error in left:
            raise error
        return "yes"

    return ScriptedModel(script)


def complete(model: RetryingModel, request: ChatRequest = REQUEST) -> ChatReply:
    return asyncio.run(model.complete(request))


def test_retryable_failures_are_tried_again_and_counted() -> None:
    seen: list[tuple[str, int]] = []
    inner = failing(EndpointBusy("busy"), ReplyInvalid("HTML"))
    model = RetryingModel(inner, 3, 0.0, lambda error, number: seen.append((error.message, number)))
    reply = complete(model)
    assert reply.text == "yes"
    assert (reply.usage.calls, reply.usage.failed_calls, reply.usage.prompt_tokens) == (3, 2, 3)
    assert seen == [("busy", 1), ("HTML", 2)]
    assert len(inner.requests) == 3


def test_after_the_last_try_the_error_carries_the_usage_of_all() -> None:
    inner = failing(*(EndpointUnreachable(f"try {number}") for number in range(5)))
    with pytest.raises(EndpointUnreachable, match="try 2") as caught:
        complete(RetryingModel(inner, 3, 0.0))
    assert (caught.value.usage.calls, caught.value.usage.failed_calls) == (3, 3)
    assert len(inner.requests) == 3


@pytest.mark.parametrize("tries", [1, 3])
def test_what_no_retry_can_mend_is_raised_at_once(tries: int) -> None:
    inner = failing(EndpointRejected("bad key"))
    with pytest.raises(EndpointRejected):
        complete(RetryingModel(inner, tries, 0.0))
    assert len(inner.requests) == 1


def waits(request: ChatRequest, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses of three failed tries, in seconds."""
    paused: list[float] = []

    async def sleep(seconds: float) -> None:
        if seconds:
            paused.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    complete(RetryingModel(failing(*(EndpointBusy("busy") for _ in range(3))), 4, 1.0), request)
    return paused


def test_pauses_grow_and_depend_on_the_request_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    first = waits(REQUEST, monkeypatch)
    other = waits(ChatRequest(REQUEST.messages, max_tokens=5, sample=1), monkeypatch)
    assert all(0.5 * 2**number <= pause <= 1.5 * 2**number for number, pause in enumerate(first))
    assert waits(REQUEST, monkeypatch) == first != other


def test_it_is_a_chat_model() -> None:
    asyncio.run(check_chat_model(RetryingModel(failing())))
    assert RetryingModel(failing()).name == "scripted"


def test_errors_that_are_no_calls_pass_too() -> None:
    def script(_: ChatRequest) -> str:
        raise EpicrisisError("something else")

    with pytest.raises(EpicrisisError, match="something else"):
        complete(RetryingModel(ScriptedModel(script), 3, 0.0))
