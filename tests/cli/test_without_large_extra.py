"""A small library needs neither LanceDB nor pyarrow."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.long
@pytest.mark.models
def test_program_without_large_extra_adds_searches_answers_and_serves(tmp_path: Path, model_home: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.without_large", str(tmp_path)],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "COLUMNS": "200", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    outputs = json.loads(done.stdout)
    assert "2 documents added" in outputs["add"]
    assert "preterm pre-eclampsia" in outputs["words"]
    assert "Zinc" in outputs["hybrid"]
    assert "Zinc shortens acute diarrhoea" in outputs["evidence"]
    assert "passages.sqlite" in outputs["info"]
    assert "small enough for exact search" in outputs["optimize"]
    assert "anna" in outputs["patients"]
    assert json.loads(outputs["serve"])["state"] == "answered"
    assert (tmp_path / "lib" / "passages.sqlite").is_file()
