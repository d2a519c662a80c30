"""Test the plain run: all questions or a sample, and the leak guards (errata B15)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from epicrisis.core.errors import InputError
from epicrisis.core.types import Document
from epicrisis.evaluation.experiments.planning import plan_plain_run
from epicrisis.evaluation.experiments.recorded_rankings import Guard
from epicrisis.evaluation.runs.run_folder import RunPlan
from epicrisis.pipeline.components import LibrarySearch
from epicrisis.pipeline.pipeline import Pipeline
from epicrisis.pipeline.recording.case import Case
from epicrisis.settings.settings import ROLES, Settings
from epicrisis.testing.chat import ScriptedModel
from tests.support.hashed_encoder import opened_library


@pytest.fixture(scope="module")
def library_search(tmp_path_factory: pytest.TempPathFactory) -> LibrarySearch:
    path = tmp_path_factory.mktemp("evaluating") / "library"
    documents = [Document("old", "A trial of drugs.", date="2001-05-03"), Document("undated", "Drugs.")]
    return opened_library(path, documents)


def write_questions(path: Path, *gold: Sequence[str]) -> str:
    """Write a question set with these gold documents."""
    rows: list[dict[str, Any]] = [
        {"id": str(i), "text": f"Does drug {i} help?", "options": ["yes", "no"], "gold": "A", "gold_documents": names}
        for i, names in enumerate(gold)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def plan_run(
    questions: str, library_search: LibrarySearch | None, guard: Guard, **fields: Any
) -> tuple[RunPlan, tuple[Case, ...]]:
    settings = Settings(strategy="closed-book" if library_search is None else "rag")
    pipeline = Pipeline(settings, dict.fromkeys(ROLES, ScriptedModel(lambda request: "")), library_search)
    return plan_plain_run(questions, settings, pipeline, guard=guard, **fields)


def test_plan_plain_run_asks_all_questions_or_sample(tmp_path: Path, library_search: LibrarySearch) -> None:
    questions = write_questions(tmp_path / "set.jsonl", *[["old"]] * 6)
    plan, cases = plan_run(questions, library_search, "none")
    assert (plan.sample, plan.arguments) == ({"how": "all"}, {"guard": "none"})
    assert [case.question.id for case in cases] == list("012345")
    assert {(case.condition == {}, case.treatment.scope) for case in cases} == {(True, None)}
    plan, some = plan_run(questions, library_search, "none", n=3, draw=7)
    assert plan.sample == {"how": "at-random", "n": 3, "seed": 7}
    assert len(some) == 3
    assert {case.key for case in some} < {case.key for case in cases}


def test_plan_plain_run_guard_hides_source_or_later_documents(tmp_path: Path, library_search: LibrarySearch) -> None:
    questions = write_questions(tmp_path / "set.jsonl", ["old", "elsewhere"])
    _, (hidden,) = plan_run(questions, library_search, "source-hidden")
    assert hidden.treatment.scope is not None
    assert {"old", "elsewhere"} <= hidden.treatment.scope.hidden
    _, (before,) = plan_run(questions, library_search, "before-source")
    assert before.treatment.scope is not None
    assert before.treatment.scope.as_of == "2001-05-02"


@pytest.mark.parametrize(
    ("guard", "gold", "why"),
    [
        ("before-source", ["undated"], "none of the documents of question '0' has a date"),
        ("before-source", ["elsewhere"], "none of the documents of question '0' has a date"),
        ("source-hidden", [], "question '0' names no source document, so nothing can be hidden from it"),
        ("before-source", [], "question '0' names no source document"),
    ],
)
def test_plan_plain_run_with_inapplicable_guard_raises_input_error(
    tmp_path: Path, library_search: LibrarySearch, guard: Guard, gold: Sequence[str], why: str
) -> None:
    """Else the run would be called guarded and hide nothing."""
    with pytest.raises(InputError, match=why):
        plan_run(write_questions(tmp_path / "set.jsonl", gold), library_search, guard)


def test_plan_plain_run_without_library_refuses_guard(tmp_path: Path) -> None:
    questions = write_questions(tmp_path / "set.jsonl", ["old"])
    assert len(plan_run(questions, None, "none")[1]) == 1
    with pytest.raises(InputError, match="the strategy closed-book reads no library: leave the leak guard out"):
        plan_run(questions, None, "source-hidden")
