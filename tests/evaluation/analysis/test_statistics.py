"""Test statistics against manual calculation, scipy and statsmodels."""

from __future__ import annotations

import gc
import math
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import proportion_confint

from epicrisis.evaluation.analysis.statistics import (
    estimate_mean,
    holm,
    paired_difference,
    questions_needed,
    sign_test,
    wilson,
)


@pytest.mark.slow
@given(st.integers(0, 500), st.integers(0, 500))
def test_wilson_matches_statsmodels(successes: int, failures: int) -> None:
    n = successes + failures
    interval = wilson(successes, n)
    if n == 0:
        assert (interval.low, interval.high) == (0.0, 1.0)
        return
    low, high = proportion_confint(successes, n, method="wilson")
    assert (interval.low, interval.high) == pytest.approx((low, high), abs=1e-12)


def test_expert_comparison_of_paper_is_not_significant() -> None:
    """Errata B11: 14 wins, 6 losses, 28 ties."""
    assert sign_test(14, 6) == pytest.approx(0.1153, abs=1e-4)


@pytest.mark.slow
@given(st.integers(0, 300), st.integers(0, 300))
def test_sign_test_matches_exact_mcnemar(wins: int, losses: int) -> None:
    expected = mcnemar([[5, wins], [losses, 7]], exact=True).pvalue if wins + losses else 1.0
    assert sign_test(wins, losses) == pytest.approx(expected, rel=1e-9)


@pytest.fixture(scope="module")
def freeze_garbage() -> Iterator[None]:
    """Freeze the objects of other tests: multipletests collects garbage at each call."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.slow
@pytest.mark.usefixtures("freeze_garbage")
@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_holm_matches_statsmodels(p_values: list[float]) -> None:
    assert holm(p_values) == pytest.approx(multipletests(p_values, method="holm")[1])


def test_holm_of_empty_list_returns_empty_tuple() -> None:
    assert holm([]) == ()


def test_estimate_mean_leaves_out_unscored_values() -> None:
    mean = estimate_mean([1, 0, None, 1, None])
    assert mean.value == pytest.approx(2 / 3)
    assert (mean.n, mean.unscored) == (3, 2)
    nothing = estimate_mean([None])
    assert math.isnan(nothing.value)
    assert (nothing.n, nothing.unscored) == (0, 1)


@pytest.mark.slow
def test_bootstrap_interval_has_stated_coverage() -> None:
    dice = np.random.default_rng(0)
    covered = sum(
        interval.low <= 0.5 <= interval.high
        for interval in (estimate_mean(dice.beta(2, 2, 60).tolist(), range(60)).interval for _ in range(60))
    )
    assert 51 <= covered <= 60


def test_estimate_mean_of_repeated_questions_clusters_by_question() -> None:
    """Errata B9: the interval is that of 40 questions, not of 200 answers."""
    dice = np.random.default_rng(1)
    once = dice.integers(2, size=40)
    five = estimate_mean(np.repeat(once, 5).tolist(), np.repeat(np.arange(40), 5).tolist())
    naive = estimate_mean(np.repeat(once, 5).tolist())
    width, naive_width = five.interval.high - five.interval.low, naive.interval.high - naive.interval.low
    assert width == pytest.approx(math.sqrt(5) * naive_width, rel=0.15)
    error = stats.sem(once) * 2 * 1.96
    assert width == pytest.approx(error, rel=0.1)


def test_paired_difference_matches_manual_calculation() -> None:
    first, second = {1: 1.0, 2: 1.0, 3: 0.0, 9: 1.0}, {1: 0.0, 2: 1.0, 3: 0.0, 7: 1.0}
    difference = paired_difference(first, second)
    assert difference.value == pytest.approx(1 / 3)
    assert (difference.n, difference.clusters) == (3, 3)
    assert difference.p == 1.0
    assert paired_difference({1: 1.0}, {1: 1.0}).p == 1.0
    with pytest.raises(ValueError, match="share no case"):
        paired_difference({1: 1.0}, {2: 1.0})


def test_paired_difference_of_few_questions_uses_exact_sign_flips() -> None:
    wins = paired_difference(dict.fromkeys(range(10), 1.0), dict.fromkeys(range(10), 0.0))
    assert wins.p == pytest.approx(2 / 1024)
    dice = np.random.default_rng(2)
    values = dice.normal(0.4, 1, 11)
    exact = stats.permutation_test((values,), np.mean, permutation_type="samples", n_resamples=np.inf).pvalue
    ours = paired_difference(dict(enumerate(values.tolist())), dict.fromkeys(range(11), 0.0))
    assert ours.p == pytest.approx(exact)


def test_paired_difference_of_binary_scores_equals_sign_test() -> None:
    first = {i: float(i < 30) for i in range(100)}
    second = {i: float(30 <= i < 45) for i in range(100)}
    assert paired_difference(first, second).p == sign_test(30, 15), "exactly, however many differ"
    places = {(i, place): first[i] for i in first for place in range(5)}
    others = {(i, place): second[i] for i in second for place in range(5)}
    assert paired_difference(places, others, {key: key[0] for key in places}).p == sign_test(30, 15)


@pytest.mark.slow
@given(st.integers(1, 400), st.sampled_from([0.0, 1.0]))
def test_estimate_mean_of_equal_questions_has_wilson_interval(n: int, score: float) -> None:
    """Resampled they would be certain."""
    five = estimate_mean([score] * (5 * n), [i // 5 for i in range(5 * n)])
    expected = wilson(int(score) * n, n)
    assert (five.interval.low, five.interval.high) == pytest.approx((expected.low, expected.high))


def test_paired_difference_without_discordant_question_has_tango_interval() -> None:
    """Tango's interval of none discordant among 40: 1.96^2 / (40 + 1.96^2) either way."""
    same = dict.fromkeys(range(40), 1.0)
    difference = paired_difference(same, same)
    assert (difference.interval.low, difference.interval.high) == pytest.approx((-0.0876, 0.0876), abs=1e-4)
    assert difference.p == 1.0
    won = paired_difference(same, dict.fromkeys(range(40), 0.0)).interval
    assert (won.low, won.high) == pytest.approx((1 - 2 * 0.0876, 1.0), abs=1e-4)


