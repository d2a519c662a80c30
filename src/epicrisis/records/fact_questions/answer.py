"""Compute the answer to a planned question about facts."""

from __future__ import annotations

from epicrisis.core.computed_values import ComputedAnswer
from epicrisis.records.fact_questions.computation import Computation
from epicrisis.records.fact_questions.entry_computations import compute_entries
from epicrisis.records.fact_questions.question_rules import FactQuestion, UnclearQuestion
from epicrisis.records.fact_questions.record import PatientFacts
from epicrisis.records.fact_questions.value_computations import compute_values


def compute(plan: FactQuestion | UnclearQuestion, record: PatientFacts) -> Computation:
    """Return the computed answer, or the abstention with its reason."""
    if isinstance(plan, UnclearQuestion):
        reason = f"{plan.reason[:1].upper()}{plan.reason[1:]}."
        return Computation(
            ComputedAnswer(operation=plan.operation, subject=plan.subject, state="abstained", statement=reason)
        )
    return compute_values(plan, record) if plan.topic == "values" else compute_entries(plan, record)
