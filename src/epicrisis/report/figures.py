"""Turn a table into figures: each mark of a plot is one cell of the table."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import filter as match_names
from functools import partial
from operator import attrgetter
from types import MappingProxyType
from typing import Literal, TypeAlias

from epicrisis.evaluation.analysis.published import Published, derive_accuracies
from epicrisis.evaluation.analysis.selective_prediction import RISK_COVERAGE_PLOT
from epicrisis.evaluation.analysis.statistics import Difference, Mean
from epicrisis.evaluation.analysis.table import (
    DIFFERENCES,
    SHARES,
    Cell,
    PlotSpec,
    Table,
    bars_plot,
    line_plot,
    points_plot,
)
from epicrisis.evaluation.analysis.table_text import label_row
from epicrisis.evaluation.experiments.positions import PLACE_PLOT
from epicrisis.evaluation.experiments.registry import NAMES, find_experiment
from epicrisis.report.page_header import name_arms
from epicrisis.report.table_cells import NONE, CellText, cell_text, column_unit

AxisUnit: TypeAlias = Literal["%", "percentage points", ""]

_LINE = attrgetter("panel", "series")
_MOST_MARKS = 60
"""Figures of a line that are drawn as marks with intervals."""
_PLAIN_RUNS = ("evaluate", "compare")


def plots_of(name: str) -> tuple[tuple[PlotSpec, ...], ...]:
    """Return the plots of an experiment, or of plain runs: a table is drawn by the first group whose columns it has."""
    if name in _PLAIN_RUNS:
        return (SHARES,), (DIFFERENCES,)
    return find_experiment(name).plots if name in NAMES else ()


def _energy_plots(along: tuple[str, ...], panel: tuple[str, ...]) -> tuple[PlotSpec, ...]:
    return (
        points_plot("Energy for questions", "kWh per 1,000 questions", along=along, series=along, panel=panel),
        points_plot("Energy for right answers", "Wh per right answer", along=along, series=along, panel=panel),
    )


ENERGY_PLOTS = (_energy_plots(("arm",), ("run",)), _energy_plots(("run",), ()))

_MODEL, _STUDY_SETS = ("model",), ("CareQA", "MedMCQA", "MedQA", "MMLU")
PUBLISHED_PLOTS: Mapping[str, PlotSpec] = {
    "positions": line_plot(PLACE_PLOT.title, "RAG", "BriefContext", along=("place",), axis_title=PLACE_PLOT.axis_title),
    "integration": points_plot("Accuracy", "MedMCQA", "PubMedQA", "BioASQ", along=("method",)),
    "open-ended": bars_plot("Verdicts", "percent", along=("verdict",)),
    "conflicts": bars_plot("Conflict cases against RAG", "win", "tie", "lose", along=("place",)),
    "ensembles-baseline": points_plot("Accuracy by method", *_STUDY_SETS, along=("method",)),
    "ensembles-shuffling": points_plot(
        "Accuracy with shuffled options", *_STUDY_SETS, along=("options",), panel=("votes",)
    ),
    "ensembles-votes": line_plot("Accuracy by the number of votes", *_STUDY_SETS, along=("votes",)),
    "medprompt-encoders": points_plot("Accuracy by encoder", *_STUDY_SETS, along=("encoder",)),
    "models": points_plot("Accuracy without context retrieval and with", *_STUDY_SETS, along=_MODEL, panel=("method",)),
    "models-leaderboard": points_plot(
        "Leaderboard", "average", along=("model", "method"), series=("source",), panel=()
    ),
    "open-baseline": points_plot("Accuracy with options and without", "accuracy (%)", along=("type", "examples")),
    "openmedprompt-refining": line_plot("Accuracy by the number of drafts", "CoT", "ToT", along=("drafts",)),
    "openmedprompt-reflection": line_plot("Accuracy by the number of rounds", "CoT", "ToT", along=("rounds",)),
}
"""The plot of each published table, by its name; values are percentages, as printed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlotMark:
    """One figure of a table at its place in the plot. Shares are percentages."""

    panel: str
    row: str
    """Name of the row; empty in line plots."""
    x: float | None
    """Place in a line plot. None for a bound, which is the same at every place."""
    series: str
    value: float
    low: float | None
    high: float | None
    label: str
    """The figure as text."""
    detail: str
    hollow: bool = False


