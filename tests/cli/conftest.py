"""Fixtures that run the program in this process, or in processes of their own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from epicrisis.cli.program import app
from tests.support.forked_cli import EXIT

Run = Callable[..., Result]


@pytest.fixture(autouse=True)
def _quiet_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a wide terminal without colours, so that lines are not wrapped."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")


@pytest.fixture
def run() -> Run:
    """Return a function that runs `epicrisis ARGUMENTS...`."""
    runner = CliRunner()
    return lambda *arguments: runner.invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def papers(tmp_path: Path) -> Path:
    """Return a file of three documents."""
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
    """Return a library of the three documents, created by the program itself."""
    path = tmp_path / "library"
    result = run("library", "add", path, papers)
    assert result.exit_code == 0, result.stderr
    return path


class Program:
    """Runs commands of the program in processes of their own, which may be killed or end by a signal."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.support.forked_cli"],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: object, **options: Any) -> int:
        """Return the exit code of one command, negative for a signal; `options` as in `tests.support.forked_cli`."""
        return self.run_all([arguments], **options)

    def run_all(self, commands: Sequence[Sequence[object]], **options: Any) -> int:
        """Run commands in turn in one process. Return the exit code of the last one."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        texts = [[str(argument) for argument in arguments] for arguments in commands]
        self._server.stdin.write(json.dumps({"commands": texts, "log": str(self._log), **options}) + "\n")
        self._server.stdin.flush()
        return int(self._server.stdout.readline())

    @property
    def output(self) -> str:
        """Return what the commands of the last process wrote, exit codes included."""
        return self._log.read_text("utf-8", errors="replace")

    @property
    def codes(self) -> list[int]:
        """Return the exit codes of the commands of the last process that ended by themselves."""
        return [int(code) for code in re.findall(rf"^{EXIT}(\d+)$", self.output, re.MULTILINE)]

    def close(self) -> None:
        assert self._server.stdin is not None
        self._server.stdin.close()
        self._server.wait(30)


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory, model_home: Path) -> Iterator[Program]:
    """Return the program in processes of their own, with heavy modules imported once."""
    with closing(Program(tmp_path_factory.mktemp("program") / "log.txt")) as server:
        yield server
