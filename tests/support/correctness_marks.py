"""What the tests of marking share: runs of open questions on disk, and judges whose verdicts are chosen."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from epicrisis.answering.structured_request import ModelClient
from epicrisis.core.answers import Failure
from epicrisis.core.errors import EpicrisisError
from epicrisis.core.prompts import unfence
from epicrisis.core.protocols import ChatRequest
from epicrisis.core.types import AnswerState, Question
from epicrisis.evaluation.grading.correctness import (
    CORRECTNESS_FOLDER,
    CorrectnessGrade,
    CorrectnessGrades,
    CorrectnessVerdict,
    JudgeGrades,
    OpenCase,
    correctness_grader,
    grade_cases,
    open_correctness_store,
    read_open_cases,
)
from epicrisis.evaluation.grading.grader import GradeStore
from epicrisis.evaluation.runs.run_folder import RECORDS
from epicrisis.testing.chat import Script, ScriptedModel
from tests.support.grading import questions, record, said

TOLD = {"name": "judge-model", "temperature": 0.0}
RIGHT, WRONG, VAGUE = "It lowers the risk.", "It raises the risk.", "It may do this or that."
OF: Mapping[str, CorrectnessVerdict] = {RIGHT: "correct", WRONG: "incorrect", VAGUE: "cannot be said"}


def run_of(path: Path, texts: Sequence[str], arms: Sequence[str] = ("rag",)) -> Path:
    """A run's folder: each question by each arm; a text that names a state is a case that ended so."""
    lines = [
        record(question, arm, text, state_of(text))
        for question, text in zip(questions(len(texts)), texts, strict=True)
        for arm in arms
    ]
    return folder_of(path, lines)


def folder_of(path: Path, lines: Sequence[Mapping[str, Any]]) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    (path / RECORDS).write_text("".join(json.dumps(each) + "\n" for each in lines), encoding="utf-8")
    return path


def state_of(text: str) -> AnswerState:
    return text if text in ("abstained", "unparsed", "failed") else "answered"  # type: ignore[return-value]


def with_options(id_: str) -> dict[str, Any]:
    return record(
        Question("Which one?", options={"A": "this", "B": "that"}, form="choice", id=id_, gold="A"), "rag", "A."
    )


def texts_of(request: ChatRequest) -> list[str]:
    """What the judge is shown: question, reference, answer."""
    return unfence(request.messages[-1].content)


def fair(request: ChatRequest) -> str:
    """The verdict that the answer is made to earn, with a reason that names its question."""
    question, _, answer = texts_of(request)
    return said(OF[answer], question)


def marked_by(
    run: Path, script: Script = fair, name: str = "judge-model", at_once: int = 1
) -> tuple[ScriptedModel, GradeStore[CorrectnessGrade]]:
    """One judge's file, written into the run's folder."""
    model = ScriptedModel(script)

    async def all_of_them() -> GradeStore[CorrectnessGrade]:
        cases = read_open_cases(run)
        asker = ModelClient(model, seed=3, model_recipe={**TOLD, "name": name}, concurrency=at_once)
        grader = correctness_grader(asker)
        file = open_correctness_store(run / CORRECTNESS_FOLDER / f"{name}.jsonl", grader, cases)
        async for _ in grade_cases(cases, grader, file):
            pass
        return file

    return model, asyncio.run(all_of_them())


def failing(numbers: Callable[[int], bool], error: type[EpicrisisError]) -> Script:
    """As `fair`, but that calls of these numbers (from 0) fail."""
    count = iter(range(1000))

    def script(request: ChatRequest) -> str:
        if numbers(next(count)):
            raise error("spent, or too long, or nothing there")
        return fair(request)

    return script


def judge_of(cases: Sequence[OpenCase], letters: str, model: str = "judge") -> JudgeGrades:
    """A judge's marks of the cases in their order: c(orrect), i(ncorrect), `?` (cannot be said), u(nparsed), f(ailed);
    a dot where there is none."""
    verdicts: dict[str, CorrectnessVerdict] = {"c": "correct", "i": "incorrect", "?": "cannot be said"}
    marks = {
        case.key: CorrectnessGrade(key=case.key, digest=case.digest, state="judged", verdict=verdicts[letter])
        if letter in verdicts
        else CorrectnessGrade(
            key=case.key, digest=case.digest, state="failed", failure=Failure("EndpointTimeout", "too late")
        )
        if letter == "f"
        else CorrectnessGrade(key=case.key, digest=case.digest, state="unparsed")
        for case, letter in zip(cases, letters, strict=True)
        if letter != "."
    }
    return JudgeGrades(model, marks)


def marking(run: Path, **letters: str) -> CorrectnessGrades:
    """The run marked by these judges, by name."""
    cases = read_open_cases(run)
    return CorrectnessGrades(cases, {name: judge_of(cases, each, name) for name, each in letters.items()})
