"""FHIR exports as servers write them: each with the texts that must be read, and those that must be named as not read.

export = EXPORTS["epic-bundle"]()
export.write(folder)
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable, Mapping
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


def epic_bundle() -> FhirExport:
    """Return Epic's search with Binaries of HTML and RTF in the bundle, and contained authors."""
    export = FhirExport()
    text = export.text()
    author = {"resourceType": "Practitioner", "id": "a1", "name": [{"text": "Grace Hopper, MD"}]}
    note = document(
        "e1",
        attachment("text/html", url="Binary/b-html"),
        attachment("text/rtf", url="Binary/b-rtf"),
        contained=[author],
        author=[{"reference": "#a1"}],
        context={"encounter": [{"reference": "Encounter/enc1", "display": "Office Visit"}]},
    )
    html, rich = binary("b-html", "text/html", f"<div>{text}</div>"), binary("b-rtf", "text/rtf", rtf(text))
    outcome = {"resourceType": "OperationOutcome", "id": "o", "issue": [{"severity": "warning", "code": "processing"}]}
    export.put("bundle.json", bundle(note, patient(), html, rich, outcome, server=EPIC), lines=False)
    return export


def epic_bulk() -> FhirExport:
    """Return Epic's bulk export: Binaries precede documents, one of them packed, RTF declared as text."""
    export = FhirExport()
    first, second = export.text(), export.text("p2")
    export.put("Binary.ndjson", binary("b1", "text/rtf", rtf(first)))
    export.put("Binary.1.ndjson.gz", binary("b2", "text/plain", rtf(second)), packed=True)
    notes = [
        document("d1", attachment("text/rtf", url="Binary/b1")),
        document("d2", attachment("text/plain", url=f"{EPIC}/Binary/b2"), of="p2"),
    ]
    export.put("DocumentReference.ndjson", *notes)
    export.put("Patient.ndjson", patient(), patient("p2"))
    return export


def cerner_bundle() -> FhirExport:
    """Return Cerner's documents: XHTML and PDF by absolute addresses, custodian, period in the context."""
    export = FhirExport()
    text = export.text()
    note = document(
        "197",
        attachment("application/xhtml+xml", url=f"{CERNER}/Binary/XR-197"),
        attachment("application/pdf", url=f"{CERNER}/Binary/XR-197-PDF"),
        custodian={"reference": "Organization/675844", "display": "Baseline West"},
        authenticator={"reference": "Practitioner/4464007", "display": "Cerner, Carla"},
        context={"period": {"start": "2150-03-09", "end": "2150-03-09"}},
    )
    binaries = [
        binary("XR-197", "application/xhtml+xml", page(text)),
        binary("XR-197-PDF", "application/pdf", pdf(text)),
    ]
    export.put("page.json", bundle(note, patient(), *binaries, server=CERNER), lines=False)
    return export


def cerner_report() -> FhirExport:
    """Return Cerner's reports: one with a PDF, one with a conclusion, one with a narrative alone."""
    export = FhirExport()
    form = report("r1", presentedForm=[attachment("application/pdf", url=f"{CERNER}/Binary/PF-1")])
    words = report("r2", conclusion=export.text(), conclusionCode=[{"text": export.text(words="Pneumonia")}])
    narrative = report("r3", text=div(export.text()), result=[{"reference": "Observation/1"}])
    empty = report("r4", result=[{"reference": "Observation/1"}])
    export.put("DiagnosticReport.ndjson", form, words, narrative, empty, patient())
    export.put("Binary.ndjson", binary("PF-1", "application/pdf", pdf(export.text())))
    export.unread.append(("no words", "DiagnosticReport without text"))
    return export


def us_core() -> FhirExport:
    """Return US Core's example: a note and a report inline, with categories and roles."""
    export = FhirExport()
    role = {
        "resourceType": "PractitionerRole",
        "id": "role1",
        "practitioner": {"reference": "Practitioner/pr1"},
        "specialty": [{"text": "Cardiology"}],
    }
    person = {
        "resourceType": "Practitioner",
        "id": "pr1",
        "name": [{"family": "Bone", "given": ["Ronald"], "suffix": ["MD"]}],
    }
    note = document(
        "episode-summary",
        attachment("text/plain; charset=UTF-8", export.text()),
        author=[{"reference": "PractitionerRole/role1"}],
    )
    form = report(
        "cbc",
        presentedForm=[attachment("text/html", f"<p>{export.text()}</p>")],
        performer=[{"reference": "Practitioner/pr1"}],
    )
    export.put("bundle.json", bundle(patient(), role, person, note, form, kind="collection"), lines=False)
    return export


