"""The patients of a library: whose records it holds, with names and record numbers. No text is read."""

from __future__ import annotations

import json
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from epicrisis.corpus.reader_base import PatientIdentity
from epicrisis.dates import first_day, last_day
from epicrisis.library.engine_errors import translate_errors
from epicrisis.library.library import Library
from epicrisis.library.library_parts import check_parts
from epicrisis.library.manifest import NAME, read_manifest
from epicrisis.library.passage_table import PassageTable, sql_in
from epicrisis.library.patient_identities import (
    forget_identities,
    is_literature_declared,
    read_identities,
    read_version,
)
from epicrisis.library.person_names import name_keys, normalize_text

MIXED_NOTICE = (
    "this library of notes holds documents of no patient, which are used for questions about every patient: declare "
    "them literature (library add LIBRARY FILES --literature), or delete them (library delete)"
)
_BATCH_ROWS = 8192


@dataclass(frozen=True, slots=True)
class PatientRecord:
    """Summary of a patient's record, without its text."""

    id: str
    notes: int
    first: str | None
    """Date of the first note, as written."""
    last: str | None
    encounters: int
    """Hospital stays named in the notes."""
    note_types: Mapping[str, int]
    """Number of notes of each type, the most frequent first. Notes without a type are not counted."""
    name: str | None = None
    """The current name, if the source gives one."""
    names: tuple[str, ...] = ()
    """All names, including former ones."""
    born: str | None = None
    """`1950-01-02`, or only its beginning."""
    numbers: tuple[str, ...] = ()
    """Record numbers and other identifiers, written `system|value` if the system is known."""


def holds_patients(folder: Path) -> bool:
    """Return whether the library in this folder holds a patient's record. Without a library return False.

    Raise LibraryDamaged or StorageError.
    """
    if not (folder / NAME).exists():
        return False
    manifest = read_manifest(folder)
    if not manifest.complete:
        return False
    check_parts(folder)
    return PassageTable(folder, manifest.dimensions).has_notes()


class Roster:
    """The patients of one library. Every call sees the library's newest state."""

    def __init__(self, library: Library) -> None:
        self.path = library.path
        self._table = library.open_table()
        self._lock = threading.Lock()
        self._version = (-1, -1)
        self._patients: Mapping[str, PatientRecord] = {}
        self._has_literature = self._is_declared = False
        self._ids_by_name: Mapping[str, Set[str]] = {}
        self._ids_by_number: Mapping[str, Set[str]] = {}

    def patients(self) -> Mapping[str, PatientRecord]:
        """Map patient ids to their records, ordered by id."""
        self._refresh()
        return self._patients

    def has_literature(self) -> bool:
        """Return whether the library holds documents without a patient."""
        self._refresh()
        return self._has_literature

    def is_mixed(self) -> bool:
        """Return whether the library holds notes and documents without a patient that were not declared literature."""
        self._refresh()
        return bool(self._patients) and self._has_literature and not self._is_declared

    def ids_by_name(self) -> Mapping[str, Set[str]]:
        """Map the keys of names (see `person_names.name_keys`) to patient ids."""
        self._refresh()
        return self._ids_by_name

    def ids_with_number(self, number: str) -> Set[str]:
        """Return the ids of the patients with this record number, given with or without its system."""
        self._refresh()
        return self._ids_by_number.get(normalize_text(number), set())

    def _refresh(self) -> None:
        with self._lock:
            self._table.refresh()
            version = (self._table.version, read_version(self.path))
            if self._version != version:
                self._read()
                self._version = version
            if self._has_literature and not self._is_declared:
                self._is_declared = is_literature_declared(self.path)

    def _read(self) -> None:
        summaries: dict[str, _RecordSummary] = defaultdict(_RecordSummary)
        for row in _read_notes(self._table, self.path, "patient IS NOT NULL"):
            summaries[row["patient"]].add(row)
        identities = read_identities(self.path)
        self._patients = {
            id_: summaries[id_].build(identities.get(id_, PatientIdentity(id_))) for id_ in sorted(summaries)
        }
        self._has_literature = self._table.has_literature()
        by_name: dict[str, set[str]] = defaultdict(set)
        by_number: dict[str, set[str]] = defaultdict(set)
        for id_, record in self._patients.items():
            for name in record.names:
                for key in name_keys(name):
                    by_name[key].add(id_)
            for number in record.numbers:
                by_number[normalize_text(number)].add(id_)
                by_number[normalize_text(number_without_system(number))].add(id_)
        self._ids_by_name, self._ids_by_number = by_name, by_number


def names_in_notes(library: Library, patients: Iterable[str]) -> Mapping[str, str]:
    """Map these patients to the first names given in their notes. Patients without a name are left out."""
    ids = sorted(patients)
    names: dict[str, str] = {}
    for row in _read_notes(library.open_table(), library.path, sql_in("patient", ids)) if ids else ():
        if name := str(json.loads(row["metadata"]).get("patient_name") or ""):
            names.setdefault(row["patient"], name)
    return names


def forget_patients(library: Library, patients: Iterable[str]) -> None:
    """Delete the identities of those patients without remaining notes."""
    remaining = Roster(library).patients()
    forget_identities(library.path, [patient for patient in patients if patient not in remaining])


def number_without_system(number: str) -> str:
    """Return the value of a record number `system|value`."""
    return number.rpartition("|")[2]


def _read_notes(table: PassageTable, path: Path, condition: str) -> Iterator[dict[str, Any]]:
    """Yield the patient, date and metadata of each note."""
    with translate_errors(path):
        search = table.lance.search().where(f"({condition}) AND ordinal = 0")
        for batch in search.select(["patient", "date", "metadata"]).to_batches(_BATCH_ROWS):
            yield from batch.to_pylist()


class _RecordSummary:
    """Collects the data of one patient's record, note by note."""

    def __init__(self) -> None:
        self._dates: list[str] = []
        self._encounters: set[str] = set()
        self._note_types: Counter[str] = Counter()
        self._notes = 0
        self._name = ""

    def add(self, row: Mapping[str, Any]) -> None:
        metadata = json.loads(row["metadata"])
        self._notes += 1
        if row["date"]:
            self._dates.append(row["date"])
        if metadata.get("encounter"):
            self._encounters.add(str(metadata["encounter"]))
        if metadata.get("note_type"):
            self._note_types[str(metadata["note_type"])] += 1
        self._name = self._name or str(metadata.get("patient_name") or "")

    def build(self, identity: PatientIdentity) -> PatientRecord:
        names = dict.fromkeys(identity.names)
        if self._name:
            names.setdefault(self._name)
        numbers = []
        for system, value in identity.numbers:
            # A number without digits (`unknown`) could be any word of a question.
            if any(map(str.isdecimal, value)):
                numbers.append(f"{system}|{value}" if system else value)
        return PatientRecord(
            identity.patient,
            self._notes,
            first=min(self._dates, key=lambda date: (first_day(date), date), default=None),
            last=max(self._dates, key=lambda date: (last_day(date), date), default=None),
            encounters=len(self._encounters),
            note_types=dict(self._note_types.most_common()),
            name=next(iter(names), None),
            names=tuple(names),
            born=identity.born or None,
            numbers=tuple(numbers),
        )
