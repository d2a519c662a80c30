"""Tables of graded open answers: how many are correct by each judge, and how well the judges agree.

Differences between arms are tested by the experiments' own tables, which take `CorrectnessGrades.outcomes`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from epicrisis.evaluation.analysis.agreement import RaterAgreement, measure_agreement
from epicrisis.evaluation.analysis.grouping import INTERVALS, AccuracyMeasure, mean_score
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
_AGREEMENT_COLUMNS = (
    "model",
    "judges",
    "n judges",
    "answers",
    "agreement",
    "Cohen's kappa",
    "kappa interval",
    "Krippendorff's alpha",
    "alpha interval",
)


def correctness_tables(runs: Mapping[str, CorrectnessGrades], *, more: Sequence[str] = ()) -> tuple[Table, ...]:
    """Return the tables of graded runs, by the name of their model.

    They show how the open questions ended, the share correct by judge and condition, and the agreement of the judges.
    `more` are notes for each table.
    """
    conditions = _varying_conditions(runs)
    tables = [_endings_table(runs, conditions)]
    most_judges = max((len(grades.judges) for grades in runs.values()), default=0)
    if most_judges:
        tables.append(_grades_table(runs, conditions))
    if most_judges > 1:
        tables.append(_agreement_table(runs))
    return tuple(replace(table, notes=(*table.notes, *more)) for table in tables)


def correctness_conclusions(runs: Mapping[str, CorrectnessGrades]) -> tuple[str, ...]:
    """Return sentences: the share correct by the majority or the one judge, the agreement of several judges, and the
    judges with a part in what they judge."""
    conditions = _varying_conditions(runs)
    sentences: list[str] = []
    for model, grades in runs.items():
        sentences.extend(_share_sentences(model, grades, conditions))
    if any(len(grades.judges) > 1 for grades in runs.values()):
        for run, judges, _, n, raw, _, _, alpha, _ in _agreement_table(runs).rows:
            if isinstance(raw, Mean):
                coefficient = "not defined" if alpha is None else f"{alpha:.2f}"
                sentences.append(
                    f"{run}: {judges} agree on {100 * raw.value:.1f} % of {n} answers (Krippendorff's alpha "
                    f"{coefficient})."
                )
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


def _varying_conditions(runs: Mapping[str, CorrectnessGrades]) -> tuple[str, ...]:
    """Return the names of conditions that differ within a run."""
    names: dict[str, bool] = {}
    for grades in runs.values():
        values: dict[str, set[object]] = {}
        conditions = [case.outcome.condition for case in grades.cases]
        for name in dict.fromkeys(name for condition in conditions for name in condition):
            values[name] = {condition.get(name) for condition in conditions}
        for name in values:
            names[name] = names.get(name, False) or len(values[name]) > 1
    return tuple(name for name, varies in names.items() if varies and name not in REPEATED)


def _strata(cases: Sequence[OpenCase], names: Sequence[str]) -> dict[tuple[Cell, ...], tuple[OpenCase, ...]]:
    """Group the cases by their values of these conditions, numbers by size and texts by name.

    Concurrent requests end in any order, but tables always have the same.
    """
    strata: dict[tuple[Cell, ...], list[OpenCase]] = {}
    for case in sorted(cases, key=lambda case: [_sort_key(case.outcome.condition, name) for name in names]):
        strata.setdefault(tuple(map(case.outcome.condition.get, names)), []).append(case)
    return {labels: tuple(stratum) for labels, stratum in strata.items()}


def _sort_key(condition: Condition, name: str) -> tuple[float, str]:
    value = condition.get(name, "")
    return (0.0, value) if isinstance(value, str) else (float(value), "")


def _endings_table(runs: Mapping[str, CorrectnessGrades], conditions: Sequence[str]) -> Table:
    used_states = {case.outcome.state for grades in runs.values() for case in grades.cases}
    states = [state for state in STATES if state != "over-window" or state in used_states]
    rows: list[tuple[Cell, ...]] = []
    for model, grades in runs.items():
        for labels, cases in _strata(grades.cases, conditions).items():
            counts = Counter(case.outcome.state for case in cases)
            without_reference = sum(case.reference is None for case in cases)
            words = [len(case.answer.split()) for case in cases if case.gradable]
            length = sum(words) / len(words) if words else None
            rows.append((model, *labels, len(cases), *map(counts.__getitem__, states), without_reference, length))
    columns = ("model", *conditions, "asked", *states, "without a reference", "words of an answer")
    note = "Questions without options. An answer without a reference, and a question without an answer, is not marked."
    return Table("How the open questions ended", columns, tuple(rows), (note,))


def _grades_table(runs: Mapping[str, CorrectnessGrades], conditions: Sequence[str]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for model, grades in runs.items():
        for labels, cases in _strata(grades.cases, conditions).items():
            for cells in _judge_rows(replace(grades, cases=cases)):
                rows.append((model, *labels, *cells))
    shares = (SHARE, OF_DECIDED)
    gaps = ("no majority", "unreadable", "call failed", "not marked")
    several = any(len(grades.judges) > 1 for grades in runs.values())
    notes = (*_GRADE_NOTES, *([_MAJORITY_NOTE] if several else []), *_independence_warnings(runs.values()))
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


def _share_sentences(model: str, grades: CorrectnessGrades, conditions: Sequence[str]) -> Iterator[str]:
    if not grades.judges:
        return
    for labels, cases in _strata(grades.cases, conditions).items():
        share = correct_share(replace(grades, cases=cases), "right")
        if share is not None:
            where = " ".join(map(str, (model, *(label for label in labels if label is not None))))
            low, high = 100 * share.interval.low, 100 * share.interval.high
            yield (
                f"{where}, by {_judges_name(grades)}: {100 * share.value:.1f} % of {share.n} are correct "
                f"(95 % interval {low:.1f} to {high:.1f})."
            )


def _agreement_table(runs: Mapping[str, CorrectnessGrades]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for model, grades in runs.items():
        questions = {case.key: case.outcome.question for case in grades.cases}
        for name, raters in _rater_groups(grades):
            rows.append((model, *_agreement_cells(name, measure_agreement(raters, clusters=questions))))
    return Table("How far the judges agree", _AGREEMENT_COLUMNS, tuple(rows), _AGREEMENT_NOTES)


def _rater_groups(grades: CorrectnessGrades) -> Iterator[tuple[str, list[Mapping[str, str]]]]:
    """Yield each two judges, and all of them if there are more."""
    verdicts = {name: judge.verdicts for name, judge in grades.judges.items()}
    for one, other in combinations(verdicts, 2):
        yield f"{one} and {other}", [verdicts[one], verdicts[other]]
    if len(verdicts) > 2:
        yield "all", list(verdicts.values())


def _agreement_cells(name: str, raters: RaterAgreement) -> tuple[Cell, ...]:
    kappa, alpha = raters.kappa, raters.alpha
    kappa_cells = (None, None) if kappa is None else (kappa.value, kappa.interval)
    raw = raters.raw if raters.units else None
    return (name, raters.raters, raters.units, raw, *kappa_cells, alpha.value, alpha.interval)
