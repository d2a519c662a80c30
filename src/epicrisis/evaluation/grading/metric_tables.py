"""Agreement and disagreement of metrics on measured answers (EHR study, appendices D.2 and E: Tables 6, 7, 11 and 12,
Figures 9 and 10).

All tables are over answered cases with a value on both sides, for each set and form apart. Other cases are counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, combinations, filterfalse, islice
from operator import gt

import numpy as np

from epicrisis.core.printable import agree, count_noun
from epicrisis.evaluation.analysis.correlation import correlate
from epicrisis.evaluation.analysis.grouping import P_COLUMN, add_differences, group_by
from epicrisis.evaluation.analysis.statistics import Difference, Mean, estimate_mean, paired_difference
from epicrisis.evaluation.analysis.table import Cell, Table
from epicrisis.evaluation.grading.measure_tables import ACCURACY, FROM_RECORD, MeasuredCases
from epicrisis.evaluation.grading.measurements import MeasuredCase
from epicrisis.evaluation.grading.scored_answers import ENDINGS

HIGH, LOW = 0.7, 0.3
"""A value above HIGH is good, as in the study's Table 6. A value below LOW is bad; the study does not fix a limit."""
APART = 0.5
"""The smallest difference of two judges that disagree, in Table 7."""
LONG, RIGHT = 16_000, 0.5
"""The cases of Figure 10: records of at least LONG tokens (16K; K is 1,000 here), correctness above RIGHT."""
EXAMPLES = 3
"""The most question ids in a cell."""
BOOTSTRAP = "by a bootstrap of whole patients (of questions where there is none)"

_RHO = "Spearman's rho"
CORRECTNESS, FAITHFULNESS = "judge-correctness", "judge-faithfulness"
CONSISTENT = "nli-non-contradiction"
NUMBERS = "numbers-recall"
CROWDED = "bertscore-f1"
"""A metric with values near 1, for which HIGH and LOW mean nothing."""


def agreement_tables(cases: MeasuredCases) -> tuple[Table, ...]:
    """Return all tables of the settings that show notes, for each of `split_populations`, without empty tables."""
    tables: list[Table] = []
    for name, part in split_populations(with_notes(cases)).items():
        before, after = (f"{name}, ", f": {name}") if name else ("", "")
        tables += correlation_tables(part, f"{before}all settings that show notes")
        if judges := metrics_named(part, CORRECTNESS):
            selection = f"{before}correctness above 50 by {metric_model(judges[0])}, records of 16K tokens and more"
            tables += correlation_tables(long_and_right(part, judges[0]), selection)
        for make_table in (contradiction_table, judge_disagreement_table, missed_table, numbers_table):
            table = make_table(part)
            tables.append(replace(table, title=f"{table.title}{after}"))
    return tuple(table for table in tables if table.rows)


def split_populations(cases: Iterable[MeasuredCase]) -> dict[str, list[MeasuredCase]]:
    """Split the cases into groups that are never compared (errata E5): sets (condition `set`), and open and extractive
    answers if a set has both. The name of a single group without a set is empty."""
    populations: dict[str, list[MeasuredCase]] = {}
    for name, of_set in group_by(cases, lambda case: str(case.condition.get("set", ""))).items():
        forms = group_by(of_set, lambda case: case.form)
        for form, part in forms.items():
            populations[", ".join(filter(None, (name, f"{form} answers" if len(forms) > 1 else "")))] = part
    return populations


def with_notes(cases: Iterable[MeasuredCase]) -> list[MeasuredCase]:
    """Return the open answers of the settings that show notes ("non-exclude")."""
    answers = open_answers(cases)
    return list(filterfalse(lambda case: str(case.condition.get("arm", "")).startswith("exclude-"), answers))


def open_answers(cases: Iterable[MeasuredCase]) -> list[MeasuredCase]:
    """Return the measured cases: answered, without options, and with an answer in the notes."""
    return [case for case in cases if case.ending == "answered" and case.form != "choice" and not case.unanswerable]


