"""Comparison of runs: differences paired by question and condition, tests, and the settings in which runs differ.

A run with several arms is compared arm by arm. Positions and repeats of a question are cases of that question.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, filterfalse
from operator import gt, lt
from pathlib import Path
from typing import TypeAlias

from epicrisis.core.printable import agree, count_noun
from epicrisis.evaluation.analysis.conclusions import DIFFERENCE_TO, draw_conclusions
from epicrisis.evaluation.analysis.findings import Findings
from epicrisis.evaluation.analysis.grouping import (
    DIFFERENCE_BOUNDS,
    FIGURES,
    P_COLUMN,
    SHARE_BOUNDS,
    AccuracyMeasure,
    Group,
    PairingKey,
    add_bounds,
    add_differences,
    bound_difference,
    bound_share,
    compare_to_baseline,
    count_endings,
    describe_chance,
    describe_omitted_parts,
    group_by,
    make_notes,
    mean_by_pair,
    mean_score,
)
from epicrisis.evaluation.analysis.statistics import Difference, Interval
from epicrisis.evaluation.analysis.table import Cell, Table
from epicrisis.evaluation.analysis.table_text import AGAINST
from epicrisis.evaluation.runs.outcomes import Outcome, score_record
from epicrisis.evaluation.runs.recorded_run import RecordedRun, list_differences, open_runs, refuse_mismatched_records

REPEATED = ("place", "repeat")
"""Conditions under which a question is asked again. The values of all other conditions are compared one by one."""

Stratum: TypeAlias = tuple[tuple[str, Cell], ...]
"""The conditions, by name, that a part of a run shares."""

_PAIR_COLUMNS = ("pairs", "only in the run", "only in the other", "not scored", "won", "lost", "test")
_NOTES = (
    "Pairs: both runs asked the question under the same condition. Cases of one run only are counted and are in no "
    "difference, and so are cases without a choice under right-of-answered.",
    "Won: right in the run and not in the other; lost: the reverse. p: McNemar's exact test (two-sided, of won and "
    "lost) if each question occurs once, otherwise by flipping the signs of questions.",
)


@dataclass(frozen=True, slots=True)
class _ScoredRun:
    """A run with the outcomes that can be scored."""

    run: RecordedRun
    outcomes: tuple[Outcome, ...]
    open: int
    """The number of cases of questions without options or gold letter."""


def compare_run_files(paths: Sequence[Path], *, measure: AccuracyMeasure = "right") -> Findings:
    """Return the accuracy of the runs in these folders or files of answers, and the differences of each two.

    Raises InputError if a path occurs twice, is not a run, or holds no record.
    """
    with refuse_mismatched_records(paths):
        return compare_runs(open_runs(paths), measure=measure)


def compare_runs(runs: Sequence[RecordedRun], *, measure: AccuracyMeasure = "right") -> Findings:
    """Return the accuracy of runs, and the differences of each two."""
    scored = list(map(_score_run, runs))
    tables = [_make_runs_table(scored, measure)]
    conclusions = list(_describe_unfinished(scored))
    if len(scored) > 1:
        settings = _make_settings_table(scored)
        differences = _make_differences_table(scored, measure)
        tables += [settings, differences] if settings.rows else [differences]
        conclusions += [*_describe_settings(scored), *draw_conclusions(differences)]
        name, about = "compare", "Do these runs differ on the questions that both were asked?"
    else:
        name, about = "evaluate", "How many of the questions does it answer rightly?"
    sources = tuple(run.source for run in runs)
    return Findings(name, about, sources, tuple(tables), tuple(conclusions))


def _score_run(run: RecordedRun) -> _ScoredRun:
    outcomes: list[Outcome] = []
    unscored = 0
    for record in run.records():
        question = record.answer.question
        if question.options and question.gold is not None:
            outcomes.append(score_record(record))
        else:
            unscored += 1
    arms = run.manifest.plan.arguments.get("arms", ()) if run.manifest else ()

    def sort_key(outcome: Outcome) -> list[tuple[str, float, str]]:
        """Sort arms as in the plan, numbers by size, and other values by name."""
        key: list[tuple[str, float, str]] = []
        for name, value in sorted(outcome.condition.items()):
            if isinstance(value, str):
                index = arms.index(value) if name == "arm" and value in arms else len(arms)
                key.append((name, float(index), value))
            else:
                key.append((name, float(value), ""))
        return key

    # Concurrent calls end in any order; tables need one.
    return _ScoredRun(run, tuple(sorted(outcomes, key=sort_key)), unscored)


def _make_runs_table(runs: Sequence[_ScoredRun], measure: AccuracyMeasure) -> Table:
    """Return a table of each arm of each run: share right, and counts of states."""
    names = _separating_conditions(*runs)
    rows: list[tuple[Cell, ...]] = []
    share_bounds: list[Interval | None] = []
    for run in runs:
        for stratum, outcomes in _split_strata(run.outcomes, names).items():
            labels = (run.run.name, *map(dict(stratum).get, names))
            rows.append((*labels, mean_score(outcomes, measure), *count_endings(outcomes)))
            share_bounds.append(bound_share(outcomes) if measure == "right" else None)
    columns, rows, note = add_bounds(("run", *names, *FIGURES), rows, {SHARE_BOUNDS: share_bounds})
    outcomes = list(chain.from_iterable(run.outcomes for run in runs))
    remarks = (*note, *describe_chance(outcomes), *describe_omitted_parts(outcomes))
    return Table("The runs", columns, tuple(rows), make_notes(0, remarks, measure))


def _make_settings_table(runs: Sequence[_ScoredRun]) -> Table:
    """Return a table of the settings in which runs differ, a row for each."""
    names: dict[str, None] = {}
    for one, other in combinations(runs, 2):
        names |= dict.fromkeys(_differing_names(one, other))
    settings = [{**run.run.made_with, **_constant_conditions(run.outcomes)} for run in runs]
    rows: list[tuple[Cell, ...]] = []
    for name in names:
        row: list[Cell] = [name]
        for values in settings:
            value = values.get(name)
            if isinstance(value, bool):
                row.append("yes" if value else "no")
            else:
                row.append(value if isinstance(value, str | int | float | None) else str(value))
        rows.append(tuple(row))
    columns = ("what", *(run.run.name for run in runs))
    return Table("Settings in which the runs differ", columns, tuple(rows))


def _make_differences_table(runs: Sequence[_ScoredRun], measure: AccuracyMeasure) -> Table:
    """Return a table of each two runs and each of their common arms: pairs, won and lost, the difference and its p."""
    rows: list[tuple[Cell, ...]] = []
    differences: list[Difference | None] = []
    bounds: list[Interval | None] = []
    names: dict[str, None] = {}
    for one, other in combinations(runs, 2):
        names |= dict.fromkeys(_separating_conditions(one, other))
    for one, other in combinations(runs, 2):
        pair_names = _separating_conditions(one, other)
        my_strata = _split_strata(other.outcomes, pair_names)
        for their_stratum, theirs in _split_strata(one.outcomes, pair_names).items():
            for my_stratum, mine in my_strata.items():
                values = dict(their_stratum) | dict(my_stratum)
                # Compare strata that agree in every condition that both have.
                if values.items() >= set(their_stratum):
                    counts, difference = _compare(mine, theirs, measure)
                    rows.append((other.run.name, one.run.name, *(values.get(name) for name in names), *counts))
                    differences.append(difference)
                    bounds.append(_bound(mine, theirs) if measure == "right" else None)
    n = len(differences) - differences.count(None)
    corrections = {0: "there is nothing to compare", 1: "there is one comparison to correct p for"}
    correction = corrections.get(n, f"p is corrected by Holm for {n} comparisons")
    columns, rows, note = add_bounds(("run", AGAINST, *names, *_PAIR_COLUMNS), rows, {DIFFERENCE_BOUNDS: bounds})
    return Table(
        "Differences, paired by question",
        (*columns, f"{DIFFERENCE_TO}the other", P_COLUMN),
        add_differences(rows, differences),
        (*_NOTES, *note, f"Intervals are 95 %, by a bootstrap of questions; {correction}."),
    )


def _compare(
    mine: Sequence[Outcome], theirs: Sequence[Outcome], measure: AccuracyMeasure
) -> tuple[tuple[Cell, ...], Difference | None]:
    """Return the cells under _PAIR_COLUMNS, and the difference if there is one."""
    pair = _shared_repetitions(mine, theirs)
    my_scores, their_scores = mean_by_pair(mine, pair, measure), mean_by_pair(theirs, pair, measure)
    my_cases, their_cases = _pairing_keys(mine, pair), _pairing_keys(theirs, pair)
    scored = my_scores.keys() & their_scores.keys()
    my_values, their_values = [my_scores[item] for item in scored], [their_scores[item] for item in scored]
    wins, losses = sum(map(gt, my_values, their_values)), sum(map(lt, my_values, their_values))
    difference = compare_to_baseline(Group((), mine, theirs, pair), measure)
    test = None
    if difference is not None:
        values = {*my_values, *their_values}
        test = "McNemar" if difference.n == difference.clusters and values <= {0, 1} else "sign flips"
    unscored = len(my_cases & their_cases) - len(scored)
    counts = (len(scored), len(my_cases - their_cases), len(their_cases - my_cases), unscored, wins, losses, test)
    return counts, difference


def _bound(mine: Sequence[Outcome], theirs: Sequence[Outcome]) -> Interval | None:
    return bound_difference(Group((), mine, theirs, _shared_repetitions(mine, theirs)))


def _shared_repetitions(mine: Sequence[Outcome], theirs: Sequence[Outcome]) -> tuple[str, ...]:
    """Return the conditions of repetition that both have."""
    shared = _condition_names(mine) & _condition_names(theirs)
    return tuple(name for name in REPEATED if name in shared)


def _pairing_keys(outcomes: Sequence[Outcome], pair: Sequence[str]) -> set[PairingKey]:
    return {(outcome.question, *(outcome.condition.get(item) for item in pair)) for outcome in outcomes}


def _condition_names(outcomes: Iterable[Outcome]) -> set[str]:
    return set(chain.from_iterable(outcome.condition for outcome in outcomes))


def _condition_values(outcomes: Iterable[Outcome]) -> dict[str, set[Cell]]:
    """Return the values of each condition except REPEATED, with None for outcomes without it, in order."""
    conditions = [outcome.condition for outcome in outcomes]
    values: dict[str, set[Cell]] = {}
    for name in dict.fromkeys(chain.from_iterable(conditions)):
        if name not in REPEATED:
            values[name] = {condition.get(name) for condition in conditions}
    return values


def _separating_conditions(*runs: _ScoredRun) -> tuple[str, ...]:
    """Return the conditions, except REPEATED, that have several values in a run."""
    return find_varying_conditions(run.outcomes for run in runs)


def find_varying_conditions(runs: Iterable[Iterable[Outcome]]) -> tuple[str, ...]:
    """Return the conditions, except REPEATED, that have several values in a run, in the order of their first cases."""
    varies: dict[str, bool] = {}
    for outcomes in runs:
        for name, values in _condition_values(outcomes).items():
            varies[name] = varies.get(name, False) or len(values) > 1
    return tuple(name for name in varies if varies[name])


def _split_strata(outcomes: Sequence[Outcome], names: Sequence[str]) -> Mapping[Stratum, list[Outcome]]:
    """Return the outcomes grouped by their values of these conditions."""

    def stratum(outcome: Outcome) -> Stratum:
        return tuple((name, outcome.condition[name]) for name in names if name in outcome.condition)

    return group_by(outcomes, stratum)


def _constant_conditions(outcomes: Sequence[Outcome]) -> dict[str, Cell]:
    """Return the conditions that have one value in all outcomes."""
    return {name: values.pop() for name, values in _condition_values(outcomes).items() if len(values) == 1}


def _differing_names(one: _ScoredRun, other: _ScoredRun) -> tuple[str, ...]:
    """Return the names of settings, and of constant conditions, in which two runs differ."""
    first, second = _constant_conditions(one.outcomes), _constant_conditions(other.outcomes)
    conditions = [name for name in first if name in second and first[name] != second[name]]
    # The condition of a case overrides its settings: an arm is a strategy.
    overridden = _condition_names(one.outcomes) | _condition_names(other.outcomes)
    if "arm" in overridden:
        overridden.add("strategy")
    settings = filterfalse(overridden.__contains__, list_differences(one.run, other.run))
    return tuple(dict.fromkeys((*settings, *conditions)))


def _describe_unfinished(runs: Sequence[_ScoredRun]) -> Iterator[str]:
    for scored in runs:
        name, manifest = scored.run.name, scored.run.manifest
        if manifest is not None and not manifest.complete:
            missing = manifest.cases - len(scored.outcomes) - scored.open
            failed = [*(outcome.state for outcome in scored.outcomes)].count("failed")
            yield (
                f"{name} is not complete: of its {count_noun(manifest.cases, 'case')} {missing:,} "
                f"{agree(missing, 'has', 'have')} no record yet, and "
                f"{failed:,} failed."
            )
        if scored.open:
            yield (
                f"{name}: {count_noun(scored.open, 'case')} {agree(scored.open, 'is', 'are')} of questions without "
                "options or gold letter. Their answers cannot "
                "be scored here, so they are in no table."
            )


def _describe_settings(runs: Sequence[_ScoredRun]) -> Iterator[str]:
    """Yield a sentence on the settings in which each two runs differ (errata B7)."""
    for one, other in combinations(runs, 2):
        both = f"{other.run.name} and {one.run.name}"
        first, second = one.run.questions, other.run.questions
        if first and second and first != second:
            yield f"Warning: {both} were asked different question sets ({second}; {first}): see what only one has."
        if not _pairing_keys(one.outcomes, ()) & _pairing_keys(other.outcomes, ()):
            yield f"Warning: {both} have no question in common, so they were not compared."
            continue
        names = _differing_names(one, other)
        if not names:
            yield f"{both} have the same recorded settings: they differ by chance, or in what is not recorded."
        elif len(names) == 1:
            yield f"{both} differ in one thing: {names[0]}."
        else:
            yield (
                f"Warning: {both} differ in {len(names)} things: {', '.join(names)}. They are compared all at once, so "
                "no difference can be attributed to one of them (errata B7)."
            )
