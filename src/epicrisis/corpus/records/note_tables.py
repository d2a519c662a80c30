"""Read notes of patients from CSV files, plain or gzip: by column names, or MIMIC's, recognized by their headers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import chain
from pathlib import Path
from typing import Any

from epicrisis.core.errors import InputError
from epicrisis.core.types import Document
from epicrisis.corpus.base.csv_rows import CsvLayout, CsvRow, read_header, read_rows
from epicrisis.corpus.base.note_times import parse_note_time
from epicrisis.corpus.base.patient_numbers import stands_for_nobody
from epicrisis.corpus.base.reader_base import DeletedDocument, FileRemark, PatientIdentity, Skipped, path_error
from epicrisis.corpus.records.note_documents import ClinicalNote, NoteCleaning, NoteSource, build_items, normalize_id


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteColumns:
    """The names of a file's columns; empty: no such column. `time` may have several, see `ClinicalNote`."""

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
    """Describes the note type (`CHEST (PORTABLE AP)`); goes into the metadata."""
    born: str = ""
    record_number: str = ""
    error: str = ""


_ID, _STAY = "subject_id", "hadm_id"
_MIMIC_3 = NoteColumns(
    patient=_ID,
    time=("charttime", "chartdate"),
    type="category",
    text="text",
    encounter=_STAY,
    note_id="row_id",
    description="description",
    error="iserror",
)
_MIMIC_4 = NoteColumns(
    patient=_ID,
    time=("charttime",),
    type="note_type",
    text="text",
    encounter=_STAY,
    note_id="note_id",
    admitted="admittime",
    discharged="dischtime",
)
_KNOWN_HEADERS = (
    (frozenset(("subject_id", "chartdate", "category", "text")), _MIMIC_3),
    (frozenset(("note_id", "subject_id", "note_type", "charttime", "text")), _MIMIC_4),
)
MIMIC_NOTE_TYPES = {
    "DS": "discharge summary",
    "AD": "discharge summary addendum",
    "RR": "radiology report",
    "AR": "radiology report addendum",
}
"""The note types of MIMIC-IV in words."""


def read_columns(columns: Mapping[str, Any] | None) -> NoteColumns | None:
    """Return columns named by their roles in the options of `epicrisis library add`, or None without any.

    Raises InputError for an unknown role, and for another value than a dictionary.
    """
    if not columns:
        return None
    if not isinstance(columns, Mapping):
        raise InputError("columns must be a dictionary of roles, such as {'patient': 'subject_id'}")
    names = {role.replace("-", "_"): value for role, value in columns.items()}
    time = names.pop("time", ())
    try:
        return NoteColumns(time=(time,) if isinstance(time, str) else tuple(time), **names)
    except TypeError:
        raise InputError(
            f"columns {', '.join(columns)}: `epicrisis library add --help` lists the roles of --column"
        ) from None


def has_known_header(path: Path) -> bool:
    """Return whether the file has the header of one of MIMIC's files."""
    try:
        return _find_mimic_columns(read_header(path)[0]) is not None
    except InputError:
        return False


def locate_columns(path: Path, columns: NoteColumns | None = None) -> tuple[dict[str, tuple[int, ...]], CsvLayout]:
    """Return the positions of the columns by the fields of `NoteColumns`, and the layout of the file's rows.

    `columns` names some or all columns; the others are as in MIMIC's file, if it is one. Raises InputError if a column
    in `columns` is missing or occurs twice, and if no column for the patient or the text is known.
    """
    header, delimiter = read_header(path)
    mimic = _find_mimic_columns(header) or NoteColumns()
    places: dict[str, tuple[int, ...]] = {}
    for field in fields(NoteColumns):
        override = getattr(columns, field.name, None)
        value = override or getattr(mimic, field.name)
        for name in (value,) if isinstance(value, str) else value:
            place = _locate_column(path, header, name, bool(override) or field.name in ("patient", "text"))
            if place is not None:
                places[field.name] = (*places.get(field.name, ()), place)
    missing = [f"--column {name}=NAME" for name in ("patient", "text") if name not in places]
    if missing:
        raise path_error(
            path,
            f"not a header of MIMIC's notes, so name its columns: {' '.join(missing)} (and time, type, encounter, "
            f"note-id if it has them); {_describe_header(header)}",
        )
    layout = CsvLayout(len(header), delimiter, places["patient"][0], places["text"][0], places.get("time", ()))
    return places, layout