def long_and_right(cases: Iterable[MeasuredCase], judge: str) -> list[MeasuredCase]:
    """Return the cases of Figure 10, by the correctness of this judge. The length of the record must be known."""
    right = filter(lambda case: case.values.get(judge, 0.0) > RIGHT, cases)
    return list(filter(lambda case: float(case.condition.get("tokens", 0)) >= LONG, right))


def list_metrics(cases: Iterable[MeasuredCase]) -> tuple[str, ...]:
    """Return the names of all metrics of the cases, sorted, without accuracy and the values from the record alone."""
    names = set(chain.from_iterable(case.values for case in cases))
    return tuple(sorted(names.difference(FROM_RECORD, (ACCURACY,))))


def metrics_named(cases: Iterable[MeasuredCase], name: str) -> tuple[str, ...]:
    """Return the metrics with this name, of any model: `judge-correctness[MODEL]`."""
    return tuple(filter(lambda metric: metric.partition("[")[0] == name, list_metrics(cases)))


def metric_model(metric: str) -> str:
    """Return the model in the brackets of a metric."""
    return metric.partition("[")[2].removesuffix("]")


def correlation_tables(cases: MeasuredCases, selection: str) -> tuple[Table, Table]:
    """Return the matrix of all metrics, and the same by pairs with intervals. `selection` describes the cases."""
    scores: dict[str, list[float | None]] = {}
    matrix: dict[str, dict[str, Cell]] = {}
    for metric in list_metrics(cases):
        scores[metric] = [case.values.get(metric) for case in cases]
        matrix[metric] = {metric: 1.0}
    rows: list[tuple[Cell, ...]] = []
    for one, other in combinations(scores, 2):
        pair = correlate(scores[one], scores[other], "spearman", _clusters(cases))
        matrix[one][other] = matrix[other][one] = pair.value
        rows.append((one, other, pair.n, pair.clusters, pair.unscored, pair.value, pair.interval))
    matrix_rows: list[tuple[Cell, ...]] = []
    for metric, values in scores.items():
        unscored = values.count(None)
        matrix_rows.append((metric, len(values) - unscored, unscored, *(matrix[metric][score] for score in scores)))
    note = f"{_RHO}; the study does not say which coefficient its figures show. None where a metric has but one value."
    columns = ("metric", "other", "n", "clusters", "not scored by both", _RHO, "interval")
    intervals = f"Intervals are 95 %, {BOOTSTRAP}; `clusters` counts these. No pair is tested."
    matrix_columns = ("metric", "n", "not scored", *scores)
    return (
        Table(f"Correlations of the metrics: {selection}", matrix_columns, tuple(matrix_rows), (note,)),
        Table(f"Metrics pair by pair: {selection}", columns, tuple(rows), (note, intervals)),
    )


def _scored_by(cases: MeasuredCases, *metrics: str) -> list[MeasuredCase]:
    return [case for case in cases if case.values.keys() >= set(metrics)]


def _values(cases: MeasuredCases, metric: str) -> list[float]:
    return [item[metric] for item in (case.values for case in cases)]


def _clusters(cases: MeasuredCases) -> list[str]:
    return [case.cluster for case in cases]


def _above(cases: MeasuredCases, metric: str) -> list[MeasuredCase]:
    return list(filter(lambda case: case.values[metric] > HIGH, cases))


def _below(cases: MeasuredCases, metric: str) -> list[MeasuredCase]:
    return list(filter(lambda case: case.values[metric] < LOW, cases))


