"""The layers around a chat model that repeat, limit, record and pay for its calls, and the budget of a run.

A call reserves the most it may cost and then pays what it did cost, so no run is overspent by calls in flight.
"""

from __future__ import annotations

import asyncio
import math
import os
import random
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from epicrisis.core.answers import Failure, Usage
from epicrisis.core.errors import (
    BudgetExceeded,
    ChatError,
    EndpointBusy,
    EndpointUnreachable,
    EpicrisisError,
    SettingsError,
    StorageError,
)
from epicrisis.core.printable import printable_json
from epicrisis.core.protocols import (
    Capabilities,
    ChatModel,
    ChatReply,
    ChatRequest,
    DeltaCallback,
    Message,
    refresh_capabilities,
)
from epicrisis.core.serialization import dump_json
from epicrisis.models.chat import call_costs
from epicrisis.settings.settings import BudgetSettings
from epicrisis.system.local_only import open_private
from epicrisis.system.logs import log_call


class Layer:
    """A ChatModel that passes every call on to another one. Subclasses override some of them."""

    def __init__(self, inner: ChatModel) -> None:
        self._inner = inner

    @property
    def name(self) -> str:
        return self._inner.name

    async def complete(self, request: ChatRequest, on_delta: DeltaCallback | None = None) -> ChatReply:
        return await self._inner.complete(request, on_delta)

    async def count_tokens(self, messages: Sequence[Message]) -> int:
        return await self._inner.count_tokens(messages)

    async def capabilities(self) -> Capabilities:
        return await self._inner.capabilities()

    async def fingerprint(self) -> str:
        return await self._inner.fingerprint()

    async def refresh(self) -> None:
        await refresh_capabilities(self._inner)

    async def aclose(self) -> None:
        await self._inner.aclose()


MINUTE = 60.0
POLL_SECONDS = 0.25
"""How often the first call in the queue checks whether completed calls have returned tokens."""


class ConcurrencyLimitedModel(Layer):
    """Limits the calls in flight (completions, token counts, probes) to `limit`. Further calls wait in order.

    To prevent deadlocks, no layer may hold one of these places while it waits for another.
    """

    def __init__(self, inner: ChatModel, limit: int) -> None:
        super().__init__(inner)
        self._semaphore = asyncio.Semaphore(limit)

    async def complete(self, request: ChatRequest, on_delta: DeltaCallback | None = None) -> ChatReply:
        async with self._semaphore:
            return await self._inner.complete(request, on_delta)

    async def count_tokens(self, messages: Sequence[Message]) -> int:
        async with self._semaphore:
            return await self._inner.count_tokens(messages)

    async def capabilities(self) -> Capabilities:
        async with self._semaphore:
            return await self._inner.capabilities()

    async def fingerprint(self) -> str:
        async with self._semaphore:
            return await self._inner.fingerprint()


@dataclass(slots=True)
class _AdmittedCall:
    """A call's start, and its tokens: reserved until it ends, then used."""

    start: float
    tokens: int
    in_window: bool = True


