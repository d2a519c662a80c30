"""Resolve FHIR references to patients and hospital stays, by the Patient and Encounter resources of all files.

A patient is identified by the id of the resource, which is valid for one server: addresses of two servers are rejected.
An identifier (a record number, say) names the resource with that identifier, or becomes `system|value` without one.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from epicrisis.corpus.base.patient_numbers import stands_for_nobody
from epicrisis.corpus.base.reader_base import PatientIdentity
from epicrisis.corpus.records.facts.times import read_fact_time
from epicrisis.corpus.records.fhir.fhir_facts import FACT_TYPES
from epicrisis.corpus.records.fhir.fhir_resources import (
    Resource,
    as_list,
    is_hospital_stay,
    last_updated,
    list_objects,
    read_stay_period,
)
from epicrisis.corpus.records.fhir.medications import NamedCodes, StatedMedication, choose_stated, describe_medication
from epicrisis.corpus.records.fhir.people import format_name

_NoteKey: TypeAlias = tuple[str, str]
"""Patient and id of a document."""

TEXT_KINDS = (
    "DocumentReference",
    "DiagnosticReport",
    "Composition",
    "ClinicalImpression",
    "Communication",
    "CarePlan",
    "QuestionnaireResponse",
)
"""Types of the resources whose texts are notes."""
_PATIENT, _ENCOUNTER, _MEDICATION = "Patient", "Encounter", "Medication"
_VERSION = "/_history/"
_SUPERSEDES = ("replaces", "transforms")
_SECOND_SERVER = (
    "a {} of a second server, whose ids may equal those of the first; add each server's export to a library of its own"
)


@dataclass(frozen=True, slots=True)
class EncounterStay:
    """A hospital stay with its dates, or the id of a `visit`, which is no stay."""

    encounter: str = ""
    admitted: str = ""
    discharged: str = ""
    visit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FhirReferences:
    """Names of patients and stays by id, which all files share, and what each file says for itself: see `for_file`."""

    names: dict[str, str] = field(default_factory=dict)
    stays: dict[str, EncounterStay] = field(default_factory=dict)
    ids: dict[tuple[str, str], str] = field(default_factory=dict)
    """By type and id of resources and references: the resource's web address, if it has one."""
    identifiers: dict[tuple[str, str, str], set[str]] = field(default_factory=dict)
    """By type, system and value: the ids of the resources with this identifier."""
    servers: dict[str, str] = field(default_factory=dict)
    people: dict[str, PatientIdentity] = field(default_factory=dict)
    subject_identifiers: set[tuple[str, str]] = field(default_factory=set)
    """System and value of identifiers used for the patients of notes."""
    contradictory: list[PatientIdentity] = field(default_factory=list)
    """Identities in a second resource of a patient that differ from the first."""
    superseded: set[_NoteKey] = field(default_factory=set)
    medications: MutableMapping[str, StatedMedication] = field(default_factory=dict)
    """The Medication resources by id: those of one file before those of all, see `share_definitions`."""
    replacing: list[Resource] = field(default_factory=list)
    """The documents of one file that replace others."""
    addresses: dict[str, tuple[str, str]] = field(default_factory=dict)
    """By the full URL in one file's bundles: type and id."""
    people_elements: MutableMapping[tuple[str, str], Resource] = field(default_factory=dict)
    """Authors and organizations, see `people`: those of one file before those of all."""
    encounter_subjects: dict[str, Resource] = field(default_factory=dict)
    """The subjects of one file's encounters, as resources with nothing else."""
    encounter_patients: dict[str, str] = field(default_factory=dict)
    """By the id of an encounter: its patient, see `settle_encounters`."""

    def for_file(self) -> FhirReferences:
        """Return the references of one more file, which share the names of patients and stays with these."""
        return replace(
            self,
            addresses={},
            replacing=[],
            encounter_subjects={},
            medications=ChainMap({}, self.medications),
            people_elements=ChainMap({}, self.people_elements),
        )

    def stay(self, encounter: str, patient: str = "") -> EncounterStay:
        """Return the stay of an encounter, empty if it is another patient's.

        An encounter without a resource may be a stay.
        """
        if patient and self.encounter_patients.get(encounter, patient) != patient:
            return EncounterStay()
        return self.stays.get(encounter, EncounterStay(encounter))

    def birth_date(self, patient: str) -> str:
        """Return the birth date of a patient, or an empty string."""
        return self.people[patient].born if patient in self.people else ""


