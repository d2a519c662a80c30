"""Build notes from DocumentReferences."""

from __future__ import annotations

import base64
import binascii

from epicrisis.corpus import sandbox
from epicrisis.corpus.fhir.references import FhirReferences, find_encounter, find_patient
from epicrisis.corpus.fhir.resources import WITHDRAWN, Resource, concept_text
from epicrisis.corpus.html import text_encoding
from epicrisis.corpus.note_documents import ClinicalNote


def is_withdrawn(resource: Resource) -> bool:
    """Return whether the source marks the resource as written by mistake, or as cancelled."""
    return resource.get("status") in WITHDRAWN or resource.get("docStatus") in WITHDRAWN


def build_note(resource: Resource, where: str, references: FhirReferences) -> ClinicalNote:
    """Return the note of a DocumentReference. Raises ValueError if it has no patient, or no readable text."""
    patient = find_patient(resource, references)
    stay = references.stay(find_encounter(resource, references))
    context = resource.get("context")
    context_period = context.get("period") if isinstance(context, dict) else None
    period = context_period or resource.get("period") or {}
    status, note_id = str(resource.get("status") or ""), str(resource.get("id") or "")
    withdrawn = is_withdrawn(resource)
    return ClinicalNote(
        where=where,
        patient=patient,
        text="(withdrawn)" if withdrawn and not resource.get("content") else document_text(resource),
        # The time of writing is preferred to the time of the described events.
        times=(str(resource.get("date") or period.get("end") or period.get("start") or ""),),
        note_type=concept_text(resource.get("type")),
        encounter=stay.encounter,
        note_id=note_id,
        patient_name=references.names.get(patient, ""),
        admitted=stay.admitted,
        discharged=stay.discharged,
        more={"status": status if status != "current" else "", "visit": stay.visit},
        is_error=withdrawn,
        is_superseded=status == "superseded" or (patient, note_id) in references.superseded,
    )


def document_text(resource: Resource) -> str:
    """Return the text of the first plain attachment, else of the first HTML page."""
    attachments = [content["attachment"] for content in resource["content"] if content.get("attachment")]
    content_types = [str(attachment.get("contentType") or "text/plain").lower() for attachment in attachments]
    for accepted in (("text/plain",), ("text/html", "application/xhtml+xml")):
        for attachment, content_type in zip(attachments, content_types, strict=True):
            if content_type.partition(";")[0].strip() in accepted and attachment.get("data") is not None:
                return _decode_attachment(str(attachment["data"]), content_type)
    if any("data" not in attachment and "url" in attachment for attachment in attachments):
        raise ValueError("its text is at an address, and nothing is fetched; export it with the attachments' data")
    raise ValueError("has no attachment of plain text or HTML; export its text as one of them")


def _decode_attachment(data: str, content_type: str) -> str:
    """Return the text of an attachment: base64, as FHIR requires; or the text itself, as in some exports."""
    is_page = not content_type.startswith("text/plain")
    try:
        raw = base64.b64decode("".join(data.split()) if " " not in data else data, validate=True)
    except (binascii.Error, ValueError):
        return sandbox.page_text(data.encode()) if is_page else data
    if is_page:
        return sandbox.page_text(raw)
    charset = content_type.partition("charset=")[2].partition(";")[0].strip(" \"'") or "utf-8"
    try:
        return raw.decode(text_encoding(charset))
    except UnicodeDecodeError as error:
        place = f"at byte {error.start + 1}"
        raise ValueError(f"its text is not {charset} {place}; let contentType name its charset") from error
    except LookupError as error:
        raise ValueError("its contentType names an unknown charset; save it as UTF-8") from error
