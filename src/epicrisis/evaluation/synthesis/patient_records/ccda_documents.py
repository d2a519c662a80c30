"""Write the structured entries of a fictional patient as a C-CDA R2.1 continuity of care document.

    data = build_document(patient, entries)

Each kind of entry has its section: a table as narrative, and coded entries (`ccda_entries`) that refer to its cells.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from xml.etree import ElementTree

from epicrisis.evaluation.synthesis.patient_records.ccda_entries import (
    FICTIONAL_ROOT,
    TEMPLATES,
    add,
    add_entries,
    add_template,
)
from epicrisis.evaluation.synthesis.patient_records.chart_entries import ChartEntry
from epicrisis.evaluation.synthesis.patient_records.fictional_patient import FictionalPatient

_NAMESPACE = "urn:hl7-org:v3"
_SCHEMA_INSTANCE = "http://www.w3.org/2001/XMLSchema-instance"
_LOINC = "2.16.840.1.113883.6.1"
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
    root = ElementTree.Element("ClinicalDocument", {"xmlns": _NAMESPACE, "xmlns:xsi": _SCHEMA_INSTANCE})
    add(root, "realmCode", code="US")
    add(root, "typeId", root="2.16.840.1.113883.1.3", extension="POCD_HD000040")
    add_template(root, "1.2", "2015-08-01")
    add(root, "id", root=FICTIONAL_ROOT, extension=f"{patient.id}-summary")
    add(root, "code", code="34133-9", codeSystem=_LOINC, displayName="Summary of care")
    add(root, "title").text = "Summary of a fictional patient"
    add(root, "effectiveTime", value=f"{patient.stays[-1].discharged:%Y%m%d%H%M}+0000")
    add(root, "confidentialityCode", code="N", codeSystem="2.16.840.1.113883.5.25")
    add(root, "languageCode", code="en-US")
    _add_patient(root, patient)
    body = add(add(root, "component"), "structuredBody")
    for kind, title, template, code, columns in _SECTIONS:
        rows = [entry for entry in entries if entry.kind == kind]
        section = add(add(body, "component"), "section")
        if not rows:
            section.set("nullFlavor", "NI")
        add(section, "templateId", root=f"{TEMPLATES}.2.{template}", extension="2015-08-01")
        add(section, "code", code=code, codeSystem=_LOINC)
        add(section, "title").text = title
        _add_table(add(section, "text"), columns, rows)
        add_entries(section, rows)
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


def _add_patient(root: ElementTree.Element, patient: FictionalPatient) -> None:
    role = add(add(root, "recordTarget"), "patientRole")
    add(role, "id", root=FICTIONAL_ROOT, extension=patient.id)
    person = add(role, "patient")
    first_name, family = patient.name.split(" ", 1)
    name = add(person, "name", use="L")
    add(name, "given").text = first_name
    add(name, "family").text = family
    gender = "F" if patient.female else "M"
    add(person, "administrativeGenderCode", code=gender, codeSystem="2.16.840.1.113883.5.1")
    add(person, "birthTime", value=f"{patient.born}".replace("-", ""))


def _add_table(text: ElementTree.Element, columns: Sequence[str], entries: Iterable[ChartEntry]) -> None:
    """Write a row for each entry. Its first cells have the ids to which coded entries refer."""
    entries = list(entries)
    if not entries:
        add(text, "paragraph").text = "None recorded"
        return
    table = add(text, "table")
    header = add(add(table, "thead"), "tr")
    for column in columns:
        add(header, "th").text = column
    body = add(table, "tbody")
    for entry in entries:
        line = add(body, "tr")
        ids = (f"{entry.id}-name", f"{entry.id}-value" if entry.kind == "medication" else "")
        for number, cell in enumerate(write_row(entry)):
            id_ = ids[number] if number < len(ids) else ""
            add(line, "td", **({"ID": id_} if id_ else {})).text = cell