def record_resource(resource: Resource, references: FhirReferences) -> None:
    """Record what a resource says about patients and encounters. Raises ValueError if an id may belong to two."""
    kind, address = str(resource.get("resourceType")), str(resource.get("fullUrl") or "")
    last_part = address.partition(_VERSION)[0].rstrip("/").replace(":", "/").rpartition("/")[2]
    resource_id = str(resource.get("id") or "") or last_part
    is_referable = kind in (_PATIENT, _ENCOUNTER)
    if address and resource_id:
        target = references.addresses.setdefault(address, (kind, resource_id))
        if target != (kind, resource_id) and is_referable:
            raise ValueError("has the address of another resource; give each a fullUrl of its own")
    if is_referable and resource_id:
        _record_id(kind, resource_id, address, references)
        for identifier in _identifiers(resource):
            references.identifiers.setdefault((kind, *identifier), set()).add(resource_id)
        if kind == _ENCOUNTER:
            references.stays[resource_id] = _build_stay(resource_id, resource)
            subject = resource.get("subject") or resource.get("patient")
            references.encounter_subjects[resource_id] = {"subject": subject}
        else:
            _record_person(resource_id, resource, references)
    elif kind == _MEDICATION:
        stated = StatedMedication(describe_medication(resource), last_updated(resource))
        references.medications[resource_id] = choose_stated(references.medications.get(resource_id, stated), stated)
    elif kind in TEXT_KINDS or kind in FACT_TYPES:
        _record_references(resource, references)


def _record_references(resource: Resource, references: FhirReferences) -> None:
    """Record the ids and identifiers by which a resource names its patient and its encounter. Raises ValueError."""
    kind, address = str(resource.get("resourceType")), str(resource.get("fullUrl") or "")
    for target_kind, reference in _references(resource):
        link = str(reference.get("reference") or "") if isinstance(reference, dict) else ""
        reference_kind, reference_id = split_address(link)
        if reference_kind == target_kind and reference_id:
            # A relative reference belongs to the server of its resource.
            server = find_server(link, target_kind) or find_server(address, kind)
            _record_id(target_kind, reference_id, "", references, server)
    for subject in _list_subjects(resource):
        if not subject.get("reference") and isinstance(subject.get("identifier"), dict):
            references.subject_identifiers.add(_identifier(subject["identifier"]))


def _record_person(patient: str, resource: Resource, references: FhirReferences) -> None:
    names = list(map(format_name, list_objects(resource.get("name"))))
    born = resource.get("birthDate")
    identity = PatientIdentity(
        patient,
        names=tuple(dict.fromkeys(filter(None, names))),
        born=read_fact_time(born)[:10] if isinstance(born, str) else "",
        numbers=tuple(dict.fromkeys(_identifiers(resource))),
    )
    if references.people.setdefault(patient, identity) != identity:
        references.contradictory.append(identity)
    if identity.names:
        references.names[patient] = identity.names[0]


def _build_stay(encounter: str, resource: Resource) -> EncounterStay:
    if not is_hospital_stay(resource):
        return EncounterStay(visit=encounter)
    dates = read_stay_period(resource)
    return EncounterStay(encounter, str(dates.get("start") or ""), str(dates.get("end") or ""))


def patient_identities(references: FhirReferences) -> Iterator[PatientIdentity]:
    """Yield the identity of every patient in the files, after all resources were recorded."""
    server = references.servers.get(_PATIENT, "")
    source = f"fhir:{server}" if server else "fhir"
    for kind, patient in references.ids:
        if kind == _PATIENT:
            yield replace(references.people.get(patient, PatientIdentity(patient)), source=source)
    for identity in references.contradictory:
        yield replace(identity, source=source)
    for system, value in sorted(references.subject_identifiers):
        if value and not references.identifiers.get((_PATIENT, system, value)):
            patient = f"{system}|{value}" if system else value
            yield PatientIdentity(patient, source="identifier", numbers=((system, value),))


def settle_encounters(files: Iterable[FhirReferences]) -> None:
    """Record the patient of each encounter, after all resources were recorded."""
    for references in files:
        for encounter, subject in references.encounter_subjects.items():
            with suppress(ValueError):
                references.encounter_patients[encounter] = find_patient(subject, references)


def share_definitions(shared: FhirReferences, files: Iterable[FhirReferences]) -> None:
    """Let each file find the medications and people of all, after all resources were recorded.

    Exports of one patient each may use an id such as `Medication/1` for different things. So a file's own resources
    come first, and a medication that other files describe differently is none.
    """
    for references in files:
        if isinstance(references.people_elements, ChainMap):
            shared.people_elements.update(references.people_elements.maps[0])
        if isinstance(references.medications, ChainMap):
            for medication, stated in references.medications.maps[0].items():
                earlier = shared.medications.get(medication, stated)
                is_same = earlier.named == stated.named or earlier.updated != stated.updated
                nothing = StatedMedication(("", ()), stated.updated)
                shared.medications[medication] = choose_stated(earlier, stated) if is_same else nothing


