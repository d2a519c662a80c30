"""Tables of graded open answers: how many are correct by each judge, and how well the judges agree.

Differences between arms are tested by the experiments' own tables, which take `CorrectnessGrades.outcomes`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, combinations

from epicrisis.evaluation.analysis.agreement import (
    RaterAgreement,
    describe_agreement,
    make_agreement_table,
    measure_agreement,
)
from epicrisis.evaluation.analysis.grouping import INTERVALS, AccuracyMeasure, group_by, mean_score
from epicrisis.evaluation.analysis.run_comparison import REPEATED
from epicrisis.evaluation.analysis.statistics import Mean
from epicrisis.evaluation.analysis.table import Cell, Table
from epicrisis.evaluation.grading.correctness import VERDICTS, CorrectnessGrades, OpenCase
from epicrisis.evaluation.runs.case import Condition
from epicrisis.evaluation.runs.outcomes import STATES

SHARE, OF_DECIDED = "share correct", "of those decided"

_GRADE_NOTES = (
    "Share correct: of all questions that did not fail. An answer that abstains or cannot be read, and one with the "
    "verdict `cannot be said`, is not correct. Of those decided: correct of correct and incorrect.",
    "Unreadable, call failed, not marked: the judge gave no verdict; such answers are in no share.",
    INTERVALS,
)
_MAJORITY_NOTE = (
    "With several judges, more than half of all must give the same verdict. Otherwise there is no majority, and the "
    "answer is in no share."
)
_AGREEMENT_NOTES = (
    "Over the answers with a verdict of at least two of them. Intervals are 95 %, by a bootstrap of whole questions; "
    "none if all resamples are equal. No coefficient if all verdicts are the same word.",
)


def correctness_tables(runs: Mapping[str, CorrectnessGrades], *, remarks: Sequence[str] = ()) -> tuple[Table, ...]:
    """Return the tables of graded runs, by the name of their model.

    They show how the open questions ended, the share correct by judge and condition, and the agreement of the judges.
    `remarks` are notes for each table.
    """
    conditions = _varying_conditions(runs)
    tables = [_endings_table(runs, conditions)]
    if any(grades.judges for grades in runs.values()):
        tables.append(_grades_table(runs, conditions))
    if _have_several_judges(runs):
        tables.append(_agreement_table(runs))
    return tuple(replace(table, notes=(*table.notes, *remarks)) for table in tables)


def correctness_conclusions(runs: Mapping[str, CorrectnessGrades]) -> tuple[str, ...]:
    """Return sentences: the share correct by the majority or the one judge, the agreement of several judges, and the
    judges with a part in what they judge."""
    conditions = _varying_conditions(runs)
    sentences: list[str] = []
    for labels, grades in _strata(runs, conditions):
        share = correct_share(grades, "right") if grades.judges else None
        if share is not None:
            where = " ".join(str(label) for label in labels if label is not None)
            low, high = 100 * share.interval.low, 100 * share.interval.high
            sentences.append(
                f"{where}, by {_judges_name(grades)}: {100 * share.value:.1f} % of {share.n} are correct "
                f"(95 % interval {low:.1f} to {high:.1f})."
            )
    if _have_several_judges(runs):
        sentences.extend(describe_agreement(_agreement_table(runs), "agree on"))
    return (*sentences, *_independence_warnings(runs.values()))


def correctness_remarks(grades: CorrectnessGrades, judge: str | None = None) -> tuple[str, ...]:
    """Return notes for tables of right and wrong answers from `grades.outcomes(judge)`."""
    gradable = [case for case in grades.cases if case.gradable]
    verdicts = Counter(grades.verdict(case.key, judge) for case in gradable)
    return (
        f"Right: marked correct against the reference by {judge or _judges_name(grades)}. Of {len(gradable)} answers, "
        f"{verdicts['cannot be said']} have the verdict `cannot be said` and count as unparsed; {verdicts[None]} have "
        "no verdict and count as failed.",
        *_independence_warnings([grades]),
    )


def _judges_name(grades: CorrectnessGrades) -> str:
    judges = tuple(grades.judges)
    if not judges:
        return "no judge"
    return f"majority of {len(judges)} judges" if len(judges) > 1 else judges[0]


def _independence_warnings(runs: Iterable[CorrectnessGrades]) -> tuple[str, ...]:
    """Return which judges had a part in what they judge, and whether this is unknown for some examples."""
    warnings, unknown = [], False
    for grades in runs:
        unknown = unknown or grades.unknown
        for judge in grades.judges:
            for part in grades.parts_of_judge(judge):
                warnings.append(
                    f"Warning: {judge} judges answers and {part}: a model may prefer its own words; let another one "
                    "judge as well (errata P11)."
                )
    if unknown:
        warnings.append("The author of some examples is not known: check that it is not a judge (errata P11).")
    return tuple(dict.fromkeys(warnings))


def _have_several_judges(runs: Mapping[str, CorrectnessGrades]) -> bool:
    return any(len(grades.judges) > 1 for grades in runs.values())


def _varying_conditions(runs: Mapping[str, CorrectnessGrades]) -> tuple[str, ...]:
    """Return the names of conditions that differ within a run."""
    names: dict[str, None] = {}
    varying: set[str] = set()
    for grades in runs.values():
        conditions = [case.outcome.condition for case in grades.cases]
        for name in dict.fromkeys(chain.from_iterable(conditions)):
            names[name] = None
            if len({condition.get(name) for condition in conditions}) > 1:
                varying.add(name)
    return tuple(name for name in names if name in varying.difference(REPEATED))


def _strata(
    runs: Mapping[str, CorrectnessGrades], names: Sequence[str]
) -> Iterator[tuple[tuple[Cell, ...], CorrectnessGrades]]:
    """Yield the grades of each run by the values of these conditions, numbers by size and texts by name.

    The labels are the name of the model and these values. Concurrent requests end in any order, but tables always have
    the same.
    """

    def place(case: OpenCase) -> list[tuple[float, str]]:
        return [_sort_key(case.outcome.condition, name) for name in names]

    for model, grades in runs.items():
        cases = sorted(grades.cases, key=place)
        for labels, stratum in group_by(cases, lambda case: tuple(map(case.outcome.condition.get, names))).items():
            yield (model, *labels), replace(grades, cases=tuple(stratum))


def _sort_key(condition: Condition, name: str) -> tuple[float, str]:
    value = condition.get(name, "")
    return (0.0, value) if isinstance(value, str) else (float(value), "")


def _endings_table(runs: Mapping[str, CorrectnessGrades], conditions: Sequence[str]) -> Table:
    cases = chain.from_iterable(grades.cases for grades in runs.values())
    over_window = any(case.outcome.state == "over-window" for case in cases)
    states = [state for state in STATES if state != "over-window" or over_window]
    rows: list[tuple[Cell, ...]] = []
    for labels, grades in _strata(runs, conditions):
        counts = Counter(case.outcome.state for case in grades.cases)
        without_reference = sum(case.reference is None for case in grades.cases)
        words = [len(case.answer.split()) for case in grades.cases if case.gradable]
        length = sum(words) / len(words) if words else None
        rows.append((*labels, len(grades.cases), *map(counts.__getitem__, states), without_reference, length))
    columns = ("model", *conditions, "asked", *states, "without a reference", "words of an answer")
    note = "Questions without options. An answer without a reference, and a question without an answer, is not marked."
    return Table("How the open questions ended", columns, tuple(rows), (note,))


def _grades_table(runs: Mapping[str, CorrectnessGrades], conditions: Sequence[str]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for labels, grades in _strata(runs, conditions):
        for cells in _judge_rows(grades):
            rows.append((*labels, *cells))
    shares = (SHARE, OF_DECIDED)
    gaps = ("no majority", "unreadable", "call failed", "not marked")
    majority = (_MAJORITY_NOTE,) if _have_several_judges(runs) else ()
    notes = (*_GRADE_NOTES, *majority, *_independence_warnings(runs.values()))
    columns = ("model", *conditions, "judge", *shares, *VERDICTS, *gaps)
    return Table("Marked against the reference", columns, tuple(rows), notes)


def _judge_rows(grades: CorrectnessGrades) -> Iterator[tuple[Cell, ...]]:
    """Yield a row for each judge, and one for the majority of several."""
    keys = [case.key for case in grades.cases if case.gradable]
    for name, judge in grades.judges.items():
        states = Counter(judge.grades[key].state if key in judge.grades else "" for key in keys)
        counts = _verdict_cells(grades, name, keys)
        yield (name, *counts, None, states["unparsed"], states["failed"], states[""])
    if len(grades.judges) > 1:
        without = sum(grades.verdict(key) is None for key in keys)
        yield (_judges_name(grades), *_verdict_cells(grades, None, keys), without, None, None, None)


def _verdict_cells(grades: CorrectnessGrades, judge: str | None, keys: Sequence[str]) -> tuple[Cell, ...]:
    counts = Counter(grades.verdict(key, judge) for key in keys)
    right = correct_share(grades, "right", judge)
    right_of_answered = correct_share(grades, "right-of-answered", judge)
    return (right, right_of_answered, *map(counts.__getitem__, VERDICTS))


def correct_share(grades: CorrectnessGrades, measure: AccuracyMeasure, judge: str | None = None) -> Mean | None:
    """Return the share marked correct by this judge, or else by the majority. None if nothing is scored."""
    share = mean_score(grades.outcomes(judge), measure)
    return share if share.n else None


def _agreement_table(runs: Mapping[str, CorrectnessGrades]) -> Table:
    agreements: list[tuple[str, str, RaterAgreement]] = []
    for model, grades in runs.items():
        questions = {case.key: case.outcome.question for case in grades.cases}
        for name, raters in _rater_groups(grades):
            agreements.append((model, name, measure_agreement(raters, clusters=questions)))
    return make_agreement_table(agreements, "answers", _AGREEMENT_NOTES)


def _rater_groups(grades: CorrectnessGrades) -> Iterator[tuple[str, list[Mapping[str, str]]]]:
    """Yield each two judges, and all of them if there are more."""
    verdicts = {name: judge.verdicts for name, judge in grades.judges.items()}
    for one, other in combinations(verdicts, 2):
        yield f"{one} and {other}", [verdicts[one], verdicts[other]]
    if len(verdicts) > 2:
        yield "all", list(verdicts.values())
