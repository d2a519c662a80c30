"""The patients of a library: whose records it holds, with names and record numbers, and checks that keep them apart."""

from __future__ import annotations

import sqlite3
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from contextlib import closing
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path

from epicrisis.core.dates import first_day, last_day
from epicrisis.core.errors import InputError, LibraryError
from epicrisis.core.types import Document
from epicrisis.corpus.base.patient_numbers import names_nobody, stands_for_nobody
from epicrisis.corpus.base.reader_base import PatientIdentity
from epicrisis.library.base.engine_errors import translate_errors
from epicrisis.library.base.manifest import complete_manifest
from epicrisis.library.base.passage_table import NoteSummary
from epicrisis.library.base.person_names import name_keys, normalize_text
from epicrisis.library.base.remote_store import is_in_database
from epicrisis.library.core import journal
from epicrisis.library.core import patient_identities as registry
from epicrisis.library.core.library_parts import check_parts
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.engines.engine_choice import open_table

MIXED_NOTICE = (
    "this library of notes contains documents without a patient, which are used for questions about every patient: "
    "declare them literature (library add LIBRARY FILES --literature), or delete them (library delete)"
)
_NO_PATIENT = (
    "belongs to no patient, in a library of patients' notes, where questions about every patient would use it: pass "
    "--literature if it is literature for all patients; otherwise give its patient, or leave it out"
)
_NOBODY = "its patient's id is empty or a placeholder, which would join strangers; give the patient's own id"
_MAX_LITERATURE = 1_000_000
"""Documents compared in libraries without notes, in the order of their ids. With notes all are compared."""
_CURE = "fuse libraries created from the same sources, or leave it out of the setting fuse"


@dataclass(frozen=True, slots=True, kw_only=True)
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
    manifest = complete_manifest(folder)
    if manifest is None:
        return False
    check_parts(folder)
    return open_table(folder, manifest.dimensions).has_notes()


class Roster:
    """The patients of one library. Every call sees the library's newest state."""

    def __init__(self, library: LibraryStore) -> None:
        self.path = library.path
        self._library = library
        self._table = library.open_table()
        self._lock = threading.Lock()
        self._version = (-1, -1)
        self._patients: Mapping[str, PatientRecord] = {}
        self._has_literature = self._is_declared = False
        self._ids_by_name: Mapping[str, Set[str]] = {}
        self._ids_by_number: Mapping[str, Set[str]] = {}
        self._is_snapshot = False

    def snapshot(self) -> Roster:
        """Return the patients as they are now. Later changes are not seen, so its calls need not look for them."""
        with self._lock:
            self._refresh()
            roster = copy(self)
        roster._lock, roster._is_snapshot = threading.Lock(), True
        return roster

    def limit(self, patients: Iterable[str]) -> Roster:
        """Return a snapshot that knows these patients alone: for a reader who may not learn of the others."""
        roster = self.snapshot()
        records = roster._patients
        roster._index({id_: records[id_] for id_ in sorted(patients) if id_ in records})
        return roster

    def patients(self) -> Mapping[str, PatientRecord]:
        """Map patient ids to their records, ordered by id."""
        with self._lock:
            self._refresh()
            return self._patients

    def has_literature(self) -> bool:
        """Return whether the library holds documents without a patient."""
        with self._lock:
            self._refresh()
            return self._has_literature

    def is_mixed(self) -> bool:
        """Return whether the library holds notes and documents without a patient that were not declared literature."""
        with self._lock:
            self._refresh()
            return bool(self._patients) and self._has_literature and not self._is_declared

    def ids_by_name(self) -> Mapping[str, Set[str]]:
        """Map the keys of names (see `person_names.name_keys`) to patient ids."""
        with self._lock:
            self._refresh()
            return self._ids_by_name

    def ids_with_number(self, number: str) -> Set[str]:
        """Return the ids of the patients with this record number, given with or without its system."""
        with self._lock:
            self._refresh()
            return self._ids_by_number.get(normalize_text(number), set())

    def _refresh(self) -> None:
        """Read the library again if it has changed. The caller holds the lock."""
        if self._is_snapshot:
            return
        if self._table.is_moved():
            self._table = self._library.open_table()
            self._version = (-1, -1)
        version = (self._table.refresh_version(), registry.read_version(self.path))
        if self._version != version:
            self._read()
            self._version = version
        if self._patients and self._has_literature and not self._is_declared:
            self._is_declared = registry.is_literature_declared(self.path)

    def _read(self) -> None:
        summaries: dict[str, _RecordSummary] = defaultdict(_RecordSummary)
        for summary in self._table.summarize_notes():
            summaries[summary.patient].add(summary)
        identities = registry.read_identities(self.path)
        patients = {id_: summaries[id_].build(identities.get(id_, PatientIdentity(id_))) for id_ in sorted(summaries)}
        self._index(patients)
        self._has_literature = self._table.has_literature()

    def _index(self, patients: Mapping[str, PatientRecord]) -> None:
        """Keep these patients, with their names and numbers."""
        self._patients = patients
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


