"""Read C-CDA documents (R1.1, R2.1; CCD, discharge summaries, notes): header, narrative text and coded entries.

    document = read_clinical_document(data)
    document.text, document.headings, document.patients

Coded entries are read by `facts`. Call this only in the child process of `sandbox`; elsewhere call
`sandbox.read_clinical_documents`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from epicrisis.corpus.base.patient_numbers import StatedPerson, format_identifier
from epicrisis.corpus.base.xml_text import BrokenXML, parse_stream
from epicrisis.corpus.documents.embedded_files import read_embedded
from epicrisis.corpus.records.ccda.ccda_facts import CodedFacts, read_entries
from epicrisis.corpus.records.ccda.ccda_values import read_encounter_id
from epicrisis.corpus.records.ccda.narrative import narrative_lines
from epicrisis.corpus.records.facts.fact_values import STAY_CLASSES, VISIT_CLASSES
from epicrisis.corpus.records.facts.times import read_fact_time
from epicrisis.corpus.records.hl7.hl7_values import identifier_system, iso_time

if TYPE_CHECKING:
    from lxml.etree import _Element
    from pydantic import TypeAdapter

MAX_FILE_BYTES = 64 * 1024 * 1024
MAX_MEDIA_BYTES = 64 * 1024 * 1024
"""Limit of an embedded file, unpacked."""
_DOCUMENT_TYPES = {
    "34133-9": "Summary of care",
    "18842-5": "Discharge summary",
    "11506-3": "Progress note",
    "11488-4": "Consultation note",
    "34117-2": "History and physical",
    "28570-0": "Procedure note",
    "11504-8": "Operative note",
    "57133-1": "Referral note",
    "18761-7": "Transfer summary",
    "18748-4": "Diagnostic imaging report",
    "52521-2": "Care plan",
    "34109-9": "Note",
}
"""By LOINC code, for documents without the name of their type."""
_DISCHARGE_SUMMARY = "18842-5"
_ALTERNATIVE_NAMES = frozenset(("CL", "BR", "AC"))
"""Qualifiers of name parts: call me, birth, acquired; the academic titles are `AC`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClinicalDocument:
    """The header of a C-CDA document and its text; a field is empty if the document has no value."""

    id: str
    text: str
    headings: tuple[str, ...]
    """Each is a line of the text that begins a section: `Hospital Course / Neurology`."""
    patients: tuple[StatedPerson, ...]
    """Of a readable document there is one."""
    type: str = ""
    title: str = ""
    time: str = ""
    authors: tuple[str, ...] = ()
    version_set: str = ""
    version: int = 0
    replaces: tuple[str, ...] = ()
    amends: tuple[str, ...] = ()
    encounter: str = ""
    admitted: str = ""
    discharged: str = ""
    is_stay: bool = True
    is_withdrawn: bool = False
    remarks: tuple[str, ...] = ()
    """What was not read: `a picture (image/png)`."""
    coded: CodedFacts = field(default_factory=CodedFacts)
    digest: str = ""
    """Of the words of the body. Vendors give one id to documents of different content."""

    @property
    def version_id(self) -> str:
        """The id with the digest of the document's content and patient; empty without an id."""
        people = repr([patient.numbers for patient in self.patients])
        content = f"{self.time}\0{self.version}\0{people}\0{self.digest}"
        return f"{self.id}@{hashlib.sha256(content.encode()).hexdigest()[:12]}" if self.id else ""

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> ClinicalDocument:
        """Return the document of `dataclasses.asdict`, from which JSON made lists of its tuples."""
        return _load_adapter().validate_python(values)


@cache
def _load_adapter() -> TypeAdapter[ClinicalDocument]:
    from pydantic import TypeAdapter

    return TypeAdapter(ClinicalDocument)


def parse_clinical_documents(data: bytes) -> list[_Element]:
    """Return the ClinicalDocument elements; those of the CDA namespace have tags without it. Raises ValueError."""
    try:
        root = parse_stream(io.BytesIO(data), MAX_FILE_BYTES)
    except BrokenXML as error:
        raise ValueError(str(error)) from error
    documents = list(root.iter("{*}ClinicalDocument", "ClinicalDocument"))
    if not documents:
        raise ValueError("holds no ClinicalDocument; check what file this is")
    namespaces = {str(document.tag).rpartition("}")[0] for document in documents}
    for element in root.iter("{*}*"):
        namespace, _, name = str(element.tag).rpartition("}")
        if namespace in namespaces:
            element.tag = name
    return documents


def read_clinical_document(data: bytes) -> ClinicalDocument:
    """Return the only document of a file. Raises ValueError with the reason if there is not one, or no text."""
    documents = read_clinical_documents(data)
    if len(documents) > 1:
        raise ValueError(f"holds {len(documents)} documents; save each as a file of its own")
    if not documents[0].text.strip():
        raise ValueError(describe_missing_text(documents[0].remarks))
    return documents[0]


def describe_missing_text(remarks: Iterable[str]) -> str:
    """Return why a document with these remarks has no text."""
    reasons = "; ".join(remarks)
    return f"holds no text that can be read ({reasons})" if reasons else "holds no text"


