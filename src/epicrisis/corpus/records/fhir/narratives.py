"""Write the texts of compositions and of resources whose text is in many elements, one line for each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from epicrisis.corpus import sandbox
from epicrisis.corpus.records.fhir.attachments import AttachmentTexts
from epicrisis.corpus.records.fhir.fhir_references import FhirReferences, find_patient
from epicrisis.corpus.records.fhir.fhir_resources import Resource, as_list, concept_text, list_objects

TYPE_NAMES = {
    "ClinicalImpression": "Clinical impression",
    "Communication": "Communication",
    "CarePlan": "Care plan",
    "QuestionnaireResponse": "Questionnaire response",
}
_MAX_ITEM_DEPTH = 16
_ENTRY_CONCEPTS = ("code", "medicationCodeableConcept", "vaccineCode", "type")
_WITHOUT_SUBJECT = ("Practitioner", "PractitionerRole", "Organization", "Location", "Medication", "Device")


def find_narrative(resource: Resource) -> str:
    """Return the XHTML of a resource's narrative, or an empty string. A narrative may be declared empty."""
    text = resource.get("text")
    if not isinstance(text, dict) or text.get("status") == "empty":
        return ""
    return str(text.get("div") or "")


def has_text(resource: Resource) -> bool:
    """Return whether a composition or another resource of this module has another text than its narrative."""
    if resource.get("resourceType") == "Composition":
        return bool(resource.get("section"))
    return any(list_lines(resource)) or bool(list_attachments(resource))


def read_composition(composition: Resource, patient: str, references: FhirReferences) -> AttachmentTexts:
    """Return the sections of a composition with their titles; of none has text, the composition's narrative.

    An entry of a section without a narrative of its own is one line. Entries of another patient are left out.
    """
    lines: list[str] = []
    headings: list[str] = []
    remarks: list[str] = []
    for section in list_objects(composition.get("section")):
        _write_section(section, (), patient, references, (lines, headings, remarks))
    if not lines and (narrative := find_narrative(composition)):
        lines.append(sandbox.page_text(narrative.encode()))
    return AttachmentTexts("\n".join(lines), tuple(headings), tuple(remarks))


def _write_section(
    section: Resource,
    path: tuple[str, ...],
    patient: str,
    references: FhirReferences,
    output: tuple[list[str], list[str], list[str]],
) -> None:
    """Write a section and those in it to `output`: lines, headings and remarks."""
    lines, headings, remarks = output
    title = " ".join(str(section.get("title") or concept_text(section.get("code"))).split())
    path = (*path, title) if title else path
    content = [sandbox.page_text(narrative.encode())] if (narrative := find_narrative(section)) else []
    missing = 0
    for entry in list_objects(section.get("entry")):
        resource = entry.get("resource")
        if content and narrative:
            break
        if not isinstance(resource, dict):
            missing += 1
        elif _is_other_patient(resource, patient, references):
            remarks.append("1 reference of a section left out: it is another patient's; export it again")
        elif line := _describe_entry(resource):
            content.append(line)
    if missing:
        remarks.append(f"{missing} references of a section without text not in its bundle; export the bundle with them")
    if not content and (reason := concept_text(section.get("emptyReason"))):
        content.append(f"(empty: {reason})")
    if content and path:
        heading = " / ".join(path)
        headings.append(heading)
        lines.append(heading)
    lines.extend(content)
    for inner in list_objects(section.get("section")):
        _write_section(inner, path, patient, references, output)


def _is_other_patient(resource: Resource, patient: str, references: FhirReferences) -> bool:
    """Return whether the resource is not certainly this patient's."""
    if resource.get("resourceType") in _WITHOUT_SUBJECT:
        return False
    if resource.get("resourceType") == "Patient":
        return resource.get("id") != patient
    try:
        return find_patient(resource, references) != patient
    except ValueError:
        return True


