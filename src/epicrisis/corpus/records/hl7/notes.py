"""Take patients, stays, texts and results from messages of HL7 v2: ORU (results and reports) and MDM (documents).

A group of results with texts and no numbers is a report. Other results are structured facts, see `facts`.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass, field, replace

from epicrisis.corpus import sandbox
from epicrisis.corpus.base.patient_numbers import StatedPerson
from epicrisis.corpus.documents.embedded_files import EmbeddedText, detect_embedded
from epicrisis.corpus.records.facts.fact_values import FactValue, parse_value
from epicrisis.corpus.records.facts.times import read_fact_time
from epicrisis.corpus.records.hl7.hl7_values import identifier_system, iso_time
from epicrisis.corpus.records.hl7.messages import Hl7Message, Hl7Segment

TEXT_KINDS = ("ORU", "OUL", "MDM")
STATEMENTS = frozenset(("AL1", "IAM", "DG1", "PRB", "PR1", "RXA", "RXD", "RXE", "RXO"))
"""Segments that state facts other than results, see `statements`."""
_STATUSES = {
    "C": "corrected",
    "A": "amended",
    "P": "preliminary",
    "R": "preliminary",
    "S": "preliminary",
    "I": "registered",
    "D": "entered-in-error",
    "W": "entered-in-error",
    "X": "cancelled",
}
"""OBX-11 and OBR-25 in FHIR's words; others are final."""
_STAY_CLASSES = frozenset("IEB")
_VISIT_CLASSES = frozenset("OPRCNU")
_FILE_TYPES = ("ED", "RP")
_TEXT_TYPES = ("TX", "FT", *_FILE_TYPES)
_NUMBER_TYPES = ("NM", "SN")
_CODED_TYPES = ("CE", "CWE", "CNE", "CF", "IS", "ID")
WITHDRAWN = ("entered-in-error", "cancelled")
"""Statuses of results that state nothing."""
_SECONDS = re.compile(r"(T\d\d:\d\d):00")
_CLOCK = re.compile(r"^(\d\d)(\d\d)")
_EXPONENT = re.compile(r"\d{1,2}/")
_READ_SEGMENTS = frozenset(
    (
        *("MSH", "PID", "PV1", "OBR", "OBX", "NTE", "TXA", "EVN", "ORC", "PD1", "PV2", "SFT", "UAC", "SPM"),
        *("TQ1", "TQ2", "CTI", "PRT", "ROL"),
    )
)


@dataclass(frozen=True, slots=True)
class Hl7Visit:
    """The encounter of a message; `is_stay` for one in a hospital."""

    id: str = ""
    admitted: str = ""
    discharged: str = ""
    is_stay: bool = False


@dataclass(frozen=True, slots=True)
class Hl7Group:
    """The results of one order, or a document, with its patient and visit."""

    person: StatedPerson
    visit: Hl7Visit
    order: Hl7Segment | None = None
    """OBR, or TXA of a document."""
    results: list[tuple[Hl7Segment, list[Hl7Segment]]] = field(default_factory=list)
    """OBX segments with their NTE."""
    comments: list[Hl7Segment] = field(default_factory=list)


def read_groups(message: Hl7Message) -> tuple[list[Hl7Group], dict[str, int]]:
    """Return the groups of a message, and how many segments of each other name it has.

    Raises ValueError with the reason if a result comes before the patient.
    """
    groups, others = _collect_groups(message)
    parts: list[Hl7Group] = []
    for group in groups:
        parts += _separate_files(group)
    return parts, others


def _collect_groups(message: Hl7Message) -> tuple[list[Hl7Group], dict[str, int]]:
    groups: list[Hl7Group] = []
    others: dict[str, int] = {}
    person: StatedPerson | None = None
    group: Hl7Group | None = None
    visit = Hl7Visit()
    for segment in message.segments:
        if segment.name == "PID":
            person, visit, group = read_person(segment, message.header), Hl7Visit(), None
            account = segment.text(18)
            visit = replace(visit, id=account)
        elif segment.name == "PV1":
            visit = read_visit(segment, visit.id)
        elif segment.name in ("OBR", "TXA", "OBX"):
            if person is None:
                raise ValueError("names no patient before its results, and every note needs one; export it with PID")
            if segment.name != "OBX" or group is None:
                group = Hl7Group(person, visit, segment if segment.name != "OBX" else None)
                groups.append(group)
            if segment.name == "OBX":
                group.results.append((segment, []))
        elif segment.name == "NTE" and group is not None:
            comments = group.results[-1][1] if group.results else group.comments
            comments.append(segment)
        elif segment.name not in (*_READ_SEGMENTS, *STATEMENTS) or segment.name == "NTE":
            name = "NTE before the results" if segment.name == "NTE" else f"{segment.name[:3]} segment"
            others[name] = others.get(name, 0) + 1
    return groups, others


