"""FHIR exports in the forms and layouts of servers."""

from __future__ import annotations

from tests.support.fhir_exports.resources import (
    CERNER,
    EPIC,
    HAPI,
    FhirExport,
    Json,
    attachment,
    binary,
    bundle,
    div,
    document,
    pack,
    page,
    patient,
    pdf,
    report,
    rtf,
)


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
