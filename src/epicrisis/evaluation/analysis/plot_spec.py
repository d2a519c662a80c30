"""How a table is plotted, as plain data: experiments declare it, and the report draws it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

PlotKind: TypeAlias = Literal["line", "points", "bars"]


@dataclass(frozen=True, slots=True)
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


SHARES = PlotSpec("Share right", "points", ("share right",), panel=("model",))
DIFFERENCES = PlotSpec("Differences", "points", ("difference to *",), panel=("model",))
