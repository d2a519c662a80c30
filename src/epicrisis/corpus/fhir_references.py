"""Which patient and which stay FHIR's references name, by what Patient and Encounter resources of all files say.

A patient is known by the id of the resource, which is one server's: addresses of two servers in one read are refused.
An identifier (a record number, say) is no id: it names the resource that has it, else it stands as `system|value`.
Does not read files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from epicrisis.corpus.fhir_observation import WITHDRAWN, as_list
from epicrisis.corpus.reader_base import PatientIdentity

_PATIENT, _ENCOUNTER, _DOCUMENT = "Patient", "Encounter", "DocumentReference"
_SUPERSEDES = ("replaces", "transforms")
_STAYS = frozenset(("IMP", "ACUTE", "NONAC", "OBSENC", "SS", "EMER"))
_NO_STAYS = (*WITHDRAWN, "planned")
_CLASSES = ("actcode", "2.16.840.1.113883.5.4")
"""How the names of the code system of `_STAYS` end."""
_SECOND_SERVER = (
    "a {} of a second server, whose ids may be those of the first; add each server's export to a library of its own"
)


@dataclass(frozen=True, slots=True)
class EncounterStay:
    """What a note says of its encounter: that and its dates, or the id of a `visit`, which is no stay in hospital."""

    encounter: str = ""
    admitted: str = ""
    discharged: str = ""
    visit: str = ""


@dataclass(frozen=True, slots=True)
class FhirReferences:
    """What is known of patients (`names`) and encounters (`stays`) by id; all but `addresses` and `replacing` is of all
    files."""

    names: dict[str, str] = field(default_factory=dict)
    stays: dict[str, EncounterStay] = field(default_factory=dict)
    ids: dict[tuple[str, str], str] = field(default_factory=dict)
    """By type and id of resources and references: the resource's address in the web, where it has one."""
    identifiers: dict[tuple[str, str, str], set[str]] = field(default_factory=dict)
    """By type, system and value: the ids of the resources that have it."""
    servers: dict[str, str] = field(default_factory=dict)
    """By type."""
    people: dict[str, PatientIdentity] = field(default_factory=dict)
    """Patients by id, as their resources tell of them."""
    asked: set[tuple[str, str]] = field(default_factory=set)
    """System and value of identifiers that stand for a note's patient."""
    contradictory: list[PatientIdentity] = field(default_factory=list)
    """What a second resource says of a patient that differs from the first."""
    superseded: set[tuple[str, str]] = field(default_factory=set)
    """(patient, id) of documents that another one replaces, or is another form of."""
    replacing: list[Mapping[str, Any]] = field(default_factory=list)
    """One file's documents that stand in the place of others."""
    addresses: dict[str, tuple[str, str]] = field(default_factory=dict)
    """By the full URL in one file's bundles: type and id."""

    def stay(self, encounter: str) -> EncounterStay:
        """Of an encounter, or of none (empty); one of which no resource tells may be a stay."""
        return self.stays.get(encounter, EncounterStay(encounter))


def record_resource(found: Mapping[str, Any], known: FhirReferences) -> None:
    """Raises ValueError where an id or address may be of two resources."""
    kind, address = str(found.get("resourceType")), str(found.get("fullUrl") or "")
    own = str(found.get("id") or "") or _plain(address).rstrip("/").replace(":", "/").rpartition("/")[2]
    is_named = kind in (_PATIENT, _ENCOUNTER)
    if address and own and known.addresses.setdefault(address, (kind, own)) != (kind, own) and is_named:
        raise ValueError("has the address of another resource; give each a fullUrl of its own")
    if is_named and own:
        _meet(kind, own, address, known)
        _learn_named(kind, own, found, known)
    elif kind in ("DocumentReference", "Observation"):
        for wanted, reference in _references(found):
            _learn_reference(wanted, reference, _server(address, kind), known)
        subject = found.get("subject")
        if isinstance(subject, dict) and not subject.get("reference") and isinstance(subject.get("identifier"), dict):
            known.asked.add(_identifier(subject["identifier"]))


def _learn_named(kind: str, own: str, found: Mapping[str, Any], known: FhirReferences) -> None:
    for each in as_list(found.get("identifier")):
        if isinstance(each, dict) and (named := _identifier(each))[1]:
            known.identifiers.setdefault((kind, *named), set()).add(own)
    if kind == _ENCOUNTER:
        known.stays[own] = _stay(own, found)
        return
    told = _identity(own, found)
    if known.people.setdefault(own, told) != told:
        known.contradictory.append(told)
    if told.names:
        known.names[own] = told.names[0]


