"""Test balanced accuracy and its bootstrap intervals."""

from __future__ import annotations

import pytest

from tests.support.balanced_accuracy import compare_balanced_accuracy, estimate_balanced_accuracy

LABELS = ["a"] * 8 + ["b"] * 4 + ["c"] * 2
CASES = list(range(len(LABELS)))


@pytest.mark.slow
def test_constant_prediction_has_one_over_labels() -> None:
    result = estimate_balanced_accuracy(LABELS, ["a"] * len(LABELS), CASES)
    assert result.value == pytest.approx(1 / 3)
    assert result.n == 14


@pytest.mark.slow
def test_balanced_accuracy_is_the_mean_of_recalls() -> None:
    predictions = ["a"] * 6 + ["b"] * 6 + ["a", "c"]
    result = estimate_balanced_accuracy(LABELS, predictions, CASES)
    assert result.value == pytest.approx((6 / 8 + 1 + 1 / 2) / 3)
    assert result.interval.low < result.value < result.interval.high


@pytest.mark.slow
def test_cases_of_one_cluster_are_resampled_together() -> None:
    labels, predictions = ["a", "b"] * 30, ["a", "a"] * 15 + ["a", "b"] * 15
    single = estimate_balanced_accuracy(labels, predictions, list(range(60)))
    paired = estimate_balanced_accuracy(labels, predictions, [index // 20 for index in range(60)])
    assert paired.interval.high - paired.interval.low > single.interval.high - single.interval.low


@pytest.mark.slow
def test_comparison_of_equal_predictions_is_zero() -> None:
    predictions = ["a", "b"] * 7
    result = compare_balanced_accuracy(LABELS, predictions, predictions, CASES)
    assert (result.value, result.interval.low, result.interval.high) == (0, 0, 0)


@pytest.mark.slow
def test_comparison_of_right_and_constant_is_positive() -> None:
    result = compare_balanced_accuracy(LABELS * 9, LABELS * 9, ["a"] * len(LABELS) * 9, list(range(9 * len(LABELS))))
    assert result.value == pytest.approx(2 / 3)
    assert result.interval.low > 0.6


def test_no_case_raises() -> None:
    with pytest.raises(ValueError, match="no case"):
        estimate_balanced_accuracy([], [], [])
