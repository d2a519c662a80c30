"""The marks of a plot: every one is a cell of the table that it shows.

Knows of a plot what `plots` says, computes nothing, and knows nothing of how a mark is drawn (`charts`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import filter as matching
from types import MappingProxyType
from typing import Literal, TypeAlias

from epicrisis.evaluation.analysis.published import Published, accuracies
from epicrisis.evaluation.analysis.statistics import Difference, Mean
from epicrisis.evaluation.analysis.table import Cell, Table
from epicrisis.evaluation.analysis.table_text import label
from epicrisis.report.plots import ENERGY, PLOTS, Plot
from epicrisis.report.table_cells import NONE, CellText, shown, unit_of

AxisUnit: TypeAlias = Literal["%", "percentage points", ""]


@dataclass(frozen=True, slots=True)
class PlotMark:
    """One figure of the table, where it stands. Shares are percentages here."""

    panel: str
    row: str
    """The row's name; of a line empty."""
    x: float | None
    """Of a line; `None`: it holds wherever one looks, as a bound does."""
    series: str
    value: float
    low: float | None
    high: float | None
    label: str
    """The figure in words."""
    told: str
    """With interval and n."""
    hollow: bool = False


@dataclass(frozen=True, slots=True)
class PlotFigure:
    """A plot of a table: at least one mark."""

    plot: Plot
    marks: tuple[PlotMark, ...]
    unit: AxisUnit
    value: str
    """The column of the figures, where it is one, without its unit."""

    @property
    def described(self) -> str:
        """What one sees, in a sentence."""
        unit = f"in {self.unit}" if self.unit else ""
        said = [", ".join(each for each in (self.value, unit) if each) or "counts"]
        if not self.many and any(mark.low is not None for mark in self.marks):
            said.append("with 95 % intervals")
        if any(mark.hollow for mark in self.marks):
            said.append(f"hollow: {'predicted' if self.plot.measured else 'as printed'}")
        return "; ".join(said)

    @property
    def bars(self) -> bool:
        return self.plot.kind == "bars"

    @property
    def many(self) -> bool:
        """Whether a line has so many figures that marks and intervals of each would be a blot."""
        return max(Counter((mark.panel, mark.series) for mark in self.marks).values()) > _MOST

    @property
    def panels(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(mark.panel for mark in self.marks))

    @property
    def series(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(mark.series for mark in self.marks))


_MOST = 60
"""Figures of a line that are drawn one by one, with their intervals."""


def drawings(
    experiment: str, table: Table, printed: Sequence[Published] = (), sets: Mapping[str, str] = MappingProxyType({})
) -> tuple[PlotFigure, ...]:
    """The table's plots, in order; none where nothing is said of it, or where there is no figure to draw, or a lone one
    without an interval. `printed`: what the papers print, to stand beside; `sets`: by model the question set that it
    was asked, where it was one."""
    groups = (*PLOTS.get(experiment, ()), *ENERGY)
    plots = next((group for group in groups if all(_fits(plot, table) for plot in group)), ())
    drawn = [each for each in (drawing(plot, table) for plot in plots) if each.marks]
    return tuple(
        replace(each, marks=each.marks + tuple(_beside(each.plot, table, printed, sets)))
        for each in drawn
        if len(each.marks) > 1 or each.marks[0].low is not None
    )


def drawing(plot: Plot, table: Table, *, printed: bool = False) -> PlotFigure:
    """The plot of a table that has its columns; `printed`: its figures are a paper's, percentages already, and changes
    are drawn as the accuracies that follow from them."""
    table = accuracies(table) if printed else table
    columns = [name for pattern in plot.values for name in matching(table.columns, pattern)]
    cells = [cell for name in columns for cell in table.column(name)]
    # A table of means may have a row of their differences: another scale.
    kind = next((each for each in (Mean, Difference) if any(isinstance(cell, each) for cell in cells)), None)
    shares = not printed and all(unit_of(name, table.column(name)) == "share" for name in columns)
    marks = [
        mark
        for row in table.rows
        for name in columns
        if (mark := _mark(plot, _Row(table, row), name, kind, shares, printed, len(columns) > 1)) is not None
    ]
    if plot.kind == "line":
        # Along each line: rows may stand in the order in which their cases happened to end.
        names = list(dict.fromkeys((mark.panel, mark.series) for mark in marks))
        marks.sort(key=lambda mark: (names.index((mark.panel, mark.series)), mark.x or 0.0, -mark.value))
    counts = plot.kind == "bars" and not printed
    unit: AxisUnit = "" if counts or not (shares or printed) else "percentage points" if kind is Difference else "%"
    return PlotFigure(plot, tuple(marks), unit, columns[0].removesuffix(" (%)") if len(columns) == 1 else "")


