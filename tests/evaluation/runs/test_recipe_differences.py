"""Test the differences of two recipes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from epicrisis.evaluation.runs.recorded_run import list_differences, open_runs
from epicrisis.system.jsonl_store import list_changes
from tests.support.run_folders import answers, folder, recipe

CHECKED = {"preflight": {"enabled": True, "n": 3}}
BY_GAP = {"preflight": {"enabled": True, "n": 3, "signal": "dense-gap"}}


@pytest.mark.slow
@pytest.mark.parametrize("as_answers", [True, False])
def test_list_differences_with_setting_missing_in_one_recipe_names_it(tmp_path: Path, as_answers: bool) -> None:
    """The papers' signal stands in no recipe."""
    paths = []
    for name, settings in (("papers", CHECKED), ("gap", BY_GAP)):
        result = recipe(**settings)
        one = answers(tmp_path / f"{name}.jsonl", lambda i: True, made_with=result)
        paths.append(one if as_answers else folder(tmp_path / name, lambda i, at: True, made_with=result))
    assert list_differences(*open_runs(paths)) == ("preflight.signal",)


def test_list_differences_with_file_without_plan_ignores_plan(tmp_path: Path) -> None:
    one = answers(tmp_path / "a.jsonl", lambda i: True)
    other = folder(tmp_path / "b", lambda i, at: True, made_with=recipe(k=8), arguments={"guard": "source-hidden"})
    assert list_differences(*open_runs([one, other])) == ("k",)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ({"a": 1}, {"a": 1}, ""),
        ({"b": {"c": {"d": 1, "e": 2}}, "a": 1}, {"b": {"c": {"d": 2, "e": 2}}, "a": 2}, "a, b.c.d"),
        ({"a": None}, {}, "a"),
        ({"a": {}}, {"a": 3}, "a"),
        ({"library": {"id": "x"}}, {}, "library"),
        ({"a": [{"b": 1}]}, {"a": [{"b": 2}]}, "a"),
    ],
)
def test_list_changes_names_changed_settings(old: dict[str, Any], new: dict[str, Any], said: str) -> None:
    assert list_changes(old, new) == list_changes(new, old) == said