def read_notes(
    path: Path, name: str, columns: NoteColumns | None = None, cleaning: NoteCleaning | None = None
) -> Iterator[Document | DeletedDocument | PatientIdentity | Skipped | FileRemark]:
    """Return an iterator over the patients' identities, then the notes. Raises InputError as `locate_columns` does."""
    cleaning = cleaning or NoteCleaning()
    notes = note_source(path, columns)
    return chain(_read_identities(path, columns, cleaning.time_format), build_items(path, name, notes, cleaning))


def _read_identities(path: Path, columns: NoteColumns | None, time_format: str) -> Iterator[PatientIdentity]:
    """Yield the patients' identities if the file has more than ids: one for each patient and birth date."""
    places, layout = locate_columns(path, columns)
    if places.keys().isdisjoint(("patient_name", "born", "record_number")):
        return
    names: dict[tuple[str, str], dict[str, None]] = {}
    numbers: dict[tuple[str, str], dict[tuple[str, str], None]] = {}
    for row in read_rows(path, layout):
        if isinstance(row, Skipped):
            continue
        patient = normalize_id(row.cells[layout.patient])
        if stands_for_nobody(patient):
            continue
        id_cells = (_cell(row, places, field) for field in ("patient_name", "born", "record_number"))
        name, born, number = (normalize_id(" ".join(cell.split())) for cell in id_cells)
        time = parse_note_time(born, time_format)
        key = (patient, time[0][:10] if time else "")
        names.setdefault(key, {})
        numbers.setdefault(key, {})
        if name:
            names[key][name] = None
        if number:
            numbers[key]["", number] = None
    for (patient, born), patient_names in names.items():
        yield PatientIdentity(patient, names=tuple(patient_names), born=born, numbers=tuple(numbers[patient, born]))


def _cell(row: CsvRow, places: Mapping[str, tuple[int, ...]], field: str) -> str:
    return row.cells[places[field][0]] if field in places else ""


def note_source(path: Path, columns: NoteColumns | None = None) -> NoteSource:
    """Return a function for a new iterator over the file's notes. Raises InputError as `locate_columns` does."""
    places, layout = locate_columns(path, columns)
    note_types = MIMIC_NOTE_TYPES if _find_mimic_columns(read_header(path)[0]) is _MIMIC_4 else {}
    return lambda: (_build_note(row, places, note_types) for row in read_rows(path, layout))


def _build_note(
    row: CsvRow | Skipped, places: Mapping[str, tuple[int, ...]], note_types: Mapping[str, str]
) -> ClinicalNote | Skipped:
    if isinstance(row, Skipped):
        return row
    note_type, description = _cell(row, places, "type").strip(), _cell(row, places, "description").strip()
    return ClinicalNote(
        where=f"line {row.line}",
        patient=_cell(row, places, "patient"),
        text=_cell(row, places, "text"),
        times=tuple(row.cells[place] for place in places.get("time", ())),
        note_type=note_types.get(note_type, note_type),
        encounter=_cell(row, places, "encounter"),
        note_id=_cell(row, places, "note_id"),
        patient_name=_cell(row, places, "patient_name"),
        born=_cell(row, places, "born"),
        admitted=_cell(row, places, "admitted"),
        discharged=_cell(row, places, "discharged"),
        more={"description": description} if description else {},
        is_error=_cell(row, places, "error").strip() in ("1", "1.0"),
    )


def _find_mimic_columns(header: Sequence[str]) -> NoteColumns | None:
    names = set(map(str.lower, header))
    for required, columns in _KNOWN_HEADERS:
        if required <= names:
            return columns
    return None


def _locate_column(path: Path, header: Sequence[str], name: str, is_required: bool) -> int | None:
    """Return the position of the column with this name, else with this name in any letter case, else None."""
    if not name:
        return None
    same_case = [place for place, cell in enumerate(header) if cell == name]
    places = same_case or [place for place, cell in enumerate(header) if cell.lower() == name.lower()]
    if len(places) > 1:
        raise path_error(path, f"{len(places)} columns are called {name!r}; rename all but one")
    if places:
        return places[0]
    if is_required:
        raise path_error(path, f"no column is called {name!r}; {_describe_header(header)}")
    return None


def _describe_header(header: Sequence[str]) -> str:
    """Describe the header without repeating its cells, because a first line may be a patient's data."""
    if any(not cell or len(cell) > 40 or not cell[0].isalpha() or len(cell.split()) > 4 for cell in header):
        return "its first line is no header: put the columns' names there"
    return f"its first line has {len(header)} columns: choose from their names, or add a missing header"
