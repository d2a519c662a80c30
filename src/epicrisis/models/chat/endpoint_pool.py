"""Several endpoints that serve one model, used as one chat model.

Each endpoint has a number of calls that it may have in flight. It grows while calls succeed and is halved when the
endpoint is overloaded. An endpoint that fails is left out, and checked again after a pause. A call goes to the endpoint
with the fewest calls in flight.

`PooledCallsModel` assigns an endpoint to each call, outside the layers of rate and budget: a call that waits holds
nothing of theirs. `EndpointPool` is the innermost model and sends the call there, or to another endpoint if that one
was left out while the call waited for the rate.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Protocol

from epicrisis.core.errors import (
    ChatError,
    EndpointBusy,
    EndpointRejected,
    EndpointTimeout,
    EndpointUnreachable,
    EpicrisisError,
    SettingsError,
)
from epicrisis.core.protocols import Capabilities, ChatModel, ChatReply, ChatRequest, DeltaCallback, Message
from epicrisis.models.chat.endpoints.probing import ServedModel
from epicrisis.models.chat.layers import Layer

FIRST_CALLS = 8
"""Calls that a new endpoint may have in flight, unless the settings allow fewer."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
"""Seconds until an endpoint that failed is checked again. They double each time."""
MAX_OVERLOADS = 5
"""An endpoint that is overloaded so often in a row, without a reply, is left out."""


class PooledModel(ChatModel, Protocol):
    """A chat model of one endpoint with the models that it serves."""

    async def identify(self) -> ServedModel:
        """Return what the endpoint serves now. Raises ChatError if it does not answer."""
        ...


class _Member:
    """One endpoint of a pool, and its state."""

    def __init__(self, model: PooledModel, most: int) -> None:
        self.model = model
        self.in_flight = 0
        self.most = most
        self.limit = float(min(FIRST_CALLS, most))
        """The calls that it may have in flight now."""
        self.threshold = float(most)
        """Below it `limit` grows by one for each reply, above it by one for each `limit` replies."""
        self.is_out = True
        """Whether it must be checked before its next call."""
        self.out_since = -math.inf
        """When it was left out. Before its first check: always."""
        self.resting_until = 0.0
        self.pause = 0.0
        self.overloads = 0
        self.last_cut = -math.inf
        self.failure: EpicrisisError | None = None
        """Why it was left out. SettingsError: it serves another model."""
        self.is_new = True
        """Whether its first check has not ended."""
        self.is_misconfigured = False
        """Whether it served another model at its first check, and no check since has let it take part."""
        self.check: asyncio.Task[None] | None = None

    def admits(self, now: float) -> bool:
        return not self.is_out and now >= self.resting_until and self.in_flight < int(self.limit)

    def note_reply(self) -> None:
        """Allow more calls."""
        self.limit = min(self.most, self.limit + (1.0 if self.limit < self.threshold else 1 / self.limit))
        self.overloads, self.pause = 0, 0.0

    def note_overload(self, error: ChatError, start: float, now: float) -> None:
        """Allow half the calls, once for all that were in flight together, and wait as the endpoint asks."""
        self.overloads += 1
        self.resting_until = max(self.resting_until, now + (error.retry_after or 0.0))
        if start >= self.last_cut:
            self.last_cut = now
            self.threshold = self.limit = max(1.0, self.limit / 2)
        if self.overloads >= MAX_OVERLOADS and self.limit == 1.0:
            self.leave_out(error, now)

    def leave_out(self, error: EpicrisisError, now: float) -> None:
        """Send no call until a check succeeds, and check after a pause."""
        self.failure = error
        if not self.is_out:
            self.is_out, self.out_since = True, now
            self.rest(now)

    def rest(self, now: float) -> None:
        """Begin the pause before the next check, twice as long as the one before."""
        self.pause = min(LONGEST_PAUSE, 2 * self.pause or FIRST_PAUSE)
        self.resting_until = max(self.resting_until, now + self.pause)


class _Place:
    """The place of a running call at an endpoint. Leave it exactly once."""

    def __init__(self, member: _Member) -> None:
        self.member = member
        member.in_flight += 1

    def leave(self) -> None:
        self.member.in_flight -= 1

    def move(self, members: Sequence[_Member], now: float) -> None:
        """Change to the endpoint with the fewest calls if this one was left out, and another one works.

        It may then have more than its limit: its count includes calls waiting for the rate.
        """
        working = [member for member in members if not member.is_out and now >= member.resting_until]
        if self.member.is_out and working:
            self.leave()
            self.member = min(working, key=lambda member: member.in_flight)
            self.member.in_flight += 1


