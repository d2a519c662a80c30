"""Test tables as text at any width."""

from __future__ import annotations

import math
import re

import pytest

from epicrisis.evaluation.analysis.statistics import Difference, Interval, Mean
from epicrisis.evaluation.analysis.table import Cell, Table
from epicrisis.evaluation.analysis.table_text import (
    count_key_columns,
    draw_forest_plot,
    format_cell,
    format_cells,
    format_p,
    format_table,
    label_row,
)

SHARE = Mean(0.625, Interval(0.55, 0.694), 40)
BETTER = Difference(0.0625, Interval(0.0112, 0.1131), 0.0123, 40, 40)
WORSE = Difference(-0.1, Interval(-0.2, -0.01), 0.2, 40, 40)


def make_table() -> Table:
    return Table(
        "Accuracy",
        ("model", "arm", "k", "share right", "right", "SD over repeats", "difference to rag", "p (Holm)"),
        (
            ("qwen", "rag", 8, SHARE, 25, None, None, None),
            ("qwen", "brief-context", 8, SHARE, 1250, 0.0123, BETTER, 0.0246),
            ("qwen", "brief-context", 16, SHARE, 25, 0.5, WORSE, 1.0),
        ),
        ("A note that is rather long and says what was counted apart, which test was used, and why.",),
        "the run",
    )


@pytest.mark.parametrize(
    ("value", "heading", "shown"),
    [
        (None, "", ""),
        ("rag", "", "rag"),
        (1234, "n", "1,234"),
        (SHARE, "share right", "0.625 [0.550, 0.694]"),
        (SHARE, "right %", "62.50 % [55.00, 69.40]"),
        (Mean(math.nan, Interval(math.nan, math.nan), 0, 3), "share right", ""),
        (Mean(5496.5, Interval(5400.04, 5600.0), 40), "input", "5,496.5 [5,400.0, 5,600.0]"),
        (Mean(0.98, Interval(0.9, 1.02), 40), "ratio", "0.98 [0.90, 1.02]"),
        (BETTER, "difference", "+0.062 [+0.011, +0.113]"),
        (WORSE, "difference", "-0.100 [-0.200, -0.010]"),
        (Interval(0.1, 0.2), "", "[0.100, 0.200]"),
        (0.5, "recall", "0.500"),
        (0.5, "recall %", "50.00 %"),
        (58.04, "percent", "58.04"),
        (-3.5, "slope", "-3.50"),
        (0.00012, "US dollars", "0.00012"),
        (0.0, "recall", "0.000"),
        (0.0, "p (Holm)", "<0.0001"),
        (0.0246, "p (Holm)", "0.025"),
        (1.0, "p (Holm) of that", "1"),
    ],
)
def test_format_cell_returns_text(value: Cell, heading: str, shown: str) -> None:
    assert format_cell(value, heading) == shown


def test_format_p_never_returns_zero() -> None:
    assert [format_p(item) for item in (1e-12, 0.00021, 0.049, 1.0)] == ["<0.0001", "0.00021", "0.049", "1"]


def test_format_cells_shows_uncorrected_p_without_corrected_column() -> None:
    assert format_cells(make_table())[1][6] == "+0.062 [+0.011, +0.113]"
    alone = Table("T", ("arm", "difference"), (("a", BETTER),))
    assert format_cells(alone) == [["a", "+0.062 [+0.011, +0.113] p = 0.012"]]


@pytest.mark.parametrize("width", [50, 66, 80, 120, 200])
def test_format_table_keeps_every_figure_at_any_width(width: int) -> None:
    table = format_table(make_table(), width)
    assert max(map(len, table.splitlines())) <= width
    for figure in ("1,250", "0.625 [0.550, 0.694]", "0.012", "-0.100 [-0.200, -0.010]", "0.025"):
        assert figure in table
    assert "counted apart, which test" in " ".join(table.split())
    assert " ".join(table.split()).count("difference to rag") == 1


def test_format_table_repeats_row_names_in_lower_bands() -> None:
    first, *below = re.split(r"\n\n", format_table(make_table(), 60))[1:-1]
    assert "qwen" in first
    for band in below:
        head, *rows = band.splitlines()
        assert head.startswith("arm")
        assert "qwen" not in band
        assert [row.split()[:2] for row in rows if row.startswith(("rag", "brief"))] == [
            ["rag", "8"],
            ["brief-context", "8"],
            ["brief-context", "16"],
        ]
    (last,) = [band for band in below if "(Holm)" in band]
    assert "+0.062" in last, "a p value stands with what it is the p of"


def test_format_table_without_width_prints_one_line_per_row() -> None:
    lines = format_table(make_table()).splitlines()
    assert lines[:2] == ["Accuracy", "the run"]
    assert len(lines) == 2 + 1 + 2 + 3 + 1 + 1
    assert lines[3].split() == " ".join(make_table().columns).split()
    assert lines[-1] == make_table().notes[0]


def test_format_table_wraps_long_words_without_cutting() -> None:
    name = "a-model-with-a-name-that-goes-on-for-longer-than-any-terminal-is-wide"
    table = format_table(Table("T", ("model", "right"), ((name, 3), ("b", 4))), 40)
    assert max(map(len, table.splitlines())) <= 40
    assert name in re.sub(r"[\s]+|3", "", table)


def test_format_table_aligns_wide_characters() -> None:
    lines = format_table(Table("T", ("model", "right"), (("模型", 3), ("abcd", 4)))).splitlines()
    assert lines[-2:] == ["模型       3", "abcd       4"]


def test_format_table_without_rows_shows_heads() -> None:
    assert "model  right" in format_table(Table("T", ("model", "right"), ()), 80)


def test_label_row_joins_key_columns() -> None:
    table = make_table()
    assert count_key_columns(table) == 3
    assert [label_row(table, row) for row in table.rows] == ["rag, k 8", "brief-context, k 8", "brief-context, k 16"]
    assert label_row(table, table.rows[2], ("arm",)) == "k 16"
    pairs = Table("T", ("run", "against", "arm", "k", "n"), (("b", "a", "rag", 8, 1),))
    assert count_key_columns(pairs) == 3
    assert label_row(pairs, pairs.rows[0]) == "b, against a, arm rag"


def test_forest_plot_is_drawn_to_scale() -> None:
    sample = draw_forest_plot(make_table(), 60).splitlines()
    assert sample[0] == "difference to rag, with its 95 % interval"
    better = next(line for line in sample if line.startswith("brief-context, k 8"))
    zero = sample[2].index("│")
    assert better.index("├") > zero - 1
    assert better.index("├") < better.index("●") < better.index("┤")
    line = next(line for line in sample if line.startswith("brief-context, k 16"))
    assert line.index("├") < line.index("●") < line.index("┤") < line.index("│")
    width = 60 - len("brief-context, k 16") - 2
    step = (0.1131 + 0.2) / (width - 1)
    assert line.index("┤") - line.index("├") == pytest.approx(0.19 / step, abs=1)
    assert sample[-1].split() == ["-0.2", "0", "+0.113"]


def test_forest_plot_in_ascii_is_ascii() -> None:
    sample = draw_forest_plot(make_table(), 60, ascii_only=True)
    assert sample.isascii()
    assert "|---" in sample
    assert draw_forest_plot(Table("T", ("arm", "n"), (("a", 1),))) == ""


def test_forest_plot_of_zero_difference_shows_point() -> None:
    none = Difference(0.0, Interval(0.0, 0.0), 1.0, 10, 10)
    assert "●" in draw_forest_plot(Table("T", ("arm", "difference"), (("a", none),)), 40)
