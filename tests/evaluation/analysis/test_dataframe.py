"""Runs as a DataFrame."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from epicrisis.core.errors import InputError, ModelMissing
from epicrisis.evaluation.analysis.dataframe import runs_to_dataframe
from epicrisis.pipeline.recording.case import Condition
from tests.support import run_folders


def test_runs_to_dataframe_has_one_row_per_case_with_conditions_and_scores(tmp_path: Path) -> None:
    states = {0: True, 1: False}
    conditions: tuple[Condition, ...] = ({"arm": "rag", "k": 8}, {"arm": "brief-context", "k": 8})
    run = run_folders.folder(
        tmp_path / "positions", lambda number, _: states.get(number, "abstained"), conditions=conditions
    )
    answers = run_folders.answers(tmp_path / "answers.jsonl", lambda _: True)
    frame = runs_to_dataframe(run, answers)
    questions = len(run_folders.QUESTIONS)
    assert len(frame) == 3 * questions
    assert set(frame["condition.arm"].dropna()) == {"rag", "brief-context"}
    of_run = frame[frame["condition.arm"] == "rag"]
    assert list(of_run["state"]) == ["answered", "answered", *["abstained"] * (questions - 2)]
    assert list(of_run["right"][:2]) == [True, False]
    assert of_run["right"][2:].isna().all()
    assert frame[frame["condition.arm"].isna()]["right"].all()
    assert frame.groupby("question_key").size().eq(3).all()


def test_runs_to_dataframe_contains_no_text_of_questions_or_answers(tmp_path: Path) -> None:
    answers = run_folders.answers(tmp_path / "answers.jsonl", lambda _: True)
    text = runs_to_dataframe(answers).to_csv()
    question = run_folders.QUESTIONS[0]
    assert question.text not in text
    assert all(option not in text for option in question.options.values())


def test_runs_to_dataframe_of_missing_run_raises_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        runs_to_dataframe(tmp_path / "missing")


def test_runs_to_dataframe_without_pandas_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = run_folders.answers(tmp_path / "answers.jsonl", lambda _: True)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ModelMissing, match=r"epicrisis\[dataframe\]"):
        runs_to_dataframe(answers)
