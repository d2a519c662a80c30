"""Test tables of measured answers: zeros, missing scores, and comparisons."""

from __future__ import annotations

from typing import Any

import pytest

from epicrisis.core.types import QuestionForm
from epicrisis.evaluation.analysis.conclusions import PATIENTS_COLUMN, draw_conclusions
from epicrisis.evaluation.analysis.statistics import Difference, Mean
from epicrisis.evaluation.analysis.table import Table
from epicrisis.evaluation.grading.measure_tables import (
    BOUNDS,
    MeasuredRow,
    case_score,
    distribution_table,
    group_rows,
    lengths_table,
    list_metrics,
    metrics_table,
    pooled_table,
    select_measures,
)
from epicrisis.evaluation.grading.measurements import MeasuredCase
from epicrisis.evaluation.grading.scored_answers import ENDINGS, Ending

JUDGE, FAITHFUL = "judge-correctness[m]", "judge-faithfulness[m]"


def make_case(
    question: str = "q",
    arm: str = "rag-5",
    ending: Ending = "answered",
    *,
    unanswerable: bool = False,
    tokens: int = 900,
    patient: str | None = None,
    bin: str = "0-8K",
    category: str = "",
    form: QuestionForm = "open",
    **values: float,
) -> MeasuredCase:
    condition: dict[str, str | int] = {
        "arm": arm,
        "set": "s",
        "form": form,
        "bin": bin,
        "tokens": tokens,
        "category": category,
    }
    short = {"judge": JUDGE, "faithful": FAITHFUL}
    named = {short.get(name, name.replace("_", "-")): value for name, value in values.items()}
    return MeasuredCase(
        key=f"{question} {arm}",
        question=question,
        condition=condition,
        ending=ending,
        values=named,
        states={},
        form=form,
        category=category,
        patient=patient,
        unanswerable=unanswerable,
    )


def row_by_column(made: Table, row: int = 0) -> dict[str, Any]:
    return dict(zip(made.columns, made.rows[row], strict=True))


@pytest.mark.parametrize(
    ("ending", "value"),
    [
        ("answered", 0.75),
        ("abstained", 0.0),
        ("unparsed", 0.0),
        ("empty", 0.0),
        ("refused", 0.0),
        ("over-window", 0.0),
        ("failed", 0.0),
    ],
)
def test_case_score_without_an_answer_is_zero_for_every_ending(ending: Ending, value: float | None) -> None:
    assert case_score(make_case(ending=ending, judge=0.75), JUDGE) == value


@pytest.mark.parametrize("ending", ["abstained", "unparsed"])
def test_case_score_of_silent_answer_is_zero_for_correctness_and_missing_for_consistency(ending: Ending) -> None:
    zero = (
        "exact-match",
        "token-f1",
        "meteor[exact+stem]",
        "nli-entailment[n]",
        JUDGE,
        "judge-completeness[m]",
    )
    none = ("numbers-f1", "bertscore-f1[b]", "nli-non-contradiction[n]", FAITHFUL, "judge-faithful-to-notes[m]")
    assert {case_score(make_case(ending=ending), name) for name in zero} == {0.0}
    assert {case_score(make_case(ending=ending), name) for name in none} == {None}
    assert case_score(make_case(ending=ending, form="choice"), "accuracy") == 0.0
    assert case_score(make_case(ending=ending), "accuracy") is None
    assert case_score(make_case(ending=ending, unanswerable=True), JUDGE) is None


def test_metrics_table_leaves_unanswerable_questions_out_of_difference() -> None:
    mine = [
        make_case("a", judge=0.5, patient="p"),
        *(
            make_case(f"n{i}", ending="abstained", unanswerable=True, patient=f"p{i}", abstained_rightly=1.0)
            for i in range(9)
        ),
    ]
    other = [
        make_case("a", "full", judge=0.5, patient="p"),
        *(make_case(f"n{i}", "full", unanswerable=True, patient=f"p{i}", abstained_rightly=0.0) for i in range(9)),
    ]
    table = metrics_table("T", ("arm",), [MeasuredRow(("rag-5",), mine, other)], baseline="full")
    result, abstained = row_by_column(table)["difference to full"], row_by_column(table)["abstained rightly"]
    assert (result.value, result.n) == (0.0, 1)
    assert (abstained.value, abstained.n) == (1.0, 9)


