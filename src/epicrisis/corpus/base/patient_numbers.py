"""Tell which patient a record number means: within an addition, and among the patients of the library.

    numbers = PatientNumbers()
    patient = numbers.resolve(StatedPerson((("urn:oid:1.2.3", "4711"),), born="1950-01-02"))    # "urn:oid:1.2.3|4711"

Formats without ids of patients name them by record numbers. A patient that FHIR resources describe keeps the id of the
resource in files of these formats with one of its numbers, and one that the library has keeps its id in a FHIR export.
Patients are never joined by a number that two of them have, nor if anything else about them differs.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from epicrisis.corpus.base.reader_base import PatientIdentity

RecordNumber = tuple[str, str]
"""System and value."""
_SHARED_SYSTEMS = (
    "urn:oid:2.16.840.1.113883.4.1",
    "urn:oid:2.16.840.1.113883.4.3",
    "http://hl7.org/fhir/sid/us-ssn",
    "SS",
    "SSN",
)
"""Systems of social security numbers and driver's licences, by which no record is named if there is another number."""
_FHIR = "fhir"
"""How sources and systems of the ids of FHIR's resources begin: `fhir:a.example/r4`, or `fhir` without its server."""


_PLACEHOLDER = re.compile(
    r"[0\W_]*|(?:patient )?unk(?:nown)?(?: patient)?|none|null|nil|n/?a|nan|nat|undefined|missing|anonymous|"
    r"not (?:available|applicable|known|given|recorded)|no (?:id|mrn|number)"
)
"""What systems write in place of an id, in small letters."""


def stands_for_nobody(patient: str) -> bool:
    """Return whether an id or record number, with or without its system, is what systems write for a missing one.

    Such an id would join strangers in one record.
    """
    return _PLACEHOLDER.fullmatch(patient.rpartition("|")[2].strip().casefold()) is not None


def names_nobody(name: str) -> bool:
    """Return whether all words of a name are what systems write for a missing one: `Unknown, Unknown`."""
    words = name.replace(",", " ").split()
    return stands_for_nobody(" ".join(words)) or all(stands_for_nobody(word) for word in words)


@dataclass(frozen=True, slots=True)
class StatedPerson:
    """A patient as the header of a document or a message says. One that is read has a record number."""

    numbers: tuple[RecordNumber, ...]
    """In the order of the source."""
    names: tuple[str, ...] = ()
    born: str = ""


@dataclass(frozen=True, slots=True)
class StoredPatients:
    """The patients of a library: how they are read, and what shows that two identities are two people, if anything."""

    read: Callable[[], Iterable[PatientIdentity]]
    contradict: Callable[[PatientIdentity, PatientIdentity], str]


@dataclass(frozen=True, slots=True)
class _LibraryPatients:
    identities: dict[str, PatientIdentity] = field(default_factory=dict)
    owners: defaultdict[RecordNumber, set[str]] = field(default_factory=lambda: defaultdict(set))
    """By record number: the patients that have it."""
    servers: set[str] = field(default_factory=set)
    """The systems of the ids of FHIR's resources among the numbers."""