def contradiction_table(cases: MeasuredCases) -> Table:
    """Return the answers that a judge finds correct and the NLI model finds contradictory, both above HIGH."""
    rows: list[tuple[Cell, ...]] = []
    for nli in metrics_named(cases, CONSISTENT):
        for judge in metrics_named(cases, CORRECTNESS):
            both = _scored_by(cases, nli, judge)
            contradictory = [case for case in _above(both, judge) if 1 - case.values[nli] > HIGH]
            counts = (len(both), len(cases) - len(both), len(contradictory), _share(contradictory, both))
            rows.append((metric_model(judge), metric_model(nli), *counts, _examples(contradictory)))
    columns = ("judge", "NLI model", "n", "not scored by both", "disagree", "share", "examples")
    notes = (
        f"Disagree: contradiction above {HIGH} and correctness above {HIGH} (the study's Table 6, which counts "
        "pairs of question and answer over an unnamed choice of settings).",
        f"Shares with 95 % intervals, {BOOTSTRAP}.",
    )
    return Table("Contradicted by NLI and correct by the judge", columns, tuple(rows), notes)


def _share(part: MeasuredCases, cases: MeasuredCases) -> Mean | None:
    """Return the share of the cases that are in the part, or None without cases."""
    keys = {item.key for item in part}
    return estimate_mean([float(case.key in keys) for case in cases], _clusters(cases)) if cases else None


def _examples(cases: MeasuredCases) -> str:
    """Return the ids of the first EXAMPLES questions."""
    ids = {case.question.rpartition(":")[0] or case.question: None for case in cases}
    return ", ".join(islice(ids, EXAMPLES))


def judge_disagreement_table(cases: MeasuredCases) -> Table:
    """Return for each two judges how often their correctness differs by APART or more, and which is milder."""
    rows: list[tuple[Cell, ...]] = []
    differences: list[Difference | None] = []
    for first, second in combinations(metrics_named(cases, CORRECTNESS), 2):
        both = _scored_by(cases, first, second)
        apart = [case for case in both if abs(case.values[first] - case.values[second]) >= APART]
        higher = sum(map(gt, _values(apart, first), _values(apart, second)))
        counts = (len(both), len(cases) - len(both), len(apart), _share(apart, both), higher, len(apart) - higher)
        rows.append((metric_model(first), metric_model(second), *counts, _examples(apart)))
        difference: Difference | None = None
        if both:
            keys, clusters = [item.key for item in both], {item.key: item.cluster for item in both}
            one, other = (dict(zip(keys, _values(both, judge), strict=True)) for judge in (first, second))
            difference = paired_difference(one, other, clusters)
        differences.append(difference)
    counted = ("n", "not scored by both", "apart", "share", "judge higher", "other higher", "examples")
    columns = ("judge", "other judge", *counted, "difference of the judges", P_COLUMN)
    notes = (
        f"Apart: correctness of the two differs by {APART} or more, two steps of the rubric (the study's Table 7).",
        "Differences are paired by case; p by flipping the signs of whole patients (questions where there is none), "
        f"corrected by Holm for this table's {len(differences) - differences.count(None)} comparisons.",
    )
    return Table("Judges that disagree", columns, add_differences(rows, differences), notes)


def missed_table(cases: MeasuredCases) -> Table:
    """Return how often each metric is low on answers a judge finds correct, and high on those it finds wrong."""
    rows: list[tuple[Cell, ...]] = []
    for judge in metrics_named(cases, CORRECTNESS):
        for metric in list_metrics(cases):
            if metric.partition("[")[0] in (CORRECTNESS, CROWDED):
                continue
            both = _scored_by(cases, judge, metric)
            correct, wrong = _above(both, judge), _below(both, judge)
            low, high = _below(correct, metric), _above(wrong, metric)
            missed = (len(correct), len(low), _examples(low), len(wrong), len(high), _examples(high))
            rows.append((metric_model(judge), metric, len(both), len(cases) - len(both), *missed))
    patterns = ("correct", "of these low", "examples", "wrong", "of these high", "examples of these")
    columns = ("judge", "metric", "n", "not scored by both", *patterns)
    notes = (
        f"Correct: the judge's correctness above {HIGH}; wrong: below {LOW}; low and high in the same way for the "
        "metric. The study's Table 11 is a manual review; this table counts its patterns. Correct and unfaithful is "
        f"the row of `{FAITHFULNESS}`: what is true and not in the reference is unfaithful there (errata E4).",
        f"`{CROWDED}` has no row: its values crowd near 1 whatever is answered, so none is low and most are high.",
    )
    return Table("What each metric misses", columns, tuple(rows), notes)