def inferno_lines() -> FhirExport:
    """Return a bulk export with `DocumentReference.000.ndjson` and a manifest, packed."""
    export = FhirExport()
    output = [{"type": kind, "url": f"{HAPI}/files/{kind}"} for kind in ("Patient", "DocumentReference", "Binary")]
    export.put(
        "manifest.json",
        {"transactionTime": "2150-01-01", "request": "x", "requiresAccessToken": True, "output": output, "error": []},
        lines=False,
    )
    export.put("Patient.000.ndjson.gz", patient(), packed=True)
    export.put(
        "DocumentReference.000.ndjson.gz",
        document("d1", attachment("application/octet-stream", url="Binary/b1")),
        packed=True,
    )
    export.put("Binary.000.ndjson.gz", binary("b1", "application/octet-stream", export.text()), packed=True)
    return export


def incomplete_manifest() -> FhirExport:
    """Return a bulk export of which a file is missing, with an error file and deleted resources."""
    export = FhirExport()
    output = [{"type": "DocumentReference", "url": f"x/{n}"} for n in (1, 2)]
    export.put("manifest.json", {"transactionTime": "2150-01-01", "output": output}, lines=False)
    export.put("DocumentReference.1.ndjson", document("d1", attachment("text/plain", export.text())))
    export.put(
        "errors.ndjson",
        {
            "resourceType": "OperationOutcome",
            "issue": [
                {
                    "severity": "error",
                    "code": "not-found",
                    "diagnostics": export.lost("reported by the server in OperationOutcome (not-found)"),
                }
            ],
        },
    )
    deleted = {"request": {"method": "DELETE", "url": "DocumentReference/gone"}}
    export.put("deleted.ndjson", bundle(deleted, kind="transaction"))
    export.unread.append(("no words", "of type DocumentReference in the manifest not among the files"))
    return export


def hapi_pages() -> FhirExport:
    """Return HAPI's search in two files, of which the second names a third page that is missing."""
    export = FhirExport()
    for number in (1, 2):
        links = [
            {"relation": "self", "url": f"{HAPI}?page={number}"},
            {"relation": "next", "url": f"{HAPI}?page={number + 1}"},
        ]
        note = document(f"{number}", attachment("text/markdown", f"# Plan\n\n* {export.text()}"))
        export.put(f"page{number}.json", bundle(note, patient(), server=HAPI, link=links, total=3), lines=False)
    export.unread.append(("no words", "whose next page is not among the files"))
    return export


def hapi_history() -> FhirExport:
    """Return HAPI's history: the newest version first, an older one, and a deleted resource."""
    export = FhirExport()
    new = document(
        "d1", attachment("text/plain", export.text()), meta={"versionId": "2", "lastUpdated": "2150-03-10T10:00:00Z"}
    )
    old = document(
        "d1",
        attachment("text/plain", export.lost("older version of DocumentReference")),
        meta={"versionId": "1", "lastUpdated": "2150-03-09T10:00:00Z"},
    )
    dropped = document(
        "d2",
        attachment("text/plain", export.lost("older version of DocumentReference")),
        meta={"lastUpdated": "2150-03-09T10:00:00Z"},
    )
    gone = {
        "fullUrl": f"{HAPI}/DocumentReference/d2",
        "request": {"method": "DELETE", "url": "DocumentReference/d2"},
        "response": {"status": "204", "lastModified": "2150-03-11T10:00:00Z"},
    }
    export.put("history.json", bundle(new, old, gone, dropped, patient(), kind="history", server=HAPI), lines=False)
    return export