def read_clinical_documents(data: bytes) -> list[ClinicalDocument]:
    """Return the documents of a file, of which one may have no text. Raises ValueError with the reason."""
    return [_read_document(element) for element in parse_clinical_documents(data)]


def _read_document(root: _Element) -> ClinicalDocument:
    text = _DocumentText()
    _write_body(root, text)
    encounter = root.find("componentOf/encompassingEncounter")
    period = None if encounter is None else encounter.find("effectiveTime")
    admitted, discharged = _read_period(period)
    replaces, amends = _read_relations(root)
    version = _attribute(root.find("versionNumber"), "value")
    return ClinicalDocument(
        id=next(map(_join_id, root.iterchildren("id")), ""),
        text="\n".join(text.lines).strip("\n"),
        headings=tuple(text.headings),
        patients=tuple(map(_read_patient, root.iterfind("recordTarget/patientRole"))),
        type=_document_type(root),
        title=_text(root.find("title")),
        time=iso_time(_attribute(root.find("effectiveTime"), "value")),
        authors=tuple(dict.fromkeys(filter(None, map(_describe_author, root.iterfind("author"))))),
        version_set=_join_id(root.find("setId")),
        version=int(version) if version.isascii() and version.isdecimal() else 0,
        replaces=replaces,
        amends=amends,
        encounter="" if encounter is None else next(map(read_encounter_id, encounter.iterchildren("id")), ""),
        admitted=admitted,
        discharged=discharged,
        is_stay=encounter is not None and _is_stay(root, encounter, admitted, discharged),
        is_withdrawn=any(
            status.get("code") in ("nullified", "aborted", "cancelled") for status in root.iterchildren("{*}statusCode")
        ),
        remarks=tuple(text.remarks),
        coded=read_entries(root),
        digest=_digest_words(root),
    )


def _digest_words(root: _Element) -> str:
    """Return a digest of the words of the body, with those of its entries and files."""
    digest = hashlib.sha256()
    for component in root.iterchildren("component"):
        for text in component.itertext():
            digest.update(" ".join(str(text).split()).encode())
    return digest.hexdigest()


def _read_patient(role: _Element) -> StatedPerson:
    numbers: list[tuple[str, str]] = []
    for number in role.iterchildren("id"):
        root, extension = number.get("root") or "", (number.get("extension") or "").strip()
        if root and not number.get("nullFlavor"):
            numbers.append((identifier_system(root), extension) if extension else ("", identifier_system(root)))
    person = role.find("patient")
    if person is None:
        return StatedPerson(tuple(dict.fromkeys(numbers)))
    names = filter(None, map(_person_name, person.iterchildren("name")))
    born = read_fact_time(iso_time(_attribute(person.find("birthTime"), "value")))[:10]
    return StatedPerson(tuple(dict.fromkeys(numbers)), tuple(dict.fromkeys(names)), born)


def _person_name(name: _Element) -> str:
    """Return given and family names, other names in use only without usual ones; or the name as it is written."""
    names: list[str] = []
    for kind in ("given", "family"):
        parts = [part for part in name.iterchildren(kind) if _text(part)]
        usual = [part for part in parts if _ALTERNATIVE_NAMES.isdisjoint((part.get("qualifier") or "").upper().split())]
        names += [_text(part) for part in usual or parts]
    return " ".join(names) or " ".join(" ".join(map(str, name.itertext())).split())


def _describe_author(author: _Element) -> str:
    """Return `Ada Byron (Cardiology)`, or the name of the software."""
    person = author.find("assignedAuthor/assignedPerson/name")
    name = "" if person is None else _person_name(person)
    if not name:
        device = author.find("assignedAuthor/assignedAuthoringDevice")
        for kind in ("softwareName", "manufacturerModelName"):
            name = name or _text(None if device is None else device.find(kind))
    role = _attribute(author.find("assignedAuthor/code"), "displayName")
    return f"{name} ({role})" if name and role else name


def _document_type(root: _Element) -> str:
    """Return the name of the document's type: as the document says, else by its LOINC code, else its title."""
    code = root.find("code")
    if code is None:
        return _text(root.find("title"))
    codes = [code, *code.iterchildren("translation")]
    names = [element.get("displayName") or "" for element in codes]
    names += [_DOCUMENT_TYPES.get(element.get("code") or "", "") for element in codes]
    return next(filter(None, names), "") or _text(root.find("title"))


