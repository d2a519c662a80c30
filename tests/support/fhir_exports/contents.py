"""FHIR exports with attachments, versions and references that are easily read wrongly."""

from __future__ import annotations

import base64

from tests.support.fhir_exports.resources import (
    HAPI,
    PNG,
    FhirExport,
    Json,
    attachment,
    binary,
    bundle,
    ccda,
    div,
    document,
    pack,
    page,
    patient,
    pdf,
    report,
    rtf,
)


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
        {"resourceType": "Goal", "id": "f", **subject, "code": {"text": export.lost("Goal")}},
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
