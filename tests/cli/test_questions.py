"""`epicrisis questions list`, `pull` and `generate`, with a source and a model on loopback."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from epicrisis.core.prompts import unfence
from epicrisis.evaluation.datasets import load
from tests.cli.conftest import Run
from tests.evaluation.datasets.hosted import BODY, NAME, hosted
from tests.support.hostile import HostileServer
from tests.support.loopback import Endpoint, Scripted, serving
from tests.support.replies import content_text


@pytest.fixture(autouse=True)
def _empty_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use an empty home, so that only replies of this test are cached."""
    monkeypatch.setenv("EPICRISIS_HOME", str(tmp_path / "home"))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Endpoint]:
    """Serve the only question set of the catalogue."""
    with serving() as endpoint:
        endpoint.script["/benchmark.json"] = [Scripted(BODY)]
        sets = hosted(endpoint.url, tmp_path)
        monkeypatch.setattr(load, "load_catalogue", lambda: sets)
        yield endpoint


def test_pull_downloads_question_set_once(run: Run, server: Endpoint, tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert "not pulled" in run("questions", "list", "--setting", f"home={home}").stdout
    pulled = run("questions", "pull", NAME, NAME, "--setting", f"home={home}")
    assert pulled.exit_code == 0
    file = home / "datasets" / "mirage" / "benchmark.json"
    assert pulled.stdout == f"{NAME}: 1 questions in {file} (MIT)\n"
    assert pulled.stderr == "", "no progress bar without a terminal"
    again = run("questions", "pull", NAME, "--setting", f"home={home}", "--local-only", "--json")
    assert json.loads(again.stdout) == {NAME: {"questions": 1, "files": [str(file)]}}
    assert again.stderr == ""
    (row,) = json.loads(run("questions", "list", "--setting", f"home={home}", "--json").stdout)
    assert (row["name"], row["questions"], row["here"], row["licence"]) == (NAME, 1, True, "MIT")
    assert row["sources"] == [f"{server.url}/benchmark.json"]
    assert len(server.asked) == 1


@pytest.mark.usefixtures("server")
def test_pull_writes_to_home_of_environment(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EPICRISIS_HOME", str(tmp_path / "other"))
    assert run("questions", "pull", NAME).exit_code == 0
    assert (tmp_path / "other" / "datasets" / "mirage" / "benchmark.json").is_file()


def test_pull_with_unknown_name_downloads_nothing(run: Run, server: Endpoint, tmp_path: Path) -> None:
    result = run("questions", "pull", NAME, "mirage", "--setting", f"home={tmp_path}")
    assert result.exit_code == 2
    assert result.stderr == f"epicrisis: no question set is called 'mirage'; known are {NAME}\n"
    assert server.asked == []


def test_pull_local_only_downloads_nothing(run: Run, server: Endpoint, tmp_path: Path) -> None:
    result = run("questions", "pull", NAME, "--setting", f"home={tmp_path / 'home'}", "--local-only")
    assert result.exit_code == 2
    assert "--local-only is on: pull it once without that option" in result.stderr
    assert server.asked == []


def test_pull_with_missing_file_reports_one_line(run: Run, server: Endpoint, tmp_path: Path) -> None:
    server.script["/benchmark.json"] = [Scripted("", 404)]
    result = run("questions", "pull", NAME, "--setting", f"home={tmp_path / 'home'}", "--json")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"epicrisis: {server.url}/benchmark.json cannot be fetched (status 404)")
    assert result.stderr.count("\n") == 1


def test_list_shows_every_question_set(run: Run, tmp_path: Path) -> None:
    output = run("questions", "list", "--setting", f"home={tmp_path}").stdout
    for question_set in load.load_catalogue().values():
        assert f"{question_set.count:,} questions" in output
        assert all(
            text in output
            for text in (question_set.name, question_set.description, question_set.licence, question_set.files[0].url)
        )


def propose_question(body: dict[str, Any]) -> str:
    """Return a question that quotes the last line of the document."""
    document = unfence(content_text(body["messages"][-1]["content"]))[0].splitlines()
    parts = dict.fromkeys(("population", "intervention", "comparison", "outcome"), "it")
    question = f"Is it so in {document[0]}?"
    result = {"found": True, "quote": document[-1], **parts, "question": question, "answer": "Yes."}
    return json.dumps({"result": result})


def test_generate_help_shows_example(run: Run) -> None:
    result = run("questions", "generate", "--help")
    assert result.exit_code == 0
    assert "--json" in result.stdout
    assert "epicrisis questions generate" in result.stdout


def test_generate_continues_existing_file(papers: Path, tmp_path: Path, run: Run) -> None:
    output = tmp_path / "questions.jsonl"
    with HostileServer(propose_question) as server:
        arguments = ("questions", "generate", papers, "--model", f"{server.url}#writer", "-o", output, "--seed", 3)
        first = run(*arguments, "-n", 2)
        assert first.exit_code == 0, first.output
        assert "2 passages; in" in first.stdout
        assert "2 questions proposed, 0 accepted, 0 rejected" in first.stdout
        assert "2 calls" in first.stdout
        continued = json.loads(run(*arguments, "-n", 50, "--json").stdout)
        assert (continued["drawn"], continued["lines"], continued["failed"]) == (3, {"proposed": 3}, 0)
        assert continued["usage"]["calls"] == 1
        assert server.ledger.calls == 3
    assert [json.loads(line)["state"] for line in output.read_text().splitlines()] == ["proposed"] * 3


def test_generate_within_budget_makes_no_call(papers: Path, tmp_path: Path, run: Run) -> None:
    with HostileServer(propose_question) as server:
        result = run(
            "questions",
            "generate",
            papers,
            "--model",
            f"{server.url}#writer",
            "-o",
            tmp_path / "q.jsonl",
            "--budget-tokens",
            100,
        )
        assert server.ledger.calls == 0
    assert result.exit_code == 2
    assert "raise --budget-tokens" in result.stderr
