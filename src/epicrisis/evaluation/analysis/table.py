"""A table of figures, and how it is plotted: experiments declare a plot as plain data, and the report draws it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, TypedDict, Unpack

from epicrisis.evaluation.analysis.statistics import Difference, Interval, Mean

Cell: TypeAlias = str | int | float | Mean | Difference | Interval | None
"""Shares and p values are 0 to 1. None is an empty cell, never 0."""


@dataclass(frozen=True, slots=True)
class Table:
    """Columns and rows, with notes for the reader. Raises ValueError if a row has another length than the columns."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()
    """Sentences below the table: cases counted separately, the test, errata."""
    source: str = ""
    """The run, or the table of a paper."""

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"table {self.title!r}: a row of {len(row)} cells under {len(self.columns)} columns")

    def column(self, name: str) -> tuple[Cell, ...]:
        """Return the cells of a column. Raises ValueError if there is no such column."""
        index = self.columns.index(name)
        return tuple(row[index] for row in self.rows)


PlotKind: TypeAlias = Literal["line", "points", "bars"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlotSpec:
    """One plot of a table, by the names of its columns. Missing columns in `series` and `panel` are ignored."""

    title: str
    kind: PlotKind
    values: tuple[str, ...]
    """Columns of figures, by name or pattern. Each is a series; several series of bars are stacked."""
    along: tuple[str, ...] = ()
    """Columns of the axis: the numbers of a line, or the names of rows. Empty: all columns that tell rows apart and are
    neither series nor panel."""
    series: tuple[str, ...] = ()
    panel: tuple[str, ...] = ("model", "k")
    axis_title: str = ""
    """Title of a line's axis; default: the name of the column."""
    log2: bool = False
    method_columns: tuple[str, ...] = ()
    """Columns that name the method of a row. Published figures of the same method and `set` are drawn next to it."""
    optional: bool = False
    """Draw nothing where the table lacks the `values`, instead of looking for another plot."""
    measured_prefix: str = ""
    """Rows whose name lacks this prefix are predictions, drawn hollow. Empty: all rows are measured."""


class PlotLayout(TypedDict, total=False):
    """The fields of a PlotSpec besides its title, kind and values."""

    along: tuple[str, ...]
    series: tuple[str, ...]
    panel: tuple[str, ...]
    axis_title: str
    log2: bool
    method_columns: tuple[str, ...]
    optional: bool
    measured_prefix: str


def points_plot(title: str, *values: str, **layout: Unpack[PlotLayout]) -> PlotSpec:
    """Return a plot with a row of points for each name in the columns `along`."""
    return PlotSpec(title=title, kind="points", values=values, **layout)


def line_plot(title: str, *values: str, **layout: Unpack[PlotLayout]) -> PlotSpec:
    """Return a plot with a line over the numbers in the column `along`."""
    return PlotSpec(title=title, kind="line", values=values, **layout)


def bars_plot(title: str, *values: str, **layout: Unpack[PlotLayout]) -> PlotSpec:
    """Return a plot with a stacked bar for each name in the columns `along`."""
    return PlotSpec(title=title, kind="bars", values=values, **layout)


SHARES = points_plot("Share right", "share right", panel=("model",))
DIFFERENCES = points_plot("Differences", "difference to *", panel=("model",))
