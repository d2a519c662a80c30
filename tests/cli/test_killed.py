"""kill -9 of the program itself: the same command run again ends as one that nobody killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from epicrisis.library import journal
from epicrisis.library.folder import clear
from epicrisis.library.library import Library
from epicrisis.library.manifest import read_manifest

pytestmark = pytest.mark.models


class Program:
    """Runs commands of the program in processes that may be killed."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.cli.forked"],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: object, **more: Any) -> int:
        """Returns the exit code, -9 for a process that was killed. `said` then holds what it wrote."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        request = {"arguments": [str(argument) for argument in arguments], "log": str(self.log), **more}
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        return int(self._server.stdout.readline())

    @property
    def said(self) -> str:
        return self.log.read_text("utf-8")

    def close(self) -> None:
        assert self._server.stdin is not None
        self._server.stdin.close()
        self._server.wait(30)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory, model_home: Path) -> Iterator[Program]:
    with closing(Program(tmp_path_factory.mktemp("program") / "log.txt")) as one:
        yield one


def holds_all(folder: Path) -> bool:
    """Whether the library is sound and holds the three papers."""
    with Library.open(folder) as library:
        info = library.info()
    return (info.documents, info.passages, info.problems) == (3, 3, ())


@pytest.mark.parametrize("number", [2, 6, 24])
def test_add_killed_during_creation_continues(number: int, program: Program, papers: Path, tmp_path: Path) -> None:
    """Killed before the lock is written, with the manifest alone, and among the parts."""
    folder = tmp_path / "library"
    code = program.run("library", "add", folder, papers, kill_at=number, folder=str(folder))
    assert code == -signal.SIGKILL
    assert program.run("library", "add", folder, papers) == 0, program.said
    assert holds_all(folder)


def test_repair_of_an_incomplete_library_completes_it(program: Program, papers: Path, tmp_path: Path) -> None:
    folder = tmp_path / "library"
    assert program.run("library", "add", folder, papers, kill_at=24, folder=str(folder)) == -signal.SIGKILL
    assert not read_manifest(folder).complete
    assert program.run("library", "repair", folder) == 0, program.said
    assert "0 documents" in program.said
    assert program.run("library", "add", folder, papers) == 0, program.said
    assert holds_all(folder)


def test_rollback_journal_of_a_killed_creation_is_removed(tmp_path: Path) -> None:
    """SQLite would apply it to the new file of the same name."""
    beside = tmp_path / f"{journal.NAME}-journal"
    beside.write_bytes(b"left by a kill")
    clear(tmp_path, journal.NAME)
    assert not beside.exists()
