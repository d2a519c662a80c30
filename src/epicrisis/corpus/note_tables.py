"""Notes of patients from CSV files, plain or gzip: MIMIC's, known by their headers, and any other by column names.

Known are NOTEEVENTS of MIMIC-III and the discharge and radiology files of MIMIC-IV-Note; a file with the columns
`note_id, subject_id, note_type, charttime, text` is read as the latter. Does not know what becomes of a note: see
`notes_record`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from pathlib import Path

from epicrisis.corpus.csv_rows import CsvLayout, CsvRow, read_header, read_rows
from epicrisis.corpus.note_documents import ClinicalNote, NoteCleaning, build_items, normalize_id
from epicrisis.corpus.note_times import parse_note_time
from epicrisis.corpus.reader_base import DeletedDocument, PatientIdentity, Skipped, printable_path
from epicrisis.errors import InputError
from epicrisis.types import Document

ENDINGS = (".csv", ".csv.gz", ".tsv", ".tsv.gz")


@dataclass(frozen=True, slots=True)
class NoteColumns:
    """Which column of a file is what; empty: none. `time` may name several, see `ClinicalNote.times`."""

    patient: str = ""
    time: tuple[str, ...] = ()
    type: str = ""
    text: str = ""
    encounter: str = ""
    note_id: str = ""
    patient_name: str = ""
    admitted: str = ""
    discharged: str = ""
    description: str = ""
    """Of a note type (`CHEST (PORTABLE AP)`): goes into the metadata."""
    born: str = ""
    record_number: str = ""
    error: str = ""
    """Holds 1 where the note was written by mistake."""


_MIMIC_3 = NoteColumns(
    "subject_id",
    ("charttime", "chartdate"),
    "category",
    "text",
    "hadm_id",
    "row_id",
    description="description",
    error="iserror",
)
_MIMIC_4 = NoteColumns(
    "subject_id",
    ("charttime",),
    "note_type",
    "text",
    "hadm_id",
    "note_id",
    admitted="admittime",
    discharged="dischtime",
)
_KNOWN = (
    (frozenset(("subject_id", "chartdate", "category", "text")), _MIMIC_3),
    (frozenset(("note_id", "subject_id", "note_type", "charttime", "text")), _MIMIC_4),
)
MIMIC_NOTE_TYPES = {
    "DS": "discharge summary",
    "AD": "discharge summary addendum",
    "RR": "radiology report",
    "AR": "radiology report addendum",
}
"""MIMIC-IV's note types in words."""


def has_known_header(path: Path) -> bool:
    """True where the header is one of those known here."""
    try:
        return _known(read_header(path)[0]) is not None
    except InputError:
        return False


def locate_columns(path: Path, columns: NoteColumns | None = None) -> tuple[dict[str, tuple[int, ...]], str, int]:
    """The places of the columns by the names of `Columns`' fields, the delimiter, and how many columns there are.

    `columns` names some or all; what it leaves out is as the known headers have it. Raises InputError where a column
    that was named is not there, or twice, and where none is known for the patient or the text.
    """
    named, delimiter = read_header(path)
    known = _known(named)
    wanted = columns or NoteColumns()
    said = {each.name: getattr(wanted, each.name) for each in fields(NoteColumns) if getattr(wanted, each.name)}
    chosen = replace(known or NoteColumns(), **said)
    found: dict[str, tuple[int, ...]] = {}
    for each in fields(NoteColumns):
        names = getattr(chosen, each.name)
        for name in (names,) if isinstance(names, str) else names:
            place = _place(path, named, name, required=each.name in said or each.name in ("patient", "text"))
            if place is not None:
                found[each.name] = (*found.get(each.name, ()), place)
    missing = [f"--{name} COLUMN" for name in ("patient", "text") if name not in found]
    if missing:
        raise InputError(
            f"{printable_path(path)}: not a header of MIMIC's notes, so name its columns: {' '.join(missing)} (and --time, "
            f"--type, --encounter, --note-id where there are such); {_counted(named)}"
        )
    return found, delimiter, len(named)


def read_notes(
    path: Path, name: str, columns: NoteColumns | None = None, treatment: NoteCleaning | None = None
) -> Iterator[Document | DeletedDocument | PatientIdentity | Skipped]:
    """The notes as documents, in the file's order, behind who their patients are: see `notes_record.items`.

    Raises InputError as `places` does.
    """
    treatment = treatment or NoteCleaning()
    notes = note_source(path, columns)
    return chain(_identities(path, columns, treatment.time_format), build_items(path, name, notes, treatment))