class PatientNumbers:
    """The patients of an addition by their record numbers."""

    def __init__(self, stored: StoredPatients | None = None) -> None:
        self._stored = stored
        self._library: _LibraryPatients | None = None
        self._owners: defaultdict[RecordNumber, set[str]] = defaultdict(set)
        self._born: dict[str, str] = {}
        self._numbers: defaultdict[str, dict[str, set[str]]] = defaultdict(dict)
        self._joined: dict[str, str] = {}

    def add_identity(self, identity: PatientIdentity) -> None:
        """Record the numbers of a patient whose id another format says."""
        numbers = _list_numbers(identity.numbers)
        for number in numbers:
            self._owners[number].add(identity.patient)
        self._record(identity.patient, numbers, identity.born)

    def identify(self, patient: str, person: StatedPerson) -> PatientIdentity:
        """Return who a patient of `resolve` is. The alias is what one of the library would be called by its number."""
        numbers = _list_numbers(person.numbers)
        return PatientIdentity(patient, "", person.names, person.born, numbers, self._joined.get(patient, ""))

    def resolve(self, person: StatedPerson) -> str:
        """Return the id of the patient with these numbers, and remember them.

        Raises ValueError with the reason if there is no number, or if the numbers, the birth date or the names are
        those of different people.
        """
        numbers = _list_numbers(person.numbers)
        if not numbers:
            raise ValueError("names no patient, and every note needs one; export it with the patient's record number")
        owned = [self._owners[number] for number in numbers if number in self._owners]
        patients = set().union(*(owners for owners in owned if len(owners) == 1))
        if len(patients) > 1:
            raise ValueError("its record numbers are those of different patients; correct them in its source")
        patient = (
            next(iter(patients), "") or self._find_stored(numbers, person.born, person.names) or self._name(numbers)
        )
        self._check(patient, numbers, person.born)
        for number in numbers:
            self._owners[number].add(patient)
        self._record(patient, numbers, person.born)
        return patient

    def join_export(self, identities: Sequence[PatientIdentity]) -> Mapping[str, str]:
        """Map the ids of patients of a FHIR export to those that the same people have in the library.

        One that the library has under the id of the resource stays as it is.
        """
        library = self._read_library()
        by_id: dict[str, PatientIdentity] = {}
        for identity in identities:
            earlier = by_id.get(identity.patient, identity)
            numbers = tuple(dict.fromkeys((*earlier.numbers, *identity.numbers)))
            by_id[identity.patient] = replace(earlier, numbers=numbers)
        joined: defaultdict[str, list[str]] = defaultdict(list)
        for identity in by_id.values():
            is_new = identity.source.startswith(_FHIR) and identity.patient not in library.identities
            if is_new and (patient := self._find_person(identity, library)):
                joined[patient].append(identity.patient)
        # Two resources with one number may be two people.
        return {group[0]: patient for patient, group in joined.items() if len(group) == 1}

    def _find_person(self, identity: PatientIdentity, library: _LibraryPatients) -> str:
        """Return the library's patient that a resource of a FHIR export describes, or an empty string."""
        aliases: set[str] = set()
        # A source without the name of its server may be any of them.
        for system in {identity.source, _FHIR} if identity.source != _FHIR else library.servers:
            aliases |= library.owners.get((system, identity.patient), set())
        owners: set[str] = set()
        for number in _list_joining(identity.numbers):
            owners |= library.owners.get(number, set())
        candidates = aliases or owners
        if len(candidates) != 1:
            return ""
        patient = next(iter(candidates))
        before = library.identities[patient]
        if aliases:
            return "" if self._find_difference(before, identity) else patient
        # A second resource of a server stands for a second person.
        return patient if not before.source and self._is_same_person(before, identity) else ""

    def _find_stored(self, numbers: Sequence[RecordNumber], born: str, names: Sequence[str]) -> str:
        """Return the library's patient with these numbers, or an empty string. Raises ValueError with the reason."""
        library = self._read_library()
        alias = self._name(numbers)
        identity = PatientIdentity(alias, names=tuple(names), born=born, numbers=tuple(numbers))
        candidates: set[str] = set()
        for number in _list_joining(numbers):
            owners = library.owners.get(number, set())
            name = format_identifier(*number)
            owner = name if name in owners else next(iter(owners), "") if len(owners) == 1 else ""
            if not owner or owner == alias:
                candidates |= {owner} - {""}
            elif self._is_same_person(library.identities[owner], identity):
                candidates.add(owner)
            elif name == alias and (kind := self._find_difference(library.identities[owner], identity)):
                raise ValueError(
                    f"its record number is that of a patient of the library with another {kind}; correct it in its "
                    "source, or add it to a library of its own"
                )
        if len(candidates) > 1:
            raise ValueError(
                "its record numbers are those of different patients of the library; correct them in its source"
            )
        patient = next(iter(candidates), "")
        if patient and patient != alias:
            before = library.identities[patient]
            self._joined[patient] = alias
            self._record(patient, before.numbers, before.born)
        return patient

    def _find_difference(self, before: PatientIdentity, now: PatientIdentity) -> str:
        return "" if self._stored is None else self._stored.contradict(before, now)

    def _is_same_person(self, before: PatientIdentity, now: PatientIdentity) -> bool:
        """Return whether nothing differs, and the birth date or the name agrees: a number alone may be an error."""
        is_shown = bool((before.born and now.born) or (before.names and now.names))
        return is_shown and not self._find_difference(before, now)

    def _name(self, numbers: Sequence[RecordNumber]) -> str:
        """Return the id that a patient gets by these numbers. Raises ValueError if several patients have each."""
        library = self._read_library()
        unshared = [number for number in numbers if not number[0].startswith(_SHARED_SYSTEMS)] or numbers
        for number in unshared:
            name = format_identifier(*number)
            owners = self._owners.get(number, set()) | library.owners.get(number, set())
            if len(owners) < 2 or name in owners:
                return name
        raise ValueError(
            "its record number is that of several patients, so it may be any of them; correct it in its source"
        )

    def _read_library(self) -> _LibraryPatients:
        if self._library is None:
            self._library = _LibraryPatients()
            for identity in self._stored.read() if self._stored is not None else ():
                self._library.identities[identity.patient] = identity
                for number in identity.numbers:
                    self._library.owners[number].add(identity.patient)
                    if _is_resource_id(number):
                        self._library.servers.add(number[0])
        return self._library

    def _check(self, patient: str, numbers: Sequence[RecordNumber], born: str) -> None:
        """Raise ValueError if the patient was another person before."""
        previous = self._born.get(patient, "")
        if born and previous and not (born.startswith(previous) or previous.startswith(born)):
            raise ValueError("its patient has another birth date than before; correct the record number or the date")
        values: defaultdict[str, set[str]] = defaultdict(set)
        for system, value in numbers:
            values[system].add(value)
        for system, earlier in self._numbers[patient].items():
            if system in values and values[system].isdisjoint(earlier):
                raise ValueError("its patient has another record number of the same system than before; correct it")

    def _record(self, patient: str, numbers: Sequence[RecordNumber], born: str) -> None:
        for system, value in numbers:
            self._numbers[patient].setdefault(system, set()).add(value)
        self._born[patient] = max(self._born.get(patient, ""), born, key=len)


def _list_numbers(numbers: Iterable[RecordNumber]) -> tuple[RecordNumber, ...]:
    """Return the numbers that stand for somebody."""
    return tuple(number for number in numbers if not stands_for_nobody(number[1]))


def _is_resource_id(number: RecordNumber) -> bool:
    return number[0].partition(":")[0] == _FHIR


def _list_joining(numbers: Iterable[RecordNumber]) -> list[RecordNumber]:
    """Return the numbers by which patients of two additions are joined: with a system, and of no other purpose."""
    joining: list[RecordNumber] = []
    for system, value in numbers:
        is_shared = system.startswith(_SHARED_SYSTEMS) or _is_resource_id((system, value))
        if system and value and not is_shared:
            joining.append((system, value))
    return joining


def format_identifier(system: str, value: str) -> str:
    """Return `system|value`, or the one of them that there is, as the FHIR reader names patients by record numbers."""
    return "|".join(filter(None, (system, value)))
