"""What the tests of measuring share: runs about patients' records on disk, and judges whose grades are chosen."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from epicrisis.answering.structured_request import ModelClient
from epicrisis.core.answers import Answer, Citation, Failure, Retrieved
from epicrisis.core.prompts import unfence
from epicrisis.core.protocols import ChatRequest
from epicrisis.core.serialization import to_json
from epicrisis.core.types import AnswerState, Hit, Passage, Question, Ranking
from epicrisis.evaluation.grading.measurements import (
    Measurement,
    Measurer,
    MeasureStore,
    measure_answers,
    measures_folder,
    open_measure_store,
)
from epicrisis.evaluation.grading.measurers import rubric_measurer
from epicrisis.evaluation.grading.scored_answers import read_answers
from epicrisis.evaluation.runs.run_folder import RECORDS
from epicrisis.pipeline.recording.case import Case
from epicrisis.testing.chat import Script, ScriptedModel

WRITER, JUDGE = "writer-model", "judge-model"
GOLD = "The dose was 40 mg of furosemide."


async def measure_run(
    run: Path, measurers: Sequence[Measurer], on_measurement: Callable[[Measurement], None] = lambda _: None
) -> dict[str, MeasureStore]:
    """Measure every answer of a run without a measurement. Return the stores by measurer.

    `run` is a folder or its records. `on_measurement` receives each measurement once it is stored. Raises InputError,
    and as `run_concurrently` does.
    """
    stores = {}
    for measurer in measurers:
        store = stores[measurer.name] = open_measure_store(measures_folder(run), measurer)
        async for measurement in measure_answers(read_answers(run), measurer, store):
            on_measurement(measurement)
    return stores


def question(i: int = 0, gold: str | None = GOLD, **more: Any) -> Question:
    return Question(f"Which dose was given on day {i}?", id=str(i), gold=gold, **more)


def record(
    asked: Question,
    text: str = "40 mg.",
    state: AnswerState = "answered",
    *,
    condition: Mapping[str, Any] | None = None,
    failure: str | None = None,
    given: Sequence[Passage] = (),
    citations: Sequence[Citation] = (),
    texts: bool = False,
    choice: str | None = None,
    searched: bool = False,
) -> dict[str, Any]:
    """A line of a run's records, as far as measuring reads it."""
    case = Case(asked, condition or {})
    hits = tuple(Hit(passage, 1.0, rank) for rank, passage in enumerate(given))
    answer = Answer(
        question=asked,
        strategy="rag",
        state=state,
        text=text,
        choice=choice,
        citations=tuple(citations),
        failure=None if failure is None else Failure(failure, "so it was"),
        trace=(Retrieved(Ranking(hits, "bm25")),) if given or searched else (),
    )
    line = {"key": case.key, "condition": case.condition, "recipe": {"models": {"writer": {"name": WRITER}}}}
    told = to_json(answer)
    for event in told["trace"] if not texts else ():
        for hit in event["ranking"]["hits"]:
            del hit["passage"]["text"]
    return {**line, "answer": told}


def folder_of(path: Path, lines: Sequence[Mapping[str, Any]]) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    (path / RECORDS).write_text("".join(json.dumps(each) + "\n" for each in lines), encoding="utf-8")
    return path


def note(patient: str | None, text: str, number: int = 1, start: int = 0) -> Passage:
    """The passage `note:PATIENT-NUMBER#0`."""
    document = f"note:{patient}-{number}"
    return Passage(
        id=f"{document}#0",
        document_id=document,
        ordinal=0,
        start=start,
        end=start + len(text),
        text=text,
        title="Discharge",
        source="notes",
        date="2150",
        patient=patient,
    )


def citation(passage: Passage, words: str, verified: bool = True) -> Citation:
    start = passage.start + (passage.text.index(words) if verified else 0)
    return Citation(
        number=1,
        passage_id=passage.id,
        document_id=passage.document_id,
        title=passage.title,
        source=passage.source,
        date=passage.date,
        start=start,
        end=start + len(words),
        quotation=words,
        verified=verified,
    )


def graded(correctness: object = 5, completeness: object = 5, faithfulness: object = 5) -> str:
    grades = {"correctness": correctness, "completeness": completeness, "faithfulness": faithfulness}
    return json.dumps({"reason": "So it is.", **grades})


def shown(request: ChatRequest) -> list[str]:
    """What the judge is shown: question, reference, answer."""
    return unfence(request.messages[-1].content)


def asker_of(script: Script, name: str = JUDGE, **more: Any) -> ModelClient:
    return ModelClient(ScriptedModel(script, **more), model_recipe={"name": name})


def requests_of(asker: ModelClient) -> list[ChatRequest]:
    model = asker.model
    if not isinstance(model, ScriptedModel):
        raise TypeError("the judge is scripted")
    return model.requests


def measured_by(run: Path, *measurers: Measurer) -> dict[str, MeasureStore]:
    return asyncio.run(measure_run(run, measurers))


def judged_by(run: Path, script: Callable[[ChatRequest], str]) -> ModelClient:
    """The run, judged; the judge with its requests."""
    asker = asker_of(script)
    measured_by(run, rubric_measurer(asker))
    return asker