class RateLimitedModel(Layer):
    """Delays completions, in order, until the last 60 seconds leave room for them.

    A bucket that refills instead would admit nearly twice the limit in a minute that begins with a full bucket. A call
    reserves its estimated prompt tokens and the most its reply may have; afterwards the tokens it used replace the
    reservation, unless they are unknown. A call with more tokens than the limit is admitted if no other was admitted in
    the last minute. A limit below one call per minute applies to a longer window.
    """

    def __init__(
        self,
        inner: ChatModel,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        super().__init__(inner)
        requests = math.inf if requests_per_minute is None else requests_per_minute
        self._window = MINUTE * max(1.0, 1 / requests)
        self._max_calls = max(1.0, requests)
        self._max_tokens = math.inf if tokens_per_minute is None else tokens_per_minute
        self._clock = clock
        self._sleep = sleep
        self._queue = asyncio.Lock()
        self._calls: deque[_AdmittedCall] = deque()
        self._tokens_in_window = 0

    async def complete(self, request: ChatRequest, on_delta: DeltaCallback | None = None) -> ChatReply:
        maximum = call_costs.estimate_prompt_tokens(request.messages) + call_costs.compute_max_reply_tokens(request)
        call = await self._admit(maximum)
        try:
            reply = await self._inner.complete(request, on_delta)
        except EpicrisisError as error:
            self._settle(call, call_costs.count_used_tokens(error.usage, maximum))
            raise
        self._settle(call, call_costs.count_used_tokens(reply.usage, maximum))
        return reply

    async def _admit(self, tokens: int) -> _AdmittedCall:
        async with self._queue:
            while True:
                now = self._clock()
                while self._calls and now - self._calls[0].start >= self._window:
                    earlier = self._calls.popleft()
                    earlier.in_window = False
                    self._tokens_in_window -= earlier.tokens
                tokens_fit = self._tokens_in_window + tokens <= self._max_tokens
                if not self._calls or (len(self._calls) + 1 <= self._max_calls and tokens_fit):
                    break
                await self._sleep(POLL_SECONDS)
            call = _AdmittedCall(self._clock(), tokens)
            self._calls.append(call)
            self._tokens_in_window += tokens
            return call

    def _settle(self, call: _AdmittedCall, tokens: int) -> None:
        if call.in_window:
            self._tokens_in_window += tokens - call.tokens
        call.tokens = tokens


class RecordingModel(Layer):
    """Appends a JSON line to the file for every completion, failures included. Processes may share the file.

    Keys: `time` (of the start, ISO 8601, UTC), `seconds`, `model`, `request` with all its fields, `reply` or `error`
    (`kind`, `message`), `usage`, `replayed`. Raises StorageError before the first call if the file cannot be written.
    """

    def __init__(self, inner: ChatModel, path: Path) -> None:
        super().__init__(inner)
        self._path = path
        self._prepared = False

    async def complete(self, request: ChatRequest, on_delta: DeltaCallback | None = None) -> ChatReply:
        if not self._prepared:
            # A kill or a full disk may have broken off the last line.
            with self._open() as file:
                if os.fstat(file).st_size:
                    os.lseek(file, -1, os.SEEK_END)
                    if os.read(file, 1) != b"\n":
                        os.write(file, b"\n")
            self._prepared = True
        moment, start = datetime.now(UTC).isoformat(timespec="milliseconds"), time.monotonic()

        def record(usage: Usage, **outcome: Any) -> None:
            seconds = round(time.monotonic() - start, 3)
            call: dict[str, Any] = {"time": moment, "seconds": seconds, "model": self.name, "request": request}
            call |= {**outcome, "usage": usage, "replayed": usage.replayed_calls > 0}
            line = printable_json(dump_json(call)).encode() + b"\n"
            # In one piece, so that the lines of several processes do not mix.
            with self._open() as file:
                while line:
                    line = line[os.write(file, line) :]

        try:
            reply = await self._inner.complete(request, on_delta)
        except EpicrisisError as error:
            record(error.usage, error=error.as_failure())
            raise
        except asyncio.CancelledError:
            with suppress(StorageError):
                record(Usage(cost=None), error=Failure("Cancelled", "the call was cancelled"))
            raise
        record(reply.usage, reply=reply)
        return reply

    @contextmanager
    def _open(self) -> Iterator[int]:
        """Open the file for one write: calls may end after the model is closed."""
        try:
            file = open_private(self._path, os.O_RDWR | os.O_APPEND)
            try:
                yield file
            finally:
                os.close(file)
        except OSError as error:
            raise StorageError(
                f"{self._path}: calls cannot be recorded there ({error.strerror}): free disk space, choose another "
                "file, or leave out the setting record; the cache, if it is on, has the replies so far"
            ) from error


class LoggedModel(Layer):
    """Writes each prompt and its reply or error to the log. See `logs.log_call`."""

    async def complete(self, request: ChatRequest, on_delta: DeltaCallback | None = None) -> ChatReply:
        try:
            reply = await self._inner.complete(request, on_delta)
        except ChatError as error:
            log_call(request, error)
            raise
        log_call(request, reply)
        return reply


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
        """Return whether a call of at most `maximum` fits, in addition to the spent and reserved amounts."""
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
            raise BudgetExceeded(message, usage=call_costs.UNKNOWN_USAGE) from None

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
        maximum = self._price_tokens(request, call_costs.compute_max_prompt_tokens(request))
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
        reply_tokens = call_costs.compute_max_reply_tokens(request)
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
    tokens = call_costs.count_used_tokens(usage, maximum.tokens)
    return Amount(tokens, maximum.billionths) if usage.cost is None else Amount.from_usd(tokens, usage.cost)


T = TypeVar("T")
MAX_FACTOR = 64
"""Pauses double up to this many times the first."""
ABSENT_TRIES = 2
"""Tries of an endpoint that cannot be reached and has never answered."""


class RetryingModel(Layer):
    """Calls the model up to `tries` times if it fails with a retryable error. The usage of failed tries is added.

    Each pause is the wait the endpoint asks for (`retry_after`), plus `base_seconds`, doubled each time, times a factor
    from 0.5 to 1.5 that depends only on the request, so simultaneous calls do not return together. A busy endpoint that
    says when to return does not use up a try. One that cannot be reached and has never answered is tried twice: it is
    not there, while one that has answered may be starting again. `deadline_seconds` limits the pauses and the seconds
    of all tries after the first, without the wait for a place. A partly streamed reply is voided by `on_delta(None)`
    before the next try.
    """

    def __init__(
        self,
        inner: ChatModel,
        tries: int = 5,
        deadline_seconds: float = 120.0,
        base_seconds: float = 0.5,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        super().__init__(inner)
        self._tries = tries
        self._deadline = deadline_seconds
        self._base_seconds = base_seconds
        self._sleep = sleep
        self._has_answered = False

    async def complete(self, request: ChatRequest, on_delta: DeltaCallback | None = None) -> ChatReply:
        has_output = False

        def forward(piece: str | None) -> None:
            nonlocal has_output
            has_output = piece is not None
            if on_delta is not None:
                on_delta(piece)

        def void_output() -> None:
            if has_output:
                forward(None)

        send = partial(self._inner.complete, request, None if on_delta is None else forward)
        reply, failed_usage = await self._retry(send, request, void_output)
        # Capabilities and counts of tokens are estimated if the endpoint does not answer.
        self._has_answered = True
        return replace(reply, usage=failed_usage + reply.usage)

    async def count_tokens(self, messages: Sequence[Message]) -> int:
        return (await self._retry(lambda: self._inner.count_tokens(messages), messages))[0]

    async def capabilities(self) -> Capabilities:
        return (await self._retry(self._inner.capabilities, self.name))[0]

    async def fingerprint(self) -> str:
        return (await self._retry(self._inner.fingerprint, self.name))[0]

    async def _retry(
        self, call: Callable[[], Awaitable[T]], seed: object, before_retry: Callable[[], None] = lambda: None
    ) -> tuple[T, Usage]:
        """Return the call's result, and the usage of the failed tries. `seed` determines the random pauses."""
        failed_usage, failures, tries, remaining = Usage(), 0, 0, self._deadline
        jitter: random.Random | None = None
        while True:
            try:
                return await call(), failed_usage
            except EpicrisisError as error:
                failed_usage, failures = failed_usage + error.usage, failures + 1
                if failures > 1:
                    remaining = max(0.0, remaining - error.usage.seconds)
                retry_after = error.retry_after if isinstance(error, ChatError) else None
                if retry_after is None or not isinstance(error, EndpointBusy):
                    tries += 1
                retry_after = retry_after or 0.0
                # A connection that broke off was made, so there is a server: it may have processed the call.
                is_refused = isinstance(error, EndpointUnreachable) and not error.usage.uncounted_calls
                most = min(self._tries, ABSENT_TRIES) if is_refused and not self._has_answered else self._tries
                if not error.retryable or tries >= most or remaining == 0 or retry_after > remaining:
                    error.usage = failed_usage
                    if error.retryable:
                        message = str(error) if failures == 1 else f"{error} (tried {failures} times)"
                        if retry_after > remaining:
                            message += (
                                f"; it asks to wait {retry_after:.0f} s, more than the {remaining:.0f} s that remain "
                                "for retries: run the same command later, or raise retry_seconds"
                            )
                        error.args = (message,)
                    raise
            before_retry()
            jitter = jitter or random.Random(repr(seed))
            pause = self._base_seconds * min(2 ** (failures - 1), MAX_FACTOR) * (0.5 + jitter.random())
            wait = min(retry_after + pause, remaining)
            remaining -= wait
            await self._sleep(wait)
