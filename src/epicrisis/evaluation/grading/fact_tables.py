"""Tables of structured entries in experiments on records: their effect, missing information, and computed answers.

An arm that reads structured entries is compared with the same arm without them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter

from epicrisis.evaluation.analysis.grouping import P_COLUMN, add_differences, mean_by
from epicrisis.evaluation.analysis.statistics import Difference, estimate_mean, paired_difference
from epicrisis.evaluation.analysis.table import Cell, Table
from epicrisis.evaluation.grading.computed_answers import COMPUTED_GRADES, WITH_FACTS
from epicrisis.evaluation.grading.measure_tables import MeasuredCases, MeasuredRow, group_cases, metrics_table
from epicrisis.evaluation.grading.measurements import MeasuredCase

_RIVAL = "the arm without facts"
_LABELS = ("model", "set", "arm")
_MISSING_NOTES = (
    "Questions whose answer is missing from the record, as in LongHealth: abstaining is right. Shares are of the cases "
    "that answered, abstained or could not be read.",
    f"`abstained wrongly`: the share of questions with an answer in the record. Intervals are 95 %, by a bootstrap of "
    f"whole patients. The difference is of `abstained rightly`, to {_RIVAL}, paired by question.",
)
_COMPUTED_NOTES = (
    "How the answer that a program computes from structured entries compares with the right one, before a model words "
    "it. `rightly-abstained`: nothing was computed, and the record has no answer. `not-understood`: the question is "
    "left to the notes.",
)


def build_fact_tables(runs: Mapping[str, MeasuredCases], remarks: Sequence[str]) -> Iterator[Table]:
    """Yield the tables for which the runs have cases, by the names of their models."""
    rows = _list_rows(runs)
    pairs = [row for row in rows if row.against]
    if pairs:
        title = "With and without structured entries"
        yield metrics_table(title, _LABELS, pairs, baseline=_RIVAL, remarks=remarks)
    if any(case.unanswerable for row in rows for case in row.cases):
        yield _missing_table(rows)
    if any(case.computed for row in rows for case in row.cases):
        yield _computed_table(rows)


def _list_rows(runs: Mapping[str, MeasuredCases]) -> list[MeasuredRow]:
    """Return a row for each model, set and arm. An arm with facts is compared with the same one without."""
    rows: list[MeasuredRow] = []
    for model, cases in runs.items():
        groups = group_cases(cases, ("set", "arm"))
        for (name, arm), members in groups.items():
            rival = (name, str(arm).removesuffix(WITH_FACTS))
            against = groups.get(rival, []) if rival != (name, arm) else []
            rows.append(MeasuredRow((model, name, arm), members, against))
    return rows


def _abstained_rightly(case: MeasuredCase) -> float | None:
    return case.values.get("abstained-rightly")


def _abstained_wrongly(case: MeasuredCase) -> float | None:
    return None if case.unanswerable else float(case.ending == "abstained")


def _missing_table(rows: Sequence[MeasuredRow]) -> Table:
    """Return how often each arm abstained where the record has no answer, and where it has one."""
    lines: list[tuple[Cell, ...]] = []
    differences: list[Difference | None] = []
    for row in rows:
        missing = [case for case in row.cases if case.unanswerable]
        clusters = {case.question: case.cluster for case in row.cases}
        one, two = (mean_by(side, attrgetter("question"), _abstained_rightly) for side in (row.cases, row.against))
        differences.append(paired_difference(one, two, clusters) if one.keys() & two.keys() else None)
        figures = _mean(row.cases, _abstained_rightly), len(row.cases) - len(missing)
        lines.append((*row.labels, len(missing), *figures, _mean(row.cases, _abstained_wrongly)))
    figures_columns = ("missing", "abstained rightly", "answerable", "abstained wrongly")
    columns = (*_LABELS, *figures_columns, f"difference to {_RIVAL}", P_COLUMN)
    return Table("Missing information", columns, add_differences(lines, differences), _MISSING_NOTES)


def _mean(cases: MeasuredCases, score: Callable[[MeasuredCase], float | None]) -> Cell:
    scores = list(map(score, cases))
    return None if scores.count(None) == len(scores) else estimate_mean(scores, [case.cluster for case in cases])


def _computed_table(rows: Sequence[MeasuredRow]) -> Table:
    """Return the grades of computed answers by kind of question."""
    lines: list[tuple[Cell, ...]] = []
    for row in rows:
        graded = [case for case in row.cases if case.computed]
        kinds = dict.fromkeys(sorted(case.category for case in graded))
        for kind in (*kinds, "all") if graded else ():
            grades = Counter(case.computed for case in graded if kind in ("all", case.category))
            lines.append((*row.labels, kind, grades.total(), *(grades[grade] for grade in COMPUTED_GRADES)))
    columns = (*_LABELS, "category", "cases", *COMPUTED_GRADES)
    return Table("Computed answers", columns, tuple(lines), _COMPUTED_NOTES)