def _identities(path: Path, columns: NoteColumns | None, time_format: str) -> Iterator[PatientIdentity]:
    """Who the patients are, where the file says more than their ids; one for each birth date that it gives."""
    found, delimiter, width = locate_columns(path, columns)
    told = {name: found[name][0] for name in ("patient_name", "born", "record_number") if name in found}
    if not told:
        return
    names: dict[tuple[str, str], dict[str, None]] = {}
    numbers: dict[tuple[str, str], dict[tuple[str, str], None]] = {}
    for row in read_rows(
        path, CsvLayout(width, delimiter, found["patient"][0], found["text"][0], found.get("time", ()))
    ):
        if isinstance(row, Skipped) or not (patient := normalize_id(row.cells[found["patient"][0]])):
            continue
        said = {name: normalize_id(" ".join(row.cells[place].split())) for name, place in told.items()}
        read_notes = parse_note_time(said.get("born", ""), time_format)
        key = (patient, read_notes[0][:10] if read_notes else "")
        names.setdefault(key, {}).update({said["patient_name"]: None} if said.get("patient_name") else {})
        numbers.setdefault(key, {}).update({("", said["record_number"]): None} if said.get("record_number") else {})
    for (patient, born), called in names.items():
        yield PatientIdentity(patient, names=tuple(called), born=born, numbers=tuple(numbers[patient, born]))


def note_source(path: Path, columns: NoteColumns | None = None) -> Callable[[], Iterator[ClinicalNote | Skipped]]:
    """What gives the file's notes as they are written, as often as it is called. Raises InputError as `locate_columns` does."""
    found, delimiter, width = locate_columns(path, columns)
    form = CsvLayout(width, delimiter, found["patient"][0], found["text"][0], found.get("time", ()))
    types = MIMIC_NOTE_TYPES if _known(read_header(path)[0]) is _MIMIC_4 else {}

    def notes() -> Iterator[ClinicalNote | Skipped]:
        for row in read_rows(path, form):
            yield row if isinstance(row, Skipped) else _note(row, found, types)

    return notes


def _note(row: CsvRow, found: Mapping[str, tuple[int, ...]], types: Mapping[str, str]) -> ClinicalNote:
    def cell(name: str) -> str:
        return row.cells[found[name][0]] if name in found else ""

    kind, description = cell("type").strip(), cell("description").strip()
    return ClinicalNote(
        where=f"line {row.line}",
        patient=cell("patient"),
        text=cell("text"),
        times=tuple(row.cells[place] for place in found.get("time", ())),
        note_type=types.get(kind, kind),
        encounter=cell("encounter"),
        note_id=cell("note_id"),
        patient_name=cell("patient_name"),
        admitted=cell("admitted"),
        discharged=cell("discharged"),
        more={"description": description} if description else {},
        is_error=cell("error").strip() in ("1", "1.0"),
    )


def _known(named: Sequence[str]) -> NoteColumns | None:
    there = {name.lower() for name in named}
    return next((columns for required, columns in _KNOWN if required <= there), None)


def _place(path: Path, named: Sequence[str], name: str, required: bool) -> int | None:
    """Where the column stands: as written, else in any case of letters; `None` where there is none and none is due."""
    if not name:
        return None
    for like in (
        [n for n, each in enumerate(named) if each == name],
        [n for n, each in enumerate(named) if each.lower() == name.lower()],
    ):
        if len(like) == 1:
            return like[0]
        if like:
            raise InputError(f"{printable_path(path)}: {len(like)} columns are called {name!r}; rename all but one")
    if required:
        raise InputError(f"{printable_path(path)}: no column is called {name!r}; {_counted(named)}")
    return None


def _counted(named: Sequence[str]) -> str:
    """How many columns there are. Their names are not repeated: a first line may be a row of data, a patient's."""
    if not all(each and len(each) <= 40 and each[0].isalpha() and len(each.split()) <= 4 for each in named):
        return "its first line is no header: put the columns' names there"
    return f"its first line has {len(named)} columns, which are the names to choose from, or else a header is missing"