def forget_patients(library: LibraryStore, patients: Iterable[str]) -> None:
    """Delete the identities of those patients without remaining notes."""
    registry.forget_identities(library.path, set(patients) - Roster(library).patients().keys())


def delete_documents(library: LibraryStore, ids: Sequence[str]) -> frozenset[str]:
    """Delete these documents, and the identities of patients without remaining notes. Return which there were."""
    # Opening the library completed a deletion that was killed after its commit.
    existing = frozenset((*library.content_hashes(ids), *library.settled_deletions))
    owners = set(filter(None, read_document_patients(library, list(existing)).values()))
    library.delete(ids)
    forget_patients(library, owners)
    return existing


def number_without_system(number: str) -> str:
    """Return the value of a record number `system|value`."""
    return number.rpartition("|")[2]


class _RecordSummary:
    """Collects the data of one patient's record."""

    def __init__(self) -> None:
        self._dates: list[str] = []
        self._encounters: set[str] = set()
        self._note_types: Counter[str] = Counter()
        self._notes = 0

    def add(self, summary: NoteSummary) -> None:
        self._notes += summary.notes
        self._dates += summary.dates
        self._encounters.update(summary.encounters)
        self._note_types.update(summary.note_types)

    def build(self, identity: PatientIdentity) -> PatientRecord:
        numbers = []
        for system, value in identity.numbers:
            # A number without digits (`unknown`) could be any word of a question.
            if any(map(str.isdecimal, value)):
                numbers.append(f"{system}|{value}" if system else value)
        return PatientRecord(
            id=identity.patient,
            notes=self._notes,
            first=min(self._dates, key=lambda date: (first_day(date), date), default=None),
            last=max(self._dates, key=lambda date: (last_day(date), date), default=None),
            encounters=len(self._encounters),
            note_types=dict(self._note_types.most_common()),
            name=next(iter(identity.names), None),
            names=tuple(dict.fromkeys(identity.names)),
            born=identity.born or None,
            numbers=tuple(numbers),
        )


class NotesAndLiterature:
    """Keeps patients' notes and documents without a patient in separate libraries, unless `literature` allows both."""

    def __init__(self, library: LibraryStore, literature: bool | None) -> None:
        self._library = library
        self._literature = literature
        table = library.open_table()
        self._has_notes, self._has_literature = table.has_notes(), table.has_literature()
        self._allows_both = literature is not False
        self._was_mixed = self._has_notes and self._has_literature

    def find_fault(self, document: Document) -> str | None:
        """Return why a document without a patient of its own is skipped, or None.

        Raise InputError for a note among literature.
        """
        if document.patient is not None and stands_for_nobody(document.patient):
            return _NOBODY
        if document.patient is None:
            if self._has_notes and not self._allows_both:
                return _NO_PATIENT
            self._has_literature = True
            return None
        if self._has_literature and not (self._allows_both or self._was_mixed):
            raise InputError(
                f"{self._library.path} would mix patients' notes with documents of no patient, which questions about "
                "every patient use: pass --literature if they are literature for all, or create a separate library "
                "for the notes"
            )
        self._has_notes = True
        return None

    def save(self) -> None:
        """Record in the library that both were allowed, if it holds both."""
        if self._literature and self._has_notes and self._has_literature:
            registry.declare_literature(self._library.path)


