"""Test the plots of tables: each mark is a cell."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest

from epicrisis.evaluation.analysis.findings import Findings
from epicrisis.evaluation.analysis.published import load_published
from epicrisis.evaluation.analysis.statistics import Difference, Interval, Mean
from epicrisis.evaluation.analysis.table import PlotSpec, Table
from epicrisis.evaluation.experiments.registry import NAMES
from epicrisis.report.charts import COLOURS, Style, assign_styles, draw_panels
from epicrisis.report.figures import PUBLISHED_PLOTS, PlotFigure, plot_figure, plot_figures, plots_of
from tests.support import finished_experiments
from tests.support import report_findings as tables


def plot_all(findings: Findings) -> Mapping[str, tuple[PlotFigure, ...]]:
    """Plot all tables, by title."""
    return {table.title: plot_figures(findings.experiment, table, findings.published) for table in findings.tables}


def map_points(each: PlotFigure) -> Mapping[tuple[str, str, str, float | None], float]:
    return {(mark.panel, mark.row, mark.series, mark.x): round(mark.value, 6) for mark in each.marks}


@pytest.mark.slow
def test_positions_plot_has_panel_for_each_model_and_k() -> None:
    averages, by_place, middle = plot_all(tables.by_position()).values()
    (lines,) = by_place
    assert lines.plot.kind == "line"
    assert lines.panels == ("tiny, k 8", "tiny, k 16", f"{tables.HOSTILE}, k 8", f"{tables.HOSTILE}, k 16")
    assert lines.series == ("rag", "brief-context")
    table = tables.by_position().tables[1]
    for row in table.rows:
        model, k, arm, place, mean, *_ = row
        assert isinstance(mean, Mean)
        (mark,) = [mark for mark in lines.marks if (mark.panel, mark.series, mark.x) == (f"{model}, k {k}", arm, place)]
        assert (mark.value, mark.low, mark.high) == pytest.approx(
            (100 * mean.value, 100 * mean.interval.low, 100 * mean.interval.high)
        )
    assert len(lines.marks) == len(table.rows)
    assert [average.unit for average in averages] == ["%", "percentage points"]
    assert [mark.row for mark in averages[0].marks][:4] == ["rag", "brief-context", "oracle", "closed-book"]
    assert middle[0].unit == "percentage points"


def test_line_plot_is_independent_of_row_order() -> None:
    table = tables.by_position().tables[1]
    shuffled = Table(table.title, table.columns, table.rows[::-1])
    (lines,) = plot_figures("positions", shuffled)
    along = [(mark.panel, mark.series, mark.x) for mark in lines.marks if mark.x is not None]
    assert all(one[2] < other[2] for one, other in pairwise(along) if one[:2] == other[:2])
    (right,) = plot_figures("positions", table)
    assert map_points(lines) == map_points(right)


def test_row_without_place_among_panels_is_in_each_that_it_fits() -> None:
    share = Mean(0.5, Interval(0.4, 0.6), 40)
    rows = (("a", None, "closed-book"), ("a", 100, "rag"), ("a", 200, "rag"), ("b", 100, "rag"), ("c", None, "rag"))
    table = Table("T", ("model", "tokens", "arm", "share right"), tuple((*row, share) for row in rows))
    plot = PlotSpec(
        title="Shares",
        kind="points",
        values=("share right",),
        along=("arm",),
        series=("arm",),
        panel=("model", "tokens"),
    )
    marks = [(mark.panel, mark.row) for mark in plot_figure(plot, table).marks]
    assert marks == [
        ("a, tokens 100", "closed-book"),
        ("a, tokens 200", "closed-book"),
        ("a, tokens 100", "rag"),
        ("a, tokens 200", "rag"),
        ("b, tokens 100", "rag"),
        ("c", "rag"),
    ]


def test_series_of_several_columns_do_not_repeat_the_row() -> None:
    difference = Difference(0.1, Interval(0, 0.2), 0.05, 40, 40)
    columns = ("arm", "difference to rag", "difference to brief-context")
    table = Table("T", columns, (("focused", difference, difference), ("rotations", difference, None)))
    plot = PlotSpec(title="Differences", kind="points", values=("difference to *",), along=("arm",), series=("arm",))
    assert plot_figure(plot, table).series == ("difference to RAG", "difference to BriefContext")


def test_line_plot_draws_bounds_without_place() -> None:
    lines = plot_all(tables.by_length())["Accuracy by the number of documents"][0]
    assert lines.plot.log2
    assert {mark.series for mark in lines.marks if mark.x is None} == {"oracle", "closed-book"}
    assert sorted(mark.x for mark in lines.marks if mark.x is not None) == [1, 2, 4, 8]


def test_integration_plot_shows_published_figures_as_hollow_marks() -> None:
    shares, differences = plot_all(tables.integrated())["Accuracy with real rankings, against rag"]
    hollow = [mark for mark in shares.marks if mark.hollow]
    of = load_published()["integration"]
    (gpt,) = [
        mark
        for mark in hollow
        if (mark.panel, mark.row, mark.series)
        == ("tiny, mirage/pubmedqa", "brief-context", "GPT-3.5-turbo-0125, as printed")
    ]
    assert gpt.value == of.figure("PubMedQA", "GPT-3.5-turbo-0125", "BriefContext") == 75.4
    assert {mark.row for mark in hollow} == {"rag", "brief-context", "chain-of-thought"}
    assert {mark.panel for mark in hollow} == {"tiny, mirage/pubmedqa", "tiny, mirage/bioasq", "tiny, macro average"}
    assert len(hollow) == 4 * 3 * 3
    assert not any(mark.hollow for mark in differences.marks)


def test_conflicts_plot_has_stacked_counts() -> None:
    stacked, parts, rules = plot_all(tables.in_conflict()).values()
    assert parts == ()
    table = tables.in_conflict().tables[0]
    wins = dict(zip(zip(table.column("k"), table.column("place"), strict=True), table.column("win"), strict=True))
    assert stacked[0].series == ("win", "tie", "lose")
    assert map_points(stacked[0])["k 8", "place 0", "win", None] == wins[8, 0]
    assert map_points(stacked[0])["all", "all", "win", None] == wins["all", "all"]
    assert rules[0].series == ("followed", "rule right")


@pytest.mark.slow
def test_bar_plot_of_counts_has_whole_ticks() -> None:
    plot, table = (
        PlotSpec(title="T", kind="bars", values=("win",), along=("arm",)),
        Table("T", ("arm", "win"), (("rag", 1),)),
    )
    axes = [
        draw_charts(plot_figure(plot, table, printed=percent))[0][1]["layer"][0]["encoding"]["x"]["axis"]
        for percent in (False, True)
    ]
    assert [axis.get("tickMinStep") for axis in axes] == [1, None]


@pytest.mark.slow
def test_preflight_plots_show_curve_and_rules() -> None:
    figures = plot_all(tables.foreseen())
    (curve,) = figures["Every threshold of overlap@3"]
    table = next(table for table in tables.foreseen().tables if table.title == "Every threshold of overlap@3")
    for mark, row in zip(
        sorted(curve.marks, key=lambda mark: -(mark.x or 0)), table.rows, strict=True
    ):  # rising thresholds: specificity falls
        cells = dict(zip(table.columns, row, strict=True))
        assert isinstance(cells["specificity"], Mean)
        assert mark.x == pytest.approx(100 * cells["specificity"].value)
    (fitted,) = figures["A rule fitted on these documents"]
    assert {mark.row for mark in fitted.marks} == {"fitted, held out", "papers' rule", "fitted, at its recall"}
    assert [len(figures[title]) for title in figures] == [1] * 6


def test_cost_plot_shows_predictions_hollow_and_measurements_filled() -> None:
    (points,) = plot_all(tables.costing())["Predicted and measured"]
    hollow = {mark.row for mark in points.marks if mark.hollow}
    assert "equation 5 as printed" in hollow
    assert {mark.row for mark in points.marks} - hollow == {"measured: RAG", "measured: read in parts"}
    assert all((mark.low is None) == mark.hollow for mark in points.marks), "what was measured has its interval"
    assert points.unit == ""


def test_attention_bias_plot_names_rows_by_distinguishing_columns() -> None:
    shares, differences = plot_all(tables.by_distractors())["Accuracy with the key document in the middle"]
    assert [mark.row for mark in shares.marks][:2] == ["rag, k 16, retrieved", "rag, k 16, random"]
    assert [mark.row for mark in differences.marks] == ["rag, k 16, random"]


def test_comparison_plot_shows_differences_with_intervals() -> None:
    less = Difference(-0.1, Interval(-0.2, 0.0), 0.04, 40, 40)
    columns = ("run", "against", "pairs", "difference to the other", "p (Holm)")
    table = Table("Differences, paired by question", columns, (("b", "a", 40, less, 0.08), ("c", "a", 40, None, None)))
    (forest,) = plot_figures("compare", table)
    assert [(mark.row, mark.value, mark.low, mark.high) for mark in forest.marks] == [("b", -10.0, -20.0, 0.0)]
    assert forest.unit == "percentage points"


def test_plot_figures_of_unknown_or_empty_table_is_empty() -> None:
    assert plot_figures("positions", Table("T", ("arm", "n"), (("rag", 3),))) == ()
    assert plot_figures("unheard-of", tables.by_position().tables[1]) == ()
    empty = Table("T", tables.by_position().tables[1].columns, ())
    assert plot_figures("positions", empty) == ()


def test_published_plots_draw_published_tables() -> None:
    for name, plot in PUBLISHED_PLOTS.items():
        figure = plot_figure(plot, load_published()[name].table, printed=True)
        assert figure.marks
        assert figure.unit == "%"
        assert all(mark.low is None for mark in figure.marks)
    assert (
        map_points(plot_figure(PUBLISHED_PLOTS["positions"], load_published()["positions"].table, printed=True))[
            "GPT-3.5-turbo-0125, k 16", "", "RAG", 50.0
        ]
        == 48.57
    )


def test_assign_styles_gives_unique_and_stable_styles() -> None:
    looks = assign_styles([f"arm {i}" for i in range(30)])
    assert len(set(looks.values())) == 30
    both = assign_styles(["rag", "brief-context", "RAG", "BriefContext"])
    assert both["rag"] == both["RAG"] != both["BriefContext"] == both["brief-context"]
    first = list(looks.values())[: len(COLOURS)]
    assert len({item.shape for item in first}) == len({item.colour for item in first}) == len(first)


def draw_charts(each: PlotFigure) -> list[tuple[str, dict[str, Any]]]:
    return [(panel.svg, json.loads(panel.specification)) for panel in draw_panels(each, assign_styles(each.series))]


MADE = (
    tables.by_position,
    tables.in_conflict,
    tables.by_length,
    tables.costing,
    finished_experiments.by_votes,
    finished_experiments.by_drafts,
)


@pytest.mark.long
@pytest.mark.parametrize("findings", MADE)
def test_charts_are_valid_vega_lite_of_small_width(findings: Any) -> None:
    import altair

    for group in plot_all(findings()).values():
        for item in group:
            for svg, specification in draw_charts(item)[:1]:
                altair.Chart.from_dict(specification)
                assert svg.startswith('<svg class="marks" width="360"')
                assert "http" not in svg
                assert "NaN" not in svg
                assert all(name in svg for name in ("var(--ink", "var(--c0"))


@pytest.mark.slow
def test_static_chart_shows_labels_and_bounds() -> None:
    bars = plot_all(tables.in_conflict())["Conflicts among the parts"][0]
    svg, specification = draw_charts(bars)[0]
    assert ">place 0<" in svg
    assert {datum["label"] for datum in specification["data"]["values"]} <= {"0", "1", "2", "3", "4", "5", "6"}
    svg, _ = draw_charts(plot_all(tables.by_length())["Accuracy by the number of documents"][0])[0]
    assert ">oracle 58.3<" in svg


def test_chart_breaks_long_row_name_before_plus() -> None:
    gain = Difference(0.1, Interval(0, 0.2), 0.1, 9, 9)
    names = ("self-consistency+shuffling, votes 5", "train-cot+reranker")
    (figure,) = plot_figures("compare", Table("T", ("arm", "difference to a"), tuple((name, gain) for name in names)))
    ((_, specification),) = draw_charts(figure)
    rows = [datum["row"] for datum in specification["data"]["values"]]
    assert rows == ["self-consistency\n+shuffling, votes 5", "train-cot+reranker"]


def test_share_axis_may_start_above_zero_and_difference_axis_includes_zero() -> None:
    tables = [
        Table("T", ("arm", head), (("a", cell),))
        for head, cell in (
            ("share right", Mean(0.62, Interval(0.6, 0.7), 80)),
            ("difference to a", Difference(0.1, Interval(0.05, 0.2), 0.1, 9, 9)),
        )
    ]
    scales = [
        draw_charts(item)[0][1]["layer"][1]["encoding"]["x"]["scale"]
        for table in tables
        for item in plot_figures("compare", table)
    ]
    assert [(scale["domain"], scale["zero"]) for scale in scales] == [([60, 75], False), ([0, 25], False)]


def test_chart_escapes_hostile_names() -> None:
    columns = ("model", "k", "arm", "lost in the middle")
    loss = Difference(0.1, Interval(0, 0.2), 0.1, 9, 9)
    (figure,) = plot_figures("positions", Table("T", columns, ((tables.HOSTILE, 8, tables.HOSTILE, loss),)))
    (panel,) = draw_panels(figure, {name: Style("red", "M0,0", (1, 0)) for name in figure.series})
    assert "<script" not in panel.svg
    assert "<" not in panel.specification
    assert json.loads(panel.specification)["data"]["values"][0]["series"] == tables.HOSTILE


def test_line_plot_of_many_points_has_no_intervals() -> None:
    rows = tuple((i / 100, Mean(i / 100, Interval(0, 1), 9), Mean(1 - i / 100, Interval(0, 1), 9)) for i in range(100))
    (figure,) = plot_figures("preflight", Table("T", ("threshold", "recall", "specificity"), rows))
    assert figure.many
    assert "interval" not in figure.description
    ((_, specification),) = draw_charts(figure)
    assert [layer["mark"]["type"] for layer in specification["layer"][0]["layer"]] == ["line"]


def test_every_experiment_has_plots() -> None:
    for name in (*NAMES, "evaluate", "compare"):
        assert plots_of(name)
    assert plots_of("nonsense") == ()