def synthea() -> FhirExport:
    """Return Synthea's transaction: `urn:uuid` everywhere, a note in a document and in a report."""
    export = FhirExport()
    entries: list[Json] = []
    person, stay = (
        patient(),
        {"resourceType": "Encounter", "id": "e1", "class": {"code": "IMP"}, "subject": {"reference": "urn:uuid:p1"}},
    )
    note = document(
        "d1",
        attachment("text/plain; charset=utf-8", export.text()),
        author=[{"reference": "Practitioner?identifier=x|1", "display": "Dr. Jane77"}],
    )
    form = report("r1", presentedForm=[attachment("text/plain; charset=utf-8", export.text())])
    for resource in (person, stay, note, form):
        if "subject" in resource:
            resource["subject"] = {"reference": "urn:uuid:p1"}
        entries.append(
            {
                "fullUrl": f"urn:uuid:{resource['id']}",
                "resource": resource,
                "request": {"method": "POST", "url": resource["resourceType"]},
            }
        )
    note["context"] = {"encounter": [{"reference": "urn:uuid:e1"}]}
    export.put("Ada_Byron.json", bundle(*entries, kind="transaction"), lines=False)
    return export


def urn_binaries() -> FhirExport:
    """Return a collection whose attachments are Binaries by `urn:uuid` and contained ones."""
    export = FhirExport()
    inner = binary("in", "text/plain", export.text())
    notes = [
        document("d1", attachment("text/plain", url="urn:uuid:b1")),
        document("d2", attachment("text/plain", url="#in"), contained=[inner]),
    ]
    loose = {"resourceType": "Binary", "contentType": "text/plain", "data": pack(export.text())}
    export.put(
        "x.json",
        bundle(*notes, patient(), {"fullUrl": "urn:uuid:b1", "resource": loose}, kind="collection"),
        lines=False,
    )
    return export


def document_bundle() -> FhirExport:
    """Return a document: nested sections, a narrative, an entry without one, an empty section, other people's entry."""
    export = FhirExport()
    problem = {
        "resourceType": "Condition",
        "id": "c1",
        "code": {"text": export.text(words="Asthma")},
        "subject": {"reference": "Patient/p1"},
    }
    other = {
        "resourceType": "Condition",
        "id": "c2",
        "code": {"text": export.text("p2")},
        "subject": {"reference": "Patient/p2"},
    }
    sections = [
        {"title": "Course", "text": div(export.text()), "section": [{"title": "Surgery", "text": div(export.text())}]},
        {"title": "Problems", "entry": [{"reference": "Condition/c1"}, {"reference": "Condition/c2"}]},
        {"title": "Allergies", "emptyReason": {"text": export.text(words="Nil known")}},
    ]
    composition = {
        "resourceType": "Composition",
        "id": "comp",
        "status": "final",
        "type": {"text": "Discharge Summary"},
        "subject": {"reference": "Patient/p1"},
        "date": "2150-03-09",
        "author": [{"display": "Dr. House"}],
        "title": "Summary",
        "section": sections,
    }
    export.put(
        "document.json",
        bundle(composition, patient(), patient("p2", birthDate="1960-01-01"), problem, other, kind="document"),
        lines=False,
    )
    export.unread.append(("no words", "left out: it is another patient's"))
    return export


def ips_document() -> FhirExport:
    """Return an International Patient Summary of R5, whose subject is a list; a second version replaces the first."""
    export = FhirExport()
    base = {
        "resourceType": "Composition",
        "status": "final",
        "type": {"text": "Patient summary"},
        "subject": [{"reference": "Patient/p1"}],
        "date": "2150-03-09",
    }
    old = {**base, "id": "old", "section": [{"title": "A", "text": div(export.lost("superseded"))}]}
    new = {
        **base,
        "id": "new",
        "relatesTo": [{"type": "replaces", "resourceReference": {"reference": "Composition/old"}}],
        "section": [{"title": "A", "text": div(export.text())}],
    }
    export.put("Composition.ndjson", old, new, patient())
    return export


def array_file() -> FhirExport:
    """Return an array of resources in a file, and a single resource in another."""
    export = FhirExport()
    export.put("array.json", document("d1", attachment("text/plain", export.text())), patient(), lines=False)
    export.put("one.json", document("d2", attachment("text/plain", export.text())), lines=False)
    return export


def batch_response() -> FhirExport:
    """Return the response to a batch of searches: bundles in a bundle, and a failed one."""
    export = FhirExport()
    inner = bundle(document("d1", attachment("text/plain", export.text())), patient(), server=HAPI)
    failed = {
        "response": {
            "status": "404 Not Found",
            "outcome": {"resourceType": "OperationOutcome", "issue": [{"severity": "error", "code": "not-found"}]},
        }
    }
    written = {"response": {"status": "201 Created", "location": "DocumentReference/9"}}
    export.put(
        "batch.json",
        bundle({"resource": inner, "response": {"status": "200"}}, failed, written, kind="batch-response"),
        lines=False,
    )
    export.unread.append(("no words", "reported by the server in OperationOutcome (not-found)"))
    export.unread.append(("no words", "hold only the server's response"))
    return export


