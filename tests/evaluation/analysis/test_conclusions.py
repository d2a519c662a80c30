"""Test the sentences that conclude a table."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest

from epicrisis.evaluation.analysis import statistics
from epicrisis.evaluation.analysis.conclusions import (
    MEASURE_COLUMN,
    PATIENTS_COLUMN,
    describe_shares,
    draw_conclusions,
    draw_headline,
    smallest_shown,
)
from epicrisis.evaluation.analysis.grouping import Group, make_accuracy_table
from epicrisis.evaluation.analysis.published import load_published
from epicrisis.evaluation.analysis.sample_size import smallest_difference
from epicrisis.evaluation.analysis.statistics import Difference, Interval, Mean, paired_difference
from epicrisis.evaluation.analysis.table import Cell, Table
from epicrisis.evaluation.runs.outcomes import Outcome

BETTER = Difference(0.062, Interval(0.011, 0.113), 0.003, 200, 40)
WORSE = Difference(-0.1, Interval(-0.19, -0.01), 0.004, 200, 40)
SAME = Difference(0.015, Interval(-0.04, 0.07), 0.6, 200, 40)
BOUND = Difference(0.3, Interval(0.2, 0.4), 0.0001, 200, 40)


def make_table(*rows: tuple[Cell, ...]) -> Table:
    return Table("T", ("model", "arm", "place", "difference to rag", "p (Holm)"), rows)


def test_conclusions_state_significant_differences_with_intervals() -> None:
    untested = ("qwen", "ends", 25, BOUND, None)
    conclusions = draw_conclusions(
        make_table(("qwen", "brief-context", 25, BETTER, 0.02), ("qwen", "ends", 50, WORSE, 0.04), untested)
    )
    assert conclusions[:2] == (
        "place 25: brief-context was right 6.2 points more often than rag (95 % interval 1.1 to 11.3; p = 0.02, "
        "corrected for 2 comparisons, 40 questions).",
        "place 50: ends was right 10 points less often than rag (95 % interval 1.0 to 19.0; p = 0.04, corrected for 2 "
        "comparisons, 40 questions).",
    )
    assert conclusions[2] == (
        "Smaller differences would be missed: with 40 questions a difference of 22.3 points would be found in 8 of 10 "
        "such studies."
    )
    assert len(conclusions) == 3


def test_conclusions_of_insignificant_difference_state_smallest_detectable() -> None:
    (text,) = draw_conclusions(make_table(("qwen", "brief-context", 25, SAME, 1.0)))
    least = smallest_shown(SAME)
    assert least is not None
    assert text == (
        "No difference between brief-context and rag was shown: +1.5 points (95 % interval -4.0 to 7.0; p = 1); this "
        f"does not prove that there is none: with 40 questions a difference of {100 * least:.1f} points would be "
        "found in 8 of 10 such studies."
    )


def test_conclusions_leave_out_upper_and_lower_bounds() -> None:
    make_accuracy_table = make_table(("qwen", "brief-context", 25, SAME, 0.4), ("qwen", "oracle", None, BOUND, None))
    conclusions = draw_conclusions(make_accuracy_table)
    assert len(conclusions) == 1
    assert "oracle" not in conclusions[0]
    assert "corrected for" not in conclusions[0], "one comparison, for the bound is none"
    assert draw_conclusions(make_table(("qwen", "oracle", None, BOUND, None))) == ()


def test_conclusions_merge_comparisons_without_finding() -> None:
    rows = [("qwen", "ends", place, SAME, 0.9) for place in range(5)]
    conclusions = draw_conclusions(make_table(*rows, ("qwen", "brief-context", 0, BETTER, 0.02)))
    assert len(conclusions) == 2
    assert conclusions[1].startswith(
        "In 5 of 6 comparisons (difference to rag; p above 0.05 in the table) no difference was"
    )


def test_conclusions_use_column_name_of_other_differences() -> None:
    make_accuracy_table = Table(
        "T",
        ("arm", "lost in the middle", "p (Holm)", "lost less than rag", "p (Holm) of that"),
        (("rag", BETTER, 0.02, None, None), ("brief-context", SAME, 0.8, WORSE, 0.03)),
    )
    conclusions = draw_conclusions(make_accuracy_table)
    assert conclusions[0].startswith(
        "rag: lost in the middle +6.2 points (95 % interval 1.1 to 11.3; p = 0.02, corrected for 3 "
    )
    assert conclusions[1].startswith(
        "brief-context: lost in the middle was not shown to differ from 0: +1.5 points (95 %"
    )
    assert conclusions[2].startswith(
        "brief-context: lost less than rag -10 points (95 % interval -19.0 to -1.0; p = 0.03"
    )
    rules = Table("T", ("rule", "difference to the rule", "p (Holm)"), (("majority", BETTER, 0.02),))
    assert draw_conclusions(rules)[0].startswith("majority: difference to the rule +6.2 points (")


def test_conclusions_of_run_pairs_name_both_runs() -> None:
    columns = ("run", "against", "arm", "difference to the other", "p (Holm)")
    pairs = Table("T", columns, (("b", "a", "rag", BETTER, 0.02), ("b", "a", "ends", SAME, 0.5)))
    shown, rest = draw_conclusions(pairs)
    assert shown.startswith("arm rag: b was right 6.2 points more often than a (")
    assert rest.startswith("arm ends: no difference between b and a was shown: +1.5 points (")


def test_conclusions_name_patients_and_questions() -> None:
    columns = ("arm", PATIENTS_COLUMN, MEASURE_COLUMN, "difference to full-context", "p (Holm)")
    fewer = Difference(0.01, Interval(-0.05, 0.07), 0.7, 150, 30)
    rows = (
        ("rag-5", 40, "token-f1", BETTER, 0.02),
        ("rag-10", 40, "token-f1", SAME, 0.8),
        ("rag-15", 30, "token-f1", fewer, 0.9),
    )
    first, *rest = draw_conclusions(Table("T", columns, rows))
    assert first.endswith("corrected for 3 comparisons, 200 questions of 40 patients).")
    assert "with 200 questions of 40 patients a difference" in rest[0]
    many = draw_conclusions(Table("T", columns, (*rows[1:], *rows[1:])))
    assert len(many) == 1
    assert "with 30 to 40 patients a difference" in many[0]


def test_conclusions_of_table_without_test_are_empty() -> None:
    assert draw_conclusions(Table("T", ("arm", "difference"), (("a", BETTER),))) == ()
    assert draw_conclusions(Table("T", ("rule", "p (Holm)"), (("a", 0.01),))) == ()
    assert [
        draw_conclusion
        for name in load_published()
        for draw_conclusion in draw_conclusions(load_published()[name].table)
    ] == []


def test_conclusions_of_few_questions_state_no_difference_detectable() -> None:
    few = Difference(0.2, Interval(-0.2, 0.6), 1.0, 5, 5)
    assert (
        "with 5 questions no difference whatever would be found"
        in draw_conclusions(make_table(("m", "ends", 0, few, 1.0)))[0]
    )


@pytest.mark.parametrize("places", [1, 5])
def test_smallest_shown_uses_discordant_questions(places: int) -> None:
    """Read off the interval it is that of the counts; places of one question that all agree change nothing."""
    first = {(i, place): float(i < 60) for i in range(200) for place in range(places)}
    second = {(i, place): float(30 <= i < 70) for i in range(200) for place in range(places)}
    difference = paired_difference(first, second, {key: key[0] for key in first})
    expected = smallest_difference(200, 40 / 200, alpha=0.05 / 3)
    assert smallest_shown(difference, comparisons=3) == pytest.approx(expected, rel=0.05)


@pytest.mark.slow
def test_smallest_shown_over_places_is_detected_at_stated_power(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Five places of forty questions find smaller differences than one place of them."""
    monkeypatch.setattr(statistics, "RESAMPLES", 400)
    dice = np.random.default_rng(1)
    places = range(5)

    def study(gap: float) -> Difference:
        ease = dice.uniform(0.3, 0.6, 40)
        first, second = (
            {(i, p): float(dice.random() < ease[i] + half) for i in range(40) for p in places}
            for half in (gap / 2, -gap / 2)
        )
        return paired_difference(first, second, {key: key[0] for key in first})

    least = float(np.median([smallest_shown(study(0.0)) or 1.0 for _ in range(15)]))
    assert least < 0.8 * (smallest_difference(40, 0.0) or 0.0), "less than of forty that are right or wrong"
    assert 0.65 < np.mean([study(least).p <= 0.05 for _ in range(120)]) < 0.9


