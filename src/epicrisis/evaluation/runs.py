"""The run loop: many cases, one record a case, written as it happens; killed and restarted it pays for nothing twice.

A record is one JSON line. Its `recipe` holds all that decides the answers; a file made by another recipe is not gone on
with. Knows no metric.
"""

from __future__ import annotations

import asyncio
import json
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
)
from epicrisis.pipeline import Pipeline
from epicrisis.plain import to_json
from epicrisis.retrieval.retriever import QUESTION_CUT
from epicrisis.types import Answer, Question, Usage

from .cases import Case, Condition, case_key
from .lines import append_line, whole_lines

SCHEMA_VERSION = 2
"""Of a record; version 1 had no condition."""


class RecordFile:
    """An append-only JSONL file of answers. Opening it takes back a line that a kill left half-written.

    Without `texts` the passages of a ranking are kept without theirs: ids, ranks and scores. Raises InputError where
    the file holds something else, or records of another recipe.
    """

    def __init__(self, path: Path, recipe: Mapping[str, Any], *, texts: bool = True) -> None:
        self._path = path
        self._recipe = to_json(recipe)
        self._texts = texts
        self.long: set[str] = set()
        """Keys of the cases whose question was longer than the encoder's window, whatever was done about it."""
        self.usage = Usage()
        """Of all the records here, those of earlier tries of a case included."""
        self.states: dict[str, str] = {}
        """State by case key, of every case whose record is there; the last record of a case counts."""
        for number, line in whole_lines(path):
            self._take(number, line)

    def is_done(self, key: str) -> bool:
        """Whether the case needs no call any more. Failed ones are asked again."""
        return self.states.get(key, "failed") != "failed"

    def _take(self, number: int, line: bytes) -> None:
        try:
            record = json.loads(line)
            key, answer, recipe = record["key"], record["answer"], record["recipe"]
            state, usage, trace = answer["state"], Usage(**answer["usage"]), answer["trace"]
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
        self._note(key, state, usage, trace)

    def append(self, answer: Answer, condition: Condition | None = None) -> None:
        """Durable when it returns. Raises StorageError where the disk does not take it."""
        key = case_key(answer.question.key, condition or {})
        record: dict[str, Any] = {
            "schema_version": SCHEMA_VERSION,
            "key": key,
            "condition": to_json(condition or {}),
            "recipe": self._recipe,
            "answer": to_json(answer),
        }
        if not self._texts:
            _drop_texts(record["answer"]["trace"])
        append_line(self._path, record)
        self._note(key, answer.state, answer.usage, record["answer"]["trace"])

    def _note(self, key: str, state: str, usage: Usage, trace: Iterable[Mapping[str, Any]]) -> None:
        self.states[key] = state
        self.usage += usage
        if any(QUESTION_CUT in event["ranking"]["parameters"] for event in trace if event["event"] == "retrieved"):
            self.long.add(key)


def _drop_texts(trace: Iterable[Mapping[str, Any]]) -> None:
    for event in trace:
        if event["event"] == "retrieved":
            for hit in event["ranking"]["hits"]:
                del hit["passage"]["text"]


async def answer_cases(
    pipeline: Pipeline, cases: Iterable[Case], records: RecordFile, at_once: int = 1
) -> AsyncGenerator[tuple[Case, Answer | None], None]:
    """Each case with its answer, recorded before it is yielded; `None` where its record was there already.

    `at_once` cases are worked on together; they are yielded as they end. Raises RunStopped where nothing but failures
    comes back, and BudgetExceeded when the budget is used up and the cases in flight have ended.
    """
    waiting, failures = iter(cases), _Failures()
    working: dict[asyncio.Task[Answer], Case] = {}
    ended: BudgetExceeded | None = None
    try:
        while True:
            while len(working) < at_once and ended is None and (case := next(waiting, None)) is not None:
                if records.is_done(case.key):
                    yield case, None
                else:
                    working[asyncio.create_task(pipeline.answer(case.question, treatment=case.treatment))] = case
            if not working:
                break
            done, _ = await asyncio.wait(working, return_when=asyncio.FIRST_COMPLETED)
            # A set has no order; the records of two runs alike shall have one.
            for task in [task for task in working if task in done]:
                case = working.pop(task)
                try:
                    answer = task.result()
                except BudgetExceeded as error:
                    ended = ended or error
                    continue
                records.append(answer, case.condition)
                failures.count(answer)
                yield case, answer
            failures.check()
    finally:
        for task in working:
            task.cancel()
        if working:
            await asyncio.wait(working)
    if ended is not None:
        raise ended


async def answer_all(
    pipeline: Pipeline, questions: Iterable[Question], records: RecordFile, at_once: int = 1
) -> AsyncGenerator[tuple[Question, Answer | None], None]:
    """As `answer_cases`, of questions that are each asked once as the settings say."""
    answers = answer_cases(pipeline, (Case(question) for question in questions), records, at_once)
    try:
        async for case, answer in answers:
            yield case.question, answer
    finally:
        # Left half-way it must end what it works on now, not when it is collected.
        await answers.aclose()


class _Failures:
    """How many cases failed one after the other: an endpoint that is down must not be asked a million times."""

    IN_A_ROW = 20
    AT_THE_START = 3
    """Where not one case has been answered yet."""

    def __init__(self) -> None:
        self._in_a_row = 0
        self._limit = self.AT_THE_START
        self._last = ""

    def count(self, answer: Answer) -> None:
        """Notes how a case ended. A prompt or a reply that is too long is no fault of the endpoint's."""
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
