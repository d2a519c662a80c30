"""Rate limits: no 60 seconds hold more than is allowed, and no call waits longer than it must."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epicrisis.core.answers import Usage
from epicrisis.core.errors import EndpointBusy
from epicrisis.models.chat.call_costs import estimate_prompt_tokens
from epicrisis.models.chat.layers import POLL_SECONDS, RateLimitedModel
from epicrisis.testing.chat import ScriptedModel, check_chat_model
from tests.support.virtual_clock import Call, SlowModel, get_time, make_request, run_in_virtual_time

PROMPT = estimate_prompt_tokens(make_request().messages)


def make_limited_model(
    inner: SlowModel, requests: float | None = None, tokens: float | None = None
) -> RateLimitedModel:
    return RateLimitedModel(inner, requests, tokens, clock=get_time)


def list_windows(calls: list[Call]) -> list[list[Call]]:
    """Return for each call all calls that start within 60 seconds from its start."""
    windows = []
    for first in calls:
        windows.append([other for other in calls if first.start <= other.start < first.start + 60 - 1e-6])
    return windows


arrivals = st.lists(
    st.fixed_dictionaries(
        {"after": st.floats(0, 90), "lasts": st.floats(0, 100), "reply": st.integers(0, 500), "unused": st.floats(0, 1)}
    ),
    min_size=1,
    max_size=25,
)


@pytest.mark.long
@given(requests=st.integers(1, 6), tokens=st.none() | st.integers(100, 1500), arriving=arrivals)
def test_rate_limit_no_minute_exceeds_limit(requests: int, tokens: int | None, arriving: list[dict[str, Any]]) -> None:
    def used(number: int) -> Usage:
        """Return the usage of the whole prompt and the used part of the reply."""
        arrival = arriving[number]
        return Usage(calls=1, prompt_tokens=PROMPT, completion_tokens=int(arrival["reply"] * (1 - arrival["unused"])))

    inner = SlowModel(
        seconds=lambda request: float(arriving[request.sample]["lasts"]), usage=lambda request: used(request.sample)
    )

    async def arrive() -> None:
        model = make_limited_model(inner, requests, tokens)

        async def one(number: int) -> None:
            await asyncio.sleep(arriving[number]["after"])
            await model.complete(make_request(sample=number, max_tokens=arriving[number]["reply"]))

        await asyncio.gather(*(one(number) for number in range(len(arriving))))

    run_in_virtual_time(arrive())
    assert len(inner.load.calls) == len(arriving)
    for window in list_windows(inner.load.calls):
        assert len(window) <= requests
        spent = [used(call.request.sample) for call in window]
        if tokens is not None and len(window) > 1:
            # A call of more than the limit passes, but alone: then the window begins with it and holds no other.
            assert sum(usage.prompt_tokens + usage.completion_tokens for usage in spent) <= tokens


def measure_starts(model_limits: tuple[float | None, float | None], count: int, **values: Any) -> list[float]:
    """Return the start times of `count` simultaneous calls. Each call takes a second."""
    inner = SlowModel(usage=lambda request: Usage(calls=1, prompt_tokens=PROMPT, completion_tokens=request.seed))

    async def at_once() -> None:
        model = make_limited_model(inner, *model_limits)
        await asyncio.gather(*(model.complete(make_request(sample=number, **values)) for number in range(count)))

    run_in_virtual_time(at_once())
    assert [call.request.sample for call in inner.load.calls] == list(range(count))
    return [call.start for call in inner.load.calls]


def test_rate_limit_calls_within_limit_start_immediately_in_order() -> None:
    assert measure_starts((10, None), 25) == pytest.approx([0] * 10 + [60] * 10 + [120] * 5, abs=2 * POLL_SECONDS)


def test_rate_limit_below_one_per_minute_uses_longer_window() -> None:
    assert measure_starts((0.5, None), 3) == pytest.approx([0, 120, 240], abs=2 * POLL_SECONDS)
    assert measure_starts((1.9, None), 3) == pytest.approx([0, 60, 120], abs=2 * POLL_SECONDS)


def test_rate_limit_call_over_token_limit_runs_alone() -> None:
    assert measure_starts((None, 50), 3, max_tokens=1000, seed=1000) == pytest.approx(
        [0, 60, 120], abs=2 * POLL_SECONDS
    )


def test_rate_limit_unused_tokens_are_returned() -> None:
    """Two reservations fit; as each call ends it gives back so much that the next can go, no minute must pass."""
    limit = 2 * (PROMPT + 1000)
    assert measure_starts((None, limit), 6, max_tokens=1000, seed=10)[-1] < 10
    assert measure_starts((None, limit), 3, max_tokens=1000, seed=1000)[-1] >= 60


@pytest.mark.parametrize(
    ("usage", "waits"),
    [(Usage(calls=1, failed_calls=1, cost=None), False), (Usage(calls=1, failed_calls=1, uncounted_calls=1), True)],
)
def test_rate_limit_failed_call_counts_used_tokens(usage: Usage, waits: bool) -> None:
    inner = SlowModel(failure=lambda request: EndpointBusy("busy", usage=usage) if request.sample == 0 else None)

    async def two() -> float:
        model = make_limited_model(inner, None, PROMPT + 1500)
        with pytest.raises(EndpointBusy):
            await model.complete(make_request(max_tokens=1000))
        await model.complete(make_request(max_tokens=1000, sample=1))
        return inner.load.calls[1].start

    assert (run_in_virtual_time(two()) >= 60) is waits


def test_rate_limit_cancelled_call_does_not_block_queue() -> None:
    inner = SlowModel(seconds=lambda _: 5)

    async def cancelling() -> None:
        model = make_limited_model(inner, 2)
        tasks = [asyncio.create_task(model.complete(make_request(sample=number))) for number in range(5)]
        await asyncio.sleep(1)
        tasks[0].cancel()  # in flight: it was started and stays in the window
        tasks[2].cancel()  # first in the queue
        tasks[3].cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert sum(isinstance(result, asyncio.CancelledError) for result in results) == 3

    run_in_virtual_time(cancelling())
    assert [call.request.sample for call in inner.load.calls] == [0, 1, 4]
    assert inner.load.calls[2].start == pytest.approx(60, abs=POLL_SECONDS)


def test_rate_limit_token_counts_and_probes_are_not_limited() -> None:
    async def probing() -> float:
        model = make_limited_model(SlowModel(), 1)
        await model.complete(make_request())
        await asyncio.gather(*(model.count_tokens(make_request().messages) for _ in range(5)), model.capabilities())
        return get_time()

    assert run_in_virtual_time(probing()) == pytest.approx(2)


def test_rate_limited_model_satisfies_chat_model_contract() -> None:
    asyncio.run(check_chat_model(RateLimitedModel(ScriptedModel(lambda _: "yes"), 1000, 1_000_000)))
