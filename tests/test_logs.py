"""The log: ids and counts, and nothing that could be somebody's text, whatever an event holds."""

from __future__ import annotations

import json
import logging
import stat
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, get_args

import pytest

from epicrisis.core.answers import (
    Answer,
    Answered,
    AnswerStarted,
    Citation,
    Draft,
    Drafted,
    Event,
    ExamplesFound,
    Failure,
    MapFinished,
    MapStarted,
    ModelCalled,
    Notice,
    PartialAnswer,
    PreflightChecked,
    Quotation,
    Retrieved,
    SentencesSelected,
    TextDelta,
    Usage,
    Vote,
    Voted,
)
from epicrisis.core.errors import EndpointBusy, StorageError
from epicrisis.core.prompts import Prompt
from epicrisis.core.protocols import ChatReply, ChatRequest, Message
from epicrisis.core.types import EvidenceSpan, Hit, Passage, Preflight, Question, Ranking
from epicrisis.system.logs import LogFile, log_call, log_error, log_event, open_log

KEY = "q1:0123456789abcdef"
PATIENT = "Anna Maria Muster, born 1950"

QUESTION = Question("Why?", options={"A": "yes"}, id="q1", gold="A", gold_documents=("d",), patient="anna")
PASSAGE = Passage(
    id="d#0",
    document_id="d",
    ordinal=0,
    start=0,
    end=4,
    text="Text",
    title="Title",
    source="source",
    date="2015",
    patient="anna",
    metadata={"journal": "BMJ"},
)
RANKING = Ranking((Hit(PASSAGE, 1.0, 0),), "hybrid", {"k": 1}, ("a note",))
VERDICT = Preflight(
    rankings_agree=False,
    value=0.2,
    n=3,
    threshold=0.2,
    depth=16,
    dense_top=("d#0",),
    bm25_top=("d#0",),
    reason="they differ",
)
FAILURE = Failure("EndpointBusy", "try again")
QUOTATION = Quotation("d#0", "Text", 0, 4)
PARTIAL = PartialAnswer(
    partition=2,
    passages=("d#0",),
    state="relevant",
    text="found",
    choice="A",
    quotations=(QUOTATION,),
    usage=Usage(calls=1),
    failure=FAILURE,
)
CITATION = Citation(
    number=1,
    passage_id="d#0",
    document_id="d",
    title="Title",
    source="source",
    date="2015",
    start=0,
    end=4,
    quotation="Text",
    verified=True,
)
CALLED = ModelCalled(
    stage="map 3",
    model="model at http://h:1",
    prompt_sha256="ab" * 32,
    template="map@123",
    seed=1,
    sample=2,
    finish_reason="stop",
    usage=Usage(calls=3, cost=None),
    at=1.0,
)
ANSWER = Answer(
    question=QUESTION,
    strategy="brief-context",
    state="answered",
    text="Text",
    choice="A",
    citations=(CITATION,),
    partials=(PARTIAL,),
    preflight=VERDICT,
    usage=Usage(calls=4),
    failure=None,
)
EVENTS: tuple[Event, ...] = (
    Retrieved(RANKING),
    SentencesSelected((EvidenceSpan("d", 0, 4),)),
    PreflightChecked(VERDICT),
    MapStarted(2, ("d#0",)),
    MapFinished(PARTIAL),
    ExamplesFound(("e1", "e2"), ("e3",)),
    Voted(
        Vote(
            number=1,
            letter_order=("B", "A"),
            state="unparsed",
            choice=None,
            text=PATIENT,
            usage=Usage(),
            failure=FAILURE,
        )
    ),
    Drafted(Draft(number=2, state="answered", text=PATIENT, critique=PATIENT)),
    AnswerStarted("reduce", 3),
    TextDelta("reduce", "Text"),
    CALLED,
    Notice("retried", "once"),
    Answered(replace(ANSWER, trace=(CALLED, Notice("retried", "once")), failure=FAILURE)),
)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Path]:
    """A log that is open, without texts."""
    path = tmp_path / "epicrisis.log"
    opened = open_log(path)
    yield path
    opened.close()


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def planted(value: Any) -> Any:
    """The same value with a patient in every string of it, however deep."""
    if isinstance(value, str):
        return PATIENT
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{f.name: planted(getattr(value, f.name)) for f in fields(value)})
    if isinstance(value, dict):
        return {planted(key): planted(inner) for key, inner in value.items()}
    return tuple(planted(inner) for inner in value) if isinstance(value, tuple) else value


def test_all_event_types_are_tested() -> None:
    assert {type(event) for event in EVENTS} == set(get_args(Event))


def test_log_contains_no_event_text(log: Path) -> None:
    for event in EVENTS:
        log_event(f"{PATIENT}:0123456789abcdef", planted(event))
        log_event(PATIENT, planted(event))
    written = log.read_text(encoding="utf-8")
    assert len(written.splitlines()) == 2 * (len(EVENTS) - 1)
    assert not {"Anna", "Muster", "1950"} & set(written.replace(",", " ").replace('"', " ").split())
    assert {line["question"] for line in lines(log)} == {"0123456789abcdef", "?"}


