"""Test the table of population sizes against the sizes that the EHR study prints."""

from __future__ import annotations

from typing import Any

from epicrisis.evaluation.analysis.published import make_population_table


def make_population(population: str, questions: int, patients: int, unanswerable: int = 0) -> dict[str, Any]:
    sizes = {"questions": questions, "patients": patients, "unanswerable": unanswerable}
    return {"population": population, **sizes}


def test_population_table_shows_printed_sizes_for_same_population_only() -> None:
    table = make_population_table(
        {
            "m": {"radqa": make_population("all", 3, 2, 1), "ehr-ds-qa": make_population("table-3", 3, 2, 1)},
            "n": {"radqa": make_population("table-1", 1, 1), "covid-qa": make_population("all", 0, 0)},
        }
    )
    assert table.rows == (
        ("m", "radqa", "all", 3, 2, 1, None, None),
        ("m", "ehr-ds-qa", "table-3", 3, 2, 1, None, None),
        ("n", "radqa", "table-1", 1, 1, 0, 3509, 80),
        ("n", "covid-qa", "all", 0, 0, 0, None, None),
    )


def test_population_table_has_study_sizes() -> None:
    sets = ("cliniqg4qa", "radqa", "ehr-ds-qa", "ehrnoteqa", "ehrnoteqa-open")
    table = make_population_table({"m": {name: make_population("table-2", 3, 2) for name in sets}})
    printed = list(zip(table.column("questions printed"), table.column("patients printed"), strict=True))
    assert printed == [(1287, 36), (3509, 80), (478, 70), (962, 962), (962, 962)]
