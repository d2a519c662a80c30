"""Write the structured entries of a fictional patient as a C-CDA R2.1 continuity of care document.

    data = build_document(patient, entries)

Each kind of entry has its section: a table as narrative, and coded entries that refer to its cells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import TypeAlias
from xml.etree import ElementTree

from epicrisis.core.fact_kinds import FactKind
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


FICTIONAL_ROOT = "2.16.840.1.113883.19.5"
"""HL7's root for examples."""
TEMPLATES = "2.16.840.1.113883.10.20.22"
_SNOMED = "2.16.840.1.113883.6.96"
_ACT_CODES, _ACT_CLASSES = "2.16.840.1.113883.5.4", "2.16.840.1.113883.5.6"
_SYSTEMS = {"loinc": _LOINC, "cvx": "2.16.840.1.113883.12.292"}
_DAY = 10
"""Characters of an ISO date."""
_Element: TypeAlias = ElementTree.Element


def add(parent: _Element, tag: str, **attributes: str) -> _Element:
    """Return a new element within its parent."""
    return ElementTree.SubElement(parent, tag, attributes)


def add_template(element: _Element, number: str, version: str = "") -> None:
    """Name the template of an element, and its version if it has one."""
    add(element, "templateId", root=f"{TEMPLATES}.{number}", **({"extension": version} if version else {}))


def add_entries(section: _Element, entries: Sequence[ChartEntry]) -> None:
    """Write the coded entries of a section, all of one kind. Values of one time are one organizer."""
    if not entries:
        return
    if entries[0].kind in _ORGANIZERS:
        for _, values in groupby(entries, lambda entry: (entry.time, entry.encounter)):
            _add_organizer(add(section, "entry", typeCode="DRIV"), list(values))
        return
    for entry in entries:
        _WRITERS[entry.kind](add(section, "entry", typeCode="DRIV"), entry)


def _write_time(time: str) -> str:
    """Return a time of HL7: `20150622083000+0000`, or a day."""
    digits = time.replace("-", "").replace(":", "").replace("T", "")
    return f"{digits}00+0000" if len(time) > _DAY else digits


def _add_id(element: _Element, entry: ChartEntry) -> None:
    number = entry.encounter if entry.kind == "encounter" else entry.id
    add(element, "id", root=FICTIONAL_ROOT, extension=number)


def _add_reference(parent: _Element, tag: str, entry: ChartEntry, cell: str = "name") -> None:
    add(add(parent, tag), "reference", value=f"#{entry.id}-{cell}")


def _add_concept(parent: _Element, entry: ChartEntry, tag: str = "code") -> None:
    """Write the code of an entry, or that it has none, and where the narrative names it."""
    if entry.code:
        system, _, code = entry.code.partition(":")
        element = add(parent, tag, code=code, codeSystem=_SYSTEMS[system], displayName=entry.name)
    else:
        element = add(parent, tag, nullFlavor="UNK")
    if tag == "value":
        element.set("xsi:type", "CD")
    _add_reference(element, "originalText", entry)


def _add_interval(parent: _Element, start: str, end: str) -> _Element:
    """Write a time from start to end. Without a start the beginning is unknown."""
    time = add(parent, "effectiveTime")
    if start:
        add(time, "low", value=_write_time(start))
    else:
        add(time, "low", nullFlavor="UNK")
    if end:
        add(time, "high", value=_write_time(end))
    return time


def _add_stay(statement: _Element, entry: ChartEntry) -> None:
    """Name the encounter of an entry by the id of its entry in the section of encounters."""
    if not entry.encounter:
        return
    relation = add(statement, "entryRelationship", typeCode="COMP", inversionInd="true")
    encounter = add(relation, "encounter", classCode="ENC", moodCode="EVN")
    add(encounter, "id", root=FICTIONAL_ROOT, extension=entry.encounter)


