"""Who each patient id of a library stands for: source, names, birth date and record numbers, in a small table.

The table lies in the library's folder, its owner's alone to read, and is written before the notes it tells of. Two
sources that use one id for two people are refused by it, whichever command brings the second. Messages name the id,
never the person. Reads no note.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from epicrisis.corpus.reader_base import PatientIdentity
from epicrisis.errors import InputError, LibraryDamaged
from epicrisis.library.engine_errors import ours
from epicrisis.library.person_names import are_alike
from epicrisis.privacy import open_private

NAME = "patients.sqlite"
_SCHEMA = """
BEGIN;
CREATE TABLE IF NOT EXISTS patients(sequence INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE,
    identity TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS declared(what TEXT PRIMARY KEY, at TEXT NOT NULL);
COMMIT;
"""
_LITERATURE = "literature"


# -- may two be one person? ------------------------------------------------------------------------------------------


def contradiction(before: PatientIdentity, now: PatientIdentity) -> str:
    """Return what says that one id stands for two people, empty where nothing does.

    Another server, another birth date, or other numbers of one kind always say so. Another name does unless both birth
    dates are known and equal and a record number is shared: people marry, and clerks correct spellings.
    """
    if not _same_source(before.source, now.source):
        return "server"
    if before.born and now.born and not (before.born.startswith(now.born) or now.born.startswith(before.born)):
        return "birth date"
    if _other_numbers(before, now):
        return "record number"
    if _renamed(before, now) and not (before.born and before.born == now.born and _shares_number(before, now)):
        return "name"
    return ""


def _same_source(before: str, now: str) -> bool:
    if not before or not now or before == now:
        return True
    return "fhir" in (before, now) and before.startswith("fhir") and now.startswith("fhir")


def _other_numbers(before: PatientIdentity, now: PatientIdentity) -> bool:
    """Whether both have numbers of one system and share none of them."""
    for system in {system for system, _ in before.numbers} & {system for system, _ in now.numbers} - {""}:
        values = {value for kind, value in before.numbers if kind == system}
        if values.isdisjoint(value for kind, value in now.numbers if kind == system):
            return True
    return False


def _shares_number(before: PatientIdentity, now: PatientIdentity) -> bool:
    """A table's numbers have no system: then the number alone counts."""
    return any(
        value == other and (system == kind or not (system and kind))
        for system, value in before.numbers
        for kind, other in now.numbers
    )


def _renamed(before: PatientIdentity, now: PatientIdentity) -> bool:
    if not before.names or not now.names:
        return False
    return not any(are_alike(one, other) for one in before.names for other in now.names)


def merged(before: PatientIdentity, now: PatientIdentity) -> PatientIdentity:
    """Return both as one person; the name that was told last is the one to show."""
    return PatientIdentity(
        before.patient,
        source=max(before.source, now.source, key=len),
        names=tuple(dict.fromkeys((*now.names, *before.names))),
        born=max(before.born, now.born, key=len),
        numbers=tuple(dict.fromkeys((*before.numbers, *now.numbers))),
    )


# -- the table -------------------------------------------------------------------------------------------------------


def read_identities(folder: Path, patients: Iterable[str] | None = None) -> Mapping[str, PatientIdentity]:
    """Return what is known of these patients, or of all, by id; nothing of a library from before there was a table.

    Raises LibraryDamaged where the table cannot be read.
    """
    if not _is_there(folder):
        return {}
    with _connected(folder) as db, ours(folder / NAME):
        if patients is None:
            rows = db.execute("SELECT id, identity FROM patients").fetchall()
        else:
            among = "WHERE id IN (SELECT value FROM json_each(?))"
            wanted = json.dumps(sorted(set(patients)))
            rows = db.execute(f"SELECT id, identity FROM patients {among}", (wanted,)).fetchall()
    return {patient: _parsed(folder, patient, told) for patient, told in rows}


def version(folder: Path) -> int:
    """Return a number that grows with every change of the table."""
    if not _is_there(folder):
        return 0
    with _connected(folder) as db, ours(folder / NAME):
        return int(db.execute("SELECT coalesce(max(sequence), 0) FROM patients").fetchone()[0])


def meet(folder: Path, told: Iterable[PatientIdentity], from_notes: Mapping[str, str]) -> int:
    """Write down who these patients are and return how many have another name than before.

    `from_notes` has names by id that the library's notes give, for patients of whom there is no entry. Raises
    InputError where one of them contradicts what is known; then nothing is written.
    """
    told = list(told)
    known = dict(read_identities(folder, (now.patient for now in told)))
    changed: dict[str, PatientIdentity] = {}
    renamed = 0
    for now in told:
        name = from_notes.get(now.patient, "")
        before = known.get(now.patient, PatientIdentity(now.patient, names=(name,) if name else ()))
        if kind := contradiction(before, now):
            raise InputError(
                f"patient {now.patient!a} has another {kind} than in {folder}, so one id may stand for two people: add "
                "this source to a library of its own; if it is one person, make the sources agree and the library anew"
            )
        renamed += _renamed(before, now)
        both = merged(before, now)
        if both != known.get(now.patient):
            known[now.patient] = changed[now.patient] = both
    if changed:
        with _writing(folder) as db:
            rows = [(patient, _dumped(identity)) for patient, identity in changed.items()]
            db.executemany("INSERT OR REPLACE INTO patients(id, identity) VALUES (?, ?)", rows)
    return renamed


def forget(folder: Path, patients: Iterable[str]) -> None:
    """Take these patients out of the table, and out of the file's unused pages."""
    gone = [(patient,) for patient in patients]
    if not gone or not _is_there(folder):
        return
    with _writing(folder) as db:
        db.executemany("DELETE FROM patients WHERE id = ?", gone)
    with ours(folder / NAME), closing(sqlite3.connect(folder / NAME, timeout=60)) as db:
        db.execute("VACUUM")


def declare_literature(folder: Path) -> None:
    """Write down that documents of no patient in this library are literature for every patient's questions."""
    with _writing(folder) as db:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        db.execute("INSERT OR IGNORE INTO declared VALUES (?, ?)", (_LITERATURE, now))


def literature_is_declared(folder: Path) -> bool:
    """Return whether somebody said so with `--literature`."""
    if not _is_there(folder):
        return False
    with _connected(folder) as db, ours(folder / NAME):
        return db.execute("SELECT 1 FROM declared WHERE what = ?", (_LITERATURE,)).fetchone() is not None


def _is_there(folder: Path) -> bool:
    """An empty file is what a kill leaves before the first table was made."""
    path = folder / NAME
    return path.exists() and path.stat().st_size > 0


@contextmanager
def _connected(folder: Path) -> Iterator[sqlite3.Connection]:
    # Not read-only: what a kill left half-written is rolled back by whoever comes next.
    with ours(folder / NAME):
        db = sqlite3.connect(f"{(folder / NAME).absolute().as_uri()}?mode=rw", timeout=60, uri=True)
    with closing(db):
        yield db


@contextmanager
def _writing(folder: Path) -> Iterator[sqlite3.Connection]:
    """One transaction, durable when it ends."""
    with ours(folder / NAME):
        os.close(open_private(folder / NAME, os.O_RDWR))
        with closing(sqlite3.connect(folder / NAME, timeout=60)) as db:
            db.execute("PRAGMA synchronous=FULL")
            db.executescript(_SCHEMA)
            with db:
                yield db


def _dumped(identity: PatientIdentity) -> str:
    told = {"source": identity.source, "names": identity.names, "born": identity.born, "numbers": identity.numbers}
    return json.dumps(told, ensure_ascii=False)


def _parsed(folder: Path, patient: str, told: str) -> PatientIdentity:
    try:
        values = json.loads(told)
        return PatientIdentity(
            patient,
            source=str(values["source"]),
            names=tuple(map(str, values["names"])),
            born=str(values["born"]),
            numbers=tuple((str(system), str(value)) for system, value in values["numbers"]),
        )
    except (ValueError, KeyError, TypeError):
        raise LibraryDamaged(
            f"{folder / NAME} has a row that cannot be read: copy the whole folder again, or make the library anew"
        ) from None
