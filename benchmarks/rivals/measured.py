"""What the scripts of this folder share: a job comes in, figures go out. The standard library alone, so that it runs in
any rival's environment; knows no client and no server.

The benchmark writes the job as one line of JSON to the script's standard input. The script warms up on one question,
prints a line, waits for a line and answers the others; then it prints its figures.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, TypeAlias


@dataclass(frozen=True)
class Job:
    """`questions` about `documents`, `partition` of them to a map call; of the calls to the endpoint at `url` at most
    `limit` are to be in flight."""

    url: str
    model: str
    documents: list[str]
    questions: list[str]
    partition: int
    limit: int

    @property
    def parts(self) -> list[str]:
        """What each map call is to read, for clients that read one text a call."""
        starts = range(0, len(self.documents), self.partition)
        return ["\n\n".join(self.documents[start : start + self.partition]) for start in starts]


Answer: TypeAlias = Callable[[Sequence[str]], Awaitable[tuple[int, list[str]]]]
"""Answers the questions; returns the tokens that the client counted for them, and the answers' texts."""

Prepared: TypeAlias = Callable[[Job], AbstractAsyncContextManager[Answer]]


def cpu_seconds() -> float:
    """Of this process, user and system, all threads."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def run(packages: Sequence[str], setting: str, prepared: Prepared) -> None:
    """Does the job of standard input with the answerer that `prepared` makes for it, and closes. `setting`: how the
    limit was asked for."""
    # Libraries print as they like; the figures have a descriptor of their own.
    figures = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    job = Job(**json.loads(sys.stdin.readline()))
    told = asyncio.run(_measured(job, prepared, lambda: print(file=figures)))
    versions = [f"{package} {version(package)}" for package in packages]
    print(json.dumps(told | {"versions": ", ".join(versions), "setting": setting}), file=figures)


async def _measured(job: Job, prepared: Prepared, warm: Callable[[], None]) -> dict[str, Any]:
    async with prepared(job) as answer:
        await answer(["What is asked to warm up?"])
        warm()
        await asyncio.to_thread(sys.stdin.readline)
        cpu, began = cpu_seconds(), time.perf_counter()
        tokens, texts = await answer(job.questions)
        seconds, cpu = time.perf_counter() - began, cpu_seconds() - cpu
    return {"seconds": seconds, "cpu_seconds": cpu, "tokens": tokens, "answered": sum(1 for text in texts if text)}
