"""The result of reading a set about patient records, and helpers of its readers.

The notes are MIMIC's files in the folder of the set, read as a stream: `discharge.csv` and `radiology.csv`
(MIMIC-IV-Note) and `NOTEEVENTS.csv` (MIMIC-III), plain or gzip, or a `notes.csv` with their columns. Notes keep their
boilerplate, as questions may be about it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from epicrisis.core.types import Document, Question
from epicrisis.corpus.base.reader_base import FileRemark, ReaderItem, Skipped, path_error
from epicrisis.corpus.records.note_documents import (
    ClinicalNote,
    NoteCleaning,
    NoteSource,
    build_documents,
    normalize_id,
)
from epicrisis.corpus.records.note_tables import note_source
from epicrisis.evaluation.datasets.dataset import read_content

NOTE_FILES = ("discharge.csv", "radiology.csv", "noteevents.csv")
DISCHARGE, RADIOLOGY = "discharge summary", "radiology"
"""Types of notes in lower case. Radiology reports are named so in MIMIC-III."""

PHYSIONET_LICENCE = "PhysioNet Credentialed Health Data License 1.5.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSet:
    """Questions about patient records, in the order of their source with unique ids, and the records.

    Evidence and gold documents of a question refer to `notes`.
    """

    questions: tuple[Question, ...]
    notes: Callable[[], Iterator[ReaderItem]]
    """Yields the notes of the patients, and rows that cannot be read. Each call reads the files again."""
    licence: str = ""
    notices: tuple[str, ...] = ()
    """Notices for the reader, for example about questions that were left out."""
    studied: frozenset[str] | None = None
    """Ids of the questions that the EHR study used (section 4.1); None if it did not use this set."""
    note_types: frozenset[str] = frozenset()
    """Types of the notes that the set is about, in lower case; empty if it does not say."""
    name: str = ""
    """The name under which `load_records` knows the set."""


@dataclass(frozen=True, slots=True)
class RecordReader:
    """A question set about patient records: its name, the names or patterns of its file, and how it is read."""

    name: str
    files: tuple[str, ...]
    load: Callable[[Path], RecordSet]


def read_json(path: Path, what: str) -> Any:
    """Return the JSON value of a file. Raises InputError; `what` names the expected file in the message."""
    try:
        return json.loads(read_content(path).decode("utf-8-sig"))
    except (ValueError, RecursionError):
        raise path_error(path, f"not {what}: it is not JSON in UTF-8; fetch it again") from None


def find_source_file(place: Path, *names: str) -> Path | None:
    """Return the file, or the first file in the folder that matches one of these names or patterns, or None."""
    if place.is_file():
        return place if any(place.match(name) for name in names) else None
    for name in names:
        for path in sorted(place.glob(name)):
            if path.is_file():
                return path
    return None


def find_note_files(place: Path) -> tuple[Path, ...]:
    """Return the files of notes in a folder, or in the folder of a file."""
    folder = place if place.is_dir() else place.parent
    names = {*NOTE_FILES, *(f"{file}.gz" for file in NOTE_FILES)}
    return tuple(path for path in sorted(folder.iterdir()) if path.name.casefold() in names and path.is_file())


def read_patients_notes(files: tuple[Path, ...], patients: Set[str]) -> Iterator[ReaderItem]:
    """Yield the notes of these patients in order, and rows that cannot be read. Raises InputError for another file."""
    return read_selected_notes(files, lambda note: normalize_id(note.patient) in patients)


def read_selected_notes(files: Sequence[Path], select: Callable[[ClinicalNote], bool]) -> Iterator[ReaderItem]:
    """Yield the notes for which `select` is true. Raises InputError for a file that is not from MIMIC."""
    for path in files:
        read_notes = note_source(path)

        def selection(
            read_notes: NoteSource = read_notes,
        ) -> Iterator[ClinicalNote | Skipped | FileRemark]:
            return (note for note in read_notes() if not isinstance(note, ClinicalNote) or select(note))

        yield from build_documents(path, path.name, selection, NoteCleaning(keep_boilerplate=True))


def read_notes_of_kind(files: Sequence[Path], kind: str, patients: Set[str] | None = None) -> Iterator[Document]:
    """Yield the readable notes of this type, ignoring case; of these patients, or of all."""

    def is_wanted(note: ClinicalNote) -> bool:
        return note.note_type.casefold() == kind and (patients is None or normalize_id(note.patient) in patients)

    for item in read_selected_notes(files, is_wanted):
        if isinstance(item, Document):
            yield item


def describe_first_error(error: ValidationError) -> str:
    """Return the place of the first wrong value, such as `qa_pairs.0.answer`, or "" for the value as a whole."""
    return ".".join(map(str, error.errors(include_url=False, include_input=False)[0]["loc"]))