def test_log_line_of_event_has_expected_fields(log: Path) -> None:
    for event in EVENTS:
        log_event(KEY, event)
    told = {line.pop("event"): line for line in lines(log)}
    assert all(line.pop("at").endswith("+00:00") and line.pop("question") == KEY for line in told.values())
    assert told["retrieved"] == {"retriever": "hybrid", "hits": 1, "notes": 1}
    assert told["preflight"] == {"agree": False, "signal": "overlap", "value": 0.2, "depth": 16}
    assert told["map-started"] == {"partition": 2, "passages": 1}
    found = {"partition": 2, "passages": 1, "state": "relevant", "quotations": 1, "error": "EndpointBusy"}
    assert told["map-finished"] == found
    assert told["examples"] == {"examples": 2, "left_out": 1}
    assert told["voted"] == {"vote": 1, "state": "unparsed", "error": "EndpointBusy"}
    assert told["drafted"] == {"draft": 2, "state": "answered", "error": None}
    assert told["answer-started"] == {"stage": "reduce", "documents": 3}
    usage = told["called"].pop("usage")
    assert (usage["calls"], usage["cost"], usage["prompt_tokens"]) == (3, None, 0)
    names = {"stage": "map 3", "model": "model at http://h:1", "prompt_sha256": "ab" * 32, "template": "map@123"}
    assert told["called"] == {**names, "seed": 1, "sample": 2, "finish_reason": "stop"}
    assert told["notice"] == {"kind": "retried"}
    assert told["answered"].pop("usage")["calls"] == 4
    ended = {"strategy": "brief-context", "state": "answered", "error": "EndpointBusy"}
    assert told["answered"] == {
        **ended,
        "withheld": False,
        "citations": 1,
        "verified": 1,
        "partials": 1,
        "votes": 0,
        "drafts": 0,
    }


@pytest.mark.parametrize(
    ("reason", "told"), [("length", "length"), ("EndpointTimeout", "EndpointTimeout"), ("Muster", "other")]
)
def test_log_omits_unknown_finish_reason(log: Path, reason: str, told: str) -> None:
    log_event(KEY, replace(CALLED, finish_reason=reason))
    assert lines(log)[0]["finish_reason"] == told


def test_log_contains_error_kind(log: Path) -> None:
    log_error(KEY, EndpointBusy(PATIENT))
    log_error(KEY, ValueError(PATIENT))
    assert [line["error"] for line in lines(log)] == ["EndpointBusy", "ValueError"]
    assert PATIENT not in log.read_text(encoding="utf-8")


def test_log_omits_messages_of_other_loggers(log: Path) -> None:
    for name in ("epicrisis", "epicrisis.corpus", "epicrisis.text"):
        try:
            raise ValueError(PATIENT)
        except ValueError:
            logging.getLogger(name).exception("read %s", PATIENT)
    assert log.read_text(encoding="utf-8") == ""


# -- texts ----------------------------------------------------------------------------------------------------------

REQUEST = ChatRequest((Message("system", "Be brief."), Message("user", PATIENT)), max_tokens=10, sample=2)
REPLY = ChatReply(text="She is well.", finish_reason="stop", model="m", usage=Usage(), reasoning="Let me see.")


def test_log_omits_prompts_and_replies_by_default(log: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        log_call(REQUEST, REPLY)
    assert log.read_text(encoding="utf-8") == ""
    assert PATIENT not in caplog.text


def test_log_text_is_written_only_to_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    opened = open_log(tmp_path / "log", with_text=True)
    with caplog.at_level(logging.DEBUG):
        log_call(REQUEST, replace(REPLY, text="She is \ud800 well."))
        log_call(REQUEST, EndpointBusy("try again"))
        log_event(KEY, CALLED)
    opened.close()
    first, second, third = lines(tmp_path / "log")
    assert first.pop("at") <= second.pop("at") <= third["at"]
    prompt = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": PATIENT}]
    shared = {"event": "texts", "prompt_sha256": Prompt(REQUEST.messages, "").sha256, "sample": 2, "prompt": prompt}
    assert first == {**shared, "reply": "She is \ud800 well.", "reasoning": "Let me see."}
    assert second == {**shared, "error": "EndpointBusy"}
    assert third["event"] == "called"
    assert PATIENT not in caplog.text
    assert capfd.readouterr() == ("", "")


# -- the file -------------------------------------------------------------------------------------------------------


def test_logging_is_silent_by_default(capfd: pytest.CaptureFixture[str]) -> None:
    log_event(KEY, CALLED)
    log_error(KEY, ValueError(PATIENT))
    log_call(REQUEST, REPLY)
    assert capfd.readouterr() == ("", "")
    assert not logging.getLogger("epicrisis").isEnabledFor(logging.INFO)


def test_log_file_is_private_and_appended(tmp_path: Path) -> None:
    path = tmp_path / "new" / "log"
    for _ in range(2):
        opened = open_log(path)
        log_event(KEY, CALLED)
        opened.close()
        opened.close()
        log_event(KEY, CALLED)
    assert len(lines(path)) == 2
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_two_logs_receive_all_lines(tmp_path: Path) -> None:
    first, second = open_log(tmp_path / "a"), open_log(tmp_path / "b", with_text=True)
    log_event(KEY, CALLED)
    second.close()
    log_call(REQUEST, REPLY)
    log_event(KEY, CALLED)
    first.close()
    assert [len(lines(tmp_path / name)) for name in "ab"] == [2, 1]
    assert not any(isinstance(handler, LogFile) for handler in logging.getLogger("epicrisis").handlers)


def test_application_handler_receives_lines(caplog: pytest.LogCaptureFixture) -> None:
    """With its own handlers on the logger `epicrisis`, to ids and counts."""
    with caplog.at_level(logging.INFO, logger="epicrisis"):
        log_event(KEY, planted(EVENTS[0]))
        log_event(KEY, CALLED)
    assert "called" in caplog.text
    assert PATIENT not in caplog.text


def test_unwritable_log_reports_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"the log .* cannot be written \(Is a directory\): "):
        open_log(tmp_path)
    if Path("/dev/full").exists():
        opened = open_log(Path("/dev/full"))
        try:
            with pytest.raises(StorageError, match="No space left on device"):
                log_event(KEY, CALLED)
        finally:
            opened.close()