def numbers_table(cases: MeasuredCases) -> Table:
    """Return whether each metric separates answers with the right numbers from others, for references with numbers."""
    numeric = list(filter(lambda case: _number_recall(case) is not None, cases))
    rows: list[tuple[Cell, ...]] = []
    for metric in list_metrics(numeric):
        if metric.startswith("numbers"):
            continue
        scored = _scored_by(numeric, metric)
        by_rightness = group_by(scored, lambda case: _number_recall(case) == 1.0)
        right, wrong = by_rightness.get(True, []), by_rightness.get(False, [])
        means = (len(right), _mean(right, metric), len(wrong), _mean(wrong, metric), len(numeric) - len(scored))
        separation = ordered_pair_share(_values(right, metric), _values(wrong, metric))
        rows.append((metric, *means, separation, _examples(_above(wrong, metric))))
    means_columns = ("n right", "mean of these", "n wrong", "mean of those", "not scored")
    columns = ("metric", *means_columns, "ranks them rightly", "examples")
    notes = (
        f"Right: the comparison of numbers, units and ranges (`{NUMBERS}`) finds all that the reference names; "
        f"wrong: it does not. Means are with 95 % intervals, {BOOTSTRAP}.",
        "Ranks them rightly: share of pairs in which the answer with the right numbers scores higher than one "
        f"without; 1/2 is chance (errata E6). Examples: wrong numbers that the metric puts above {HIGH}.",
    )
    return Table("Answers with numbers", columns, tuple(rows), notes)


def _number_recall(case: MeasuredCase) -> float | None:
    return case.values.get(NUMBERS)


def _mean(cases: MeasuredCases, metric: str) -> Mean | None:
    return estimate_mean(_values(cases, metric), _clusters(cases)) if cases else None


def ordered_pair_share(right: Sequence[float], wrong: Sequence[float]) -> float | None:
    """Return the share of pairs in which the right answer has more, ties as halves (Mann-Whitney U as a share)."""
    if not (right and wrong):
        return None
    ordered = np.sort(wrong)
    fewer = np.searchsorted(ordered, right, "left") + np.searchsorted(ordered, right, "right")
    return float(fewer.mean()) / 2 / len(wrong)


def overview_table(cases: MeasuredCases) -> Table:
    """Return the mean of every metric over the answered cases, and why some have none."""
    answers = [*(case.ending for case in cases)].count("answered")
    open_cases = open_answers(cases)
    rows: list[tuple[Cell, ...]] = []
    for metric in list_metrics(open_cases):
        scored = _scored_by(open_cases, metric)
        states = Counter(case.states.get(metric) for case in open_cases if metric not in case.values)
        missing = (states["unparsed"], states["failed"], states[None])
        rows.append((metric, _mean(scored, metric), len(scored), *missing))
    columns = ("metric", "mean", "n", "no value", "call failed", "not measured")
    notes = (
        f"Of {count_noun(len(cases), 'case')} {answers} {agree(answers, 'was', 'were')} answered, {len(open_cases)} of "
        "them with an open answer; the others have "
        "no value, and do not count as 0 (errata E2). No value: a verdict that cannot be read, a text over the "
        f"window, a right answer without a number. Values are 0 to 1, intervals 95 %, {BOOTSTRAP}.",
    )
    return Table("Values of the answers", columns, tuple(rows), notes)


def count_endings(cases: MeasuredCases) -> Iterator[tuple[str, int]]:
    """Yield how many cases ended in each way, without zeros."""
    counts = Counter(case.ending for case in cases)
    for ending in (item for item in ENDINGS if counts[item]):
        yield ending, counts[ending]
