"""The noun: a table of figures, ready to be shown. Knows neither how a figure was computed nor how it is drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from epicrisis.evaluation.analysis.statistics import Difference, Interval, Mean

Cell: TypeAlias = str | int | float | Mean | Difference | Interval | None
"""Shares are 0 to 1, p values too; `None` is "there is none", never 0."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of as many cells as there are columns, in order."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()
    """Sentences that a reader needs beside the figures: what was counted apart, which test, which erratum."""
    source: str = ""
    """Where the figures come from: a paper's table, or the run."""

    def __post_init__(self) -> None:
        wrong = [len(row) for row in self.rows if len(row) != len(self.columns)]
        if wrong:
            raise ValueError(f"table {self.title!r}: rows of {wrong} cells under {len(self.columns)} columns")

    def column(self, name: str) -> tuple[Cell, ...]:
        """The cells under this head. Raises ValueError where there is none such."""
        place = self.columns.index(name)
        return tuple(row[place] for row in self.rows)
