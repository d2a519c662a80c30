"""What the tests of the experiments share: made-up questions whose key passages are known, what is found for them, and
a run of cases on a reader."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from epicrisis.core.protocols import ChatModel
from epicrisis.core.types import Passage, Question, Ranking
from epicrisis.evaluation.analysis.table import Cell, Table
from epicrisis.evaluation.experiments.arms import ExampleFinder, Study
from epicrisis.evaluation.experiments.definition import CaseInputs
from epicrisis.evaluation.experiments.passage_source import PassageSource
from epicrisis.evaluation.experiments.study_protocols import PROTOCOLS
from epicrisis.evaluation.runs.outcomes import Outcome, score_records
from epicrisis.evaluation.runs.run_folder import RECORDS, Run, RunPlan
from epicrisis.pipeline.pipeline import Pipeline
from epicrisis.pipeline.recording.answer_record import read_records
from epicrisis.pipeline.recording.case import Case
from epicrisis.pipeline.recording.runner import answer_cases
from epicrisis.retrieval.rankings import rank_in_order
from epicrisis.settings.settings import ROLES, Settings
from epicrisis.testing.chat import ScriptedModel
from epicrisis.testing.scorers import TermOverlapReranker
from tests.support.position_biased_reader import KeyPassage, PositionCurve, position_biased_reader

FOUND = 40
"""Passages found for a question."""


def passage(document: str, text: str, ordinal: int = 0) -> Passage:
    return Passage(id=f"{document}#{ordinal}", document_id=document, ordinal=ordinal, start=0, end=len(text), text=text)


def questions(n: int) -> list[Question]:
    """Three options; the gold letters take turns."""
    options = {"A": "yes", "B": "no", "C": "maybe"}
    return [
        Question(
            f"Does drug {i} help in disease {i}?",
            options=options,
            form="choice",
            id=str(i),
            gold="ABC"[i % 3],
            gold_documents=(f"gold:{i}",),
        )
        for i in range(n)
    ]


def key_of(question: Question) -> Passage:
    return passage(
        f"gold:{question.id}", f"Trial number {question.id} found the answer on drug {question.id} and tells it here."
    )


def found_for(question: Question) -> list[Passage]:
    """The key passage is among the first seven."""
    others = [
        passage(f"doc:{question.id}:{j}", f"Study {j} saw disease {question.id} in {j} towns.") for j in range(FOUND)
    ]
    place = int(question.id) % 7
    return [*others[:place], key_of(question), *others[place:]]


def retrieve(question: Question, k: int) -> Ranking:
    return rank_in_order(found_for(question)[:k], "dense", {"k": k})


def evidence(**changes: Any) -> PassageSource:
    """By words the key passage comes first, then the rest by id; the pool holds passages of no question."""
    made: dict[str, Any] = {
        "retrieve": retrieve,
        "gold_passages": lambda question: {f"gold:{question.id}": (key_of(question),)},
        "words": lambda question, ids: [
            (id_, -float(rank))
            for rank, id_ in enumerate(sorted(ids, key=lambda id_: (not id_.startswith("gold"), id_)))
        ],
        "reranker": ("overlap", TermOverlapReranker()),
        "pool": lambda: [passage(f"pool:{j}", f"Elsewhere {j} things were seen.") for j in range(60)],
    }
    return PassageSource(**{**made, **changes})


def reader(asked: Sequence[Question], curve: PositionCurve) -> ScriptedModel:
    return position_biased_reader({q.text: KeyPassage(key_of(q).text, q.gold or "") for q in asked}, curve)


def build_cases(
    module: Any,
    asked: Sequence[Question] | Mapping[str, Sequence[Question]],
    study: Study | None = None,
    *,
    examples: Mapping[str, ExampleFinder] | None = None,
    settings: Settings | None = None,
    **grid: Any,
) -> tuple[Case, ...]:
    """Return the cases of a module's experiment; without `grid` those of its default grid, at one temperature."""
    by_set = asked if isinstance(asked, Mapping) else {"own": asked}
    study = study or Study(PassageSource(), PROTOCOLS["corrected"])
    study = study if examples is None else replace(study, examples=examples)
    conditions = replace(module.EXPERIMENT.grid, **{"temperatures": (), **grid})
    cases: tuple[Case, ...] = module.EXPERIMENT.cases(CaseInputs(by_set, study, conditions, settings or Settings()))
    return cases


def plan(pipeline: Pipeline, **changes: Any) -> RunPlan:
    made: dict[str, Any] = {
        "name": "positions",
        "arguments": {"ks": (8, 16), "protocol": "corrected"},
        "recipe": pipeline.recipe(),
        "dataset": {"name": "made-up", "sha256": "0" * 64, "n": 60},
        "sample": {"how": "at-random", "n": 60, "seed": 0},
        "seed": 0,
    }
    return RunPlan(**{**made, **changes})


async def answer(cases: Sequence[Case], model: ChatModel, folder: Path, at_once: int = 8) -> None:
    async with Pipeline(
        Settings(strategy="rag", unverified="keep", citing="quotes"), dict.fromkeys(ROLES, model)
    ) as pipeline:
        with Run.open(folder, plan(pipeline), cases) as run:
            async for _ in answer_cases(pipeline, cases, run.records, at_once):
                pass


def run(cases: Sequence[Case], model: ChatModel, folder: Path) -> tuple[Outcome, ...]:
    """The cases' outcomes, through the records."""
    asyncio.run(answer(cases, model, folder))
    return score_records(read_records(folder / RECORDS))


def rows(table: Table) -> list[Mapping[str, Any]]:
    """Rows as mappings; of columns of one name the last counts."""
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def row(table: Table, *labels: Cell) -> Mapping[str, Any]:
    """The one row that begins with these cells."""
    (found,) = [cells for cells in table.rows if cells[: len(labels)] == labels]
    return dict(zip(table.columns, found, strict=True))


def near(value: float, probability: float, n: int) -> bool:
    """Within 3.3 standard errors of the expected share; exactly there where it is 0 or 1."""
    return abs(value - probability) <= 3.3 * math.sqrt(probability * (1 - probability) / n) + 1e-12
