"""Read the notes of all files of a FHIR export (R4, R4B, R5): bundles, single resources, and NDJSON.

The first pass over the files records what resources say about each other: patients, encounters, authors, Binaries,
versions. The second yields the notes of documents, reports and compositions. Structured facts (results, medications,
problems and others, see `facts`) of one patient, day, kind and encounter are one document with a line each, because a
single one has too few words to be found by meaning. Other resources are counted. Nothing is fetched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from datetime import date
from functools import partial
from pathlib import Path

from epicrisis.core.dates import first_day, last_day
from epicrisis.core.errors import InputError
from epicrisis.core.fact_kinds import LASTING_KINDS, FactKind
from epicrisis.core.types import Document
from epicrisis.corpus.base import reader_base
from epicrisis.corpus.base.removal_log import RemovalLog
from epicrisis.corpus.records.ccda.ccda_facts import CodedFacts
from epicrisis.corpus.records.ccda.ccda_files import add_facts
from epicrisis.corpus.records.ccda.clinical_documents import ClinicalDocument
from epicrisis.corpus.records.facts.fact_documents import FactEntry, FactRecord, FactSpool, Stay
from epicrisis.corpus.records.fhir.attachments import AttachmentReader, ExportFile, find_file, list_attachments
from epicrisis.corpus.records.fhir.documents import NoteContext, build_note, has_text, is_withdrawn
from epicrisis.corpus.records.fhir.export_index import ExportIndex
from epicrisis.corpus.records.fhir.fhir_facts import FACT_TYPES, read_facts
from epicrisis.corpus.records.fhir.fhir_facts import is_withdrawn as is_fact_withdrawn
from epicrisis.corpus.records.fhir.fhir_references import (
    TEXT_KINDS,
    FhirReferences,
    describes_another_person,
    find_encounter,
    find_medication,
    find_patient,
    mark_superseded,
    patient_identities,
    record_resource,
    settle_encounters,
    share_definitions,
)
from epicrisis.corpus.records.fhir.fhir_resources import (
    BAD_STRUCTURE,
    DELETION,
    MANIFEST,
    OLDER_VERSION,
    STRUCTURE_ERRORS,
    FhirEntry,
    Resource,
    has_contained_observation,
    is_fhir,
    is_fhir_xml,
    last_updated,
    read_entries,
    read_resources,
)
from epicrisis.corpus.records.fhir.people import PEOPLE_KINDS, record_person
from epicrisis.corpus.records.fhir.server_reports import ServerReports
from epicrisis.corpus.records.note_documents import ClinicalNote, NoteCleaning, build_items

_NO_FHIR = "not FHIR in JSON: a bundle, or one resource a line, each with its resourceType"
_XML = "FHIR in XML, which is not read; export it as JSON (`_format=json` in the address of a server's request)"
_IDENTITY_KINDS = ("Patient", "Encounter")
_SILENT_KINDS = ("Bundle", "OperationOutcome", MANIFEST, DELETION, "Binary", "Medication", *PEOPLE_KINDS)
"""Types that are not counted as resources without a note: they describe notes, or are reported by themselves."""


@dataclass(slots=True, kw_only=True)
class _RecordedFile:
    """A file after the first pass."""

    path: Path
    name: str
    references: FhirReferences
    attachments: AttachmentReader
    kinds: Counter[str] = field(default_factory=Counter)
    has_faults: bool = False
    has_contained: bool = False
    """Whether a text contains an Observation."""

    @property
    def has_notes(self) -> bool:
        """Whether the file must be read again for its texts and its faults."""
        return self.has_faults or not self.kinds.keys().isdisjoint(TEXT_KINDS)

    @property
    def has_facts(self) -> bool:
        """Whether the file must be read again for its structured facts. Results may be contained in a report."""
        return self.has_contained or not self.kinds.keys().isdisjoint(FACT_TYPES)


def read_files(files: Sequence[tuple[Path, str]], cleaning: NoteCleaning) -> Iterator[reader_base.ReaderItem]:
    """Yield the notes of all files (path, name).

    Documents come file by file, then the structured facts, then the fingerprints. A file that cannot be unpacked to
    its end is skipped completely, because even the lines before the damage may be wrong; so is a file that is no FHIR.
    Raises InputError, before the first note, if no file is FHIR, or if two patients or encounters could not be
    distinguished.
    """
    readable, skipped_files = _split_readable(files)
    yield from skipped_files
    if not readable:
        return
    with closing(ExportIndex()) as index:
        yield from _read_export(readable, index, cleaning)


def list_attached_files(files: Sequence[tuple[Path, str]]) -> set[Path]:
    """Return the files that attachments name by a path: they belong to patients, and are no documents of their own."""
    attached: set[Path] = set()
    for path, _ in files:
        with suppress(InputError, *reader_base.READ_ERRORS):
            if not is_fhir(path):
                continue
            for entry in read_entries(path):
                if isinstance(entry.resource, reader_base.Skipped):
                    continue
                for url in _list_urls(entry.resource):
                    if attachment := find_file(url, path.parent):
                        attached.add(attachment)
    return attached


def _read_export(
    readable: Sequence[tuple[Path, str]], index: ExportIndex, cleaning: NoteCleaning
) -> Iterator[reader_base.ReaderItem]:
    shared, reports = FhirReferences(), ServerReports()
    faults: list[reader_base.ReaderItem] = []
    sources = frozenset(reader_base.real_path(path) for path, _ in readable)
    recorded: list[_RecordedFile] = []
    for path, name in readable:
        references = shared.for_file()
        place = ExportFile(path, index.begin_file(path), _find_root(path, name), sources)
        recorded.append(
            _RecordedFile(
                path=path, name=name, references=references, attachments=AttachmentReader(index, references, place)
            )
        )
        _record_file(recorded[-1], reports, cleaning, faults)
    yield from faults
    yield from patient_identities(shared)
    settle_encounters(file.references for file in recorded)
    share_definitions(shared, [file.references for file in recorded])
    _settle_owners(recorded, index)
    yield from reports.list_deletions(index)
    yield from reports.list_remarks(file.kinds for file in recorded)
    if not cleaning.keep_superseded:
        mark_superseded(file.references for file in recorded)
        # An earlier addition may have contained them.
        for patient, note_id in sorted(shared.superseded):
            yield reader_base.DeletedDocument(f"note:{note_id}", patient=patient)
    fingerprints: list[reader_base.ReaderItem] = []
    for file in recorded:
        read_notes = partial(_read_notes, file, keep_superseded=cleaning.keep_superseded)
        notes = build_items(file.path, file.name, read_notes, cleaning) if file.has_notes else ()
        yield from reader_base.hold_fingerprint(file.path, notes, fingerprints)
    yield from _read_fact_documents(recorded, index, cleaning.removal_log)
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
        elif is_fhir_xml(path):
            skipped_files.append(reader_base.skip(path, "", _XML))
        else:
            other_files += 1
            skipped_files.append(reader_base.skip(path, "", _NO_FHIR))
    if other_files == len(files):
        raise InputError(f"{skipped_files[0].path}: {_NO_FHIR}")
    return readable, skipped_files


def _find_root(path: Path, name: str) -> Path:
    """Return the folder that the user named, as `name` is the file's path below it; else the file's folder."""
    parts = Path(name).parts
    folder = path.parents[len(parts) - 1] if parts and path.parts[-len(parts) :] == parts else path.parent
    return reader_base.real_path(folder)


def _record_file(
    file: _RecordedFile, reports: ServerReports, cleaning: NoteCleaning, faults: list[reader_base.ReaderItem]
) -> None:
    """Record what the file's resources say about each other, and count those that are no notes."""
    for entry in read_entries(file.path):
        resource = entry.resource
        if isinstance(resource, reader_base.Skipped):
            file.has_faults = True
            continue
        kind = str(resource.get("resourceType"))[:40]
        file.kinds[kind] += 1
        file.has_contained = file.has_contained or has_contained_observation(resource)
        try:
            record_resource(resource, file.references)
            _record_details(file, entry, resource)
            reports.add(resource, file.name)
        except ValueError as error:
            raise InputError(f"{reader_base.printable_path(file.path)}, {entry.where}: {error}") from error
        except STRUCTURE_ERRORS:
            # A malformed note is reported when it is read.
            if kind in _IDENTITY_KINDS:
                faults.append(reader_base.skip(file.path, entry.where, BAD_STRUCTURE))
        _count_resource(kind, resource, cleaning.removal_log)


