"""Tables of structured entries: the same arm with and without them, missing information, and computed answers."""

from __future__ import annotations

from epicrisis.evaluation.analysis.statistics import Difference, Mean
from epicrisis.evaluation.analysis.table import Table
from epicrisis.evaluation.experiments.record_studies import build_fact_tables
from epicrisis.evaluation.grading.computed_answers import ComputedGrade
from epicrisis.evaluation.grading.measurements import MeasuredCase
from epicrisis.evaluation.grading.scored_answers import Ending

ARM = "full-context"


def measured(
    number: int,
    arm: str,
    ending: Ending = "answered",
    *,
    missing: bool = False,
    score: float = 1.0,
    computed: ComputedGrade | None = None,
) -> MeasuredCase:
    """Return a case about a patient of its own."""
    if missing:
        values = {"abstained-rightly": float(ending == "abstained")} if ending in ("answered", "abstained") else {}
    else:
        values = {"token-f1": score} if ending == "answered" else {}
    return MeasuredCase(
        key=f"{number}:{arm}",
        question=f"q{number}",
        condition={"set": "generated-facts", "arm": arm},
        ending=ending,
        values=values,
        category="absence" if missing else "last record",
        patient=f"p{number}",
        unanswerable=missing,
        computed=computed,
    )


def tables(*cases: MeasuredCase) -> dict[str, Table]:
    return {table.title: table for table in build_fact_tables({"m": cases}, ())}


def cell(table: Table, arm: str, column: str, row: int = 0) -> object:
    rows = [line for line in table.rows if line[table.columns.index("arm")] == arm]
    return rows[row][table.columns.index(column)]


def test_arm_with_facts_is_compared_with_the_same_arm_without() -> None:
    cases = [measured(number, ARM, score=0.2) for number in range(8)]
    cases += [measured(number, f"{ARM}+facts", score=1.0) for number in range(8)]
    table = tables(*cases)["With and without structured entries"]
    assert [row[2] for row in table.rows] == [f"{ARM}+facts"]
    difference = cell(table, f"{ARM}+facts", "difference to the arm without facts")
    assert isinstance(difference, Difference)
    assert round(difference.value, 6) == 0.8


def test_missing_information_counts_right_and_wrong_abstentions_of_each_arm() -> None:
    cases = [measured(number, ARM, "abstained" if number < 3 else "answered", missing=True) for number in range(4)]
    cases += [measured(number, ARM, "abstained" if number < 6 else "answered") for number in range(5, 9)]
    cases.append(measured(9, ARM, "over-window", missing=True))
    cases.append(measured(10, ARM, "failed"))
    table = tables(*cases)["Missing information"]
    assert (cell(table, ARM, "missing"), cell(table, ARM, "answerable")) == (5, 5)
    right, wrong = cell(table, ARM, "abstained rightly"), cell(table, ARM, "abstained wrongly")
    assert isinstance(right, Mean)
    assert isinstance(wrong, Mean)
    assert (right.value, right.n, wrong.value, wrong.n) == (0.75, 4, 0.2, 5)


def test_computed_answers_are_counted_by_category_and_grade() -> None:
    arm = f"{ARM}+facts"
    table = tables(
        measured(1, arm, computed="exact"),
        measured(2, arm, computed="wrong"),
        measured(3, arm, "abstained", missing=True, computed="rightly-abstained"),
        measured(4, ARM),
    )["Computed answers"]
    assert [row[2:5] for row in table.rows] == [(arm, "absence", 1), (arm, "last record", 2), (arm, "all", 3)]
    counts = [cell(table, arm, grade, row=2) for grade in ("exact", "abstained", "rightly-abstained", "wrong")]
    assert counts == [1, 0, 1, 1]


def test_run_without_facts_or_missing_information_has_none_of_the_tables() -> None:
    assert tables(measured(1, ARM), measured(2, ARM)) == {}
