"""Write the structured entries of a fictional patient as a C-CDA continuity of care document with tables as narrative.

    data = build_document(patient, entries)

Each kind of entry has its section. Its table has a row for each entry; there are no coded entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree

from epicrisis.evaluation.synthesis.patient_records.chart_entries import ChartEntry
from epicrisis.evaluation.synthesis.patient_records.fictional_patient import FictionalPatient

_NAMESPACE = "urn:hl7-org:v3"
_TEMPLATES = "2.16.840.1.113883.10.20.22"
_LOINC = "2.16.840.1.113883.6.1"
_FICTIONAL_ROOT = "2.16.840.1.113883.19.5"
"""HL7's root for examples."""
_VALUE_COLUMNS = ("Result", "Unit", "Reference range", "Time", "Stay")
_SECTIONS = (
    ("encounter", "Encounters", "22.1", "46240-8", ("Encounter", "Admitted", "Discharged", "Stay")),
    ("allergy", "Allergies", "6.1", "48765-2", ("Substance", "Recorded", "Stay")),
    ("problem", "Problems", "5.1", "11450-4", ("Problem", "Onset", "End", "Stay")),
    ("medication", "Medications", "1.1", "10160-0", ("Drug", "Directions", "Start", "End", "Reason", "Stay")),
    ("procedure", "Procedures", "7.1", "47519-4", ("Procedure", "Date", "Stay")),
    ("immunization", "Immunizations", "2.1", "11369-6", ("Vaccine", "Date")),
    ("laboratory", "Results", "3.1", "30954-2", ("Test", *_VALUE_COLUMNS)),
    ("vital-sign", "Vital signs", "4.1", "8716-3", ("Vital sign", *_VALUE_COLUMNS)),
)
"""Kind, title, template, LOINC code and columns of each section."""


def build_document(patient: FictionalPatient, entries: Sequence[ChartEntry]) -> bytes:
    """Return the document as UTF-8."""
    root = ElementTree.Element("ClinicalDocument", xmlns=_NAMESPACE)
    _add(root, "realmCode", code="US")
    _add(root, "typeId", root="2.16.840.1.113883.1.3", extension="POCD_HD000040")
    _add(root, "templateId", root=f"{_TEMPLATES}.1.2", extension="2015-08-01")
    _add(root, "id", root=_FICTIONAL_ROOT, extension=f"{patient.id}-summary")
    _add(root, "code", code="34133-9", codeSystem=_LOINC, displayName="Summary of care")
    _add(root, "title").text = "Summary of a fictional patient"
    _add(root, "effectiveTime", value=f"{patient.stays[-1].discharged:%Y%m%d%H%M}")
    _add(root, "confidentialityCode", code="N", codeSystem="2.16.840.1.113883.5.25")
    _add(root, "languageCode", code="en-US")
    _add_patient(root, patient)
    body = _add(_add(root, "component"), "structuredBody")
    for kind, title, template, code, columns in _SECTIONS:
        rows = [write_row(entry) for entry in entries if entry.kind == kind]
        section = _add(_add(body, "component"), "section")
        _add(section, "templateId", root=f"{_TEMPLATES}.2.{template}")
        _add(section, "code", code=code, codeSystem=_LOINC)
        _add(section, "title").text = title
        _add_table(_add(section, "text"), columns, rows)
    ElementTree.indent(root)
    data: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return data


def write_row(entry: ChartEntry) -> tuple[str, ...]:
    """Return the cells of an entry in the columns of its section."""
    time, end = entry.time.replace("T", " "), entry.end.replace("T", " ")
    match entry.kind:
        case "encounter" | "problem":
            return entry.name, time, end, entry.encounter
        case "medication":
            return entry.name, entry.value, time, end, entry.reason, entry.encounter
        case "immunization":
            return entry.name, time
        case "laboratory" | "vital-sign":
            interval = "" if entry.low is None or entry.high is None else f"{entry.low:g} to {entry.high:g}"
            return entry.name, entry.value, entry.unit, interval, time, entry.encounter
        case _:
            return entry.name, time, entry.encounter


def _add(parent: ElementTree.Element, tag: str, **attributes: str) -> ElementTree.Element:
    return ElementTree.SubElement(parent, tag, attributes)


def _add_patient(root: ElementTree.Element, patient: FictionalPatient) -> None:
    role = _add(_add(root, "recordTarget"), "patientRole")
    _add(role, "id", root=_FICTIONAL_ROOT, extension=patient.id)
    person = _add(role, "patient")
    given, family = patient.name.split(" ", 1)
    name = _add(person, "name", use="L")
    _add(name, "given").text = given
    _add(name, "family").text = family
    gender = "F" if patient.female else "M"
    _add(person, "administrativeGenderCode", code=gender, codeSystem="2.16.840.1.113883.5.1")
    _add(person, "birthTime", value=str(patient.born))


def _add_table(text: ElementTree.Element, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    if not rows:
        _add(text, "paragraph").text = "None recorded"
        return
    table = _add(text, "table")
    header = _add(_add(table, "thead"), "tr")
    for column in columns:
        _add(header, "th").text = column
    body = _add(table, "tbody")
    for row in rows:
        line = _add(body, "tr")
        for cell in row:
            _add(line, "td").text = cell
