"""Tables of measured answers about patients' records (EHR study, Tables 2 to 4 and 13, Figures 3 to 8).

They show every metric by arm, length and kind of question, how cases ended, the evidence in the prompt, and the lengths
of records. Empty, refused and wrong answers are counted separately (errata E2). Rows of one table may have different
numbers of questions, because a setting with the same prompt as another is left out: differences are paired, means are
not compared (E5).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from operator import attrgetter
from statistics import fmean, median
from typing import TypeAlias

from epicrisis.evaluation.analysis.conclusions import MEASURE_COLUMN, PATIENTS_COLUMN
from epicrisis.evaluation.analysis.grouping import P_COLUMN, add_differences, exceed_failed_share, group_by, mean_by
from epicrisis.evaluation.analysis.statistics import Difference, Interval, estimate_mean, paired_difference
from epicrisis.evaluation.analysis.table import Cell, Table
from epicrisis.evaluation.datasets.patient_records.populations import BINS, K
from epicrisis.evaluation.grading.measurements import MeasuredCase
from epicrisis.evaluation.grading.scored_answers import ENDINGS

MeasuredCases: TypeAlias = Sequence[MeasuredCase]

ACCURACY, NUMBERS = "accuracy", "numbers"
RECALL, ABSTAINED, UNSCORED, SCORE = "evidence recall", "abstained rightly", "answered, not scored", "score"
PRIMARY = (ACCURACY, "judge-correctness", "nli-entailment", "token-f1", "exact-match")
"""The order in which metrics are preferred for the test of arms, without the `[MODEL]` after the name."""
ZERO = (ACCURACY, "exact-match", "token-f1", "meteor", "nli-entailment", "judge-correctness", "judge-completeness")
"""The metrics in which a case without an answer counts 0, without the `[MODEL]` after the name. In all others it has no
value: a missing answer contradicts nothing, adds nothing and gets no number wrong."""
FROM_RECORD = ("evidence", "citations-verified", "evidence-recall", "abstained-rightly")
"""Values from the record alone: they relate an answer to its evidence and say nothing about its correctness."""
BOUNDS = "difference, bounds"

NOTES = (
    f"In {', '.join(ZERO)} means are over all cases: one without an answer counts 0, for it gives nothing that is "
    "right, whether it abstained, came back empty, was refused, could not be read, did not fit the window or failed. "
    "Each of these is counted beside (errata E2). In all other metrics means are over the answered cases, and "
    f"`{NUMBERS}` is of answers to questions whose right answer has a number.",
    "If the notes do not contain the answer, abstaining is right, and so is an option that says so. Such questions "
    f"are in no metric and no difference: only the column `{ABSTAINED}` counts them.",
    "Intervals are 95 %, by a bootstrap of whole patients, for all questions of one read the same record (of whole "
    "questions where there is no patient; Wilson's of shares where each stands once). Rows may have fewer questions: a "
    "setting that would be the same prompt as another is left out.",
)
_TEST = (
    "Differences are paired by question, over those that both sides have scored by what they are measured by; p by "
    "flipping the signs of whole patients (questions where there is none), corrected by Holm for this table's {n} "
    "comparisons. No arm is chosen here: comparing only the best of several arms would be unfair (errata E9)."
)
_LACKING = (
    f"`{UNSCORED}`: answered cases that have no value in a metric of other cases (a judge that was interrupted, or "
    "whose verdict cannot be read; a text over the window). Cases that gave no answer count 0 there all the same, so "
    "that such a mean is rather too low; without any value among the answers there is none."
)
_BOUNDS = (
    f"`{BOUNDS}`: the lowest and the highest difference if the answers of failed calls had scored 0 or 1. They are "
    "given where more than 1 % of the cases failed."
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

    Accuracy applies to questions with options, all other metrics to those without. A case without an answer scores 0
    in the metrics of ZERO. An unanswerable question has no score.
    """
    if not _applies(case, metric):
        return None
    if case.ending == "answered":
        return case.values.get(metric)
    return 0.0 if _base_name(metric) in ZERO else None


def _applies(case: MeasuredCase, metric: str) -> bool:
    return not case.unanswerable and (metric == ACCURACY) == (case.form == "choice")


def _base_name(metric: str) -> str:
    return metric.partition("[")[0]


def list_metrics(cases: Iterable[MeasuredCase]) -> tuple[str, ...]:
    """Return the metrics of the cases, those that arms are tested by first."""
    metrics = set(chain.from_iterable(case.values for case in cases)).difference(FROM_RECORD)
    return tuple(sorted(sorted(metrics), key=_preference))


def _preference(metric: str) -> int:
    name = _base_name(metric)
    return PRIMARY.index(name) if name in PRIMARY else len(PRIMARY)


def select_measures(row: MeasuredRow) -> tuple[str, ...]:
    """Return the metrics to test a row by, at most one for each sort of question.

    These are accuracy for questions with options, and for others the first of PRIMARY that both sides have.
    """
    measures: dict[bool, str] = {}
    for metric in list_metrics(chain(row.cases, row.against)):
        if _preference(metric) < len(PRIMARY) and _is_scored(row.cases, metric) and _is_scored(row.against, metric):
            measures.setdefault(metric == ACCURACY, metric)
    return tuple(measures[measure] for measure in sorted(measures, reverse=True))


