"""Questions narrowed by time, and their repetition with the complete record after an abstention."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from epicrisis.answering.strategies import rag
from epicrisis.answering.strategy_context import Context
from epicrisis.cli.event_display import EventDisplay
from epicrisis.core.answers import Answer, ModelCalled, Notice, Retrieved
from epicrisis.core.errors import EndpointUnreachable
from epicrisis.core.prompts import unfence
from epicrisis.core.protocols import ChatRequest
from epicrisis.core.serialization import to_json
from epicrisis.core.types import Document, Question
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.write.ingest import add_documents, open_or_create
from epicrisis.pipeline.components import LibrarySearch
from epicrisis.pipeline.overrides import NO_OVERRIDES, RunOverrides
from epicrisis.pipeline.pipeline import Pipeline
from epicrisis.pipeline.plan.strategy_plans import plan_questions
from epicrisis.pipeline.recording.answer_record import read_records
from epicrisis.pipeline.recording.runner import RecordStore
from epicrisis.retrieval.rankings import rank_in_order
from epicrisis.retrieval.retriever import Retriever
from epicrisis.settings.settings import ROLES, Settings
from epicrisis.testing.chat import ScriptedModel
from epicrisis.testing.hashing_encoder import HashingEncoder
from tests.support.replies import fill
from tests.support.strategies import NOT_FOUND

ENCODER = HashingEncoder(64)
QUESTION = Question("What was the diagnosis of the second admission?", id="q", patient="p1")
NARROWED_NOTICE = "2 of 3 notes are left out: by their times and types they seem to be about another time"
REPEATED_NOTICE = "the remaining notes do not answer the question: asking again with the whole record"


def note(name: str, date: str, text: str, stay: str) -> Document:
    kind = {"note_type": "discharge summary", "encounter": stay}
    return Document(f"note:{name}", text, source="notes", date=date, patient="p1", metadata=kind)


NOTES = [
    note("first", "2150-05-01", "Chest pain. Diagnosis: heartburn.", "1"),
    note("second", "2151-05-01", "Chest pain on stairs. Diagnosis: reflux.", "2"),
    note("third", "2152-05-01", "Chest pain came back. Diagnosis: angina.", "3"),
]


@pytest.fixture(scope="module")
def ward(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LibrarySearch]:
    path = tmp_path_factory.mktemp("again") / "library"
    with open_or_create(path, ENCODER, "hashing", 0) as library:
        add_documents(library, NOTES, ENCODER)
    with LibraryStore.open(path) as library:
        yield LibrarySearch(library, Retriever(library, ENCODER))


def reply_if_found(*names: str) -> Callable[[ChatRequest], str]:
    """Return a script that answers only if its prompt contains all `names`."""

    def reply(request: ChatRequest) -> str:
        prompt = request.messages[-1].content
        if all(name in prompt for name in names):
            quotes = [{"doc": 1, "quote": unfence(prompt)[0].splitlines()[-1]}]
            return json.dumps(fill(request.schema or {}, {"found": True, "quotes": quotes, "sources": [1]}, "It was."))
        return NOT_FOUND

    return reply


def pipeline_of(
    ward: LibrarySearch, script: Callable[[ChatRequest], str], **settings: Any
) -> tuple[Pipeline, ScriptedModel]:
    model = ScriptedModel(script, context_tokens=1_000_000)
    values = {"strategy": "rag", "preflight": {"enabled": False}, "k": 9, **settings}
    return Pipeline(Settings.model_validate(values), dict.fromkeys(ROLES, model), ward), model


def ask(
    ward: LibrarySearch, script: Callable[[ChatRequest], str], overrides: RunOverrides = NO_OVERRIDES, **settings: Any
) -> tuple[Answer, ScriptedModel]:
    pipeline, model = pipeline_of(ward, script, **settings)
    return asyncio.run(pipeline.answer(QUESTION, overrides=overrides)), model


def timeline_notices(answer: Answer) -> list[str]:
    return [event.message for event in answer.trace if isinstance(event, Notice) and event.kind == "timeline"]


def notes_by_ranking(answer: Answer) -> list[set[str]]:
    rankings = [event.ranking for event in answer.trace if isinstance(event, Retrieved)]
    return [{passage.document_id.removeprefix("note:") for passage in ranking.passages} for ranking in rankings]


def test_answer_from_narrowed_notes_has_narrowing(ward: LibrarySearch) -> None:
    answer, model = ask(ward, reply_if_found("reflux"))
    assert (answer.state, answer.narrowing) == ("answered", "kept")
    assert notes_by_ranking(answer) == [{"second"}]
    assert len(model.requests) == 1


@pytest.mark.parametrize("strategy", ["rag", "brief-context"])
@pytest.mark.parametrize("unit", ["chunk", "note"])
def test_abstention_from_narrowed_notes_is_repeated_with_complete_record(
    ward: LibrarySearch, strategy: str, unit: str
) -> None:
    # A map call reads one note, and what the reduce call reads are findings.
    script = (
        reply_if_found("angina")
        if strategy == "rag"
        else lambda request: (
            reply_if_found()(request)
            if ("angina" in request.messages[-1].content or "It was." in request.messages[-1].content)
            else NOT_FOUND
        )
    )
    answer, model = ask(ward, script, strategy=strategy, unit=unit)
    assert (answer.state, answer.narrowing) == ("answered", "lifted")
    assert notes_by_ranking(answer) == [{"second"}, {"first", "second", "third"}]
    assert timeline_notices(answer)[-2:] == [NARROWED_NOTICE, REPEATED_NOTICE]
    assert sum(isinstance(event, ModelCalled) for event in answer.trace) == len(model.requests) == answer.usage.calls
    assert "left out" in model.requests[0].messages[-1].content
    assert "left out" not in model.requests[-1].messages[-1].content, "no note is left out"


def test_abstention_from_complete_record_is_not_repeated(ward: LibrarySearch) -> None:
    answer, model = ask(ward, lambda _: NOT_FOUND)
    assert (answer.state, answer.narrowing, len(model.requests)) == ("abstained", "lifted", 2)


def test_choice_of_unknown_option_is_repeated_with_complete_record(ward: LibrarySearch) -> None:
    options = {"A": "angina", "B": "The record does not say"}
    question = Question(QUESTION.text, options=options, form="choice", id="o", patient="p1")

    def script(request: ChatRequest) -> str:
        choice = "A" if "angina." in request.messages[-1].content else "B"
        quotes = [{"doc": 1, "quote": unfence(request.messages[-1].content)[0].splitlines()[-1]}]
        return json.dumps({"result": {"found": True, "quotes": quotes, "answer": "It was.", "choice": choice}})

    pipeline, model = pipeline_of(ward, script, citing="quotes")
    answer = asyncio.run(pipeline.answer(question))
    assert (answer.state, answer.choice, answer.narrowing, len(model.requests)) == ("answered", "A", "lifted", 2)


def test_no_passage_of_narrowed_notes_uses_complete_record(ward: LibrarySearch) -> None:
    question = Question("angina in the second admission?", id="n", patient="p1")
    pipeline, model = pipeline_of(ward, reply_if_found("angina"), by="bm25")
    answer = asyncio.run(pipeline.answer(question))
    assert (answer.state, answer.narrowing, len(model.requests)) == ("answered", "lifted", 1)


@pytest.mark.parametrize(("strategy", "settings"), [("rag", {"timeline": False}), ("full-context", {})])
def test_question_without_narrowing_is_not_repeated(
    ward: LibrarySearch, strategy: str, settings: dict[str, Any]
) -> None:
    answer, model = ask(ward, lambda _: NOT_FOUND, strategy=strategy, **settings)
    assert (answer.state, answer.narrowing, len(model.requests)) == ("abstained", "none", 1)


def test_failed_repetition_is_failure(ward: LibrarySearch) -> None:
    def script(request: ChatRequest) -> str:
        if "angina" in request.messages[-1].content:
            raise EndpointUnreachable("gone")
        return NOT_FOUND

    answer, _ = ask(ward, script)
    assert (answer.state, answer.narrowing) == ("failed", "lifted")


def test_repetition_keeps_deadline_of_first_attempt(ward: LibrarySearch, monkeypatch: pytest.MonkeyPatch) -> None:
    deadlines: list[float | None] = []

    async def note_deadline(question: Question, context: Context) -> Answer:
        deadlines.append(context.deadline)
        return await rag.rag(question, context)

    monkeypatch.setattr(rag, "STRATEGY", replace(rag.STRATEGY, run=note_deadline))
    answer, _ = ask(ward, lambda _: NOT_FOUND, deadline_seconds=60)
    assert answer.narrowing == "lifted"
    first, second = deadlines
    assert first is not None
    assert second == first


def test_overrides_with_narrowed_and_complete_ranking_are_repeated(ward: LibrarySearch) -> None:
    complete, _ = ask(ward, lambda _: NOT_FOUND, timeline=False)
    passages = next(event.ranking for event in complete.trace if isinstance(event, Retrieved)).passages
    rankings = [rank_in_order(some, "placed", {}) for some in (passages[1:2], passages)]
    overrides = RunOverrides(ranking=rankings[0], whole=rankings[1], about=())
    answer, model = ask(ward, lambda _: NOT_FOUND, overrides)
    assert [event.ranking for event in answer.trace if isinstance(event, Retrieved)] == rankings
    assert (answer.narrowing, len(model.requests)) == ("lifted", 2)


def test_narrowing_appears_on_screen_in_json_and_in_records(ward: LibrarySearch, tmp_path: Path) -> None:
    answer, _ = ask(ward, reply_if_found("angina"))
    out = io.StringIO()
    EventDisplay(Console(file=out, width=200)).show_answer(answer)
    assert "From the complete record: the notes of the time in the question did not answer it." in out.getvalue()
    assert to_json(answer)["narrowing"] == "lifted"
    records = RecordStore(tmp_path / "answers.jsonl", {})
    records.append_answer(answer)
    (record,) = read_records(tmp_path / "answers.jsonl")
    assert record.answer.narrowing == "lifted"


@pytest.mark.parametrize("strategy", ["rag", "brief-context"])
def test_plan_counts_repetition(ward: LibrarySearch, strategy: str) -> None:
    pipeline, _ = pipeline_of(ward, lambda _: NOT_FOUND, strategy=strategy)
    settings = Settings.model_validate({"strategy": strategy, "preflight": {"enabled": False}, "k": 9})
    plain = Question("What was the diagnosis?", id="p", patient="p1")

    async def plans() -> list[Any]:
        return [
            (await plan_questions(pipeline, settings, [question], [strategy])).strategies[0]
            for question in (QUESTION, plain)
        ]

    narrowed, complete = asyncio.run(plans())
    answer, model = ask(ward, lambda _: NOT_FOUND, strategy=strategy)
    assert narrowed.calls.most >= len(model.requests) > narrowed.calls.least
    assert narrowed.prompt_tokens.most >= answer.usage.prompt_tokens > narrowed.prompt_tokens.least
    assert complete.calls.most == narrowed.calls.most / 2
    assert narrowed.states["may be asked again with the whole record"] == 1
    assert "may be asked again with the whole record" not in complete.states
