"""The run loop: many questions, one record a question, written as it happens; killed and restarted it pays for nothing
twice.

A record is one JSON line. Its `recipe` holds all that decides the answers; a file made by another recipe is not gone on
with. Knows no metric.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Iterable, Mapping
from pathlib import Path
from typing import Any

from epicrisis.errors import (
    BudgetExceeded,
    ContextOverflow,
    InputError,
    NotCached,
    ReplyTruncated,
    RunStopped,
    StorageError,
)
from epicrisis.pipeline import Pipeline
from epicrisis.plain import to_json
from epicrisis.retrieval.retriever import QUESTION_CUT
from epicrisis.types import Answer, Question, Usage

SCHEMA_VERSION = 1


class RecordFile:
    """An append-only JSONL file of answers. Opening it takes back a line that a kill left half-written.

    Raises InputError where the file holds something else, or records of another recipe.
    """

    def __init__(self, path: Path, recipe: Mapping[str, Any]) -> None:
        self._path = path
        self._recipe = to_json(recipe)
        self.long: set[str] = set()
        """Keys of the questions that were longer than the encoder's window, whatever was done about it."""
        self.usage = Usage()
        """Of all the records here, those of earlier tries of a question included."""
        self.states = self._read()
        """State by question key, of every question whose record is there; the last record of a question counts."""

    def is_done(self, key: str) -> bool:
        """Whether the question needs no call any more. Failed ones are asked again."""
        return self.states.get(key, "failed") != "failed"

    def _read(self) -> dict[str, str]:
        if not self._path.exists():
            return {}
        whole = self._path.read_bytes()
        kept = whole[: whole.rfind(b"\n") + 1]
        states: dict[str, str] = {}
        for number, line in enumerate(kept.splitlines(), 1):
            try:
                record = json.loads(line)
                key, state, recipe = record["key"], record["answer"]["state"], record["recipe"]
                usage = Usage(**record["answer"]["usage"])
            except (ValueError, KeyError, TypeError):
                raise InputError(
                    f"{self._path}, line {number}, is not a record of answers: name another file with -o"
                ) from None
            if recipe != self._recipe:
                changed = sorted(k for k in {*recipe, *self._recipe} if recipe.get(k) != self._recipe.get(k))
                raise InputError(
                    f"{self._path} holds answers made with other settings ({', '.join(changed)}): "
                    "name another file with -o, or give the same settings"
                )
            states[key] = state
            self._note(key, usage, record["answer"]["trace"])
        if len(kept) < len(whole):
            os.truncate(self._path, len(kept))
        return states

    def append(self, answer: Answer) -> None:
        """Durable when it returns. Raises StorageError where the disk does not take it."""
        record: dict[str, Any] = {
            "schema_version": SCHEMA_VERSION,
            "key": answer.question.key,
            "recipe": self._recipe,
            "answer": to_json(answer),
        }
        line = json.dumps(record, ensure_ascii=False) + "\n"
        try:
            with self._path.open("ab") as file:
                file.write(line.encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise StorageError(
                f"{self._path} cannot be written ({error.strerror}): free some space and run the same command again"
            ) from error
        self.states[answer.question.key] = answer.state
        self._note(answer.question.key, answer.usage, record["answer"]["trace"])

    def _note(self, key: str, usage: Usage, trace: Iterable[Mapping[str, Any]]) -> None:
        self.usage += usage
        if any(QUESTION_CUT in event["ranking"]["parameters"] for event in trace if event["event"] == "retrieved"):
            self.long.add(key)


async def answer_all(
    pipeline: Pipeline, questions: Iterable[Question], records: RecordFile, at_once: int = 1
) -> AsyncGenerator[tuple[Question, Answer | None], None]:
    """Each question with its answer, recorded before it is yielded; `None` where its record was there already.

    `at_once` questions are worked on together; they are yielded as they end. Raises RunStopped where nothing but
    failures comes back, and BudgetExceeded when the budget is used up and the questions in flight have ended.
    """
    waiting, failures = iter(questions), _Failures()
    working: dict[asyncio.Task[Answer], Question] = {}
    ended: BudgetExceeded | None = None
    try:
        while True:
            while len(working) < at_once and ended is None and (question := next(waiting, None)) is not None:
                if records.is_done(question.key):
                    yield question, None
                else:
                    working[asyncio.create_task(pipeline.answer(question))] = question
            if not working:
                break
            done, _ = await asyncio.wait(working, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                question = working.pop(task)
                try:
                    answer = task.result()
                except BudgetExceeded as error:
                    ended = ended or error
                    continue
                records.append(answer)
                failures.count(answer)
                yield question, answer
            failures.check()
    finally:
        for task in working:
            task.cancel()
        if working:
            await asyncio.wait(working)
    if ended is not None:
        raise ended


class _Failures:
    """How many questions failed one after the other: an endpoint that is down must not be asked a million times."""

    IN_A_ROW = 20
    AT_THE_START = 3
    """Where not one question has been answered yet."""

    def __init__(self) -> None:
        self._in_a_row = 0
        self._limit = self.AT_THE_START
        self._last = ""

    def count(self, answer: Answer) -> None:
        """Notes how a question ended. A prompt or a reply that is too long is no fault of the endpoint's."""
        failure = answer.failure if answer.state == "failed" else None
        if failure is None:
            self._in_a_row, self._limit = 0, self.IN_A_ROW
        elif failure.kind not in (ContextOverflow.__name__, ReplyTruncated.__name__, NotCached.__name__):
            self._in_a_row, self._last = self._in_a_row + 1, failure.message

    def check(self) -> None:
        """Raises RunStopped when it is enough."""
        if self._in_a_row >= self._limit:
            raise RunStopped(
                f"{self._in_a_row} questions in a row failed, so the run was stopped ({self._last}); what is answered "
                "is kept, and the same command goes on from there"
            )
