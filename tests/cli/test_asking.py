"""`epicrisis ask`: where the question comes from, where its answer goes, and what is said when there is none."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from epicrisis.cli.app import app
from epicrisis.types import Document
from tests.cli.conftest import Run
from tests.cli.test_records import library
from tests.support.loopback import USAGE, Endpoint, Scripted, serving, sse

CHAT = "/v1/chat/completions"
REPLY = json.dumps({"result": {"found": True, "answer": "Zinc shortens it."}})
HEALTHY = Scripted(sse(*re.findall(r"\s*\S+", REPLY), usage=USAGE), kind="text/event-stream")
REFUSED = Scripted({"error": {"message": "no such model"}}, 404)


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    monkeypatch.setenv("EPICRISIS_MODELS__WRITER__CONTEXT_TOKENS", "8192")
    monkeypatch.setenv("EPICRISIS_MODELS__WRITER__TRIES", "1")
    monkeypatch.setenv("EPICRISIS_MODELS__WRITER__CONCURRENCY", "8")
    monkeypatch.setenv("EPICRISIS_CACHE__MODE", "off")
    with serving() as made:
        made.script[CHAT] = [HEALTHY]
        yield made


@pytest.fixture
def ask(endpoint: Endpoint, tmp_path: Path) -> tuple[Any, ...]:
    """The command so far: a library of one paper, and a model that needs no search."""
    papers = library(tmp_path / "papers", [Document("zinc", "Zinc shortens acute diarrhoea in children.")])
    return ("ask", papers, "--model", f"{endpoint.url}/v1#m", "--strategy", "closed-book")


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_output_of_one_question_holds_its_record(run: Run, ask: tuple[Any, ...], tmp_path: Path) -> None:
    output = tmp_path / "answer.jsonl"
    shown = run(*ask, "What does zinc do?", "-o", output)
    assert shown.exit_code == 0, shown.stderr
    assert "Zinc shortens it." in shown.stdout
    [record] = records(output)
    assert record["answer"]["question"]["text"] == "What does zinc do?"
    assert record["answer"]["text"] == "Zinc shortens it."
    other = run(*ask, "What does zinc do?", "-o", output, "--seed", 7)
    assert other.exit_code == 2
    assert "made with other settings" in other.stderr


@pytest.mark.parametrize("typed", ["What does zinc do?", "  What does zinc do?\n"])
def test_a_hyphen_reads_the_question_from_standard_input(ask: tuple[Any, ...], typed: str) -> None:
    result = CliRunner().invoke(app, [*map(str, ask), "-", "--json"], input=typed)
    assert json.loads(result.stdout)["question"]["text"] == "What does zinc do?"


@pytest.mark.parametrize(("typed", "why"), [(b"", "the question is empty"), (b"\xff\xfe", "UTF-8")])
def test_a_hyphen_without_a_question_on_standard_input_is_an_error(
    ask: tuple[Any, ...], typed: bytes, why: str
) -> None:
    result = CliRunner().invoke(app, [*map(str, ask), "-"], input=typed)
    assert result.exit_code == 2
    assert why in result.stderr
    assert "Traceback" not in result.output


def test_search_reads_its_query_from_standard_input(ask: tuple[Any, ...]) -> None:
    result = CliRunner().invoke(app, ["search", str(ask[1]), "-", "--by", "bm25"], input="zinc\n")
    assert result.exit_code == 0, result.stderr
    assert "zinc#0" in result.stdout


def test_a_failure_is_told_once(run: Run, ask: tuple[Any, ...], endpoint: Endpoint) -> None:
    endpoint.script[CHAT] = [REFUSED]
    result = run(*ask, "What does zinc do?")
    assert result.exit_code == 2
    assert "No answer (failed)" in result.stdout
    assert (result.stdout + result.stderr).count("404") == 1
    assert len(result.stderr.splitlines()) == 1


class Backwards:
    """Lets calls end in the opposite order of their coming, `n` at a time."""

    def __init__(self, endpoint: Endpoint, n: int) -> None:
        self._arrivals = threading.Condition()
        self._number, self._n, self._open = 0, n, n - 1
        self._next, endpoint.next = endpoint.next, self.wait  # type: ignore[method-assign]

    def wait(self, path: str) -> Scripted:
        with self._arrivals:
            mine, self._number = self._number, self._number + 1
            self._arrivals.notify_all()
            self._arrivals.wait_for(lambda: self._number >= self._n and self._open <= mine, timeout=20)
            self._open = mine - 1
            self._arrivals.notify_all()
        return self._next(path)


def test_the_answers_of_a_file_stand_in_the_order_of_its_questions(
    run: Run, ask: tuple[Any, ...], endpoint: Endpoint, tmp_path: Path
) -> None:
    questions, output = tmp_path / "questions.jsonl", tmp_path / "answers.jsonl"
    rows = [{"id": str(number), "text": f"What does zinc do, {number}?"} for number in range(5)]
    questions.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    arguments = (*ask, "--file", questions, "-o", output, "--setting", f"questions_at_once={8}")
    Backwards(endpoint, 5)
    first = run(*arguments)
    assert first.exit_code == 0, first.stderr
    assert [record["answer"]["question"]["id"] for record in records(output)] == ["0", "1", "2", "3", "4"]
    # As a kill leaves it: some of the answers, in the order in which they ended, and half of one.
    lines = output.read_bytes().splitlines(keepends=True)
    output.write_bytes(lines[4] + lines[1] + lines[2][:60])
    Backwards(endpoint, 3)
    again = run(*arguments)
    assert again.exit_code == 0, again.stderr
    assert [record["answer"]["question"]["id"] for record in records(output)] == ["0", "1", "2", "3", "4"]
    assert output.stat().st_mode & 0o777 == 0o600
    assert {path.name for path in tmp_path.iterdir() if "answers" in path.name} <= {
        "answers.jsonl",
        ".answers.jsonl.lock",
    }


def test_a_failed_try_stays_before_the_answer_to_the_same_question(
    run: Run, ask: tuple[Any, ...], endpoint: Endpoint, tmp_path: Path
) -> None:
    questions, output = tmp_path / "questions.jsonl", tmp_path / "answers.jsonl"
    rows = [{"id": str(number), "text": f"What does zinc do, {number}?"} for number in range(2)]
    questions.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    endpoint.script[CHAT] = [REFUSED, HEALTHY]
    arguments = (*ask, "--file", questions, "-o", output, "--setting", f"questions_at_once={1}")
    assert run(*arguments).exit_code == 2
    shown = run(*arguments, "--json")
    assert shown.exit_code == 0, shown.stderr
    told = [(record["answer"]["question"]["id"], record["answer"]["state"]) for record in records(output)]
    assert told == [("0", "failed"), ("0", "answered"), ("1", "answered")]
    assert json.loads(shown.stdout)["usage"]["calls"] == 3