_place: ContextVar[_Place] = ContextVar("place")
"""The place of the running call."""


class EndpointPool:
    """Endpoints that serve one model. They must be called through a `PooledCallsModel`, which assigns the endpoint.

    `patience` is the number of seconds that calls wait while no endpoint works. The fingerprint is that of the first
    endpoint, whichever answers: cached replies stay valid when others are added or removed.
    """

    def __init__(self, models: Sequence[PooledModel], calls: int, patience: float) -> None:
        self.members = [_Member(model, calls) for model in models]
        self.patience = patience
        self.is_closed = False
        self.name = f"{models[0].name} and {len(models) - 1} more"

    async def complete(self, request: ChatRequest, on_delta: DeltaCallback | None = None) -> ChatReply:
        place = _place.get()
        place.move(self.members, asyncio.get_running_loop().time())
        return await place.member.model.complete(request, on_delta)

    async def count_tokens(self, messages: Sequence[Message]) -> int:
        return await _place.get().member.model.count_tokens(messages)

    async def capabilities(self) -> Capabilities:
        return await _place.get().member.model.capabilities()

    async def fingerprint(self) -> str:
        return await self.members[0].model.fingerprint()

    async def refresh(self) -> None:
        from epicrisis.core.protocols import refresh_capabilities

        for member in self.members:
            await refresh_capabilities(member.model)

    async def aclose(self) -> None:
        self.is_closed = True
        for member in self.members:
            if member.check is not None:
                member.check.cancel()
        for member in self.members:
            await member.model.aclose()


