"""MIMIC's files of notes beside a question set: `discharge.csv`, `radiology.csv` (MIMIC-IV-Note), `NOTEEVENTS.csv`
(MIMIC-III), each plain or gzip, or a `notes.csv` with their columns, read as a stream.

The notes are as `corpus.notes_record` makes them, their boilerplate kept: a set's questions may be about it. Knows no
question.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from pathlib import Path

from epicrisis.corpus.note_documents import ClinicalNote, NoteCleaning, build_documents, normalize_id
from epicrisis.corpus.note_tables import note_source
from epicrisis.corpus.reader_base import ReaderItem, Skipped

FILES = ("discharge.csv", "radiology.csv", "noteevents.csv")
DISCHARGE, RADIOLOGY = "discharge summary", "radiology"
"""Types of notes, in small letters: of both databases; of MIMIC-III."""


def find_note_files(place: Path) -> tuple[Path, ...]:
    """Those of the files that lie in the folder, or beside the file."""
    folder = place if place.is_dir() else place.parent
    known = {name for file in FILES for name in (file, f"{file}.gz")}
    return tuple(path for path in sorted(folder.iterdir()) if path.name.casefold() in known and path.is_file())


def read_patients_notes(files: tuple[Path, ...], patients: Set[str]) -> Iterator[ReaderItem]:
    """The notes of these patients, in the order of the files; what cannot be read is said. Raises InputError for a file
    that is none of MIMIC's."""
    for path in files:
        yield from read_selected_notes(path, lambda note: normalize_id(note.patient) in patients)


def read_selected_notes(path: Path, wanted: Callable[[ClinicalNote], bool]) -> Iterator[ReaderItem]:
    """Those notes of the file that are wanted. Raises InputError for a file that is none of MIMIC's."""
    every = note_source(path)

    def read() -> Iterator[ClinicalNote | Skipped]:
        return (note for note in every() if isinstance(note, Skipped) or wanted(note))

    return build_documents(path, path.name, read, NoteCleaning(keep_boilerplate=True))


def is_kind(note: ClinicalNote, kind: str) -> bool:
    """Whether the note is of that type, in whatever case of letters it is written."""
    return note.note_type.casefold() == kind