@dataclass(frozen=True, slots=True)
class PlotFigure:
    """A plot of a table with at least one mark."""

    plot: PlotSpec
    marks: tuple[PlotMark, ...]
    unit: AxisUnit
    value: str
    """The column of the figures without its unit, or empty for several columns."""

    @property
    def description(self) -> str:
        """One sentence about the contents of the figure."""
        unit = f"in {self.unit}" if self.unit else ""
        parts = [", ".join(filter(None, (self.value, unit))) or "counts"]
        if not self.many and {mark.low for mark in self.marks} != {None}:
            parts.append("with 95 % intervals")
        if any(mark.hollow for mark in self.marks):
            parts.append(f"hollow: {'predicted' if self.plot.measured_prefix else 'as printed'}")
        return "; ".join(parts)

    @property
    def bars(self) -> bool:
        return self.plot.kind == "bars"

    @property
    def many(self) -> bool:
        """Whether a line has too many figures to show the mark and interval of each."""
        return max(Counter(map(_LINE, self.marks)).values()) > _MOST_MARKS

    @property
    def panels(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(mark.panel for mark in self.marks))

    @property
    def series(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(mark.series for mark in self.marks))


def plot_figures(
    experiment: str, table: Table, printed: Sequence[Published] = (), sets: Mapping[str, str] = MappingProxyType({})
) -> tuple[PlotFigure, ...]:
    """Return the figures of a table in the order of its plots; none without a declared plot.

    Plots without a figure, or with a single one without an interval, are left out. `printed` are the papers' tables to
    compare with; `sets` maps each model to its question set, if it has one.
    """

    def has_columns(plot: PlotSpec) -> bool:
        required = plot.along if plot.optional else (*plot.values, *plot.along)
        return all(map(partial(match_names, table.columns), required))

    groups = ((RISK_COVERAGE_PLOT,), *plots_of(experiment), *ENERGY_PLOTS)
    plots = next(filter(lambda group: all(map(has_columns, group)), groups), ())
    figures = []
    for plot in plots:
        figure = plot_figure(plot, table)
        if len(figure.marks) > 1 or (figure.marks and figure.marks[0].low is not None):
            published_marks = tuple(_published_marks(plot, table, printed, sets))
            figures.append(replace(figure, marks=figure.marks + published_marks))
    return tuple(figures)


def plot_figure(plot: PlotSpec, table: Table, *, printed: bool = False) -> PlotFigure:
    """Return the figure of a plot whose columns the table has.

    `printed`: the figures come from a paper, so they are percentages already, and changes become accuracies.
    """
    table = derive_accuracies(table) if printed else table
    columns: list[str] = []
    cells: list[Cell] = []
    for pattern in plot.values:
        columns += match_names(table.columns, pattern)
    for name in columns:
        cells += table.column(name)
    # A table of means may have a row of their differences, which are on another scale.
    kind = next(filter(set(map(type, cells)).__contains__, (Mean, Difference)), None)
    shares = not printed and all(column_unit(name, table.column(name)) == "share" for name in columns)
    rows = [_Row(table, cells) for cells in table.rows]
    marks: list[PlotMark] = []
    for row in rows:
        for name in columns:
            mark = _mark(plot, row, name, kind, shares, printed, len(columns) > 1)
            if mark is not None:
                marks += [replace(mark, panel=panel) for panel in _list_panels(row, rows, plot.panel)]
    if plot.kind == "line":
        # Sort along each line: rows may be in the order in which their cases ended.
        names = list(dict.fromkeys(map(_LINE, marks)))
        marks.sort(key=lambda mark: (names.index(_LINE(mark)), mark.x or 0.0, -mark.value))
    unit: AxisUnit = ""
    if printed or (shares and plot.kind != "bars"):
        unit = "percentage points" if kind is Difference else "%"
    return PlotFigure(plot, tuple(marks), unit, columns[0].removesuffix(" (%)") if len(columns) == 1 else "")


def _list_panels(row: _Row, rows: Sequence[_Row], columns: Sequence[str]) -> list[str]:
    """Return the panels of a row. One without a cell, such as the arm without evidence, is in each that it fits."""
    named = [column for column in columns if column in row.table.columns]
    known = [column for column in named if row[column] is not None]
    panels: dict[str, None] = {}
    for other in rows if len(known) < len(named) else ():
        if all(row[column] == other[column] for column in known) and None not in (other[item] for item in named):
            panels.setdefault(other.name(columns))
    return list(panels) or [row.name(columns)]


