"""Structured entries of a fictional record, which agree with its notes: drugs, problems, results, vital signs, stays.

    entries = list_entries(record)

Values are those of the record's laboratory reports and other notes, at the times of these notes. So an experiment with
and without structured data compares the same information. Vaccinations before the first stay are in no note.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from epicrisis.core.fact_kinds import FactKind
from epicrisis.core.ucum import to_ucum
from epicrisis.evaluation.synthesis.patient_records.facts import sentence_case
from epicrisis.evaluation.synthesis.patient_records.fictional_patient import FictionalPatient, FictionalStay
from epicrisis.evaluation.synthesis.patient_records.fictional_record import FictionalRecord
from epicrisis.evaluation.synthesis.patient_records.note_writing import FictionalNote
from epicrisis.evaluation.synthesis.patient_records.random_draws import Draws
from epicrisis.evaluation.synthesis.patient_records.vocabulary import drugs, labs

STAY = "Inpatient Visit"
"""The name of stays."""
_VITAL_SIGNS = re.compile(r"\bT (\d\d\.\d) BP (\d{2,3})/(\d{2,3}) HR (\d{2,3}) RR (\d{1,2}) SpO2 (\d{2,3})%", re.ASCII)
_VITAL_COLUMNS = (
    ("Body temperature", "loinc:8310-5", "Cel"),
    ("Systolic blood pressure", "loinc:8480-6", "mm[Hg]"),
    ("Diastolic blood pressure", "loinc:8462-4", "mm[Hg]"),
    ("Heart rate", "loinc:8867-4", "/min"),
    ("Respiratory rate", "loinc:9279-1", "/min"),
    ("Oxygen saturation", "loinc:59408-5", "%"),
)
"""Name, code and unit of the groups of `_VITAL_SIGNS`."""
_LOINC = {
    "C-reactive protein": "1988-5",
    "D-dimer": "48065-7",
    "INR": "6301-6",
    "LDL cholesterol": "13457-7",
    "NT-proBNP": "33762-6",
    "alkaline phosphatase": "6768-6",
    "bicarbonate": "1963-8",
    "calcium": "17861-6",
    "creatine kinase": "2157-6",
    "creatinine": "2160-0",
    "glucose": "2345-7",
    "hemoglobin": "718-7",
    "lactate": "2524-7",
    "lipase": "3040-3",
    "magnesium": "19123-9",
    "platelet count": "777-3",
    "potassium": "2823-3",
    "serum osmolality": "2692-2",
    "sodium": "2951-2",
    "thyrotropin": "3016-3",
    "total bilirubin": "1975-2",
    "triglycerides": "2571-8",
    "troponin T": "6598-7",
    "urea nitrogen": "3094-0",
    "uric acid": "3084-1",
    "venous pCO2": "2021-4",
    "vitamin D": "1989-3",
    "white cell count": "6690-2",
}
"""By the name of the laboratory test."""
_VACCINES = {
    "influenza": "cvx:141",
    "pneumococcal": "cvx:133",
    "tetanus": "cvx:113",
    "shingles": "cvx:187",
    "hepatitis B": "cvx:43",
}
_DAY = 10
"""Characters of an ISO date."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartEntry:
    """One structured entry of a patient, from which a reader makes a fact, and another one if it ends."""

    id: str = ""
    """Unique among all patients: `fict0-001-medication-3`. `list_entries` numbers the entries."""
    patient: str
    kind: FactKind
    name: str
    time: str
    """ISO date, or date and time to the minute."""
    end: str = ""
    """When a drug, problem or stay ended; empty if it did not."""
    value: str = ""
    """A number, or the dose and directions of a drug."""
    unit: str = ""
    """A UCUM code."""
    code: str = ""
    """`loinc:2160-0`, `cvx:141`; empty for entries that are named by words alone."""
    low: float | None = None
    high: float | None = None
    """The reference range."""
    encounter: str = ""
    """The stay, as in the notes."""
    reason: str = ""
    """Why a drug was stopped."""


def list_entries(record: FictionalRecord) -> tuple[ChartEntry, ...]:
    """Return the entries of a record by kind and time."""
    patient = record.patient
    entries: list[ChartEntry] = []
    for stay in patient.stays:
        admitted, discharged = (time.isoformat(timespec="minutes") for time in (stay.admitted, stay.discharged))
        entries.append(_make_entry(patient, "encounter", STAY, admitted, stay, end=discharged))
    entries += _problem_entries(patient)
    first = patient.stays[0]
    entries.append(_make_entry(patient, "allergy", f"Allergy to {patient.allergy}", first.day(0), first))
    entries += _medication_entries(record)
    for stay in patient.stays:
        if stay.procedure_day is not None:
            name, day = sentence_case(stay.condition.procedure), stay.day(stay.procedure_day)
            entries.append(_make_entry(patient, "procedure", name, day, stay))
    entries += _vaccination_entries(record)
    for note in record.notes:
        entries += _value_entries(patient, note)
    return tuple(_number_entries(entries))


