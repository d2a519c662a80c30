"""The budget of a run in tokens, dollars and wall time, shared by all its models, and the layers that enforce it.

A call reserves the most it may cost and then pays what it did cost, so no run is overspent by calls in flight.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from epicrisis.answers import Usage
from epicrisis.errors import BudgetExceeded, EpicrisisError, SettingsError
from epicrisis.models.chat.call_costs import (
    UNKNOWN_USAGE,
    compute_max_prompt_tokens,
    compute_max_reply_tokens,
    count_used_tokens,
)
from epicrisis.models.chat.layers import Layer
from epicrisis.protocols import ChatModel, ChatReply, ChatRequest, DeltaCallback
from epicrisis.settings import BudgetSettings

RESUME_HINT = "the answers so far are kept, and the same command continues from there"
_BILLION = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Amount:
    """Tokens and dollars. Dollars are whole billionths, rounded up, so that sums are exact."""

    tokens: int = 0
    billionths: int = 0

    @classmethod
    def from_usd(cls, tokens: int, usd: float) -> Amount:
        return cls(tokens, math.ceil(usd * _BILLION))

    @property
    def usd(self) -> float:
        return self.billionths / _BILLION

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.tokens + other.tokens, self.billionths + other.billionths)

    def __sub__(self, other: Amount) -> Amount:
        return Amount(self.tokens - other.tokens, self.billionths - other.billionths)


class Budget:
    """The budget of one run. Its time starts when it is created. Used by `BudgetedModel` and `TimedModel`."""

    def __init__(self, settings: BudgetSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self.settings = settings
        self.spent = Amount()
        self._reserved = Amount()
        self._changed = asyncio.Event()
        self._clock = clock
        self._end = math.inf if settings.minutes is None else clock() + 60 * settings.minutes

    def has_room(self, maximum: Amount) -> bool:
        """Return whether a call that costs at most `maximum` fits, in addition to all that is spent or reserved."""
        return self._explain_excess(self.spent + self._reserved + maximum) is None

    async def reserve(self, maximum: Amount) -> None:
        """Reserve `maximum`, or raise BudgetExceeded if it cannot fit. Wait for calls in flight that may cost less."""
        while not self.has_room(maximum):
            if (reason := self._explain_excess(self.spent + maximum)) is not None:
                raise BudgetExceeded(reason)
            await self._changed.wait()
        self._reserved += maximum

    def settle(self, maximum: Amount, cost: Amount) -> None:
        """Replace a call's reservation by its cost, and wake the calls waiting in `reserve`."""
        self._reserved -= maximum
        self.spent += cost
        self._changed.set()
        self._changed = asyncio.Event()

    @asynccontextmanager
    async def limit_time(self) -> AsyncIterator[None]:
        """Cancel the body when the run's time is over. Raise BudgetExceeded then, or at once if it is over already."""
        remaining = self._end - self._clock()
        minutes = f"the {self.settings.minutes:g} minutes of this run are over" if self.settings.minutes else ""
        remedy = f"raise --budget-minutes; {RESUME_HINT}"
        if remaining <= 0:
            raise BudgetExceeded(f"{minutes}: {remedy}")
        try:
            async with asyncio.timeout(None if math.isinf(remaining) else remaining) as limit:
                yield
        except TimeoutError:
            if not limit.expired():
                raise
            message = f"{minutes}, and a call was cancelled: {remedy}"
            raise BudgetExceeded(message, usage=UNKNOWN_USAGE) from None

    def _explain_excess(self, total: Amount) -> str | None:
        """Return the limit that this total exceeds, with a remedy, or None."""
        tokens, usd = self.settings.tokens, self.settings.usd
        if tokens is not None and total.tokens > tokens:
            return (
                f"{self.spent.tokens:,} of {tokens:,} tokens are spent, and the next call may need "
                f"{total.tokens - self.spent.tokens:,}: raise --budget-tokens; {RESUME_HINT}"
            )
        if usd is not None and total.billionths > math.floor(usd * _BILLION):
            return (
                f"${self.spent.usd:.4f} of ${usd:g} is spent, and the next call may cost "
                f"${(total - self.spent).usd:.4f}: raise --budget-usd; {RESUME_HINT}"
            )
        return None


class BudgetedModel(Layer):
    """Reserves the most each call may cost, and pays its cost, or all it reserved if the cost is unknown.

    An endpoint that exceeds the requested reply can still overspend by that much. With a budget in dollars, an unknown
    price raises SettingsError before the first call. `price` returns the dollars of a usage.
    """

    def __init__(self, inner: ChatModel, budget: Budget, price: Callable[[Usage], float | None]) -> None:
        super().__init__(inner)
        self._budget = budget
        self._price = price
        if budget.settings.usd is not None and price(Usage(prompt_tokens=1, completion_tokens=1)) is None:
            raise SettingsError(
                f"the price of {self.name} is unknown, so a budget in dollars cannot be enforced: set it in the "
                "settings (price = {input = ..., output = ...}, per million tokens), or use --budget-tokens instead"
            )

    async def complete(self, request: ChatRequest, on_delta: DeltaCallback | None = None) -> ChatReply:
        maximum = self._price_tokens(request, compute_max_prompt_tokens(request))
        # The tokenizer is asked only if the bound by bytes does not fit.
        if not self._budget.has_room(maximum) and (await self._inner.capabilities()).exact_token_counts:
            maximum = self._price_tokens(request, await self._inner.count_tokens(request.messages))
        await self._budget.reserve(maximum)
        cost = maximum
        try:
            reply = await self._inner.complete(request, on_delta)
            cost = _compute_cost(reply.usage, maximum)
        except EpicrisisError as error:
            cost = _compute_cost(error.usage, maximum)
            raise
        finally:
            self._budget.settle(maximum, cost)
        return reply

    def _price_tokens(self, request: ChatRequest, prompt_tokens: int) -> Amount:
        reply_tokens = compute_max_reply_tokens(request)
        usd = self._price(Usage(prompt_tokens=prompt_tokens, completion_tokens=reply_tokens))
        return Amount.from_usd(prompt_tokens + reply_tokens, usd or 0.0)


class TimedModel(Layer):
    """Starts no call after the run's time is over, and cancels those that wait or run then."""

    def __init__(self, inner: ChatModel, budget: Budget) -> None:
        super().__init__(inner)
        self._budget = budget

    async def complete(self, request: ChatRequest, on_delta: DeltaCallback | None = None) -> ChatReply:
        async with self._budget.limit_time():
            return await self._inner.complete(request, on_delta)


def _compute_cost(usage: Usage, maximum: Amount) -> Amount:
    tokens = count_used_tokens(usage, maximum.tokens)
    return Amount(tokens, maximum.billionths) if usage.cost is None else Amount.from_usd(tokens, usage.cost)
