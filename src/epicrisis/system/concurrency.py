"""Concurrent work on many items, with each result stored before the next item starts, and work in threads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Sequence
from contextlib import aclosing
from itertools import islice
from typing import Any, ParamSpec, Protocol, TypeVar

from epicrisis.core.answers import Failure
from epicrisis.core.errors import ContextOverflow, NotCached, ReplyTruncated, ReplyWithheld, RunStopped

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")

MAX_FIRST_FAILURES, MAX_FAILURES = 3, 20
"""Consecutive failures that stop the work: before the first success, and after it."""
_CASE_FAILURES = {ContextOverflow.__name__, ReplyTruncated.__name__, ReplyWithheld.__name__, NotCached.__name__}
"""Failures of one prompt, which say nothing about the next call."""


async def run_concurrently(
    items: Iterable[T],
    work: Callable[[T], Coroutine[Any, Any, R]],
    store: Callable[[Sequence[R]], None],
    failure_of: Callable[[R], Failure | None],
    concurrency: int = 1,
) -> AsyncGenerator[R, None]:
    """Yield the result of each item, stored before it is yielded. Works on `concurrency` items at once.

    `store` gets the results that have come meanwhile together: a disk takes as long for one as for ten.

    If `work` raises (BudgetExceeded, ScopeViolation), the items in flight are finished and stored, then the error is
    raised. Raises RunStopped after several consecutive failures, to spare an endpoint without service further calls.
    """
    pending, failures = iter(items), _FailureCount()
    tasks: list[asyncio.Task[R]] = []
    first_error: BaseException | None = None
    try:
        while True:
            free = 0 if first_error else concurrency - len(tasks)
            tasks += [asyncio.create_task(work(item)) for item in islice(pending, free)]
            if not tasks:
                break
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            # In the order of the items, as `done` is a set: equal runs write equal files.
            finished = [task for task in tasks if task in done]
            tasks = [task for task in tasks if task not in done]
            results = [task.result() for task in finished if task.exception() is None]
            first_error = first_error or next(filter(None, map(asyncio.Task.exception, finished)), None)
            if results:
                store(results)
            for result in results:
                failures.count(failure_of(result))
            for result in results:
                yield result
            failures.check()
    finally:
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
    if first_error is not None:
        raise first_error


class Result(Protocol):
    """The result of a request, which may have failed."""

    @property
    def failure(self) -> Failure | None: ...


S = TypeVar("S", bound=Result)


async def store_results(
    items: Iterable[T], work: Callable[[T], Coroutine[Any, Any, S]], store: Callable[[S], None], concurrency: int = 1
) -> AsyncGenerator[S, None]:
    """Yield the result of each item, which `store` has stored by then. Raises as `run_concurrently` does."""

    def store_all(results: Sequence[S]) -> None:
        for result in results:
            store(result)

    # A caller that stops half-way ends the requests in flight at once, not when the generator is collected.
    async with aclosing(
        run_concurrently(items, work, store_all, lambda result: result.failure, concurrency)
    ) as results:
        async for result in results:
            yield result


class _FailureCount:
    """The number of consecutive failures."""

    def __init__(self) -> None:
        self._consecutive, self._limit, self._message = 0, MAX_FIRST_FAILURES, ""

    def count(self, failure: Failure | None) -> None:
        if failure is None:
            self._consecutive, self._limit = 0, MAX_FAILURES
        elif failure.kind not in _CASE_FAILURES:
            self._consecutive, self._message = self._consecutive + 1, failure.message

    def check(self) -> None:
        """Raise RunStopped at the limit."""
        if self._consecutive >= self._limit:
            raise RunStopped(
                f"{self._consecutive} in a row failed, so the run was stopped ({self._message}). Finished cases are "
                "stored, and the same command continues from there"
            )


async def finish_in_thread(work: Callable[P, T], *arguments: P.args, **keywords: P.kwargs) -> T:
    """Return the result of work in a thread. A cancellation waits for it, so it writes nothing after what comes next.

    `asyncio.to_thread` ends at a cancellation while its thread still writes.
    """
    task = asyncio.create_task(asyncio.to_thread(work, *arguments, **keywords))
    try:
        return await asyncio.shield(task)
    finally:
        await asyncio.wait([task])