def _count_resource(kind: str, resource: Resource, log: RemovalLog) -> None:
    """Count a resource that is no note."""
    if kind in TEXT_KINDS:
        with suppress(*STRUCTURE_ERRORS):
            if not has_text(resource):
                log.other_resources[f"{kind} without text"] += 1
    elif kind in FACT_TYPES and is_fact_withdrawn(resource):
        log.other_resources[f"withdrawn {kind}"] += 1
    elif kind == OLDER_VERSION:
        log.other_resources[f"older version of {resource['target']}"] += 1
    elif kind in _IDENTITY_KINDS:
        log.identity_resources[kind] += 1
        if resource.get("deceasedDateTime") or resource.get("deceasedBoolean") is True:
            log.fact_problems["death of a Patient, which is not read"] += 1
    elif kind not in _SILENT_KINDS and kind not in FACT_TYPES:
        log.other_resources[kind] += 1


def _record_details(file: _RecordedFile, entry: FhirEntry, resource: Resource) -> None:
    """Record a Binary, a person, or what a document says about others."""
    index, kind = file.attachments.index, resource.get("resourceType")
    if kind == "Binary":
        # A resource without an id is known by the end of its address.
        key = str(resource.get("id") or "") or file.attachments.find_key(str(resource.get("fullUrl") or ""))
        index.add_binary(key.removeprefix("Binary/"), resource, _locate_line(file.path, entry))
    elif kind in PEOPLE_KINDS:
        address = str(resource.get("fullUrl") or "")
        person_id = resource.get("id") or address.replace(":", "/").rpartition("/")[2]
        record_person({**resource, "id": person_id}, file.references.people_elements)
    elif kind in (*TEXT_KINDS, DELETION):
        index.add_version(_name_version(resource), resource)
        if kind == DELETION or is_withdrawn(resource):
            return
        if resource.get("relatesTo"):
            file.references.replacing.append(resource)
        subject = {key: resource[key] for key in ("subject", "patient", "contained") if key in resource}
        for url in _list_urls(resource):
            if claimed := file.attachments.find_key(url):
                index.add_claim(claimed, file.attachments.file.number, subject)