def google_layout() -> FhirExport:
    """Return Google's export: files called by their type alone."""
    export = FhirExport()
    export.put("DocumentReference", document("d1", attachment("text/plain", url="Binary/b1")))
    export.put("Binary", binary("b1", "text/plain", export.text()))
    export.put("Patient", patient())
    return export


def azure_layout() -> FhirExport:
    """Return Azure's export: numbered files in the folder of the job, one of them with a byte order mark."""
    export = FhirExport()
    export.put(
        "job-1/DocumentReference-1.ndjson",
        document("d1", attachment("text/html", f"<html><body>{export.text()}</body></html>")),
    )
    export.put("job-1/DocumentReference-2.ndjson", document("d2", attachment("text/plain", export.text())))
    export.put("job-1/Patient-1.ndjson", patient())
    export.files["job-1/Patient-1.ndjson"] = b"\xef\xbb\xbf" + export.files["job-1/Patient-1.ndjson"]
    return export


def aws_layout() -> FhirExport:
    """Return HealthLake's export: a folder for each type, `resourceType` at the end of each line."""
    export = FhirExport()
    note = document("d1", attachment("text/plain", "Filler. " * 2000 + export.text()))
    note["resourceType"] = note.pop("resourceType")
    export.put("out/DocumentReference/DocumentReference-1.ndjson", note)
    export.put("out/Patient/Patient-1.ndjson", patient())
    return export


def jsonl_layout() -> FhirExport:
    """Return resources in files called `.jsonl`."""
    export = FhirExport()
    export.put("DocumentReference.jsonl", document("d1", attachment("text/plain", export.text())), patient())
    return export


def files_beside() -> FhirExport:
    """Return an export whose attachments are files of its folder: PDF, RTF, and one that is missing."""
    export = FhirExport()
    notes = [
        document("d1", attachment("application/pdf", url="attachments/note%201.pdf")),
        document("d2", attachment("application/rtf", url="../files/n.rtf")),
        document("d3", attachment("application/pdf", url="attachments/none.pdf")),
    ]
    export.put("fhir/DocumentReference.ndjson", *notes, patient())
    export.files["fhir/attachments/note 1.pdf"] = pdf(export.text())
    export.files["files/n.rtf"] = rtf(export.text())
    export.unread.append(("no words", "its attachment is a file that is not there"))
    return export


def r5_documents() -> FhirExport:
    """Return R5: context is a list, relations are CodeableConcepts, encounters have `actualPeriod`."""
    export = FhirExport()
    stay = {
        "resourceType": "Encounter",
        "id": "e1",
        "class": [{"coding": [{"code": "IMP"}]}],
        "subject": {"reference": "Patient/p1"},
        "actualPeriod": {"start": "2150-03-01"},
        "subjectStatus": {"text": "admitted"},
    }
    replaces = [{"code": {"coding": [{"code": "replaces"}]}, "target": {"reference": "DocumentReference/d1"}}]
    old = document("d1", attachment("text/plain", export.lost("superseded")))
    new = document(
        "d2", attachment("text/plain", export.text()), relatesTo=replaces, context=[{"reference": "Encounter/e1"}]
    )
    new["content"][0]["profile"] = [{"valueCoding": {"code": "x"}}]
    attester = [{"mode": {"text": "legal"}, "party": {"display": "Dr. Legal"}}]
    third = document(
        "d3", attachment("text/plain", export.text()), attester=attester, docStatus="deprecated", status="current"
    )
    export.read.pop()
    export.unread.append((pack_word(third), "superseded"))
    export.put("r5.ndjson", old, new, third, patient(), stay)
    return export


def pack_word(note: Json) -> str:
    """Return the words by which the inline text of a document is recognised."""
    return base64.b64decode(note["content"][0]["attachment"]["data"]).decode().split("; ")[1]


