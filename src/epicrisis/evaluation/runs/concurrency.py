"""Many pieces of work, some of them at once, each kept before the next is begun. Knows no question and no model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from itertools import islice
from typing import Any, TypeVar

from epicrisis.answers import Failure
from epicrisis.errors import ContextOverflow, NotCached, ReplyTruncated, ReplyWithheld, RunStopped

T = TypeVar("T")
R = TypeVar("R")

AT_THE_START, IN_A_ROW = 3, 20
"""Failures, one after the other, that end the work: before anything came back, and later."""
_OF_ONE_PROMPT = {ContextOverflow.__name__, ReplyTruncated.__name__, ReplyWithheld.__name__, NotCached.__name__}
"""Failures that say nothing of the next call."""


async def run_concurrently(
    items: Iterable[T],
    work: Callable[[T], Coroutine[Any, Any, R]],
    keep: Callable[[R], None],
    failure: Callable[[R], Failure | None],
    at_once: int = 1,
) -> AsyncGenerator[R, None]:
    """What comes of each item, kept before it is yielded, `at_once` of them worked on together.

    Raises what a piece of work raised (BudgetExceeded, ScopeViolation) when all in flight has ended and is kept, and
    RunStopped where nothing but failures comes back: an endpoint that is down must not be asked a million times.
    """
    waiting, failures = iter(items), _Failures()
    working: list[asyncio.Task[R]] = []
    raised: BaseException | None = None
    try:
        while True:
            room = 0 if raised else at_once - len(working)
            working += [asyncio.create_task(work(item)) for item in islice(waiting, room)]
            if not working:
                break
            done, _ = await asyncio.wait(working, return_when=asyncio.FIRST_COMPLETED)
            # A set has no order; the lines of two runs alike shall have one.
            ended = [task for task in working if task in done]
            working = [task for task in working if task not in done]
            errors = [error for task in ended if (error := task.exception())]
            raised = raised or next(iter(errors), None)
            results = [task.result() for task in ended if task.exception() is None]
            for result in results:
                keep(result)
                failures.count(failure(result))
            for result in results:
                yield result
            failures.check()
    finally:
        for task in working:
            task.cancel()
        if working:
            await asyncio.wait(working)
    if raised is not None:
        raise raised


class _Failures:
    """How many failed one after the other."""

    def __init__(self) -> None:
        self._in_a_row, self._limit, self._last = 0, AT_THE_START, ""

    def count(self, failure: Failure | None) -> None:
        if failure is None:
            self._in_a_row, self._limit = 0, IN_A_ROW
        elif failure.kind not in _OF_ONE_PROMPT:
            self._in_a_row, self._last = self._in_a_row + 1, failure.message

    def check(self) -> None:
        """Raises RunStopped when it is enough."""
        if self._in_a_row >= self._limit:
            raise RunStopped(
                f"{self._in_a_row} in a row failed, so the run was stopped ({self._last}); what is done is kept, and "
                "the same command goes on from there"
            )
