"""Tell which patient a record number means, for formats that name patients by record numbers only.

    numbers = PatientNumbers()
    patient = numbers.resolve([("urn:oid:1.2.3", "4711")], born="1950-01-02")    # "urn:oid:1.2.3|4711"

A patient that FHIR resources of the same addition describe, with one of the numbers, keeps the id of the resource.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from epicrisis.corpus.hl7.values import format_identifier
from epicrisis.corpus.reader_base import PatientIdentity

RecordNumber = tuple[str, str]
"""System and value."""
_SHARED_SYSTEMS = ("urn:oid:2.16.840.1.113883.4.1", "urn:oid:2.16.840.1.113883.4.3", "SS", "SSN")
"""Systems of social security numbers and driver's licences, by which no record is named if there is another number."""


class PatientNumbers:
    """The patients of an addition by their record numbers."""

    def __init__(self) -> None:
        self._patients: dict[RecordNumber, str] = {}
        self._born: dict[str, str] = {}
        self._numbers: defaultdict[str, dict[str, set[str]]] = defaultdict(dict)

    def add_identity(self, identity: PatientIdentity) -> None:
        """Record the numbers of a patient whose id another format says."""
        for number in identity.numbers:
            self._patients.setdefault(number, identity.patient)
        self._record(identity.patient, identity.numbers, identity.born)

    def resolve(self, numbers: Sequence[RecordNumber], born: str = "") -> str:
        """Return the id of the patient with these numbers, and remember them.

        Raises ValueError with the reason if there is no number, or if the numbers or the birth date are those of
        different people.
        """
        numbers = [number for number in numbers if number[1]]
        if not numbers:
            raise ValueError("names no patient, and every note needs one; export it with the patient's record number")
        patients = {self._patients[number] for number in numbers if number in self._patients}
        if len(patients) > 1:
            raise ValueError("its record numbers are those of different patients; correct them in its source")
        unshared = [number for number in numbers if not number[0].startswith(_SHARED_SYSTEMS)] or numbers
        patient = next(iter(patients), format_identifier(*unshared[0]))
        self._check(patient, numbers, born)
        for number in numbers:
            self._patients.setdefault(number, patient)
        self._record(patient, numbers, born)
        return patient

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