def patient_identities(known: FhirReferences) -> Iterator[PatientIdentity]:
    """Give who every patient is that the files name, after all of them were learned."""
    server = known.servers.get(_PATIENT, "")
    source = f"fhir:{server}" if server else "fhir"
    for kind, own in known.ids:
        if kind == _PATIENT:
            yield replace(known.people.get(own, PatientIdentity(own)), source=source)
    yield from (replace(each, source=source) for each in known.contradictory)
    for system, value in sorted(known.asked):
        if value and not known.identifiers.get((_PATIENT, system, value)):
            yield PatientIdentity(
                f"{system}|{value}" if system else value, source="identifier", numbers=((system, value),)
            )


def mark_superseded(read: Iterable[FhirReferences]) -> None:
    """Note which documents others replace, or are another form of, after all files were learned.

    A document counts only for the same patient's. Of documents that replace each other in a circle, or themselves, none
    is known to be the later one: they stay, unless one outside the circle replaces them.
    """
    later: dict[tuple[str, str], set[tuple[str, str]]] = {}
    superseded: set[tuple[str, str]] = set()
    for known in read:
        superseded = known.superseded
        for found in known.replacing:
            with suppress(ValueError):
                whose = find_patient(found, known)
                for own in _superseded_by(found, known):
                    later.setdefault((whose, own), set()).add((whose, str(found.get("id") or "")))
    settled = _settled(later)
    superseded.update(note for note, direct in later.items() if not settled.isdisjoint(direct))


def _settled(later: Mapping[tuple[str, str], set[tuple[str, str]]]) -> set[tuple[str, str]]:
    """Return the documents from which the way to later ones ends, and does not run in a circle."""
    earlier: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for note, direct in later.items():
        for each in direct:
            earlier.setdefault(each, []).append(note)
    left = {note: len(direct) for note, direct in later.items()}
    waiting = [note for note in earlier if note not in left]
    settled = set(waiting)
    while waiting:
        for note in earlier.get(waiting.pop(), ()):
            left[note] -= 1
            if not left[note]:
                settled.add(note)
                waiting.append(note)
    return settled


def _superseded_by(found: Mapping[str, Any], known: FhirReferences) -> Iterator[str]:
    """The ids that `relatesTo` names. R4's code is a word, R5's a CodeableConcept."""
    for each in as_list(found.get("relatesTo")):
        if not isinstance(each, dict):
            continue
        code = each.get("code")
        codings = as_list(code.get("coding")) if isinstance(code, dict) else [{"code": code}]
        codes = [coding.get("code") for coding in codings if isinstance(coding, dict)]
        if any(code in _SUPERSEDES for code in codes) and (own := _named(each.get("target"), known, _DOCUMENT)):
            yield own


def find_patient(found: Mapping[str, Any], known: FhirReferences) -> str:
    """Raises ValueError where it cannot be said of which patient the resource is."""
    if named := _named(found.get("subject"), known, _PATIENT):
        return named
    raise ValueError("names no patient: whose record it is must be known; export it with its subject")


def find_encounter(found: Mapping[str, Any], known: FhirReferences) -> str:
    """The encounter's id; empty where none is named. Raises ValueError as `find_patient`."""
    wanted = (reference for kind, reference in _references(found) if kind == _ENCOUNTER)
    return next((name for each in wanted if (name := _named(each, known, _ENCOUNTER))), "")


# -- resources ------------------------------------------------------------------------------------------------------


def _identity(own: str, found: Mapping[str, Any]) -> PatientIdentity:
    names = dict.fromkeys(name for each in as_list(found.get("name")) if (name := _name(each)))
    numbers = dict.fromkeys(_identifier(each) for each in as_list(found.get("identifier")) if isinstance(each, dict))
    born = found.get("birthDate")
    return PatientIdentity(
        own,
        names=tuple(names),
        born=born.strip() if isinstance(born, str) else "",
        numbers=tuple(number for number in numbers if number[1]),
    )


def _name(given: Any) -> str:
    if not isinstance(given, dict):
        return ""
    parts = [*as_list(given.get("given")), given.get("family")]
    return str(given.get("text") or " ".join(str(part) for part in parts if part))


