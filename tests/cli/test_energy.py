"""What a run took is shown with its tables and kept in its folder: the real command, asking over loopback."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from epicrisis.evaluation.runs.energy import MeterUnavailable, RaplMeter
from epicrisis.evaluation.runs.run_folder import read_manifest
from epicrisis.testing.chat import ScriptedModel
from tests.cli.conftest import Run
from tests.support.served_models import served

TITLE = "Time, energy and CO2"


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EPICRISIS_CACHE__MODE", "off")
    monkeypatch.setenv("EPICRISIS_MODELS__WRITER__CONTEXT_TOKENS", "100000")
    path = tmp_path / "asked.jsonl"
    rows = [{"id": str(i), "text": f"Does it help, {i}?", "options": ["yes", "no"], "gold": "A"} for i in range(4)]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


def measured() -> bool:
    """Whether this machine's counters see its processors."""
    try:
        return RaplMeter().read() >= 0
    except MeterUnavailable:
        return False


def row(shown: str) -> Mapping[str, Any]:
    (table,) = [table for table in json.loads(shown)["findings"][0]["tables"] if table["title"] == TITLE]
    return dict(zip(table["columns"], table["rows"][0], strict=True))


def test_a_run_tells_what_it_took(run: Run, asked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody here knows what the endpoint takes, until the user says."""
    model = ScriptedModel(lambda _: json.dumps({"answer": "So it is.", "choice": "A"}))
    with served(model) as server:
        command = ("evaluate", asked, "--strategy", "closed-book", "--model", f"{server.url}#m", "--yes", "--json")
        result = run(*command, "-o", tmp_path / "run")
        assert result.exit_code == 0, result.stderr
        made = row(result.stdout)
        (session,) = read_manifest(tmp_path / "run").sessions
        assert session.taken is not None
        assert made["hours"] == session.taken.seconds / 3600 > 0
        assert (made["unknown"], made["kWh"] is None) == ((None, False) if measured() else ("endpoints", True))
        assert (made["questions"], made["calls"], made["sessions"]) == (4, 4, 1)

        monkeypatch.setenv("EPICRISIS_ENERGY__ENDPOINT_WATTS", "300")
        told = row(run(*command, "-o", tmp_path / "told").stdout)
    assert told["unknown"] is None
    assert told["kWh estimated"] >= 300 * told["hours"] / 1000
    assert told["kg CO2"] == pytest.approx(0.205 * told["kWh"])
    assert told["kWh per 1,000 questions"] == pytest.approx(250 * told["kWh"])
    assert told["Wh per right answer"] == pytest.approx(250 * told["kWh"])


def test_a_finished_run_that_is_asked_for_again_took_nothing_more(run: Run, asked: Path, tmp_path: Path) -> None:
    model = ScriptedModel(lambda _: json.dumps({"answer": "So it is.", "choice": "B"}))
    with served(model) as server:
        command = (
            "evaluate",
            asked,
            "--strategy",
            "closed-book",
            "--model",
            f"{server.url}#m",
            "--yes",
            "--json",
            "-o",
            tmp_path / "run",
        )
        shown = [run(*command).stdout for _ in range(2)]
    assert row(shown[0]) == row(shown[1])
    assert len(read_manifest(tmp_path / "run").sessions) == 2
