"""Tables as papers print them, for comparison with measured figures: BriefContext (`published.toml`), the study of
context retrieval (`published_context_retrieval.toml`) and the EHR study (`published_ehr.toml`).

The notes and errata of a table name the figures that are inconsistent.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any, Self

from epicrisis.evaluation.analysis.table import Cell, Table

FILES = ("published.toml", "published_context_retrieval.toml", "published_ehr.toml")
FIGURE, ACCURACY, CHANGE = "figure", "accuracy (%)", "change (points)"
"""The column with the kind of figures in a row, and the two kinds."""
_SETS = frozenset({"CareQA", "MedMCQA", "MedQA", "MMLU"})
"""The columns with these figures."""


class PrintedFloat(float):
    """A figure that is formatted with the digits of the paper: 55.10."""

    _text: str

    def __new__(cls, text: str) -> Self:
        figure = super().__new__(cls, text)
        figure._text = text
        return figure

    def __str__(self) -> str:
        return self._text


@dataclass(frozen=True, slots=True)
class Paper:
    """One version of a paper."""

    key: str
    name: str
    """Its name in the source of a table."""
    title: str
    venue: str


@dataclass(frozen=True, slots=True)
class Published:
    """A table of a paper. `table.source` names paper, version and place."""

    name: str
    paper: Paper
    table: Table
    errata: tuple[str, ...]

    def figure(self, column: str, *row: Cell) -> Cell:
        """Return the cell of a column in the first row that begins with these cells. Raises KeyError."""
        index = self.table.columns.index(column)
        for cells in self.table.rows:
            if cells[: len(row)] == row:
                return cells[index]
        raise KeyError(f"{self.name} has no row {row}")


@cache
def load_published() -> Mapping[str, Published]:
    """Return the tables of all papers by name, in the order of the files."""
    folder = resources.files("epicrisis.evaluation.analysis")
    tables: dict[str, Published] = {}
    for file in FILES:
        tables.update(parse_published(folder.joinpath(file).read_text("utf-8")))
    return tables


def derive_accuracies(table: Table) -> Table:
    """Return the table with accuracies instead of its rows of changes.

    A change is added to the row of accuracies above, to two decimal places; without such a row the cell is None. A
    table without rows of changes is returned unchanged.
    """
    if FIGURE not in table.columns:
        return table
    kind = table.columns.index(FIGURE)
    base: tuple[Cell, ...] = (None,) * len(table.columns)
    rows: list[tuple[Cell, ...]] = []
    for row in table.rows:
        if row[kind] != CHANGE:
            base = row if row[kind] == ACCURACY else (None,) * len(row)
            rows.append(row)
        else:
            rows.append(tuple(map(_add_change, table.columns, base, row)))
    return replace(table, rows=tuple(rows))


def _add_change(column: str, base: Cell, change: Cell) -> Cell:
    if column == FIGURE:
        return ACCURACY
    if column not in _SETS:
        return change
    return round(base + change, 2) if isinstance(base, float) and isinstance(change, float) else None


def parse_published(text: str) -> Mapping[str, Published]:
    """Return the tables of a TOML text. `published.toml` describes its keys.

    Raises TypeError or KeyError for unknown or missing keys.
    """
    content: dict[str, list[dict[str, Any]]] = tomllib.loads(text, parse_float=PrintedFloat)
    papers = {values["key"]: Paper(**values) for values in content["papers"]}
    tables: dict[str, Published] = {}
    for values in content["tables"]:
        tables[values["name"]] = _make_table(papers[values.pop("paper")], **values)
    return tables


def _make_table(
    paper: Paper,
    *,
    name: str,
    title: str,
    place: str,
    columns: list[str],
    rows: list[list[Cell]],
    errata: tuple[str, ...] = (),
    notes: tuple[str, ...] = (),
) -> Published:
    table = Table(title, tuple(columns), tuple(map(tuple, rows)), tuple(notes), f"{paper.name}, {place}")
    return Published(name, paper, table, tuple(errata))
