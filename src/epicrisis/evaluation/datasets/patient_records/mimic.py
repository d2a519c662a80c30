"""MIMIC's files of notes in the folder of a question set, read as a stream.

They are `discharge.csv` and `radiology.csv` (MIMIC-IV-Note) and `NOTEEVENTS.csv` (MIMIC-III), plain or gzip, or a
`notes.csv` with their columns.

Notes keep their boilerplate, as questions may be about it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from functools import partial
from pathlib import Path

from epicrisis.corpus.note_documents import ClinicalNote, NoteCleaning, build_documents, normalize_id
from epicrisis.corpus.note_tables import note_source
from epicrisis.corpus.reader_base import ReaderItem, Skipped

FILES = ("discharge.csv", "radiology.csv", "noteevents.csv")
DISCHARGE, RADIOLOGY = "discharge summary", "radiology"
"""Types of notes in lower case. Radiology reports are named so in MIMIC-III."""


def find_note_files(place: Path) -> tuple[Path, ...]:
    """Return the files of notes in a folder, or in the folder of a file."""
    folder = place if place.is_dir() else place.parent
    names = {*FILES, *map("{}.gz".format, FILES)}
    return tuple(path for path in sorted(folder.iterdir()) if path.name.casefold() in names and path.is_file())


def read_patients_notes(files: tuple[Path, ...], patients: Set[str]) -> Iterator[ReaderItem]:
    """Yield the notes of these patients in order, and rows that cannot be read. Raises InputError for another file."""
    return read_selected_notes(files, lambda note: normalize_id(note.patient) in patients)


def read_selected_notes(files: Sequence[Path], select: Callable[[ClinicalNote], bool]) -> Iterator[ReaderItem]:
    """Yield the notes for which `select` is true. Raises InputError for a file that is not from MIMIC."""
    for path in files:
        select_notes = partial(_select_notes, note_source(path), select)
        yield from build_documents(path, path.name, select_notes, NoteCleaning(keep_boilerplate=True))


def _select_notes(
    notes: Callable[[], Iterable[ClinicalNote | Skipped]], select: Callable[[ClinicalNote], bool]
) -> Iterator[ClinicalNote | Skipped]:
    for note in notes():
        if isinstance(note, Skipped) or select(note):
            yield note


def is_kind(note: ClinicalNote, kind: str) -> bool:
    """Return whether the note has this type, ignoring case."""
    return note.note_type.casefold() == kind