def test_metrics_table_reports_unscored_answers_and_no_zero_for_unscored_arm() -> None:
    half = [make_case("a", judge=1.0), make_case("b"), make_case("c", ending="abstained")]
    never = [make_case("a", "none"), make_case("b", "none"), make_case("c", "none", "abstained")]
    table = metrics_table(
        "T", ("arm",), [MeasuredRow(("rag-5",), half), MeasuredRow(("none",), never, half)], baseline="rag-5"
    )
    assert row_by_column(table)["answered, not scored"] == f"1 by {JUDGE}"
    assert row_by_column(table)[JUDGE].value == 0.5
    assert row_by_column(table, 1)["answered, not scored"] == f"2 by {JUDGE}"
    assert row_by_column(table, 1)[JUDGE] is None, "one that abstained would be all of its mean"
    assert row_by_column(table, 1)["difference to rag-5"] is None
    assert any("rather too low" in note for note in table.notes)
    complete = metrics_table(
        "T",
        ("arm",),
        [MeasuredRow(("x",), [make_case(judge=1.0), make_case("n", judge=1.0, numbers_f1=1.0)])],
        baseline="y",
    )
    assert "answered, not scored" not in complete.columns, "not every right answer has a number"


def test_metrics_table_clusters_questions_by_patient() -> None:
    mine, other = (
        [make_case(str(i), arm, patient=f"p{i % 4}", judge=worth, faithful=i / 20) for i in range(20)]
        for arm, worth in (("rag-5", 1.0), ("full", 0.0))
    )
    table = metrics_table("T", ("arm",), [MeasuredRow(("rag-5",), mine, other)], baseline="full")
    result = row_by_column(table)["difference to full"]
    assert (result.n, result.clusters, row_by_column(table)[PATIENTS_COLUMN]) == (20, 4, 4)
    assert result.p == pytest.approx(2 / 2**4)
    assert "of 20 questions" not in str(table.notes)
    assert "with 20 questions of 4 patients" in draw_conclusions(table)[0]
    alone = metrics_table(
        "T",
        ("arm",),
        [MeasuredRow(("rag-5",), [make_case(str(i), faithful=i / 20) for i in range(20)])],
        baseline="full",
    )
    by_patient, by_question = (row_by_column(item)[FAITHFUL].interval for item in (table, alone))
    assert by_patient.high - by_patient.low < by_question.high - by_question.low, "patients are alike in their means"
    assert PATIENTS_COLUMN not in alone.columns
    assert any("whole patients" in note for note in table.notes)


def test_pooled_table_scores_each_case_once_whatever_its_form() -> None:
    def arm(name: str, choice: float, judge: float) -> list[MeasuredCase]:
        return [
            make_case("a", name, form="choice", accuracy=choice, patient="p", evidence_recall=1.0),
            make_case("b", name, judge=judge, token_f1=0.1, faithful=0.2, patient="p"),
            make_case("c", name, "abstained", form="extractive", patient="q"),
            make_case("n", name, unanswerable=True, abstained_rightly=0.0, patient="q"),
        ]

    full, rag = arm("full", 0.0, 0.5), arm("rag-5", 1.0, 0.75)
    table = pooled_table(
        "T",
        ("arm",),
        [MeasuredRow(("full",), full), MeasuredRow(("rag-5",), rag, full)],
        baseline="full",
        remarks=("R",),
    )
    assert table.columns == (
        "arm",
        "cases",
        *ENDINGS,
        "score",
        "abstained rightly",
        "evidence recall",
        PATIENTS_COLUMN,
        "measured by",
        "difference to full",
        "p (Holm)",
    )
    row = row_by_column(table, 1)
    assert row["score"].value == pytest.approx(1.75 / 3)
    assert row["difference to full"].value == pytest.approx(1.25 / 3)
    assert (row["score"].n, row["difference to full"].n) == (3, 3)
    assert (row["measured by"], row[PATIENTS_COLUMN], row["evidence recall"].value) == (f"accuracy and {JUDGE}", 2, 1.0)
    assert table.notes[-1] == "R"


def test_select_measures_returns_first_metric_and_skips_record_measures() -> None:
    assert list_metrics([make_case(token_f1=1, judge=0.5, evidence_recall=1, meteor=0.1)]) == (
        JUDGE,
        "token-f1",
        "meteor",
    )
    assert select_measures(MeasuredRow((), [make_case(token_f1=1), make_case(judge=0.5)])) == (JUDGE,)
    assert select_measures(MeasuredRow((), [make_case(meteor=1.0)])) == ()
    half = MeasuredRow(
        (), [make_case(token_f1=1, judge=0.5), make_case(form="choice", accuracy=1)], [make_case(token_f1=1)]
    )
    assert select_measures(half) == ("accuracy", "token-f1"), "what both sides were measured by"


