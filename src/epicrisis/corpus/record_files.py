"""Read the files of patients' records whose formats tell about each other's patients: FHIR, C-CDA and HL7 v2."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from epicrisis.corpus.ccda import files as ccda_files
from epicrisis.corpus.facts import mimic, omop
from epicrisis.corpus.fhir import export
from epicrisis.corpus.hl7 import files as hl7_files
from epicrisis.corpus.hl7.messages import is_hl7
from epicrisis.corpus.note_documents import NoteCleaning
from epicrisis.corpus.patient_numbers import PatientNumbers
from epicrisis.corpus.reader_base import PatientIdentity, ReaderItem
from epicrisis.corpus.xml_text import detect_xml_kind

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
        for item in export.read_files(files, cleaning):
            if isinstance(item, PatientIdentity):
                numbers.add_identity(item)
            yield item
