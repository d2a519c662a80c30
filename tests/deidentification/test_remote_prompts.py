"""No identifier of a record reaches an HTTP endpoint that stands for the remote model. Answers have the originals."""

from __future__ import annotations

import asyncio
import json
import re
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from epicrisis.cli.program import app
from epicrisis.core.answers import Answer, Notice, TextDelta
from epicrisis.core.errors import SettingsError
from epicrisis.core.protocols import ChatModel
from epicrisis.core.types import Document, Question
from epicrisis.corpus.base.reader_base import PatientIdentity
from epicrisis.models.model_pool import ModelPool
from epicrisis.pipeline.pipeline import Pipeline
from epicrisis.privacy.deidentification.deidentifier import RECOGNIZER_VERSION
from epicrisis.privacy.deidentification.library_files import KEY, KindMeasurement, RecallMeasurement, write_measurement
from epicrisis.settings.configuration import load_settings
from epicrisis.testing.chat import ScriptedModel
from tests.support.hostile import HostileServer
from tests.support.patient_records import ENCODER, library
from tests.support.replies import schema_reply
from tests.support.served_models import served

pytestmark = pytest.mark.deidentification

PATIENT = "P-48213377"
NOTES = (
    "Patient Name: KOWALCZYK, WILL   MRN: 0048-2133   DOB: 03/14/1950\n"
    "Will Kowalczyk is a 72 year old man who was admitted on 05/02/2022 with chest pain. His wife Mary Long can be "
    "reached at (617) 555-0142. He lives at 12 Elm Street, Springfield, MA 01103. Troponin was 0.9 on May 3, 2022. "
    "Electronically signed by Jane O'Neil, MD, j.oneil@ward.example.com",
    "Will Kowalczyk was seen by Dr. O'Neil on 06/11/2022. Chest pain is gone. Metoprolol 25 mg was stopped on 6/9/2022 "
    "because of dizziness. Daughter Ngozi came with mr. kowalczyk. Mary agreed to the plan.",
)
SECRETS = (
    "kowalczyk", "ngozi", "mary", "o'neil", "oneil", "0048-2133", "00482133", "48213377", "03/14/1950", "05/02/2022",
    "may 3, 2022", "06/11/2022", "6/9/2022", "555-0142", "elm street", "springfield", "01103", "ward.example.com",
)  # fmt: skip
CLINICAL = ("chest pain", "troponin", "metoprolol 25 mg", "dizziness")
QUESTION = Question("When was Will Kowalczyk's Metoprolol stopped, and why?", patient=PATIENT)


def measurement(lower: float, recognizer: str = RECOGNIZER_VERSION) -> RecallMeasurement:
    overall = KindMeasurement(planted=1000, missed=5, recall=0.995, lower=lower, upper=0.999)
    return RecallMeasurement(
        recognizer=recognizer, at="2030-01-01T00:00:00+00:00", notes=100, patients=10, notes_with_leak=5,
        precision=0.9, kinds={"name": overall, "date": overall.model_copy(update={"lower": 1.0})},
    )  # fmt: skip


@pytest.fixture
def ward(tmp_path: Path) -> Path:
    identity = PatientIdentity(PATIENT, names=("Kowalczyk, Will",), born="1950-03-14", numbers=(("", "00482133"),))
    documents = [
        Document(f"note:{number}", text, date=f"2022-0{number + 5}-02", patient=PATIENT)
        for number, text in enumerate(NOTES)
    ]
    with library(tmp_path / "ward", [identity, *documents]) as store:
        write_measurement(store.path, measurement(0.99))
        # With a random key a surrogate may be called Oneill by chance.
        (store.path / KEY).write_bytes(bytes(range(32)))
        (store.path / KEY).chmod(0o600)
        return store.path


def ask(ward: Path, url: str, question: Question = QUESTION, **changes: Any) -> tuple[Answer, list[str]]:
    """Return the answer and the pieces of text that were streamed."""
    settings = load_settings(
        {
            "models": {"writer": {"name": f"{url}#m", "context_tokens": 8000}},
            "strategy": "rag",
            "by": "bm25",
            "citing": "quotes",
            "deidentify": 0.98,
            **changes,
        }
    )
    pieces: list[str] = []
    pool = ModelPool()
    pool.add("encoder", "hashing", ENCODER)

    async def run() -> Answer:
        async with Pipeline.open(settings, ward, pool=pool) as pipeline:
            async for event in pipeline.events(question):
                if isinstance(event, TextDelta):
                    pieces.append(event.text)
                if hasattr(event, "answer"):
                    return event.answer
        raise AssertionError

    return asyncio.run(run()), pieces


def quoting_model() -> ChatModel:
    """Return a model that quotes a line of the documents it was sent, and repeats the question's names."""

    def script(request: Any) -> str:
        messages = [{"role": message.role, "content": message.content} for message in request.messages]
        schema = {} if request.schema is None else {"response_format": {"json_schema": {"schema": request.schema}}}
        reply = schema_reply({"messages": messages, **schema})
        name = re.search(r"was (\S+ \S+)'s Metoprolol", messages[-1]["content"])
        return reply.replace("It is so.", f"It was as {name[1] if name else ''} says.")

    return ScriptedModel(script)


def sent_bodies(server: HostileServer) -> list[Any]:
    """Return what the server was sent to complete, or to count."""
    return [request.body for request in server.received if request.body]


def assert_no_secret(text: str) -> None:
    leaks = [secret for secret in SECRETS if secret in text.casefold()]
    assert not leaks


