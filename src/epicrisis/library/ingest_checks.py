"""What an addition refuses: another patient's id, and passages whose ends no search would see.

Does not know where documents come from nor how they are written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from epicrisis.corpus.reader_base import PatientIdentity, ReaderItem
from epicrisis.errors import InputError
from epicrisis.library.library import Library
from epicrisis.library.passage_table import PassageTable
from epicrisis.library.patient_identities import declare_literature, meet, read_identities
from epicrisis.library.patients import names_in_notes
from epicrisis.library.splitters import cut
from epicrisis.protocols import Encoder
from epicrisis.types import Document, Passage, SplitterName

OTHER = "same id, different text"
ANOTHER = (
    "same id, but another note or another patient's: give the column of an id that is the note's alone (--note-id), or "
    "leave --note-id out; of FHIR, add what has ids of its own to a library of its own"
)


_NOBODYS = (
    "of no patient, in a library of patients' notes, where every patient's questions would read it: give --literature "
    "if it is literature for all of them, else name its patient or leave it out"
)


class Kinds:
    """Keeps patients' notes and documents of no patient apart in one library, unless `literature` lets both in."""

    def __init__(self, library: Library, literature: bool | None) -> None:
        self._library = library
        self._literature = literature
        table = PassageTable(library.path, library.manifest.dimensions)
        self._notes, self._papers = table.has_notes(), table.has_literature()
        self._is_open = literature is not False
        self._was_mixed = self._notes and self._papers

    def misfit(self, document: Document) -> str | None:
        """Return why a document of no patient is left out, or None. Raises InputError for a note among literature."""
        if document.patient is None:
            if self._notes and not self._is_open:
                return _NOBODYS
            self._papers = True
        else:
            if self._papers and not (self._is_open or self._was_mixed):
                raise InputError(
                    f"{self._library.path} would hold documents of no patient, which every patient's questions read, "
                    "beside patients' notes: give --literature if they are literature for all, else make a library of "
                    "its own for the notes"
                )
            self._notes = True
        return None

    def close(self) -> None:
        """Write down that both were let in, where both are there."""
        if self._literature and self._notes and self._papers:
            declare_literature(self._library.path)


def meet_patients(library: Library, told: Sequence[PatientIdentity]) -> int:
    """Write down who these patients are and return how many were renamed.

    Raises InputError where one id may stand for two people.
    """
    known = read_identities(library.path, (each.patient for each in told))
    new = [each for each in told if each.patient not in known]
    # Notes of an older library have names and no table.
    return meet(library.path, told, names_in_notes(library, {each.patient for each in new}))


def named_in(documents: Iterable[Document]) -> Mapping[tuple[str, str], PatientIdentity]:
    """Return by patient and name who the patients are whom notes name (`patient_name` in the metadata)."""
    people: dict[tuple[str, str], PatientIdentity] = {}
    for document in documents:
        name = document.metadata.get("patient_name")
        if document.patient is not None and isinstance(name, str) and name.strip():
            people[document.patient, name] = PatientIdentity(document.patient, names=(" ".join(name.split()),))
    return people


def check_chunks(
    chunk_tokens: int, encoder: Encoder, name: str, overlap: int, splitter: SplitterName | None, ready_made: bool
) -> None:
    """Raises InputError for chunks that the encoder does not read to their end, or that no splitter makes."""
    if splitter not in (None, "tokens") or ready_made:
        raise InputError("chunks are counted in tokens by the splitter `tokens` alone: leave --chunk-tokens out")
    if chunk_tokens > encoder.max_tokens:
        raise InputError(
            f"chunks of {chunk_tokens} tokens are longer than the {encoder.max_tokens} that {name} reads, and would be "
            f"cut: give --chunk-tokens {encoder.max_tokens} or less, or an encoder with a larger window (--encoder)"
        )
    if chunk_tokens <= overlap:
        raise InputError(
            f"chunks of {chunk_tokens} tokens cannot share {overlap} with their neighbours: give less with --overlap"
        )


def whose(library: Library, document_ids: Sequence[str]) -> Mapping[str, str | None]:
    """The patient of those of the documents that are there; `None`: of nobody."""
    there = list(library.content_hashes(document_ids))
    if not there:
        return {}
    found = PassageTable(library.path, library.manifest.dimensions).passages_of(there)
    return {stored.passage.document_id: stored.passage.patient for stored in found}


def check_notes_are_read(items: Iterable[ReaderItem], splitter: str, encoder: Encoder) -> None:
    """`check_is_read` of all notes among the items, before any of them is written."""
    for item in items:
        if isinstance(item, Document):
            passages = cut(item, splitter, encoder.token_spans, encoder.max_tokens, 0)
            check_is_read(item, passages, splitter, encoder)


def check_is_read(document: Document, passages: Sequence[Passage], splitter: str, encoder: Encoder) -> None:
    """Raises InputError where a passage of a patient's note is longer than the encoder reads."""
    if splitter == "tokens" or document.patient is None:
        return
    if any(is_longer_than_window(passage, encoder) for passage in passages):
        raise InputError(
            f"cut by {splitter}, notes are longer than the {encoder.max_tokens} tokens that the encoder reads, and "
            "dense search would miss their ends: leave --splitter out in a new library, or name an encoder with a "
            "larger window (--encoder)"
        )


def is_longer_than_window(passage: Passage, encoder: Encoder) -> bool:
    """True when the encoder does not read the passage to its end."""
    return sum(len(encoder.token_spans(text)) for text in (passage.title, passage.text)) > encoder.max_tokens