@dataclass(frozen=True, slots=True)
class _Row:
    table: Table
    cells: tuple[Cell, ...]

    def __getitem__(self, column: str) -> Cell:
        return self.cells[self.table.columns.index(column)]

    def name(self, columns: Sequence[str]) -> str:
        """Name the row by its cells in these columns; figures with their heading. Skip missing columns and cells."""
        parts = []
        for column in columns:
            cell = self[column] if column in self.table.columns else None
            if isinstance(cell, str):
                parts.append(cell)
            elif cell is not None:
                parts.append(f"{column} {cell_text(cell, 'number').figure}")
        return ", ".join(parts)


def _mark(
    plot: PlotSpec, row: _Row, column: str, kind: type | None, shares: bool, printed: bool, many: bool
) -> PlotMark | None:
    """Return the mark of a cell, or None if it has no figure or the plot has no place for it."""
    cell = row[column]
    value = _finite_number(cell)
    if value is None or (isinstance(cell, Mean | Difference) and type(cell) is not kind):
        return None
    x = None
    if plot.kind == "line":
        place = row[plot.along[0]]
        x = _finite_number(place)
        if x is None and place is not None:
            return None
        if isinstance(place, Mean) and x is not None:
            x *= 100
    # The name of the row says what the series would repeat.
    series = "" if many and set(plot.series) <= set(plot.along) else row.name(plot.series)
    name = row.name(plot.along) if plot.along else label_row(row.table, row.cells, (*plot.series, *plot.panel))
    scale = 100 if shares else 1
    text = CellText(f"{cell} %") if printed else cell_text(cell, "share" if shares else "number")
    interval = cell.interval if isinstance(cell, Mean | Difference) else None
    return PlotMark(
        panel=row.name(plot.panel),
        row="" if plot.kind == "line" else name or NONE,
        x=x,
        series=", ".join(filter(None, (series, name_arms(column) if many else ""))),
        value=scale * value,
        low=None if interval is None else scale * interval.low,
        high=None if interval is None else scale * interval.high,
        label=text.figure,
        detail=str(text),
        # Bars of published tables stay filled: their colours tell them apart.
        hollow=(plot.kind != "bars" if printed else not name.startswith(plot.measured_prefix)),
    )


def _published_marks(
    plot: PlotSpec, table: Table, printed: Sequence[Published], sets: Mapping[str, str]
) -> Iterator[PlotMark]:
    """Yield the papers' figures for the same method and question set, one for each of their models."""
    if not plot.method_columns:
        return
    published_rows: list[_Row] = []
    for publication in printed:
        if publication.table.columns[:2] == ("model", "method"):
            final = derive_accuracies(publication.table)
            published_rows += map(partial(_Row, final), final.rows)
    for cells in table.rows:
        row = _Row(table, cells)
        method = _plain_name(row.name(plot.method_columns))
        dataset = _plain_name(row["set"] if "set" in table.columns else sets.get(str(row["model"]), ""))
        for published_row in published_rows:
            if _plain_name(published_row["method"]) != method:
                continue
            for column in published_row.table.columns:
                value = _finite_number(published_row[column])
                if value is not None and _plain_name(column) == dataset:
                    text, series = f"{published_row[column]} %", f"{published_row['model']}, as printed"
                    yield PlotMark(
                        panel=row.name(plot.panel),
                        row=row.name(plot.along),
                        x=None,
                        series=series,
                        value=value,
                        low=None,
                        high=None,
                        label=text,
                        detail=text,
                        hollow=True,
                    )


_SYNONYMS = {
    "chainofthought": "cot",
    "macroaverage": "average",
    "sccot": "selfconsistencyvotes5",
    "withcr": "medprompt",
}
"""Plain names with another name in the papers or here. SC-CoT has five votes in Table 1."""


def _plain_name(name: Cell) -> str:
    """Return the name of a method or a question set in one spelling."""
    plain = "".join(filter(str.isalnum, str(name).rpartition("/")[2].casefold()))
    return _SYNONYMS.get(plain, plain)


def _finite_number(cell: Cell) -> float | None:
    if isinstance(cell, Mean | Difference):
        cell = cell.value
    return float(cell) if isinstance(cell, int | float) and math.isfinite(cell) else None
