"""What a run may spend: tokens, dollars, wall time. All models of a run share one budget.

What a call may cost at most is reserved before it is made and put right by what it did cost, so that a run stops before
it is overspent, whatever is in flight. Knows no price list: a price is a function.
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
from epicrisis.models.chat.layers.layer import Layer
from epicrisis.models.chat.token_estimates import (
    UNKNOWN_USAGE,
    compute_max_prompt_tokens,
    compute_max_reply_tokens,
    count_used_tokens,
)
from epicrisis.protocols import ChatModel, ChatReply, ChatRequest, OnDelta
from epicrisis.settings import BudgetSettings

RESUME_HINT = "what is answered is kept, and the same command goes on from there"

_BILLION = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Amount:
    """Tokens and dollars. Dollars as whole billionths, rounded up: sums of them are exact."""

    tokens: int = 0
    billionths: int = 0

    @classmethod
    def of(cls, tokens: int, usd: float) -> Amount:
        return cls(tokens, math.ceil(usd * _BILLION))

    @property
    def usd(self) -> float:
        return self.billionths / _BILLION

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.tokens + other.tokens, self.billionths + other.billionths)

    def __sub__(self, other: Amount) -> Amount:
        return Amount(self.tokens - other.tokens, self.billionths - other.billionths)


class Budget:
    """One run's. The time starts when it is made. Use by `BudgetedModel` and `TimedModel`."""

    def __init__(self, settings: BudgetSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self.settings = settings
        self.spent = Amount()
        self._reserved = Amount()
        self._changed = asyncio.Event()
        self._clock = clock
        self._ends = math.inf if settings.minutes is None else clock() + 60 * settings.minutes

    def has_room(self, most: Amount) -> bool:
        """Whether a call that costs `most` fits beside all that is spent and reserved."""
        return self._exceeded(self.spent + self._reserved + most) is None

    async def reserve(self, most: Amount) -> None:
        """Takes `most` off what is left. Where it fits only if calls in flight cost less than they may, waits for them.

        Raises BudgetExceeded where it does not fit whatever they cost.
        """
        while not self.has_room(most):
            if (reason := self._exceeded(self.spent + most)) is not None:
                raise BudgetExceeded(reason)
            await self._changed.wait()
        self._reserved += most

    def settle(self, most: Amount, spent: Amount) -> None:
        """The end of a call for which `most` was reserved. Whoever waits looks again."""
        self._reserved -= most
        self.spent += spent
        self._changed.set()
        self._changed = asyncio.Event()

    @asynccontextmanager
    async def in_time(self) -> AsyncIterator[None]:
        """Ends what runs within when the time is over; raises BudgetExceeded then, and where it is over already."""
        left = self._ends - self._clock()
        minutes = f"the {self.settings.minutes:g} minutes of this run are over" if self.settings.minutes else ""
        cure = f"give --budget-minutes more; {RESUME_HINT}"
        if left <= 0:
            raise BudgetExceeded(f"{minutes}: {cure}")
        try:
            async with asyncio.timeout(None if math.isinf(left) else left) as limit:
                yield
        except TimeoutError:
            if not limit.expired():
                raise
            raise BudgetExceeded(f"{minutes}, and a call was ended: {cure}", usage=UNKNOWN_USAGE) from None

    def _exceeded(self, total: Amount) -> str | None:
        """Which limit this would go beyond, and what to do."""
        tokens, usd = self.settings.tokens, self.settings.usd
        if tokens is not None and total.tokens > tokens:
            said = f"{self.spent.tokens:,} of {tokens:,} tokens are spent, and the next call may need"
            more = f"{total.tokens - self.spent.tokens:,}"
            return f"{said} {more}: give --budget-tokens more; {RESUME_HINT}"
        if usd is not None and total.billionths > math.floor(usd * _BILLION):
            said = f"${self.spent.usd:.4f} of ${usd:g} is spent, and the next call may cost"
            more = f"${(total - self.spent).usd:.4f}"
            return f"{said} {more}: give --budget-usd more; {RESUME_HINT}"
        return None


class BudgetedModel(Layer):
    """Wraps a ChatModel; each call reserves the most it may cost and pays what it did cost.

    A call of which nobody told the tokens or the cost, and one that was cancelled, has spent what it had reserved. An
    endpoint that gives more than was asked for can still overspend, by that. With a budget in dollars an unknown price
    raises SettingsError before the call; `price` gives the dollars of a usage.
    """

    def __init__(self, inner: ChatModel, budget: Budget, price: Callable[[Usage], float | None]) -> None:
        super().__init__(inner)
        self._budget = budget
        self._price = price
        if budget.settings.usd is not None and price(Usage(prompt_tokens=1, completion_tokens=1)) is None:
            raise SettingsError(
                f"nobody knows the price of {self.name}, so a budget in dollars cannot be kept: state it in the "
                "settings (price = {input = ..., output = ...}, for a million tokens), or give --budget-tokens instead"
            )

    async def complete(self, request: ChatRequest, on_delta: OnDelta | None = None) -> ChatReply:
        most = await self._most(request)
        await self._budget.reserve(most)
        spent = most
        try:
            reply = await self._inner.complete(request, on_delta)
            spent = _spent(reply.usage, most)
        except EpicrisisError as error:
            spent = _spent(error.usage, most)
            raise
        finally:
            self._budget.settle(most, spent)
        return reply

    async def _most(self, request: ChatRequest) -> Amount:
        """The model's own tokenizer is asked only where the bound from the text's bytes does not fit."""
        most = self._amount(request, compute_max_prompt_tokens(request))
        if self._budget.has_room(most) or not (await self._inner.capabilities()).exact_token_counts:
            return most
        return self._amount(request, await self._inner.count_tokens(request.messages))

    def _amount(self, request: ChatRequest, prompt_tokens: int) -> Amount:
        reply_tokens = compute_max_reply_tokens(request)
        usd = self._price(Usage(prompt_tokens=prompt_tokens, completion_tokens=reply_tokens))
        return Amount.of(prompt_tokens + reply_tokens, usd or 0.0)


class TimedModel(Layer):
    """Wraps a ChatModel; no call starts after the run's time, and what waits or runs then is ended."""

    def __init__(self, inner: ChatModel, budget: Budget) -> None:
        super().__init__(inner)
        self._budget = budget

    async def complete(self, request: ChatRequest, on_delta: OnDelta | None = None) -> ChatReply:
        async with self._budget.in_time():
            return await self._inner.complete(request, on_delta)


def _spent(usage: Usage, most: Amount) -> Amount:
    tokens = count_used_tokens(usage, most.tokens)
    return Amount(tokens, most.billionths) if usage.cost is None else Amount.of(tokens, usage.cost)
