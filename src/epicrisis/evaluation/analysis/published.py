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
from typing import Any, Self, TypeAlias

from epicrisis.evaluation.analysis.table import Cell, Table

FILES = ("published.toml", "published_context_retrieval.toml", "published_ehr.toml")
FIGURE, ACCURACY, CHANGE = "figure", "accuracy (%)", "change (points)"
"""The column with the kind of figures in a row, and the two kinds."""
_SETS = frozenset({"CareQA", "MedMCQA", "MedQA", "MMLU"})
"""The columns with these figures."""

_PRINTED_NAMES = {
    "ehrnoteqa": "EHRNoteQA",
    "ehrnoteqa-open": "EHRNoteQA",
    "ehr-ds-qa": "EHR-DS-QA",
    "radqa": "RadQA",
    "cliniqg4qa": "CliniQG4QA",
}
_PRINTED_POPULATIONS = ("table-1", "table-2")
"""The study prints no sizes for Tables 3 and 4 (errata E5, E9)."""

_POPULATION_COLUMNS = ("model", "set", "population", "questions", "patients", "no answer")
_POPULATION_NOTE = (
    "No answer: questions that no note answers. The study prints sizes for all lengths only, so a population of long "
    "records has no printed size (errata E5)."
)

PopulationSizes: TypeAlias = Mapping[str, Mapping[str, Any]]
"""Maps a set to its `population` and the number of `questions`, `patients` and `unanswerable` questions, as in the
arguments of a plan."""


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
            accuracies: list[Cell] = list(row)
            accuracies[kind] = ACCURACY
            for index, (column, before, change) in enumerate(zip(table.columns, base, row, strict=True)):
                if column in _SETS:
                    accuracies[index] = None
                    if isinstance(before, float) and isinstance(change, float):
                        accuracies[index] = round(before + change, 2)
            rows.append(tuple(accuracies))
    return replace(table, rows=tuple(rows))


def parse_published(text: str) -> Mapping[str, Published]:
    """Return the tables of a TOML text. `published.toml` describes its keys.

    Raises TypeError or KeyError for unknown or missing keys.
    """
    content: dict[str, list[dict[str, Any]]] = tomllib.loads(text, parse_float=PrintedFloat)
    papers = {values["key"]: Paper(**values) for values in content["papers"]}
    tables: dict[str, Published] = {}
    for values in content["tables"]:
        name, paper, errata = values.pop("name"), papers[values.pop("paper")], tuple(values.pop("errata", ()))
        values["columns"], values["notes"] = tuple(values["columns"]), tuple(values.get("notes", ()))
        values["rows"] = tuple(map(tuple, values["rows"]))
        source = f"{paper.name}, {values.pop('place')}"
        tables[name] = Published(name, paper, Table(**values, source=source), errata)
    return tables


def make_population_table(sizes_by_model: Mapping[str, PopulationSizes]) -> Table:
    """Return a table with a row for each set of each model's run."""
    rows: list[tuple[Cell, ...]] = []
    for model, sets in sizes_by_model.items():
        for name, size in sets.items():
            population = size["population"]
            counts = size["questions"], size["patients"], size["unanswerable"]
            printed: tuple[int | None, int | None] = None, None
            if name in _PRINTED_NAMES and population in _PRINTED_POPULATIONS:
                table, row = load_published()["ehr-datasets"], _PRINTED_NAMES[name]
                printed = int(str(table.figure("questions", row))), int(str(table.figure("patients", row)))
            rows.append((model, name, population, *counts, *printed))
    columns = (*_POPULATION_COLUMNS, "questions printed", "patients printed")
    return Table("Questions and patients", columns, tuple(rows), (_POPULATION_NOTE,))
