"""Test AURC and the risk-coverage curve against hand-computed values and a sum over all orders."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from epicrisis.core.answers import Answer
from epicrisis.core.types import Question
from epicrisis.evaluation.analysis.selective_prediction import (
    COVERAGES,
    RatedAnswer,
    SelectiveRisk,
    _sum_by_confidence,
    make_selective_tables,
    measure_selective_risk,
)
from epicrisis.evaluation.analysis.statistics import Floats, Mean
from epicrisis.evaluation.runs.recorded_run import open_runs
from epicrisis.evaluation.runs.run_folder import Run, RunPlan
from epicrisis.pipeline.recording.case import Case
from tests.support.run_folders import QUESTIONS, recipe

ratings = st.lists(st.tuples(st.sampled_from([0.2, 0.5, 0.9]), st.booleans()), min_size=1, max_size=6)


def risk_coverage_curve(answers: Sequence[RatedAnswer]) -> Floats:
    """Return the risk of the first 1, 2, ... n answers, the most confident first."""
    weights, errors = _sum_by_confidence(answers, np.ones((1, len(answers))))
    curve: Floats = np.array([])
    count = wrong = 0.0
    for weight, error in zip(weights[0], errors[0], strict=True):
        steps = np.arange(1, weight + 1)
        curve = np.append(curve, (wrong + error * steps / weight) / (count + steps))
        count, wrong = count + weight, wrong + error
    return curve


def rate(*pairs: tuple[float, bool]) -> list[RatedAnswer]:
    """Return answers to different questions from pairs of confidence and `wrong`."""
    return [RatedAnswer(f"q{number}", confidence, wrong) for number, (confidence, wrong) in enumerate(pairs)]


def measure(answers: Sequence[RatedAnswer]) -> SelectiveRisk:
    risk = measure_selective_risk(answers)
    assert risk is not None
    return risk


def average_over_orders(pairs: Sequence[tuple[float, bool]]) -> list[float]:
    """Return the mean curve of all orders that the confidence allows, counted one by one."""
    curves = []
    for order in itertools.permutations(pairs):
        if any(one[0] < other[0] for one, other in itertools.pairwise(order)):
            continue
        curves.append([sum(wrong for _, wrong in order[:n]) / n for n in range(1, len(order) + 1)])
    return [math.fsum(column) / len(curves) for column in zip(*curves, strict=True)]


def test_aurc_equals_hand_computed_value() -> None:
    """Right, wrong, right, wrong: risks 0, 1/2, 1/3, 1/2. The ideal order has 0, 0, 1/3, 1/2."""
    risk = measure(rate((0.9, False), (0.8, True), (0.7, False), (0.6, True)))
    assert risk.risk.value == 0.5
    assert risk.aurc.value == pytest.approx((0 + 1 / 2 + 1 / 3 + 1 / 2) / 4)
    assert risk.excess.value == pytest.approx(1 / 8)


@pytest.mark.slow
@given(ratings)
def test_curve_equals_mean_over_all_orders(pairs: list[tuple[float, bool]]) -> None:
    expected = average_over_orders(pairs)
    assert risk_coverage_curve(rate(*pairs)).tolist() == pytest.approx(expected)


@pytest.mark.slow
@given(ratings)
@settings(max_examples=30)
def test_aurc_is_mean_of_curve_and_excess_is_not_negative(pairs: list[tuple[float, bool]]) -> None:
    risk = measure(rate(*pairs))
    curve = average_over_orders(pairs)
    ideal = average_over_orders([(float(not wrong), wrong) for _, wrong in pairs])
    assert risk.aurc.value == pytest.approx(math.fsum(curve) / len(curve))
    assert risk.excess.value == pytest.approx(risk.aurc.value - math.fsum(ideal) / len(ideal))
    assert risk.excess.value >= 0
    for coverage, point in risk.points:
        assert point.n == math.ceil(coverage * len(curve) / 100)
        assert point.value == pytest.approx(curve[math.ceil(coverage * len(curve) / 100) - 1])


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 7, 100])
def test_perfect_order_has_no_excess(n: int) -> None:
    pairs = [(number / n, number < n // 3) for number in range(n)]
    risk = measure(rate(*pairs))
    assert risk.excess.value == pytest.approx(0, abs=1e-12)
    assert risk.aurc.value <= risk.risk.value


@pytest.mark.slow
def test_reversed_order_is_worse_than_chance() -> None:
    risk = measure(rate(*((number / 100, number >= 70) for number in range(100))))
    assert risk.aurc.value > risk.risk.value == 0.3


def test_equal_confidence_has_aurc_of_share_wrong() -> None:
    """An order without information: the risk is the same at every coverage."""
    risk = measure(rate(*((0.5, number % 4 == 0) for number in range(40))))
    assert risk.aurc.value == pytest.approx(0.25)
    assert [point.value for _, point in risk.points] == pytest.approx([0.25] * len(COVERAGES))


@pytest.mark.parametrize("wrong", [False, True])
def test_all_right_or_all_wrong_has_interval_but_no_excess(wrong: bool) -> None:
    risk = measure(rate(*((number / 20, wrong) for number in range(20))))
    assert (risk.aurc.value, risk.risk.value) == (float(wrong), float(wrong))
    assert risk.excess.value == pytest.approx(0, abs=1e-12)
    assert risk.aurc.interval.high - risk.aurc.interval.low > 0.1


def test_order_of_answers_changes_no_figure() -> None:
    answers = rate(*((0.1 * (number % 7), number % 3 == 0) for number in range(30)))
    assert measure(answers) == measure(list(reversed(answers)))


def test_interval_resamples_whole_questions() -> None:
    """The same 20 answers are less certain as those of two questions, one always wrong, than of 20 questions."""
    pairs = [(0.9 if number % 2 else 0.1, number % 2 == 0) for number in range(20)]
    alone = measure(rate(*pairs)).risk
    halves = [RatedAnswer(f"q{number % 2}", *pair) for number, pair in enumerate(pairs)]
    assert alone.interval.low < alone.value < alone.interval.high
    assert (measure(halves).risk.interval.low, measure(halves).risk.interval.high) == (0.0, 1.0)
    assert alone.interval.high - alone.interval.low < 0.6


@pytest.mark.long
def test_interval_covers_value_of_large_sample() -> None:
    """About 95 % of the intervals of samples of 60 answers hold the AURC of a large sample."""
    generator = np.random.default_rng(3)

    def draw(n: int) -> list[RatedAnswer]:
        confidence = generator.uniform(size=n)
        wrong = generator.uniform(size=n) > confidence
        return rate(*zip(confidence.tolist(), wrong.tolist(), strict=True))

    truth = float(risk_coverage_curve(draw(20_000)).mean())
    held = 0
    for _ in range(40):
        interval = measure(draw(60)).aurc.interval
        held += interval.low <= truth <= interval.high
    assert held >= 34


def test_no_answers_have_no_risk() -> None:
    assert measure_selective_risk([]) is None


def answer(question: Question, number: int) -> Answer:
    """Right if the number is even; with a distribution unless it is one of the last ten."""
    letters = list(question.options)
    choice = question.gold if number % 2 == 0 else next(letter for letter in letters if letter != question.gold)
    share = {} if number >= 30 else {str(choice): 0.9 if number % 2 == 0 else 0.4}
    return Answer(
        question=question, strategy="zero-shot", state="answered", text="So.", choice=choice, distribution=share
    )


def test_tables_of_run_rate_each_arm(tmp_path: Path) -> None:
    plan = RunPlan("evaluate", {}, recipe(), {"name": "own", "sha256": "5" * 64, "n": 40}, {"how": "all"}, 0)
    cases = [Case(question, {"arm": arm}) for arm in ("one", "two") for question in QUESTIONS]
    with Run.open(tmp_path / "run", plan, cases) as run:
        for number, case in enumerate(cases):
            if case.condition["arm"] == "one":
                run.records.append_answer(answer(case.question, number), case.condition)
            else:
                run.records.append_answer(
                    Answer(question=case.question, strategy="rag", state="abstained"), case.condition
                )
    area, curve = make_selective_tables(open_runs([tmp_path / "run"]))
    ((name, arm, rated, total, wrong, aurc, excess),) = area.rows
    assert (name, arm, rated, total) == ("run", "one", 30, 40)
    assert isinstance(wrong, Mean)
    assert isinstance(aurc, Mean)
    assert isinstance(excess, Mean)
    assert wrong.value == 0.5
    assert excess.value == pytest.approx(0, abs=1e-12)
    assert curve.column("coverage (%)") == COVERAGES
    first = curve.column("risk")[0]
    assert isinstance(first, Mean)
    assert first.value == 0


def test_run_without_confidence_has_no_tables(tmp_path: Path) -> None:
    plan = RunPlan("evaluate", {}, recipe(), {"name": "own", "sha256": "5" * 64, "n": 1}, {"how": "all"}, 0)
    with Run.open(tmp_path / "run", plan, [Case(QUESTIONS[0])]) as run:
        run.records.append_answer(
            Answer(question=QUESTIONS[0], strategy="rag", state="answered", text="So.", choice="A")
        )
    assert make_selective_tables(open_runs([tmp_path / "run"])) == ()