@pytest.mark.parametrize(
    "strategy", ["rag", "brief-context", "full-context", "chain-of-thought", "closed-book", "focused"]
)
def test_prompts_of_every_strategy_have_no_identifier(ward: Path, strategy: str) -> None:
    changes: dict[str, Any] = {"strategy": strategy}
    if strategy == "focused":
        changes["citing"] = "numbers"
    with served(quoting_model()) as server:
        ask(ward, server.url, **changes)
        bodies = sent_bodies(server)
    assert bodies
    sent = json.dumps(bodies, ensure_ascii=False)
    assert_no_secret(sent)
    if strategy == "full-context":
        assert all(word in sent.casefold() for word in CLINICAL)


def test_answer_has_the_originals_and_verified_quotations(ward: Path) -> None:
    with served(quoting_model()) as server:
        answer, _ = ask(ward, server.url)
    assert "Will Kowalczyk" in answer.text
    assert answer.citations
    for citation in answer.citations:
        assert citation.verified
        assert citation.quotation in "\n".join(NOTES)


def test_trace_counts_identifiers_without_their_text(ward: Path) -> None:
    with served(quoting_model()) as server:
        answer, _ = ask(ward, server.url)
    notices = [event.message for event in answer.trace if isinstance(event, Notice) and event.kind == "de-identified"]
    assert notices
    assert re.fullmatch(r"replaced before the prompt was sent: [a-z-]+: \d+(, [a-z-]+: \d+)*", notices[0])


def test_streamed_answer_adds_up_to_the_restored_text(ward: Path) -> None:
    with served(quoting_model()) as server:
        answer, pieces = ask(ward, server.url)
    assert "Kowalczyk" in "".join(pieces)
    assert "".join(pieces) in answer.text


def test_second_question_is_answered_from_the_cache(ward: Path) -> None:
    with served(quoting_model()) as server:
        first, _ = ask(ward, server.url)
        calls = len(sent_bodies(server))
        second, _ = ask(ward, server.url)
        assert len(sent_bodies(server)) == calls
    assert second.text == first.text
    assert second.usage.replayed_calls


def test_recording_has_what_was_sent(ward: Path, tmp_path: Path) -> None:
    record = tmp_path / "calls.jsonl"
    with served(quoting_model()) as server:
        ask(ward, server.url, record=str(record))
    assert_no_secret(record.read_text(encoding="utf-8"))


def test_key_is_private_and_other_keys_give_other_dates(ward: Path) -> None:
    dates = set()
    for _ in range(2):
        with served(quoting_model()) as server:
            ask(ward, server.url, cache={"mode": "off"})
            dates.add(tuple(sorted(re.findall(r"\d\d/\d\d/\d{4}", json.dumps(sent_bodies(server))))))
        assert (ward / KEY).stat().st_mode & 0o777 == 0o600
        (ward / KEY).unlink()
    assert len(dates) == 2


def test_low_recall_refuses_before_any_call(ward: Path) -> None:
    write_measurement(ward, measurement(0.97))
    with served(quoting_model()) as server:
        with pytest.raises(SettingsError, match=r"recall is at least 0\.9700 .* and 0\.98 is required"):
            ask(ward, server.url)
        assert not sent_bodies(server)


@pytest.mark.parametrize("state", ["missing", "other version", "damaged"])
def test_unmeasured_recall_refuses_with_the_command(ward: Path, state: str) -> None:
    if state == "other version":
        write_measurement(ward, measurement(0.99, recognizer="0"))
    else:
        (ward / "deidentification.json").write_text("" if state == "missing" else "{", encoding="utf-8")
    with pytest.raises(SettingsError, match="library measure-deidentification"):
        ask(ward, "http://127.0.0.1:9/v1")


def test_remote_model_still_needs_allow_remote(ward: Path) -> None:
    with pytest.raises(SettingsError, match="--allow-remote"):
        ask(ward, "https://models.example.org/v1")


def test_remote_reranker_is_refused(ward: Path) -> None:
    with pytest.raises(SettingsError, match=r"rerank\.name would send texts to rerank\.example\.org"):
        ask(ward, "http://127.0.0.1:9/v1", rerank={"name": "https://rerank.example.org/v1/rerank"}, allow_remote=True)


def test_export_has_surrogates_and_moved_dates_that_keep_intervals(ward: Path, tmp_path: Path) -> None:
    output = tmp_path / "notes.jsonl"
    arguments = ["library", "export", str(ward), "--all-patients", "--deidentify", "0.98", "-o", str(output)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    text = output.read_text(encoding="utf-8")
    assert_no_secret(text)
    assert PATIENT.casefold() not in text.casefold()
    lines = sorted(map(json.loads, text.splitlines()), key=lambda line: line["date"])
    assert len(lines) == len(NOTES)
    days = [date.fromisoformat(line["date"]) for line in lines]
    assert (days[1] - days[0]).days == (date(2022, 6, 2) - date(2022, 5, 2)).days
    assert len({line["patient"] for line in lines}) == 1


def test_measure_command_records_what_ask_accepts(ward: Path) -> None:
    (ward / "deidentification.json").unlink()
    result = CliRunner().invoke(app, ["library", "measure-deidentification", str(ward), "--notes", "100", "--json"])
    assert result.exit_code == 0, result.output
    figures = json.loads(result.stdout)
    assert figures["precision"] > 0.9
    assert figures["kinds"]["unusual: own name in any form"]["recall"] == 1
    lower = min(row["lower"] for row in figures["kinds"].values())
    assert figures["kinds"][figures["worst_kind"]]["lower"] == lower
    with served(quoting_model()) as server:
        answer, _ = ask(ward, server.url, deidentify=lower - 0.001)
        assert "Kowalczyk" in answer.text
        with pytest.raises(SettingsError, match="is required"):
            ask(ward, server.url, deidentify=lower + 0.001)
