"""Write a structured fact as a line of text: `08:10 Creatinine: 1.8 mg/dL (high; reference 0.6 to 1.2)`."""

from __future__ import annotations

from collections.abc import Mapping

from epicrisis.core.clinical_facts import ClinicalFact

_MEDICATION_LABELS = {
    "request": "medication orders",
    "statement": "medication list",
    "administration": "medications given",
    "dispense": "medications dispensed",
}
_LABELS = {
    "laboratory": "laboratory results",
    "vital-sign": "vital signs",
    "medication": "medications",
    "problem": "problems",
    "allergy": "allergies",
    "procedure": "procedures",
    "immunization": "immunizations",
    "observation": "observations",
    "encounter": "stays and visits",
}
"""What documents of a kind of facts are called."""
_OPENINGS: Mapping[tuple[str, str], str] = {
    ("medication", "start"): "Started ",
    ("medication", "end"): "End of ",
    ("medication", "given"): "Given: ",
    ("medication", "state"): "Medication: ",
    ("problem", "start"): "Onset of ",
    ("problem", "end"): "End of ",
    ("problem", "state"): "Problem: ",
    ("allergy", "start"): "Onset of allergy: ",
    ("allergy", "end"): "End of allergy: ",
    ("allergy", "state"): "Allergy: ",
    ("procedure", "start"): "Began procedure: ",
    ("procedure", "end"): "End of procedure: ",
    ("procedure", "state"): "Procedure: ",
    ("immunization", "given"): "Immunization: ",
    ("immunization", "state"): "Immunization: ",
    ("encounter", "start"): "Admitted: ",
    ("encounter", "end"): "Discharged: ",
    ("encounter", "state"): "Visit: ",
    ("observation", "start"): "Began: ",
    ("observation", "end"): "End of ",
}
_STOPPED = frozenset(("stopped", "discontinued"))
_NOT_DONE = frozenset(("not-done", "not-taken", "not given", "refused"))
"""Statuses which say that something did not happen."""
_USUAL = frozenset(("final", "completed", "finished", "confirmed"))
"""Statuses that a line does not repeat."""
_VALUE_KINDS = ("laboratory", "vital-sign", "observation")


def group_label(fact: ClinicalFact) -> str:
    """Return what the document of the fact is called: `laboratory results`, `medication orders`."""
    if fact.kind == "medication":
        return _MEDICATION_LABELS.get(fact.category, _LABELS["medication"])
    if fact.kind == "problem" and fact.category == "encounter-diagnosis":
        return "diagnoses"
    if fact.kind == "observation" and fact.category:
        return fact.category.replace("-", " ").lower()
    return _LABELS[fact.kind]


def write_line(fact: ClinicalFact, day: str, written_unit: str = "", remark: str = "") -> str:
    """Return one line that states the fact, in a document of this day, with its time of day if it has one."""
    time = fact.time or ""
    when = "" if time == day else time
    if day and time.startswith(f"{day}T"):
        when = time[11:]
    text = f"{when.replace('T', ' ')} " if when else ""
    text += _opening(fact) + fact.name
    if value := _written_value(fact, written_unit):
        text += (": " if fact.kind in _VALUE_KINDS or fact.kind == "allergy" else ", ") + value
    remarks = [fact.interpretation, f"reference {fact.reference_range}" if fact.reference_range else ""]
    if fact.kind in ("medication", "problem"):
        remarks.append(fact.category.replace("-", " "))
    if fact.status not in _USUAL:
        remarks.append(fact.status)
    if joined := "; ".join(filter(None, remarks)):
        text += f" ({joined})"
    if remark:
        text += f" {remark}"
    return " ".join(text.split())


def _opening(fact: ClinicalFact) -> str:
    if fact.status in _NOT_DONE:
        return "Not given: " if fact.kind in ("medication", "immunization") else "Not done: "
    if fact.kind == "medication" and fact.event == "end" and fact.status in _STOPPED:
        return "Stopped "
    return _OPENINGS.get((fact.kind, fact.event), "")


def _written_value(fact: ClinicalFact, written_unit: str) -> str:
    unit = written_unit or fact.unit
    if fact.kind == "medication":
        # A dose is written with its unit and route.
        return fact.value
    return f"{fact.value} {unit}" if fact.value and unit and fact.value != unit else fact.value