def _fits(plot: Plot, table: Table) -> bool:
    needed = plot.along if plot.some else (*plot.values, *plot.along)
    return all(matching(table.columns, name) for name in needed)


@dataclass(frozen=True, slots=True)
class _Row:
    table: Table
    cells: tuple[Cell, ...]

    def __getitem__(self, column: str) -> Cell:
        return self.cells[self.table.columns.index(column)]

    def named(self, columns: Sequence[str]) -> str:
        """What these columns say of the row, of those that it has; what is no text by its heading."""
        said = [(name, self[name]) for name in columns if name in self.table.columns and self[name] is not None]
        return ", ".join(
            cell if isinstance(cell, str) else f"{name} {shown(cell, 'number').figure}" for name, cell in said
        )


def _mark(
    plot: Plot, row: _Row, column: str, kind: type | None, shares: bool, printed: bool, many: bool
) -> PlotMark | None:
    """`None` where there is no figure, or where the plot has no place for it."""
    cell = row[column]
    value = _number(cell)
    if value is None or (isinstance(cell, Mean | Difference) and type(cell) is not kind):
        return None
    x = None
    if plot.kind == "line":
        at = row[plot.along[0]]
        x = _number(at)
        if x is None and at is not None:
            return None
        if isinstance(at, Mean) and x is not None:
            x *= 100
    name = row.named(plot.along) if plot.along else label(row.table, row.cells, (*plot.series, *plot.panel))
    scale = 100 if shares else 1
    text = CellText(f"{cell} %") if printed else shown(cell, "share" if shares else "number")
    interval = cell.interval if isinstance(cell, Mean | Difference) else None
    return PlotMark(
        panel=row.named(plot.panel),
        row="" if plot.kind == "line" else name or NONE,
        x=x,
        series=", ".join(each for each in (row.named(plot.series), column if many else "") if each),
        value=scale * value,
        low=None if interval is None else scale * interval.low,
        high=None if interval is None else scale * interval.high,
        label=text.figure,
        told=str(text),
        # Printed bars are told apart by their colours, so those keep them.
        hollow=(plot.kind != "bars" if printed else not name.startswith(plot.measured)),
    )


def _beside(plot: Plot, table: Table, printed: Sequence[Published], sets: Mapping[str, str]) -> Iterator[PlotMark]:
    """The papers' figures of the same method on the same set, one for each of their models."""
    if not plot.beside:
        return
    tables = [accuracies(each.table) for each in printed if each.table.columns[:2] == ("model", "method")]
    for row in (_Row(table, cells) for cells in table.rows):
        method = _plain(row.named(plot.beside))
        dataset = _plain(row["set"] if "set" in table.columns else sets.get(str(row["model"]), ""))
        for theirs in (_Row(each, cells) for each in tables for cells in each.rows if _plain(cells[1]) == method):
            for column in (name for name in theirs.table.columns if _plain(name) == dataset):
                text, value = f"{theirs[column]} %", _number(theirs[column])
                if value is not None:
                    series = f"{theirs['model']}, as printed"
                    at = row.named(plot.panel), row.named(plot.along), None
                    yield PlotMark(*at, series, value, None, None, text, text, hollow=True)


_ALIKE = {
    "chainofthought": "cot",
    "macroaverage": "average",
    "sccot": "selfconsistencyvotes5",
    "withcr": "medprompt",
}
"""What the papers, or we, call what has another name there: SC-CoT has five votes in Table 1."""


def _plain(name: Cell) -> str:
    """A method or a question set, whoever names it."""
    plain = "".join(filter(str.isalnum, str(name).rpartition("/")[2].casefold()))
    return _ALIKE.get(plain, plain)


def _number(cell: Cell) -> float | None:
    """A cell's figure, where it has a finite one."""
    if isinstance(cell, Mean | Difference):
        cell = cell.value
    return float(cell) if isinstance(cell, int | float) and math.isfinite(cell) else None
