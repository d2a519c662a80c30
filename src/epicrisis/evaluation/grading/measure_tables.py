"""Tables of measured answers about patients' records (EHR study, Tables 2 to 4 and 13, Figures 3 to 8).

They show every metric by arm, length and kind of question, how cases ended, the evidence in the prompt, and the lengths
of records. Empty, refused and wrong answers are counted apart (errata E2). Rows of one table may have different numbers
of questions, because a setting with the same prompt as another is left out: differences are paired, means are not
compared (E5).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean, median
from typing import TypeAlias

from epicrisis.evaluation.analysis.conclusions import MEASURE_COLUMN, PATIENTS_COLUMN
from epicrisis.evaluation.analysis.grouping import P_COLUMN, correct_p_values
from epicrisis.evaluation.analysis.statistics import Difference, estimate_mean, paired_difference
from epicrisis.evaluation.analysis.table import Cell, Table
from epicrisis.evaluation.datasets.patient_records.lengths import BINS, K
from epicrisis.evaluation.grading.measurements import MeasuredCase
from epicrisis.evaluation.grading.scored_answers import ENDINGS

MeasuredCases: TypeAlias = Sequence[MeasuredCase]

ACCURACY, NUMBERS = "accuracy", "numbers"
RECALL, ABSTAINED, UNSCORED, SCORE = "evidence recall", "abstained rightly", "answered, not scored", "score"
PRIMARY = (ACCURACY, "judge-correctness", "nli-entailment", "token-f1", "exact-match")
"""What arms are tested by: the first of these that there is, `[MODEL]` behind its name left aside."""
ZERO = (ACCURACY, "exact-match", "token-f1", "meteor", "nli-entailment", "judge-correctness", "judge-completeness")
"""In these, likewise, a case that gives no answer counts 0. In all others it has no value: who says nothing contradicts
nothing, adds nothing and gets no number wrong."""
FROM_RECORD = ("evidence", "citations-verified", "evidence-recall", "abstained-rightly")
"""Values that a record has by itself: they say how an answer stands to its evidence, not how right it is."""
_NO_ANSWER = ("abstained", "unparsed")

NOTES = (
    f"Means are over the cases that were answered. In {', '.join(ZERO)} those that abstained or could not be read "
    "count 0, for they give nothing that is right; in all other metrics they have no value, and "
    f"`{NUMBERS}` is of answers to questions whose right answer has a number. What came back empty, was refused, did "
    "not fit the window or failed has no score anywhere and is counted beside (errata E2).",
    "Where the notes do not hold the answer, abstaining is right, and so is an option that says so. Such questions are "
    f"in no metric and no difference: the column `{ABSTAINED}` alone is about them.",
    "Intervals are 95 %, by a bootstrap of whole patients, for all questions of one read the same record (of whole "
    "questions where there is no patient; Wilson's of shares where each stands once). Rows may have fewer questions: a "
    "setting that would be the same prompt as another is left out.",
)
_TEST = (
    "Differences are paired by question, over those that both sides have scored by what they are measured by; p by "
    "flipping the signs of whole patients (questions where there is none), corrected by Holm for this table's {n} "
    "comparisons. No arm is chosen here: the best of several is no fair rival of one (errata E9)."
)
_LACKING = (
    f"`{UNSCORED}`: answered cases that have no value in a metric of other cases (a judge that was interrupted, or "
    "whose verdict cannot be read; a text over the window). Cases that gave no answer count 0 there all the same, so "
    "that such a mean is rather too low; without any value among the answers there is none."
)
_POOLED = (
    f"`{SCORE}`: of questions with options accuracy, of others the other metric under `{MEASURE_COLUMN}`; forms are "
    "pooled, each case counts once."
)


@dataclass(frozen=True, slots=True)
class MeasuredRow:
    """The cases of one row, and the cases it is compared with."""

    labels: tuple[Cell, ...]
    cases: MeasuredCases
    against: MeasuredCases = ()


def case_score(case: MeasuredCase, metric: str) -> float | None:
    """Return the case's value in a metric, or None if it has none.

    Accuracy applies to questions with options, all other metrics to those without. A case that abstained or cannot be
    read scores 0 in the metrics of ZERO. An unanswerable question has no score.
    """
    if not _fits(case, metric):
        return None
    if case.ending == "answered":
        return case.values.get(metric)
    return 0.0 if case.ending in _NO_ANSWER and _name(metric) in ZERO else None


def _fits(case: MeasuredCase, metric: str) -> bool:
    return not case.unanswerable and (metric == ACCURACY) == (case.form == "choice")


def _name(metric: str) -> str:
    return metric.partition("[")[0]


def list_metrics(cases: Iterable[MeasuredCase]) -> tuple[str, ...]:
    """Return the metrics of the cases, those that arms are tested by first."""
    found = dict.fromkeys(name for case in cases for name in case.values if name not in FROM_RECORD)
    return tuple(sorted(found, key=lambda name: (_place(name), name)))


def _place(metric: str) -> int:
    name = _name(metric)
    return PRIMARY.index(name) if name in PRIMARY else len(PRIMARY)


def select_measures(row: MeasuredRow) -> tuple[str, ...]:
    """Return the metrics to test a row by, at most one for each sort of question.

    These are accuracy for questions with options, and for others the first of PRIMARY that both sides have.
    """
    sides = [cases for cases in (row.cases, row.against) if cases]
    found = [
        name
        for name in list_metrics(case for cases in sides for case in cases)
        if _place(name) < len(PRIMARY) and all(_is_measured(cases, name) for cases in sides)
    ]
    others = [name for name in found if name != ACCURACY]
    return (*(name for name in found if name == ACCURACY), *others[:1])


def _is_measured(cases: MeasuredCases, metric: str) -> bool:
    """Return False if there are answers without any value: then only cases without an answer would count."""
    due = _due(cases, metric)
    return not due or any(metric in case.values for case in due)


def _due(cases: MeasuredCases, metric: str) -> list[MeasuredCase]:
    """Return the answers that a metric applies to."""
    return [case for case in cases if case.ending == "answered" and _fits(case, metric)]


@dataclass(frozen=True, slots=True)
class _Scored:
    """The figures of a row."""

    figures: tuple[Cell, ...]
    metrics: tuple[str, ...]
    """What the figures are of."""
    measures: tuple[str, ...]
    """What the difference is of."""


def metrics_table(
    title: str,
    labels: Sequence[str],
    rows: Sequence[MeasuredRow],
    *,
    baseline: str,
    remarks: Sequence[str] = (),
    seed: int = 0,
) -> Table:
    """Return a table with one line per row: how its cases ended, every metric, the evidence, and the difference to the
    baseline by the first metric of PRIMARY."""
    metrics = list_metrics(case for row in rows for case in row.cases)
    scored = [
        _Scored(tuple(_metric(row.cases, name, seed) for name in metrics), metrics, select_measures(row)[:1])
        for row in rows
    ]
    return _table(title, labels, metrics, rows, scored, baseline, remarks, seed)


def pooled_table(
    title: str,
    labels: Sequence[str],
    rows: Sequence[MeasuredRow],
    *,
    baseline: str,
    remarks: Sequence[str] = (),
    seed: int = 0,
) -> Table:
    """Return the table with one score per case instead of all metrics, so that a row has questions of every form."""
    scored = []
    for row in rows:
        measures = select_measures(row)
        mean = _mean(row.cases, partial(_value, measures=measures), seed)
        scored.append(_Scored((mean,), measures, measures))
    return _table(title, labels, (SCORE,), rows, scored, baseline, (_POOLED, *remarks), seed)


def _table(
    title: str,
    labels: Sequence[str],
    heads: Sequence[str],
    rows: Sequence[MeasuredRow],
    scored: Sequence[_Scored],
    baseline: str,
    remarks: Sequence[str],
    seed: int,
) -> Table:
    found = [_difference(row, each.measures, seed) for row, each in zip(rows, scored, strict=True)]
    where_any: dict[str, list[Cell]] = {
        UNSCORED: [_lacking(row.cases, each.metrics) for row, each in zip(rows, scored, strict=True)],
        ABSTAINED: [_mean(row.cases, lambda case: case.values.get("abstained-rightly"), seed) for row in rows],
        RECALL: [_mean(row.cases, lambda case: case.values.get("evidence-recall"), seed) for row in rows],
        PATIENTS_COLUMN: [_patients(row, each) for row, each in zip(rows, found, strict=True)],
    }
    more = {name: cells for name, cells in where_any.items() if any(cell is not None for cell in cells)}
    cells = tuple(
        (
            *row.labels,
            *_endings(row.cases),
            *each.figures,
            *(column[i] for column in more.values()),
            " and ".join(each.measures) or None,
            difference,
            p,
        )
        for i, (row, each, difference, p) in enumerate(zip(rows, scored, found, correct_p_values(found), strict=True))
    )
    columns = (*labels, "cases", *ENDINGS, *heads, *more, MEASURE_COLUMN, f"difference to {baseline}", P_COLUMN)
    compared = sum(each is not None for each in found)
    test = (_TEST.format(n=compared),) if compared else ()
    lacking = (_LACKING,) if UNSCORED in more else ()
    return Table(title, columns, cells, (*NOTES, *lacking, *test, *remarks))


def _endings(cases: MeasuredCases) -> tuple[int, ...]:
    ended = Counter(case.ending for case in cases)
    return (len(cases), *(ended[each] for each in ENDINGS))


def _metric(cases: MeasuredCases, metric: str, seed: int) -> Cell:
    return _mean(cases, partial(case_score, metric=metric), seed) if _is_measured(cases, metric) else None


def _value(case: MeasuredCase, measures: Sequence[str]) -> float | None:
    return next((case_score(case, metric) for metric in measures if _fits(case, metric)), None)


def _mean(cases: MeasuredCases, value: Callable[[MeasuredCase], float | None], seed: int) -> Cell:
    """Return the mean of the values, or None if no case has one."""
    scores = [value(case) for case in cases]
    clusters = [case.cluster for case in cases]
    once = len(set(clusters)) == len(clusters)
    if all(each is None for each in scores):
        return None
    return estimate_mean(scores, None if once else clusters, seed=seed)


def _lacking(cases: MeasuredCases, metrics: Iterable[str]) -> Cell:
    """Return how many answers have no value, by metric. Number metrics are left out."""
    without = {
        name: sum(name not in case.values for case in _due(cases, name))
        for name in metrics
        if not name.startswith(NUMBERS)
    }
    return ", ".join(f"{n} by {name}" for name, n in without.items() if n) or None


def _difference(row: MeasuredRow, measures: Sequence[str], seed: int) -> Difference | None:
    mine, theirs = (_by_question(cases, measures) for cases in (row.cases, row.against))
    clusters = {case.question: case.cluster for case in row.cases}
    return paired_difference(mine, theirs, clusters, seed=seed) if mine.keys() & theirs.keys() else None


def _by_question(cases: MeasuredCases, measures: Sequence[str]) -> dict[str, float]:
    values: dict[str, list[float]] = {}
    for case in cases:
        if (value := _value(case, measures)) is not None:
            values.setdefault(case.question, []).append(value)
    return {question: fmean(each) for question, each in values.items()}


def _patients(row: MeasuredRow, difference: Difference | None) -> int | None:
    """Return the number of patients, or None if nothing is compared or a question is about no patient."""
    return difference.clusters if difference and all(case.patient for case in row.cases) else None


def group_cases(cases: Iterable[MeasuredCase], names: Sequence[str]) -> dict[tuple[Cell, ...], list[MeasuredCase]]:
    """Group the cases by these conditions, in the order of their first cases."""
    groups: dict[tuple[Cell, ...], list[MeasuredCase]] = {}
    for case in cases:
        groups.setdefault(tuple(case.condition.get(name, "") for name in names), []).append(case)
    return groups


def group_rows(model: str, cases: MeasuredCases, names: Sequence[str], baseline: str) -> list[MeasuredRow]:
    """Return a row for each value of these conditions and each arm, with the baseline to compare with."""
    parts = group_cases(_in_order(cases, names), names)
    return [
        MeasuredRow((model, *labels, arm), own, () if arm == baseline else by_arm.get((baseline,), ()))
        for labels, part in parts.items()
        for by_arm in [group_cases(part, ("arm",))]
        for (arm,), own in by_arm.items()
    ]


def _in_order(cases: MeasuredCases, names: Sequence[str]) -> list[MeasuredCase]:
    """Sort the cases by these conditions, bins by length and others by name. The order of arms does not change."""

    def place(case: MeasuredCase) -> list[tuple[int, str]]:
        values = [str(case.condition.get(name, "")) for name in names]
        return [(BINS.index(value) if value in BINS else -1, value) for value in values]

    return sorted(cases, key=place)


def lengths_table(runs: Mapping[str, MeasuredCases], remarks: Sequence[str] = (), *, estimated: bool = False) -> Table:
    """Return the lengths of records in tokens of the answering model, by bin (Table 1, section 4.2).

    With `estimated`, the note says that tokens were estimated from characters.
    """
    rows: list[tuple[Cell, ...]] = []
    for model, cases in runs.items():
        for (of,), part in group_cases(cases, ("set",)).items():
            tokens = _tokens(part)
            for name in (*BINS, "all"):
                here = {p: n for p, n in tokens.items() if name in ("all", _bin(part, p))}
                asked = {case.question for case in part if case.patient in here}
                if here:
                    lengths = list(here.values())
                    told = (min(lengths), round(median(lengths)), round(fmean(lengths)), max(lengths))
                    rows.append((model, of, name, len(asked), len(here), *told))
    columns = ("model", "set", "bin", "questions", "patients", "shortest", "median", "mean", "longest")
    by = "estimated from the text's length" if estimated else "by the answering model's own tokenizer"
    note = f"Tokens of Include All: all notes of a patient, {by}. K is {K:,}."
    return Table("How long the records are", columns, tuple(rows), (note, *remarks))


def distribution_table(runs: Mapping[str, MeasuredCases], steps: int = 16) -> Table:
    """Return the number of patients by the length of their record, in steps that double (Figures 6 and 7)."""
    rows: list[tuple[Cell, ...]] = []
    for model, cases in runs.items():
        for (of,), part in group_cases(cases, ("set",)).items():
            lengths = _tokens(part).values()
            ends = [250 * 2**step for step in range(steps)]
            counts = [sum(end // 2 < n <= end for n in lengths) for end in ends]
            counts[0] += sum(n <= ends[0] // 2 for n in lengths)
            there = [i for i, count in enumerate(counts) if count]
            for i in range(there[0], there[-1] + 1) if there else ():
                rows.append((model, of, ends[i], counts[i]))
    columns = ("model", "set", "up to tokens", "patients")
    return Table("Records by their length", columns, tuple(rows), ("Each step is twice as long as the one before.",))


def _tokens(cases: MeasuredCases) -> dict[str, int]:
    return {case.patient or "": int(case.condition["tokens"]) for case in cases if "tokens" in case.condition}


def _bin(cases: MeasuredCases, patient: str) -> str:
    return next((str(case.condition["bin"]) for case in cases if case.patient == patient), "")