def _describe_entry(resource: Resource) -> str:
    """Return the narrative of a resource, else the words of its code, or an empty string."""
    if narrative := find_narrative(resource):
        return sandbox.page_text(narrative.encode())
    words = [concept_text(resource.get(key)) for key in _ENTRY_CONCEPTS]
    return next(filter(None, words), "")


def list_attachments(resource: Resource) -> list[Resource]:
    """Return the attachments in the payload of a Communication."""
    payloads = list_objects(resource.get("payload"))
    contents = [payload.get("contentAttachment") for payload in payloads]
    return [content for content in contents if isinstance(content, dict)]


def list_lines(resource: Resource) -> Iterator[str]:
    """Yield the lines of a resource of `TYPE_NAMES`, in its order."""
    kind = resource.get("resourceType")
    if kind == "QuestionnaireResponse":
        yield from _list_answers(list_objects(resource.get("item")), 0)
    elif kind == "Communication":
        yield from filter(None, (concept_text(resource.get("topic")),))
        for payload in list_objects(resource.get("payload")):
            yield from _list_texts(payload, ("contentString", "contentCodeableConcept"))
    elif kind == "ClinicalImpression":
        yield from _list_texts(resource, ("description", "summary"))
        for finding in list_objects(resource.get("finding")):
            words = _concept_of(finding.get("item")) or _concept_of(finding.get("itemCodeableConcept"))
            basis = str(finding.get("basis") or "")
            yield from filter(None, (f"{words}: {basis}" if words and basis else words or basis,))
        for prognosis in as_list(resource.get("prognosisCodeableConcept")):
            yield from filter(None, (concept_text(prognosis),))
    elif kind == "CarePlan":
        yield from _list_texts(resource, ("title", "description"))
        for activity in list_objects(resource.get("activity")):
            detail = activity.get("detail")
            if isinstance(detail, dict):
                yield from _list_texts(detail, ("code", "description"))
            yield from _list_notes(activity.get("progress"))
    yield from _list_notes(resource.get("note"))


def _list_texts(element: Resource, keys: Sequence[str]) -> Iterator[str]:
    """Yield the words of these members of an element, each a string or a CodeableConcept."""
    for key in keys:
        value = element.get(key)
        text = value.strip() if isinstance(value, str) else concept_text(value)
        if text:
            yield text


def _list_notes(notes: Any) -> Iterator[str]:
    for note in list_objects(notes):
        if str(note.get("text") or "").strip():
            yield str(note["text"]).strip()


def _concept_of(value: Any) -> str:
    """Return the words of a CodeableConcept, or of that in a CodeableReference of R5."""
    inner: Any = value.get("concept") if isinstance(value, dict) else None
    return concept_text(inner if inner is not None else value)


def _list_answers(items: Sequence[Resource], depth: int) -> Iterator[str]:
    """Yield a line for each question: `Do you smoke?: yes`."""
    if depth > _MAX_ITEM_DEPTH:
        return
    for item in items:
        question = str(item.get("text") or item.get("linkId") or "").strip()
        answers = list_objects(item.get("answer"))
        texts = list(filter(None, map(_answer_text, answers)))
        if texts or (item.get("text") and not answers):
            yield f"{question}: {'; '.join(texts)}" if texts else question
        yield from _list_answers(list_objects(item.get("item")), depth + 1)
        for answer in answers:
            yield from _list_answers(list_objects(answer.get("item")), depth + 1)


def _answer_text(answer: Resource) -> str:
    for key, value in answer.items():
        if not key.startswith("value") or value is None:
            continue
        if isinstance(value, bool):
            return "yes" if value else "no"
        if not isinstance(value, Mapping):
            return str(value)
        quantity = [str(value[part]) for part in ("comparator", "value", "unit") if value.get(part) not in (None, "")]
        words = concept_text({"coding": [value]}) or concept_text(value)
        return words if key == "valueCoding" else " ".join(quantity) or words or str(value.get("display") or "")
    return ""
