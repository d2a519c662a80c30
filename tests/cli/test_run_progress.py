"""What a run says beside its tables, and what it asks before it spends: for evaluate, experiment and probe."""

from __future__ import annotations

import asyncio
import io
import os
import pty
import select
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import typer

from epicrisis.answers import Failure, Notice
from epicrisis.cli import run_progress
from epicrisis.cli.exit_codes import ERROR
from epicrisis.configuration import load_settings
from epicrisis.evaluation.runs.case import Case
from epicrisis.evaluation.runs.run_folder import RunPlan
from epicrisis.overrides import RunOverrides
from epicrisis.settings import Settings
from tests.support.run_folders import QUESTIONS, answer

CASE = Case(QUESTIONS[0])
ASKED = "3 questions with rag are expected to cost $7.00. Go on?"


def test_what_holds_for_the_whole_run_is_said_once() -> None:
    told: set[str] = set()
    sent, cut = Notice("model", "map: no schema was sent"), Notice("re-partitioned", "halved")
    first = replace(answer(CASE.question, True), trace=(sent, sent, cut))
    assert run_progress._remarks(CASE, first, told) == ["note: map: no schema was sent"]
    assert run_progress._remarks(CASE, first, told) == []
    failed = replace(answer(CASE.question, "failed"), failure=Failure("EndpointBusy", "it is busy"), trace=(sent,))
    assert run_progress._remarks(CASE, failed, told) == ["0: it is busy"]
    assert run_progress._remarks(CASE, failed, set()) == ["note: map: no schema was sent", "0: it is busy"]


def test_a_demonstration_model_is_named_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    run_progress.warn_about_demo_models(
        load_settings({"models": {"writer": {"name": "smollm2-135m"}}}), ("writer", "map")
    )
    assert capsys.readouterr().err == (
        "note: smollm2-135m is a small model for demonstration, not for use: choose a better one with --model\n"
    )
    run_progress.warn_about_demo_models(
        load_settings({"models": {"writer": {"name": "http://127.0.0.1:9/v1#m"}}}), ("writer", "map")
    )
    assert capsys.readouterr().err == ""


def test_questions_longer_than_the_encoder_are_counted_once(capsys: pytest.CaptureFixture[str]) -> None:
    cases = [Case(question, {"arm": arm}) for question in QUESTIONS[:3] for arm in ("rag", "ends")]
    run_progress._say_long_questions(cases, {cases[0].key, cases[1].key, cases[4].key, "of another run"}, Settings())
    shown = capsys.readouterr()
    assert shown.err == "note: 2 of 3 questions are longer than the encoder can read (long_questions = segments)\n"
    assert shown.out == ""
    run_progress._say_long_questions(cases, set(), Settings())
    assert capsys.readouterr().err == ""


PATIENCE_SECONDS = 5.0


def asked_at_a_terminal(typed: bytes) -> tuple[str, int]:
    """What is shown, and the exit code, where `typed` is the answer; asked within an event loop, as runs do."""
    program = f"""
import asyncio, sys, typer
from epicrisis.cli.run_progress import confirm
async def asked():
    confirm({ASKED!r})
    print("it went on")
try:
    asyncio.run(asked())
except typer.Exit as ended:
    sys.exit(ended.exit_code)
"""
    child, terminal = pty.fork()
    if child == 0:
        os.execv(sys.executable, [sys.executable, "-c", program])
    shown = b""
    answered = False
    while True:
        if answered and not select.select([terminal], [], [], PATIENCE_SECONDS)[0]:
            # A Ctrl-C between the prompt and the read of its answer can be lost; a person presses it again.
            os.write(terminal, typed)
        try:
            piece = os.read(terminal, 1024)
        except OSError:
            # The other end was closed.
            break
        if not piece:
            break
        shown += piece
        if not answered and b"[y/N]" in shown:
            os.write(terminal, typed)
            answered = True
    _, status = os.waitpid(child, 0)
    return shown.decode(), os.waitstatus_to_exitcode(status)


@pytest.mark.parametrize(
    ("typed", "said", "code"),
    [(b"y\n", "it went on", 0), (b"n\n", "nothing was asked", 2), (b"\x03", "stopped; nothing was asked", 130)],
)
def test_a_person_is_asked_and_may_stop_there(typed: bytes, said: str, code: int) -> None:
    shown, ended = asked_at_a_terminal(typed)
    assert shown.splitlines()[-1].endswith(said)
    assert (ended, "Traceback" in shown) == (code, False)


def test_where_nobody_can_be_asked_the_flag_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    with pytest.raises(typer.Exit) as ended:
        run_progress.confirm(ASKED)
    assert ended.value.exit_code == ERROR
    assert capsys.readouterr().err == (
        "epicrisis: 3 questions with rag are expected to cost $7.00: add --yes to run it\n"
    )


def test_the_question_is_about_the_cases_as_they_are_treated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is not agreed to leaves no folder behind."""
    model = {"name": "https://models.example.org/v1#m"}
    settings = load_settings({"strategy": "closed-book", "models": {"writer": model}, "home": tmp_path})
    cases = [Case(question, {}, RunOverrides("chain-of-thought")) for question in QUESTIONS[:3]]
    folder = tmp_path / "run"
    seen: list[Any] = []

    async def ask_first(*arguments: Any) -> str:
        seen.extend(zip(*arguments[2:], strict=True))
        return ASKED

    monkeypatch.setattr("epicrisis.plan.confirmation.confirmation_question", ask_first)
    monkeypatch.setattr("sys.stdin", io.StringIO())

    async def planned(_: object) -> tuple[RunPlan, list[Case]]:
        return cast("RunPlan", None), cases

    with pytest.raises(typer.Exit):
        asyncio.run(run_progress.run_cases(settings, None, folder, planned, yes=False, quiet=True))
    assert seen == [(case.question, case.treatment) for case in cases]
    assert not folder.exists()
