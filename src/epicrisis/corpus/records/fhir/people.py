"""Name the authors of documents, with their roles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any, TypeAlias

from epicrisis.corpus.records.fhir.fhir_resources import Resource, as_list, concept_text, list_objects

People: TypeAlias = MutableMapping[tuple[str, str], Resource]
"""By type and id: the elements of a person, a role or an organization that are read here."""

_ELEMENTS = ("resourceType", "name", "practitioner", "organization", "code", "specialty", "deviceName")
PEOPLE_KINDS = ("Practitioner", "PractitionerRole", "Organization", "RelatedPerson", "Device")
_AUTHOR_ELEMENTS: Mapping[str, tuple[str, ...]] = {
    "DiagnosticReport": ("resultsInterpreter", "performer"),
    "Communication": ("sender",),
    "ClinicalImpression": ("performer", "assessor"),
    "CarePlan": ("author", "custodian", "contributor"),
}
"""The elements that name the authors, of which the first that is not empty counts; `author` for other types."""


def record_person(resource: Resource, people: People) -> None:
    """Record a person, a role or an organization under its type and id."""
    if resource.get("id"):
        elements = {name: resource[name] for name in _ELEMENTS if name in resource}
        people[str(resource.get("resourceType")), str(resource["id"])] = elements


def format_name(name: Resource) -> str:
    """Return a HumanName as it is written: its text, else given names and family name."""
    parts = filter(None, (*as_list(name.get("given")), name.get("family")))
    return str(name.get("text") or " ".join(map(str, parts)))


def list_authors(resource: Resource, people: Mapping[tuple[str, str], Resource], patient: str) -> list[str]:
    """Return the authors as `Ada Smith (Cardiology)`, each once. A text by the patient has `the patient`."""
    for element in _AUTHOR_ELEMENTS.get(str(resource.get("resourceType")), ("author",)):
        names = [_describe(reference, resource, people, patient) for reference in list_objects(resource.get(element))]
        if any(names):
            return list(dict.fromkeys(filter(None, names)))
    return []


def find_custodian(resource: Resource, people: Mapping[tuple[str, str], Resource]) -> str:
    """Return the organization that keeps the document, or an empty string."""
    custodian = resource.get("custodian")
    return _describe(custodian, resource, people, "") if isinstance(custodian, dict) else ""


def list_signers(resource: Resource, people: Mapping[tuple[str, str], Resource]) -> list[str]:
    """Return who authenticated the document: `authenticator` of R4, `attester` of R5 and of Compositions."""
    references = list_objects(resource.get("authenticator"))
    for attester in list_objects(resource.get("attester")):
        references += list_objects(attester.get("party"))
    names = [_describe(reference, resource, people, "") for reference in references]
    return list(dict.fromkeys(filter(None, names)))


def _describe(reference: Resource, resource: Resource, people: Mapping[tuple[str, str], Resource], patient: str) -> str:
    """Return the name behind a reference with its role; its `display` if the resource is not in the export."""
    address = str(reference.get("reference") or "")
    parts = address.partition("/_history/")[0].replace("urn:uuid:", "/").split("/")
    if parts[-2:-1] == ["Patient"]:
        return "the patient" if parts[-1] == patient else ""
    display = str(reference.get("display") or "").strip()
    person = _find(address, resource, people)
    if person is None:
        return display
    if person.get("resourceType") != "PractitionerRole":
        return next(_list_names(person), display)
    names: list[str] = []
    for element in ("practitioner", "organization"):
        inner = person.get(element)
        if isinstance(inner, dict):
            participant = _find(str(inner.get("reference") or ""), resource, people)
            names.append(next(_list_names(participant or {}), str(inner.get("display") or "").strip()))
    roles = [concept_text(concept) for concept in (*as_list(person.get("specialty")), *as_list(person.get("code")))]
    name = next(filter(None, names), display)
    role = next(filter(None, roles), "")
    return f"{name} ({role})" if name and role else name or role


def _find(address: str, resource: Resource, people: Mapping[tuple[str, str], Resource]) -> Resource | None:
    if address.startswith("#"):
        for inner in list_objects(resource.get("contained")):
            if str(inner.get("id") or "").removeprefix("#") == address[1:]:
                return inner
        return None
    if address.startswith("urn:"):
        resource_id = address.rpartition(":")[2]
        return next((people[kind, resource_id] for kind in PEOPLE_KINDS if (kind, resource_id) in people), None)
    parts = address.partition("/_history/")[0].split("/")
    return people.get((parts[-2], parts[-1])) if len(parts) > 1 else None


def _list_names(person: Resource) -> Iterator[str]:
    """Yield the names of a person, an organization or a device."""
    for key in ("name", "deviceName"):
        for name in as_list(person.get(key)):
            text: Any = name
            if isinstance(name, dict):
                text = format_name({"text": name.get("name"), **name})
                suffix = " ".join(map(str, as_list(name.get("suffix"))))
                text = f"{text} {suffix}" if suffix and not name.get("text") else text
            if str(text or "").strip():
                yield str(text).strip()
