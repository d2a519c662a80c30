"""Which cases the EHR study's tables are made from."""

from __future__ import annotations

from epicrisis.evaluation.experiments import ehr
from epicrisis.evaluation.experiments.record_studies import _whole
from epicrisis.evaluation.grading.measurements import MeasuredCase


def test_retrieval_is_held_against_full_context_and_not_against_settings_that_were_told_where_to_look() -> None:
    cases = [
        MeasuredCase(
            f"{arm} {form}",
            f"{form}:h",
            {"arm": arm, "set": "s", "form": form, "category": "temporal"},
            "answered",
            {"accuracy" if form == "choice" else "token-f1": 1.0},
            form=form,
            patient="p",
        )
        for arm in (*ehr.SETTINGS, "rag-5", ehr.BRIEF)
        for form in ("choice", "open")
    ]
    (table,) = [each for each in _whole({"m": cases}, ()) if each.title.startswith("When does retrieval")]
    assert table.rows[0][:5] == ("m", "s", "temporal", ehr.ALL, 2), "forms stand in one row"
    assert table.column("arm") == (ehr.ALL, "rag-5", ehr.BRIEF)
    assert [each is not None for each in table.column(f"difference to {ehr.ALL}")] == [False, True, True]
    none = _whole({"m": [case for case in cases if case.condition["arm"] == ehr.NONE]}, ())
    assert not any(each.title.startswith("When does retrieval") for each in none)
