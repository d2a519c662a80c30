"""Bounded concurrency: one number, obeyed exactly, by whatever may reach the endpoint."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epicrisis.core.errors import EndpointRejected
from epicrisis.core.protocols import ChatModel
from epicrisis.models.chat.layers import ConcurrencyLimitedModel
from epicrisis.testing.chat import ScriptedModel, check_chat_model
from tests.support.virtual_clock import SlowModel, get_time, make_request, run_in_virtual_time

KINDS: list[Callable[[ChatModel], Awaitable[object]]] = [
    lambda model: model.complete(make_request()),
    lambda model: model.count_tokens(make_request().messages),
    lambda model: model.capabilities(),
    lambda model: model.fingerprint(),
]


@pytest.mark.slow
@given(limit=st.integers(1, 5), kinds=st.lists(st.sampled_from(KINDS), min_size=8, max_size=20))
def test_concurrency_limit_any_calls_is_reached_and_not_exceeded(
    limit: int, kinds: list[Callable[[ChatModel], Awaitable[object]]]
) -> None:
    inner = SlowModel()
    model = ConcurrencyLimitedModel(inner, limit)

    async def all_at_once() -> float:
        await asyncio.gather(*(ask(model) for ask in kinds))
        return get_time()

    seconds = run_in_virtual_time(all_at_once())
    assert inner.load.maximum == limit
    # Each takes a second: no turn is ever left unused.
    assert seconds == pytest.approx(-(-len(kinds) // limit))


def test_concurrency_limit_queued_calls_run_in_order() -> None:
    inner = SlowModel(seconds=lambda request: 3.0 if request.sample == 0 else 1.0)
    model = ConcurrencyLimitedModel(inner, 2)

    async def in_order() -> None:
        await asyncio.gather(*(model.complete(make_request(sample=number)) for number in range(9)))

    run_in_virtual_time(in_order())
    assert [call.request.sample for call in inner.load.calls] == list(range(9))


def test_concurrency_limit_failed_and_cancelled_calls_release_slots() -> None:
    inner = SlowModel(failure=lambda request: EndpointRejected("no") if request.sample == 1 else None)
    model = ConcurrencyLimitedModel(inner, 1)

    async def troubled() -> None:
        tasks = [asyncio.create_task(model.complete(make_request(sample=number))) for number in range(5)]
        await asyncio.sleep(0.5)
        tasks[0].cancel()  # in flight
        tasks[2].cancel()  # in the queue
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(result).__name__ for result in results] == [
            "CancelledError",
            "EndpointRejected",
            "CancelledError",
            "ChatReply",
            "ChatReply",
        ]
        await asyncio.gather(*(model.complete(make_request(sample=number)) for number in (6, 7)))

    run_in_virtual_time(troubled())
    assert inner.load.maximum == 1
    assert [call.request.sample for call in inner.load.calls] == [0, 1, 3, 4, 6, 7]


def test_concurrency_limited_model_satisfies_chat_model_contract() -> None:
    asyncio.run(check_chat_model(ConcurrencyLimitedModel(ScriptedModel(lambda _: "yes"), 1)))
