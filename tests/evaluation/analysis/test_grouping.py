"""Test accuracy tables from outcomes: states, pairs, clusters and corrected p values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from epicrisis.core.types import AnswerState
from epicrisis.evaluation.analysis.grouping import (
    DIFFERENCE_BOUNDS,
    FIGURES,
    P_COLUMN,
    SHARE_BOUNDS,
    SHARE_COLUMN,
    Group,
    bound_difference,
    bound_share,
    compare_to_baseline,
    correct_p_values,
    count_endings,
    make_accuracy_table,
    mean_by_pair,
    mean_score,
    score_outcome,
    spread_over,
)
from epicrisis.evaluation.analysis.statistics import Interval, paired_difference, wilson
from epicrisis.evaluation.runs.outcomes import Outcome


def make_outcome(
    question: object, right: bool | None = None, state: AnswerState = "answered", **condition: Any
) -> Outcome:
    return Outcome(question=str(question), condition=condition, state=state, right=right, chance=0.5)


MIXED = [
    make_outcome(1, True),
    make_outcome(2, False),
    make_outcome(3, state="abstained"),
    make_outcome(4, state="unparsed"),
    make_outcome(5, state="failed"),
]


def test_score_outcome_counts_each_state_separately() -> None:
    assert count_endings(MIXED) == (1, 1, 1, 1, 1)
    assert [score_outcome(item, "right") for item in MIXED] == [1.0, 0.0, 0.0, 0.0, 0.0]
    assert [score_outcome(item, "right-of-answered") for item in MIXED] == [1.0, 0.0, None, None, None]
    of_all, of_answered = mean_score(MIXED, "right"), mean_score(MIXED, "right-of-answered")
    assert (of_all.value, of_all.n, of_all.unscored) == (0.2, 5, 0)
    assert (of_answered.value, of_answered.n, of_answered.unscored) == (0.5, 2, 3)
    assert of_all.interval == wilson(1, 5)
    unmarked = replace(make_outcome(6, state="failed"), is_unmarked=True)
    assert score_outcome(unmarked, "right") is None


def test_mean_score_of_repeated_question_counts_one_cluster() -> None:
    once = [make_outcome(i, i % 2 == 0) for i in range(40)]
    five = [make_outcome(i, i % 2 == 0, place=place) for i in range(40) for place in range(5)]
    width = [item.interval.high - item.interval.low for item in (mean_score(once, "right"), mean_score(five, "right"))]
    assert width[1] == pytest.approx(width[0], rel=0.1)


def test_mean_by_pair_averages_scores_with_equal_named_conditions() -> None:
    scores = [
        make_outcome(1, True, place=0, k=8),
        make_outcome(1, False, place=100, k=8),
        make_outcome(1, state="failed", place=50, k=8),
    ]
    assert mean_by_pair(scores, ("place",), "right") == {("1", 0): 1.0, ("1", 100): 0.0, ("1", 50): 0.0}
    assert mean_by_pair(scores, (), "right") == {("1",): pytest.approx(1 / 3)}
    assert mean_by_pair(scores, ("place",), "right-of-answered") == {("1", 0): 1.0, ("1", 100): 0.0}


def test_compare_to_baseline_without_common_cases_returns_none() -> None:
    first = [make_outcome(i, True, place=0) for i in range(6)]
    second = [make_outcome(i, i < 3, place=0) for i in range(6)]
    result = compare_to_baseline(Group((), first, second, ("place",)), "right")
    assert result is not None
    assert (result.value, result.n, result.clusters) == (0.5, 6, 6)
    assert compare_to_baseline(Group((), first, (), ("place",)), "right") is None
    elsewhere = [make_outcome(i, True, place=1) for i in range(6)]
    assert compare_to_baseline(Group((), first, elsewhere, ("place",)), "right") is None
    failed = [make_outcome(i, state="failed", place=0) for i in range(6)]
    result = compare_to_baseline(Group((), first, failed, ("place",)), "right")
    assert result is not None
    assert (result.value, result.n) == (1.0, 6)
    assert compare_to_baseline(Group((), first, failed, ("place",)), "right-of-answered") is None


def test_compare_to_baseline_averages_places_of_one_question() -> None:
    oracle = [make_outcome(i, True) for i in range(10)]
    placed = [make_outcome(i, place < 2, place=place) for i in range(10) for place in range(5)]
    result = compare_to_baseline(Group((), oracle, placed, ()), "right")
    assert result is not None
    assert result.value == pytest.approx(0.6)
    assert result.n == 10


def test_correct_p_values_ignores_missing_comparisons() -> None:
    dice = np.random.default_rng(0)
    some = [
        paired_difference({i: float(v) for i, v in enumerate(dice.normal(m, 1, 30))}, dict.fromkeys(range(30), 0.0))
        for m in (0.0, 0.5, 1.0)
    ]
    corrected = correct_p_values([some[0], None, some[1], some[2], None])
    assert corrected[1] is None
    assert corrected[4] is None
    by_hand = sorted(item.p for item in some)
    assert corrected[3] == pytest.approx(3 * by_hand[0])
    assert corrected[2] == pytest.approx(max(3 * by_hand[0], 2 * by_hand[1]))
    assert correct_p_values([None, None]) == [None, None]


def test_spread_over_repeats_matches_manual_calculation() -> None:
    result = [make_outcome(i, i < right, repeat=repeat) for repeat, right in enumerate((2, 4, 6)) for i in range(10)]
    assert spread_over(result, "repeat") == pytest.approx(0.2)
    assert spread_over(result, "place") is None
    assert spread_over([], "repeat") is None


def test_accuracy_table_has_columns_rows_and_notes() -> None:
    rag = [make_outcome(i, i % 3 == 0) for i in range(30)]
    table = make_accuracy_table(
        "Title",
        ("arm",),
        [Group(("rag",), rag), Group(("other",), MIXED, rag, (), ())],
        baseline="rag",
    )
    assert table.columns == ("arm", *FIGURES, SHARE_BOUNDS, DIFFERENCE_BOUNDS, "difference to rag", P_COLUMN)
    assert table.column("arm") == ("rag", "other")
    assert table.column("failed") == (0, 1)
    shares = table.column(SHARE_COLUMN)
    assert [getattr(share, "n", None) for share in shares] == [30, 5]
    assert table.column(SHARE_BOUNDS) == (None, Interval(0.2, 0.4, 1.0))
    assert table.column(P_COLUMN)[0] is None
    assert "over the cases that both were asked" in table.notes[2]
    assert "Holm" not in table.notes[2], "one comparison"
    assert "more than 1 % of the cases failed" in table.notes[3]
    assert "50.0 % of the 30 questions" in table.notes[4]


def test_accuracy_table_notes_name_number_of_corrected_comparisons() -> None:
    rag = [make_outcome(i, i % 3 == 0) for i in range(30)]
    others = [Group((name,), [make_outcome(i, i % 2 == 0) for i in range(30)], rag) for name in "ab"]
    notes = make_accuracy_table("T", ("arm",), others, baseline="rag").notes
    assert notes[2].endswith("corrected by Holm for this table's 2 comparisons.")
    alone = make_accuracy_table("T", ("arm",), [Group(("rag",), rag)], baseline="rag").notes
    assert not any("Differences" in note for note in alone), "nothing is compared"
    nothing = make_accuracy_table("T", ("arm",), [], baseline="rag").notes
    assert not any("nan" in note for note in nothing)


def test_accuracy_table_is_independent_of_case_order() -> None:
    """Calls at once end in any order; intervals and p are drawn all the same."""
    dice = np.random.default_rng(5)
    first, second = (
        [make_outcome(i, bool(dice.random() < share), place=place) for i in range(25) for place in range(3)]
        for share in (0.6, 0.4)
    )
    result = [
        make_accuracy_table("T", ("arm",), [Group(("a",), a, b, ("place",))], baseline="b")
        for a, b in ((first, second), (first[::-1], second), ([*first[40:], *first[:40]], second[::-1]))
    ]
    assert result[0] == result[1] == result[2]


def test_bounds_cover_what_lost_replies_of_both_arms_allow() -> None:
    """The share may move by the arm's own failures, the difference by those of both arms."""
    ours = [make_outcome(i, i < 50, "failed" if i >= 95 else "answered") for i in range(100)]
    theirs = [make_outcome(i, i < 40, "failed" if i >= 98 else "answered") for i in range(100)]
    assert bound_share(ours) == Interval(0.5, 0.55, 1.0)
    bounds = bound_difference(Group((), ours, theirs))
    assert bounds is not None
    assert [bounds.low, bounds.high] == pytest.approx([0.08, 0.15])


def test_bounds_are_left_out_for_one_percent_of_failures() -> None:
    outcomes = [make_outcome(i, True, "failed" if i == 0 else "answered") for i in range(100)]
    assert bound_share(outcomes) is None
    assert bound_difference(Group((), outcomes, [make_outcome(i, True) for i in range(100)])) is None
    more = [make_outcome(i, True, "failed" if i < 2 else "answered") for i in range(100)]
    assert bound_share(more) is not None


def test_accuracy_table_without_scored_cases_shows_nan_not_zero() -> None:
    unmarked = replace(make_outcome(1, state="failed"), is_unmarked=True)
    table = make_accuracy_table("T", ("arm",), [Group(("rag",), [unmarked])], baseline="rag")
    (share,) = table.column(SHARE_COLUMN)
    assert np.isnan(share.value)  # type: ignore[union-attr]
    assert (share.n, share.unscored) == (0, 1)  # type: ignore[union-attr]
