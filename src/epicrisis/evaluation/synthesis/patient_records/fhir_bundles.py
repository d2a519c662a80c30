"""Write the structured entries of a fictional patient as a FHIR R4 bundle.

bundle = build_bundle(patient, entries)    # JSON data
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from epicrisis.evaluation.synthesis.patient_records.chart_entries import ChartEntry
from epicrisis.evaluation.synthesis.patient_records.fictional_patient import FictionalPatient

_Fields: TypeAlias = dict[str, Any]
_SYSTEMS = {"loinc": "http://loinc.org", "cvx": "http://hl7.org/fhir/sid/cvx"}
_UCUM = "http://unitsofmeasure.org"
_TERMINOLOGY = "http://terminology.hl7.org/CodeSystem"
_ADDRESS = "https://fictional.example/fhir"
_DAY = 10
"""Characters of an ISO date."""


def build_bundle(patient: FictionalPatient, entries: Iterable[ChartEntry]) -> _Fields:
    """Return a bundle with the patient and a resource for each entry."""
    given, family = patient.name.split(" ", 1)
    resources: list[_Fields] = [
        {
            "resourceType": "Patient",
            "id": patient.id,
            "name": [{"given": [given], "family": family}],
            "gender": "female" if patient.female else "male",
            "birthDate": str(patient.born),
        }
    ]
    resources += map(_build_resource, entries)
    members = []
    for resource in resources:
        address = f"{_ADDRESS}/{resource['resourceType']}/{resource['id']}"
        members.append({"fullUrl": address, "resource": resource})
    return {"resourceType": "Bundle", "id": patient.id, "type": "collection", "entry": members}


def _build_resource(entry: ChartEntry) -> _Fields:
    resource_type, build = _BUILDERS[entry.kind]
    subject = "patient" if resource_type in ("AllergyIntolerance", "Immunization") else "subject"
    resource: _Fields = {
        "resourceType": resource_type,
        "id": entry.encounter if entry.kind == "encounter" else entry.id,
        subject: {"reference": f"Patient/{entry.patient}"},
    }
    if entry.encounter and entry.kind != "encounter":
        resource["encounter"] = {"reference": f"Encounter/{entry.encounter}"}
    return resource | build(entry)


def _write_time(time: str) -> str:
    """Return a dateTime, which has seconds and a zone unless it is a date."""
    return f"{time}:00+00:00" if len(time) > _DAY else time


def _write_concept(entry: ChartEntry) -> _Fields:
    if not entry.code:
        return {"text": entry.name}
    system, _, code = entry.code.partition(":")
    return {"coding": [{"system": _SYSTEMS[system], "code": code, "display": entry.name}], "text": entry.name}


def _write_status(name: str, code: str) -> _Fields:
    return {"coding": [{"system": f"{_TERMINOLOGY}/{name}", "code": code}]}


def _write_quantity(value: float, unit: str) -> _Fields:
    # JSON distinguishes 2 from 2.0, and readers show what it says.
    number = int(value) if value == int(value) else value
    quantity: _Fields = {"value": number}
    if unit:
        quantity |= {"unit": unit, "system": _UCUM, "code": unit}
    return quantity


def _build_encounter(entry: ChartEntry) -> _Fields:
    return {
        "status": "finished",
        "class": {"system": f"{_TERMINOLOGY}/v3-ActCode", "code": "IMP", "display": "inpatient encounter"},
        "type": [{"text": entry.name}],
        "period": {"start": _write_time(entry.time), "end": _write_time(entry.end)},
    }


def _build_condition(entry: ChartEntry) -> _Fields:
    category = "encounter-diagnosis" if entry.encounter else "problem-list-item"
    fields: _Fields = {
        "clinicalStatus": _write_status("condition-clinical", "resolved" if entry.end else "active"),
        "verificationStatus": _write_status("condition-ver-status", "confirmed"),
        "category": [_write_status("condition-category", category)],
        "code": _write_concept(entry),
        "onsetDateTime": entry.time,
    }
    return fields | ({"abatementDateTime": entry.end} if entry.end else {})


def _build_allergy(entry: ChartEntry) -> _Fields:
    return {
        "clinicalStatus": _write_status("allergyintolerance-clinical", "active"),
        "verificationStatus": _write_status("allergyintolerance-verification", "confirmed"),
        "code": _write_concept(entry),
        "recordedDate": entry.time,
    }


def _build_request(entry: ChartEntry) -> _Fields:
    dosage: _Fields = {"text": entry.value}
    fields: _Fields = {
        "status": "stopped" if entry.end else "active",
        "intent": "order",
        "medicationCodeableConcept": _write_concept(entry),
        "authoredOn": entry.time,
        "dosageInstruction": [dosage],
    }
    if entry.end:
        dosage["timing"] = {"repeat": {"boundsPeriod": {"start": entry.time, "end": entry.end}}}
        fields["statusReason"] = {"text": entry.reason}
    return fields


def _build_procedure(entry: ChartEntry) -> _Fields:
    return {"status": "completed", "code": _write_concept(entry), "performedDateTime": entry.time}


def _build_immunization(entry: ChartEntry) -> _Fields:
    return {"status": "completed", "vaccineCode": _write_concept(entry), "occurrenceDateTime": entry.time}


def _build_observation(entry: ChartEntry) -> _Fields:
    category = "laboratory" if entry.kind == "laboratory" else "vital-signs"
    fields: _Fields = {
        "status": "final",
        "category": [_write_status("observation-category", category)],
        "code": _write_concept(entry),
        "effectiveDateTime": _write_time(entry.time),
        "valueQuantity": _write_quantity(float(entry.value), entry.unit),
    }
    if entry.low is not None and entry.high is not None:
        low, high = _write_quantity(entry.low, entry.unit), _write_quantity(entry.high, entry.unit)
        fields["referenceRange"] = [{"low": low, "high": high}]
    return fields


_BUILDERS: Mapping[str, tuple[str, Callable[[ChartEntry], _Fields]]] = {
    "encounter": ("Encounter", _build_encounter),
    "problem": ("Condition", _build_condition),
    "allergy": ("AllergyIntolerance", _build_allergy),
    "medication": ("MedicationRequest", _build_request),
    "procedure": ("Procedure", _build_procedure),
    "immunization": ("Immunization", _build_immunization),
    "laboratory": ("Observation", _build_observation),
    "vital-sign": ("Observation", _build_observation),
}
"""The type of resource of each kind of entry, and its fields."""