def _separate_files(group: Hl7Group) -> list[Hl7Group]:
    """Return the group, and the files among its numbers as a report: laboratories send one as a PDF with its values."""
    files = [item for item in group.results if item[0].text(2).upper() in _FILE_TYPES]
    if not files or is_report(group) or _is_document(group):
        return [group]
    values = [item for item in group.results if item not in files]
    return [replace(group, results=values), replace(group, results=files, comments=[])]


def _is_document(group: Hl7Group) -> bool:
    return group.order is not None and group.order.name == "TXA"


def read_person(segment: Hl7Segment, header: Hl7Segment) -> StatedPerson:
    """Return the patient of a PID segment. A number without an authority belongs to the sending facility."""
    facility = header.text(4) or header.text(3)
    numbers: list[tuple[str, str]] = []
    for source in (3, 2, 4):
        for repetition in segment.repetitions(source):
            value = repetition[0].strip()
            authority = repetition[3].split(segment.delimiters.subcomponent) if len(repetition) > 3 else []
            universal = authority[1] if len(authority) > 1 else ""
            system = identifier_system(universal or (authority[0] if authority else "")) or facility
            kind = repetition[4].strip() if len(repetition) > 4 else ""
            if value and kind not in ("AN", "VN"):
                numbers.append((kind if kind in ("SS", "DL") else system, value))
        if numbers:
            break
    names: list[str] = []
    for name in segment.repetitions(5):
        family = name[0].partition(segment.delimiters.subcomponent)[0]
        parts = (*name[1:3], family)
        names.append(" ".join(filter(None, (part.strip() for part in parts))))
    born = read_fact_time(iso_time(segment.text(7)))[:10]
    return StatedPerson(tuple(dict.fromkeys(numbers)), tuple(filter(None, dict.fromkeys(names))), born)


def read_visit(segment: Hl7Segment, account: str) -> Hl7Visit:
    """Return the visit of a PV1 segment; `account` is its id if the segment has none."""
    admitted, discharged = iso_time(segment.text(44)), iso_time(segment.text(45))
    patient_class = segment.text(2).upper()
    is_stay = patient_class in _STAY_CLASSES or (patient_class not in _VISIT_CLASSES and bool(admitted or discharged))
    return Hl7Visit(segment.text(19) or account, admitted, discharged, is_stay)


def is_report(group: Hl7Group) -> bool:
    """Return whether the group's results are a text, without measured values."""
    results = [result for result, _ in group.results]
    return any(result.text(2).upper() in _TEXT_TYPES for result in results) and not any(map(_is_measured, results))


def _is_measured(result: Hl7Segment) -> bool:
    """Return whether a result is a number, or a string (ST) with a unit or a reference range."""
    kind = result.text(2).upper()
    return kind in _NUMBER_TYPES or (kind not in _TEXT_TYPES and bool(result.text(6) or result.text(7)))


def result_status(segment: Hl7Segment, field_number: int) -> str:
    """Return the status of a result or an order in FHIR's words."""
    return _STATUSES.get(segment.text(field_number).upper(), "final")


def order_id(order: Hl7Segment | None, header: Hl7Segment) -> str:
    """Return what names an order in later messages: the filler's number, else the placer's, and what was ordered."""
    if order is None:
        return ""
    number = next(filter(None, (order.text(3), order.text(2))), "")
    return ":".join((header.text(4) or header.text(3), number, order.text(4))) if number else ""


def concept_name(segment: Hl7Segment, field_number: int) -> str:
    """Return the words of a coded field, else its code."""
    return next(filter(None, (segment.text(field_number, component) for component in (2, 9, 5, 1, 4))), "")


def person_name(segment: Hl7Segment, field_number: int) -> str:
    """Return `Ada Byron` for `123^Byron^Ada`."""
    family = segment.text(field_number, 2).partition(segment.delimiters.subcomponent)[0]
    return " ".join(filter(None, (segment.text(field_number, 3), family)))


