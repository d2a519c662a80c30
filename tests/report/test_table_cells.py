"""Test figures as text and in the CSV file."""

from __future__ import annotations

import csv
import io
import math

import pytest

from epicrisis.evaluation.analysis.statistics import Difference, Interval, Mean
from epicrisis.evaluation.analysis.table import Cell, Table
from epicrisis.report.table_cells import (
    NONE,
    CellText,
    CellUnit,
    cell_text,
    column_unit,
    format_figure,
    format_p,
    table_csv,
    with_minus,
)
from tests.support import finished_experiments
from tests.support import report_findings as tables

HALF = Mean(0.5, Interval(0.4, 0.6), 80)
WORSE = Difference(-0.034, Interval(-0.0804, 0.012), 0.0312, 105, 35)


@pytest.mark.parametrize(
    ("cell", "unit", "told"),
    [
        (HALF, "share", CellText("50.0 %", ("40.0 to 60.0, n 80",))),
        (
            Mean(0.5, Interval(0, 1, 0.9), 8, 3),
            "share",
            CellText("50.0 %", ("0.0 to 100.0 (90 %), n 8", "3 not scored")),
        ),
        (Mean(math.nan, Interval(math.nan, math.nan), 0, 4), "share", CellText(NONE, ("n 0", "4 not scored"))),
        (Mean(3066.2, Interval(2987.1, 3145.4), 40), "number", CellText("3066", ("2987 to 3145, n 40",))),
        (WORSE, "share", CellText("−3.4 pp", ("−8.0 to +1.2, n 105", "of 35 questions"))),
        (Difference(12.5, Interval(-1, 26), 0.2, 9, 9), "number", CellText("+12.50", ("−1.00 to +26.00, n 9",))),
        (Interval(-0.2, 0.61), "number", CellText("−0.200 to 0.610")),
        (0.1234, "share", CellText("12.3 %")),
        (0.1234, "number", CellText("0.123")),
        (0.0004, "p", CellText("<0.001")),
        (math.inf, "number", CellText("∞")),
        (1118, "number", CellText("1118")),
        (-3, "number", CellText("−3")),
        (None, "share", CellText(NONE)),
        ("rag", "share", CellText("rag")),
    ],
)
def test_cell_text_returns_expected_text(cell: Cell, unit: CellUnit, told: CellText) -> None:
    assert cell_text(cell, unit) == told


def test_cell_text_of_difference_includes_p_only_on_request() -> None:
    assert cell_text(WORSE, "share", own_p=True).details[-1] == "p 0.03"
    assert str(cell_text(WORSE, "share")) == "−3.4 pp (−8.0 to +1.2, n 105, of 35 questions)"


@pytest.mark.parametrize(
    ("p", "told"),
    [
        (1.0, "1.00"),
        (0.0312, "0.03"),
        (0.0482, "0.048"),
        (0.0496, "0.0496"),
        (0.05, "0.05"),
        (0.0504, "0.0504"),
        (0.0062, "0.006"),
        (0.00099, "<0.001"),
        (0.0, "<0.001"),
    ],
)
def test_format_p_never_shows_zero_or_crosses_five_percent(p: float, told: str) -> None:
    assert format_p(p) == told


def test_format_figure_of_zero_has_no_sign() -> None:
    assert format_figure(-0.0004, "share", signed=True) == "0.0 pp"
    assert format_figure(0.0, "number", signed=True) == "0"


@pytest.mark.parametrize(
    ("column", "cells", "unit"),
    [
        ("share right", (HALF,), "share"),
        ("difference to rag", (None, WORSE), "share"),
        ("input", (HALF,), "number"),
        ("SD over places", (0.1, None), "share"),
        ("right %", (HALF,), "share"),
        ("p (Holm)", (0.5,), "p"),
        ("p (Holm) of that", (0.5,), "p"),
        ("threshold", (0.5,), "number"),
        ("kappa interval", (Interval(0, 1),), "number"),
    ],
)
def test_column_unit_returns_expected_unit(column: str, cells: tuple[Cell, ...], unit: CellUnit) -> None:
    assert column_unit(column, cells) == unit


@pytest.mark.long
def test_share_columns_of_all_tables_lie_between_0_and_1() -> None:
    """Every column that is taken for shares, in every table of every experiment."""
    observed = 0
    for findings in (*tables.everything(), *finished_experiments.everything()):
        for table in findings.tables:
            for name in table.columns:
                cells = table.column(name)
                if column_unit(name, cells) == "share":
                    values = [cell.value for cell in cells if isinstance(cell, Mean)]
                    values += [cell for cell in cells if isinstance(cell, float)]
                    assert all(math.isnan(value) or 0 <= value <= 1 for value in values), (table.title, name)
                    observed += 1
    assert observed > 60


@pytest.mark.slow
def test_cost_columns_are_numbers_not_shares() -> None:
    """Calls, tokens, hours, kWh and kg of the study's experiments, and what they come to for an answer."""
    costs = {"What it took", "Time, energy and CO2", "Energy by arm"}
    tables = [table for findings in finished_experiments.everything() for table in findings.tables]
    units = {
        column_unit(name, table.column(name)) for table in tables if table.title in costs for name in table.columns
    }
    assert units == {"number"}
    (board,) = [table for table in tables if table.title == "Leaderboard"]
    assert [column_unit(name, board.column(name)) for name in board.columns[2:]] == ["share"] * 3


def test_with_minus_replaces_signs_and_keeps_hyphens() -> None:
    text = "brief-context of gpt-4: -4.5 points (-15.5 to 6.5; 95-percent, 2-3)"
    assert with_minus(text) == "brief-context of gpt-4: −4.5 points (−15.5 to 6.5; 95-percent, 2-3)"


def test_table_csv_has_every_figure_in_full() -> None:
    table = Table("T", ("arm", "share right", "difference", "n"), (("rag", HALF, None, 3), ("ends", HALF, WORSE, None)))
    heads, *rows = list(csv.reader(io.StringIO(table_csv(table))))
    assert [len(row) for row in rows] == [len(heads)] * 2
    assert heads == [
        "arm",
        "share right",
        "share right: low",
        "share right: high",
        "share right: n",
        "share right: unscored",
        "difference",
        "difference: low",
        "difference: high",
        "difference: n",
        "difference: p",
        "difference: clusters",
        "n",
    ]
    assert rows[0] == ["rag", "0.5", "0.4", "0.6", "80", "0", "", "", "", "", "", "", "3"]
    assert rows[1] == ["ends", "0.5", "0.4", "0.6", "80", "0", "-0.034", "-0.0804", "0.012", "105", "0.0312", "35", ""]


def test_table_csv_escapes_formulas_and_quotes() -> None:
    names = ("=1+1", '@x "y", z', "-rag", "two\nlines")
    table = Table("T", ("arm", "n"), tuple((name, -1) for name in names))
    _, *rows = list(csv.reader(io.StringIO(table_csv(table))))
    assert rows == [["'=1+1", "-1"], ['\'@x "y", z', "-1"], ["'-rag", "-1"], ["two\nlines", "-1"]]


def test_table_csv_without_rows_has_heads() -> None:
    assert table_csv(Table("T", ("arm", "n"), ())) == "arm,n\n"
