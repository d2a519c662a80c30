"""Selecting and grouping outcomes: the steps that the tables of most experiments share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import TypeAlias

from epicrisis.evaluation.analysis.table import Cell, Table
from epicrisis.evaluation.experiments.arms import condition_order
from epicrisis.evaluation.runs.outcomes import Outcome, score_records
from epicrisis.evaluation.runs.recorded_run import RecordedRun

OutcomesByModel: TypeAlias = Mapping[str, Sequence[Outcome]]
"""The outcomes of each run, by the name of its model."""


def read_outcomes(runs: Iterable[RecordedRun]) -> dict[str, list[Outcome]]:
    """Read the outcomes of each run, by arm, condition and question, whatever ended first."""

    def place(outcome: Outcome) -> tuple[tuple[float, ...], str]:
        return condition_order(outcome.condition), outcome.question

    return {run.name: sorted(score_records(run.records()), key=place) for run in runs}


def select(cases: Iterable[Outcome], **conditions: Cell) -> list[Outcome]:
    """Return the outcomes whose conditions equal `conditions`. None matches outcomes without that condition."""
    names, values = tuple(conditions), tuple(conditions.values())
    return [outcome for outcome in cases if tuple(map(outcome.condition.get, names)) == values]


def values_of(cases: Iterable[Outcome], name: str) -> list[Cell]:
    """Return the distinct values of a condition, in order of appearance. Outcomes without it are ignored."""
    return list(dict.fromkeys(outcome.condition[name] for outcome in cases if name in outcome.condition))


def numbers_of(cases: Iterable[Outcome], name: str) -> list[int]:
    """Return the distinct values of a condition as integers, ascending."""
    return sorted(int(str(value)) for value in values_of(cases, name))


def all_outcomes(runs: OutcomesByModel, condition: str | None = None) -> list[Outcome]:
    """Return the outcomes of all runs, or only those with this condition."""
    outcomes = chain.from_iterable(runs.values())
    return [outcome for outcome in outcomes if condition is None or condition in outcome.condition]


def count_questions(cases: Iterable[Outcome]) -> int:
    """Return the number of distinct questions."""
    return len({outcome.question for outcome in cases})


def add_notes(tables: Iterable[Table], notes: Sequence[str]) -> tuple[Table, ...]:
    """Return the tables with these notes after their own."""
    return tuple(replace(table, notes=(*table.notes, *notes)) for table in tables)