def _is_scored(cases: MeasuredCases, metric: str) -> bool:
    """Return False if there are answers, but none has a value: the mean would be of cases without an answer only."""
    answers = _applicable_answers(cases, metric)
    return not answers or metric in chain.from_iterable(answer.values for answer in answers)


def _applicable_answers(cases: MeasuredCases, metric: str) -> list[MeasuredCase]:
    return [case for case in cases if case.ending == "answered" and _applies(case, metric)]


@dataclass(frozen=True, slots=True)
class _RowFigures:
    row: MeasuredRow
    figures: tuple[Cell, ...]
    metrics: tuple[str, ...]
    """The metrics of the figures."""
    measures: tuple[str, ...]
    """The metrics of the difference."""


def metrics_table(
    title: str, labels: Sequence[str], rows: Sequence[MeasuredRow], *, baseline: str, remarks: Sequence[str] = ()
) -> Table:
    """Return a table with one line per row: how its cases ended, every metric, the evidence, and the difference to the
    baseline by the first metric of PRIMARY."""
    metrics = list_metrics(chain.from_iterable(row.cases for row in rows))
    figures: list[_RowFigures] = []
    for row in rows:
        means: list[Cell] = []
        for metric in metrics:
            score = partial(case_score, metric=metric)
            means.append(_mean(row.cases, score) if _is_scored(row.cases, metric) else None)
        figures.append(_RowFigures(row, tuple(means), metrics, select_measures(row)[:1]))
    return _build_table(title, (*labels, "cases", *ENDINGS, *metrics), figures, baseline, remarks)


def pooled_table(
    title: str, labels: Sequence[str], rows: Sequence[MeasuredRow], *, baseline: str, remarks: Sequence[str] = ()
) -> Table:
    """Return the table with one score per case instead of all metrics, so that a row has questions of every form."""
    figures: list[_RowFigures] = []
    for row in rows:
        measures = select_measures(row)
        mean = _mean(row.cases, partial(_first_score, measures=measures))
        figures.append(_RowFigures(row, (mean,), measures, measures))
    return _build_table(title, (*labels, "cases", *ENDINGS, SCORE), figures, baseline, (_POOLED, *remarks))


def _build_table(
    title: str, headings: Sequence[str], figures: Sequence[_RowFigures], baseline: str, remarks: Sequence[str]
) -> Table:
    differences: list[Difference | None] = []
    optional: dict[str, list[Cell]] = defaultdict(list)
    for line in figures:
        cases = line.row.cases
        score = partial(_first_score, measures=line.measures)
        first, second = (mean_by(side, attrgetter("question"), score) for side in (cases, line.row.against))
        difference: Difference | None = None
        if first.keys() & second.keys():
            difference = paired_difference(first, second, {case.question: case.cluster for case in cases})
        differences.append(difference)
        optional[BOUNDS].append(_bound_difference(line.row, line.measures))
        unscored: list[str] = []
        for metric in line.metrics:
            count = sum(metric not in case.values for case in _applicable_answers(cases, metric))
            if count and not metric.startswith(NUMBERS):
                unscored.append(f"{count} by {metric}")
        optional[UNSCORED].append(", ".join(unscored) or None)
        optional[ABSTAINED].append(_mean(cases, lambda case: case.values.get("abstained-rightly")))
        optional[RECALL].append(_mean(cases, lambda case: case.values.get("evidence-recall")))
        # Patients are counted only if every question is about one.
        by_patient = difference is not None and all(case.patient for case in cases)
        optional[PATIENTS_COLUMN].append(difference.clusters if difference is not None and by_patient else None)
    columns = {name: cells for name, cells in optional.items() if cells.count(None) < len(cells)}
    rows: list[tuple[Cell, ...]] = []
    for line, *cells in zip(figures, *columns.values(), strict=True):
        endings = Counter(case.ending for case in line.row.cases)
        counts = (len(line.row.cases), *(endings[ending] for ending in ENDINGS))
        rows.append((*line.row.labels, *counts, *line.figures, *cells, " and ".join(line.measures) or None))
    notes = list(NOTES)
    if UNSCORED in columns:
        notes.append(_LACKING)
    if BOUNDS in columns:
        notes.append(_BOUNDS)
    if comparisons := len(differences) - differences.count(None):
        notes.append(_TEST.format(n=comparisons))
    last = (MEASURE_COLUMN, f"difference to {baseline}", P_COLUMN)
    return Table(title, (*headings, *columns, *last), add_differences(rows, differences), (*notes, *remarks))


