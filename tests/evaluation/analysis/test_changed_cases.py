"""The questions whose score changed from one run to another, as the comparison of runs counts them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from epicrisis.evaluation.analysis.changed_cases import list_changed_cases, make_changes_table
from epicrisis.evaluation.analysis.run_comparison import compare_runs
from epicrisis.evaluation.runs.recorded_run import open_runs
from tests.support.run_folders import folder


@pytest.mark.slow
def test_changes_are_those_that_the_comparison_counts(tmp_path: Path) -> None:
    folder(tmp_path / "one", lambda i, _: "failed" if i == 0 else i < 20)
    folder(tmp_path / "two", lambda i, _: "abstained" if i == 5 else i < 3 or 10 <= i < 30)
    one, two = open_runs([tmp_path / "one", tmp_path / "two"])
    changes = list_changed_cases(one, two)
    differences = compare_runs([one, two]).tables[-1]
    counts = Counter(case.change for case in changes)
    assert (counts["won"], counts["lost"]) == (differences.column("won")[0], differences.column("lost")[0])
    assert counts == {"lost": 7, "won": 11}
    assert [case.change for case in changes] == ["lost"] * 7 + ["won"] * 11
    abstained = next(case for case in changes if case.question_id == "5")
    assert (abstained.first.state, abstained.second.state, abstained.second.choice) == ("answered", "abstained", None)


@pytest.mark.slow
def test_cases_are_paired_under_the_same_condition(tmp_path: Path) -> None:
    conditions = [{"place": 0}, {"place": 100}]
    folder(tmp_path / "one", lambda i, condition: condition["place"] == 0, conditions=conditions)
    folder(tmp_path / "two", lambda i, condition: i > 0 and condition["place"] == 0, conditions=conditions)
    changes = list_changed_cases(*open_runs([tmp_path / "one", tmp_path / "two"]))
    (case,) = changes
    assert (case.question_id, case.change, case.conditions) == ("0", "lost", "place 0")


@pytest.mark.slow
def test_arms_that_differ_between_runs_are_compared(tmp_path: Path) -> None:
    folder(tmp_path / "one", lambda i, _: True, conditions=[{"arm": "rag"}])
    folder(tmp_path / "two", lambda i, _: i > 1, conditions=[{"arm": "brief-context"}])
    changes = list_changed_cases(*open_runs([tmp_path / "one", tmp_path / "two"]))
    assert [case.question_id for case in changes] == ["0", "1"]


def test_equal_runs_have_no_change(tmp_path: Path) -> None:
    for name in ("one", "two"):
        folder(tmp_path / name, lambda i, _: i % 2 == 0)
    changes = list_changed_cases(*open_runs([tmp_path / "one", tmp_path / "two"]))
    assert changes == ()
    assert make_changes_table(changes).rows == ()
