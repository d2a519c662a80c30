"""Do runs differ? Paired by question and condition, tested and corrected, and what else sets them apart.

A run with several arms is compared arm by arm; places and repeats of a question are its cases, not questions of their
own. Asks nothing, draws nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import TypeAlias

from epicrisis.evaluation.analysis.conclusions import TO, conclusions
from epicrisis.evaluation.analysis.findings import Findings
from epicrisis.evaluation.analysis.grouping import (
    FIGURES,
    AccuracyMeasure,
    Group,
    P,
    PairingKey,
    by_pair,
    chance,
    corrected_p,
    counts,
    difference,
    left_out,
    mean,
    notes,
)
from epicrisis.evaluation.analysis.statistics import Difference
from epicrisis.evaluation.analysis.table import Cell, Table
from epicrisis.evaluation.analysis.table_text import AGAINST
from epicrisis.evaluation.runs.case import Condition
from epicrisis.evaluation.runs.outcomes import Outcome, score_record
from epicrisis.evaluation.runs.recorded_run import RecordedRun, list_differences, open_runs, refuse_mismatched_records

REPEATED = ("place", "repeat")
"""Conditions under which one question is asked again; the values of all others are compared one by one."""

Stratum: TypeAlias = tuple[tuple[str, Cell], ...]
"""Conditions that a part of a run shares, by name."""

_HEADS = ("pairs", "only in the run", "only in the other", "not scored", "won", "lost", "test")
_HOW = (
    "Pairs: both were asked the question under the same condition, and both have a score. What only one was asked, or "
    "has no score in one, is counted and in no difference.",
    "Won: the run has it right and the other has not; lost: the other way round. p: McNemar's exact test (two-sided, "
    "of won and lost) where each question stands once, else by flipping the signs of whole questions.",
)


@dataclass(frozen=True, slots=True)
class _Asked:
    """A run with its outcomes, those left aside that nobody can score."""

    run: RecordedRun
    outcomes: tuple[Outcome, ...]
    open: int
    """Cases of questions without options or gold letter."""


def findings(paths: Sequence[Path], *, measure: AccuracyMeasure = "right", seed: int = 0) -> Findings:
    """What the runs in these folders or files of answers came to, and how each two of them differ.

    Raises InputError where one is named twice, is no run, or holds no record.
    """
    with refuse_mismatched_records(paths):
        return findings_of_runs(open_runs(paths), measure=measure, seed=seed)


def findings_of_runs(runs: Sequence[RecordedRun], *, measure: AccuracyMeasure = "right", seed: int = 0) -> Findings:
    """As `findings`, of runs that are open."""
    asked = [_read(run) for run in runs]
    tables = [runs_table(asked, measure, seed)]
    told: list[str] = list(_unfinished(asked))
    if len(asked) > 1:
        tables += [each for each in (made_with_table(asked),) if each.rows]
        tables.append(differences_table(asked, measure, seed))
        told += _apart(asked)
        told += conclusions(tables[-1])
    return Findings(
        experiment="compare" if len(asked) > 1 else "evaluate",
        about=(
            "Do these runs differ on the questions that both were asked?"
            if len(asked) > 1
            else "How many of the questions does it answer rightly?"
        ),
        sources=tuple(each.run.source for each in asked),
        tables=tuple(tables),
        conclusions=tuple(told),
    )


def _read(run: RecordedRun) -> _Asked:
    found, without = [], 0
    for record in run.records():
        question = record.answer.question
        if question.options and question.gold is not None:
            found.append(score_record(record))
        else:
            without += 1
    arms = run.manifest.plan.arguments.get("arms", ()) if run.manifest else ()
    # Calls at once end in any order; tables have one.
    found.sort(key=lambda each: _place(each.condition, arms))
    return _Asked(run, tuple(found), without)


def _place(condition: Condition, arms: Sequence[str]) -> list[tuple[str, float, str]]:
    """For sorting: arms in the order in which they were asked for, else by name; numbers by size."""
    return [
        (name, float(arms.index(value) if name == "arm" and value in arms else len(arms)), value)
        if isinstance(value, str)
        else (name, float(value), "")
        for name, value in sorted(condition.items())
    ]


# -- the tables -------------------------------------------------------------------------------------------------------


def runs_table(asked: Sequence[_Asked], measure: AccuracyMeasure, seed: int) -> Table:
    """Each run, each of its arms: share right, and how its cases ended."""
    names = _telling([each.outcomes for each in asked])
    rows: list[tuple[Cell, ...]] = []
    for each in asked:
        for stratum, outcomes in _strata(each.outcomes, names).items():
            values = dict(stratum)
            labels = (each.run.name, *(values.get(name) for name in names))
            rows.append((*labels, mean(outcomes, measure, seed), *counts(outcomes)))
    everyone = [outcome for each in asked for outcome in each.outcomes]
    more = (*chance(everyone), *left_out(everyone))
    return Table("The runs", ("run", *names, *FIGURES), tuple(rows), notes(measure, 0, more))


def made_with_table(asked: Sequence[_Asked]) -> Table:
    """What the runs were not made with alike, one row a thing."""
    names = dict.fromkeys(name for one, other in combinations(asked, 2) for name in _different(one, other))
    made = [{**each.run.made_with, **_constant(each.outcomes)} for each in asked]
    rows = tuple((name, *(_told(each.get(name)) for each in made)) for name in names)
    return Table("What the runs were not made with alike", ("what", *(each.run.name for each in asked)), rows)


def differences_table(asked: Sequence[_Asked], measure: AccuracyMeasure, seed: int) -> Table:
    """Each two runs, each of their common arms: pairs, what was left out, won and lost, the difference and its p."""
    rows: list[tuple[Cell, ...]] = []
    differences: list[Difference | None] = []
    names = list(dict.fromkeys(name for one, other in combinations(asked, 2) for name in _names_of(one, other)))
    for one, other in combinations(asked, 2):
        for stratum, mine, theirs in _matched(one, other):
            values = dict(stratum)
            counted, found = _compared(mine, theirs, measure, seed)
            rows.append((other.run.name, one.run.name, *(values.get(name) for name in names), *counted))
            differences.append(found)
    corrected = corrected_p(differences)
    n = sum(found is not None for found in differences)
    corrections = {0: "there is nothing to compare", 1: "there is one comparison to correct p for"}
    correction = corrections.get(n, f"p is corrected by Holm for {n} comparisons")
    how = f"Intervals are 95 %, by a bootstrap of whole questions; {correction}."
    return Table(
        "Differences, paired by question",
        ("run", AGAINST, *names, *_HEADS, f"{TO}the other", P),
        tuple((*row, found, p) for row, found, p in zip(rows, differences, corrected, strict=True)),
        (*_HOW, how),
    )


def _compared(
    mine: Sequence[Outcome], theirs: Sequence[Outcome], measure: AccuracyMeasure, seed: int
) -> tuple[tuple[Cell, ...], Difference | None]:
    """The cells under _HEADS, and the difference where there is one."""
    pair = tuple(name for name in REPEATED if _has(mine, name) and _has(theirs, name))
    first, second = (by_pair(each, pair, measure) for each in (mine, theirs))
    ours, others = (_cases(each, pair) for each in (mine, theirs))
    scored = [key for key in first if key in second]
    won, lost = sum(first[key] > second[key] for key in scored), sum(first[key] < second[key] for key in scored)
    found = difference(Group((), mine, theirs, pair), measure, seed)
    test = None
    if found is not None:
        once = found.n == found.clusters and {first[key] for key in scored} | {second[key] for key in scored} <= {0, 1}
        test = "McNemar" if once else "sign flips"
    unscored = len(ours & others) - len(scored)
    return (len(scored), len(ours - others), len(others - ours), unscored, won, lost, test), found


def _cases(outcomes: Sequence[Outcome], pair: Sequence[str]) -> set[PairingKey]:
    return {(each.question, *(each.condition.get(name) for name in pair)) for each in outcomes}


def _has(outcomes: Sequence[Outcome], name: str) -> bool:
    return any(name in each.condition for each in outcomes)


# -- arms -------------------------------------------------------------------------------------------------------------


def _telling(runs: Sequence[Sequence[Outcome]]) -> tuple[str, ...]:
    """Conditions that tell parts of a run apart: those that are not REPEATED and not the same throughout each run."""
    names = dict.fromkeys(name for outcomes in runs for each in outcomes for name in each.condition)
    return tuple(
        name
        for name in names
        if name not in REPEATED and any(len({each.condition.get(name) for each in run}) > 1 for run in runs)
    )


def _names_of(one: _Asked, other: _Asked) -> tuple[str, ...]:
    return _telling([one.outcomes, other.outcomes])


def _strata(outcomes: Sequence[Outcome], names: Sequence[str]) -> Mapping[Stratum, list[Outcome]]:
    """The outcomes by their values of these conditions, as far as they have them."""
    parts: dict[Stratum, list[Outcome]] = {}
    for each in outcomes:
        stratum = tuple((name, each.condition[name]) for name in names if name in each.condition)
        parts.setdefault(stratum, []).append(each)
    return parts


def _matched(one: _Asked, other: _Asked) -> Iterator[tuple[Stratum, list[Outcome], list[Outcome]]]:
    """Parts of `other` and of `one` that are alike in every condition that both have."""
    names = _names_of(one, other)
    for theirs_at, theirs in _strata(one.outcomes, names).items():
        for mine_at, mine in _strata(other.outcomes, names).items():
            values = dict(theirs_at)
            if all(values.get(name, value) == value for name, value in mine_at):
                yield tuple((values | dict(mine_at)).items()), mine, theirs


def _constant(outcomes: Sequence[Outcome]) -> dict[str, Cell]:
    """Conditions that are the same throughout."""
    names = dict.fromkeys(name for each in outcomes for name in each.condition if name not in REPEATED)
    values = {name: {each.condition.get(name) for each in outcomes} for name in names}
    return {name: next(iter(found)) for name, found in values.items() if len(found) == 1}


# -- in words ---------------------------------------------------------------------------------------------------------


def _different(one: _Asked, other: _Asked) -> tuple[str, ...]:
    """Names of what the two do not have in common: of the recipe, and of conditions that hold throughout each."""
    first, second = _constant(one.outcomes), _constant(other.outcomes)
    conditions = [name for name in first if name in second and first[name] != second[name]]
    # What a case's condition says holds, whatever the settings say: an arm is a strategy.
    told = {name for each in (*one.outcomes, *other.outcomes) for name in each.condition}
    overruled = told | ({"strategy"} if "arm" in told else set())
    settings = (name for name in list_differences(one.run, other.run) if name not in overruled)
    return tuple(dict.fromkeys((*settings, *conditions)))


def _unfinished(asked: Sequence[_Asked]) -> Iterator[str]:
    for each in asked:
        manifest = each.run.manifest
        if manifest is not None and not manifest.complete:
            missing = manifest.cases - len(each.outcomes) - each.open
            failed = sum(outcome.state == "failed" for outcome in each.outcomes)
            yield (
                f"{each.run.name} is not complete: of its {manifest.cases:,} cases {missing:,} have no record yet, and "
                f"{failed:,} failed."
            )
        if each.open:
            yield (
                f"{each.run.name}: {each.open:,} cases are of questions without options or gold letter; nobody can say "
                "here whether their answers are right, so they are in no table."
            )


def _apart(asked: Sequence[_Asked]) -> Iterator[str]:
    """What each two runs differ in beside their outcomes (errata B7)."""
    for one, other in combinations(asked, 2):
        both = f"{other.run.name} and {one.run.name}"
        sets = one.run.questions, other.run.questions
        if all(sets) and sets[0] != sets[1]:
            yield f"Warning: {both} were asked different question sets ({sets[1]}; {sets[0]}): see what only one has."
        if not _cases(one.outcomes, ()) & _cases(other.outcomes, ()):
            yield f"Warning: {both} have no question in common, so nothing of them was compared."
            continue
        names = _different(one, other)
        if not names:
            yield f"{both} were made alike as far as is recorded: they differ by chance, or by what no recipe holds."
        elif len(names) == 1:
            yield f"{both} differ in one thing: {names[0]}."
        else:
            yield (
                f"Warning: {both} differ in {len(names)} things: {', '.join(names)}. They are compared all at once, so "
                "no difference can be put down to one of them (errata B7)."
            )


def _told(value: object) -> Cell:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None or isinstance(value, str | int | float):
        return value
    return str(value)
