"""A small library to start from, and processes that die on command."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import cache
from pathlib import Path

import pytest

from epicrisis.library.engines.engine_choice import TableEngine
from tests.support.library_documents import COUNT, add, create


class Killer:
    """Starts processes that die at a named moment."""

    def __init__(self, log: Path) -> None:
        self._log = log
        with log.open("w") as errors:
            self._server = subprocess.Popen(
                [sys.executable, "-m", "tests.support.crash_child"],
                cwd=Path(__file__).parents[2],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def run(self, action: str, folder: Path, moment: str, passes: int, *, version: int = 1, count: int = COUNT) -> bool:
        """Return True if the process was killed, False if it finished before."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        acknowledged = folder.with_suffix(".acknowledged")
        arguments = [action, folder, acknowledged, version, count, moment, passes]
        self._server.stdin.write(json.dumps([str(argument) for argument in arguments]) + "\n")
        self._server.stdin.flush()
        code = int(self._server.stdout.readline())
        assert code in (0, -signal.SIGKILL), self._log.read_text()
        return code != 0

    def kill(self, action: str, folder: Path, moment: str, passes: int) -> None:
        assert self.run(action, folder, moment, passes), f"{moment} never came to pass"

    def close(self) -> None:
        assert self._server.stdin is not None
        self._server.stdin.close()
        self._server.wait(30)


@pytest.fixture(scope="session")
def killer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Killer]:
    with closing(Killer(tmp_path_factory.mktemp("killer") / "errors.txt")) as one:
        yield one


BOTH_ENGINES = pytest.mark.parametrize("engine", ["sqlite", "lance"])
"""Runs a test with a library of each engine. Others use the engine of new libraries."""


@pytest.fixture
def engine() -> TableEngine:
    return "sqlite"


@pytest.fixture(scope="session")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Callable[[TableEngine], Path]:
    """Return a function that returns a closed library with version 0 of half of the corpus."""

    @cache
    def make(engine: TableEngine) -> Path:
        folder = tmp_path_factory.mktemp("base") / "library"
        with create(folder, engine) as library:
            add(library, 0, COUNT // 2)
        return folder

    return make


@pytest.fixture
def base(bases: Callable[[TableEngine], Path], engine: TableEngine) -> Path:
    return bases(engine)


@pytest.fixture
def folder(base: Path, tmp_path: Path) -> Path:
    """Return a copy of `base` to break."""
    copy = tmp_path / "library"
    shutil.copytree(base, copy)
    return copy