def _stay(own: str, found: Mapping[str, Any]) -> EncounterStay:
    codes = set(_classes(found.get("class")))
    if found.get("status") in _NO_STAYS or (codes and not codes & _STAYS):
        return EncounterStay(visit=own)
    # R5 has another name for it.
    period = found.get("period") or found.get("actualPeriod")
    dates = period if isinstance(period, dict) else {}
    return EncounterStay(own, str(dates.get("start") or ""), str(dates.get("end") or ""))


def _classes(given: Any) -> Iterator[str]:
    """The codes of a class: R4 has one Coding, R5 CodeableConcepts. A hospital's own codes say nothing here."""
    for each in as_list(given):
        for coding in as_list(each.get("coding", each)) if isinstance(each, dict) else ():
            if isinstance(coding, dict) and coding.get("code"):
                system = str(coding.get("system") or "").lower()
                if not system or system.endswith(_CLASSES):
                    yield str(coding["code"]).upper()


# -- references -----------------------------------------------------------------------------------------------------


def _references(found: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Each with the type that it may name. R4's documents have encounters in a list of their context, R5's in a list,
    observations have one alone."""
    yield _PATIENT, found.get("subject")
    held = found.get("context")
    given = held.get("encounter") if isinstance(held, dict) else found.get("encounter") or held
    for each in as_list(given):
        yield _ENCOUNTER, each


def _learn_reference(wanted: str, given: Any, server: str, known: FhirReferences) -> None:
    """A relative reference is of the `server` of the resource that has it."""
    target = str(given.get("reference") or "") if isinstance(given, dict) else ""
    kind, own = _parted(target)
    if kind == wanted and own:
        _meet(kind, own, "", known, _server(target, kind) or server)


def _meet(kind: str, own: str, address: str, known: FhirReferences, server: str = "") -> None:
    """Raises ValueError for an id of another server than before."""
    server, web, before = server or _server(address, kind), _web(address), known.ids.get((kind, own), "")
    if (server and known.servers.setdefault(kind, server) != server) or (web and before and web != before):
        raise ValueError(_SECOND_SERVER.format(kind))
    known.ids[kind, own] = web or before


def _named(given: Any, known: FhirReferences, kind: str) -> str:
    """The id that a reference names; empty where it names none of that type. Raises ValueError for one of several."""
    if not isinstance(given, dict):
        return ""
    target = str(given.get("reference") or "")
    if not target:
        return _by_identifier(given, known, kind)
    if target.startswith("urn:") and target not in known.addresses:
        return target.rpartition(":")[2]
    named, own = known.addresses.get(target) or _parted(target)
    return own if named == kind else ""


def _by_identifier(given: Mapping[str, Any], known: FhirReferences, kind: str) -> str:
    identifier = given.get("identifier")
    if not isinstance(identifier, dict) or given.get("type") not in (None, kind):
        return ""
    system, value = _identifier(identifier)
    held = known.identifiers.get((kind, system, value), set())
    if len(held) > 1:
        raise ValueError(f"its identifier is that of more than one {kind}; export it with the reference")
    if held:
        return next(iter(held))
    if not system and (kind, value) in known.ids:
        raise ValueError(f"its identifier has no system and may be another {kind}'s; export it with the reference")
    return f"{system}|{value}" if system and value else value


def _identifier(given: Mapping[str, Any]) -> tuple[str, str]:
    return str(given.get("system") or "").strip(), str(given.get("value") or "").strip()


# -- addresses ------------------------------------------------------------------------------------------------------


def _plain(address: str) -> str:
    """Without the version."""
    return address.partition("/_history/")[0]


def _parted(address: str) -> tuple[str, str]:
    """Type and id of `.../Patient/1`."""
    parts = _plain(address).split("/")
    return (parts[-2], parts[-1]) if len(parts) > 1 else ("", "")


def _web(address: str) -> str:
    """Without the scheme, which tells no servers apart; empty for no address in the web."""
    scheme, _, rest = _plain(address).partition("://")
    return rest if scheme.lower() in ("http", "https") else ""


def _server(address: str, kind: str) -> str:
    """`a.example/fhir` of `http://a.example/fhir/Patient/1`; empty for a relative address, or one of another form."""
    return _web(address).rpartition(f"/{kind}/")[0].rstrip("/") if _parted(address)[0] == kind else ""
