"""Notes of a run beside its tables, and its confirmation, for evaluate, experiment and probe."""

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

from epicrisis.cli import run_progress
from epicrisis.cli.command import ERROR
from epicrisis.core.answers import Failure, Notice
from epicrisis.evaluation.runs.run_folder import RunPlan
from epicrisis.pipeline.overrides import RunOverrides
from epicrisis.pipeline.recording.case import Case
from epicrisis.settings.configuration import load_settings
from epicrisis.settings.settings import Settings
from tests.support.run_folders import QUESTIONS, answer

CASE = Case(QUESTIONS[0])
COST_QUESTION = "3 questions with rag are expected to cost $7.00. Go on?"


def test_remarks_repeat_no_notice_of_run() -> None:
    notices: set[str] = set()
    schema_notice, partition_notice = Notice("model", "map: no schema was sent"), Notice("re-partitioned", "halved")
    first = replace(answer(CASE.question, True), trace=(schema_notice, schema_notice, partition_notice))
    assert run_progress._remarks(CASE, first, notices) == ["note: map: no schema was sent"]
    assert run_progress._remarks(CASE, first, notices) == []
    failed = replace(
        answer(CASE.question, "failed"), failure=Failure("EndpointBusy", "it is busy"), trace=(schema_notice,)
    )
    assert run_progress._remarks(CASE, failed, notices) == ["0: it is busy"]
    assert run_progress._remarks(CASE, failed, set()) == ["note: map: no schema was sent", "0: it is busy"]


def test_demo_model_is_named_in_note(capsys: pytest.CaptureFixture[str]) -> None:
    run_progress.warn_about_demo_models(
        load_settings({"models": {"writer": {"name": "smollm2-135m"}}}), ("writer", "map")
    )
    assert capsys.readouterr().err == (
        "note: smollm2-135m is a small model for demonstration only: choose a better one with --model\n"
    )
    run_progress.warn_about_demo_models(
        load_settings({"models": {"writer": {"name": "http://127.0.0.1:9/v1#m"}}}), ("writer", "map")
    )
    assert capsys.readouterr().err == ""


def test_long_questions_are_counted_once(capsys: pytest.CaptureFixture[str]) -> None:
    cases = [Case(question, {"arm": arm}) for question in QUESTIONS[:3] for arm in ("rag", "ends")]
    run_progress._say_long_questions(cases, {cases[0].key, cases[1].key, cases[4].key, "of another run"}, Settings())
    output = capsys.readouterr()
    assert output.err == "note: 2 of 3 questions are longer than the encoder can read (long_questions = segments)\n"
    assert output.out == ""
    run_progress._say_long_questions(cases, set(), Settings())
    assert capsys.readouterr().err == ""


PATIENCE_SECONDS = 5.0


def confirm_at_terminal(keys: bytes) -> tuple[str, int]:
    """Return the output and the exit code after `keys` were typed at the question, asked inside an event loop."""
    program = f"""
import asyncio, sys, typer
from epicrisis.cli.run_progress import confirm
async def ask():
    confirm({COST_QUESTION!r})
    print("it went on")
try:
    asyncio.run(ask())
except typer.Exit as ended:
    sys.exit(ended.exit_code)
"""
    child, terminal = pty.fork()
    if child == 0:
        os.execv(sys.executable, [sys.executable, "-c", program])
    output = b""
    sent_keys = False
    while True:
        if sent_keys and not select.select([terminal], [], [], PATIENCE_SECONDS)[0]:
            # A Ctrl-C between the prompt and the read of its answer can be lost; a person presses it again.
            os.write(terminal, keys)
        try:
            piece = os.read(terminal, 1024)
        except OSError:
            # The other end was closed.
            break
        if not piece:
            break
        output += piece
        if not sent_keys and b"[y/N]" in output:
            os.write(terminal, keys)
            sent_keys = True
    _, status = os.waitpid(child, 0)
    return output.decode(), os.waitstatus_to_exitcode(status)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("keys", "last_line", "code"),
    [(b"y\n", "it went on", 0), (b"n\n", "nothing was asked", 2), (b"\x03", "stopped; nothing was asked", 130)],
)
def test_confirm_at_terminal_follows_answer(keys: bytes, last_line: str, code: int) -> None:
    output, exit_info = confirm_at_terminal(keys)
    assert output.splitlines()[-1].endswith(last_line)
    assert (exit_info, "Traceback" in output) == (code, False)


def test_confirm_without_terminal_names_flag(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    with pytest.raises(typer.Exit) as exit_info:
        run_progress.confirm(COST_QUESTION)
    assert exit_info.value.exit_code == ERROR
    assert capsys.readouterr().err == (
        "epicrisis: 3 questions with rag are expected to cost $7.00: add --yes to run it\n"
    )


def test_unconfirmed_run_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The question is about the cases with their overrides."""
    model = {"name": "https://models.example.org/v1#m"}
    settings = load_settings({"strategy": "closed-book", "models": {"writer": model}, "home": tmp_path})
    cases = [Case(question, {}, RunOverrides(options={"strategy": "chain-of-thought"})) for question in QUESTIONS[:3]]
    folder = tmp_path / "run"
    arguments_of_question: list[Any] = []

    async def ask_first(*arguments: Any) -> str:
        arguments_of_question.extend(zip(*arguments[2:], strict=True))
        return COST_QUESTION

    monkeypatch.setattr("epicrisis.pipeline.plan.strategy_plans.confirmation_question", ask_first)
    monkeypatch.setattr("sys.stdin", io.StringIO())

    async def prepare(_: object) -> tuple[RunPlan, list[Case]]:
        return cast("RunPlan", None), cases

    with pytest.raises(typer.Exit):
        asyncio.run(run_progress.run_cases(settings, None, folder, prepare, yes=False, quiet=True))
    assert arguments_of_question == [(case.question, case.treatment) for case in cases]
    assert not folder.exists()
