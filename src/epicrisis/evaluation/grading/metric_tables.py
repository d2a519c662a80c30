"""Agreement and disagreement of metrics on measured answers (EHR study, appendices D.2 and E: Tables 6, 7, 11 and 12,
Figures 9 and 10).

All tables are over answered cases with a value on both sides, for each set and form apart. Other cases are counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import TypeAlias

import numpy as np

from epicrisis.evaluation.analysis.correlation import Correlation, CorrelationName, correlate
from epicrisis.evaluation.analysis.grouping import P_COLUMN, correct_p_values
from epicrisis.evaluation.analysis.statistics import Difference, estimate_mean, paired_difference
from epicrisis.evaluation.analysis.table import Cell, Table
from epicrisis.evaluation.grading.measurements import MeasuredCase
from epicrisis.evaluation.grading.scored_answers import ENDINGS

ScoredCases: TypeAlias = Sequence[MeasuredCase]

HIGH, LOW = 0.7, 0.3
"""Above the first a metric says good, as in the study's Table 6; below the second bad, which the study does not fix."""
APART = 0.5
"""Two judges' correctness, in Table 7."""
LONG, RIGHT = 16_000, 0.5
"""Figure 10: records of at least so many tokens (16K; K is 1,000 here), correctness above so much."""
EXAMPLES = 3
BOOTSTRAP = "by a bootstrap of whole patients (of questions where there is none)"

CORRECTNESS, FAITHFULNESS = "judge-correctness", "judge-faithfulness"
CONSISTENT = "nli-non-contradiction"
NUMBERS = "numbers-recall"
_NUMBERS_BEFORE = "numbers"
"""The recall's name in runs that were measured before there was a precision."""
CROWDED = "bertscore-f1"
"""Its values crowd near 1, so HIGH and LOW say nothing of them."""
_NOT_METRICS = ("evidence", "citations-verified", "evidence-recall", "abstained-rightly", "accuracy")
"""Values of another thing: of places, or of questions with options."""


def agreement_tables(cases: ScoredCases, *, seed: int = 0) -> tuple[Table, ...]:
    """Return all tables of the settings that show notes, for each of `split_populations`, without empty tables."""
    made = [each for of, part in split_populations(with_notes(cases)).items() for each in _tables(part, of, seed)]
    return tuple(each for each in made if each.rows)


def _tables(shown: ScoredCases, of: str, seed: int) -> Iterator[Table]:
    before, behind = (f"{of}, ", f": {of}") if of else ("", "")
    yield from correlation_tables(shown, f"{before}all settings that show notes", seed=seed)
    if judges := metrics_named(shown, CORRECTNESS):
        which = f"{before}correctness above 50 by {metric_model(judges[0])}, records of 16K tokens and more"
        yield from correlation_tables(long_and_right(shown, judges[0]), which, seed=seed)
    for each in (
        contradiction_table(shown),
        judge_disagreement_table(shown, seed=seed),
        missed_table(shown),
        numbers_table(shown),
    ):
        yield replace(each, title=f"{each.title}{behind}")


def split_populations(cases: Iterable[MeasuredCase]) -> dict[str, list[MeasuredCase]]:
    """Split the cases into groups that are never compared (errata E5): sets (condition `set`), and open and extractive
    answers if a set has both. The name of a single group without a set is empty."""
    sets: dict[str, dict[str, list[MeasuredCase]]] = {}
    for case in cases:
        sets.setdefault(str(case.condition.get("set", "")), {}).setdefault(case.form, []).append(case)
    return {
        ", ".join(each for each in (name, f"{form} answers" if len(forms) > 1 else "") if each): part
        for name, forms in sets.items()
        for form, part in forms.items()
    }


def with_notes(cases: Iterable[MeasuredCase]) -> list[MeasuredCase]:
    """Return the open answers of the settings that show notes ("non-exclude")."""
    return [case for case in open_answers(cases) if not str(case.condition.get("arm", "")).startswith("exclude-")]


