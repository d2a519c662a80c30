"""Read patients' C-CDA files: a note for each document, with its sections, and the facts of its coded entries.

All files of an addition are read together, because a document may replace or amend one of another file. Nothing is
fetched. What has no text is named: `FileRemark` for a part of a document, `Skipped` for a document.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TypeAlias

from epicrisis.core.clinical_facts import ClinicalFact
from epicrisis.corpus import sandbox
from epicrisis.corpus.base import reader_base
from epicrisis.corpus.base.patient_numbers import PatientNumbers
from epicrisis.corpus.records.ccda.ccda_facts import CodedFacts
from epicrisis.corpus.records.ccda.clinical_documents import ClinicalDocument, describe_missing_text
from epicrisis.corpus.records.facts.fact_documents import FactEntry, FactRecord, FactSpool, Stay
from epicrisis.corpus.records.facts.fact_values import STAY_CLASSES, VISIT_CLASSES
from epicrisis.corpus.records.note_documents import ClinicalNote, DocumentKey, NoteCleaning, build_items, find_replaced

_Header: TypeAlias = tuple[ClinicalDocument, str]
"""A document without its text, and its patient; the patient is empty if the document cannot be read."""


def read_files(
    files: Sequence[tuple[Path, str]], cleaning: NoteCleaning, numbers: PatientNumbers
) -> Iterator[reader_base.ReaderItem]:
    """Yield the patients and notes of all files (path, name), what was not read, and the files' fingerprints.

    A damaged file is skipped completely. `numbers` are the patients of the addition.
    """
    headers: dict[Path, list[_Header]] = {}
    for path, _ in files:
        yield from _read_headers(path, headers, numbers)
    all_headers = list(chain.from_iterable(headers.values()))
    for document, patient in all_headers:
        if patient:
            yield numbers.identify(patient, document.patients[0])
    withdrawn = {(patient, document.id) for document, patient in all_headers if document.is_withdrawn and document.id}
    replaced = _find_replaced(all_headers)
    # Earlier additions may have contained them.
    for patient, document_id in sorted(withdrawn | (set() if cleaning.keep_superseded else replaced)):
        yield reader_base.DeletedDocument(f"note:{document_id}", patient=patient, every_version=True)
    outdated = _Outdated(withdrawn, replaced, _find_earlier_versions(all_headers))
    with FactSpool() as spool:
        fingerprints: list[reader_base.ReaderItem] = []
        for path, name in files:
            if path not in headers:
                continue
            patients = [patient for _, patient in headers[path]]
            items = _read_notes(path, name, patients, outdated, cleaning, spool)
            yield from reader_base.hold_fingerprint(path, items, fingerprints)
        yield from spool.documents(cleaning.removal_log)
        yield from fingerprints


def _read_headers(
    path: Path, headers: dict[Path, list[_Header]], numbers: PatientNumbers
) -> Iterator[reader_base.Skipped]:
    """Add the headers of a file that can be read. Yield what of it cannot be read."""
    reader_base.check_file(path)
    try:
        documents = [ClinicalDocument.from_json(values) for values in sandbox.read_clinical_documents(path)]
    except ValueError as error:
        yield reader_base.skip(path, "", str(error))
        return
    headers[path] = []
    for number, document in enumerate(documents, 1):
        try:
            headers[path].append((replace(document, text="", coded=CodedFacts()), _resolve_patient(document, numbers)))
        except ValueError as error:
            headers[path].append((document, ""))
            yield reader_base.skip(path, _describe_place(number, len(documents)) or "document 1", str(error))


def _describe_place(number: int, count: int) -> str:
    return f"document {number}" if count > 1 else ""


def _resolve_patient(document: ClinicalDocument, numbers: PatientNumbers) -> str:
    """Return the document's patient. Raises ValueError with the reason if there is not one, or nothing to store."""
    if len(document.patients) > 1:
        raise ValueError(f"names {len(document.patients)} patients; save the part of each as a file of its own")
    if not document.patients:
        raise ValueError("names no patient, and every note needs one; export it with its recordTarget")
    if not document.text.strip() and not document.is_withdrawn and not document.coded.entries:
        raise ValueError(describe_missing_text(document.remarks))
    return numbers.resolve(document.patients[0])


@dataclass(frozen=True, slots=True)
class _Outdated:
    """Documents that are no longer valid, by patient and id."""

    withdrawn: set[DocumentKey]
    replaced: set[DocumentKey]
    earlier_versions: set[DocumentKey]
    """By `version_id`."""

    def is_withdrawn(self, document: ClinicalDocument, patient: str) -> bool:
        return document.is_withdrawn or (patient, document.id) in self.withdrawn

    def is_superseded(self, document: ClinicalDocument, patient: str) -> bool:
        is_replaced = (patient, document.id) in self.replaced
        return is_replaced or (patient, document.version_id) in self.earlier_versions


def _find_replaced(documents: Sequence[_Header]) -> set[DocumentKey]:
    """Return the documents that others of the same patient replace."""
    successors: defaultdict[DocumentKey, set[DocumentKey]] = defaultdict(set)
    for document, patient in documents:
        if patient and not document.is_withdrawn:
            for earlier in document.replaces:
                successors[patient, earlier].add((patient, document.id))
    return find_replaced(successors)


