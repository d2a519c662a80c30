"""The resources of FHIR exports, and the texts in them that must be read or named as not read."""

from __future__ import annotations

import base64
import gzip
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.pdf_files import placed_pdf

Json = dict[str, Any]
EPIC, CERNER, HAPI = "https://epic.example/api/FHIR/R4", "https://fhir.cerner.example/r4/t1", "http://hapi.example/fhir"
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20


@dataclass
class FhirExport:
    """The files of an export by name, and its texts."""

    files: dict[str, bytes] = field(default_factory=dict)
    read: list[tuple[str, str]] = field(default_factory=list)
    """Patient and words that must be in a note of this patient alone."""
    unread: list[tuple[str, str]] = field(default_factory=list)
    """Words that must be in no note, and the reason that must be told."""

    def text(self, patient: str = "p1", words: str = "Lungs are clear") -> str:
        """Return a new text that must be read."""
        item = f"item R{len(self.read)}x of {patient}"
        self.read.append((patient, item))
        return f"{words}; {item}"

    def lost(self, reason: str) -> str:
        """Return a new text that must not be read."""
        text = f"item U{len(self.unread)}x"
        self.unread.append((text, reason))
        return text

    def put(self, name: str, *resources: Json, lines: bool = True, packed: bool = False) -> None:
        """Add a file of lines, or of one JSON value."""
        if lines:
            data = "".join(json.dumps(resource) + "\n" for resource in resources).encode()
        else:
            data = json.dumps(resources[0] if len(resources) == 1 else resources, indent=2).encode()
        self.files[name] = gzip.compress(data) if packed else data

    def write(self, folder: Path) -> None:
        """Write the files."""
        for name, data in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)


def pack(data: bytes | str) -> str:
    """Return base64."""
    return base64.b64encode(data.encode() if isinstance(data, str) else data).decode()


def rtf(text: str) -> bytes:
    """Return an RTF file as Epic writes it."""
    head = r"{\rtf1\ansi\ansicpg1252\deff0{\fonttbl{\f0\fswiss Segoe UI;}}{\colortbl;\red0\green0\blue0;}"
    return (head + r"\pard\plain\f0\fs20 {\b Note}\par " + text + r"\par}").encode("cp1252")


def pdf(text: str) -> bytes:
    """Return a PDF of one page."""
    return placed_pdf([[(72, 700, text)]])


def page(text: str) -> str:
    """Return XHTML as Cerner writes it."""
    head = '<?xml version="1.0" encoding="UTF-8"?><!DOCTYPE html><html xmlns="http://www.w3.org/1999/xhtml"><head><title>x</title>'
    return f"{head}</head><body><div><p>{text}</p></div></body></html>"


def ccda(text: str, name: tuple[str, str] = ("Ada", "Byron"), born: str = "19500102") -> str:
    """Return a C-CDA document with one section."""
    patient = (
        f"<patient><name><given>{name[0]}</given><family>{name[1]}</family></name><birthTime value='{born}'/></patient>"
    )
    return (
        '<?xml version="1.0"?><ClinicalDocument xmlns="urn:hl7-org:v3"><id root="1.2.3" extension="c1"/>'
        f'<recordTarget><patientRole><id root="1.2.9" extension="MR1"/>{patient}</patientRole></recordTarget>'
        "<component><structuredBody><component><section><title>Hospital Course</title>"
        f"<text><paragraph>{text}</paragraph></text></section></component></structuredBody></component>"
        "</ClinicalDocument>"
    )


def div(text: str) -> Json:
    """Return a narrative."""
    return {"status": "generated", "div": f'<div xmlns="http://www.w3.org/1999/xhtml"><p>{text}</p></div>'}


def patient(id_: str = "p1", **more: Any) -> Json:
    """Return a Patient with two identifiers."""
    family = {"p1": "Byron", "p2": "Curie"}.get(id_, id_)
    mr = {"coding": [{"system": "http://terminology.hl7.org/CodeSystem/v2-0203", "code": "MR"}]}
    identifiers = [
        {"type": mr, "system": "urn:oid:1.2.9", "value": f"MR-{id_}"},
        {"use": "usual", "system": "urn:oid:1.2.10", "value": f"EPI-{id_}"},
    ]
    name = [{"use": "official", "family": family, "given": ["Ada"]}]
    return {
        "resourceType": "Patient",
        "id": id_,
        "identifier": identifiers,
        "name": name,
        "birthDate": "1950-01-02",
        **more,
    }


def attachment(kind: str, data: bytes | str | None = None, url: str = "") -> Json:
    """Return an attachment with data or an address."""
    value: Json = {"contentType": kind}
    return value | ({"data": pack(data)} if data is not None else {}) | ({"url": url} if url else {})


def document(id_: str, *attachments: Json, of: str = "p1", **more: Any) -> Json:
    """Return a DocumentReference."""
    return {
        "resourceType": "DocumentReference",
        "id": id_,
        "status": "current",
        "docStatus": "final",
        "type": {
            "coding": [{"system": "http://loinc.org", "code": "11506-3", "display": "Progress note"}],
            "text": "Progress Note",
        },
        "subject": {"reference": f"Patient/{of}"},
        "date": "2150-03-09T10:00:00Z",
        "content": [{"attachment": each} for each in attachments],
        **more,
    }


def binary(id_: str, kind: str, data: bytes | str, **more: Any) -> Json:
    """Return a Binary."""
    return {"resourceType": "Binary", "id": id_, "contentType": kind, "data": pack(data), **more}


def report(id_: str, of: str = "p1", **more: Any) -> Json:
    """Return a DiagnosticReport."""
    return {
        "resourceType": "DiagnosticReport",
        "id": id_,
        "status": "final",
        "code": {"text": "CT chest"},
        "subject": {"reference": f"Patient/{of}"},
        "effectiveDateTime": "2150-03-08",
        "issued": "2150-03-09T12:00:00Z",
        **more,
    }


def bundle(*resources: Json, kind: str = "searchset", server: str = "", **more: Any) -> Json:
    """Return a Bundle; with a server, each entry has its full URL."""
    entries: list[Json] = []
    for resource in resources:
        if "resourceType" not in resource:
            entries.append(resource)
            continue
        address = {"fullUrl": f"{server}/{resource['resourceType']}/{resource['id']}"} if server else {}
        entries.append({**address, "resource": resource, "search": {"mode": "match"}})
    return {"resourceType": "Bundle", "type": kind, "entry": entries, **more}