def open_answers(cases: Iterable[MeasuredCase]) -> list[MeasuredCase]:
    """Return the measured cases: answered, without options, and with an answer in the notes."""
    return [case for case in cases if case.ending == "answered" and case.form != "choice" and not case.unanswerable]


def long_and_right(cases: Iterable[MeasuredCase], judge: str) -> list[MeasuredCase]:
    """Return the cases of Figure 10, by the correctness of this judge. The length of the record must be known."""
    return [
        case for case in cases if float(case.condition.get("tokens", 0)) >= LONG and case.values.get(judge, 0.0) > RIGHT
    ]


def list_metrics(cases: Iterable[MeasuredCase]) -> tuple[str, ...]:
    """Return the names of all metrics of the cases."""
    return tuple(sorted({name for case in cases for name in case.values if name not in _NOT_METRICS}))


def metrics_named(cases: Iterable[MeasuredCase], name: str) -> tuple[str, ...]:
    """Return the metrics with this name, of any model: `judge-correctness[MODEL]`."""
    return tuple(each for each in list_metrics(cases) if each.partition("[")[0] == name)


def metric_model(metric: str) -> str:
    """Return the model in the brackets of a metric."""
    return metric.partition("[")[2].removesuffix("]")


def correlation_tables(
    cases: ScoredCases, of: str, *, coefficient: CorrelationName = "spearman", seed: int = 0
) -> tuple[Table, Table]:
    """Return the matrix of all metrics, and the same by pairs with intervals. `of` describes the cases."""
    metrics, clusters = list_metrics(cases), [case.cluster for case in cases]
    values = {name: [case.values.get(name) for case in cases] for name in metrics}
    found = {
        (one, other): correlate(values[one], values[other], coefficient, clusters, seed)
        for one, other in combinations(metrics, 2)
    }
    how = "Spearman's rho" if coefficient == "spearman" else coefficient
    note = f"{how}; the study does not say which coefficient its figures show. None where a metric has but one value."
    columns = ("metric", "other", "n", "clusters", "not scored by both", how, "interval")
    rows = [(*pair, each.n, each.clusters, each.unscored, each.value, each.interval) for pair, each in found.items()]
    intervals = f"Intervals are 95 %, {BOOTSTRAP}; `clusters` counts these. No pair is tested."
    return (
        Table(
            f"Correlations of the metrics: {of}",
            ("metric", "n", "not scored", *metrics),
            _matrix(values, found),
            (note,),
        ),
        Table(f"Metrics pair by pair: {of}", columns, tuple(rows), (note, intervals)),
    )


def _matrix(
    values: Mapping[str, Sequence[float | None]], found: Mapping[tuple[str, str], Correlation]
) -> tuple[tuple[Cell, ...], ...]:
    both = {**found, **{(other, one): each for (one, other), each in found.items()}}
    return tuple(
        (
            name,
            len(scores) - scores.count(None),
            scores.count(None),
            *(1.0 if name == other else both[name, other].value for other in values),
        )
        for name, scores in values.items()
    )


def contradiction_table(cases: ScoredCases) -> Table:
    """Return the answers that a judge finds correct and the NLI model finds contradictory, both above HIGH."""
    rows: list[tuple[Cell, ...]] = []
    for nli in metrics_named(cases, CONSISTENT):
        for judge in metrics_named(cases, CORRECTNESS):
            both = [case for case in cases if nli in case.values and judge in case.values]
            found = [case for case in both if 1 - case.values[nli] > HIGH and case.values[judge] > HIGH]
            rows.append(
                (
                    metric_model(judge),
                    metric_model(nli),
                    len(both),
                    len(cases) - len(both),
                    len(found),
                    _share(found, both),
                    _examples(found),
                )
            )
    columns = ("judge", "NLI model", "n", "not scored by both", "disagree", "share", "examples")
    notes = (
        f"Disagree: contradiction above {HIGH} and correctness above {HIGH} (the study's Table 6, which counts "
        "pairs of question and answer over an unnamed choice of settings).",
        f"Shares with 95 % intervals, {BOOTSTRAP}.",
    )
    return Table("Contradicted by NLI and correct by the judge", columns, tuple(rows), notes)


