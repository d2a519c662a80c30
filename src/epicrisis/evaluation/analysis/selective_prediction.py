"""Selective prediction: the risk of the answers that are given if the least confident are held back.

Coverage is the share of answers given, risk the share of wrong ones among them. AURC is the mean risk over all
coverages 1/n to 1 (Geifman and El-Yaniv, NeurIPS 2017); the excess AURC subtracts that of the ideal order, in which all
right answers come first (Geifman, Uziel and El-Yaniv, ICLR 2019). Answers of equal confidence are in random order:
their expected risk counts, so that an order without information has the AURC of its share of wrong answers.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from epicrisis.answering.confidence import estimate_confidence
from epicrisis.evaluation.analysis.grouping import group_by
from epicrisis.evaluation.analysis.statistics import RESAMPLES, Floats, Interval, Mean, divide, uniform_interval
from epicrisis.evaluation.analysis.table import Cell, Table, line_plot
from epicrisis.evaluation.runs.outcomes import score_record
from epicrisis.evaluation.runs.recorded_run import RecordedRun
from epicrisis.pipeline.recording.answer_record import RunRecord

COVERAGES = (10, 20, 30, 40, 50, 60, 70, 80, 90, 100)
"""Percentages at which the curve is shown."""
_COVERAGE, _RISK = "coverage (%)", "risk"
RISK_COVERAGE_PLOT = line_plot(
    "Risk-coverage curve", _RISK, along=(_COVERAGE,), series=("run", "arm"), panel=(), axis_title="coverage (%)"
)
_NOTES = (
    "Selective prediction: the answers are given in the order of their confidence, and the others are held back. "
    "Coverage: the share given. Risk: the share wrong of these.",
    "AURC: the mean risk over all coverages; lower is better. A random order has an AURC equal to the share wrong. "
    "Excess: the AURC less that of the ideal order, which gives all right answers first.",
    "Rated: answers with a choice and a confidence (agreement of parts, votes, probability of the letter, supported "
    "claims), of the cases of questions with a gold letter. Answers of equal confidence count in random order. "
    "Intervals are 95 %, by a bootstrap of questions.",
)


@dataclass(frozen=True, slots=True)
class RatedAnswer:
    """One scored choice with its confidence."""

    question: str
    """`Question.key`: the answers to one question are one cluster."""
    confidence: float
    wrong: bool


@dataclass(frozen=True, slots=True)
class SelectiveRisk:
    """The risk of a set of answers in the order of their confidence."""

    risk: Mean
    """The share wrong of all answers."""
    aurc: Mean
    excess: Mean
    """The AURC less that of the ideal order."""
    points: tuple[tuple[int, Mean], ...]
    """The risk at each of COVERAGES; `n` is the number of answers given."""


def measure_selective_risk(
    answers: Sequence[RatedAnswer], *, confidence: float = 0.95, seed: int = 0
) -> SelectiveRisk | None:
    """Return the risk, the AURC and the curve with percentile intervals of a cluster bootstrap; None without answers.

    The order of the answers changes no figure.
    """
    if not answers:
        return None
    answers = sorted(answers, key=lambda answer: (-answer.confidence, answer.question, answer.wrong))
    values = _compute_figures(answers, np.ones((1, len(answers))))[0]
    numbers: dict[Hashable, int] = {}
    for name in sorted({answer.question for answer in answers}):
        numbers[name] = len(numbers)
    members = np.array([numbers[answer.question] for answer in answers])
    generator, blocks = np.random.default_rng(seed), list[Floats]()
    block = max(1, 2_000_000 // len(answers))
    for start in range(0, RESAMPLES, block):
        size = min(block, RESAMPLES - start)
        draws = generator.multinomial(len(numbers), np.full(len(numbers), 1 / len(numbers)), size=size)
        blocks.append(_compute_figures(answers, draws[:, members].astype(np.float64)))
    samples = np.concatenate(blocks)
    means: list[Mean] = []
    for value, column in zip(values, samples.T, strict=True):
        if np.ptp(column) < 1e-12:
            interval = uniform_interval(float(value), len(numbers), (0.0, 1.0), confidence)
        else:
            low, high = np.quantile(column, [(1 - confidence) / 2, (1 + confidence) / 2])
            interval = Interval(float(low), float(high), confidence)
        means.append(Mean(float(value), interval, len(answers)))
    risk, aurc, excess, *points = means
    curve: list[tuple[int, Mean]] = []
    for coverage, point in zip(COVERAGES, points, strict=True):
        curve.append((coverage, replace(point, n=-(-coverage * len(answers) // 100))))
    return SelectiveRisk(risk, aurc, excess, tuple(curve))


def rate_record(record: RunRecord) -> RatedAnswer | None:
    """Return the scored choice of a record with its confidence; None without a score or a confidence.

    The confidence is computed from the record, so that runs of earlier versions have one too. It is not calibrated:
    calibration keeps the order.
    """
    outcome, rating = score_record(record), estimate_confidence(record.answer)
    if outcome.right is None or rating is None:
        return None
    return RatedAnswer(outcome.question, rating.value, not outcome.right)


def make_selective_tables(runs: Iterable[RecordedRun]) -> tuple[Table, ...]:
    """Return the table of AURC and that of the risk-coverage curve; none if no scored choice has a confidence.

    Each row is an arm of a run.
    """
    rows: list[tuple[Cell, ...]] = []
    points: list[tuple[Cell, ...]] = []
    for run in runs:
        cases: list[tuple[str, RatedAnswer | None]] = []
        for record in run.records():
            question = record.answer.question
            if question.options and question.gold is not None:
                cases.append((record.arm, rate_record(record)))
        for arm, arm_cases in group_by(cases, lambda case: case[0]).items():
            rated = [answer for _, answer in arm_cases if answer is not None]
            selective_risk = measure_selective_risk(rated)
            if selective_risk is None:
                continue
            counts = len(rated), len(arm_cases)
            rows.append((run.name, arm, *counts, selective_risk.risk, selective_risk.aurc, selective_risk.excess))
            for coverage, risk in selective_risk.points:
                points.append((run.name, arm, coverage, risk))
    if not rows:
        return ()
    columns = ("run", "arm", "rated", "cases", "share wrong", "AURC", "excess AURC")
    area = Table("Selective prediction: area under the risk-coverage curve", columns, tuple(rows), _NOTES)
    curve = Table("Selective prediction: risk by coverage", ("run", "arm", _COVERAGE, _RISK), tuple(points))
    return area, curve


def _sum_by_confidence(answers: Sequence[RatedAnswer], weights: Floats) -> tuple[Floats, Floats]:
    """Return the weights and the wrong weights of each level of confidence, the highest first.

    `weights` has a row for each resample and a column for each answer.
    """
    levels = -np.array([answer.confidence for answer in answers])
    order = np.argsort(levels, kind="stable")
    starts = np.unique(levels[order], return_index=True)[1]
    wrong = np.array([answer.wrong for answer in answers], dtype=np.float64)[order]
    ordered = weights[:, order]
    return np.add.reduceat(ordered, starts, axis=1), np.add.reduceat(ordered * wrong, starts, axis=1)


def _compute_figures(answers: Sequence[RatedAnswer], weights: Floats) -> Floats:
    """Return the risk, the AURC, the excess AURC and the risk at each of COVERAGES, a row for each resample.

    The weights are whole numbers: how often a resample holds each answer.
    """
    sizes, errors = _sum_by_confidence(answers, weights)
    ends, wrong = sizes.cumsum(axis=1), errors.cumsum(axis=1)
    count_before, before = ends - sizes, wrong - errors
    rates = np.nan_to_num(divide(errors, sizes, 0.0))
    total, total_wrong = ends[:, -1], wrong[:, -1]
    harmonic = np.concatenate([[0.0], np.cumsum(1 / np.arange(1, total.max() + 1))])
    spans = harmonic[ends.astype(int)] - harmonic[count_before.astype(int)]
    # Within a level, the expected risk of the first count_before + j answers is (before + rate j) / (count_before + j).
    areas = (rates * sizes + (before - rates * count_before) * spans).sum(axis=1) / total
    right = total - total_wrong
    ideal = (total_wrong - right * (harmonic[total.astype(int)] - harmonic[right.astype(int)])) / total
    columns = [total_wrong / total, areas, np.maximum(areas - ideal, 0.0)]
    rows = np.arange(len(total))
    for coverage in COVERAGES:
        # In whole numbers, as 0.1 * 30 is more than 3.
        count = -(-coverage * total // 100)
        level = (ends < count[:, None]).sum(axis=1)
        inside = count - count_before[rows, level]
        columns.append((before[rows, level] + rates[rows, level] * inside) / count)
    return np.column_stack(columns)
