"""Test runs killed with SIGKILL: the resumed run equals an uninterrupted one, without repeated calls."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from epicrisis.evaluation.runs.run_folder import RECORDS, read_manifest
from epicrisis.pipeline.recording.answer_record import read_records
from tests.support.run_child import CASES
from tests.support.run_folders import remove_volatile

IN_FLIGHT = 8
"""Calls at once (the model's limit)."""
CALLS_OF_A_CASE = 3
"""At most: two parts and their summing up."""


class Child:
    """Runs the cases in processes of their own."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.run_child"],
            cwd=Path(__file__).parents[3],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, folder: Path, left: int = -1) -> int:
        arguments = [str(folder), str(folder) + ".sqlite", str(folder) + ".calls", left]
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(arguments) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())


@pytest.fixture(scope="module")
def child() -> Iterator[Child]:
    result = Child()
    yield result
    assert result.process.stdin is not None
    result.process.stdin.close()
    result.process.wait()


def read_comparable_records(folder: Path) -> dict[str, Any]:
    return {record.key: remove_volatile(record) for record in read_records(folder / RECORDS)}


def count_calls(folder: Path) -> Counter[str]:
    return Counter(Path(f"{folder}.calls").read_text(encoding="utf-8").splitlines())


@pytest.fixture(scope="module")
def complete_run(child: Child, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unbroken") / "run"
    assert child.run(folder) == 0
    assert set(count_calls(folder).values()) == {1}
    assert len(read_comparable_records(folder)) == len(CASES)
    return folder


@pytest.mark.slow
def test_run_killed_repeatedly_equals_uninterrupted_run(child: Child, complete_run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    kills = 0
    for remaining in (0, 7, 40, 50):
        assert child.run(folder, remaining) == -9
        kills += 1
        manifest = read_manifest(folder)
        assert not manifest.complete
        assert [session.ended for session in manifest.sessions] == [None] * kills
    done = len(list(read_records(folder / RECORDS)))
    assert 0 < done < len(CASES), "the kills came too early or too late: the test shows nothing"
    assert child.run(folder) == 0
    assert read_comparable_records(folder) == read_comparable_records(complete_run)
    result = count_calls(folder)
    assert result.keys() == count_calls(complete_run).keys()
    assert result.total() - len(result) <= kills * IN_FLIGHT, "no more than what was in flight is asked again"
    manifest = read_manifest(folder)
    assert manifest.complete
    assert manifest.states == read_manifest(complete_run).states
    assert [session.ended is None for session in manifest.sessions] == [True] * kills + [False]


@pytest.mark.long
def test_run_resumed_does_not_ask_recorded_cases_again(child: Child, tmp_path: Path) -> None:
    """Without a single reply kept: by the records alone."""
    folder = tmp_path / "run"
    assert child.run(folder, 60) == -9
    before, sample = read_comparable_records(folder), count_calls(folder)
    assert before
    for path in (*tmp_path.glob("run.sqlite*"), tmp_path / "run.calls"):
        path.unlink()
    assert child.run(folder) == 0
    after = read_comparable_records(folder)
    assert {key: after[key] for key in before} == before
    again = count_calls(folder) & sample
    assert again.total() <= 3 * CALLS_OF_A_CASE, "those of the three cases in flight at most"


@pytest.mark.long
def test_run_resumed_removes_incomplete_line(child: Child, complete_run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    content = (complete_run / RECORDS).read_bytes()
    cut = content.rindex(b"\n", 0, len(content) - 1) + 200
    (folder / RECORDS).write_bytes(content[:cut])
    (folder / "manifest.json").write_bytes((complete_run / "manifest.json").read_bytes())
    assert len(list(read_records(folder / RECORDS))) == len(CASES) - 1
    assert child.run(folder) == 0
    assert (folder / RECORDS).read_bytes().startswith(content[: cut - 199])
    assert read_comparable_records(folder) == read_comparable_records(complete_run)
