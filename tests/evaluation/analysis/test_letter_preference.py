"""Models that nearly always choose the same letter."""

from __future__ import annotations

from pathlib import Path

from epicrisis.evaluation.experiments.run_findings import describe_letter_preferences, read_findings
from epicrisis.evaluation.runs.recorded_run import open_runs
from tests.support.run_folders import folder


def test_model_that_chooses_one_letter_is_remarked_on(tmp_path: Path) -> None:
    # Right for every third question, whose letter is A. Wrong answers choose A otherwise.
    path = folder(tmp_path / "run", lambda i, _: i % 3 == 0)
    (remark,) = describe_letter_preferences(open_runs([path]))
    assert "chooses A in 100 % of 40 choices, and A is right in 35 %" in remark
    assert remark in read_findings([path])[0].conclusions


def test_right_model_is_not_remarked_on(tmp_path: Path) -> None:
    path = folder(tmp_path / "run", lambda *_: True)
    assert list(describe_letter_preferences(open_runs([path]))) == []


def test_few_choices_are_not_remarked_on(tmp_path: Path) -> None:
    path = folder(tmp_path / "run", lambda i, _: i == 0 if i < 10 else "abstained")
    assert list(describe_letter_preferences(open_runs([path]))) == []
