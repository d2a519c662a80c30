"""Work in threads that a cancellation does not leave behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def finish_in_thread(work: Callable[P, T], *arguments: P.args, **keywords: P.kwargs) -> T:
    """Return the result of work in a thread. A cancellation waits for it, so it writes nothing after what comes next.

    `asyncio.to_thread` ends at a cancellation while its thread still writes.
    """
    task = asyncio.create_task(asyncio.to_thread(work, *arguments, **keywords))
    try:
        return await asyncio.shield(task)
    finally:
        await asyncio.wait([task])
