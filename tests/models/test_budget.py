"""Budgets: never overspent, whatever is in flight, and not stopped before they must be."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epicrisis.core.answers import Usage
from epicrisis.core.errors import BudgetExceeded, EndpointBusy, EndpointRejected, EpicrisisError, SettingsError
from epicrisis.core.protocols import Capabilities, ChatReply, ChatRequest
from epicrisis.models.chat.call_costs import compute_max_prompt_tokens
from epicrisis.models.chat.layers import Amount, Budget, BudgetedModel, TimedModel
from epicrisis.settings.settings import BudgetSettings
from epicrisis.testing.chat import ScriptedModel, check_chat_model
from tests.support.virtual_clock import SlowModel, get_time, make_request, run_in_virtual_time

PROMPT = compute_max_prompt_tokens(make_request())


class Estimating(SlowModel):
    """Cannot count exactly, so that what a call may need is bounded by its bytes."""

    async def capabilities(self) -> Capabilities:
        return Capabilities(None, json_schema=True, exact_token_counts=False)


def dollar_each_million(usage: Usage) -> float:
    return (usage.prompt_tokens + usage.completion_tokens) / 1e6


def budgeted(inner: SlowModel, budget: Budget) -> BudgetedModel:
    return BudgetedModel(inner, budget, dollar_each_million)


async def outcome(model: BudgetedModel | TimedModel, request: ChatRequest) -> ChatReply | EpicrisisError:
    try:
        return await model.complete(request)
    except EpicrisisError as error:
        return error


# -- never overspent --------------------------------------------------------------------------------------------------


@dataclass
class Planned:
    """A call: when it comes, how long it takes, how large it may be, what part of that it uses, whether it fails."""

    after: float
    lasts: float
    room: int
    used: float
    fails: bool


calls = st.lists(
    st.builds(Planned, st.floats(0, 20), st.floats(0, 10), st.integers(0, 400), st.floats(0, 1), st.booleans()),
    min_size=1,
    max_size=20,
)


@pytest.mark.slow
@given(planned=calls, limit=st.integers(1, 3000), in_dollars=st.booleans())
def test_budget_any_calls_is_not_overspent_and_refuses_only_calls_that_cannot_fit(
    planned: list[Planned], limit: int, in_dollars: bool
) -> None:
    def usage(request: ChatRequest) -> Usage:
        plan = planned[request.sample]
        tokens = int(plan.used * (PROMPT + plan.room))
        return Usage(calls=1, prompt_tokens=tokens, cost=tokens / 1e6)

    def fails(request: ChatRequest) -> EndpointBusy | None:
        return EndpointBusy("busy", usage=usage(request)) if planned[request.sample].fails else None

    inner = Estimating(lambda request: planned[request.sample].lasts, usage, fails)
    budget = Budget(BudgetSettings(usd=limit / 1e6) if in_dollars else BudgetSettings(tokens=limit))

    async def one(number: int) -> ChatReply | EpicrisisError:
        await asyncio.sleep(planned[number].after)
        result = await outcome(budgeted(inner, budget), make_request(sample=number, max_tokens=planned[number].room))
        assert budget.spent.tokens <= limit
        return result

    async def everything() -> list[ChatReply | EpicrisisError]:
        return await asyncio.gather(*(one(number) for number in range(len(planned))))

    results = run_in_virtual_time(everything())
    assert budget.spent.tokens == sum(usage(call.request).prompt_tokens for call in inner.load.calls)
    sent = {call.request.sample for call in inner.load.calls}
    for number, (plan, result) in enumerate(zip(planned, results, strict=True)):
        assert isinstance(result, BudgetExceeded) is (number not in sent)
        if isinstance(result, BudgetExceeded):
            assert budget.spent.tokens + PROMPT + plan.room > limit, "it would have fitted, whatever the others cost"
    # Nothing stays reserved.
    assert budget.has_room(Amount(limit - budget.spent.tokens))


def test_budget_call_that_may_fit_later_waits_for_running_calls() -> None:
    inner = Estimating(seconds=lambda _: 10, usage=lambda _: Usage(calls=1, prompt_tokens=5))
    budget = Budget(BudgetSettings(tokens=PROMPT + 100))

    async def two() -> None:
        await asyncio.gather(
            *(budgeted(inner, budget).complete(make_request(max_tokens=60, sample=n)) for n in range(2))
        )

    run_in_virtual_time(two())
    assert [call.start for call in inner.load.calls] == [0, 10]
    assert budget.spent.tokens == 10


def test_budget_exceeded_message_contains_figures_and_option() -> None:
    inner = Estimating(usage=lambda _: Usage(calls=1, prompt_tokens=PROMPT, cost=PROMPT / 1e6))
    for limits, message in (
        (BudgetSettings(tokens=1000), f"{PROMPT:,} of 1,000 tokens are spent, and the next call may need 10,0"),
        (BudgetSettings(usd=0.001), f"${PROMPT / 1e6:.4f} of $0.001 is spent, and the next call may cost $0.0101"),
    ):
        model = budgeted(inner, Budget(limits))
        run_in_virtual_time(model.complete(make_request()))
        with pytest.raises(BudgetExceeded) as caught:
            run_in_virtual_time(model.complete(make_request(max_tokens=10_000)))
        assert caught.value.message.startswith(message)
        assert "the answers so far are kept, and the same command continues" in caught.value.message
        assert f"--budget-{'tokens' if limits.tokens else 'usd'}" in caught.value.message
        assert caught.value.usage == Usage()


# -- what a call has spent --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("usage", "spent"),
    [
        (Usage(calls=1, prompt_tokens=7, completion_tokens=2, cost=0.25), Amount(9, 250_000_000)),
        (Usage(calls=1, prompt_tokens=7, completion_tokens=2, cost=None), Amount(9, 1000 * (PROMPT + 10))),
        (Usage(calls=2, uncounted_calls=1, prompt_tokens=7, cost=None), Amount(PROMPT + 10, 1000 * (PROMPT + 10))),
        (Usage(calls=2, uncounted_calls=1, prompt_tokens=7, cost=0.0), Amount(PROMPT + 10, 0)),
        (Usage(calls=2, uncounted_calls=1, prompt_tokens=9999, cost=0.0), Amount(9999, 0)),
        (Usage(), Amount(0, 0)),
    ],
)
@pytest.mark.parametrize("fails", [False, True])
def test_budget_call_without_reported_usage_spends_reservation(usage: Usage, spent: Amount, fails: bool) -> None:
    error = EndpointRejected("no", usage=usage) if fails else None
    budget = Budget(BudgetSettings(tokens=100_000, usd=10))
    result = run_in_virtual_time(
        outcome(budgeted(Estimating(usage=lambda _: usage, failure=lambda _: error), budget), make_request())
    )
    assert isinstance(result, EndpointRejected) is fails
    assert budget.spent == spent


def test_budget_cancelled_call_spends_reservation() -> None:
    inner = Estimating(seconds=lambda _: 100)
    budget = Budget(BudgetSettings(tokens=10_000))

    async def cancelled() -> None:
        task = asyncio.create_task(budgeted(inner, budget).complete(make_request()))
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run_in_virtual_time(cancelled())
    assert budget.spent.tokens == PROMPT + 10


def test_budget_reservation_includes_reasoning_tokens() -> None:
    budget = Budget(BudgetSettings(tokens=PROMPT + 100))
    with pytest.raises(BudgetExceeded):
        run_in_virtual_time(budgeted(Estimating(), budget).complete(make_request(max_reasoning_tokens=91)))
    run_in_virtual_time(budgeted(Estimating(), budget).complete(make_request(max_reasoning_tokens=90)))


def test_budget_next_token_request_reserves_one_completion_token() -> None:
    options = make_request(max_tokens=500, options=("A", "B"))
    run_in_virtual_time(budgeted(Estimating(), Budget(BudgetSettings(tokens=PROMPT + 1))).complete(options))
    with pytest.raises(BudgetExceeded):
        run_in_virtual_time(budgeted(Estimating(), Budget(BudgetSettings(tokens=PROMPT))).complete(options))


def test_budget_exact_token_count_is_requested_only_if_byte_bound_does_not_fit() -> None:
    """The scripted model's token is a word, so that its count is far below the bound by bytes."""
    inner = SlowModel()
    run_in_virtual_time(budgeted(inner, Budget(BudgetSettings(tokens=PROMPT + 10))).complete(make_request()))
    assert inner.load.maximum == 1
    assert inner.load.calls[0].start == 0, "nothing was counted"
    budget = Budget(BudgetSettings(tokens=3 + 10))
    run_in_virtual_time(budgeted(inner, budget).complete(make_request()))
    assert budget.spent.tokens == 4
    with pytest.raises(BudgetExceeded, match="may need 13"):
        run_in_virtual_time(budgeted(inner, budget).complete(make_request()))


