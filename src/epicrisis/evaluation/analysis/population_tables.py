"""The number of questions and patients in a population, next to the numbers that the EHR study prints (its Table 1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from epicrisis.evaluation.analysis.published import load_published
from epicrisis.evaluation.analysis.table import Cell, Table

_PRINTED_NAMES = {
    "ehrnoteqa": "EHRNoteQA",
    "ehrnoteqa-open": "EHRNoteQA",
    "ehr-ds-qa": "EHR-DS-QA",
    "radqa": "RadQA",
    "cliniqg4qa": "CliniQG4QA",
}
_PRINTED_POPULATIONS = ("table-1", "table-2")
"""The study prints no sizes for Tables 3 and 4 (errata E5, E9)."""

_COLUMNS = (
    "model",
    "set",
    "population",
    "questions",
    "patients",
    "no answer",
    "questions printed",
    "patients printed",
)
_NOTES = (
    "No answer: questions that no note answers. The study prints sizes for all lengths only, so a population of long "
    "records has no printed size (errata E5).",
)

PopulationSizes: TypeAlias = Mapping[str, Mapping[str, Any]]
"""Maps a set to its `population` and the number of `questions`, `patients` and `unanswerable` questions, as in the
arguments of a plan."""


def make_population_table(sizes_by_model: Mapping[str, PopulationSizes]) -> Table:
    """Return a table with a row for each set of each model's run."""
    rows: list[tuple[Cell, ...]] = []
    for model, sets in sizes_by_model.items():
        for name, size in sets.items():
            population = size["population"]
            counts = size["questions"], size["patients"], size["unanswerable"]
            rows.append((model, name, population, *counts, *_printed_sizes(name, population)))
    return Table("Questions and patients", _COLUMNS, tuple(rows), _NOTES)


def _printed_sizes(name: str, population: str) -> tuple[int | None, int | None]:
    if name not in _PRINTED_NAMES or population not in _PRINTED_POPULATIONS:
        return None, None
    table, row = load_published()["ehr-datasets"], _PRINTED_NAMES[name]
    return int(str(table.figure("questions", row))), int(str(table.figure("patients", row)))
