"""Keep patients apart while documents are added: who they are, and what belongs to none of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from epicrisis.corpus.reader_base import PatientIdentity
from epicrisis.errors import InputError
from epicrisis.library.ingest_report import IngestCounts
from epicrisis.library.library import Library
from epicrisis.library.patient_identities import declare_literature, read_identities, record_identities
from epicrisis.library.patients import names_in_notes
from epicrisis.types import Document

_NO_PATIENT = (
    "belongs to no patient, in a library of patients' notes, where questions about every patient would use it: pass "
    "--literature if it is literature for all patients; otherwise give its patient, or leave it out"
)


class NotesAndLiterature:
    """Keeps patients' notes and documents without a patient in separate libraries, unless `literature` allows both."""

    def __init__(self, library: Library, literature: bool | None) -> None:
        self._library = library
        self._literature = literature
        table = library.open_table()
        self._has_notes, self._has_literature = table.has_notes(), table.has_literature()
        self._allows_both = literature is not False
        self._was_mixed = self._has_notes and self._has_literature

    def find_fault(self, document: Document) -> str | None:
        """Return why a document without a patient is skipped, or None. Raise InputError for a note among literature."""
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
            declare_literature(self._library.path)


class PatientRegistration:
    """Records who the patients are, before their first notes are committed."""

    def __init__(self, library: Library, counts: IngestCounts) -> None:
        self._library = library
        self._counts = counts
        self._pending: list[PatientIdentity] = []
        self._names: set[tuple[str, str]] = set()

    def add(self, identity: PatientIdentity) -> None:
        """Remember the identity until the next `record`."""
        self._pending.append(identity)
        self._names.update((identity.patient, name) for name in identity.names)

    def add_from_notes(self, documents: Iterable[Document]) -> None:
        """Remember the patients' names in the metadata of these notes (`patient_name`), unless they are known."""
        for document in documents:
            name = document.metadata.get("patient_name")
            if document.patient is None or not isinstance(name, str) or not name.strip():
                continue
            if (document.patient, name) not in self._names:
                self._names.add((document.patient, name))
                self._pending.append(PatientIdentity(document.patient, names=(" ".join(name.split()),)))

    def record(self) -> None:
        """Write the pending identities. Raise InputError if one id may mean two people."""
        if not self._pending:
            return
        identities, self._pending = self._pending, []
        patients = {identity.patient for identity in identities}
        # Libraries of earlier versions have names in their notes and no table of patients.
        unrecorded = patients.difference(read_identities(self._library.path, patients))
        names = names_in_notes(self._library, unrecorded)
        self._counts.renamed += record_identities(self._library.path, identities, names)


def read_document_patients(library: Library, document_ids: Sequence[str]) -> Mapping[str, str | None]:
    """Map each existing document id to its patient id, or to None for literature."""
    existing = list(library.content_hashes(document_ids))
    if not existing:
        return {}
    passages = library.open_table().passages_of(existing)
    return {stored.passage.document_id: stored.passage.patient for stored in passages}
