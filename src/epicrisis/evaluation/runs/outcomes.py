"""Records read back: the last of each case, and what of it may differ between two runs alike.

Knows the form of a record (`loop.RecordFile` writes it) and no statistics.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, get_args

from epicrisis.answers import Answer
from epicrisis.errors import InputError
from epicrisis.evaluation.runs.case import Case, Condition, canonical
from epicrisis.evaluation.runs.jsonl_store import Line, read_lines
from epicrisis.evaluation.runs.record import check_record
from epicrisis.question_options import chance_accuracy, is_same_option
from epicrisis.types import AnswerState

STATES: tuple[AnswerState, ...] = get_args(AnswerState)

RunRecord: TypeAlias = Mapping[str, Any]
"""One line of a file of records, as JSON data."""

VOLATILE: Mapping[str, str] = {
    "at": "when a call ended",
    "usage": "what it took: seconds, and calls that were tried again, came out of the cache, or found their beginning "
    "computed by the endpoint before",
}
"""Fields of a record, wherever in it they stand, that may differ between two runs of the same cases and seed."""

VOLATILE_NOTICES = frozenset({"retried", "restarted", "cache"})
"""Notices, by their kind, that tell of a call's fortunes."""


def read_records(path: Path) -> Iterator[RunRecord]:
    """The last record of each case, in the order of the cases' first records, one at a time in memory.

    What a kill left half-written is left aside. Raises InputError for a file that holds anything else, or that cannot
    be read.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file; name the folder or the file of a run")
    starts: dict[str, int] = {}
    for line in read_lines(path):
        starts[key_of(path, line)] = line.start
    with path.open("rb") as file:
        for start in starts.values():
            file.seek(start)
            yield json.loads(file.readline())


def key_of(path: Path, line: Line) -> str:
    """The key of the record's case. Raises InputError where the line is no record, or lacks what is read of one."""
    try:
        check_record(line.value)
    except ValueError:
        raise InputError(
            f"{path}, line {line.number}, is not a record of answers: mend it, or name another file"
        ) from None
    return str(line.value["key"])


def without_volatile(record: Any) -> Any:
    """The record, or any part of it, without the fields and notices named above.

    The events of a trace stand in the order of their own text: calls at once end in any order.
    """
    if isinstance(record, Mapping):
        kept = {name: without_volatile(value) for name, value in record.items() if name not in VOLATILE}
        if isinstance(trace := kept.get("trace"), list):
            kept["trace"] = sorted(trace, key=lambda event: json.dumps(event, sort_keys=True))
        return kept
    if isinstance(record, list):
        return [without_volatile(item) for item in record if not _is_volatile(item)]
    return record


def _is_volatile(item: Any) -> bool:
    return isinstance(item, Mapping) and item.get("event") == "notice" and item.get("kind") in VOLATILE_NOTICES


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one case ended, and no more: what the tables are made from."""

    question: str
    """`Question.key`: the cases of one question are one cluster."""
    condition: Condition
    state: AnswerState
    right: bool | None = None
    """Whether the letter is the gold one, or that of an option of the same text; `None` unless the state is
    `answered`."""
    chance: float | None = None
    """Of guessing right among the question's options; `None` without options."""
    failed_parts: int = 0
    """Parts that BriefContext could not read and left out (errata C4)."""


def outcome_of(case: Case, answer: Answer) -> Outcome:
    """The outcome of a case that has just ended, for a run's progress."""
    question, answered = case.question, answer.state == "answered"
    return Outcome(
        question=question.key,
        condition=case.condition,
        state=answer.state,
        right=is_same_option(question.options, answer.choice, question.gold)
        if answered and question.options and question.gold is not None
        else None,
        chance=chance_accuracy(question.options, question.gold),
        failed_parts=sum(partial.state == "failed" for partial in answer.partials),
    )


def outcomes(records: Iterable[RunRecord]) -> tuple[Outcome, ...]:
    """Those of questions with options and a gold letter. Raises InputError where one has neither."""
    return tuple(map(outcome_of_record, map(_checked, records)))


def outcome_of_record(record: RunRecord) -> Outcome:
    """How the case of a record ended; without options or a gold letter it is neither right nor wrong."""
    answer, condition = record["answer"], record.get("condition", {})
    question, state, key = answer["question"], answer["state"], record["key"]
    has_right = state == "answered" and question["options"] and question["gold"] is not None
    return Outcome(
        question=key.removesuffix(f" {canonical(condition)}") if condition else key,
        condition=condition,
        state=state,
        right=is_same_option(question["options"], answer["choice"], question["gold"]) if has_right else None,
        chance=chance_accuracy(question["options"], question["gold"]),
        failed_parts=sum(partial["state"] == "failed" for partial in answer["partials"]),
    )


def _checked(record: RunRecord) -> RunRecord:
    question = record["answer"]["question"]
    if question["gold"] is None or not question["options"]:
        raise InputError(
            f"question {question['id']!r} has no options or no gold letter, so nobody can say whether its answer is "
            "right: leave it out"
        )
    return record
