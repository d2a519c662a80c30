"""How many questions about how many patients a population has, beside what the EHR study prints of it (its Table 1).

Knows no set's files: it is handed what the plans of runs tell.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from epicrisis.evaluation.analysis.published import published
from epicrisis.evaluation.analysis.table import Table

_PRINTED = {
    "ehrnoteqa": "EHRNoteQA",
    "ehrnoteqa-open": "EHRNoteQA",
    "ehr-ds-qa": "EHR-DS-QA",
    "radqa": "RadQA",
    "cliniqg4qa": "CliniQG4QA",
}
_ITS_OWN = ("table-1", "table-2")
"""Populations that the study prints the size of; of Tables 3 and 4 it prints none (errata E5, E9)."""


QuestionsById: TypeAlias = Mapping[str, Mapping[str, Any]]
"""By set, as a plan's arguments keep it: `population`, and how many `questions`, `patients`, and `unanswerable`."""


def population_table(asked: Mapping[str, QuestionsById]) -> Table:
    """A row for each set of each model's run, in their order."""
    columns = (
        "model",
        "set",
        "population",
        "questions",
        "patients",
        "no answer",
        "questions printed",
        "patients printed",
    )
    rows = [
        (
            model,
            name,
            told["population"],
            told["questions"],
            told["patients"],
            told["unanswerable"],
            *_printed(name, told["population"]),
        )
        for model, sets in asked.items()
        for name, told in sets.items()
    ]
    notes = (
        "No answer: questions that no note answers. The study prints sizes of all lengths alone; a population of long "
        "records is never set beside one of all lengths (errata E5).",
    )
    return Table("Questions and patients", columns, tuple(rows), notes)


def _printed(name: str, population: str) -> tuple[int | None, int | None]:
    if name not in _PRINTED or population not in _ITS_OWN:
        return None, None
    sizes: Mapping[str, int] = {
        column: int(str(published()["ehr-datasets"].figure(column, _PRINTED[name])))
        for column in ("questions", "patients")
    }
    return sizes["questions"], sizes["patients"]
