"""`epicrisis models recommend`: what fits the machine, as text and JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.models.test_recommendations import make_program


def test_recommend_shows_models_for_the_largest_card(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_program(tmp_path, "printf 'Small, 8192\\nLarge, 24564\\n'")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    shown = run("models", "recommend")
    assert "fit in 25.8 GB" in shown.stdout
    assert "Qwen3-32B, Q4_K_M: 19.8 GB file, Apache-2.0" in shown.stdout
    assert "[2] Card of II-Medical-32B-Preview" in shown.stdout
    reply = json.loads(run("models", "recommend", "--for", "judge", "--memory", "8", "--json").stdout)
    assert [card["memory_bytes"] for card in reply["machine"]["cards"]] == [8192 << 20, 24564 << 20]
    assert [model["name"] for model in reply["models"]] == ["Selene-1-Mini-Llama-3.1-8B"]


def test_recommend_without_fitting_model_says_so(run: Run) -> None:
    assert (
        "no model for judge is known to fit in 1.0 GB"
        in run("models", "recommend", "--memory", "1", "--for", "judge").stdout
    )
