"""Blind judging and generated questions on the command line, against an endpoint on loopback."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from epicrisis.evaluation.runs.run_folder import RECORDS
from epicrisis.prompts import unfence
from epicrisis.testing.faults import Fault
from epicrisis.testing.hostile import HostileServer
from epicrisis.testing.replies import content_text
from tests.cli.conftest import Run
from tests.support.correctness_marks import folder_of, with_options
from tests.support.grading import records, said


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No reply is kept but those of this test."""
    monkeypatch.setenv("EPICRISIS_HOME", str(tmp_path / "home"))


@pytest.fixture
def medq(tmp_path: Path) -> Path:
    """A run's folder with six questions."""
    folder = tmp_path / "medq"
    folder.mkdir()
    (folder / RECORDS).write_text("".join(json.dumps(each) + "\n" for each in records(6)))
    return folder


def judges(body: dict[str, Any]) -> str:
    """Prefers the parts, wherever they stand."""
    return said("1" if "parts" in unfence(content_text(body["messages"][-1]["content"]))[0] else "2")


def marks(body: dict[str, Any]) -> str:
    """Finds the parts correct, and nothing else."""
    return said("correct" if "parts" in unfence(content_text(body["messages"][-1]["content"]))[2] else "incorrect")


def proposes(body: dict[str, Any]) -> str:
    document = unfence(content_text(body["messages"][-1]["content"]))[0].splitlines()
    told = dict.fromkeys(("population", "intervention", "comparison", "outcome"), "it")
    question = f"Is it so in {document[0]}?"
    result = {"found": True, "quote": document[-1], **told, "question": question, "answer": "Yes."}
    return json.dumps({"result": result})


@pytest.mark.parametrize(
    "command",
    [
        ("grade", "pairs"),
        ("grade", "preference"),
        ("grade", "correctness"),
        ("questions", "generate"),
    ],
)
def test_help_shows_an_example(command: tuple[str, ...], run: Run) -> None:
    result = run(*command, "--help")
    assert result.exit_code == 0
    assert "--json" in result.stdout
    assert f"epicrisis {' '.join(command)}" in result.stdout