class PooledCallsModel(Layer):
    """Assigns an endpoint of the pool to each call, and learns from its outcome. Further calls wait in order.

    An endpoint that returns with another model is left out until it serves the first one again. Raises SettingsError
    while an endpoint serves another model since the start, and an endpoint's error if none works. Use it from one event
    loop, or from several one after the other.
    """

    def __init__(self, inner: ChatModel, pool: EndpointPool) -> None:
        super().__init__(inner)
        self._pool = pool
        self._loop: asyncio.AbstractEventLoop | None = None
        self._queue = asyncio.Lock()
        self._changed = asyncio.Event()
        self._served: tuple[str, ServedModel] | None = None
        """The first endpoint that answered, and what it serves."""
        self._fault: Exception | None = None
        """An error of a check that no endpoint causes."""

    async def complete(self, request: ChatRequest, on_delta: DeltaCallback | None = None) -> ChatReply:
        async with self._assign() as place:
            reply = await self._inner.complete(request, on_delta)
            # Not for the questions below: they are mostly answered from memory.
            place.member.note_reply()
            return reply

    async def count_tokens(self, messages: Sequence[Message]) -> int:
        async with self._assign():
            return await self._inner.count_tokens(messages)

    async def capabilities(self) -> Capabilities:
        async with self._assign():
            return await self._inner.capabilities()

    async def aclose(self) -> None:
        await super().aclose()
        self._changed.set()

    @asynccontextmanager
    async def _assign(self) -> AsyncIterator[_Place]:
        """Hold a place at an endpoint, to which the pool sends the calls of the body."""
        loop = self._join_loop()
        place = await self._take_place(loop)
        start, token = loop.time(), _place.set(place)
        try:
            yield place
        except (EndpointBusy, EndpointTimeout) as error:
            place.member.note_overload(error, start, loop.time())
            if error.retry_after is not None:
                # The queue waits as long as the endpoint asks, or takes another one.
                error.retry_after = 0.0
            raise
        except EndpointUnreachable as error:
            place.member.leave_out(error, loop.time())
            raise
        except EndpointRejected as error:
            if not error.rejects_all:
                raise
            # The others may accept it. As it fails at once, this endpoint would soon get most of the calls.
            place.member.leave_out(error, loop.time())
            raise EndpointUnreachable(error.message, usage=error.usage) from None
        finally:
            _place.reset(token)
            place.leave()
            self._changed.set()

    def _join_loop(self) -> asyncio.AbstractEventLoop:
        """Return the running event loop, and replace what belonged to an earlier one.

        Raises ChatError if the earlier one is still open: its calls wait for the same endpoints.
        """
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            if self._loop is not None and not self._loop.is_closed():
                raise ChatError(f"{self.name} is in use by another event loop: open the model again for this one")
            self._loop, self._queue, self._changed = loop, asyncio.Lock(), asyncio.Event()
            for member in self._pool.members:
                member.in_flight, member.check = 0, None
        return loop

    async def _take_place(self, loop: asyncio.AbstractEventLoop) -> _Place:
        """Return a place at the endpoint with the fewest calls in flight."""
        async with self._queue:
            while True:
                now = loop.time()
                if self._fault is not None:
                    raise self._fault
                if self._pool.is_closed:
                    raise ChatError(f"{self.name} was closed: open the model again, and repeat the call")
                self._start_checks(now)
                self._check_settings()
                free = [member for member in self._pool.members if member.admits(now)]
                if free:
                    return _Place(min(free, key=lambda member: member.in_flight))
                self._check_patience(now)
                await self._wait(now)

    def _check_settings(self) -> None:
        """Raise the error of an endpoint that serves another model since the start."""
        for member in self._pool.members:
            if member.is_misconfigured and member.failure is not None:
                raise SettingsError(member.failure.message)

    async def _wait(self, now: float) -> None:
        """Wait until a call or a check has ended, or an endpoint may be asked again."""
        self._changed.clear()
        waits = [member.resting_until - now for member in self._pool.members if member.resting_until > now]
        try:
            async with asyncio.timeout(min(waits, default=None)):
                await self._changed.wait()
        except TimeoutError:
            pass

    def _start_checks(self, now: float) -> None:
        for member in self._pool.members:
            if member.is_out and member.check is None and now >= member.resting_until:
                member.check = asyncio.create_task(self._check(member))

    async def _check(self, member: _Member) -> None:
        """Ask what the endpoint serves. It takes part if it answers and serves the model of the others."""
        try:
            served = await member.model.identify()
            if self._served is None:
                self._served = member.model.name, served
            if (mismatch := _explain_mismatch(*self._served, member.model.name, served)) is not None:
                member.is_misconfigured = member.is_misconfigured or member.is_new
                raise SettingsError(mismatch)
        except EpicrisisError as error:
            member.failure = error
            member.rest(asyncio.get_running_loop().time())
        except Exception as error:  # noqa: BLE001 - the calls that wait for the check raise it
            self._fault = error
        else:
            if member.failure is not None:
                member.limit, member.threshold = 1.0, float(member.most)
            member.is_out, member.is_misconfigured, member.failure, member.overloads = False, False, None, 0
        finally:
            member.is_new, member.check = False, None
            self._changed.set()

    def _check_patience(self, now: float) -> None:
        """Raise the error of an endpoint if none works, and none will in time."""
        members = self._pool.members
        resting = [member.resting_until - now for member in members if not member.is_out]
        if resting:
            if min(resting) > self._pool.patience:
                raise EndpointBusy(
                    f"all endpoints refuse calls, the first for another {min(resting):.0f} s: run the same command "
                    "later, or raise retry_seconds"
                )
            return
        if any(member.failure is None for member in members):
            return
        has_waited = now - max(member.out_since for member in members) > self._pool.patience
        # A wrong key stays wrong, and a model is not exchanged in a minute.
        is_hopeless = all(isinstance(member.failure, (EndpointRejected, SettingsError)) for member in members)
        if (has_waited or is_hopeless) and (failure := members[0].failure) is not None:
            raise EndpointUnreachable(f"none of the {len(members)} endpoints works. The first: {failure.message}")


def _explain_mismatch(first: str, expected: ServedModel, name: str, served: ServedModel) -> str | None:
    """Return in which way two endpoints serve different models, with the cure, or None."""
    cure = "start both with the same model and options, or leave one of them out"
    if {expected.is_listed, served.is_listed} == {True, False}:
        missing, other = (name, first) if expected.is_listed else (first, name)
        return f"the endpoints of the pool differ: {missing} is not among its models, as it is for {other}: {cure}"
    for what, mine, theirs in (
        ("a context window of {} tokens", expected.window, served.window),
        ("{} weights", expected.parameters, served.parameters),
        ("a model file of {} bytes", expected.size, served.size),
    ):
        if mine is not None and theirs is not None and mine != theirs:
            return f"the endpoints of the pool differ: {first} has {what.format(mine)}, {name} {theirs}: {cure}"
    return None
