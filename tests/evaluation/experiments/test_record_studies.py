"""Test the selection of cases for the tables of the EHR study."""

from __future__ import annotations

from epicrisis.evaluation.experiments import record_arms
from epicrisis.evaluation.experiments.record_studies import study_tables
from epicrisis.evaluation.grading.measurements import MeasuredCase


def test_study_tables_compare_retrieval_with_full_context_only() -> None:
    cases = [
        MeasuredCase(
            key=f"{arm} {form}",
            question=f"{form}:h",
            condition={"arm": arm, "set": "s", "form": form, "category": "temporal"},
            ending="answered",
            values={"accuracy" if form == "choice" else "token-f1": 1.0},
            form=form,
            patient="p",
        )
        for arm in (*record_arms.SETTINGS, "rag-5", record_arms.BRIEF)
        for form in ("choice", "open")
    ]
    (table,) = [
        study_table
        for study_table in study_tables({"m": cases}, ())
        if study_table.title.startswith("When does retrieval")
    ]
    assert table.rows[0][:5] == ("m", "s", "temporal", record_arms.ALL, 2), "forms stand in one row"
    assert table.column("arm") == (record_arms.ALL, "rag-5", record_arms.BRIEF)
    assert [item is not None for item in table.column(f"difference to {record_arms.ALL}")] == [False, True, True]
    none = study_tables({"m": [case for case in cases if case.condition["arm"] == record_arms.NONE]}, ())
    assert not any(item.title.startswith("When does retrieval") for item in none)