def amendments() -> FhirExport:
    """Return R4's amendments: an addendum, an amended document, a signature, a withdrawn one."""
    export = FhirExport()
    notes = [
        document("d1", attachment("text/plain", export.text())),
        document(
            "d2",
            attachment("text/plain", export.text()),
            relatesTo=[{"code": "appends", "target": {"reference": "DocumentReference/d1"}}],
        ),
        document("d3", attachment("text/plain", export.text()), docStatus="amended"),
        document(
            "d4",
            attachment("text/plain", export.text()),
            relatesTo=[{"code": "signs", "target": {"reference": "DocumentReference/d1"}}],
        ),
        document("d5", attachment("text/plain", export.lost("marked-as-error")), status="entered-in-error"),
    ]
    export.put("DocumentReference.ndjson", *notes, patient())
    return export


def clinical_documents() -> FhirExport:
    """Return C-CDA attachments, one of them another patient's by its header."""
    export = FhirExport()
    notes = [
        document("d1", attachment("application/xml", ccda(export.text()))),
        document(
            "d2",
            attachment(
                "text/xml", ccda(export.lost("another patient's, as its header says"), ("Marie", "Curie"), "19601107")
            ),
        ),
    ]
    export.put("DocumentReference.ndjson", *notes, patient())
    return export


def wrong_types() -> FhirExport:
    """Return attachments with wrong types: PDF as text, HTML as PDF, Latin-1 as UTF-8, no base64, URL-safe base64."""
    export = FhirExport()
    raw = attachment("text/plain")
    raw["data"] = export.text()
    safe = attachment("text/plain")
    safe["data"] = base64.urlsafe_b64encode(f"Größe? ÿþ>>> {export.text()}".encode()).decode().rstrip("=")
    kinds = [
        attachment("text/plain", pdf(export.text())),
        attachment("application/pdf", page(export.text())),
        attachment("text/plain; charset=utf-8", f"Ärztin prüft Größe: {export.text()}".encode("latin-1")),
        attachment("text/plain; charset=iso-8859-1", f"Größe: {export.text()}"),
        attachment("", rtf(export.text())),
        raw,
        safe,
    ]
    export.put("x.ndjson", *(document(f"d{n}", kind) for n, kind in enumerate(kinds)), patient())
    return export


def unreadable_types() -> FhirExport:
    """Return attachments that nothing reads."""
    export = FhirExport()
    kinds = [
        (attachment("image/png", PNG), "a picture (PNG)"),
        (attachment("audio/mpeg", b"ID3\0\0\0"), "a file of the type audio/mpeg"),
        (attachment("application/pdf", b"%PDF-1.4 broken"), "not a PDF file, or broken"),
        (attachment("text/plain", url="https://elsewhere.example/doc/1"), "nothing is fetched"),
        (attachment("text/plain", url="Binary/missing"), "a Binary that is not in the export"),
        ({"contentType": "application/rtf", "data": "!!! no base64 !!!"}, "its data is not base64"),
        ({"contentType": "text/plain", "data": "QUJDR"}, "its data is not base64, or breaks off"),
        (attachment("text/plain"), "neither data nor an address"),
    ]
    export.put("x.ndjson", *(document(f"d{n}", kind) for n, (kind, _) in enumerate(kinds)), patient())
    export.unread += [("no words", reason) for _, reason in kinds]
    return export


def several_forms() -> FhirExport:
    """Return documents in several forms: equal ones, one with more words, a stub beside the whole document."""
    export = FhirExport()
    same, stub, picture = (
        export.text(),
        export.text(words="A long letter about the course of many days in hospital"),
        export.text(),
    )
    more = f"{export.text()} at discharge"
    notes = [
        document("d1", attachment("application/pdf", pdf(same)), attachment("text/plain", same)),
        document("d2", attachment("text/plain", "See attached."), attachment("application/pdf", pdf(stub))),
        document("d3", attachment("image/png", PNG), attachment("text/plain", picture)),
        document("d4", attachment("text/plain", more), attachment("text/html", f"<p>{more} weight 70 kg</p>")),
    ]
    export.put("x.ndjson", *notes, patient())
    for reason in ("not read beside one that was read: a picture", "which has words that the one read does not have"):
        export.unread.append(("weight 70 kg", reason))
    return export


