"""Processes that work on a run until they kill themselves. Run as a module.

It imports once; each line of input (a JSON list) is then a process of its own, its exit code one line of output. The
list: the run's folder, the file of replies, the file of calls made, and after how many calls to die (-1: never).
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

from epicrisis.core.protocols import ChatReply, ChatRequest, DeltaCallback
from epicrisis.evaluation.experiments import positions
from epicrisis.evaluation.experiments.arms import Study
from epicrisis.evaluation.experiments.study_protocols import PROTOCOLS
from epicrisis.models.chat.cache import ReplyCache
from epicrisis.models.chat.loading import add_layers
from epicrisis.settings.settings import ModelSettings
from epicrisis.testing.chat import ScriptedModel
from tests.support.experiments import answer, build_cases, evidence, questions, reader
from tests.support.position_biased_reader import u_curve

QUESTIONS = 6
CASES = build_cases(positions, questions(QUESTIONS), Study(evidence(), PROTOCOLS["corrected"]), ks=(8,))


class Mortal(ScriptedModel):
    """The reader; writes down each call and dies at one of them."""

    def __init__(self, calls: Path, left: int) -> None:
        super().__init__(lambda _: "")
        self._inner = reader(questions(QUESTIONS), u_curve())
        self._calls, self._left = calls, left

    async def complete(self, request: ChatRequest, on_delta: DeltaCallback | None = None) -> ChatReply:
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self._left -= 1
        with self._calls.open("a", encoding="utf-8") as file:
            file.write(json.dumps([request.messages[-1].content, request.seed]) + "\n")
        await asyncio.sleep(0.001)
        return await self._inner.complete(request, on_delta)


def main(folder: str, replies: str, calls: str, left: int) -> None:
    cache = ReplyCache(Path(replies))
    model = add_layers(Mortal(Path(calls), left), ModelSettings(), cache=cache)
    asyncio.run(answer(CASES, model, Path(folder), at_once=3))
    cache.close()


if __name__ == "__main__":
    for _line in sys.stdin:
        _child = os.fork()
        if not _child:
            main(*json.loads(_line))
            os._exit(0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(os.waitpid(_child, 0)[1])}\n")
        sys.stdout.flush()
