"""Selecting, grouping and comparing outcomes: the steps that the tables of most experiments share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, starmap
from typing import Any, Protocol, TypeAlias, TypeVar

from epicrisis.evaluation.analysis.grouping import (
    Group,
    PairingKey,
    correct_p_values,
    describe_chance,
    describe_failures,
    group_by,
    make_notes,
)
from epicrisis.evaluation.analysis.statistics import Difference, paired_difference
from epicrisis.evaluation.analysis.table import Cell, Table
from epicrisis.evaluation.experiments.arms import condition_order
from epicrisis.evaluation.experiments.definition import Runs
from epicrisis.evaluation.runs.outcomes import Outcome, score_records
from epicrisis.evaluation.runs.recorded_run import RecordedRun
from epicrisis.pipeline.recording.case import Condition

OutcomesByModel: TypeAlias = Mapping[str, Sequence[Outcome]]
"""The outcomes of each run, by the name of its model."""
ChangeRow: TypeAlias = tuple[tuple[Cell, ...], tuple[Difference | None, ...], tuple[int, int]]
"""Labels, changes, and the numbers of questions asked under all that is compared, and of the others."""


class _Conditional(Protocol):
    @property
    def condition(self) -> Condition: ...


T = TypeVar("T", bound=_Conditional)


def read_outcomes(runs: Iterable[RecordedRun]) -> dict[str, list[Outcome]]:
    """Read the outcomes of each run, by arm, condition and question, in any order of completion."""

    def place(outcome: Outcome) -> tuple[tuple[float, ...], str]:
        return condition_order(outcome.condition), outcome.question

    return {run.name: sorted(score_records(run.records()), key=place) for run in runs}


def outcome_tables(build: Callable[..., tuple[Table, ...]]) -> Callable[[Runs, Sequence[str]], tuple[Table, ...]]:
    """Adapt a function from outcomes by model to tables, so that it takes finished runs."""
    return lambda runs, remarks: build(read_outcomes(runs), remarks=remarks)


def select(cases: Iterable[T], **conditions: Cell) -> list[T]:
    """Return the cases whose conditions equal `conditions`. None matches cases without that condition."""
    names, values = tuple(conditions), tuple(conditions.values())
    return [case for case in cases if tuple(case.condition.get(name) for name in names) == values]


def with_condition(cases: Iterable[T], name: str) -> list[T]:
    """Return the cases that have this condition."""
    return [case for case in cases if name in case.condition]


def values_of(cases: Iterable[T], name: str) -> list[Any]:
    """Return the distinct values of a condition, in order of appearance. Cases without it are ignored."""
    return list(dict.fromkeys(case.condition[name] for case in with_condition(cases, name)))


def numbers_of(cases: Iterable[T], name: str) -> list[int]:
    """Return the distinct values of a condition as integers, ascending."""
    return sorted(map(int, map(str, values_of(cases, name))))


def group_conditions(cases: Iterable[T], *names: str) -> dict[tuple[Any, ...], list[T]]:
    """Group cases by the values of these conditions, in order of appearance. The value of a missing one is None."""
    return group_by(cases, lambda case: tuple(case.condition.get(name) for name in names))


def all_outcomes(runs: OutcomesByModel) -> list[Outcome]:
    """Return the outcomes of all runs."""
    return list(chain.from_iterable(runs.values()))


def collect_groups(runs: OutcomesByModel, build: Callable[[str, Sequence[Outcome]], Iterable[Group]]) -> list[Group]:
    """Return the groups that `build` makes of the outcomes of each model."""
    return list(chain.from_iterable(starmap(build, runs.items())))


def subtract_scores(first: Mapping[PairingKey, float], second: Mapping[PairingKey, float]) -> dict[PairingKey, float]:
    """Return the first score of each pair less the second, of the pairs with both."""
    return {pair: value - second[pair] for pair, value in first.items() if pair in second}


def compare_scores(
    first: Mapping[PairingKey, float], second: Mapping[PairingKey, float] | None = None
) -> Difference | None:
    """Return the mean difference of the pairs with both scores, or of `first` to 0; None without such a pair."""
    second = dict.fromkeys(first, 0.0) if second is None else second
    return paired_difference(first, second) if first.keys() & second.keys() else None


def change_table(
    title: str, columns: Sequence[str], rows: Sequence[ChangeRow], cases: Iterable[Outcome], notes: Sequence[str]
) -> Table:
    """Build a table in which each change of a row is followed by its p value; all are corrected together."""
    p_values = correct_p_values(chain.from_iterable(changes for _, changes, _ in rows))
    remaining = iter(p_values)
    built: list[tuple[Cell, ...]] = []
    for labels, changes, counts in rows:
        cells: list[Cell] = []
        for change in changes:
            cells += [change, next(remaining)]
        built.append((*labels, *cells, *counts))
    tested = len(p_values) - p_values.count(None)
    cases = tuple(cases)
    all_notes = make_notes(tested, (*describe_failures(cases), *describe_chance(cases), *notes))
    return Table(title, (*columns, "questions", "not compared"), tuple(built), all_notes)


def add_notes(tables: Iterable[Table], notes: Sequence[str]) -> tuple[Table, ...]:
    """Return the tables with these notes after their own."""
    return tuple(replace(table, notes=(*table.notes, *notes)) for table in tables)