def test_paired_difference_of_one_question_is_not_significant() -> None:
    """However often it was asked."""
    first = {("q", place): 1.0 for place in range(5)}
    second = {("q", place): float(place > 2) for place in range(5)}
    difference = paired_difference(first, second, {key: key[0] for key in first})
    assert difference.value == pytest.approx(0.6)
    assert (difference.p, difference.clusters) == (1.0, 1)
    assert difference.interval.low < 0 < difference.interval.high
    mean = estimate_mean(list(second.values()), ["q"] * 5)
    assert mean.interval.high - mean.interval.low > 0.7


def test_estimate_mean_of_equal_amounts_has_no_width() -> None:
    mean = estimate_mean([1.0] * 6, range(6), shares=False)
    assert (mean.interval.low, mean.interval.high) == (1.0, 1.0)


def test_statistics_are_independent_of_case_order() -> None:
    dice = np.random.default_rng(6)
    scores = {(i, place): float(dice.random() < 0.5) for i in range(30) for place in range(1 + i % 4)}
    other = {key: float(dice.random() < 0.4) for key in scores}
    turned = dict(reversed(scores.items()))
    clusters = {key: key[0] for key in scores}
    assert paired_difference(scores, other, clusters) == paired_difference(turned, other, clusters)
    assert estimate_mean(list(scores.values()), [key[0] for key in scores]) == estimate_mean(
        list(turned.values()), [key[0] for key in turned]
    )


def test_paired_difference_step_is_change_by_one_question() -> None:
    assert paired_difference({1: 1.0, 2: 0.0, 3: 1.0}, {1: 0.0, 2: 1.0, 3: 1.0}).step == 1.0
    first = {(i, place): float(place == i) for i in range(5) for place in range(5)}
    none = dict.fromkeys(first, 0.0)
    assert paired_difference(first, none, {key: key[0] for key in first}).step == pytest.approx(0.2)


@pytest.mark.slow
def test_paired_difference_without_effect_has_nominal_false_alarms() -> None:
    dice, alarms = np.random.default_rng(3), 0
    for seed in range(100):
        scores = dice.integers(2, size=(2, 40, 3)).astype(float)
        pairs = [(question, repeat) for question in range(40) for repeat in range(3)]
        first, second = ({pair: float(scores[arm][pair]) for pair in pairs} for arm in (0, 1))
        alarms += paired_difference(first, second, {pair: pair[0] for pair in pairs}, seed=seed).p < 0.05
    assert alarms <= 11


@pytest.mark.parametrize(("difference", "discordant"), [(0.05, 0.2), (0.1, 0.3), (0.03, 0.1)])
def test_questions_needed_reach_stated_power(difference: float, discordant: float) -> None:
    n = questions_needed(difference, discordant)
    dice, result, rounds = np.random.default_rng(4), 0, 2000
    counts = dice.multinomial(n, [(discordant + difference) / 2, (discordant - difference) / 2, 1 - discordant], rounds)
    for wins, losses, _ in counts:
        result += sign_test(int(wins), int(losses)) < 0.05
    assert result / rounds == pytest.approx(0.8, abs=0.05)


def test_questions_needed_with_impossible_difference_raises_value_error() -> None:
    for difference, discordant in ((0.0, 0.1), (0.2, 0.1), (0.1, 1.2)):
        with pytest.raises(ValueError, match="cannot be"):
            questions_needed(difference, discordant)
