"""`epicrisis grade` of open answers by pairs and by correctness, with a judge on loopback."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from epicrisis.core.prompts import unfence
from epicrisis.evaluation.runs.run_folder import RECORDS
from tests.cli.conftest import Run
from tests.support.correctness_marks import folder_of, with_options
from tests.support.faults import Fault
from tests.support.grading import records, said
from tests.support.hostile import HostileServer
from tests.support.replies import content_text


@pytest.fixture(autouse=True)
def _empty_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use an empty home, so that only replies of this test are kept."""
    monkeypatch.setenv("EPICRISIS_HOME", str(tmp_path / "home"))


@pytest.fixture
def medq(tmp_path: Path) -> Path:
    """Write the folder of a run with six questions."""
    folder = tmp_path / "medq"
    folder.mkdir()
    (folder / RECORDS).write_text("".join(json.dumps(record) + "\n" for record in records(6)))
    return folder


def prefer_parts(body: dict[str, Any]) -> str:
    """Return a verdict for the answer that mentions parts."""
    return said("1" if "parts" in unfence(content_text(body["messages"][-1]["content"]))[0] else "2")


def mark_parts_correct(body: dict[str, Any]) -> str:
    """Return correct for an answer that mentions parts, else incorrect."""
    return said("correct" if "parts" in unfence(content_text(body["messages"][-1]["content"]))[2] else "incorrect")


@pytest.mark.parametrize(
    "command",
    [
        ("grade", "pairs"),
        ("grade", "preference"),
        ("grade", "correctness"),
    ],
)
def test_grade_pairs_help_shows_example(command: tuple[str, ...], run: Run) -> None:
    result = run(*command, "--help")
    assert result.exit_code == 0
    assert "--json" in result.stdout
    assert f"epicrisis {' '.join(command)}" in result.stdout


@pytest.mark.slow
def test_grade_pairs_preference_and_verdicts_of_run(medq: Path, tmp_path: Path, run: Run) -> None:
    folder, judged = tmp_path / "judging", tmp_path / "judged.jsonl"
    result_of_pairs = run("grade", "pairs", medq, "-o", folder)
    assert result_of_pairs.exit_code == 0, result_of_pairs.output
    assert "6 pairs in" in result_of_pairs.stdout
    assert "keep pairs.key.json away from the reviewers" in result_of_pairs.stdout
    with HostileServer(prefer_parts) as server:
        for _ in range(2):
            result = run("grade", "preference", folder, "--model", f"{server.url}#judge", "-o", judged)
            assert result.exit_code == 0, result.output
            assert "12 replies to 6 pairs in both orders" in result.stdout
        assert server.ledger.calls == 12, "no call is repeated"
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
    output = json.loads(run("grade", "verdicts", folder, "--judged", judged, "--json").stdout)
    assert output["tables"][0]["title"] == "What was answered"
    assert len(output["conclusions"]) == 2


def test_preference_failed_call_is_repeated(medq: Path, tmp_path: Path, run: Run) -> None:
    folder, judged = tmp_path / "judging", tmp_path / "judged.jsonl"
    run("grade", "pairs", medq, "-o", folder)
    config = tmp_path / "once.toml"
    config.write_text("[models.writer]\ntries = 1\n")
    with HostileServer(prefer_parts, script=[None, Fault.SERVER_ERROR]) as server:
        arguments = ("grade", "preference", folder, "--model", f"{server.url}#judge", "-o", judged, "--config", config)
        first = run(*arguments, "--setting", f"questions_at_once={1}")
        assert first.exit_code == 2
        assert "1 call failed; the same command repeats them" in first.stderr
        assert run(*arguments).exit_code == 0
        assert server.ledger.calls == 13


def test_grade_pairs_invalid_input_reports_one_line(medq: Path, tmp_path: Path, run: Run) -> None:
    folder = tmp_path / "judging"
    run("grade", "pairs", medq, "-o", folder)
    for arguments, message in (
        (("pairs", medq, "-o", folder), "holds pairs.csv already"),
        (("pairs", tmp_path / "none", "-o", tmp_path / "new"), "give the folder of a run, or a file of answers"),
        (("verdicts", folder), "there are no verdicts: give the files of reviewers"),
        (("verdicts", tmp_path, tmp_path / "x.csv"), "give a folder that `epicrisis grade pairs` wrote"),
        (("correctness", tmp_path), "give the folder of a run, or a file of answers"),
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


@pytest.mark.slow
def test_preference_of_patient_answers_is_not_cached(medq: Path, tmp_path: Path, run: Run) -> None:
    lines = [json.loads(line) for line in (medq / RECORDS).read_text().splitlines()]
    for record in lines:
        record["answer"]["question"]["patient"] = "anna"
    (medq / RECORDS).write_text("".join(json.dumps(record) + "\n" for record in lines))
    run("grade", "pairs", medq, "-o", tmp_path / "judging")
    with HostileServer(prefer_parts) as server:
        result = run(
            "grade", "preference", tmp_path / "judging", "--model", f"{server.url}#judge", "-o", tmp_path / "out.jsonl"
        )
    assert result.exit_code == 0, result.output
    assert not list((tmp_path / "home").rglob("*")), "no cache of replies"
    refused = run("grade", "preference", tmp_path / "judging", "--model", "https://models.invalid/v1#judge")
    assert (refused.exit_code, "models.invalid is not this machine" in refused.stderr) == (2, True)
    refused_grading = run("grade", "correctness", medq, "--model", "https://models.invalid/v1#judge")
    assert (refused_grading.exit_code, "give --allow-remote once" in refused_grading.stderr) == (2, True)


@pytest.mark.slow
def test_correctness_repeated_calls_judge_once(medq: Path, run: Run) -> None:
    with HostileServer(mark_parts_correct) as server:
        for _ in range(2):
            result = run("grade", "correctness", medq, "--model", f"{server.url}#one")
            assert result.exit_code == 0, result.output
            assert "12 of 12 answers graded" in result.stdout
        assert server.ledger.calls == 12, "no call is repeated"
        file = next((medq / "marking").glob("*one.jsonl"))
        assert len(file.read_text().splitlines()) == 12
        output = json.loads(run("grade", "correctness", medq, "--model", f"{server.url}#two", "--json").stdout)
        assert (output["to_mark"], output["marks"]) == (12, {"judged": 12})
    result = run("grade", "correctness", "--show", medq)
    assert result.exit_code == 0, result.output
    assert "brief-context, by majority of 2 judges: 100.0 % of 6 are correct" in result.stdout
    assert "rag, by majority of 2 judges: 0.0 % of 6 are correct" in result.stdout
    assert "agree on 100.0 % of 12 answers" in result.stdout
    by_one_judge = json.loads(run("grade", "correctness", "--show", medq, file, "--json").stdout)
    assert [table["title"] for table in by_one_judge["tables"]] == [
        "How the open questions ended",
        "Marked against the reference",
    ]


@pytest.mark.slow
def test_correctness_failed_call_is_repeated(medq: Path, tmp_path: Path, run: Run) -> None:
    config = tmp_path / "once.toml"
    config.write_text("[models.writer]\ntries = 1\n")
    with HostileServer(mark_parts_correct, script=[None, Fault.SERVER_ERROR]) as server:
        arguments = ("grade", "correctness", medq, "--model", f"{server.url}#judge", "--config", config)
        first = run(*arguments, "--setting", f"questions_at_once={1}")
        assert first.exit_code == 2
        assert "1 call failed; the same command repeats them" in first.stderr
        assert run(*arguments).exit_code == 0
        assert server.ledger.calls == 13
