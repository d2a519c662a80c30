"""Test Platt scaling, its cross-validation, Brier's score and the expected calibration error."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from epicrisis.core.answers import Answer
from epicrisis.core.errors import InputError
from epicrisis.core.types import Question
from epicrisis.evaluation.analysis.confidence_calibration import (
    calibrate_confidence,
    cross_validate,
    expected_calibration_error,
    find_citing,
    fit_platt,
    make_calibration_table,
    squared_errors,
)
from epicrisis.evaluation.analysis.selective_prediction import RatedAnswer
from epicrisis.evaluation.analysis.statistics import Difference, Mean
from epicrisis.evaluation.runs.recorded_run import open_runs
from epicrisis.pipeline.recording.runner import RecordStore
from tests.support.run_folders import recipe


def draw(n: int, slope: float, intercept: float, seed: int = 0) -> list[RatedAnswer]:
    """Return answers that are right with the probability 1 / (1 + exp(-(intercept + slope * confidence)))."""
    generator = np.random.default_rng(seed)
    answers = []
    for number, value in enumerate(generator.uniform(size=n).tolist()):
        wrong = generator.uniform() > 1 / (1 + math.exp(-(intercept + slope * value)))
        answers.append(RatedAnswer(f"q{number}", value, bool(wrong)))
    return answers


def record(path: Path, n: int, *, strategy: str = "zero-shot", share: float | None = None, wrong: int = 4) -> Path:
    """Write answers of which each `wrong`-th is wrong, with confidence 0.9 for right and 0.6 for wrong ones."""
    store = RecordStore(path, recipe(strategy=strategy))
    for number in range(n):
        question = Question(
            f"Does it help, {number}?", options={"A": "yes", "B": "no"}, form="choice", id=str(number), gold="A"
        )
        choice, confidence = ("B", 0.6) if number % wrong == 0 else ("A", 0.9)
        distribution = {choice: share or confidence}
        store.append_answer(
            Answer(
                question=question,
                strategy=strategy,
                state="answered",
                text="So.",
                choice=choice,
                distribution=distribution,
            )
        )
    return path


@pytest.mark.slow
def test_fit_finds_curve_that_made_the_answers() -> None:
    slope, intercept = fit_platt(draw(50_000, 5.0, -3.0))
    assert slope == pytest.approx(5.0, abs=0.15)
    assert intercept == pytest.approx(-3.0, abs=0.1)


def test_fit_of_two_levels_equals_smoothed_shares() -> None:
    """With two levels of confidence the curve passes through the mean target of each."""
    pairs = [(0.9, False)] * 30 + [(0.9, True)] * 10 + [(0.4, False)] * 5 + [(0.4, True)] * 15
    slope, intercept = fit_platt([RatedAnswer(f"q{i}", *pair) for i, pair in enumerate(pairs)])
    right, wrong = 36 / 37, 1 / 27
    for value, expected in ((0.9, (30 * right + 10 * wrong) / 40), (0.4, (5 * right + 15 * wrong) / 20)):
        assert 1 / (1 + math.exp(-(intercept + slope * value))) == pytest.approx(expected, abs=1e-5)


def test_fit_of_separable_answers_is_finite() -> None:
    slope, intercept = fit_platt([RatedAnswer(f"q{i}", i / 40, i < 20) for i in range(40)])
    assert math.isfinite(slope)
    assert math.isfinite(intercept)
    assert slope > 0


def test_brier_score_and_calibration_error_equal_hand_computed_values() -> None:
    answers = [RatedAnswer("a", 0.95, False), RatedAnswer("b", 0.95, True), RatedAnswer("c", 0.25, True)]
    probabilities = [0.95, 0.95, 0.25]
    assert squared_errors(answers, probabilities) == pytest.approx([0.0025, 0.9025, 0.0625])
    # The bin of 0.95 has a share right of 0.5, that of 0.25 none.
    assert expected_calibration_error(answers, probabilities) == pytest.approx((2 * 0.45 + 0.25) / 3)
    assert expected_calibration_error(answers[:1], [1.0]) == 0.0


def test_held_out_probability_ignores_own_answer() -> None:
    answers = draw(60, 5.0, -3.0)
    flipped = [RatedAnswer(answers[0].question, answers[0].confidence, not answers[0].wrong), *answers[1:]]
    (first, *others), _ = cross_validate(answers)
    (first_flipped, *others_flipped), _ = cross_validate(flipped)
    assert first == first_flipped
    assert others != others_flipped


def test_answers_to_one_question_share_a_fold() -> None:
    """The fit without them cannot learn from the copies of an answer."""
    answers = [RatedAnswer("same", 0.9, True)] * 20 + draw(60, 5.0, -3.0)
    probabilities, shares = cross_validate(answers)
    assert len(set(probabilities[:20])) == 1
    others = [answer for answer in answers if answer.question != "same"]
    assert shares[0] > 1 - sum(answer.wrong for answer in others) / len(others) - 0.1


@pytest.mark.slow
def test_calibration_lowers_error_of_overconfident_answers(tmp_path: Path) -> None:
    (run,) = open_runs([record(tmp_path / "answers.jsonl", 200)])
    fit = calibrate_confidence(run)
    calibration = fit.calibration
    assert (calibration.strategy, calibration.models) == ("zero-shot", ("qwen",))
    assert (calibration.components, calibration.n) == (("probability",), 200)
    table = make_calibration_table(fit, "answers.jsonl")
    before, after, alone = table.column("Brier score")
    assert isinstance(before, Mean)
    assert isinstance(after, Mean)
    assert isinstance(alone, Mean)
    assert before.value == pytest.approx((50 * 0.36 + 150 * 0.01) / 200)
    assert after.value < before.value
    assert after.value < alone.value == pytest.approx(0.1875, abs=0.01)
    difference = table.column("difference to before")[1]
    assert isinstance(difference, Difference)
    assert difference.value == pytest.approx(after.value - before.value)


@pytest.mark.parametrize(
    ("n", "wrong", "share", "message"),
    [
        (49, 4, None, "49 answers with a gold letter and a confidence (36 right, 13 wrong) are too few"),
        (100, 20, None, "(95 right, 5 wrong) are too few"),
        (100, 4, 0.7, "all 100 answers have the same confidence"),
    ],
)
def test_too_few_answers_are_refused(tmp_path: Path, n: int, wrong: int, share: float | None, message: str) -> None:
    (run,) = open_runs([record(tmp_path / "answers.jsonl", n, wrong=wrong, share=share)])
    with pytest.raises(InputError) as error:
        calibrate_confidence(run)
    assert message in error.value.message


def test_answers_of_two_strategies_are_refused(tmp_path: Path) -> None:
    path = record(tmp_path / "answers.jsonl", 60)
    question = Question("Another?", options={"A": "yes", "B": "no"}, form="choice", id="x", gold="A")
    answer = Answer(
        question=question,
        strategy="self-consistency",
        state="answered",
        text="So.",
        choice="A",
        distribution={"A": 1.0},
    )
    RecordStore(path, recipe(strategy="zero-shot")).append_answer(answer)
    (run,) = open_runs([path])
    with pytest.raises(InputError, match="several strategies, models or ways of citing"):
        calibrate_confidence(run)


@pytest.mark.parametrize(
    ("recipe", "citing"),
    [({"settings": {"citing": "numbers"}}, "numbers"), ({"settings": {}}, "quotes"), ({}, "quotes"), (None, "quotes")],
)
def test_recipe_without_citing_is_of_answers_that_quoted(recipe: object, citing: str) -> None:
    assert find_citing(recipe) == citing
