"""Test concurrent work: finished results are kept after an error, and no task outlives the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing

import pytest

from epicrisis.core.errors import BudgetExceeded, EpicrisisError, ScopeViolation, StorageError
from epicrisis.system.concurrency import run_concurrently


class Work:
    """Save each item, or raise its error. Items that start together end together."""

    def __init__(self, **raises: EpicrisisError) -> None:
        self.raises = {int(name.removeprefix("i")): error for name, error in raises.items()}
        self.begun: list[int] = []
        self.kept: list[int] = []
        self.left: set[asyncio.Task[None]] = set()

    async def do(self, item: int) -> int:
        self.begun.append(item)
        await asyncio.sleep(0.01 if item < 4 else 0.02)
        if item in self.raises:
            raise self.raises[item]
        return item

    def keep(self, results: Sequence[int]) -> None:
        for result in results:
            self.kept.append(result)

    async def run(self, at_once: int, leave: bool = False) -> None:
        before = asyncio.all_tasks()
        try:
            async with aclosing(run_concurrently(range(40), self.do, self.keep, lambda _: None, at_once)) as results:
                async for _ in results:
                    if leave:
                        break
        finally:
            self.left = asyncio.all_tasks() - before


@pytest.mark.parametrize("error", [BudgetExceeded("spent"), ScopeViolation("another patient's")])
@pytest.mark.parametrize("at_once", [1, 4, 8])
def test_work_with_error_keeps_results_in_flight_and_starts_no_more(error: EpicrisisError, at_once: int) -> None:
    work = Work(i1=error)
    with pytest.raises(type(error)):
        asyncio.run(work.run(at_once))
    assert sorted([*work.kept, 1]) == sorted(work.begun)
    assert len(work.begun) < 2 * at_once + 1
    assert not work.left


def test_work_with_two_errors_raises_first() -> None:
    with pytest.raises(ScopeViolation, match="this"):
        asyncio.run(Work(i0=ScopeViolation("this"), i2=BudgetExceeded("that")).run(4))


def test_work_with_storage_error_ends() -> None:
    class Full(list[int]):
        def append(self, item: int) -> None:
            if item == 2:
                raise StorageError("full")
            super().append(item)

    work = Work()
    work.kept = Full()
    with pytest.raises(StorageError):
        asyncio.run(work.run(3))
    assert work.kept == [0, 1]
    assert not work.left


def test_work_abandoned_or_cancelled_leaves_no_task() -> None:
    work = Work()
    asyncio.run(work.run(5, leave=True))
    assert work.kept
    assert not work.left

    async def cancelled(work: Work) -> None:
        task = asyncio.create_task(work.run(5))
        await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    other = Work()
    asyncio.run(cancelled(other))
    assert (len(other.begun), other.kept) == (5, [])
    assert not other.left