def _add_encounter(parent: _Element, entry: ChartEntry) -> None:
    encounter = add(parent, "encounter", classCode="ENC", moodCode="EVN")
    add_template(encounter, "4.49", "2015-08-01")
    _add_id(encounter, entry)
    code = add(encounter, "code", nullFlavor="UNK")
    _add_reference(code, "originalText", entry)
    add(code, "translation", code="IMP", codeSystem=_ACT_CODES, displayName="inpatient encounter")
    _add_interval(encounter, entry.time, entry.end)


def _add_concern(parent: _Element, entry: ChartEntry, template: str, status: str) -> _Element:
    """Return the observation within a new act of concern, which is active as long as its problem."""
    act = add(parent, "act", classCode="ACT", moodCode="EVN")
    add_template(act, template, "2015-08-01")
    add(act, "id", root=FICTIONAL_ROOT, extension=f"{entry.id}-concern")
    add(act, "code", code="CONC", codeSystem=_ACT_CLASSES)
    add(act, "statusCode", code=status)
    _add_interval(act, entry.time, entry.end)
    relation = add(act, "entryRelationship", typeCode="SUBJ")
    return add(relation, "observation", classCode="OBS", moodCode="EVN")


def _add_problem(parent: _Element, entry: ChartEntry) -> None:
    observation = _add_concern(parent, entry, "4.3", "completed" if entry.end else "active")
    add_template(observation, "4.4", "2015-08-01")
    _add_id(observation, entry)
    add(observation, "code", code="55607006", codeSystem=_SNOMED, displayName="Problem")
    add(observation, "statusCode", code="completed")
    _add_interval(observation, entry.time, entry.end)
    _add_concept(observation, entry, "value")
    _add_stay(observation, entry)


def _add_allergy(parent: _Element, entry: ChartEntry) -> None:
    """Write an allergy that was recorded at the entry's time; when it began is unknown."""
    observation = _add_concern(parent, entry, "4.30", "active")
    add_template(observation, "4.7", "2014-06-09")
    _add_id(observation, entry)
    add(observation, "code", code="ASSERTION", codeSystem=_ACT_CODES)
    add(observation, "statusCode", code="completed")
    _add_interval(observation, "", "")
    value = add(observation, "value", code="419199007", codeSystem=_SNOMED, displayName="Allergy to substance")
    value.set("xsi:type", "CD")
    author = add(observation, "author")
    add(author, "time", value=_write_time(entry.time))
    add(add(author, "assignedAuthor"), "id", nullFlavor="UNK")
    role = add(add(observation, "participant", typeCode="CSM"), "participantRole", classCode="MANU")
    _add_concept(add(role, "playingEntity", classCode="MMAT"), entry)
    _add_stay(observation, entry)


def _add_product(statement: _Element, entry: ChartEntry, template: str) -> None:
    product = add(add(statement, "consumable"), "manufacturedProduct", classCode="MANU")
    add_template(product, template, "2014-06-09")
    _add_concept(add(product, "manufacturedMaterial"), entry)


def _add_medication(parent: _Element, entry: ChartEntry) -> None:
    """Write a course. Its directions are free text, as in the record."""
    drug = add(parent, "substanceAdministration", classCode="SBADM", moodCode="EVN")
    add_template(drug, "4.16", "2014-06-09")
    _add_id(drug, entry)
    add(drug, "statusCode", code="completed" if entry.end else "active")
    _add_interval(drug, entry.time, entry.end).set("xsi:type", "IVL_TS")
    add(drug, "doseQuantity", nullFlavor="NI")
    _add_product(drug, entry, "4.23")
    relation = add(drug, "entryRelationship", typeCode="COMP")
    directions = add(relation, "substanceAdministration", classCode="SBADM", moodCode="INT")
    add_template(directions, "4.147")
    add(directions, "code", code="76662-6", codeSystem=_LOINC, displayName="Instructions Medication")
    _add_reference(directions, "text", entry, "value")
    add(add(add(directions, "consumable"), "manufacturedProduct"), "manufacturedLabeledDrug", nullFlavor="NA")
    if entry.reason:
        comment = add(add(drug, "entryRelationship", typeCode="SUBJ", inversionInd="true"), "act")
        comment.attrib.update(classCode="ACT", moodCode="EVN")
        add_template(comment, "4.64")
        add(comment, "code", code="48767-8", codeSystem=_LOINC, displayName="Annotation comment")
        add(comment, "text").text = entry.reason
    _add_stay(drug, entry)


