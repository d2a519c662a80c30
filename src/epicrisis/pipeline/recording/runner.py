"""The run loop: many cases, a record for each, written when the case ends.

A run that was killed and started again answers only the cases without a record. A record holds the recipe that decides
its answer, and a file with records of another recipe is refused.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

from filelock import FileLock

from epicrisis.answering.strategies.zero_shot import ZERO_SHOT, check_option_logprobs
from epicrisis.core.answers import Answer, Failure, Retrieved, Usage
from epicrisis.core.serialization import to_json
from epicrisis.core.types import Question
from epicrisis.pipeline.pipeline import Pipeline
from epicrisis.pipeline.recording.answer_record import CONTENT, SCHEMA_VERSION, RunRecord
from epicrisis.pipeline.recording.case import Case, Condition, case_key
from epicrisis.retrieval.retriever import QUESTION_CUT
from epicrisis.system.concurrency import run_concurrently
from epicrisis.system.json_lines import append_lines, sort_lines
from epicrisis.system.jsonl_store import JsonlStore


class RecordStore(JsonlStore[RunRecord]):
    """The answers of a run. Keeps their states and totals in memory, not the records."""

    def __init__(
        self, path: Path, recipe: Mapping[str, Any], *, texts: bool = True, lock: FileLock | None = None
    ) -> None:
        """Open the file as `JsonlStore` does. Without `texts`, passages are stored without their text."""
        self.states: dict[str, str] = {}
        """The state of each case, by its key."""
        self.usage = Usage()
        """The sum over all records, those of earlier attempts included."""
        self.long_questions: set[str] = set()
        """Keys of the cases whose question was longer than the encoder's window."""
        self._texts = texts
        super().__init__(path, RunRecord, recipe, content=CONTENT, lock=lock)

    def is_done(self, key: str) -> bool:
        """Return whether the case has an answer. Failed cases are answered again."""
        return self.states.get(key, "failed") != "failed"

    def remember(self, line: RunRecord) -> None:
        """Add the record to states and totals."""
        answer = line.answer
        self.states[line.key] = answer.model_state
        self.usage += answer.usage
        for event in answer.trace:
            if isinstance(event, Retrieved) and QUESTION_CUT in event.ranking.parameters:
                self.long_questions.add(line.key)

    def append_answer(self, answer: Answer, condition: Condition | None = None) -> None:
        """Append the record of an answer. It is on the disk when this returns. Raises StorageError."""
        self.append_answers([(answer, condition)])

    def append_answers(self, answers: Sequence[tuple[Answer, Condition | None]]) -> None:
        """Append the records of answers with their conditions. All are on the disk when this returns.

        Raises StorageError. The file then holds none of them.
        """
        records = [build_record(answer, self.recipe, condition) for answer, condition in answers]
        append_lines(self.path, (self._to_line(record) for record in records))
        for record in records:
            self.remember(record)

    def _to_line(self, record: RunRecord) -> dict[str, Any]:
        value = record.to_json()
        if not self._texts:
            for event in value["answer"]["trace"]:
                for hit in event["ranking"]["hits"] if event["event"] == "retrieved" else ():
                    del hit["passage"]["text"]
        return value

    def sort(self, keys: Sequence[str]) -> None:
        """Sort the records by these keys of cases; records of other cases come last. Raises StorageError."""
        places = dict(zip(keys, range(len(keys)), strict=True))
        sort_lines(self.path, lambda line: places.get(str(line.value.get("key")), len(places)))


def build_record(answer: Answer, recipe: Mapping[str, Any], condition: Condition | None = None) -> RunRecord:
    """Return the record of an answer made by this recipe."""
    condition = to_json(condition or {})
    key = case_key(answer.question.key, condition)
    return RunRecord(schema_version=SCHEMA_VERSION, key=key, condition=condition, recipe=dict(recipe), answer=answer)


async def check_strategies(pipeline: Pipeline, strategies: Iterable[str]) -> None:
    """Raise InputError for a strategy that the chat model cannot answer with: one short call before all others.

    When replies are replayed, nothing is asked.
    """
    if ZERO_SHOT in strategies and pipeline.settings.cache.mode != "replay":
        await check_option_logprobs(pipeline.models["writer"])


async def answer_cases(
    pipeline: Pipeline, cases: Iterable[Case], records: RecordStore, concurrency: int = 1
) -> AsyncGenerator[tuple[Case, Answer | None], None]:
    """Yield each case with its answer, recorded before it is yielded, or with None if it had a record already.

    Answers `concurrency` cases at once and yields them as they end. Raises RunStopped if only failures come back, and
    BudgetExceeded when the budget is used up and the cases in flight have ended.
    """
    recorded: deque[Case] = deque()

    def pending() -> Iterator[Case]:
        for case in cases:
            if records.is_done(case.key):
                recorded.append(case)
            else:
                yield case

    async def answer_case(case: Case) -> tuple[Case, Answer]:
        return case, await pipeline.answer(case.question, overrides=replace(case.treatment, streams=False))

    def store(results: Sequence[tuple[Case, Answer]]) -> None:
        records.append_answers([(answer, case.condition) for case, answer in results])

    def failure_of(result: tuple[Case, Answer]) -> Failure | None:
        answer = result[1]
        return answer.failure if answer.state == "failed" else None

    # A caller that leaves the loop early must stop the cases in flight now, not when the generator is collected.
    async with aclosing(run_concurrently(pending(), answer_case, store, failure_of, concurrency)) as results:
        async for result in results:
            while recorded:
                yield recorded.popleft(), None
            yield result
    while recorded:
        yield recorded.popleft(), None


async def answer_questions(
    pipeline: Pipeline, questions: Iterable[Question], records: RecordStore, concurrency: int = 1
) -> AsyncGenerator[tuple[Question, Answer | None], None]:
    """Yield each question with its answer, as `answer_cases` does for cases without a condition."""
    async with aclosing(answer_cases(pipeline, map(Case, questions), records, concurrency)) as answers:
        async for case, answer in answers:
            yield case.question, answer
