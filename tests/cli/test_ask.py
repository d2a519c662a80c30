"""`epicrisis ask`: sources of the question, the file of answers, and failures."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from epicrisis.cli.program import app
from epicrisis.core.types import Document
from tests.cli.conftest import Run
from tests.cli.test_records import library
from tests.support.loopback import Endpoint, Scripted, answer_with, serving

CHAT = "/v1/chat/completions"
REPLY = json.dumps({"result": {"found": True, "answer": "Zinc shortens it."}})
HEALTHY = answer_with(REPLY)
REFUSED = Scripted({"error": {"message": "no such model"}}, 404)


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    monkeypatch.setenv("EPICRISIS_MODELS__WRITER__CONTEXT_TOKENS", "8192")
    monkeypatch.setenv("EPICRISIS_MODELS__WRITER__TRIES", "1")
    monkeypatch.setenv("EPICRISIS_MODELS__WRITER__CONCURRENCY", "8")
    monkeypatch.setenv("EPICRISIS_CACHE__MODE", "off")
    with serving() as server:
        server.script[CHAT] = [HEALTHY]
        yield server


@pytest.fixture
def ask_command(endpoint: Endpoint, tmp_path: Path) -> tuple[Any, ...]:
    """Return the command: a library of one paper, and a strategy that needs no search."""
    papers = library(tmp_path / "papers", [Document("zinc", "Zinc shortens acute diarrhoea in children.")])
    return ("ask", papers, "--model", f"{endpoint.url}/v1#m", "--strategy", "closed-book")


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_ask_with_output_saves_record_of_one_question(run: Run, ask_command: tuple[Any, ...], tmp_path: Path) -> None:
    output = tmp_path / "answer.jsonl"
    shown = run(*ask_command, "What does zinc do?", "-o", output)
    assert shown.exit_code == 0, shown.stderr
    assert "Zinc shortens it." in shown.stdout
    [record] = records(output)
    assert record["answer"]["question"]["text"] == "What does zinc do?"
    assert record["answer"]["text"] == "Zinc shortens it."
    conflicting = run(*ask_command, "What does zinc do?", "-o", output, "--seed", 7)
    assert conflicting.exit_code == 2
    assert "made with other settings" in conflicting.stderr


@pytest.mark.parametrize("standard_input", ["What does zinc do?", "  What does zinc do?\n"])
def test_ask_with_hyphen_reads_question_from_standard_input(ask_command: tuple[Any, ...], standard_input: str) -> None:
    result = CliRunner().invoke(app, [*map(str, ask_command), "-", "--json"], input=standard_input)
    assert json.loads(result.stdout)["question"]["text"] == "What does zinc do?"


@pytest.mark.parametrize(("standard_input", "message"), [(b"", "the question is empty"), (b"\xff\xfe", "UTF-8")])
def test_ask_with_hyphen_and_unusable_standard_input_fails(
    ask_command: tuple[Any, ...], standard_input: bytes, message: str
) -> None:
    result = CliRunner().invoke(app, [*map(str, ask_command), "-"], input=standard_input)
    assert result.exit_code == 2
    assert message in result.stderr
    assert "Traceback" not in result.output


def test_search_with_hyphen_reads_query_from_standard_input(ask_command: tuple[Any, ...]) -> None:
    result = CliRunner().invoke(app, ["search", str(ask_command[1]), "-", "--by", "bm25"], input="zinc\n")
    assert result.exit_code == 0, result.stderr
    assert "zinc#0" in result.stdout


def test_ask_with_failing_endpoint_reports_failure_once(
    run: Run, ask_command: tuple[Any, ...], endpoint: Endpoint
) -> None:
    endpoint.script[CHAT] = [REFUSED]
    result = run(*ask_command, "What does zinc do?")
    assert result.exit_code == 2
    assert "No answer (failed)" in result.stdout
    assert (result.stdout + result.stderr).count("(404)") == 1
    assert len(result.stderr.splitlines()) == 1


class ReversedReplies:
    """End calls in the opposite order of their arrival, `n` at a time."""

    def __init__(self, endpoint: Endpoint, n: int) -> None:
        self._arrivals = threading.Condition()
        self._number, self._n, self._open = 0, n, n - 1
        self._next, endpoint.next = endpoint.next, self.wait  # type: ignore[method-assign]

    def wait(self, path: str) -> Scripted:
        with self._arrivals:
            position, self._number = self._number, self._number + 1
            self._arrivals.notify_all()
            self._arrivals.wait_for(lambda: self._number >= self._n and self._open <= position, timeout=20)
            self._open = position - 1
            self._arrivals.notify_all()
        return self._next(path)


@pytest.mark.slow
def test_ask_file_with_answers_out_of_order_saves_them_in_question_order(
    run: Run, ask_command: tuple[Any, ...], endpoint: Endpoint, tmp_path: Path
) -> None:
    questions, output = tmp_path / "questions.jsonl", tmp_path / "answers.jsonl"
    rows = [{"id": str(number), "text": f"What does zinc do, {number}?"} for number in range(5)]
    questions.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    arguments = (*ask_command, "--file", questions, "-o", output, "--setting", f"questions_at_once={8}")
    ReversedReplies(endpoint, 5)
    first = run(*arguments)
    assert first.exit_code == 0, first.stderr
    assert [record["answer"]["question"]["id"] for record in records(output)] == ["0", "1", "2", "3", "4"]
    # As a kill leaves it: some of the answers, in the order in which they ended, and half of one.
    lines = output.read_bytes().splitlines(keepends=True)
    output.write_bytes(lines[4] + lines[1] + lines[2][:60])
    ReversedReplies(endpoint, 3)
    again = run(*arguments)
    assert again.exit_code == 0, again.stderr
    assert [record["answer"]["question"]["id"] for record in records(output)] == ["0", "1", "2", "3", "4"]
    assert output.stat().st_mode & 0o777 == 0o600
    assert {path.name for path in tmp_path.iterdir() if "answers" in path.name} <= {
        "answers.jsonl",
        ".answers.jsonl.lock",
    }


@pytest.mark.slow
def test_ask_file_after_failure_keeps_failed_record_before_answer(
    run: Run, ask_command: tuple[Any, ...], endpoint: Endpoint, tmp_path: Path
) -> None:
    questions, output = tmp_path / "questions.jsonl", tmp_path / "answers.jsonl"
    rows = [{"id": str(number), "text": f"What does zinc do, {number}?"} for number in range(2)]
    questions.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    endpoint.script[CHAT] = [REFUSED, HEALTHY]
    arguments = (*ask_command, "--file", questions, "-o", output, "--setting", f"questions_at_once={1}")
    assert run(*arguments).exit_code == 2
    shown = run(*arguments, "--json")
    assert shown.exit_code == 0, shown.stderr
    states = [(record["answer"]["question"]["id"], record["answer"]["state"]) for record in records(output)]
    assert states == [("0", "failed"), ("0", "answered"), ("1", "answered")]
    assert json.loads(shown.stdout)["usage"]["calls"] == 3


def test_ask_file_with_some_broken_lines_warns_counts_them_and_answers_the_others(
    run: Run, ask_command: tuple[Any, ...], tmp_path: Path
) -> None:
    questions, output = tmp_path / "questions.jsonl", tmp_path / "answers.jsonl"
    questions.write_text('{"id": "a", "text": "What does zinc do?"}\n{"id": "b"\n[]\n', encoding="utf-8")
    result = run(*ask_command, "--file", questions, "-o", output, "--json")
    assert result.exit_code == 0, result.stderr
    summary = json.loads(result.stdout)
    assert (summary["answered"], summary["skipped_lines"]) == (1, 2)
    assert len(records(output)) == 1
    warnings = result.stderr.splitlines()
    assert [line.partition(":")[0] for line in warnings] == ["warning"] * 3
    assert warnings[0].startswith(f"warning: {questions}, line 2: ")
    assert warnings[1].startswith(f"warning: {questions}, line 3: ")
    assert warnings[2] == f"warning: 2 lines of {questions} were skipped, as listed above"


def test_ask_file_with_only_broken_lines_fails(run: Run, ask_command: tuple[Any, ...], tmp_path: Path) -> None:
    questions, output = tmp_path / "questions.jsonl", tmp_path / "answers.jsonl"
    questions.write_text('{"id": "b"\n', encoding="utf-8")
    result = run(*ask_command, "--file", questions, "-o", output)
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1] == f"epicrisis: {questions} contains no readable question"
    assert not output.exists()