def read_value(result: Hl7Segment) -> FactValue:
    """Return the value of a result of any type, without a text if it has none."""
    kind, unit = result.text(2).upper(), _read_unit(result)
    rows = result.repetitions(5)
    if not rows or not any(map(str.strip, rows[0])):
        return FactValue()
    if kind == "SN":
        parts = [*map(str.strip, rows[0]), "", "", "", ""]
        return parse_value(f"{parts[0]}{' ' if parts[0] else ''}{parts[1]}{parts[2]}{parts[3]}", unit)
    if kind in _CODED_TYPES:
        words = [next(filter(None, (*row[1:2], *row[8:9], *row[:1])), "") for row in rows]
        return parse_value("; ".join(filter(None, words)), unit)
    if kind in ("DT", "TS", "DTM"):
        words = [_SECONDS.sub(r"\1", iso_time(row[0])).replace("T", " ") for row in rows]
        return FactValue("; ".join(filter(None, words)))
    if kind == "TM":
        return FactValue("; ".join(_CLOCK.sub(r"\1:\2", row[0].strip(), count=1) for row in rows))
    return parse_value(result.free_text(5), unit)


def _read_unit(result: Hl7Segment) -> str:
    """Return the unit. Senders write `10^3/uL` without escaping the sign that separates components."""
    unit, second = result.text(6), result.text(6, 2)
    if unit.lower() in ("10", "x10") and _EXPONENT.match(second):
        return f"{unit}^{second}"
    return unit or second


@dataclass(frozen=True, slots=True)
class ReportText:
    """The text of a report: its lines, those of them that are headings, and what was not read."""

    text: str
    headings: tuple[str, ...]
    remarks: tuple[str, ...]


def report_text(group: Hl7Group) -> ReportText:
    """Return the text of a report, with a heading for each name of its results if there are several."""
    names = list(dict.fromkeys(concept_name(result, 3) for result, _ in group.results))
    lines: list[str] = []
    headings: list[str] = []
    remarks: list[str] = []
    previous = ""
    for result, comments in group.results:
        if result_status(result, 11) in WITHDRAWN:
            continue
        content = _result_text(result)
        remarks += content.remarks
        name = concept_name(result, 3)
        if len(names) > 1 and name and name != previous and content.text.strip():
            lines += ["", name] if lines else [name]
            headings.append(name)
            previous = name
        headings += content.headings
        lines += content.text.split("\n")
        lines += [f"Comment: {comment.free_text(3)}" for comment in comments]
    lines += [f"Comment: {comment.free_text(3)}" for comment in group.comments]
    text = "\n".join(lines).strip("\n")
    if detect_embedded(text.encode()) in ("rtf", "html"):
        # Transcription systems send the lines of such a file as texts.
        try:
            content = sandbox.read_embedded(text.encode())
            return ReportText(content.text, content.headings, (*remarks, *content.remarks))
        except ValueError as error:
            remarks.append(f"a text with the signs of a format: {error}")
    return ReportText(text, tuple(dict.fromkeys(headings)), tuple(remarks))


def _result_text(result: Hl7Segment) -> EmbeddedText:
    """Return the text of a result of any type; of one that cannot be read, the reason as a remark."""
    kind = result.text(2).upper()
    if kind == "RP":
        return EmbeddedText("", remarks=("a result that is only named (RP), and nothing is fetched",))
    if kind != "ED":
        words = read_value(result).with_unit if kind in (*_NUMBER_TYPES, *_CODED_TYPES) else ""
        return EmbeddedText(words or result.free_text(5))
    components = result.raw(5).split(result.delimiters.component)
    data, packing = (components[4], components[3].upper()) if len(components) > 4 else ("", "")
    content_type = "/".join(filter(None, map(str.strip, components[1:3]))).lower()
    try:
        return sandbox.read_embedded(_decode_data(result.unescape(data), packing), content_type)
    except ValueError as error:
        return EmbeddedText("", remarks=(f"an embedded file ({content_type or 'without a type'}): {error}",))


def _decode_data(data: str, packing: str) -> bytes:
    """Return the content of an encapsulated file. Raises ValueError with the reason."""
    if not data:
        raise ValueError("holds no content")
    if packing == "HEX":
        try:
            return bytes.fromhex(data)
        except ValueError as error:
            raise ValueError("its hexadecimal content is broken; export it again") from error
    if packing == "BASE64":
        try:
            return base64.b64decode("".join(data.split()), validate=True)
        except (binascii.Error, ValueError) as error:
            raise ValueError("its base64 is broken; export it again") from error
    return data.encode()
