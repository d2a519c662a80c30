"""Test tables of agreement between metrics on constructed cases."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest

from epicrisis.core.types import QuestionForm
from epicrisis.evaluation.analysis.statistics import Difference, Mean
from epicrisis.evaluation.analysis.table import Table
from epicrisis.evaluation.grading.measurements import MeasuredCase
from epicrisis.evaluation.grading.metric_tables import (
    agreement_tables,
    contradiction_table,
    correlation_tables,
    count_endings,
    judge_disagreement_table,
    long_and_right,
    missed_table,
    numbers_table,
    ordered_pair_share,
    overview_table,
    with_notes,
)

ONE, TWO = "judge-correctness[one]", "judge-correctness[two]"
CONSISTENT, METEOR, FAITHFUL = "nli-non-contradiction[nli]", "meteor[exact+stem]", "judge-faithfulness[one]"


def make_case(i: int, values: Mapping[str, float], **fields: Any) -> MeasuredCase:
    condition = fields.pop("condition", {"arm": "include-all", "tokens": 20_000})
    result: dict[str, Any] = {"ending": "answered", **fields}
    return MeasuredCase(key=f"q{i}:h {condition}", question=f"q{i}:h", condition=condition, values=values, **result)


def rows_by_metric(table: Table) -> dict[Any, dict[str, Any]]:
    return {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.rows}


def test_correlation_tables_use_cases_scored_by_both_metrics() -> None:
    cases = [make_case(i, {ONE: i / 10, METEOR: 1 - i / 10, **({TWO: i / 10} if i % 2 else {})}) for i in range(10)]
    matrix, by_pair = correlation_tables(cases, "all")
    assert matrix.columns == ("metric", "n", "not scored", ONE, TWO, METEOR)
    assert rows_by_metric(matrix)[ONE][METEOR] == pytest.approx(-1)
    assert rows_by_metric(matrix)[METEOR][ONE] == rows_by_metric(matrix)[ONE][METEOR]
    assert rows_by_metric(matrix)[TWO]["not scored"] == 5
    by_metrics = {(row[0], row[1]): row for row in by_pair.rows}
    assert len(by_metrics) == 3
    assert by_metrics[ONE, TWO][2:5] == (5, 5, 5)
    assert by_metrics[ONE, TWO][5] == pytest.approx(1)


def test_with_notes_leaves_out_other_forms_and_settings_without_notes() -> None:
    cases = [
        make_case(0, {ONE: 1.0}),
        make_case(1, {ONE: 1.0}, condition={"arm": "exclude-related", "tokens": 20_000}),
        make_case(2, {}, ending="refused"),
        make_case(3, {"accuracy": 1.0}, form="choice"),
        make_case(4, {}, unanswerable=True),
        make_case(5, {ONE: 1.0}, condition={"arm": "include-all", "tokens": 15_999}),
        make_case(6, {ONE: 0.5}),
        make_case(7, {ONE: 1.0}, condition={"arm": "include-all"}),
    ]
    notes = with_notes(cases)
    assert [item.question for item in notes] == ["q0:h", "q5:h", "q6:h", "q7:h"]
    assert [item.question for item in long_and_right(notes, ONE)] == ["q0:h"]


def test_contradiction_table_counts_correct_contradicted_answers_by_judge() -> None:
    cases = [make_case(i, {CONSISTENT: 0.2, ONE: 1.0 if i < 3 else 0.5, TWO: 0.75}) for i in range(5)]
    cases += [make_case(5, {CONSISTENT: 0.3, ONE: 1.0}), make_case(6, {ONE: 1.0})]
    by_judge = rows_by_metric(contradiction_table(cases))
    assert (by_judge["one"]["n"], by_judge["one"]["not scored by both"], by_judge["one"]["disagree"]) == (6, 1, 3)
    assert (by_judge["two"]["n"], by_judge["two"]["disagree"]) == (5, 5)
    assert by_judge["one"]["examples"] == "q0, q1, q2"
    assert isinstance(by_judge["one"]["share"], Mean)
    assert by_judge["one"]["share"].value == 0.5


def test_judge_disagreement_table_counts_large_differences_and_milder_judge() -> None:
    cases = [make_case(i, {ONE: 1.0, TWO: 0.5 if i < 4 else 0.75}) for i in range(12)]
    (row,) = rows_by_metric(judge_disagreement_table(cases)).values()
    assert (row["apart"], row["judge higher"], row["other higher"], row["n"]) == (4, 4, 0, 12)
    difference = row["difference of the judges"]
    assert isinstance(difference, Difference)
    assert difference.value == pytest.approx(1 / 3)
    assert row["p (Holm)"] == pytest.approx(2 / 2**12)


def test_missed_table_names_examples_of_low_and_high_scores() -> None:
    cases = [make_case(i, {ONE: 1.0, METEOR: 0.1, FAITHFUL: 0.9}) for i in range(4)]
    cases += [
        make_case(4, {ONE: 0.0, METEOR: 0.9, FAITHFUL: 0.0}),
        make_case(5, {ONE: 1.0, METEOR: 0.5}),
        make_case(6, {METEOR: 0.1}),
    ]
    by_metric = {row[1]: dict(zip(missed_table(cases).columns, row, strict=True)) for row in missed_table(cases).rows}
    assert (by_metric[METEOR]["correct"], by_metric[METEOR]["of these low"], by_metric[METEOR]["examples"]) == (
        5,
        4,
        "q0, q1, q2",
    )
    assert (by_metric[METEOR]["wrong"], by_metric[METEOR]["of these high"], by_metric[METEOR]["examples of these"]) == (
        1,
        1,
        "q4",
    )
    assert (by_metric[FAITHFUL]["of these low"], by_metric[FAITHFUL]["not scored by both"]) == (0, 2)
    assert METEOR in by_metric
    assert ONE not in by_metric


def test_numbers_table_scores_metric_blind_to_numbers_at_chance() -> None:
    cases = [make_case(i, {"numbers-recall": float(i % 2), METEOR: 0.8, ONE: float(i % 2)}) for i in range(10)]
    precise = {"numbers-recall": 1.0, "numbers-precision": 0.5, "numbers-f1": 2 / 3, METEOR: 0.8}
    by_metric = rows_by_metric(numbers_table([*cases, make_case(10, {METEOR: 0.1}), make_case(11, precise)]))
    assert by_metric[METEOR]["ranks them rightly"] == 0.5
    assert by_metric[ONE]["ranks them rightly"] == 1.0
    assert (by_metric[ONE]["n right"], by_metric[ONE]["n wrong"], by_metric[ONE]["not scored"]) == (5, 5, 1)
    assert by_metric[METEOR]["examples"] == "q0, q2, q4"
    assert by_metric[ONE]["examples"] == ""


def test_overview_table_counts_reasons_of_missing_values() -> None:
    cases = [
        make_case(0, {ONE: 1.0}),
        make_case(1, {}, states={ONE: "failed"}),
        make_case(2, {}, states={ONE: "unparsed"}),
        make_case(3, {}),
    ]
    row = rows_by_metric(overview_table([*cases, make_case(4, {}, ending="empty")]))[ONE]
    assert (row["n"], row["no value"], row["call failed"], row["not measured"]) == (1, 1, 1, 1)
    assert dict(count_endings([*cases, make_case(4, {}, ending="empty")])) == {"answered": 4, "empty": 1}


def test_agreement_tables_separate_sets_and_forms() -> None:
    def some(name: str, form: QuestionForm, first: int) -> list[MeasuredCase]:
        return [
            make_case(first + i, {ONE: i / 4, TWO: 0.5}, form=form, condition={"arm": "include-all", "set": name})
            for i in range(4)
        ]

    tables = agreement_tables([*some("a", "open", 0), *some("b", "open", 10), *some("b", "extractive", 20)])
    apart = {item.title: item.rows[0][2] for item in tables if item.title.startswith("Judges that disagree")}
    assert apart == {f"Judges that disagree: {of}": 4 for of in ("a", "b, open answers", "b, extractive answers")}
    assert sum(item.title == "Correlations of the metrics: a, all settings that show notes" for item in tables) == 1


def test_correlation_tables_cluster_cases_by_patient() -> None:
    cases = [make_case(i, {ONE: i / 12, TWO: 1 - i / 12}, patient=f"p{i % 3}") for i in range(12)]
    assert correlation_tables(cases, "all")[1].column("clusters") == (3,)
    (difference,) = judge_disagreement_table(cases).column("difference of the judges")
    assert isinstance(difference, Difference)
    assert (difference.n, difference.clusters) == (12, 3)


def test_missed_table_leaves_out_metrics_without_threshold() -> None:
    table = missed_table([make_case(i, {ONE: 0.0, METEOR: 0.1, "bertscore-f1[b]": 0.9}) for i in range(3)])
    assert table.column("metric") == (METEOR,)
    assert any("bertscore-f1" in note for note in table.notes)


def test_share_of_ordered_pairs_by_rank_matches_all_pairs() -> None:
    dice = random.Random(2)
    right, wrong = ([dice.randrange(5) / 4 for _ in range(n)] for n in (23, 17))
    pairs = [(one > other) + 0.5 * (one == other) for one in right for other in wrong]
    assert ordered_pair_share(right, wrong) == pytest.approx(sum(pairs) / len(pairs))
    many = [dice.random() for _ in range(200_000)]
    assert ordered_pair_share(many, many) == pytest.approx(0.5), "4e10 pairs, none of which is made"
    assert ordered_pair_share([], many) is None


def test_agreement_tables_leave_out_empty_tables() -> None:
    assert agreement_tables([make_case(0, {}, ending="empty")]) == ()
    titles = [
        agreement_table.title
        for agreement_table in agreement_tables([make_case(i, {ONE: i / 4, TWO: 0.5, METEOR: 0.5}) for i in range(5)])
    ]
    assert "Judges that disagree" in titles
    assert "Answers with numbers" not in titles
    assert "Contradicted by NLI and correct by the judge" not in titles
    assert sum("16K" in title for title in titles) == 2