# -- prices -----------------------------------------------------------------------------------------------------------


def test_budget_in_dollars_without_price_raises_settings_error() -> None:
    inner = Estimating()
    with pytest.raises(SettingsError, match=r"price of scripted.*price = \{"):
        run_in_virtual_time(
            BudgetedModel(inner, Budget(BudgetSettings(usd=5)), lambda _: None).complete(make_request())
        )
    assert inner.load.calls == []
    run_in_virtual_time(
        BudgetedModel(inner, Budget(BudgetSettings(tokens=5000)), lambda _: None).complete(make_request())
    )
    assert len(inner.load.calls) == 1


def test_budget_small_amounts_add_up_exactly() -> None:
    budget = Budget(BudgetSettings(usd=0.3))

    async def thrice() -> None:
        for _ in range(3):
            await budget.reserve(Amount.from_usd(0, 0.1))
            budget.settle(Amount.from_usd(0, 0.1), Amount.from_usd(0, 0.1))

    run_in_virtual_time(thrice())
    assert budget.spent.usd == 0.3
    with pytest.raises(BudgetExceeded):
        run_in_virtual_time(budget.reserve(Amount.from_usd(0, 1e-9)))


# -- time -------------------------------------------------------------------------------------------------------------


def test_time_limit_cancels_running_call_and_starts_no_more() -> None:
    inner = SlowModel(seconds=lambda _: 50)

    async def in_time() -> tuple[list[ChatReply | EpicrisisError], float]:
        model = TimedModel(inner, Budget(BudgetSettings(minutes=2), clock=get_time))
        results = []
        for _ in range(3):
            results.append(await outcome(model, make_request()))
        ended = get_time()
        results.append(await outcome(model, make_request()))
        return results, ended

    results, ended = run_in_virtual_time(in_time())
    assert [type(result).__name__ for result in results] == ["ChatReply"] * 2 + ["BudgetExceeded"] * 2
    assert ended == 120
    assert len(inner.load.calls) == 3
    assert inner.load.current == 0
    running, after = results[2:]
    assert isinstance(running, BudgetExceeded)
    assert running.usage == Usage(calls=1, failed_calls=1, uncounted_calls=1, cost=None)
    assert "the 2 minutes of this run are over, and a call was cancelled" in running.message
    assert isinstance(after, BudgetExceeded)
    assert after.usage == Usage()
    assert "--budget-minutes" in after.message


def test_time_limit_unset_does_not_cancel_calls() -> None:
    model = TimedModel(SlowModel(seconds=lambda _: 1e6), Budget(BudgetSettings(), clock=get_time))
    assert isinstance(run_in_virtual_time(outcome(model, make_request())), ChatReply)


def test_time_limit_inner_timeout_error_is_raised_unchanged() -> None:
    def script(_: ChatRequest) -> str:
        raise TimeoutError("somebody else's")

    async def timing_out() -> None:
        await TimedModel(ScriptedModel(script), Budget(BudgetSettings(minutes=1), clock=get_time)).complete(
            make_request()
        )

    with pytest.raises(TimeoutError, match="somebody else's"):
        run_in_virtual_time(timing_out())


def test_budgeted_and_timed_models_satisfy_chat_model_contract() -> None:
    budget = Budget(BudgetSettings(tokens=10_000, usd=1, minutes=5))
    asyncio.run(check_chat_model(BudgetedModel(ScriptedModel(lambda _: "yes"), budget, dollar_each_million)))
    asyncio.run(check_chat_model(TimedModel(ScriptedModel(lambda _: "yes"), budget)))
