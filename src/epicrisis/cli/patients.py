"""`epicrisis library patients | forbid-remote`: whose notes a library holds, and that they stay on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from epicrisis.cli.common import show_json, translated
from epicrisis.cli.library import LibraryPath, library, remote_line
from epicrisis.cli.notes import counted
from epicrisis.cli.options import Json
from epicrisis.cli.terminal import say

if TYPE_CHECKING:
    from epicrisis.library.patients import PatientRecord


def register(app: typer.Typer) -> None:
    """Adds the commands to `epicrisis library`."""
    library.command(
        epilog="Examples: epicrisis library patients ~/ward   |   epicrisis library patients ~/ward --json"
    )(patients)
    library.command("forbid-remote", epilog="Example: epicrisis library forbid-remote ~/ward")(forbid)


@translated
def patients(path: LibraryPath, json: Json = False) -> None:
    """The patients whose notes a library holds: ids, how many notes of what types, from when to when, and hospital
    stays. Nothing of the text; names, birth dates and record numbers where the source gave them (--patient takes these
    numbers as well).
    """
    from epicrisis.library.library import Library
    from epicrisis.library.patients import Roster

    with Library.open(path) as opened:
        found = tuple(Roster(opened).patients().values())
    if json:
        show_json(found)
        return
    for each in found:
        say(_line(each))
    say(f"{counted(len(found), 'patient')}, {counted(sum(each.notes for each in found), 'note')}")


def _line(patient: PatientRecord) -> str:
    known = [patient.name or "", f"born {patient.born}" if patient.born else "", *map(_number, patient.numbers)]
    said = ", ".join(part for part in known if part)
    name = f" ({said})" if said else ""
    dates = "no dates" if patient.first is None else f"{patient.first} to {patient.last}"
    types = ", ".join(f"{count} {name}" for name, count in patient.note_types.items())
    stays = counted(patient.encounters, "hospital stay")
    return f"{patient.id}{name}: {counted(patient.notes, 'note')}, {dates}, {stays}{f'; {types}' if types else ''}"


def _number(number: str) -> str:
    """Without the system, which is an address of no meaning to a reader."""
    return f"number {number.rpartition('|')[2]}"


@translated
def forbid(path: LibraryPath, json: Json = False) -> None:
    """Take back --allow-remote: this library's notes stay on this machine again. What was allowed stays on record."""
    from epicrisis.library.manifest import read_manifest
    from epicrisis.library.remote_consent import forbid_remote, read_remote
    from epicrisis.privacy import local_path

    folder = local_path(path)
    read_manifest(folder)
    forbid_remote(folder)
    now = read_remote(folder)
    if json:
        show_json(now)
    else:
        say(remote_line(now))