def _share(found: ScoredCases, of: ScoredCases) -> Cell:
    keys = {case.key for case in found}
    return estimate_mean([float(case.key in keys) for case in of], [case.cluster for case in of]) if of else None


def _examples(cases: ScoredCases) -> str:
    """Return the ids of some of the questions."""
    return ", ".join(list(dict.fromkeys(_id(case) for case in cases))[:EXAMPLES])


def _id(case: MeasuredCase) -> str:
    return case.question.rpartition(":")[0] or case.question


def judge_disagreement_table(cases: ScoredCases, *, seed: int = 0) -> Table:
    """Return for each two judges how often their correctness differs by APART or more, and which is milder."""
    rows: list[tuple[Cell, ...]] = []
    tested: list[Difference | None] = []
    for first, second in combinations(metrics_named(cases, CORRECTNESS), 2):
        both = [case for case in cases if first in case.values and second in case.values]
        far = [case for case in both if abs(case.values[first] - case.values[second]) >= APART]
        milder = [
            sum(case.values[one] > case.values[other] for case in far)
            for one, other in ((first, second), (second, first))
        ]
        difference = _milder(both, first, second, seed)
        tested.append(difference)
        rows.append(
            (
                metric_model(first),
                metric_model(second),
                len(both),
                len(cases) - len(both),
                len(far),
                _share(far, both),
                *milder,
                _examples(far),
                difference,
            )
        )
    columns = (
        "judge",
        "other judge",
        "n",
        "not scored by both",
        "apart",
        "share",
        "judge higher",
        "other higher",
        "examples",
        "difference of the judges",
        P_COLUMN,
    )
    notes = (
        f"Apart: correctness of the two differs by {APART} or more, two steps of the rubric (the study's Table 7).",
        "Differences are paired by case; p by flipping the signs of whole patients (questions where there is none), "
        f"corrected by Holm for this table's {sum(each is not None for each in tested)} comparisons.",
    )
    corrected = correct_p_values(tested)
    return Table(
        "Judges that disagree", columns, tuple((*row, p) for row, p in zip(rows, corrected, strict=True)), notes
    )


def _milder(cases: ScoredCases, first: str, second: str, seed: int) -> Difference | None:
    if not cases:
        return None
    one, other = ({case.key: case.values[name] for case in cases} for name in (first, second))
    return paired_difference(one, other, {case.key: case.cluster for case in cases}, seed=seed)


def missed_table(cases: ScoredCases) -> Table:
    """Return how often each metric is low on answers a judge finds correct, and high on those it finds wrong."""
    rows: list[tuple[Cell, ...]] = []
    for judge in metrics_named(cases, CORRECTNESS):
        for metric in list_metrics(cases):
            if metric.partition("[")[0] in (CORRECTNESS, CROWDED):
                continue
            both = [case for case in cases if judge in case.values and metric in case.values]
            low = [case for case in both if case.values[judge] > HIGH and case.values[metric] < LOW]
            high = [case for case in both if case.values[judge] < LOW and case.values[metric] > HIGH]
            correct = sum(case.values[judge] > HIGH for case in both)
            wrong = sum(case.values[judge] < LOW for case in both)
            rows.append(
                (
                    metric_model(judge),
                    metric,
                    len(both),
                    len(cases) - len(both),
                    correct,
                    len(low),
                    _examples(low),
                    wrong,
                    len(high),
                    _examples(high),
                )
            )
    columns = (
        "judge",
        "metric",
        "n",
        "not scored by both",
        "correct",
        "of these low",
        "examples",
        "wrong",
        "of these high",
        "examples of these",
    )
    notes = (
        f"Correct: the judge's correctness above {HIGH}; wrong: below {LOW}; low and high likewise of the metric. The "
        "study's Table 11 is read by hand; this one counts its patterns. Correct and unfaithful is the row of "
        f"`{FAITHFULNESS}`: what is true and not in the reference is unfaithful there (errata E4).",
        f"`{CROWDED}` has no row: its values crowd near 1 whatever is answered, so none is low and most are high.",
    )
    return Table("What each metric misses", columns, tuple(rows), notes)