def other_texts() -> FhirExport:
    """Return the texts of other types: impressions, messages, plans, answers; and a type that is not read."""
    export = FhirExport()
    subject = {"subject": {"reference": "Patient/p1"}, "status": "completed"}
    answers = [
        {
            "linkId": "1",
            "text": "Pain",
            "item": [{"linkId": "1.1", "text": "Where?", "answer": [{"valueString": export.text()}]}],
        }
    ]
    resources: list[Json] = [
        {
            "resourceType": "ClinicalImpression",
            "id": "i",
            **subject,
            "date": "2150-03-01",
            "summary": export.text(),
            "finding": [{"item": {"concept": {"text": export.text()}}}],
        },
        {
            "resourceType": "Communication",
            "id": "m",
            **subject,
            "sent": "2150-03-02",
            "payload": [
                {"contentString": export.text()},
                {"contentAttachment": attachment("text/plain", export.text())},
            ],
        },
        {
            "resourceType": "CarePlan",
            "id": "c",
            **subject,
            "status": "active",
            "description": export.text(),
            "activity": [{"detail": {"description": export.text()}}],
        },
        {"resourceType": "QuestionnaireResponse", "id": "q", **subject, "authored": "2150-03-03", "item": answers},
        {"resourceType": "Flag", "id": "f", **subject, "code": {"text": export.lost("Flag")}},
    ]
    export.put("x.ndjson", *resources, patient())
    return export


def contained_results() -> FhirExport:
    """Return a report with a contained observation, a contained patient, and a subject by identifier."""
    export = FhirExport()
    value = {
        "resourceType": "Observation",
        "id": "o",
        "status": "final",
        "code": {"text": "Sodium"},
        "valueString": export.text(),
    }
    person = {"resourceType": "Patient", "id": "pat", "identifier": [{"system": "urn:oid:1.2.9", "value": "MR-p1"}]}
    notes = [
        report("r1", contained=[value], conclusion=export.text()),
        document("d1", attachment("text/plain", export.text()), contained=[person], subject={"reference": "#pat"}),
        document(
            "d2",
            attachment("text/plain", export.text()),
            subject={"identifier": {"system": "urn:oid:1.2.10", "value": "EPI-p1"}},
        ),
    ]
    export.put("x.ndjson", *notes, patient())
    return export


def stolen_binary() -> FhirExport:
    """Return a Binary that documents of two patients name, and one whose security context is another patient's."""
    export = FhirExport()
    shared, foreign = (
        export.lost("also that of another patient's document"),
        export.lost("its Binary is another patient's"),
    )
    notes = [
        document("d1", attachment("text/plain", url="Binary/b1")),
        document("d2", attachment("text/plain", url=f"{HAPI}/Binary/b1"), of="p2"),
        document("d3", attachment("text/plain", url="Binary/b2")),
        document("d4", attachment("text/plain", export.text("p2")), of="p2"),
    ]
    binaries = [
        binary("b1", "text/plain", shared),
        binary("b2", "text/plain", foreign, securityContext={"reference": "Patient/p2"}),
    ]
    export.put("x.ndjson", *notes, *binaries, patient(), patient("p2"))
    return export


def path_traversal() -> FhirExport:
    """Return attachments by paths that leave the folder, absolute ones, and files of records."""
    export = FhirExport()
    urls = (
        "../../../../../../../../etc/passwd",
        "/etc/passwd",
        "file:///etc/passwd",
        "..%2f..%2f..%2f..%2f..%2f..%2f..%2f..%2fetc/passwd",
        "Patient.ndjson",
        "all.csv",
    )
    export.put("x.ndjson", *(document(f"d{n}", attachment("text/plain", url=url)) for n, url in enumerate(urls)))
    export.put("Patient.ndjson", patient(), patient("p2"))
    export.files["all.csv"] = b"subject_id,text\np2,secret\n"
    reasons = ("outside the folder of the export", "nothing is fetched", "is a file of records")
    export.unread += [("root:x:0", reason) for reason in reasons] + [("Curie", reasons[2]), ("secret", reasons[2])]
    return export