def test_metrics_table_row_has_endings_means_and_difference() -> None:
    mine = [
        make_case("a", judge=1.0),
        make_case("b", judge=1.0),
        make_case("c", ending="over-window"),
        make_case("d", ending="abstained"),
    ]
    other = [make_case(item, "full-context", judge=0.0) for item in "abcd"]
    table = metrics_table(
        "T", ("arm",), [MeasuredRow(("rag-5",), mine, other), MeasuredRow(("full",), other)], baseline="full"
    )
    first = dict(zip(table.columns, table.rows[0], strict=True))
    assert (first["cases"], first["answered"], first["abstained"], first["over-window"]) == (4, 2, 1, 1)
    mean = first[JUDGE]
    assert isinstance(mean, Mean)
    assert mean.value == pytest.approx(2 / 4)
    assert (mean.n, mean.unscored) == (4, 0)
    result = first["difference to full"]
    assert isinstance(result, Difference)
    assert result.value == pytest.approx(2 / 4)
    assert result.n == 4
    assert dict(zip(table.columns, table.rows[1], strict=True))["difference to full"] is None
    assert any("1 comparisons" in note for note in table.notes)


def test_metrics_table_gives_bounds_of_lost_replies_of_both_arms() -> None:
    mine = [make_case("a", judge=1.0), make_case("b", judge=0.5), make_case("c", ending="failed")]
    other = [
        make_case("a", "full", ending="failed"),
        make_case("b", "full", judge=0.5),
        make_case("c", "full", judge=1),
    ]
    table = metrics_table("T", ("arm",), [MeasuredRow(("rag-5",), mine, other)], baseline="full")
    bounds = row_by_column(table)[BOUNDS]
    assert [bounds.low, bounds.high] == pytest.approx([(0 + 0 - 1) / 3, (1 + 0 + 0) / 3])
    assert any("failed calls had scored 0 or 1" in note for note in table.notes)


def test_metrics_table_shows_evidence_and_abstention_columns_only_with_values() -> None:
    none = make_case("n", ending="abstained", unanswerable=True, abstained_rightly=1.0)
    rows = [MeasuredRow(("x",), [make_case(judge=1, evidence_recall=0.5), none])]
    table = metrics_table("T", ("arm",), rows, baseline="full")
    evidence, abstained = (table.column(name)[0] for name in ("evidence recall", "abstained rightly"))
    assert isinstance(evidence, Mean)
    assert isinstance(abstained, Mean)
    assert (evidence.value, abstained.value) == (0.5, 1.0)
    bare = metrics_table("T", ("arm",), [MeasuredRow(("x",), [make_case(judge=1)])], baseline="full")
    assert not {"evidence recall", "abstained rightly"} & set(bare.columns)


def test_group_rows_orders_by_length_and_compares_within_length() -> None:
    rows = group_rows(
        "m",
        [make_case(arm=arm, bin=bin, judge=1.0) for bin in ("16-32K", "0-8K") for arm in ("full-context", "rag-5")],
        ("bin",),
        "full-context",
    )
    assert [row.labels for row in rows] == [
        ("m", "0-8K", "full-context"),
        ("m", "0-8K", "rag-5"),
        ("m", "16-32K", "full-context"),
        ("m", "16-32K", "rag-5"),
    ]
    assert [[item.condition["bin"] for item in row.against] for row in rows] == [[], ["0-8K"], [], ["16-32K"]]


def test_lengths_table_counts_patients_once() -> None:
    cases = [
        make_case(str(i), arm, patient=patient, tokens=tokens, bin=bin)
        for i, (patient, tokens, bin) in enumerate([("a", 900, "0-8K"), ("a", 900, "0-8K"), ("b", 20_000, "16-32K")])
        for arm in ("full-context", "rag-5")
    ]
    table = lengths_table({"m": cases})
    assert table.rows == (
        ("m", "s", "0-8K", 2, 1, 900, 900, 900, 900),
        ("m", "s", "16-32K", 1, 1, 20_000, 20_000, 20_000, 20_000),
        ("m", "s", "all", 3, 2, 900, 10_450, 10_450, 20_000),
    )
    assert "own tokenizer" in table.notes[0]
    assert "own tokenizer" not in lengths_table({"m": cases}, estimated=True).notes[0]
    steps = distribution_table({"m": cases})
    assert sum(int(str(n)) for n in steps.column("patients")) == 2
    assert steps.rows[0] == ("m", "s", 1_000, 1)
    assert steps.rows[-1] == ("m", "s", 32_000, 1)