def _locate_line(path: Path, entry: FhirEntry) -> tuple[int, int] | None:
    """Return the place of a resource that is a line of a plain file; None for one in a bundle or a gzip file."""
    return None if entry.line is None or reader_base.is_packed(path) else entry.line


def _list_urls(resource: Resource) -> list[str]:
    """Return the addresses of the attachments of a document or a report."""
    if resource.get("resourceType") not in ("DocumentReference", "DiagnosticReport"):
        return []
    try:
        return [str(attachment.get("url") or "") for attachment in list_attachments(resource)]
    except STRUCTURE_ERRORS:
        return []


def _name_version(resource: Resource) -> str:
    kind = resource["target"] if resource["resourceType"] == DELETION else resource["resourceType"]
    return f"{kind}/{resource.get('id') or ''}"


def _settle_owners(files: Sequence[_RecordedFile], index: ExportIndex) -> None:
    """Record the patients of the documents that name each Binary, after all resources were recorded."""
    for key, number, subject in index.list_claims():
        with suppress(ValueError):
            index.add_owner(key, find_patient(subject, files[number].references))
    for file in files:
        # A document that has no readable text replaces no other.
        file.references.replacing[:] = [
            resource for resource in file.references.replacing if _is_readable(file, resource)
        ]


def _is_readable(file: _RecordedFile, resource: Resource) -> bool:
    with suppress(ValueError, *STRUCTURE_ERRORS):
        context = NoteContext(file.name, file.references, file.attachments)
        for item in build_note(resource, "", context):
            if isinstance(item, ClinicalNote):
                return bool(item.text.strip())
    return False


def _read_notes(
    file: _RecordedFile, *, keep_superseded: bool
) -> Iterator[ClinicalNote | reader_base.Skipped | reader_base.FileRemark]:
    context = NoteContext(
        file.name, file.references, file.attachments, stores_facts=True, keep_superseded=keep_superseded
    )
    for entry in read_entries(file.path):
        resource = entry.resource
        if isinstance(resource, reader_base.Skipped):
            yield resource
        elif resource.get("resourceType") in TEXT_KINDS:
            try:
                if has_text(resource):
                    yield from _read_version(file, resource, entry.where, context)
            except (ValueError, *STRUCTURE_ERRORS) as error:
                reason = str(error) if isinstance(error, ValueError) else BAD_STRUCTURE
                yield reader_base.skip(file.path, entry.where, reason)


def _read_version(
    file: _RecordedFile, resource: Resource, where: str, context: NoteContext
) -> Iterator[ClinicalNote | reader_base.Skipped | reader_base.FileRemark]:
    """Yield the note of a resource, or only a remark if the export has a later version of it."""
    index = file.attachments.index
    if last_updated(resource) and index.is_outdated(_name_version(resource), resource):
        yield reader_base.FileRemark(file.name, "document", "in an older version than another one of the export")
    else:
        yield from build_note(resource, where, context)


