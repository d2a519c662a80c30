"""The program, run in this process with its standard streams caught."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from epicrisis.cli.app import app

Run = Callable[..., Result]


@pytest.fixture(autouse=True)
def _quiet_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wide, plain terminal, so that lines are not broken where a test looks."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")


@pytest.fixture
def run() -> Run:
    """Runs `epicrisis ARGUMENTS...`."""
    runner = CliRunner()
    return lambda *arguments: runner.invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def papers(tmp_path: Path) -> Path:
    """Three documents."""
    rows: list[dict[str, Any]] = [
        {"id": "a", "title": "Aspirin", "text": "Aspirin lowers the risk of preterm pre-eclampsia.", "date": "2017"},
        {"id": "b", "title": "Statins", "text": "Simvastatin lowers mortality in coronary disease.", "date": "1994"},
        {"id": "c", "title": "Zinc", "text": "Zinc shortens acute diarrhoea in children.", "date": "2002-05"},
    ]
    path = tmp_path / "papers.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture
def small_library(tmp_path: Path, papers: Path, run: Run, model_home: Path) -> Path:
    """A library of the three documents, made by the program itself."""
    path = tmp_path / "library"
    result = run("library", "add", path, papers)
    assert result.exit_code == 0, result.stderr
    return path
