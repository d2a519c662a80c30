"""What the BriefContext papers print, so that reports can put it beside what was measured. See `published.toml`.

Gives the figures as they are printed; which of them do not come out, and why, stands in the names of their errata.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal, TypeAlias

from .table import Cell, Table

Version: TypeAlias = Literal["printed", "preprint"]


@dataclass(frozen=True, slots=True)
class Paper:
    """One version of the paper."""

    key: Version
    title: str
    venue: str


@dataclass(frozen=True, slots=True)
class Published:
    """A table of a paper; its `table.source` names the version and the place."""

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
    """The tables by name, in the order of the file."""
    return parse(resources.files("epicrisis.evaluation.tables").joinpath("published.toml").read_text("utf-8"))


def parse(text: str) -> Mapping[str, Published]:
    """The tables of a text as `published.toml` describes it. A key unknown or missing: TypeError, KeyError."""
    content: dict[str, list[dict[str, Any]]] = tomllib.loads(text)
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
    source = f"BriefContext, {paper}, {place}"
    table = Table(title, tuple(columns), tuple(map(tuple, rows)), tuple(notes), source)
    return Published(name, of, table, tuple(errata))