def _add_procedure(parent: _Element, entry: ChartEntry) -> None:
    procedure = add(parent, "procedure", classCode="PROC", moodCode="EVN")
    add_template(procedure, "4.14", "2014-06-09")
    _add_id(procedure, entry)
    _add_concept(procedure, entry)
    add(procedure, "statusCode", code="completed")
    add(procedure, "effectiveTime", value=_write_time(entry.time))
    _add_stay(procedure, entry)


def _add_immunization(parent: _Element, entry: ChartEntry) -> None:
    dose = add(parent, "substanceAdministration", classCode="SBADM", moodCode="EVN", negationInd="false")
    add_template(dose, "4.52", "2015-08-01")
    _add_id(dose, entry)
    add(dose, "statusCode", code="completed")
    add(dose, "effectiveTime", value=_write_time(entry.time))
    _add_product(dose, entry, "4.54")
    _add_stay(dose, entry)


def _add_organizer(parent: _Element, entries: Sequence[ChartEntry]) -> None:
    """Write the values of one time, each as an observation."""
    head = entries[0]
    class_code, template, code, system, observation_template = _ORGANIZERS[head.kind]
    organizer = add(parent, "organizer", classCode=class_code, moodCode="EVN")
    add_template(organizer, template, "2015-08-01")
    add(organizer, "id", root=FICTIONAL_ROOT, extension=f"{head.id}-organizer")
    if code:
        add(organizer, "code", code=code, codeSystem=system)
    else:
        add(organizer, "code", nullFlavor="UNK")
    add(organizer, "statusCode", code="completed")
    _add_interval(organizer, head.time, head.time)
    for entry in entries:
        observation = add(add(organizer, "component"), "observation", classCode="OBS", moodCode="EVN")
        add_template(observation, observation_template, "2015-08-01")
        _add_id(observation, entry)
        _add_concept(observation, entry)
        add(observation, "statusCode", code="completed")
        add(observation, "effectiveTime", value=_write_time(entry.time))
        _add_quantity(observation, entry.value, entry.unit)
        _add_range(observation, entry)
        _add_stay(observation, entry)


def _add_quantity(parent: _Element, number: str, unit: str, tag: str = "value") -> None:
    # A number without a unit has the unit 1.
    quantity = add(parent, tag, value=number, unit=unit or "1")
    if tag == "value":
        quantity.set("xsi:type", "PQ")


def _add_range(observation: _Element, entry: ChartEntry) -> None:
    if entry.low is None or entry.high is None:
        return
    value = add(add(add(observation, "referenceRange"), "observationRange"), "value")
    value.set("xsi:type", "IVL_PQ")
    _add_quantity(value, f"{entry.low:g}", entry.unit, "low")
    _add_quantity(value, f"{entry.high:g}", entry.unit, "high")


_ORGANIZERS: Mapping[FactKind, tuple[str, str, str, str, str]] = {
    "laboratory": ("BATTERY", "4.1", "", "", "4.2"),
    "vital-sign": ("CLUSTER", "4.26", "46680005", _SNOMED, "4.27"),
}
"""Class, template, code and its system of the organizers of each kind, and the template of their observations."""
_WRITERS: Mapping[FactKind, Callable[[_Element, ChartEntry], None]] = {
    "encounter": _add_encounter,
    "problem": _add_problem,
    "allergy": _add_allergy,
    "medication": _add_medication,
    "procedure": _add_procedure,
    "immunization": _add_immunization,
}