def _read_relations(root: _Element) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the ids of the documents that this one replaces, and of those that it amends."""
    ids: dict[str, list[str]] = {"replaces": [], "amends": []}
    for relation in root.iterchildren("relatedDocument"):
        kind = "amends" if relation.get("typeCode") == "APND" else "replaces"
        for parent in relation.iterfind("parentDocument/id"):
            ids[kind] += filter(None, [_join_id(parent)])
    return tuple(dict.fromkeys(ids["replaces"])), tuple(dict.fromkeys(ids["amends"]))


def _is_stay(root: _Element, encounter: _Element, admitted: str, discharged: str) -> bool:
    """Return whether the encounter is a hospital stay: by its class, else unless it begins and ends on one day."""
    code = encounter.find("code")
    classes: set[str] = set()
    if code is not None:
        classes.update((element.get("code") or "").upper() for element in (code, *code.iterchildren("translation")))
    if not classes.isdisjoint(STAY_CLASSES):
        return True
    if not classes.isdisjoint(VISIT_CLASSES):
        return False
    if _attribute(root.find("code"), "code") == _DISCHARGE_SUMMARY:
        return True
    return bool(admitted or discharged) and admitted[:10] != discharged[:10]


def _read_period(period: _Element | None) -> tuple[str, str]:
    """Return the first and last time of an interval, or one time for both."""
    if period is None:
        return "", ""
    if period.get("value"):
        return iso_time(period.get("value") or ""), iso_time(period.get("value") or "")
    return iso_time(_attribute(period.find("low"), "value")), iso_time(_attribute(period.find("high"), "value"))


def _join_id(element: _Element | None) -> str:
    if element is None:
        return ""
    return format_identifier((element.get("root") or "").strip(), (element.get("extension") or "").strip())


def _attribute(element: _Element | None, name: str) -> str:
    return "" if element is None else (element.get(name) or "").strip()


def _text(element: _Element | None) -> str:
    return "" if element is None else " ".join(narrative_lines(element))


class _DocumentText:
    """Collects the lines of sections below their headings."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.headings: dict[str, None] = {}
        self.remarks: list[str] = []

    def add_section(self, path: tuple[str, ...], lines: list[str]) -> None:
        """Add a heading and its lines after a blank line, unless there are none."""
        if not lines:
            return
        if path:
            heading = " / ".join(path)
            self.headings[heading] = None
            self.lines += ["", heading]
        self.lines += lines


def _write_body(root: _Element, text: _DocumentText) -> None:
    """Write the sections, or the embedded file that is the document's body, then other embedded files."""
    pictures: dict[str, _Element] = {}
    for media in root.iter("observationMedia"):
        pictures[media.get("ID") or f"\0{len(pictures)}"] = media
    for section in root.iterfind("component/structuredBody/component/section"):
        _write_section(section, (), text)
    body = root.find("component/nonXMLBody/text")
    if body is not None:
        _write_media(body, (), text)
    for media in pictures.values():
        value = media.find("value")
        if value is not None:
            _write_media(value, ("Attachment",), text)


def _write_section(section: _Element, path: tuple[str, ...], text: _DocumentText) -> None:
    title = _text(section.find("title")) or _attribute(section.find("code"), "displayName") or "Section"
    path = (*path, title)
    block = section.find("text")
    lines = [] if block is None else narrative_lines(block)
    text.add_section(path, lines)
    if not lines and section.find("entry") is not None:
        text.remarks.append("a section that has coded entries and no text")
    for inner in section.iterfind("component/section"):
        _write_section(inner, path, text)


def _write_media(element: _Element, path: tuple[str, ...], text: _DocumentText) -> None:
    """Write the text of an embedded file, or a remark if it cannot be read."""
    kind = element.get("mediaType") or "text/plain"
    content = "".join(_all_text(element))
    if not content.strip():
        address = element.find("reference")
        text.remarks.append(f"a file ({kind}) that is named but not embedded" if address is not None else "no content")
        return
    try:
        embedded = read_embedded(_decode_media(element, content), kind)
    except ValueError as error:
        text.remarks.append(f"an embedded file ({kind}): {error}")
        return
    headings = [" / ".join((*path, heading)) for heading in embedded.headings]
    titles = dict(zip(embedded.headings, headings, strict=True))
    lines = [titles.get(line, line) for line in embedded.text.split("\n")]
    text.headings.update(dict.fromkeys(headings))
    text.add_section(path, lines)
    text.remarks += embedded.remarks


def _all_text(element: Any) -> Iterator[str]:
    """Yield the texts within an element, without those of a thumbnail."""
    yield element.text or ""
    for child in element:
        if child.tag not in ("thumbnail", "reference"):
            yield from _all_text(child)
        yield child.tail or ""


def _decode_media(element: _Element, content: str) -> bytes:
    """Return the content of an embedded file. Raises ValueError with the reason."""
    if element.get("representation") != "B64":
        return content.encode()
    try:
        data = base64.b64decode("".join(content.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError("its base64 is broken; export it again") from error
    packing = element.get("compression") or ""
    if not packing:
        return data
    windows = {"DF": -zlib.MAX_WBITS, "ZL": zlib.MAX_WBITS, "GZ": zlib.MAX_WBITS | 16}
    if packing not in windows:
        raise ValueError(f"its compression {packing[:8]!a} is not read; export it without")
    unpacking = zlib.decompressobj(windows[packing])
    try:
        unpacked = unpacking.decompress(data, MAX_MEDIA_BYTES)
    except zlib.error as error:
        raise ValueError("its compression is broken; export it again") from error
    if unpacking.unconsumed_tail:
        raise ValueError(f"it unpacks to more than {MAX_MEDIA_BYTES // 2**20} MB; export it without compression")
    return unpacked