class PatientRegistration:
    """Records who the patients are, before their first notes are committed."""

    def __init__(self, library: LibraryStore) -> None:
        self._library = library
        self.renamed = 0
        self.joined: dict[str, str] = {}
        """The ids under which sources name patients, with those under which the library has them."""
        self._pending: list[PatientIdentity] = []
        self._names: set[tuple[str, str]] = set()

    def add(self, identity: PatientIdentity) -> None:
        """Remember the identity until the next `record`. What is said of a placeholder is said of several people.

        A placeholder is no name either, and contradicts none.
        """
        if stands_for_nobody(identity.patient):
            return
        identity = replace(identity, names=tuple(name for name in identity.names if not names_nobody(name)))
        self._pending.append(identity)
        if identity.alias:
            self.joined[identity.alias] = identity.patient
        self._names.update((identity.patient, name) for name in identity.names)

    def add_from_notes(self, documents: Iterable[Document]) -> None:
        """Remember the patients' names in the metadata of these notes (`patient_name`), unless they are known."""
        for document in documents:
            name = document.metadata.get("patient_name")
            if document.patient is None or not isinstance(name, str) or names_nobody(name):
                continue
            if (document.patient, name) not in self._names:
                self._names.add((document.patient, name))
                self._pending.append(PatientIdentity(document.patient, names=(" ".join(name.split()),)))

    def record(self) -> None:
        """Write the pending identities. Raise InputError if one id may mean two people."""
        if not self._pending:
            return
        identities, self._pending = self._pending, []
        self.renamed += registry.record_identities(self._library.path, identities)


def read_document_patients(library: LibraryStore, document_ids: Sequence[str]) -> Mapping[str, str | None]:
    """Map each existing document id to its patient id, or to None for literature."""
    existing = list(library.content_hashes(document_ids))
    if not existing:
        return {}
    passages = library.open_table().passages_of(existing)
    return {stored.passage.document_id: stored.passage.patient for stored in passages}


def check_same_documents(first: LibraryStore, second: LibraryStore) -> None:
    """Raise LibraryError unless both libraries hold the same documents and patients.

    Documents are compared by id, and in libraries with notes also by content.
    """
    if is_in_database(first.path) or is_in_database(second.path):
        raise LibraryError("the setting fuse is for libraries in folders: leave out those in a database")
    with_notes = first.open_table().has_notes() or second.open_table().has_notes()
    differs = first.count()[0] != second.count()[0]
    if not differs:
        # Both have equally many documents, so it suffices to look for those of the first in the second.
        content = "OR theirs.content_hash != ours.content_hash" if with_notes else ""
        limit = "" if with_notes else f"ORDER BY id LIMIT {_MAX_LITERATURE}"
        query = (
            f"SELECT 1 FROM (SELECT id, content_hash FROM documents {limit}) AS ours "
            f"LEFT JOIN other.documents AS theirs ON theirs.id = ours.id WHERE theirs.id IS NULL {content} LIMIT 1"
        )
        with translate_errors(first.path), closing(sqlite3.connect(first.path / journal.NAME, timeout=60)) as db:
            db.execute("ATTACH ? AS other", (str(second.path / journal.NAME),))
            differs = db.execute(query).fetchone() is not None
    if differs:
        raise LibraryError(f"{second.path} does not hold the documents that {first.path} holds: {_CURE}")
    if not with_notes:
        return
    identities = registry.read_identities(first.path)
    for patient, identity in registry.read_identities(second.path).items():
        if patient in identities and (kind := registry.find_contradiction(identities[patient], identity)):
            raise LibraryError(
                f"{second.path} has another {kind} for patient {patient!a} than {first.path}, so one id may stand for "
                f"two people: {_CURE}"
            )
