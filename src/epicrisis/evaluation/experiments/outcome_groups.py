"""Selecting and grouping outcomes: the steps that the tables of most experiments share."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias, TypeVar

from epicrisis.evaluation.analysis.grouping import correct_p_values
from epicrisis.evaluation.analysis.statistics import Difference
from epicrisis.evaluation.analysis.table import Cell, Table
from epicrisis.evaluation.experiments.arms import condition_order
from epicrisis.evaluation.runs.outcomes import Outcome, score_records
from epicrisis.evaluation.runs.recorded_run import RecordedRun

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

OutcomesByModel: TypeAlias = Mapping[str, Sequence[Outcome]]
"""The outcomes of each run, by the name of its model."""


def read_outcomes(runs: Iterable[RecordedRun]) -> dict[str, list[Outcome]]:
    """Read the outcomes of each run, by arm, condition and question, whatever ended first."""

    def place(outcome: Outcome) -> tuple[tuple[float, ...], str]:
        return condition_order(outcome.condition), outcome.question

    return {run.name: sorted(score_records(run.records()), key=place) for run in runs}


def select(cases: Iterable[Outcome], **conditions: Cell) -> list[Outcome]:
    """Return the outcomes whose conditions equal `conditions`. None matches outcomes without that condition."""
    wanted = conditions.items()

    def matches(outcome: Outcome) -> bool:
        return all(outcome.condition.get(name) == value for name, value in wanted)

    return list(filter(matches, cases))


def group_by(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Group items by their key, in the order in which the keys first appear."""
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def values_of(cases: Iterable[Outcome], name: str) -> list[Cell]:
    """Return the distinct values of a condition, in order of appearance. Outcomes without it are ignored."""
    return list(dict.fromkeys(outcome.condition[name] for outcome in cases if name in outcome.condition))


def numbers_of(cases: Iterable[Outcome], name: str) -> list[int]:
    """Return the distinct values of a condition as integers, ascending."""
    return sorted(int(str(value)) for value in values_of(cases, name))


def all_outcomes(runs: OutcomesByModel, condition: str | None = None) -> list[Outcome]:
    """Return the outcomes of all runs; only those that have this condition, if one is named."""
    return [o for cases in runs.values() for o in cases if condition is None or condition in o.condition]


def count_questions(cases: Iterable[Outcome]) -> int:
    """Return the number of distinct questions."""
    return len({outcome.question for outcome in cases})


def add_differences(
    rows: Sequence[tuple[Cell, ...]], differences: Sequence[Difference | None]
) -> tuple[tuple[Cell, ...], ...]:
    """Return each row with its difference and the difference's corrected p at the end."""
    cells = zip(rows, differences, correct_p_values(differences), strict=True)
    return tuple((*row, difference, p) for row, difference, p in cells)


def add_notes(tables: Iterable[Table], notes: Sequence[str]) -> tuple[Table, ...]:
    """Return the tables with these notes after their own."""
    return tuple(replace(table, notes=(*table.notes, *notes)) for table in tables)