def mark_superseded(files: Iterable[FhirReferences]) -> None:
    """Mark the documents that others of the same patient replace or transform, after all resources were recorded.

    Documents that replace each other in a circle stay, unless a document outside the circle replaces them.
    """
    later: dict[_NoteKey, set[_NoteKey]] = {}
    superseded: set[_NoteKey] = set()
    for references in files:
        superseded = references.superseded
        for resource in references.replacing:
            with suppress(ValueError):
                patient = find_patient(resource, references)
                for code, earlier_id in find_relations(resource, references):
                    if code in _SUPERSEDES:
                        later.setdefault((patient, earlier_id), set()).add((patient, name_note(resource)))
    settled = _find_settled(later)
    for note, successors in later.items():
        if not settled.isdisjoint(successors):
            superseded.add(note)


def _find_settled(later: Mapping[_NoteKey, set[_NoteKey]]) -> set[_NoteKey]:
    """Return the documents from which no chain of later documents runs in a circle."""
    earlier: dict[_NoteKey, list[_NoteKey]] = {}
    for note, successors in later.items():
        for successor in successors:
            earlier.setdefault(successor, []).append(note)
    open_successors = {note: len(successors) for note, successors in later.items()}
    queue = [note for note in earlier if note not in later]
    settled = set(queue)
    while queue:
        for note in earlier.get(queue.pop(), ()):
            open_successors[note] -= 1
            if not open_successors[note]:
                settled.add(note)
                queue.append(note)
    return settled


def name_note(resource: Resource) -> str:
    """Return the id of the note that a resource becomes, without `note:`; empty if the resource has no id.

    It is the id of a DocumentReference. Other types precede it, since an id may occur once for each type.
    """
    return _name_note(str(resource.get("resourceType")), str(resource.get("id") or ""))


def _name_note(kind: str, resource_id: str) -> str:
    return resource_id if kind == "DocumentReference" or not resource_id else f"{kind}/{resource_id}"


def find_relations(resource: Resource, references: FhirReferences) -> Iterator[tuple[str, str]]:
    """Yield the code (`replaces`, `appends`...) and the id of the note for each document in `relatesTo`.

    The code is a word in R4 and a CodeableConcept in R5, where a Composition has the word as `type`.
    """
    kind = str(resource.get("resourceType"))
    for relation in list_objects(resource.get("relatesTo")):
        code = relation.get("code") or relation.get("type")
        codings = list_objects(code.get("coding")) if isinstance(code, dict) else [{"code": code}]
        target = relation.get("target") or relation.get("targetReference") or relation.get("resourceReference")
        target = target or {"identifier": relation.get("targetIdentifier")}
        if target_id := resolve_reference(target, references, kind):
            yield (
                str(next((coding["code"] for coding in codings if coding.get("code")), "")),
                _name_note(kind, target_id),
            )


def find_patient(resource: Resource, references: FhirReferences) -> str:
    """Return the id of the resource's patient. Raises ValueError if it is unknown, or if there are two."""
    patients = {resolve_reference(subject, references, _PATIENT) for subject in _list_subjects(resource)}
    patients = {patient for patient in patients if not stands_for_nobody(patient)}
    if len(patients) > 1:
        raise ValueError("names more than one patient; export it for each of them")
    if patients:
        return patients.pop()
    raise ValueError("names no patient, and every note needs one; export it with its subject")


def describes_another_person(resource: Resource, patient: str, references: FhirReferences) -> bool:
    """Return whether a fact in the record of this patient is about somebody else, such as a fetus or a donor."""
    for focus in list_objects(resource.get("focus")):
        contained = find_contained(resource, str(focus.get("reference") or "")) or {}
        kind = contained.get("resourceType") or focus.get("type") or _find_type(focus, references)
        if kind == "RelatedPerson" or (kind == _PATIENT and resolve_reference(focus, references, _PATIENT) != patient):
            return True
    return False


def _find_type(reference: Resource, references: FhirReferences) -> str:
    """Return the type of the resource that a reference names, or an empty string."""
    address = str(reference.get("reference") or "")
    return (references.addresses.get(address) or split_address(address))[0]


def _list_subjects(resource: Resource) -> list[Resource]:
    """Return the references to the resource's subject. That of a contained Patient becomes one by its identifier."""
    subjects: list[Resource] = []
    for subject in list_objects(resource.get("subject") or resource.get("patient")):
        contained = find_contained(resource, str(subject.get("reference") or ""))
        if contained is None:
            subjects.append(subject)
        elif contained.get("resourceType") == _PATIENT:
            identifiers = list_objects(contained.get("identifier"))
            subjects += [{"identifier": identifier} for identifier in identifiers[:1]]
    return subjects


