"""Retries: which failures, how often, in what rhythm, within what time, and who pays."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

import pytest

from epicrisis.core.answers import Usage
from epicrisis.core.errors import (
    BudgetExceeded,
    ChatError,
    EndpointBusy,
    EndpointRejected,
    EndpointTimeout,
    EndpointUnreachable,
    EpicrisisError,
    ReplyInvalid,
)
from epicrisis.core.protocols import Capabilities, ChatReply, ChatRequest, DeltaCallback, Message
from epicrisis.models.chat.call_costs import UNKNOWN_USAGE
from epicrisis.models.chat.layers import Layer, RetryingModel
from epicrisis.testing.chat import ScriptedModel, check_chat_model
from tests.support.virtual_clock import get_time, make_request, run_in_virtual_time

REQUEST = make_request()


def make_failing_model(*errors: ChatError) -> ScriptedModel:
    """Return a model that raises these errors in turn, then answers yes."""
    left: Iterator[ChatError] = iter(errors)

    def script(_: ChatRequest) -> str:
        for error in left:
            raise error
        return "yes"

    return ScriptedModel(script)


def make_busy_error(seconds: float) -> ChatError:
    error = EndpointBusy("busy (429)")
    error.retry_after = seconds
    return error


def make_timeout(seconds: float) -> ChatError:
    return EndpointTimeout("no answer", usage=Usage(seconds=seconds))


def measure_call(model: RetryingModel, request: ChatRequest = REQUEST) -> tuple[ChatReply | ChatError, float]:
    """Return how the call ends, and when."""

    async def call() -> tuple[ChatReply | ChatError, float]:
        try:
            return await model.complete(request), get_time()
        except ChatError as error:
            return error, get_time()

    return run_in_virtual_time(call())


def complete(model: RetryingModel, request: ChatRequest = REQUEST) -> ChatReply:
    return run_in_virtual_time(model.complete(request))


# -- which, how often, who pays ---------------------------------------------------------------------------------------


def test_retry_retryable_failures_are_repeated_and_counted() -> None:
    inner = make_failing_model(EndpointBusy("busy"), ReplyInvalid("HTML"))
    reply = complete(RetryingModel(inner, 3))
    assert reply.text == "yes"
    assert (reply.usage.calls, reply.usage.failed_calls, reply.usage.prompt_tokens) == (3, 2, 3)
    assert len(inner.requests) == 3


def test_retry_exhausted_error_has_total_usage_and_number_of_tries() -> None:
    inner = make_failing_model(*(EndpointBusy(f"try {number}") for number in range(5)))
    with pytest.raises(EndpointBusy, match=r"^try 2 \(tried 3 times\)$") as caught:
        complete(RetryingModel(inner, 3))
    assert (caught.value.usage.calls, caught.value.usage.failed_calls) == (3, 3)
    assert len(inner.requests) == 3


def test_retry_single_try_keeps_message() -> None:
    with pytest.raises(EndpointUnreachable, match=r"^nothing there$"):
        complete(RetryingModel(make_failing_model(EndpointUnreachable("nothing there")), 1))


@pytest.mark.parametrize("tries", [1, 3])
def test_retry_permanent_failure_is_raised_immediately(tries: int) -> None:
    inner = make_failing_model(EndpointRejected("bad key"))
    with pytest.raises(EndpointRejected, match=r"^bad key$"):
        complete(RetryingModel(inner, tries))
    assert len(inner.requests) == 1


def test_retry_budget_exceeded_is_raised_with_usage_so_far() -> None:
    def script(_: ChatRequest) -> str:
        if len(inner.requests) == 1:
            raise EndpointBusy("busy")
        raise BudgetExceeded("nothing is left")

    inner = ScriptedModel(script)
    with pytest.raises(BudgetExceeded, match=r"^nothing is left$") as caught:
        complete(RetryingModel(inner, 5))
    assert caught.value.usage == Usage(calls=1, failed_calls=1)


def test_retry_other_error_is_raised_unchanged() -> None:
    def script(_: ChatRequest) -> str:
        raise EpicrisisError("something else")

    with pytest.raises(EpicrisisError, match="something else"):
        complete(RetryingModel(ScriptedModel(script), 3))


# -- rhythm -----------------------------------------------------------------------------------------------------------


def measure_pauses(request: ChatRequest, *errors: ChatError, deadline: float = 1000.0, tries: int = 99) -> list[float]:
    """Return the pauses after these failures, in seconds."""
    paused: list[float] = []

    async def sleep(seconds: float) -> None:
        paused.append(seconds)

    complete(RetryingModel(make_failing_model(*errors), tries, deadline, 1.0, sleep), request)
    return paused


@pytest.mark.slow
def test_retry_pauses_grow_and_depend_only_on_request() -> None:
    def busy() -> list[ChatError]:
        return [EndpointBusy("busy") for _ in range(9)]

    first = measure_pauses(REQUEST, *busy())
    assert len(first) == 9
    assert all(0.5 * 2 ** min(n, 6) <= pause <= 1.5 * 2 ** min(n, 6) for n, pause in enumerate(first))
    assert measure_pauses(REQUEST, *busy()) == first
    others = [measure_pauses(make_request(sample=number), *busy())[0] for number in range(256)]
    # Spread evenly enough that no tenth of the time holds more than a fifth of them.
    assert len(set(others)) == 256
    for tenth in range(10):
        low = 0.5 + tenth / 10
        assert sum(low <= wait < low + 0.1 for wait in others) < 52


def test_retry_pause_is_at_least_retry_after_with_jitter() -> None:
    firsts = [measure_pauses(make_request(sample=number), make_busy_error(20))[0] for number in range(256)]
    assert min(firsts) >= 20
    assert max(firsts) <= 21.5
    assert len(set(firsts)) == 256


def test_retry_after_response_does_not_count_as_try() -> None:
    inner = make_failing_model(*(make_busy_error(5) for _ in range(7)), EndpointBusy("500"))
    reply = complete(RetryingModel(inner, 2, 200.0))
    assert (reply.usage.calls, reply.usage.failed_calls) == (9, 8)


def test_retry_after_zero_forever_stops_at_deadline() -> None:
    inner = make_failing_model(*(make_busy_error(0) for _ in range(1000)))
    result, seconds = measure_call(RetryingModel(inner, 5, 120.0))
    assert isinstance(result, EndpointBusy)
    assert seconds == pytest.approx(120)
    assert len(inner.requests) < 20
    assert f"(tried {len(inner.requests)} times)" in result.message


# -- deadline ---------------------------------------------------------------------------------------------------------


def test_retry_wait_beyond_deadline_is_not_started() -> None:
    result, seconds = measure_call(RetryingModel(make_failing_model(make_busy_error(3600)), 5, 120.0))
    assert isinstance(result, EndpointBusy)
    assert seconds == 0
    assert "3600 s" in result.message
    assert "120 s that remain" in result.message
    assert "retry_seconds" in result.message
    result, seconds = measure_call(
        RetryingModel(make_failing_model(make_busy_error(80), make_busy_error(50)), 5, 120.0)
    )
    assert isinstance(result, EndpointBusy)
    assert 80 <= seconds < 82
    assert "tried 2 times" in result.message


def test_retry_first_try_may_exceed_deadline() -> None:
    """A timeout of ten minutes is tried again, though failures may be tried again for two minutes only."""
    result, _ = measure_call(RetryingModel(make_failing_model(make_timeout(600)), 5, 120.0))
    assert isinstance(result, ChatReply)
    inner = make_failing_model(make_timeout(600), make_timeout(600))
    result, _ = measure_call(RetryingModel(inner, 5, 120.0))
    assert isinstance(result, EndpointTimeout)
    assert result.message == "no answer (tried 2 times)"
    assert result.usage.seconds == 1200


def test_retry_last_pause_is_cut_at_deadline() -> None:
    pauses = measure_pauses(REQUEST, *(EndpointBusy("busy") for _ in range(5)), deadline=20.0)
    assert sum(pauses) == pytest.approx(20)


# -- streams ----------------------------------------------------------------------------------------------------------


class Breaking(Layer):
    """Delivers the pieces of each try in turn and breaks off after them, but for the last."""

    def __init__(self, *tries: list[str]) -> None:
        super().__init__(ScriptedModel(lambda _: "yes"))
        self._tries = list(tries)

    async def complete(self, request: ChatRequest, on_delta: DeltaCallback | None = None) -> ChatReply:
        pieces = self._tries.pop(0)
        for piece in pieces:
            if on_delta is not None:
                on_delta(piece)
        if self._tries:
            raise ReplyInvalid("it broke off")
        return ChatReply(text="".join(pieces), finish_reason="stop", model="breaking", usage=Usage(calls=1))


def test_retry_interrupted_stream_is_voided_before_restart() -> None:
    deltas: list[str | None] = []
    model = RetryingModel(Breaking(["on", "ly"], [], ["a"], ["whole ", "one"]))
    reply = run_in_virtual_time(model.complete(REQUEST, deltas.append))
    assert deltas == ["on", "ly", None, "a", None, "whole ", "one"]
    assert reply.text == "whole one"


def test_retry_stream_without_deltas_is_not_voided() -> None:
    deltas: list[str | None] = []
    run_in_virtual_time(RetryingModel(Breaking([], ["all"])).complete(REQUEST, deltas.append))
    assert deltas == ["all"]
    assert complete(RetryingModel(Breaking(["hidden"], ["all"]))).text == "all"


# -- the rest ---------------------------------------------------------------------------------------------------------


class Forgetful(ScriptedModel):
    """Whatever it is asked, it fails the first time."""

    def __init__(self) -> None:
        super().__init__(lambda _: "yes")
        self.failed: set[str] = set()

    def _fail(self, what: str) -> None:
        if what not in self.failed:
            self.failed.add(what)
            raise EndpointUnreachable(f"no {what} yet")

    async def count_tokens(self, messages: Sequence[Message]) -> int:
        self._fail("count")
        return 3

    async def capabilities(self) -> Capabilities:
        self._fail("capabilities")
        return await super().capabilities()

    async def fingerprint(self) -> str:
        self._fail("fingerprint")
        return "same"


def test_retry_counts_capabilities_and_fingerprints_are_repeated() -> None:
    async def asking() -> tuple[int, Capabilities, str]:
        model = RetryingModel(Forgetful())
        return await model.count_tokens(REQUEST.messages), await model.capabilities(), await model.fingerprint()

    count, capabilities, fingerprint = run_in_virtual_time(asking())
    assert (count, capabilities.json_schema, fingerprint) == (3, True, "same")
    with pytest.raises(EndpointUnreachable, match="no count yet"):
        run_in_virtual_time(RetryingModel(Forgetful(), 1).count_tokens(REQUEST.messages))


def test_retrying_model_satisfies_chat_model_contract() -> None:
    asyncio.run(check_chat_model(RetryingModel(make_failing_model())))
    assert RetryingModel(make_failing_model()).name == "scripted"


def test_retry_cancellation_ends_pause() -> None:
    inner = make_failing_model(make_busy_error(100))

    async def cancelled() -> float:
        task = asyncio.create_task(RetryingModel(inner).complete(REQUEST))
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return get_time()

    assert run_in_virtual_time(cancelled()) == 1
    assert len(inner.requests) == 1


def test_retry_absent_endpoint_is_tried_twice_and_fully_once_it_has_answered() -> None:
    error = EndpointUnreachable("nothing there")
    steps: Iterator[ChatError | str] = iter([error, error, "yes", *[error] * 9])

    def script(_: ChatRequest) -> str:
        step = next(steps)
        if isinstance(step, ChatError):
            raise step
        return step

    inner = ScriptedModel(script)
    model = RetryingModel(inner, 4)
    numbers: list[int] = []
    for _ in range(3):
        before = len(inner.requests)
        measure_call(model)
        numbers.append(len(inner.requests) - before)
    assert numbers == [2, 1, 4]


def test_retry_broken_connection_is_tried_fully_before_the_first_answer() -> None:
    """A server that many first calls overload breaks some of them off: it is there."""
    error = EndpointUnreachable("broken off", usage=UNKNOWN_USAGE)
    inner = make_failing_model(error, error, error)
    assert complete(RetryingModel(inner, 4)).text == "yes"
    assert len(inner.requests) == 4
