"""Patients' notes on the command line: the options of `library add` that are for them, and what it says was removed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from epicrisis.corpus.note_documents import NoteCleaning
    from epicrisis.corpus.note_tables import NoteColumns
    from epicrisis.corpus.removal_log import RemovalSummary

_PANEL = "Notes of patients: which column of a CSV file is what (MIMIC's are known)"

Patient = Annotated[str | None, typer.Option("--patient", help="Whose record it is.", rich_help_panel=_PANEL)]
Text = Annotated[str | None, typer.Option("--text", help="The note's text.", rich_help_panel=_PANEL)]
Time = Annotated[
    list[str] | None,
    typer.Option("--time", help="When it was written (repeat: the most exact counts).", rich_help_panel=_PANEL),
]
Type = Annotated[str | None, typer.Option("--type", help="What kind of note it is.", rich_help_panel=_PANEL)]
Encounter = Annotated[str | None, typer.Option("--encounter", help="The hospital stay.", rich_help_panel=_PANEL)]
NoteId = Annotated[str | None, typer.Option("--note-id", help="The note's own id.", rich_help_panel=_PANEL)]
PatientName = Annotated[str | None, typer.Option("--patient-name", help="The name.", rich_help_panel=_PANEL)]
BirthDate = Annotated[
    str | None, typer.Option("--birth-date", help="When the patient was born.", rich_help_panel=_PANEL)
]
RecordNumber = Annotated[
    str | None,
    typer.Option("--record-number", help="A number that names the patient as well (MRN).", rich_help_panel=_PANEL),
]
Admitted = Annotated[str | None, typer.Option("--admitted", help="When the stay began.", rich_help_panel=_PANEL)]
Discharged = Annotated[str | None, typer.Option("--discharged", help="When it ended.", rich_help_panel=_PANEL)]
TimeFormat = Annotated[
    str | None,
    typer.Option("--time-format", help="Of times that are not ISO: %d/%m/%Y %H:%M.", rich_help_panel=_PANEL),
]
KeepBoilerplate = Annotated[
    bool,
    typer.Option(
        "--keep-boilerplate",
        help="Leave recurring texts and footers in (not duplicates, nor notes marked as errors).",
        rich_help_panel=_PANEL,
    ),
]

KeepSuperseded = Annotated[
    bool,
    typer.Option(
        "--keep-superseded",
        help="Take documents in that others replace (FHIR: status, relatesTo).",
        rich_help_panel=_PANEL,
    ),
]
Literature = Annotated[
    bool,
    typer.Option(
        "--literature",
        help="Documents of no patient are literature, read with every patient's questions.",
        rich_help_panel=_PANEL,
    ),
]

_COLUMNS = (
    "patient",
    "type",
    "text",
    "encounter",
    "note_id",
    "patient_name",
    "born",
    "record_number",
    "admitted",
    "discharged",
)


def said(context: typer.Context) -> tuple[NoteColumns | None, NoteCleaning]:
    """The columns that were named, `None` where none was; and how notes are taken in, with a ledger that holds texts.

    Raises InputError where columns are named for sources of another format, and for a time format that cannot be used.
    """
    from epicrisis.corpus.note_documents import NoteCleaning
    from epicrisis.corpus.note_tables import NoteColumns
    from epicrisis.corpus.note_times import check_time_format
    from epicrisis.corpus.removal_log import RemovalLog
    from epicrisis.errors import InputError

    given = context.params
    named = {name: given[name] for name in _COLUMNS if given[name]}
    columns = NoteColumns(time=tuple(given["time"] or ()), **named)
    if columns != NoteColumns() and given["format"] not in (None, "notes"):
        raise InputError(
            f"columns are of --format notes, not of {given['format']}: leave them out, or name that format"
        )
    if given["time_format"]:
        check_time_format(given["time_format"])
    treatment = NoteCleaning(
        given["keep_boilerplate"], given["time_format"] or "", RemovalLog(keep_texts=True), given["keep_superseded"]
    )
    return (None if columns == NoteColumns() else columns), treatment


@contextmanager
def kept(treatment: NoteCleaning, library: Path) -> Iterator[None]:
    """What is taken out of notes goes into the library's folder, also where the addition is stopped."""
    treatment.removal_log.write_to(library)
    try:
        yield
    finally:
        treatment.removal_log.close()


def counted(count: int, noun: str) -> str:
    """`1 note`, `1,200 notes`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def removed_lines(removed: RemovalSummary, library: Path) -> list[str]:
    """What to say of it: nothing of an addition without notes."""
    from epicrisis.corpus.removal_log import REMOVAL_LOG_FILE, WHOLE_NOTE_KINDS

    lines = []
    if removed.kinds:
        parts = [
            f"{name} {counted(kind.characters, 'character')} of {counted(kind.notes, 'note')} "
            f"({counted(kind.texts, 'text')})"
            for name, kind in removed.kinds.items()
        ]
        lines.append(f"taken out: {'; '.join(parts)}; to be read in {library / REMOVAL_LOG_FILE}")
        if boilerplate := [name for name in removed.kinds if name not in WHOLE_NOTE_KINDS]:
            lines[-1] += f"; --keep-boilerplate leaves in: {', '.join(boilerplate)}"
        if "superseded" in removed.kinds:
            lines[-1] += "; --keep-superseded takes in what others replace"
    if removed.without_time or removed.time_not_read:
        parts = [
            f"{count:,} {'has' if count == 1 else 'have'} {what}"
            for count, what in ((removed.without_time, "no time"), (removed.time_not_read, "one that cannot be read"))
            if count
        ]
        lines.append(f"of {counted(removed.notes, 'note')} {' and '.join(parts)} (--time, --time-format)")
    if removed.other_resources:
        others = ", ".join(f"{count} {name}" for name, count in removed.other_resources.items())
        lines.append(f"resources that hold no note were not read: {others}")
        if {"Patient", "Encounter"} & set(removed.other_resources):
            lines.append(
                "Patient and Encounter tell of notes of the same `library add`: name all files of an export at once"
            )
    return lines