def _make_entry(
    patient: FictionalPatient,
    kind: FactKind,
    name: str,
    time: str,
    stay: FictionalStay | None = None,
    *,
    end: str = "",
    value: str = "",
    code: str = "",
) -> ChartEntry:
    """Return an entry without a number, of a stay or of no stay."""
    encounter = "" if stay is None else f"{patient.id}-S{stay.number}"
    return ChartEntry(
        patient=patient.id, kind=kind, name=name, time=time, end=end, value=value, code=code, encounter=encounter
    )


def _number_entries(entries: list[ChartEntry]) -> Iterator[ChartEntry]:
    """Yield the entries with ids that number them by kind."""
    counts: dict[str, int] = {}
    for entry in entries:
        counts[entry.kind] = counts.get(entry.kind, 0) + 1
        yield replace(entry, id=f"{entry.patient}-{entry.kind}-{counts[entry.kind]}")


def _problem_entries(patient: FictionalPatient) -> Iterator[ChartEntry]:
    """Yield chronic conditions, since a day of the year that the notes name, and the diagnoses of stays."""
    draws = Draws("problem dates", patient.id, patient.born)
    for condition, year in patient.chronic:
        onset = datetime(year, 1, 1) + timedelta(days=draws.integer(0, 364))
        yield _make_entry(patient, "problem", condition.name, f"{onset:%Y-%m-%d}")
    for stay in patient.stays:
        yield _make_entry(patient, "problem", stay.condition.name, stay.day(0), stay, end=stay.day(stay.days))


def _medication_entries(record: FictionalRecord) -> Iterator[ChartEntry]:
    """Yield a course for each dose of a drug.

    Home drugs begin on the day of the first admission, when they are recorded; a new dose on the day of its change; and
    other drugs at discharge. A drug that is not continued ends at discharge.
    """
    patient = record.patient
    days = {fact.key: fact.day for fact in record.facts}
    courses: dict[str, ChartEntry] = {}
    for stay in patient.stays:
        last_day = stay.day(stay.days)
        for drug, dose in stay.home.items():
            if drug not in courses:
                courses[drug] = _start_course(patient, drug, dose, stay.day(0), stay)
        for change in stay.changes:
            drug = change.drug.name
            day = days[f"change:{drug}:{stay.number}"]
            yield replace(courses[drug], end=day, reason="dose changed")
            courses[drug] = _start_course(patient, drug, change.after, day, stay)
        for drug in tuple(courses):
            if drug not in stay.regimen:
                yield replace(courses.pop(drug), end=last_day, reason="not continued")
        for drug, dose in stay.regimen.items():
            if drug not in courses:
                courses[drug] = _start_course(patient, drug, dose, last_day, stay)
    yield from courses.values()


def _start_course(patient: FictionalPatient, drug: str, dose: str, day: str, stay: FictionalStay) -> ChartEntry:
    return _make_entry(patient, "medication", drug, day, stay, value=f"{dose} {drugs()[drug].how}")


def _vaccination_entries(record: FictionalRecord) -> Iterator[ChartEntry]:
    """Yield two vaccinations before the first stay, and those that letters of a clinic report."""
    patient = record.patient
    draws = Draws("vaccinations", patient.id, patient.born)
    for vaccine in draws.sample(list(_VACCINES), 2):
        day = patient.stays[0].admitted - timedelta(days=draws.integer(30, 900))
        yield _vaccination(patient, vaccine, f"{day:%Y-%m-%d}")
    for fact in record.facts:
        vaccine, is_vaccination, _ = fact.answer.partition(" vaccine, lot")
        if is_vaccination:
            for note in record.notes:
                if fact.key in {span.key for span in note.spans}:
                    yield _vaccination(patient, vaccine, note.time[:_DAY])


def _vaccination(patient: FictionalPatient, vaccine: str, day: str) -> ChartEntry:
    return _make_entry(patient, "immunization", f"{vaccine} vaccine", day, code=_VACCINES[vaccine])


def _value_entries(patient: FictionalPatient, note: FictionalNote) -> Iterator[ChartEntry]:
    """Yield the laboratory values and vital signs that a note reports."""
    stay = note.stay
    vital_sign = ChartEntry(patient=patient.id, kind="vital-sign", name="", time=note.time, encounter=note.encounter)
    if note.kind == "Laboratory report":
        day = (datetime.fromisoformat(note.time).date() - stay.admitted.date()).days
        for test, values in stay.values.items():
            lab = labs()[test]
            unit = to_ucum(lab.unit) or lab.unit
            yield replace(
                vital_sign,
                kind="laboratory",
                name=sentence_case(test),
                value=f"{values[day]:g}",
                unit=unit,
                code=f"loinc:{_LOINC[test]}",
                low=lab.low,
                high=lab.high,
            )
    if note.kind in ("Admission note", "Discharge summary"):
        weight = stay.weights[0] if note.kind == "Admission note" else stay.weights[1]
        yield replace(
            vital_sign, name="Body weight", value=f"{weight:.1f}".removesuffix(".0"), unit="kg", code="loinc:29463-7"
        )
    match = _VITAL_SIGNS.search(note.text)
    for (name, code, unit), value in zip(_VITAL_COLUMNS, match.groups() if match else (), strict=False):
        yield replace(vital_sign, name=name, value=f"{float(value):g}", unit=unit, code=code)