def find_contained(resource: Resource, reference: str) -> Resource | None:
    """Return the resource contained in another that a reference such as `#author` names, or None."""
    if not reference.startswith("#"):
        return None
    for inner in list_objects(resource.get("contained")):
        if str(inner.get("id") or "").removeprefix("#") == reference.removeprefix("#"):
            return inner
    return None


def find_medication(reference: Any, references: FhirReferences) -> NamedCodes:
    """Return words and codes of the Medication resource that is referred to; empty if no file has it."""
    stated = references.medications.get(resolve_reference(reference, references, _MEDICATION))
    return ("", ()) if stated is None else stated.named


def find_encounter(resource: Resource, references: FhirReferences) -> str:
    """Return the encounter's id, empty if there is none. Raises ValueError for an ambiguous identifier."""
    for kind, reference in _references(resource):
        if kind == _ENCOUNTER and (encounter := resolve_reference(reference, references, _ENCOUNTER)):
            return encounter
    return ""


def _references(resource: Resource) -> Iterator[tuple[str, Any]]:
    """Yield each reference with the type that it may name."""
    # Encounters are in a list of the context in R4's documents, in a list in R5's, and alone in other resources.
    for subject in _list_subjects(resource):
        yield _PATIENT, subject
    context = resource.get("context")
    encounters = resource.get("encounter") or context
    if isinstance(context, dict) and "reference" not in context:
        encounters = context.get("encounter") or resource.get("encounter")
    for encounter in as_list(encounters):
        yield _ENCOUNTER, encounter


def _record_id(kind: str, resource_id: str, address: str, references: FhirReferences, server: str = "") -> None:
    """Record an id with its server and web address. Raises ValueError if the id came from another server before."""
    server, web_address = server or find_server(address, kind), _web_address(address)
    previous = references.ids.get((kind, resource_id), "")
    is_other_server = server and references.servers.setdefault(kind, server) != server
    if is_other_server or (web_address and previous and web_address != previous):
        raise ValueError(_SECOND_SERVER.format(kind))
    references.ids[kind, resource_id] = web_address or previous


def resolve_reference(reference: Any, references: FhirReferences, kind: str) -> str:
    """Return the id of this type that a reference names, or an empty string. Raises ValueError if it is ambiguous."""
    if not isinstance(reference, dict):
        return ""
    address = str(reference.get("reference") or "")
    if address.startswith("urn:") and address not in references.addresses:
        return address.rpartition(":")[2]
    if address:
        target_kind, resource_id = references.addresses.get(address) or split_address(address)
        return resource_id if target_kind == kind else ""
    identifier = reference.get("identifier")
    if not isinstance(identifier, dict) or reference.get("type") not in (None, kind):
        return ""
    system, value = _identifier(identifier)
    ids = references.identifiers.get((kind, system, value), set())
    if len(ids) > 1:
        raise ValueError(f"its identifier is that of more than one {kind}; export it with the reference")
    if ids:
        return next(iter(ids))
    if not system and (kind, value) in references.ids:
        raise ValueError(f"its identifier has no system and may be another {kind}'s; export it with the reference")
    return f"{system}|{value}" if system and value else value


def _identifiers(resource: Resource) -> list[tuple[str, str]]:
    identifiers = (_identifier(item) for item in as_list(resource.get("identifier")) if isinstance(item, dict))
    return [identifier for identifier in identifiers if not stands_for_nobody(identifier[1])]


def _identifier(identifier: Resource) -> tuple[str, str]:
    return str(identifier.get("system") or "").strip(), str(identifier.get("value") or "").strip()


def split_address(address: str) -> tuple[str, str]:
    """Return type and id of `Patient/1`, relative or absolute, with or without a version."""
    parts = address.partition(_VERSION)[0].split("/")
    return (parts[-2], parts[-1]) if len(parts) > 1 else ("", "")


def _web_address(address: str) -> str:
    """Return the address without its scheme, which does not distinguish servers; empty if it is not on the web."""
    scheme, _, rest = address.partition(_VERSION)[0].partition("://")
    return rest if scheme.lower() in ("http", "https") else ""


def find_server(address: str, kind: str) -> str:
    """Return `a.example/fhir` of `http://a.example/fhir/Patient/1`; empty for an address of another form."""
    return _web_address(address).rpartition(f"/{kind}/")[0].rstrip("/") if split_address(address)[0] == kind else ""
