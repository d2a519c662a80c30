"""A table of figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

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
