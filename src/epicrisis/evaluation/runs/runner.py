"""The run loop: many cases, one record a case, written as it happens; killed and restarted it pays for nothing twice.

A record is one JSON line. Its `recipe` holds all that decides the answers; a file made by another recipe is not gone on
with. Knows no metric.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

from filelock import FileLock

from epicrisis.answers import Answer, Failure, Usage
from epicrisis.errors import InputError
from epicrisis.evaluation.runs.case import Case, Condition, case_key
from epicrisis.evaluation.runs.concurrency import worked_off
from epicrisis.evaluation.runs.jsonl_store import Line, alone, append_line, read_lines, sort_lines
from epicrisis.evaluation.runs.outcomes import key_of
from epicrisis.evaluation.runs.recipe_differences import changed
from epicrisis.pipeline import Pipeline
from epicrisis.retrieval.retriever import QUESTION_CUT
from epicrisis.serialization import to_json
from epicrisis.types import Question

SCHEMA_VERSION = 2
"""Of a record; version 1 had no condition."""


class RecordFile:
    """An append-only JSONL file of answers, this process's to add to while the object lives.

    Without `texts` the passages of a ranking are kept without theirs. `lock`: that of the folder it lies in, where the
    caller holds one. Raises InputError where the file holds something else, records of another recipe, or where another
    process is at work on it.
    """

    def __init__(
        self, path: Path, recipe: Mapping[str, Any], *, texts: bool = True, lock: FileLock | None = None
    ) -> None:
        self._path = path
        self._recipe = to_json(recipe)
        self._texts = texts
        self._lock = lock or alone(path)
        self.long: set[str] = set()
        """Keys of the cases whose question was longer than the encoder's window, whatever was done about it."""
        self.usage = Usage()
        """Of all the records here, those of earlier tries of a case included."""
        self.states: dict[str, str] = {}
        """State by case key, of every case whose record is there; the last record of a case counts."""
        for line in read_lines(path):
            self._take(line)

    def is_done(self, key: str) -> bool:
        """Whether the case needs no call any more. Failed ones are asked again."""
        return self.states.get(key, "failed") != "failed"

    def _take(self, line: Line) -> None:
        key = key_of(self._path, line)
        answer, recipe = line.value["answer"], line.value["recipe"]
        if recipe != self._recipe:
            raise InputError(
                f"{self._path} holds answers made with other settings ({changed(recipe, self._recipe)}): "
                "name another file with -o, or give the same settings"
            )
        self._note(key, answer["state"], Usage(**answer["usage"]), answer["trace"])

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

    def sort(self, keys: Sequence[str]) -> None:
        """Put the records in the order of these cases, every try of a case kept; those of other cases come last.

        Raises StorageError.
        """
        places = {key: place for place, key in enumerate(keys)}
        sort_lines(self._path, lambda line: places.get(str(line.value.get("key")), len(places)))

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
    known: deque[Case] = deque()

    def left() -> Iterator[Case]:
        for case in cases:
            if records.is_done(case.key):
                known.append(case)
            else:
                yield case

    async def answered(case: Case) -> tuple[Case, Answer]:
        return case, await pipeline.answer(case.question, treatment=case.treatment)

    def keep(ended: tuple[Case, Answer]) -> None:
        records.append(ended[1], ended[0].condition)

    def failure(ended: tuple[Case, Answer]) -> Failure | None:
        return ended[1].failure if ended[1].state == "failed" else None

    # Left half-way it must end what it works on now, not when it is collected.
    async with aclosing(worked_off(left(), answered, keep, failure, at_once)) as asked:
        async for ended in asked:
            while known:
                yield known.popleft(), None
            yield ended
    while known:
        yield known.popleft(), None


async def answer_all(
    pipeline: Pipeline, questions: Iterable[Question], records: RecordFile, at_once: int = 1
) -> AsyncGenerator[tuple[Question, Answer | None], None]:
    """As `answer_cases`, of questions that are each asked once as the settings say."""
    async with aclosing(answer_cases(pipeline, map(Case, questions), records, at_once)) as answers:
        async for case, answer in answers:
            yield case.question, answer
