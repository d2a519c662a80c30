"""Test accuracy by the number of documents with a reader of known decline."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from epicrisis.core.errors import InputError
from epicrisis.core.types import Question
from epicrisis.evaluation.analysis import statistics
from epicrisis.evaluation.analysis.grouping import P_COLUMN, SHARE_COLUMN
from epicrisis.evaluation.experiments import context_length, positions
from epicrisis.evaluation.experiments.arms import Study
from epicrisis.evaluation.experiments.placement import PLACES, distinct_places, first_rank
from epicrisis.evaluation.experiments.study_protocols import PROTOCOLS
from epicrisis.evaluation.runs.outcomes import Outcome
from epicrisis.pipeline.recording.case import Case
from tests.support.experiments import build_cases, evidence, near, passage, questions, reader, row, run
from tests.support.position_biased_reader import u_curve

STUDY = Study(evidence(), PROTOCOLS["corrected"])
CURVE = u_curve()
KS = context_length.KS


def make_cases(asked: Sequence[Question], study: Study, **conditions: Any) -> tuple[Case, ...]:
    return build_cases(context_length, asked, study, **{"ks": KS, **conditions})


def expected_share(k: int) -> float:
    """Return the mean of the curve over the places for this k."""
    return float(np.mean([CURVE(first_rank(place, k), k) for place in distinct_places(PLACES, k)]))


def test_cases_of_few_documents_use_each_place_once() -> None:
    cases = make_cases(questions(1), STUDY)
    places = {k: [case.condition["place"] for case in cases if case.condition.get("k") == k] for k in KS}
    assert [len(places[k]) for k in KS] == [1, 2, 4, 5, 5, 5]
    assert sum("k" not in case.condition for case in cases) == 2


def test_cases_count_key_document_of_several_passages_once() -> None:
    keys = tuple(passage("gold:0", f"Half {i} of it.", i) for i in range(2))
    two = Study(evidence(gold_passages=lambda question: {"gold:0": keys}), PROTOCOLS["corrected"])
    cases = make_cases(questions(1), two, ks=(1, 2, 4), arms=("rag",))
    read = [(case.condition["k"], case.condition["place"], case.treatment.ranking) for case in cases]
    assert [(k, place, len(ranking.ids)) for k, place, ranking in read if ranking] == [
        (1, 0, 2),
        (2, 0, 3),
        (2, 100, 3),
        (4, 0, 5),
        (4, 25, 5),
        (4, 75, 5),
        (4, 100, 5),
    ]


def test_cases_by_passages_read_long_key_document_alone() -> None:
    """An abstract that was cut in two must not end the study at k = 1."""
    keys = tuple(passage("gold:0", f"Half {i} of it.", i) for i in range(2))
    result = evidence(gold_passages=lambda question: {"gold:0": keys}, count="passages")
    two = Study(result, PROTOCOLS["corrected"])
    cases = make_cases(questions(1), two, ks=(1, 2, 4), arms=("rag",))
    read = [(case.condition["k"], case.condition["place"], case.treatment.ranking) for case in cases]
    assert [(k, place, len(ranking.ids)) for k, place, ranking in read if ranking] == [
        (1, 0, 2),
        (2, 0, 2),
        (4, 0, 4),
        (4, 50, 4),
        (4, 100, 4),
    ]
    assert all(ranking and {"gold:0#0", "gold:0#1"} <= {*ranking.ids} for _, _, ranking in read)
    with pytest.raises(InputError, match="2 key passages do not fit among 1 passages"):
        build_cases(positions, questions(1), two, ks=(1,), arms=("rag",))


def test_cases_equal_those_of_positions_where_both_ask() -> None:
    """So that a run of the one need not be paid for in the other."""
    sample = questions(2)
    longer = {case.key: case for case in make_cases(sample, STUDY)}
    shared = build_cases(positions, sample, STUDY, ks=(8, 16), arms=("rag",))
    assert shared
    assert [longer[case.key].treatment for case in shared] == [case.treatment for case in shared]


@pytest.mark.long
def test_tables_reproduce_curve_of_reader(tmp_path: Path) -> None:
    sample = questions(40)
    result = run(make_cases(sample, STUDY), reader(sample, CURVE), tmp_path / "run")
    by_k, trend = context_length.tables({"reader": result}, remarks=PROTOCOLS["corrected"].notes)
    for k in KS:
        here = row(by_k, "reader", "rag", k)
        assert near(here[SHARE_COLUMN].value, expected_share(k), here[SHARE_COLUMN].n)
        assert here["SD over places"] is None or k > 1
    shortest = row(by_k, "reader", "rag", 1)
    assert (shortest[SHARE_COLUMN].value, shortest[P_COLUMN]) == (1.0, None)
    longest = row(by_k, "reader", "rag", 32)["difference to the same arm at its smallest k"]
    assert longest.interval.high < 0
    assert near(1 + longest.value, expected_share(32), 5 * 40)
    assert longest.clusters == 40
    assert row(by_k, "reader", "oracle", None)[SHARE_COLUMN].value == 1.0
    assert row(by_k, "reader", "closed-book", None)[SHARE_COLUMN].value == 0.0
    change = row(trend, "reader", "rag")["change a doubling"]
    assert change.interval.high < 0
    assert change.n == 40


def simulate_outcomes(seed: int, falls: float, n: int = 40) -> list[Outcome]:
    """Simulate outcomes whose share right falls by a fixed amount per doubling; questions differ in difficulty."""
    dice = np.random.default_rng(seed)
    ease = dice.uniform(-0.2, 0.2, n)
    return [
        Outcome(
            question=str(question),
            condition={"arm": "rag", "k": k, "place": place, "repeat": 0},
            state="answered",
            right=bool(dice.random() < 0.7 - falls * math.log2(k) + ease[question]),
            chance=1 / 3,
        )
        for question in range(n)
        for k in KS
        for place in distinct_places(PLACES, k)
    ]


@pytest.mark.long
def test_tables_without_effect_have_nominal_false_alarms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "RESAMPLES", 500)
    alarms = np.zeros(2, dtype=int)
    for seed in range(200):
        tables = context_length.tables({"m": simulate_outcomes(seed, 0.0, 25)})
        alarms += [min(p for p in table.column(P_COLUMN) if isinstance(p, float)) < 0.05 for table in tables]
    assert max(alarms) <= 16
    assert alarms.sum() >= 8, "a test that never speaks says nothing"


@pytest.mark.slow
def test_tables_intervals_cover_effect_at_stated_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "RESAMPLES", 500)
    differences, slopes, result = 0, 0, 0
    for seed in range(40):
        by_k, trend = context_length.tables({"m": simulate_outcomes(seed, 0.08)})
        longest = row(by_k, "m", "rag", 32)["difference to the same arm at its smallest k"]
        change = row(trend, "m", "rag")["change a doubling"]
        differences += longest.interval.low <= -0.4 <= longest.interval.high
        slopes += change.interval.low <= -0.08 <= change.interval.high
        result += change.value < 0 and change.p < 0.05
    assert result == 40
    assert differences >= 34
    assert slopes >= 34


def test_tables_of_several_models_have_rows_for_each() -> None:
    runs = {"better": simulate_outcomes(1, 0.0), "worse": simulate_outcomes(2, 0.1)}
    by_k, trend = context_length.tables(runs)
    assert [cells[0] for cells in by_k.rows] == ["better"] * len(KS) + ["worse"] * len(KS)
    assert row(trend, "worse", "rag")[P_COLUMN] < 0.01 < row(trend, "better", "rag")[P_COLUMN]


def test_trend_counts_failed_case_as_not_right() -> None:
    result = simulate_outcomes(0, 0.0, 5)
    failed = [
        Outcome(question=item.question, condition=item.condition, state="failed", right=None, chance=1 / 3)
        if item.question == "3" and item.condition["k"] == 1
        else item
        for item in result
    ]
    by_k, trend = context_length.tables({"m": failed})
    assert row(trend, "m", "rag")["change a doubling"].n == 5
    assert [row(trend, "m", "rag")[name] for name in ("questions", "not compared")] == [5, 0]
    for table in (by_k, trend):
        assert "Guessing among the options would be right in 33.3 % of the 5 questions." in table.notes
    assert (row(by_k, "m", "rag", 1)[SHARE_COLUMN].n, row(by_k, "m", "rag", 1)[SHARE_COLUMN].unscored) == (5, 0)
    assert row(by_k, "m", "rag", 8)["difference to the same arm at its smallest k"].clusters == 5
