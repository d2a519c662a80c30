"""Test `epicrisis calibrate confidence` on answers of a scripted model, and the answers that then show the value."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from selectolax.lexbor import LexborHTMLParser
from typer.testing import CliRunner, Result

from epicrisis.cli.program import app
from epicrisis.core.protocols import ChatRequest
from epicrisis.testing.chat import ScriptedModel
from tests.cli.test_bad_input import assert_one_line
from tests.support.served_models import served

N = 80


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def write_questions(path: Path, numbers: range) -> Path:
    rows = []
    for number in numbers:
        options = {"A": "yes", "B": "no", "C": "maybe"}
        text = f"Does drug {number} help?"
        rows.append({"id": str(number), "text": text, "options": options, "gold": "ABC"[number % 3]})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def vote(request: ChatRequest) -> str:
    """Return a vote for the gold letter: nearly always for even questions, seldom for the others."""
    number = int(request.messages[-1].content.split("Does drug ")[-1].split(" help?")[0])
    dice = random.Random(f"{number} {request.seed}")
    gold = "ABC"[number % 3]
    right = dice.random() < (0.4 if number % 2 else 0.95)
    letter = gold if right else dice.choice([other for other in "ABC" if other != gold])
    return json.dumps({"reasoning": "So.", "result": {"found": True, "answer": "It is.", "choice": letter}})


@dataclass(frozen=True)
class Workspace:
    """A run of 80 questions by votes, its calibration, and the options that ask the same model."""

    folder: Path
    options: tuple[str, ...]
    calibrated: Result

    @property
    def run(self) -> Path:
        return self.folder / "run"

    @property
    def calibration(self) -> Path:
        return self.folder / "confidence.json"


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    folder = tmp_path_factory.mktemp("calibrate")
    questions = write_questions(folder / "questions.jsonl", range(N))
    with served(ScriptedModel(vote)) as server:
        options = ["--strategy", "self-consistency", "--model", server.url, "--setting", "cache.mode=off"]
        options += ["--setting", f"home={folder / 'home'}", "--setting", "votes.n=7"]
        result = invoke("evaluate", questions, *options, "-o", folder / "run", "--yes")
        assert result.exit_code == 0, result.stderr
        path = folder / "confidence.json"
        calibrated = invoke("calibrate", "confidence", "--file", folder / "run", "-o", path, "--json")
        yield Workspace(folder, tuple(options), calibrated)


def read_answers(run: Path) -> list[dict[str, Any]]:
    lines = (run / "records.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["answer"] for line in lines]


@pytest.mark.long
def test_recorded_answers_have_confidence_of_their_votes(workspace: Workspace) -> None:
    for answer in read_answers(workspace.run):
        if answer["state"] == "answered":
            share = answer["distribution"][answer["choice"]]
            assert answer["confidence"] == {"value": share, "components": {"votes": share}, "calibrated": None}
        else:
            assert answer["confidence"] is None


@pytest.mark.long
def test_calibration_reports_errors_before_and_after(workspace: Workspace) -> None:
    assert workspace.calibrated.exit_code == 0, workspace.calibrated.stderr
    shown = json.loads(workspace.calibrated.stdout)
    stored = json.loads(workspace.calibration.read_text(encoding="utf-8"))
    assert shown["calibration"] == stored
    assert (stored["strategy"], stored["components"]) == ("self-consistency", ["votes"])
    assert stored["slope"] > 0
    (table,) = shown["tables"]
    rows = {row[0]: dict(zip(table["columns"], row, strict=True)) for row in table["rows"]}
    assert rows["after, held out"]["Brier score"]["value"] < rows["share right alone, held out"]["Brier score"]["value"]
    assert rows["after, held out"]["ECE"] < 0.2


@pytest.mark.slow
def test_calibrated_answers_show_value_by_its_name(workspace: Workspace) -> None:
    setting = ("--setting", f"calibration={workspace.calibration}")
    question = "Does drug 8 help?"
    plain = invoke("ask", workspace.folder, question, "--options", "yes,no,maybe", *workspace.options)
    assert plain.exit_code == 0, plain.stderr
    assert "Confidence 0.86 from share of the votes 0.86; not calibrated" in plain.stdout
    shown = invoke("ask", workspace.folder, question, "--options", "yes,no,maybe", *workspace.options, *setting)
    assert shown.exit_code == 0, shown.stderr
    stored = json.loads(workspace.calibration.read_text(encoding="utf-8"))
    expected = 1 / (1 + math.exp(-(stored["intercept"] + stored["slope"] * 6 / 7)))
    assert f"Calibrated confidence {expected:.2f} (0.86 from share of the votes 0.86)" in shown.stdout


def test_calibration_of_another_strategy_is_named_and_not_used(workspace: Workspace) -> None:
    stored = json.loads(workspace.calibration.read_text(encoding="utf-8"))
    other = workspace.folder / "other.json"
    other.write_text(json.dumps({**stored, "strategy": "medprompt"}), encoding="utf-8")
    arguments = ("ask", workspace.folder, "Does drug 8 help?", "--options", "yes,no,maybe", *workspace.options)
    shown = invoke(*arguments, "--setting", f"calibration={other}")
    assert shown.exit_code == 0, shown.stderr
    assert "not calibrated: other.json was fitted to answers of medprompt" in shown.stdout
    assert "Calibrated confidence" not in shown.stdout


@pytest.mark.parametrize("content", ["", "[]", '{"slope": 1}', "no json"])
def test_file_without_calibration_is_refused(workspace: Workspace, content: str) -> None:
    damaged = workspace.folder / "damaged.json"
    damaged.write_text(content, encoding="utf-8")
    arguments = ("ask", workspace.folder, "Does it help?", "--options", "yes,no", *workspace.options)
    assert_one_line(invoke(*arguments, "--setting", f"calibration={damaged}"), "calibrate confidence", "leave it out")


@pytest.mark.long
def test_report_shows_risk_coverage_curve(workspace: Workspace) -> None:
    page = workspace.folder / "report.html"
    result = invoke("report", workspace.run, "-o", page)
    assert result.exit_code == 0, result.stderr
    text = LexborHTMLParser(page.read_text(encoding="utf-8")).body
    assert text is not None
    assert "Selective prediction: area under the risk-coverage curve" in text.text()
    assert "Risk-coverage curve" in text.text()


@pytest.mark.slow
def test_few_answers_are_refused_and_nothing_is_written(workspace: Workspace, tmp_path: Path) -> None:
    questions = write_questions(tmp_path / "few.jsonl", range(12))
    run = tmp_path / "run"
    assert invoke("evaluate", questions, *workspace.options, "-o", run, "--yes").exit_code == 0
    path = tmp_path / "confidence.json"
    assert_one_line(invoke("calibrate", "confidence", "--file", run, "-o", path), "too few", "At least 50")
    assert not path.exists()


def test_questions_without_answers_are_refused_with_command(workspace: Workspace) -> None:
    questions = workspace.folder / "questions.jsonl"
    assert_one_line(invoke("calibrate", "confidence", "--file", questions), "epicrisis ask LIBRARY --file")


def test_missing_file_is_refused(tmp_path: Path) -> None:
    assert_one_line(invoke("calibrate", "confidence", "--file", tmp_path / "none.jsonl"), "does not exist")
