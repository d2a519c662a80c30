"""The layers together: the order they are in is seen in what they do."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path

import pytest

from epicrisis.core.answers import Usage
from epicrisis.core.errors import BudgetExceeded, ChatError, EndpointBusy, EndpointUnreachable, ReplyInvalid
from epicrisis.core.protocols import ChatModel, ChatReply, ChatRequest
from epicrisis.models.chat.cache import ReplyCache
from epicrisis.models.chat.call_costs import compute_max_prompt_tokens
from epicrisis.models.chat.layers import Budget, RateLimitedModel
from epicrisis.models.chat.loading import add_layers
from epicrisis.settings.settings import BudgetSettings, ModelSettings, Price
from epicrisis.testing.chat import ScriptedModel, check_chat_model
from tests.support.virtual_clock import SlowModel, get_time, make_request, run_in_virtual_time

PROMPT = compute_max_prompt_tokens(make_request())
EVERYTHING = ModelSettings(
    requests_per_minute=10_000, tokens_per_minute=10_000_000, price=Price(input=1, output=2), concurrency=4
)


def list_layer_names(model: ChatModel) -> list[str]:
    """Return the names of the layers from the outside in."""
    layer_names = [type(model).__name__]
    return layer_names + (list_layer_names(model._inner) if hasattr(model, "_inner") else [])


def use_loop_clock(model: ChatModel) -> ChatModel:
    """Set the clock of the rate limit to the time of the event loop."""
    layer = model
    while hasattr(layer, "_inner"):
        if isinstance(layer, RateLimitedModel):
            layer._clock = get_time
        layer = layer._inner
    return model


def test_add_layers_adds_only_configured_layers(tmp_path: Path) -> None:
    bare = ScriptedModel(lambda _: "yes")
    assert list_layer_names(add_layers(bare, ModelSettings())) == [
        "RetryingModel",
        "ConcurrencyLimitedModel",
        "TracedModel",
        "ScriptedModel",
    ]
    assert list_layer_names(add_layers(bare, ModelSettings(), budget=Budget(BudgetSettings()))) == list_layer_names(
        add_layers(bare, ModelSettings())
    )
    assert (
        list_layer_names(add_layers(bare, ModelSettings(), budget=Budget(BudgetSettings(minutes=1))))[0] == "TimedModel"
    )
    full = add_layers(
        bare,
        EVERYTHING,
        cache=ReplyCache(tmp_path / "replies.sqlite"),
        budget=Budget(BudgetSettings(tokens=1, minutes=1)),
        record=tmp_path / "calls.jsonl",
    )
    assert list_layer_names(full) == [
        "RecordingModel",
        "CachedModel",
        "TimedModel",
        "RetryingModel",
        "ConcurrencyLimitedModel",
        "RateLimitedModel",
        "BudgetedModel",
        "TracedModel",
        "ScriptedModel",
    ]


def test_replayed_call_uses_no_budget_time_or_slot(tmp_path: Path) -> None:
    clock, cache = [0.0], ReplyCache(tmp_path / "replies.sqlite")
    budget = Budget(BudgetSettings(tokens=20, minutes=1), clock=lambda: clock[0])
    gate = asyncio.Event()

    class Waiting(ScriptedModel):
        async def complete(self, request: ChatRequest, on_delta: object = None) -> ChatReply:
            if request.sample == 1:
                await gate.wait()
            return await super().complete(request)

    async def replaying() -> None:
        record = tmp_path / "calls.jsonl"
        settings = ModelSettings(concurrency=1, requests_per_minute=2)
        model = add_layers(Waiting(lambda _: "yes"), settings, cache=cache, budget=budget, record=record)
        await model.complete(make_request())
        assert budget.spent.tokens == 4
        waiting = asyncio.create_task(model.complete(make_request(sample=1)))
        await asyncio.sleep(0.01)
        # The one turn is taken, and the minute is used up.
        for _ in range(3):
            assert (await model.complete(make_request())).usage.replayed_calls == 1
        gate.set()
        await waiting
        clock[0] = 61
        assert (await model.complete(make_request())).usage.replayed_calls == 1
        with pytest.raises(BudgetExceeded, match="minutes"):
            await model.complete(make_request(sample=2))
        assert budget.spent.tokens == 8
        await model.aclose()
        lines = [json.loads(line) for line in record.read_text().splitlines()]
        assert [line["replayed"] for line in lines].count(True) == 4
        assert len(lines) == 7

    asyncio.run(replaying())
    cache.close()


def make_failing_model(*errors: ChatError) -> SlowModel:
    """Return a model whose first calls raise these errors."""
    left = iter(errors)
    return SlowModel(failure=lambda _: next(left, None))


def test_retried_call_charges_and_counts_every_attempt() -> None:
    unknown = Usage(calls=1, failed_calls=1, uncounted_calls=1, cost=None)
    inner = make_failing_model(
        EndpointBusy("500", usage=unknown), ReplyInvalid("HTML", usage=Usage(calls=1, failed_calls=1, prompt_tokens=3))
    )
    budget = Budget(BudgetSettings(tokens=10_000))

    async def thrice() -> tuple[ChatReply, float]:
        model = use_loop_clock(add_layers(inner, ModelSettings(requests_per_minute=2), budget=budget))
        return await model.complete(make_request()), get_time()

    reply, ended = run_in_virtual_time(thrice())
    assert (reply.usage.calls, reply.usage.failed_calls, reply.usage.uncounted_calls) == (3, 2, 1)
    assert reply.usage.cost is None
    assert budget.spent.tokens == (PROMPT + 10) + 3 + 4
    assert ended >= 60, "the third try is the third call of its minute"


def test_retry_is_refused_when_budget_is_exceeded() -> None:
    inner = make_failing_model(
        EndpointBusy("500", usage=Usage(calls=1, failed_calls=1, uncounted_calls=1)), EndpointBusy("500")
    )

    async def stopped() -> float:
        with pytest.raises(BudgetExceeded) as caught:
            await add_layers(inner, ModelSettings(), budget=Budget(BudgetSettings(tokens=PROMPT + 15))).complete(
                make_request()
            )
        assert caught.value.usage.calls == 1
        return get_time()

    run_in_virtual_time(stopped())
    assert len(inner.load.calls) == 1


def test_retry_pause_releases_concurrency_slot() -> None:
    busy = EndpointBusy("429")
    busy.retry_after = 30
    inner = make_failing_model(busy)

    async def two() -> float:
        model = add_layers(inner, ModelSettings(concurrency=1))
        first = asyncio.create_task(model.complete(make_request()))
        await asyncio.sleep(0)
        await model.complete(make_request(sample=1))
        second = get_time()
        await first
        return second

    assert run_in_virtual_time(two()) == 2
    assert [call.request.sample for call in inner.load.calls] == [0, 1, 0]
    assert inner.load.calls[2].start >= 31


def test_time_limit_ends_retry_pause() -> None:
    busy = EndpointBusy("429")
    busy.retry_after = 100

    async def ended() -> float:
        budget = Budget(BudgetSettings(minutes=0.5), clock=get_time)
        with pytest.raises(BudgetExceeded):
            await add_layers(make_failing_model(busy), ModelSettings(), budget=budget).complete(make_request())
        return get_time()

    assert run_in_virtual_time(ended()) == 30


def test_call_cancelled_in_queue_spends_nothing() -> None:
    inner = SlowModel(seconds=lambda _: 10)
    budget = Budget(BudgetSettings(tokens=10_000))

    async def cancelling() -> None:
        model = use_loop_clock(add_layers(inner, ModelSettings(concurrency=2, requests_per_minute=1), budget=budget))
        # One is sent, one has a turn and waits for its minute, one waits for a turn.
        tasks = [asyncio.create_task(model.complete(make_request(sample=number))) for number in range(3)]
        await asyncio.sleep(1)
        for task in tasks[1:]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    run_in_virtual_time(cancelling())
    assert len(inner.load.calls) == 1
    assert budget.spent.tokens == 4


def test_rate_limit_counts_starts_at_endpoint() -> None:
    """The window counts starts at the endpoint, not when a call began to queue."""
    inner = SlowModel(seconds=lambda request: 100.0 if request.sample < 3 else 1.0)

    async def many() -> None:
        model = use_loop_clock(add_layers(inner, ModelSettings(concurrency=3, requests_per_minute=4)))
        await asyncio.gather(*(model.complete(make_request(sample=number)) for number in range(20)))

    run_in_virtual_time(many())
    starts = [call.start for call in inner.load.calls]
    assert len(starts) == 20
    calls_per_minute = []
    for first in starts:
        calls_per_minute.append(sum(first <= other < first + 60 for other in starts))
    assert max(calls_per_minute) == 4
    assert inner.load.maximum == 3


def test_layers_under_load_with_failures_lose_and_miscount_nothing() -> None:
    chance = random.Random(5)

    def fails(_: ChatRequest) -> ChatError | None:
        if chance.random() > 0.3:
            return None
        error = chance.choice((EndpointBusy, EndpointUnreachable, ReplyInvalid))(
            "no", usage=Usage(calls=1, failed_calls=1, uncounted_calls=0, prompt_tokens=2)
        )
        error.retry_after = chance.choice((None, 0.0, 3.0))
        return error

    inner = SlowModel(seconds=lambda _: chance.uniform(0, 2), failure=fails)
    budget = Budget(BudgetSettings(tokens=10_000_000))

    async def load() -> list[ChatReply]:
        model = add_layers(inner, ModelSettings(concurrency=16, tries=9), budget=budget)
        return await asyncio.gather(*(model.complete(make_request(sample=number)) for number in range(256)))

    replies = run_in_virtual_time(load())
    total = sum((reply.usage for reply in replies), Usage())
    assert total.calls == len(inner.load.calls) > 300
    assert total.failed_calls == total.calls - 256
    assert total.prompt_tokens == 256 * 3 + 2 * total.failed_calls
    assert budget.spent.tokens == total.prompt_tokens + total.completion_tokens
    assert inner.load.maximum == 16


def test_all_layers_satisfy_chat_model_contract(tmp_path: Path) -> None:
    cache = ReplyCache(tmp_path / "replies.sqlite")
    budget = Budget(BudgetSettings(tokens=100_000, usd=1, minutes=5))
    inner = ScriptedModel(lambda _: "yes")
    model = add_layers(inner, EVERYTHING, cache=cache, budget=budget, record=tmp_path / "calls.jsonl")
    asyncio.run(check_chat_model(model))
    asyncio.run(model.aclose())
    cache.close()
    assert len(inner.requests) == 1
    assert len((tmp_path / "calls.jsonl").read_text().splitlines()) == 4
