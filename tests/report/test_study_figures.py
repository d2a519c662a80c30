"""Test the plots of the context-retrieval study and the paper's figures in them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from selectolax.lexbor import LexborHTMLParser

from epicrisis.evaluation.analysis.findings import Findings
from epicrisis.evaluation.analysis.published import load_published
from epicrisis.evaluation.analysis.statistics import Difference, Mean
from epicrisis.evaluation.analysis.table import Table
from epicrisis.evaluation.experiments.openmedprompt import BEST, LAST, REFINING
from epicrisis.evaluation.experiments.vote_sampling import COT, SC, SHUFFLED, ZERO
from epicrisis.report.figures import PUBLISHED_PLOTS, PlotFigure, PlotMark, plot_figure, plot_figures
from epicrisis.report.page import render_page
from epicrisis.report.table_cells import CellText, printed_rows
from tests.support import finished_experiments

ALOE = "Llama3-Aloe-8B-Alpha, as printed"


def plot_all(findings: Findings, **sets: str) -> Mapping[str, tuple[PlotFigure, ...]]:
    """Plot all tables, by title."""
    return {
        table.title: plot_figures(findings.experiment, table, findings.published, sets) for table in findings.tables
    }


def map_hollow_marks(each: PlotFigure) -> Mapping[tuple[str, str, str], float]:
    return {(mark.panel, mark.row, mark.series): mark.value for mark in each.marks if mark.hollow}


def read_published_row(table: str, *row: object) -> list[str]:
    """Return the displayed cells of the published row that starts with this value."""
    printed = load_published()[table].table
    (result,) = (
        item for cells, item in zip(printed.rows, printed_rows(printed), strict=True) if cells[: len(row)] == row
    )
    return [cell.figure for cell in result[len(row) :]]


@pytest.mark.long
def test_plots_of_each_table_are_expected() -> None:
    took = ["Tokens a case", "Calls a case"]
    energy = ["Energy for questions", "Energy for right answers"]
    titles = {
        item.experiment: [[item.plot.title for item in group] for group in plot_all(item).values()]
        for item in finished_experiments.everything()
    }
    assert titles == {
        "ensembles": [
            ["Share right by method", "Differences by method"],
            ["What shuffled options change"],
            ["Share right by the number of votes", "What more votes change"],
            took,
            energy,
            energy,
        ],
        "medprompt": [
            ["Share right", "Differences"],
            ["Differences between examples"],
            took,
            [],
            energy,
        ],
        "models": [
            ["Gains over one prediction", "Share right"],
            ["What the examples bring"],
            ["Leaderboard"],
            took,
            energy,
            energy,
        ],
        "openmedprompt": [
            ["Share right", "Differences to no examples"],
            ["Share right by drafts or rounds", "Differences to one draft by drafts or rounds"],
            ["Share right by examples", "Differences to one draft by examples"],
            took,
            [],
            energy,
        ],
    }
    assert set(titles) == {findings.experiment for findings in finished_experiments.everything()}


@pytest.mark.long
@pytest.mark.parametrize("name", finished_experiments.EXPERIMENTS)
def test_plot_marks_match_figures_of_column(name: str) -> None:
    found = finished_experiments.EXPERIMENTS[name]()
    assert found.experiment == name
    for table in found.tables:
        for item in plot_figures(found.experiment, table):
            (column,) = [name for name in table.columns if name == item.value]
            cells = [cell for cell in table.column(column) if cell is not None]
            values = [cell.value if isinstance(cell, Mean | Difference) else float(str(cell)) for cell in cells]
            scale = 100 if item.unit else 1
            assert sorted(mark.value for mark in item.marks) == pytest.approx(sorted(scale * one for one in values))
            assert len({(mark.panel, mark.row, mark.series, mark.x) for mark in item.marks}) == len(item.marks)


def test_votes_plot_has_line_and_intervals_for_each_arm() -> None:
    shares, gains = plot_all(finished_experiments.by_votes())["Accuracy by the number of votes"]
    assert (shares.panels, shares.series) == (("tiny", "small"), (SC, SHUFFLED))
    assert [mark.x for mark in shares.marks if (mark.panel, mark.series) == ("tiny", SC)] == [1, 5, 20]
    assert all(mark.low is not None and mark.low < mark.value < (mark.high or 0) for mark in shares.marks)
    assert [mark.x for mark in gains.marks if (mark.panel, mark.series) == ("tiny", SHUFFLED)] == [5, 20]
    assert (shares.unit, gains.unit) == ("%", "percentage points")


def test_cost_plot_shows_single_call_as_bound() -> None:
    tokens, calls = plot_all(finished_experiments.by_votes())["What it took"]
    assert (tokens.unit, calls.unit) == ("", "")
    bounds = {mark.series: mark.value for mark in tokens.marks if mark.x is None}
    assert bounds == {ZERO: 1000, COT: 1000}
    assert [mark.value for mark in calls.marks if (mark.panel, mark.series) == ("tiny", SC)] == [1, 5, 20]


def test_drafts_and_examples_plots_have_panel_for_each_library() -> None:
    result = plot_all(finished_experiments.by_drafts())
    by_n, *_ = result["Accuracy by the number of drafts or rounds"]
    by_k, *_ = result["Accuracy by the number of examples"]
    for lines, places in ((by_n, [3, 5, 10]), (by_k, [0, 1, 5])):
        assert (lines.panels, lines.series) == (("tiny, cot", "tiny, tot"), (REFINING, LAST, BEST))
        assert [mark.x for mark in lines.marks if (mark.panel, mark.series) == ("tiny, tot", BEST)] == places


def test_model_plot_has_panel_for_each_set() -> None:
    gains, _ = plot_all(finished_experiments.by_model())["With and without context retrieval"]
    assert gains.panels == ("careqa", "mirage/medqa")
    assert [mark.row for mark in gains.marks if mark.panel == "careqa"] == [
        f"tiny, {SHUFFLED}",
        "tiny, medprompt",
        f"small, {SHUFFLED}",
        "small, medprompt",
    ]


def test_method_plot_shows_published_methods_of_same_set_and_votes() -> None:
    shares, differences = plot_all(finished_experiments.by_votes(), tiny="mirage/medqa", small="medqa/validation")[
        "Accuracy by method"
    ]
    assert map_hollow_marks(shares) == {
        ("tiny", ZERO, ALOE): 62.45,
        ("tiny", COT, ALOE): 64.26,
        ("tiny", f"{SC}, votes 5", ALOE): 64.81,
    }
    assert map_hollow_marks(differences) == {}
    table = finished_experiments.by_votes().tables[0]
    twenty = Table(table.title, table.columns, tuple((*row[:2], row[2] and 20, *row[3:]) for row in table.rows))
    shares, _ = plot_figures("ensembles", twenty, finished_experiments.by_votes().published, {"tiny": "mirage/medqa"})
    assert {row for _, row, _ in map_hollow_marks(shares)} == {ZERO, COT}, "the paper's five votes are not our twenty"


def test_model_plot_shows_published_changes_as_accuracies() -> None:
    _, shares = plot_all(finished_experiments.by_model())["With and without context retrieval"]
    beside = map_hollow_marks(shares)
    assert beside["mirage/medqa", "tiny, medprompt", "Mistral-7B, as printed"] == 62.30
    assert beside["careqa", "small, medprompt", "Gemma-2-27B, as printed"] == 78.17
    assert beside["mirage/medqa", "tiny, medprompt", "GPT-4, as printed"] == 90.2
    assert len(beside) == 2 * (9 + 8), "GPT-4 was not asked CareQA"
    assert not [row for _, row, _ in beside if SHUFFLED in row], "the study has no such control (errata P6)"


def test_published_changes_are_drawn_as_accuracies_and_shown_with_sign() -> None:
    votes = plot_figure(PUBLISHED_PLOTS["ensembles-votes"], load_published()["ensembles-votes"].table, printed=True)

    def at(mark: PlotMark) -> tuple[str, float | None]:
        return mark.series, mark.x

    values = {at(mark): (mark.value, mark.detail) for mark in votes.marks}
    assert values["MedQA", 1.0] == (64.26, "64.26 %")
    assert values["MedQA", 5.0] == (68.66, "68.66 %")
    assert read_published_row("ensembles-votes", 3) == ["change (points)", "+1.78", "+1.58", "+3.30", "+0.32", "0.20"]
    assert read_published_row("ensembles-votes", 1) == ["accuracy (%)", "65.11", "55.10", "64.26", "72.93", "0.08"]
    assert read_published_row("medprompt-databases", "Train+CoT")[1:] == ["+7.15", "−1.26", "+0.78", "+3.23"]
    assert read_published_row("medprompt-databases", "Validation")[1:] == ["68.65", "59.55", "69.60", "75.55"]
    assert read_published_row("models-leaderboard", "GPT-4", "Medprompt")[1:] == ["79.1", "90.2", "94.2", "87.83"]
    baseline = printed_rows(load_published()["ensembles-baseline"].table)
    assert [cells[3].figure for cells in baseline] == ["58.91", "55.10", "56.78"], "with every digit"
    assert printed_rows(Table("T", ("n", "%"), ((3, 0.5),))) == ((CellText("3"), CellText("0.5")),)


def test_published_drafts_and_rounds_are_drawn_as_lines() -> None:
    for name, column in (("openmedprompt-refining", "drafts"), ("openmedprompt-reflection", "rounds")):
        table = load_published()[name].table
        lines = plot_figure(PUBLISHED_PLOTS[name], table, printed=True)
        assert lines.series == ("CoT", "ToT")
        assert [mark.x for mark in lines.marks if mark.series == "ToT"] == list(table.column(column))
        assert all(mark.hollow for mark in lines.marks)


@pytest.mark.long
def test_page_reads_question_set_of_run_from_sources() -> None:
    """The tables of votes do not name it."""
    tree = LexborHTMLParser(render_page((finished_experiments.by_votes(),)))
    legends = [[item.text(strip=True) for item in legend.css("li")] for legend in tree.css(".legend")]
    assert any(ALOE in legend for legend in legends)
    # The difference is the same in all rows, so it is in the caption; that its name may break there changes no word.
    tables = LexborHTMLParser(render_page((finished_experiments.by_model(),), plots=False))
    assert any(f"difference to {SHUFFLED}" in caption.text() for caption in tables.css("caption"))


def test_energy_plot_requires_two_figures_or_interval() -> None:
    columns = ("run", "kWh per 1,000 questions", "Wh per right answer")
    one, both = (Table("T", columns, rows) for rows in ((("a", 1.5, 2.0),), (("a", 1.5, 2.0), ("b", 3.5, None))))
    assert plot_figures("positions", one) == ()
    (energy,) = plot_figures("positions", both)
    assert [(mark.row, mark.value) for mark in energy.marks] == [("a", 1.5), ("b", 3.5)]
    assert energy.unit == ""
