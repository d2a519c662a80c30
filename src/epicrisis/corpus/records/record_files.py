"""Read the files of patients' records whose formats tell about each other's patients: FHIR, C-CDA and HL7 v2."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from epicrisis.core.types import Document
from epicrisis.corpus.base.patient_numbers import PatientNumbers
from epicrisis.corpus.base.reader_base import DeletedDocument, PatientIdentity, ReaderItem, StatedSources
from epicrisis.corpus.base.xml_text import detect_xml_kind
from epicrisis.corpus.records.ccda import ccda_files as ccda_files
from epicrisis.corpus.records.facts import mimic, omop
from epicrisis.corpus.records.fhir import export_folder as export
from epicrisis.corpus.records.hl7 import hl7_files as hl7_files
from epicrisis.corpus.records.hl7.messages import is_hl7
from epicrisis.corpus.records.note_documents import NoteCleaning

FHIR: Final = "fhir"
CCDA: Final = "ccda"
HL7: Final = "hl7"
OMOP: Final = "omop"
MIMIC: Final = "mimic"
RECORD_FORMATS = (FHIR, CCDA, HL7, OMOP, MIMIC)
"""In the order of reading: patients that FHIR describes keep their ids in the files of other formats."""


def detect_record(path: Path) -> str | None:
    """Return the format of a file with any ending, or None if it is neither HL7 v2 nor C-CDA. Raises OSError."""
    if is_hl7(path):
        return HL7
    return CCDA if detect_xml_kind(path) == CCDA else None


def read_records(
    format: str, files: Sequence[tuple[Path, str]], cleaning: NoteCleaning, numbers: PatientNumbers
) -> Iterator[ReaderItem]:
    """Yield the items of all files (path, name) of one format. `numbers` are the patients of the addition."""
    if format == CCDA:
        yield from ccda_files.read_files(files, cleaning, numbers)
    elif format == HL7:
        yield from hl7_files.read_files(files, cleaning, numbers)
    elif format == OMOP:
        yield from omop.read_files(files, cleaning)
    elif format == MIMIC:
        yield from mimic.read_files(files, cleaning)
    else:
        yield from _join_patients(export.read_files(files, cleaning), numbers)


def _join_patients(items: Iterator[ReaderItem], numbers: PatientNumbers) -> Iterator[ReaderItem]:
    """Yield the items of an export, those of patients whom the library has by a record number under their ids there.

    The identities of all patients precede the first document.
    """
    identities: list[PatientIdentity] = []
    patients: Mapping[str, str] | None = None
    for item in items:
        if isinstance(item, PatientIdentity):
            identities.append(item)
            continue
        if patients is None and isinstance(item, Document | DeletedDocument | StatedSources):
            patients = numbers.join_export(identities)
            yield from _name_identities(identities, patients, numbers)
        if isinstance(item, Document | DeletedDocument) and patients:
            yield replace(item, patient=patients.get(item.patient or "", item.patient))
        elif isinstance(item, StatedSources) and patients:
            yield replace(item, patient=patients.get(item.patient, item.patient))
        else:
            yield item
    if patients is None:
        yield from _name_identities(identities, numbers.join_export(identities), numbers)


def _name_identities(
    identities: Sequence[PatientIdentity], patients: Mapping[str, str], numbers: PatientNumbers
) -> Iterator[PatientIdentity]:
    """Yield the identities, those of joined patients with the id of the resource as a number, and record them."""
    for identity in identities:
        if patient := patients.get(identity.patient):
            alias = identity.source, identity.patient
            identity = replace(identity, patient=patient, numbers=(*identity.numbers, alias), alias=identity.patient)
        numbers.add_identity(identity)
        yield identity
