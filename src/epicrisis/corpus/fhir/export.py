"""Read the records of patients from FHIR (R4, R5): bundles (JSON) and NDJSON.

A DocumentReference is a note: its first attachment of plain text, else HTML. Structured facts (results, medications,
problems and others, see `facts`) of one patient, day, kind and encounter are one document with a line each, because a
single one has too few words to be found by meaning.

Names of patients, dates of stays and medications come from the Patient, Encounter and Medication resources of all files
read together (see `references`), since bulk exports have a file for each type. Other resources are counted. Nothing is
fetched: an attachment given only by its address is `Skipped`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from epicrisis.corpus import reader_base
from epicrisis.corpus.fact_documents import FactSpool, Stay
from epicrisis.corpus.fhir.documents import build_note, document_text, is_withdrawn
from epicrisis.corpus.fhir.facts import FACT_TYPES, read_facts
from epicrisis.corpus.fhir.facts import is_withdrawn as is_fact_withdrawn
from epicrisis.corpus.fhir.references import (
    EncounterStay,
    FhirReferences,
    find_encounter,
    find_medication,
    find_patient,
    mark_superseded,
    patient_identities,
    record_resource,
)
from epicrisis.corpus.fhir.resources import (
    BAD_STRUCTURE,
    STRUCTURE_ERRORS,
    Resource,
    is_fhir,
    read_resources,
)
from epicrisis.corpus.note_documents import ClinicalNote, NoteCleaning, build_items
from epicrisis.corpus.removal_log import RemovalLog
from epicrisis.errors import InputError
from epicrisis.types import Document

_NO_FHIR = "not FHIR in JSON: a bundle, or one resource a line, each with its resourceType"


def read_files(files: Sequence[tuple[Path, str]], cleaning: NoteCleaning) -> Iterator[reader_base.ReaderItem]:
    """Yield the notes of all files (path, name).

    DocumentReferences come file by file, then the days of observations, then the fingerprints. A file that cannot be
    unpacked to its end is skipped completely, because even the lines before the damage may be wrong; so is a file that
    is no FHIR. Raises InputError, before the first note, if no file is FHIR, or if two patients or encounters could not
    be distinguished.
    """
    readable, skipped_files = _split_readable(files)
    yield from skipped_files
    if not readable:
        return
    shared = FhirReferences()
    faults: list[reader_base.Skipped] = []
    learned = [(path, _record_references(path, shared, cleaning, faults)) for path, _ in readable]
    yield from faults
    yield from patient_identities(shared)
    if not cleaning.keep_superseded:
        mark_superseded(references for _, references in learned)
        # An earlier addition may have contained them.
        for patient, note_id in sorted(shared.superseded):
            yield reader_base.DeletedDocument(f"note:{note_id}", patient=patient)
    fingerprints: list[reader_base.ReaderItem] = []
    for (path, name), (_, references) in zip(readable, learned, strict=True):
        notes = build_items(path, name, partial(_read_notes, path, references), cleaning)
        for item in reader_base.append_fingerprint(path, notes):
            if isinstance(item, reader_base.FileFingerprint):
                fingerprints.append(item)
            else:
                yield item
    yield from _read_fact_documents(learned, cleaning.removal_log)
    yield from fingerprints


def _split_readable(files: Sequence[tuple[Path, str]]) -> tuple[list[tuple[Path, str]], list[reader_base.Skipped]]:
    """Return the readable files, and why each other is skipped. Raises InputError if no file is FHIR."""
    readable: list[tuple[Path, str]] = []
    skipped_files: list[reader_base.Skipped] = []
    other_files = 0
    for path, name in files:
        reader_base.check_file(path)
        if damage := reader_base.describe_damage(path):
            skipped_files.append(reader_base.skip(path, "", damage))
        elif is_fhir(path):
            readable.append((path, name))
        else:
            other_files += 1
            skipped_files.append(reader_base.skip(path, "", _NO_FHIR))
    if other_files == len(files):
        raise InputError(f"{skipped_files[0].path}: {_NO_FHIR}")
    return readable, skipped_files


def _record_references(
    path: Path, shared: FhirReferences, cleaning: NoteCleaning, faults: list[reader_base.Skipped]
) -> FhirReferences:
    """Return the file's references, `shared` with the other files, and count the resources that are no notes."""
    references = replace(shared, addresses={}, replacing=[])
    log = cleaning.removal_log
    for where, resource in read_resources(path):
        if isinstance(resource, reader_base.Skipped):
            continue
        try:
            record_resource(resource, references)
            if _replaces_others(resource):
                references.replacing.append(resource)
        except ValueError as error:
            raise InputError(f"{reader_base.printable_path(path)}, {where}: {error}") from error
        except STRUCTURE_ERRORS:
            # A malformed note is reported when it is read.
            if resource.get("resourceType") in ("Patient", "Encounter"):
                faults.append(reader_base.skip(path, where, BAD_STRUCTURE))
        kind = str(resource.get("resourceType"))[:40]
        if kind in FACT_TYPES and is_fact_withdrawn(resource):
            log.other_resources[f"withdrawn {kind}"] += 1
        elif kind in ("Patient", "Encounter"):
            log.identity_resources[kind] += 1
        elif kind not in ("Bundle", "DocumentReference", "Medication") and kind not in FACT_TYPES:
            log.other_resources[kind] += 1
    return references


