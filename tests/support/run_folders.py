"""Runs on disk whose outcomes are chosen, for what reads runs back."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from epicrisis.core.answers import Answer
from epicrisis.core.types import AnswerState, Question
from epicrisis.evaluation.runs.run_folder import Run, RunPlan
from epicrisis.pipeline.recording.answer_record import RunRecord
from epicrisis.pipeline.recording.case import Case, Condition
from epicrisis.pipeline.recording.runner import RecordStore

QUESTIONS = tuple(
    Question(
        f"Does it help, {i}?",
        options={"A": "yes", "B": "no", "C": "maybe"},
        form="choice",
        id=str(i),
        gold="ABC"[i % 3],
    )
    for i in range(40)
)

Outcome = bool | AnswerState
"""Whether the answer is right, or the state of a case that has none."""


def recipe(model: str = "qwen", library: str | None = "d25a492bb6a3", **settings: Any) -> dict[str, Any]:
    """As `Pipeline.recipe` gives it."""
    made: dict[str, Any] = {
        "epicrisis": "0.1.0",
        "prompts": "a05ab4950ae1",
        "settings": {"strategy": "rag", "k": 16, "by": "dense", "preflight": {"enabled": False}, "seed": 0, **settings},
        "models": {role: {"name": model, "temperature": 0.0} for role in ("writer", "map", "reduce")},
    }
    return made if library is None else {**made, "library": {"id": library, "passages": 1000, "fused": []}}


def answer(question: Question, ended: Outcome) -> Answer:
    """Right, wrong, or no answer."""
    if isinstance(ended, str):
        return Answer(question=question, strategy="rag", state=ended)
    choice = question.gold if ended else next(letter for letter in question.options if letter != question.gold)
    return Answer(question=question, strategy="rag", state="answered", text="So it says.", choice=choice)


def folder(
    path: Path,
    ended: Callable[[int, Condition], Outcome],
    *,
    made_with: Mapping[str, Any] | None = None,
    questions: Sequence[Question] = QUESTIONS,
    conditions: Sequence[Condition] = ({},),
    name: str = "evaluate",
    arguments: Mapping[str, Any] | None = None,
    sha256: str = "5" * 64,
    unasked: int = 0,
) -> Path:
    """A run's folder; `ended` says how a question's case ends, by its place and the condition."""
    plan = RunPlan(
        name=name,
        arguments=arguments or {"guard": "none"},
        recipe=made_with or recipe(),
        dataset={"name": "own", "sha256": sha256, "n": len(questions), "licence": ""},
        sample={"how": "all"},
        seed=0,
    )
    cases = [(i, Case(question, condition)) for i, question in enumerate(questions) for condition in conditions]
    with Run.open(path, plan, [case for _, case in cases]) as run:
        for i, case in cases[: len(cases) - unasked]:
            run.records.append_answer(answer(case.question, ended(i, case.condition)), case.condition)
    return path


def answers(
    path: Path,
    ended: Callable[[int], Outcome],
    *,
    made_with: Mapping[str, Any] | None = None,
    questions: Sequence[Question] = QUESTIONS,
) -> Path:
    """A file as `epicrisis ask --file` writes it."""
    file = RecordStore(path, made_with or recipe())
    for i, question in enumerate(questions):
        file.append_answer(answer(question, ended(i)))
    return path


def remove_volatile(record: RunRecord | dict[str, Any]) -> Any:
    """Return a record as JSON data without all that may differ between two runs of the same cases and seed: times,
    usage, notices about single calls, and the order of events, as concurrent calls end in any order."""
    return _remove_volatile(record.to_json() if isinstance(record, RunRecord) else record)


def _remove_volatile(value: Any) -> Any:
    if isinstance(value, list):
        return [_remove_volatile(item) for item in value if not _is_volatile(item)]
    if not isinstance(value, dict):
        return value
    stable = {name: _remove_volatile(item) for name, item in value.items() if name not in ("at", "usage")}
    if isinstance(trace := stable.get("trace"), list):
        stable["trace"] = sorted(trace, key=lambda event: json.dumps(event, sort_keys=True))
    return stable


def _is_volatile(item: Any) -> bool:
    notices = ("retried", "restarted", "cache")
    return isinstance(item, dict) and item.get("event") == "notice" and item.get("kind") in notices
