"""Time and energy of a run, in its tables and in its folder, against an endpoint on loopback."""

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
def question_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EPICRISIS_CACHE__MODE", "off")
    monkeypatch.setenv("EPICRISIS_MODELS__WRITER__CONTEXT_TOKENS", "100000")
    path = tmp_path / "asked.jsonl"
    rows = [{"id": str(i), "text": f"Does it help, {i}?", "options": ["yes", "no"], "gold": "A"} for i in range(4)]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


def has_energy_meter() -> bool:
    """Return whether this machine has readable energy counters."""
    try:
        return RaplMeter().read() >= 0
    except MeterUnavailable:
        return False


def energy_row(output: str) -> Mapping[str, Any]:
    (table,) = [table for table in json.loads(output)["findings"][0]["tables"] if table["title"] == TITLE]
    return dict(zip(table["columns"], table["rows"][0], strict=True))


@pytest.mark.slow
def test_evaluate_shows_time_and_energy(
    run: Run, question_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The endpoint's power is unknown until a setting gives it."""
    model = ScriptedModel(lambda _: json.dumps({"answer": "So it is.", "choice": "A"}))
    with served(model) as server:
        command = (
            "evaluate",
            question_file,
            "--strategy",
            "closed-book",
            "--model",
            f"{server.url}#m",
            "--yes",
            "--json",
        )
        result = run(*command, "-o", tmp_path / "run")
        assert result.exit_code == 0, result.stderr
        without_power = energy_row(result.stdout)
        (session,) = read_manifest(tmp_path / "run").sessions
        assert session.taken is not None
        assert without_power["hours"] == session.taken.seconds / 3600 > 0
        assert (without_power["unknown"], without_power["kWh"] is None) == (
            (None, False) if has_energy_meter() else ("endpoints", True)
        )
        assert (without_power["questions"], without_power["calls"], without_power["sessions"]) == (4, 4, 1)

        monkeypatch.setenv("EPICRISIS_ENERGY__ENDPOINT_WATTS", "300")
        with_power = energy_row(run(*command, "-o", tmp_path / "told").stdout)
    assert with_power["unknown"] is None
    assert with_power["kWh estimated"] >= 300 * with_power["hours"] / 1000
    assert with_power["kg CO2"] == pytest.approx(0.205 * with_power["kWh"])
    assert with_power["kWh per 1,000 questions"] == pytest.approx(250 * with_power["kWh"])
    assert with_power["Wh per right answer"] == pytest.approx(250 * with_power["kWh"])


@pytest.mark.slow
def test_finished_run_repeated_adds_no_energy(run: Run, question_file: Path, tmp_path: Path) -> None:
    model = ScriptedModel(lambda _: json.dumps({"answer": "So it is.", "choice": "B"}))
    with served(model) as server:
        command = (
            "evaluate",
            question_file,
            "--strategy",
            "closed-book",
            "--model",
            f"{server.url}#m",
            "--yes",
            "--json",
            "-o",
            tmp_path / "run",
        )
        outputs = [run(*command).stdout for _ in range(2)]
        shown = run(*(word for word in command if word != "--json")).stdout
    assert energy_row(outputs[0]) == energy_row(outputs[1])
    assert "share right" in shown
    assert TITLE not in shown, "a small run shows its results, and its report what it took"
    assert len(read_manifest(tmp_path / "run").sessions) == 3