def cycles_and_copies() -> FhirExport:
    """Return documents that replace each other, Binaries with one id, nested bundles and deep nesting."""
    export = FhirExport()
    notes = [
        document(
            "d1",
            attachment("text/plain", export.text()),
            relatesTo=[{"code": "replaces", "target": {"reference": "DocumentReference/d2"}}],
        ),
        document(
            "d2",
            attachment("text/plain", export.text()),
            relatesTo=[{"code": "replaces", "target": {"reference": "DocumentReference/d1"}}],
        ),
        document("d3", attachment("text/plain", url="Binary/b")),
        document(
            "d4", attachment("text/plain", url="#"), contained=[{"resourceType": "Binary", "id": "x", "data": "QQ=="}]
        ),
    ]
    copies = [
        binary("b", "text/plain", export.lost("occurs more than once")),
        binary("b", "text/plain", export.lost("occurs more than once")),
    ]
    deep: Json = {"title": "x", "text": div(export.lost("nested deeper"))}
    for _ in range(40):
        deep = {"section": [deep]}
    composition = {
        "resourceType": "Composition",
        "id": "deep",
        "subject": {"reference": "Patient/p1"},
        "section": [deep],
    }
    export.put("x.ndjson", *notes, *copies, composition, patient())
    return export


def other_patients_encounter() -> FhirExport:
    """Return a note that names the encounter of another patient."""
    export = FhirExport()
    stay = {
        "resourceType": "Encounter",
        "id": "e2",
        "class": {"code": "IMP"},
        "subject": {"reference": "Patient/p2"},
        "period": {"start": "2150-01-05", "end": "2150-01-07"},
    }
    export.put(
        "x.ndjson",
        document("d1", attachment("text/plain", export.text()), context={"encounter": [{"reference": "Encounter/e2"}]}),
        stay,
        patient(),
        patient("p2"),
    )
    export.unread.append(("no words", "names an encounter of another patient"))
    return export


def versions_in_files() -> FhirExport:
    """Return two versions of a document in two files, the newer one first."""
    export = FhirExport()
    export.put(
        "a.json",
        bundle(
            document("d1", attachment("text/plain", export.text()), meta={"lastUpdated": "2150-03-10T10:00:00Z"}),
            patient(),
        ),
        lines=False,
    )
    export.put(
        "b.json",
        bundle(
            document(
                "d1",
                attachment("text/plain", export.lost("in an older version")),
                meta={"lastUpdated": "2150-03-09T10:00:00Z"},
            )
        ),
        lines=False,
    )
    return export


def r4b_reports() -> FhirExport:
    """Return R4B's amended report, whose form has no conclusion, and an STU3 Binary with `content`."""
    export = FhirExport()
    form = report(
        "r1",
        status="amended",
        presentedForm=[attachment("text/plain", export.text())],
        conclusion=export.text(words="New nodule"),
    )
    old = {"resourceType": "Binary", "id": "b", "contentType": "text/plain", "content": pack(export.text())}
    export.put("x.ndjson", form, document("d1", attachment("text/plain", url="Binary/b")), old, patient())
    return export


def many_binaries() -> FhirExport:
    """Return a bulk export in which every tenth of 200 Binaries is a PDF."""
    export = FhirExport()
    notes, binaries = [], []
    for number in range(200):
        text = export.text(f"p{1 + number % 2}")
        kind = "application/pdf" if number % 10 == 0 else "text/plain"
        notes.append(document(f"d{number}", attachment(kind, url=f"Binary/b{number}"), of=f"p{1 + number % 2}"))
        binaries.append(binary(f"b{number}", kind, pdf(text) if number % 10 == 0 else text))
    export.put("Binary.ndjson", *reversed(binaries))
    export.put("DocumentReference.ndjson", *notes)
    export.put("Patient.ndjson", patient(), patient("p2"))
    return export


EXPORTS: Mapping[str, Callable[[], FhirExport]] = {
    maker.__name__: maker
    for maker in (
        epic_bundle,
        epic_bulk,
        cerner_bundle,
        cerner_report,
        us_core,
        inferno_lines,
        incomplete_manifest,
        hapi_pages,
        hapi_history,
        synthea,
        urn_binaries,
        document_bundle,
        ips_document,
        array_file,
        batch_response,
        google_layout,
        azure_layout,
        aws_layout,
        jsonl_layout,
        files_beside,
        r5_documents,
        amendments,
        clinical_documents,
        wrong_types,
        unreadable_types,
        several_forms,
        other_texts,
        contained_results,
        stolen_binary,
        path_traversal,
        cycles_and_copies,
        other_patients_encounter,
        versions_in_files,
        r4b_reports,
        many_binaries,
    )
}