def _find_earlier_versions(documents: Sequence[_Header]) -> set[DocumentKey]:
    """Return the documents of whose set there is a later version."""
    versions: defaultdict[DocumentKey, list[tuple[int, str]]] = defaultdict(list)
    for document, patient in documents:
        if patient and not document.is_withdrawn and document.version_set and document.version and document.id:
            versions[patient, document.version_set].append((document.version, document.version_id))
    earlier: set[DocumentKey] = set()
    for (patient, _), members in versions.items():
        latest, _ = max(members)
        earlier.update((patient, document_id) for version, document_id in members if version < latest)
    return earlier


def _read_notes(
    path: Path,
    name: str,
    patients: Sequence[str],
    outdated: _Outdated,
    cleaning: NoteCleaning,
    spool: FactSpool,
) -> Iterator[reader_base.ReaderItem]:
    """Yield the notes of a file, and what of it was not read. `patients` are those of its documents.

    The facts are stored in `spool`.
    """
    try:
        documents = [ClinicalDocument.from_json(values) for values in sandbox.read_clinical_documents(path)]
    except ValueError as error:
        yield reader_base.skip(path, "", str(error))
        return
    notes: list[ClinicalNote] = []
    for number, (document, patient) in enumerate(zip(documents, patients, strict=True), 1):
        if patient:
            is_superseded = outdated.is_superseded(document, patient)
            is_withdrawn = outdated.is_withdrawn(document, patient)
            if document.text.strip() or is_withdrawn:
                note = _build_note(document, patient, _describe_place(number, len(documents)))
                notes.append(replace(note, is_error=is_withdrawn, is_superseded=is_superseded))
            else:
                yield reader_base.FileRemark(
                    name, "part", "of C-CDA documents: no narrative, so the coded entries alone"
                )
            is_left_out = is_withdrawn or (is_superseded and not cleaning.keep_superseded)
            person = document.patients[0]
            spool.add_person(patient, next(iter(person.names), ""), person.born)
            add_facts(document, patient, spool, is_left_out=is_left_out)
            cleaning.removal_log.fact_problems.update(document.coded.problems)
    # The documents of one file are too few for recurring texts.
    yield from build_items(path, name, partial(iter, notes), cleaning)
    for document, patient in zip(documents, patients, strict=True):
        for remark in document.remarks if patient else ():
            yield reader_base.FileRemark(name, "part", f"of C-CDA documents: {remark}")


def _build_note(document: ClinicalDocument, patient: str, where: str) -> ClinicalNote:
    person = document.patients[0]
    metadata = {
        "visit": "" if document.is_stay else document.encounter,
        "authors": list(document.authors),
        "document_title": document.title if document.title != document.type else "",
        "amends": [f"note:{earlier}" for earlier in document.amends],
        "status": "addendum" if document.amends else "",
    }
    return ClinicalNote(
        where=where,
        patient=patient,
        text=document.text or "(withdrawn)",
        times=tuple(filter(None, (document.time or document.discharged or document.admitted,))),
        note_type=document.type,
        encounter=document.encounter if document.is_stay else "",
        note_id=document.version_id,
        patient_name=next(iter(person.names), ""),
        born=person.born,
        admitted=document.admitted if document.is_stay else "",
        discharged=document.discharged if document.is_stay else "",
        more=metadata,
        headings=document.headings,
    )


def add_facts(document: ClinicalDocument, patient: str, spool: FactSpool, *, is_left_out: bool) -> None:
    """Store the facts of a document. Those of a withdrawn or superseded one hold only if another document has them."""
    if document.encounter:
        stay = Stay(document.admitted, document.discharged, is_visit=not document.is_stay)
        spool.add_stay(document.encounter, stay, patient)
    # The earliest version of all.
    version = "0" if is_left_out else document.time or "1"
    for row in document.coded.entries:
        entries = tuple(_place_in_stay(entry, document) for entry in row)
        source = entries[0].fact.source
        _add_coded_stay([entry.fact for entry in entries], patient, spool)
        spool.add(FactRecord(patient, source, entries, version, is_left_out, is_separate=True))


def _add_coded_stay(facts: Sequence[ClinicalFact], patient: str, spool: FactSpool) -> None:
    """Store the days of an encounter entry. It is a stay by its class, else if it ends on a later day."""
    head = facts[0]
    if head.kind != "encounter" or not head.encounter:
        return
    start = head.time or ""
    end = facts[-1].time or "" if facts[-1].event == "end" else ""
    is_stay = head.category in STAY_CLASSES.values() or bool(
        head.category not in VISIT_CLASSES.values() and end and end[:10] != start[:10]
    )
    spool.add_stay(head.encounter, Stay(start, end, is_visit=not is_stay), patient)


def _place_in_stay(entry: FactEntry, document: ClinicalDocument) -> FactEntry:
    """Return the fact as one of the document's encounter if it happened in it. Documents also list earlier facts."""
    day = (entry.fact.time or "")[:10]
    first, last = document.admitted[:10], document.discharged[:10]
    if not entry.fact.encounter and document.encounter and first and last and first <= day <= last:
        return replace(entry, fact=replace(entry.fact, encounter=document.encounter))
    return entry