def _bound_difference(row: MeasuredRow, measures: Sequence[str]) -> Interval | None:
    """Return the lowest and the highest difference that the lost replies allow, or None for few failures."""
    if not exceed_failed_share(*([case.ending == "failed" for case in cases] for cases in (row.cases, row.against))):
        return None

    def score(case: MeasuredCase, of_failed: float) -> float | None:
        value = _first_score(case, measures)
        return of_failed if value is not None and case.ending == "failed" else value

    limits: list[float] = []
    for of_failed in (0.0, 1.0):
        first = mean_by(row.cases, attrgetter("question"), partial(score, of_failed=of_failed))
        second = mean_by(row.against, attrgetter("question"), partial(score, of_failed=1.0 - of_failed))
        shared = first.keys() & second.keys()
        if not shared:
            return None
        limits.append(fmean(first[question] - second[question] for question in shared))
    return Interval(limits[0], limits[1], 1.0)


def _first_score(case: MeasuredCase, measures: Sequence[str]) -> float | None:
    """Return the case's score in the first of these metrics that applies to it."""
    for metric in measures:
        if _applies(case, metric):
            return case_score(case, metric)
    return None


def _mean(cases: MeasuredCases, score: Callable[[MeasuredCase], float | None]) -> Cell:
    """Return the mean score, or None if no case has one."""
    scores, clusters = list(map(score, cases)), [case.cluster for case in cases]
    if scores.count(None) == len(scores):
        return None
    return estimate_mean(scores, None if len(set(clusters)) == len(clusters) else clusters)


def group_cases(cases: Iterable[MeasuredCase], names: Sequence[str]) -> dict[tuple[Cell, ...], list[MeasuredCase]]:
    """Group the cases by these conditions, in the order of their first cases."""
    return group_by(cases, lambda case: tuple(case.condition.get(name, "") for name in names))


def group_rows(model: str, cases: MeasuredCases, names: Sequence[str], baseline: str) -> list[MeasuredRow]:
    """Return a row for each value of these conditions and each arm, with the baseline to compare with.

    Bins are sorted by length and other values by name. The order of arms does not change.
    """

    def place(case: MeasuredCase) -> list[tuple[int, str]]:
        key: list[tuple[int, str]] = []
        for name in names:
            value = str(case.condition.get(name, ""))
            key.append((BINS.index(value) if value in BINS else -1, value))
        return key

    rows: list[MeasuredRow] = []
    for labels, part in group_cases(sorted(cases, key=place), names).items():
        arms = group_cases(part, ("arm",))
        for arm, arm_cases in arms.items():
            against = () if arm == (baseline,) else arms.get((baseline,), ())
            rows.append(MeasuredRow((model, *labels, *arm), arm_cases, against))
    return rows


def _split_sets(runs: Mapping[str, MeasuredCases]) -> Iterator[tuple[str, Cell, list[MeasuredCase], dict[str, int]]]:
    """Yield the model, name and cases of each set of each run, and the tokens of its patients' records."""
    for model, cases in runs.items():
        for (name,), part in group_cases(cases, ("set",)).items():
            tokens = {case.patient or "": int(case.condition["tokens"]) for case in part if "tokens" in case.condition}
            yield model, name, part, tokens


def lengths_table(runs: Mapping[str, MeasuredCases], remarks: Sequence[str] = (), *, estimated: bool = False) -> Table:
    """Return the lengths of records in tokens of the answering model, by bin (Table 1, section 4.2).

    With `estimated`, the note says that tokens were estimated from characters.
    """
    rows: list[tuple[Cell, ...]] = []
    for model, name, cases, tokens in _split_sets(runs):
        bins = {case.patient: case.condition["bin"] for case in reversed(cases) if case.patient in tokens}
        for bin_name in (*BINS, "all"):
            patients = [patient for patient in tokens if bin_name in ("all", bins.get(patient))]
            questions = {case.question for case in cases if case.patient in patients}
            if patients:
                lengths = [tokens[patient] for patient in patients]
                figures = (min(lengths), round(median(lengths)), round(fmean(lengths)), max(lengths))
                rows.append((model, name, bin_name, len(questions), len(patients), *figures))
    columns = ("model", "set", "bin", "questions", "patients", "shortest", "median", "mean", "longest")
    by = "estimated from the text's length" if estimated else "by the answering model's own tokenizer"
    note = f"Tokens of Include All: all notes of a patient, {by}. K is {K:,}."
    return Table("How long the records are", columns, tuple(rows), (note, *remarks))


def distribution_table(runs: Mapping[str, MeasuredCases]) -> Table:
    """Return the number of patients by the length of their record, in steps that double (Figures 6 and 7)."""
    ends = [250 << step for step in range(16)]
    rows: list[tuple[Cell, ...]] = []
    for model, name, _, tokens in _split_sets(runs):
        lengths = (token for token in tokens.values() if ends[-1] >= token)
        steps_of_patients = Counter(map(partial(bisect_left, ends), lengths))
        if steps_of_patients:
            for step in range(min(steps_of_patients), max(steps_of_patients) + 1):
                rows.append((model, name, ends[step], steps_of_patients[step]))
    columns = ("model", "set", "up to tokens", "patients")
    return Table("Records by their length", columns, tuple(rows), ("Each step is twice as long as the one before.",))
