"""What the papers print, so that reports can put it beside what was measured: BriefContext's (`published.toml`), the
study of context retrieval (`published_context_retrieval.toml`) and the EHR study (`published_ehr.toml`).

Gives the figures as they are printed; which of them do not come out, and why, stands in the names of their errata and
in the notes. Knows no figure of ours.
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
"""The column that says which kind of figures a row has, and the two kinds."""
_SETS = frozenset({"CareQA", "MedMCQA", "MedQA", "MMLU"})
"""Columns of those figures; others are of neither kind."""


class AsPrinted(float):
    """A figure whose text has the digits that a paper prints: 55.10."""

    _text: str

    def __new__(cls, text: str) -> Self:
        made = super().__new__(cls, text)
        made._text = text
        return made

    def __str__(self) -> str:
        return self._text


@dataclass(frozen=True, slots=True)
class Paper:
    """One version of a paper."""

    key: str
    name: str
    """As the source of a table tells it."""
    title: str
    venue: str


@dataclass(frozen=True, slots=True)
class Published:
    """A table of a paper; its `table.source` names the paper, the version and the place."""

    name: str
    paper: Paper
    table: Table
    errata: tuple[str, ...]

    def figure(self, column: str, *row: Cell) -> Cell:
        """What stands under this head in the row that begins with these cells. Raises KeyError."""
        place = self.table.columns.index(column)
        for cells in self.table.rows:
            if cells[: len(row)] == row:
                return cells[place]
        raise KeyError(f"{self.name} has no row {row}")


@cache
def published() -> Mapping[str, Published]:
    """The tables of all papers by name, in the order of the files."""
    folder = resources.files("epicrisis.evaluation.analysis")
    texts = (folder.joinpath(file).read_text("utf-8") for file in FILES)
    return {name: each for text in texts for name, each in parse(text).items()}


def accuracies(table: Table) -> Table:
    """The table with the accuracies that follow from its rows of changes: each change with what the row of accuracies
    above has, to the two places printed; where there is none above, `None`. One without such rows stays as it is."""
    if FIGURE not in table.columns:
        return table
    kind, above = table.columns.index(FIGURE), None
    rows: list[tuple[Cell, ...]] = []
    for row in table.rows:
        if row[kind] != CHANGE:
            above = row if row[kind] == ACCURACY else None
            rows.append(row)
        else:
            before = above or (None,) * len(row)
            rows.append(tuple(_followed(*each) for each in zip(table.columns, before, row, strict=True)))
    return replace(table, rows=tuple(rows))


def parse(text: str) -> Mapping[str, Published]:
    """The tables of a text as `published.toml` describes it. A key unknown or missing: TypeError, KeyError."""
    content: dict[str, list[dict[str, Any]]] = tomllib.loads(text, parse_float=AsPrinted)
    papers = {each["key"]: Paper(**each) for each in content["papers"]}
    return {each["name"]: _table(papers[each["paper"]], **each) for each in content["tables"]}


def _table(
    of: Paper,
    *,
    name: str,
    title: str,
    paper: str,
    place: str,
    columns: list[str],
    rows: list[list[Cell]],
    errata: tuple[str, ...] = (),
    notes: tuple[str, ...] = (),
) -> Published:
    table = Table(title, tuple(columns), tuple(map(tuple, rows)), tuple(notes), f"{of.name}, {place}")
    return Published(name, of, table, tuple(errata))


def _followed(column: str, above: Cell, cell: Cell) -> Cell:
    """What stands under this head in a row of changes once they are accuracies."""
    if column == FIGURE:
        return ACCURACY
    if column not in _SETS:
        return cell
    return round(above + cell, 2) if isinstance(above, float) and isinstance(cell, float) else None
