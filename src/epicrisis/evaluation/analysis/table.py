"""A table of figures, and how it is plotted: experiments declare a plot as plain data, and the report draws it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

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


SHARES = PlotSpec(title="Share right", kind="points", values=("share right",), panel=("model",))
DIFFERENCES = PlotSpec(title="Differences", kind="points", values=("difference to *",), panel=("model",))
