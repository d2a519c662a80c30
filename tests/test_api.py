"""A question of one patient in one call, over a small ward on disk."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import epicrisis
from epicrisis.api import build_question, stream
from epicrisis.core.answers import Answered, Retrieved
from epicrisis.core.errors import InputError, SettingsError
from epicrisis.core.types import Document, Question
from epicrisis.settings.configuration import check_settings
from epicrisis.settings.settings import Settings
from tests.support.hostile import HostileServer
from tests.support.patient_records import library
from tests.support.replies import schema_reply

ANNA, BERT = "10083814", "10083815"


@pytest.fixture
def ward(tmp_path: Path) -> Path:
    documents = [Document(f"n:{each}", "Colchicine was given.", date="2150-01", patient=each) for each in (ANNA, BERT)]
    with library(tmp_path / "ward", documents) as made:
        return made.path


def how(server: HostileServer, **more: Any) -> dict[str, Any]:
    return {"model": server.url, "strategy": "rag", "by": "bm25", "cache": {"mode": "off"}, **more}


@pytest.mark.parametrize("strategy", ["rag", "full-context"])
def test_ask_with_patient_reads_record(strategy: str, ward: Path) -> None:
    with HostileServer(schema_reply) as server:
        answer = epicrisis.ask(ward, "What was given?", patient=ANNA, **how(server, strategy=strategy))
    (found,) = [event.ranking for event in answer.trace if isinstance(event, Retrieved)]
    assert [passage.patient for passage in found.passages] == [ANNA]
    assert answer.question.patient == ANNA


@pytest.mark.slow
def test_stream_with_patient_in_question_reads_record(ward: Path) -> None:
    async def last(question: str | Question, patient: str | None) -> str | None:
        with HostileServer(schema_reply) as server:
            events = [event async for event in stream(ward, question, patient=patient, **how(server))]
        assert isinstance(events[-1], Answered)
        return events[-1].answer.question.patient

    assert asyncio.run(last("Was colchicine given?", BERT)) == BERT
    assert asyncio.run(last(Question("Was colchicine given?"), BERT)) == BERT
    assert asyncio.run(last(Question("Was colchicine given?", patient=BERT), None)) == BERT
    with pytest.raises(InputError, match="about another patient than patient="):
        asyncio.run(last(Question("Was colchicine given?", patient=BERT), ANNA))


@pytest.mark.parametrize(
    ("patient", "reason"), [("nobody", "has no notes of patient"), (None, "select a patient with --patient")]
)
@pytest.mark.parametrize("strategy", ["rag", "closed-book"])
def test_ask_with_unknown_patient_raises(strategy: str, patient: str | None, reason: str, ward: Path) -> None:
    with HostileServer(schema_reply) as server:
        with pytest.raises(InputError, match=reason):
            epicrisis.ask(ward, "What was given?", patient=patient, **how(server, strategy=strategy))
        assert server.received == ()


def test_question_keeps_patient() -> None:
    assert build_question("What was given?", ["yes", "no"], ANNA).patient == ANNA
    assert build_question("What was given?").patient is None


def test_note_budget_without_note_unit_is_rejected() -> None:
    with pytest.raises(SettingsError, match="use the setting unit = note"):
        check_settings(Settings(strategy="rag", note_tokens=900))
    assert check_settings(Settings(strategy="rag", unit="note", note_tokens=900)).note_tokens == 900