def test_from_a_run_to_what_the_verdicts_come_to(medq: Path, tmp_path: Path, run: Run) -> None:
    folder, judged = tmp_path / "judging", tmp_path / "judged.jsonl"
    made = run("grade", "pairs", medq, "-o", folder)
    assert made.exit_code == 0, made.output
    assert "6 pairs in" in made.stdout
    assert "keep pairs.key.json away from the reviewers" in made.stdout
    with HostileServer(judges) as server:
        for _ in range(2):
            result = run("grade", "preference", folder, "--model", f"{server.url}#judge", "-o", judged)
            assert result.exit_code == 0, result.output
            assert "12 replies to 6 pairs in both orders" in result.stdout
        assert server.ledger.calls == 12, "nothing is asked twice"
    with (folder / "pairs.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = [{**row, "verdict": "1", "reviewer": "Anna"} for row in csv.DictReader(file)]
    with (tmp_path / "anna.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    result = run("grade", "verdicts", folder, tmp_path / "anna.csv", "--judged", judged)
    assert result.exit_code == 0, result.output
    assert "BriefContext's answer is better in 6, worse in 0 and the same in 0" in result.stdout
    assert "the first place wins 6 times, the second 0 times" in result.stdout
    told = json.loads(run("grade", "verdicts", folder, "--judged", judged, "--json").stdout)
    assert told["tables"][0]["title"] == "What was answered"
    assert len(told["conclusions"]) == 2


def test_failed_calls_are_told_and_asked_again(medq: Path, tmp_path: Path, run: Run) -> None:
    folder, judged = tmp_path / "judging", tmp_path / "judged.jsonl"
    run("grade", "pairs", medq, "-o", folder)
    config = tmp_path / "once.toml"
    config.write_text("[models.writer]\ntries = 1\n")
    with HostileServer(judges, script=[None, Fault.SERVER_ERROR]) as server:
        arguments = ("grade", "preference", folder, "--model", f"{server.url}#judge", "-o", judged, "--config", config)
        first = run(*arguments, "--setting", f"questions_at_once={1}")
        assert first.exit_code == 2
        assert "1 calls failed; the same command repeats them" in first.stderr
        assert run(*arguments).exit_code == 0
        assert server.ledger.calls == 13


def test_a_users_slips_are_told_in_one_line(medq: Path, tmp_path: Path, run: Run) -> None:
    folder = tmp_path / "judging"
    run("grade", "pairs", medq, "-o", folder)
    for arguments, message in (
        (("pairs", medq, "-o", folder), "holds pairs.csv already"),
        (("pairs", tmp_path / "none", "-o", tmp_path / "new"), "name the folder of a run, or a file of answers"),
        (("verdicts", folder), "there are no verdicts: name the files of reviewers"),
        (("verdicts", tmp_path, tmp_path / "x.csv"), "name a folder that `epicrisis grade pairs` wrote"),
        (("correctness", tmp_path), "name the folder of a run, or a file of answers"),
        (
            ("correctness", folder_of(tmp_path / "choices", [with_options("1")])),
            "has no answer to grade: choose a run of open",
        ),
        (("correctness", "--show", medq), "has no grades yet: let a model grade its answers with"),
        (("correctness", "--show", medq, folder / "pairs.jsonl"), "line 1, does not belong to a file of grades"),
    ):
        result = run("grade", *arguments)
        assert result.exit_code == 2
        assert message in result.stderr
        assert len(result.stderr.splitlines()) == 1


def test_what_quotes_patients_is_not_kept_among_the_models(medq: Path, tmp_path: Path, run: Run) -> None:
    lines = [json.loads(line) for line in (medq / RECORDS).read_text().splitlines()]
    for each in lines:
        each["answer"]["question"]["patient"] = "anna"
    (medq / RECORDS).write_text("".join(json.dumps(each) + "\n" for each in lines))
    run("grade", "pairs", medq, "-o", tmp_path / "judging")
    with HostileServer(judges) as server:
        result = run(
            "grade", "preference", tmp_path / "judging", "--model", f"{server.url}#judge", "-o", tmp_path / "out.jsonl"
        )
    assert result.exit_code == 0, result.output
    assert not list((tmp_path / "home").rglob("*")), "no cache of replies"
    elsewhere = run("grade", "preference", tmp_path / "judging", "--model", "https://models.invalid/v1#judge")
    assert (elsewhere.exit_code, "models.invalid is not this machine" in elsewhere.stderr) == (2, True)
    marked = run("grade", "correctness", medq, "--model", "https://models.invalid/v1#judge")
    assert (marked.exit_code, "give --allow-remote once" in marked.stderr) == (2, True)


def test_answers_are_marked_once_and_told_by_judge(medq: Path, run: Run) -> None:
    with HostileServer(marks) as server:
        for _ in range(2):
            result = run("grade", "correctness", medq, "--model", f"{server.url}#one")
            assert result.exit_code == 0, result.output
            assert "12 of 12 answers graded" in result.stdout
        assert server.ledger.calls == 12, "nothing is asked twice"
        file = next((medq / "marking").glob("*one.jsonl"))
        assert len(file.read_text().splitlines()) == 12
        told = json.loads(run("grade", "correctness", medq, "--model", f"{server.url}#two", "--json").stdout)
        assert (told["to_mark"], told["marks"]) == (12, {"judged": 12})
    result = run("grade", "correctness", "--show", medq)
    assert result.exit_code == 0, result.output
    assert "brief-context, by majority of 2 judges: 100.0 % of 6 are correct" in result.stdout
    assert "rag, by majority of 2 judges: 0.0 % of 6 are correct" in result.stdout
    assert "agree on 100.0 % of 12 answers" in result.stdout
    alone = json.loads(run("grade", "correctness", "--show", medq, file, "--json").stdout)
    assert [table["title"] for table in alone["tables"]] == [
        "How the open questions ended",
        "Marked against the reference",
    ]


def test_failed_marks_are_told_and_asked_again(medq: Path, tmp_path: Path, run: Run) -> None:
    config = tmp_path / "once.toml"
    config.write_text("[models.writer]\ntries = 1\n")
    with HostileServer(marks, script=[None, Fault.SERVER_ERROR]) as server:
        arguments = ("grade", "correctness", medq, "--model", f"{server.url}#judge", "--config", config)
        first = run(*arguments, "--setting", f"questions_at_once={1}")
        assert first.exit_code == 2
        assert "1 calls failed; the same command repeats them" in first.stderr
        assert run(*arguments).exit_code == 0
        assert server.ledger.calls == 13


def test_questions_are_proposed_and_go_on_where_they_were(papers: Path, tmp_path: Path, run: Run) -> None:
    output = tmp_path / "questions.jsonl"
    with HostileServer(proposes) as server:
        arguments = ("questions", "generate", papers, "--model", f"{server.url}#writer", "-o", output, "--seed", 3)
        first = run(*arguments, "-n", 2)
        assert first.exit_code == 0, first.output
        assert "2 passages; in" in first.stdout
        assert "2 questions proposed, 0 accepted, 0 rejected" in first.stdout
        assert "2 calls" in first.stdout
        more = json.loads(run(*arguments, "-n", 50, "--json").stdout)
        assert (more["drawn"], more["lines"], more["failed"]) == (3, {"proposed": 3}, 0)
        assert more["usage"]["calls"] == 1
        assert server.ledger.calls == 3
    assert [json.loads(line)["state"] for line in output.read_text().splitlines()] == ["proposed"] * 3


def test_a_budget_holds(papers: Path, tmp_path: Path, run: Run) -> None:
    with HostileServer(proposes) as server:
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