def _read_fact_documents(
    files: Sequence[_RecordedFile], index: ExportIndex, log: RemovalLog
) -> Iterator[Document | reader_base.DeletedDocument | reader_base.Skipped | reader_base.StatedSources]:
    """Yield what cannot be read of the structured facts of all files, then their documents."""
    with FactSpool() as spool:
        references = files[0].references
        for patient in references.people:
            name = " ".join(references.names.get(patient, "").split())
            spool.add_person(patient, name, references.birth_date(patient))
        for encounter, stay in references.stays.items():
            owner = references.encounter_patients.get(encounter, "")
            spool.add_stay(encounter, Stay(stay.admitted, stay.discharged, is_visit=bool(stay.visit)), owner)
        for file in files:
            for where, resource in read_resources(file.path) if file.has_facts else ():
                if isinstance(resource, reader_base.Skipped) or resource.get("resourceType") not in FACT_TYPES:
                    continue
                try:
                    if record := _build_record(resource, file.references, log):
                        spool.add(record)
                        record_stated(record, index)
                except (ValueError, *STRUCTURE_ERRORS) as error:
                    reason = str(error) if isinstance(error, ValueError) else BAD_STRUCTURE
                    yield reader_base.skip(file.path, where, reason)
        add_attached_facts(index, spool, log)
        yield from spool.documents(log, incremental="fhir:")


def _build_record(resource: Resource, references: FhirReferences, log: RemovalLog) -> FactRecord | None:
    """Return the facts of a resource, or None if it has none. Raises ValueError if it cannot be read."""
    kind = str(resource["resourceType"])
    if kind == "Encounter" and not resource.get("subject"):
        log.fact_problems["Encounter without a patient"] += 1
        return None
    if kind == "Device" and not resource.get("patient"):
        # It wrote a document, or belongs to a ward.
        return None
    patient, encounter = find_patient(resource, references), find_encounter(resource, references)
    if references.encounter_patients.get(encounter, patient) != patient:
        encounter = ""
    stay = references.stay(encounter, patient)
    if describes_another_person(resource, patient, references):
        raise ValueError("is about another person than its patient (focus); export it with that person as its subject")
    record = read_facts(
        resource, patient, encounter, stay.discharged, lambda reference: find_medication(reference, references)
    )
    if record is None:
        log.fact_problems["panel without a value of its own"] += 1
    return record


_VALUES: tuple[FactKind, ...] = ("laboratory", "vital-sign", "observation")
_SAME_KINDS: dict[FactKind, tuple[FactKind, ...]] = {
    "laboratory": ("laboratory", "observation"),
    "vital-sign": ("vital-sign", "observation"),
    "observation": _VALUES,
}
"""Kinds under which a resource may have what an entry calls by another one; for other kinds, the kind alone."""
"""Kinds whose dates differ between a list and its resources."""
_STATED = "of attached C-CDA documents, which resources of the export state"


def record_stated(record: FactRecord, index: ExportIndex) -> None:
    """Record which facts a resource states, if its patient has attached documents with facts."""
    if not index.has_clinical_documents(record.patient):
        return
    for entry in record.entries:
        first, last = _day_numbers(entry)
        index.add_stated(record.patient, entry.fact.kind, first, last)


def add_attached_facts(index: ExportIndex, spool: FactSpool, log: RemovalLog) -> None:
    """Store the facts of all attached documents, after those of the resources."""
    for patient, values, stay, is_left_out in index.list_clinical_documents():
        document = ClinicalDocument.from_json(values)
        rows: list[tuple[FactEntry, ...]] = []
        for row in document.coded.entries:
            if _is_stated(row[0], patient, index):
                log.fact_problems[_STATED] += len(row)
            else:
                rows.append(row)
        if index.find_stated(patient, "encounter", 0, date.max.toordinal()):
            rows = [_without_encounter(row) for row in rows]
        log.fact_problems.update(document.coded.problems)
        encounter, admitted, discharged = stay
        document = replace(
            document,
            coded=CodedFacts(tuple(rows)),
            encounter=encounter,
            admitted=admitted,
            discharged=discharged,
            is_stay=True,
        )
        add_facts(document, patient, spool, is_left_out=is_left_out)


def _is_stated(entry: FactEntry, patient: str, index: ExportIndex) -> bool:
    """Return whether a resource may state the fact of an entry. Days differ between time zones."""
    kind = entry.fact.kind
    first, last = (0, date.max.toordinal()) if kind in LASTING_KINDS else _day_numbers(entry)
    return any(index.find_stated(patient, other, first - 1, last + 1) for other in _SAME_KINDS.get(kind, (kind,)))


def _day_numbers(entry: FactEntry) -> tuple[int, int]:
    """Return the first and the last day of a fact as ordinals; all days without a date."""
    time = entry.fact.time
    if not time:
        return 0, date.max.toordinal()
    return _ordinal(first_day(time)), _ordinal(last_day(time))


def _ordinal(day: int) -> int:
    return date(day // 10_000, day // 100 % 100, day % 100).toordinal()


def _without_encounter(row: Sequence[FactEntry]) -> tuple[FactEntry, ...]:
    """Return the facts without the document's own number of an encounter, which the export states under another."""
    return tuple(replace(entry, fact=replace(entry.fact, encounter="")) for entry in row)