def numbers_table(cases: ScoredCases) -> Table:
    """Return whether each metric separates answers with the right numbers from others, for references with numbers."""
    numeric = [case for case in cases if _recall_of_numbers(case) is not None]
    metrics = [metric for metric in list_metrics(numeric) if not metric.startswith(_NUMBERS_BEFORE)]
    rows = tuple(_on_numbers(metric, numeric) for metric in metrics)
    columns = (
        "metric",
        "n right",
        "mean of these",
        "n wrong",
        "mean of those",
        "not scored",
        "tells them apart",
        "examples",
    )
    notes = (
        f"Right: the comparison of numbers, units and ranges (`{NUMBERS}`) finds all that the reference names; "
        f"wrong: it does not. Means are with 95 % intervals, {BOOTSTRAP}.",
        "Tells them apart: how often an answer with the right numbers has more than one without, of all such pairs; "
        f"1/2 is chance (errata E6). Examples: wrong numbers that the metric puts above {HIGH}.",
    )
    return Table("Answers with numbers", columns, rows, notes)


def _recall_of_numbers(case: MeasuredCase) -> float | None:
    return case.values.get(NUMBERS, case.values.get(_NUMBERS_BEFORE))


def _on_numbers(metric: str, cases: ScoredCases) -> tuple[Cell, ...]:
    scored = [case for case in cases if metric in case.values]
    right, wrong = ([case for case in scored if (_recall_of_numbers(case) == 1.0) is told] for told in (True, False))
    fooled = [case for case in wrong if case.values[metric] > HIGH]
    return (
        metric,
        len(right),
        _mean(right, metric),
        len(wrong),
        _mean(wrong, metric),
        len(cases) - len(scored),
        ordered_pair_share([case.values[metric] for case in right], [case.values[metric] for case in wrong]),
        _examples(fooled),
    )


def _mean(cases: ScoredCases, metric: str) -> Cell:
    return estimate_mean([case.values[metric] for case in cases], [case.cluster for case in cases]) if cases else None


def ordered_pair_share(right: Sequence[float], wrong: Sequence[float]) -> float | None:
    """Return the share of pairs in which the right answer has more, ties as halves (Mann-Whitney U as a share)."""
    if not (right and wrong):
        return None
    ordered = np.sort(wrong)
    fewer = np.searchsorted(ordered, right, "left") + np.searchsorted(ordered, right, "right")
    return float(fewer.mean()) / 2 / len(wrong)


def overview_table(cases: ScoredCases) -> Table:
    """Return the mean of every metric over the answered cases, and why some have none."""
    answered = [case for case in cases if case.ending == "answered"]
    measured = open_answers(cases)
    rows = tuple(_overview(metric, measured) for metric in list_metrics(measured))
    columns = ("metric", "mean", "n", "no value", "call failed", "not measured")
    notes = (
        f"Of {len(cases)} cases {len(answered)} were answered, {len(measured)} of them openly; the others have no "
        "value, which is no 0 (errata E2). No value: a verdict that cannot be read, a text over the window, a right "
        f"answer without a number. Values are 0 to 1, intervals 95 %, {BOOTSTRAP}.",
    )
    return Table("What the answers are worth", columns, rows, notes)


def _overview(metric: str, cases: ScoredCases) -> tuple[Cell, ...]:
    scored = [case for case in cases if metric in case.values]
    why = [case.states.get(metric) for case in cases if metric not in case.values]
    return metric, _mean(scored, metric), len(scored), why.count("unparsed"), why.count("failed"), why.count(None)


def count_endings(cases: ScoredCases) -> Iterator[tuple[str, int]]:
    """Yield how many cases ended in each way, without zeros."""
    for ending in ENDINGS:
        if n := sum(case.ending == ending for case in cases):
            yield ending, n