@pytest.mark.slow
def test_conclusions_avoid_claims_of_significance_and_cause() -> None:
    """No word of significance or of cause, on tables as the experiments make them; where nothing differs, rarely a
    finding."""
    dice, alarms = random.Random(0), 0
    for _ in range(60):
        groups = [
            Group(("m", arm, k), outcomes, (), ())
            for arm in ("rag", "brief-context")
            for k in (8, 16)
            for outcomes in [
                [
                    Outcome(question=str(i), condition={}, state="answered", right=dice.random() < 0.5, chance=0.5)
                    for i in range(30)
                ]
            ]
        ]
        against = [Group(g.labels, g.outcomes, groups[i - 2].outcomes if i > 1 else ()) for i, g in enumerate(groups)]
        conclusions = draw_conclusions(
            make_accuracy_table("T", ("model", "arm", "k"), against, baseline="rag at that k")
        )
        assert conclusions
        assert not re.search(r"(?i)signific|because|due to|caus|prove[sd]|effect|improv", " ".join(conclusions))
        alarms += any("more often" in item or "less often" in item for item in conclusions)
    assert alarms <= 9


def test_headline_counts_differences_and_states_the_largest() -> None:
    table = make_table(
        ("qwen", "brief-context", 25, BETTER, 0.02), ("qwen", "ends", 50, WORSE, 0.04), ("qwen", "ends", 75, SAME, 1.0)
    )
    assert draw_headline(table) == (
        "2 of 3 comparisons (difference to rag) show a difference. The largest: place 50: ends was right 10 points "
        "less often than rag (95 % interval 1.0 to 19.0; p = 0.04, corrected for 3 comparisons, 40 questions)."
    )


