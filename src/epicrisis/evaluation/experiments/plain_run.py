"""The plain run: each question of a set asked once, as the settings say."""

from __future__ import annotations

from pathlib import Path

from epicrisis.components import build_scope
from epicrisis.errors import InputError
from epicrisis.evaluation.datasets.dataset import sample_at_random
from epicrisis.evaluation.datasets.load import load_dataset
from epicrisis.evaluation.experiments.recorded_rankings import Guard, guard_scope
from epicrisis.evaluation.runs.case import Case
from epicrisis.evaluation.runs.run_folder import RunPlan, describe_dataset
from epicrisis.overrides import RunOverrides
from epicrisis.pipeline import WITHOUT_LIBRARY, Pipeline
from epicrisis.settings import Settings
from epicrisis.types import Question

NAME = "evaluate"


def plan_plain_run(
    questions: str,
    settings: Settings,
    pipeline: Pipeline,
    *,
    data: Path | None = None,
    n: int | None = None,
    draw: int = 0,
    guard: Guard = "none",
) -> tuple[RunPlan, tuple[Case, ...]]:
    """Build the plan and the cases: all questions of the set with that name or path, or a sample of `n` by seed `draw`.

    Raises InputError for a missing library or set, too few questions, or a guard that cannot be applied.
    """
    if pipeline.search is None and settings.strategy not in WITHOUT_LIBRARY:
        raise InputError(f"the strategy {settings.strategy} reads a library: name one with --library")
    dataset = load_dataset(questions, settings.home, data)
    sample = dataset if n is None else sample_at_random(dataset, n, draw)
    plan = RunPlan(
        name=NAME,
        arguments={"guard": guard},
        recipe=pipeline.recipe(),
        dataset=describe_dataset(dataset),
        sample={"how": "all"} if n is None else {"how": "at-random", "n": n, "seed": draw},
        seed=settings.seed,
    )
    return plan, tuple(_build_case(question, settings, pipeline, guard) for question in sample.questions)


def _build_case(question: Question, settings: Settings, pipeline: Pipeline, guard: Guard) -> Case:
    if guard == "none":
        return Case(question)
    if pipeline.search is None:
        raise InputError(f"the strategy {settings.strategy} reads no library: leave the leak guard out")
    if not question.gold_documents:
        raise InputError(
            f"question {question.id!r} names no source document, so nothing can be hidden from it: give it "
            "gold_documents, or leave the leak guard out"
        )
    scope = guard_scope(question, guard, build_scope(settings.scope, question=question), pipeline.search.library)
    if scope is None:
        raise InputError(
            f"none of the documents of question {question.id!r} has a date in the library, so older documents cannot "
            "be told apart: leave such questions out, or guard by source-hidden"
        )
    return Case(question, treatment=RunOverrides(scope=scope))
