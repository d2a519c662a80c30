"""Build notes from the resources that have text: documents, reports, compositions, and others by `narratives`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from epicrisis.corpus import sandbox
from epicrisis.corpus.base.reader_base import FileRemark
from epicrisis.corpus.records.fhir import narratives
from epicrisis.corpus.records.fhir.attachments import AttachmentReader, AttachmentTexts, list_attachments
from epicrisis.corpus.records.fhir.fhir_references import (
    EncounterStay,
    FhirReferences,
    find_encounter,
    find_patient,
    find_relations,
    name_note,
)
from epicrisis.corpus.records.fhir.fhir_resources import (
    STRUCTURE_ERRORS,
    WITHDRAWN,
    Resource,
    as_list,
    concept_text,
    list_objects,
)
from epicrisis.corpus.records.fhir.people import find_custodian, list_authors, list_signers
from epicrisis.corpus.records.note_documents import ClinicalNote

_SUPERSEDED = ("superseded", "deprecated")
_UNFINISHED = ("preliminary", "registered", "partial", "in-progress", "draft", "amended", "corrected", "appended")
"""Status of a text that is not, or no longer, the one that was signed first."""
_COUNTED = re.compile(r"(?P<count>\d{1,9}) (?P<noun>page|attachment|reference)s? (?P<words>.{1,999})", re.DOTALL)
_RELATION_REMARKS = {"appends": "addendum", "signs": "signature"}
_OTHER_ENCOUNTER = "names an encounter of another patient, which is left out; export it again"
_REPORT_LABELS = ("Conclusion", "Coded conclusion")


@dataclass(frozen=True, slots=True)
class NoteContext:
    """The context of the notes of one file, except their resources. `name`: of the file."""

    name: str
    references: FhirReferences
    attachments: AttachmentReader
    stores_facts: bool = False
    """Whether the C-CDA documents of the notes are recorded in the index, for their facts."""
    keep_superseded: bool = False


def is_withdrawn(resource: Resource) -> bool:
    """Return whether the source marks the resource as written by mistake, or as cancelled."""
    return resource.get("status") in WITHDRAWN or resource.get("docStatus") in WITHDRAWN


def has_text(resource: Resource) -> bool:
    """Return whether the resource may have a text of its own. A report may consist of references to results only."""
    kind = resource.get("resourceType")
    if kind == "DocumentReference" or is_withdrawn(resource):
        return True
    if kind == "DiagnosticReport":
        keys = ("presentedForm", "conclusion", "conclusionCode", "note")
        return any(resource.get(key) for key in keys) or bool(narratives.find_narrative(resource))
    return bool(narratives.find_narrative(resource)) or narratives.has_text(resource)


def build_note(resource: Resource, where: str, context: NoteContext) -> Iterator[ClinicalNote | FileRemark]:
    """Yield the note of a resource, and remarks on what was not read.

    Raises ValueError with the reason if it has no patient, or no readable text.
    """
    references = context.references
    patient = find_patient(resource, references)
    encounter = find_encounter(resource, references)
    stay = references.stay(encounter, patient)
    if encounter and stay == EncounterStay():
        yield FileRemark(context.name, str(resource.get("resourceType")), _OTHER_ENCOUNTER)
    status, doc_status = str(resource.get("status") or ""), str(resource.get("docStatus") or "")
    withdrawn = is_withdrawn(resource)
    text = _read_withdrawn(resource, patient, context) if withdrawn else _read_text(resource, patient, context)
    note_id = name_note(resource)
    relations = list(find_relations(resource, references))
    is_superseded = bool({status, doc_status}.intersection(_SUPERSEDED)) or (patient, note_id) in references.superseded
    is_left_out = withdrawn or (is_superseded and not context.keep_superseded)
    for digest in text.clinical if context.stores_facts else ():
        times = stay.encounter, stay.admitted, stay.discharged
        context.attachments.index.add_clinical_document(
            note_id or where, patient, digest, times, is_left_out=is_left_out
        )
    yield ClinicalNote(
        where=where,
        patient=patient,
        text=text.text,
        headings=text.headings,
        times=(_find_time(resource),),
        note_type=_find_type(resource),
        encounter=stay.encounter,
        note_id=note_id,
        patient_name=references.names.get(patient, ""),
        born=references.birth_date(patient),
        admitted=stay.admitted,
        discharged=stay.discharged,
        version=_describe_version(status, doc_status, relations),
        more={
            "status": status if status not in ("current", "final", "completed", "active") else "",
            "document_status": doc_status if doc_status != "final" else "",
            "visit": stay.visit,
            "authors": list_authors(resource, references.people_elements, patient),
            "signed_by": list_signers(resource, references.people_elements),
            "custodian": find_custodian(resource, references.people_elements),
            "amends": [f"note:{target}" for code, target in relations if code in _RELATION_REMARKS],
        },
        is_error=withdrawn,
        is_superseded=is_superseded,
    )
    for remark in text.remarks:
        yield _build_remark(context.name, remark)


def _read_withdrawn(resource: Resource, patient: str, context: NoteContext) -> AttachmentTexts:
    """Return a withdrawn document without its text; the facts of its C-CDA documents are withdrawn by their sources."""
    with suppress(ValueError, *STRUCTURE_ERRORS):
        return AttachmentTexts("(withdrawn)", clinical=_read_text(resource, patient, context).clinical)
    return AttachmentTexts("(withdrawn)")


def _build_remark(name: str, remark: str) -> FileRemark:
    """Return `2 pages without text` as a remark on a file that counts pages."""
    match = _COUNTED.fullmatch(remark)
    if match is None:
        return FileRemark(name, "document", f"with an attachment that has {remark}")
    return FileRemark(name, match["noun"], match["words"], int(match["count"]))


def _describe_version(status: str, doc_status: str, relations: list[tuple[str, str]]) -> str:
    """Return `amended`, `preliminary, addendum` and so on; empty for the final text of a document of its own."""
    words = [word for word in (status, doc_status) if word in _UNFINISHED]
    words += [_RELATION_REMARKS[code] for code, _ in relations if code in _RELATION_REMARKS]
    return ", ".join(dict.fromkeys(words))


def _find_time(resource: Resource) -> str:
    """Return the time of writing, else that of the described events, else an empty string."""
    context = resource.get("context")
    context_period = context.get("period") if isinstance(context, dict) else None
    period = context_period or resource.get("period") or resource.get("effectivePeriod") or {}
    keys = ("date", "issued", "authored", "sent", "received", "effectiveDateTime", "created", "indexed")
    times: list[Any] = [resource.get(key) for key in keys]
    times += [period.get("end"), period.get("start")]
    contents = list_objects(resource.get("content")) if resource.get("resourceType") == "DocumentReference" else []
    for attachment in list_objects([content.get("attachment") for content in contents]):
        times.append(attachment.get("creation"))
    return str(next(filter(None, times), ""))


def _find_type(resource: Resource) -> str:
    kind = str(resource.get("resourceType"))
    if kind in ("DocumentReference", "Composition"):
        return concept_text(resource.get("type")) or (str(resource.get("title") or "") if kind == "Composition" else "")
    if kind == "DiagnosticReport":
        return concept_text(resource.get("code")) or next(map(concept_text, as_list(resource.get("category"))), "")
    return narratives.TYPE_NAMES[kind]


def _read_text(resource: Resource, patient: str, context: NoteContext) -> AttachmentTexts:
    """Return the text of a resource. Raises ValueError with the reason."""
    kind = resource.get("resourceType")
    if kind == "DocumentReference":
        return context.attachments.read_best(resource, list_attachments(resource), patient)
    if kind == "DiagnosticReport":
        return _read_report(resource, patient, context)
    if kind == "Composition":
        return narratives.read_composition(resource, patient, context.references)
    lines = list(narratives.list_lines(resource))
    remarks: list[str] = []
    clinical: list[bytes] = []
    for attachment in narratives.list_attachments(resource):
        try:
            text = context.attachments.read_best(resource, [attachment], patient)
            lines.append(text.text)
            remarks += text.remarks
            clinical += text.clinical
        except ValueError as error:
            remarks.append(f"1 attachment not read: {error}")
    if not lines and (narrative := narratives.find_narrative(resource)):
        lines = [sandbox.page_text(narrative.encode())]
    return AttachmentTexts("\n".join(lines), remarks=tuple(remarks), clinical=tuple(clinical))


def _read_report(resource: Resource, patient: str, context: NoteContext) -> AttachmentTexts:
    """Return the text of a report: its form, and the conclusion where the form does not have it; else its narrative."""
    codes = [concept_text(_unwrap(code)) for code in as_list(resource.get("conclusionCode"))]
    conclusions = [str(resource.get("conclusion") or "").strip(), "; ".join(filter(None, codes))]
    form, fault = AttachmentTexts(""), ""
    if forms := list_attachments(resource):
        try:
            form = context.attachments.read_best(resource, forms, patient)
        except ValueError as error:
            fault = str(error)
    texts = [form.text] if form.text else []
    words = " ".join(form.text.split()).casefold()
    for label, conclusion in zip(_REPORT_LABELS, conclusions, strict=True):
        if conclusion and " ".join(conclusion.split()).casefold() not in words:
            texts.append(f"{label}: {conclusion}")
    notes = [str(note["text"]).strip() for note in list_objects(resource.get("note")) if note.get("text")]
    texts += [f"Comment: {note}" for note in notes]
    if not texts and (narrative := narratives.find_narrative(resource)):
        texts.append(sandbox.page_text(narrative.encode()))
    if fault and not texts:
        raise ValueError(fault)
    remarks = [*form.remarks, *([f"1 attachment not read beside a conclusion: {fault}"] if fault else [])]
    return AttachmentTexts("\n\n".join(texts), form.headings, tuple(remarks), form.clinical)


def _unwrap(code: Any) -> Mapping[str, Any]:
    """Return the CodeableConcept of a conclusion, which is within a CodeableReference in R6."""
    inner = code.get("concept") if isinstance(code, dict) else None
    return inner if isinstance(inner, dict) else next(iter(list_objects(code)), {})