def test_headline_of_one_comparison_is_its_conclusion() -> None:
    table = make_table(("qwen", "brief-context", 25, SAME, 1.0))
    assert (draw_headline(table),) == draw_conclusions(table)
    assert draw_headline(make_table(("qwen", "oracle", None, BOUND, None))) == ""


def test_untested_shares_are_described_by_the_highest_and_the_lowest() -> None:
    low, high = Mean(0.075, Interval(0.026, 0.199), 40), Mean(0.2, Interval(0.105, 0.348), 40)
    columns = ("arm", "share right")
    assert describe_shares(Table("T", columns, (("closed-book", low), ("focused", high)))) == (
        "The share right was highest with focused, 20.0 % (95 % interval 10.5 to 34.8; 40 questions), and lowest with "
        "closed-book, 7.5 % (95 % interval 2.6 to 19.9; 40 questions); the difference was not tested."
    )
    assert describe_shares(Table("T", columns, (("focused", high),))) == (
        "The share right was 20.0 % (95 % interval 10.5 to 34.8; 40 questions) with focused."
    )


@pytest.mark.parametrize(
    "table",
    [
        Table("T", ("arm", "right"), (("rag", 3),)),
        Table("T", ("place", "share right"), ((3, Mean(0.2, Interval(0.1, 0.3), 40)),)),
        Table("T", ("arm", "share right"), (("rag", Mean(float("nan"), Interval(0, 1), 0)),)),
        Table("T", ("arm", "share right"), ()),
    ],
)
def test_table_without_shares_of_arms_is_not_described(table: Table) -> None:
    assert describe_shares(table) == ""