def _replaces_others(resource: Resource) -> bool:
    """Return whether the resource is a valid, readable document that names documents it replaces."""
    if resource.get("resourceType") != "DocumentReference" or not resource.get("relatesTo") or is_withdrawn(resource):
        return False
    with suppress(ValueError, *STRUCTURE_ERRORS):
        return bool(document_text(resource).strip())
    return False


def _read_notes(path: Path, references: FhirReferences) -> Iterator[ClinicalNote | reader_base.Skipped]:
    for where, resource in read_resources(path):
        if isinstance(resource, reader_base.Skipped):
            yield resource
        elif resource.get("resourceType") == "DocumentReference":
            try:
                yield build_note(resource, where, references)
            except (ValueError, *STRUCTURE_ERRORS) as error:
                yield reader_base.skip(path, where, str(error) if isinstance(error, ValueError) else BAD_STRUCTURE)


def _read_fact_documents(
    files: Sequence[tuple[Path, FhirReferences]], log: RemovalLog
) -> Iterator[Document | reader_base.DeletedDocument | reader_base.Skipped]:
    """Yield what cannot be read of the structured facts of all files, then their documents."""
    with FactSpool() as spool:
        _, references = files[0]
        for patient, name in references.names.items():
            spool.add_name(patient, " ".join(name.split()))
        for encounter, stay in references.stays.items():
            spool.add_stay(encounter, Stay(stay.admitted, stay.discharged, is_visit=bool(stay.visit)))
        for path, references in files:
            for where, resource in read_resources(path):
                if isinstance(resource, reader_base.Skipped) or resource.get("resourceType") not in FACT_TYPES:
                    continue
                try:
                    _add_facts(resource, references, spool, log)
                except (ValueError, *STRUCTURE_ERRORS) as error:
                    reason = str(error) if isinstance(error, ValueError) else BAD_STRUCTURE
                    yield reader_base.skip(path, where, reason)
        yield from spool.documents(log)


def _add_facts(resource: Resource, references: FhirReferences, spool: FactSpool, log: RemovalLog) -> None:
    """Store the facts of a resource. Raises ValueError if it cannot be read."""
    kind = str(resource["resourceType"])
    if kind == "Encounter" and not resource.get("subject"):
        log.fact_problems["Encounter without a patient"] += 1
        return
    patient, encounter = find_patient(resource, references), find_encounter(resource, references)
    stay = references.stays.get(encounter, EncounterStay())
    record = read_facts(
        resource, patient, encounter, stay.discharged, lambda reference: find_medication(reference, references)
    )
    if record is None:
        log.fact_problems["panel without a value of its own"] += 1
    else:
        spool.add(record)
