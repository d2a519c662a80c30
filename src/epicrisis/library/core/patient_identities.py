"""The identity of each patient of a library: source, names, birth date and record numbers, in a small SQLite table.

The table lies in the library's folder, is readable only by its owner, and is written before the patients' notes. It
detects sources that use one id for two people. Messages name the id, never the person.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from itertools import product, starmap
from pathlib import Path
from typing import Any

from epicrisis.core.errors import InputError, LibraryDamaged
from epicrisis.corpus.base.reader_base import PatientIdentity
from epicrisis.library.base.engine_errors import translate_errors
from epicrisis.library.base.person_names import are_alike
from epicrisis.library.base.remote_store import is_in_database, load_database_engine
from epicrisis.system.local_only import open_private

NAME = "patients.sqlite"
_SCHEMA = """
BEGIN;
CREATE TABLE IF NOT EXISTS patients(sequence INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE,
    identity TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS declared(what TEXT PRIMARY KEY, at TEXT NOT NULL);
COMMIT;
"""
_LITERATURE = "literature"


def find_contradiction(before: PatientIdentity, now: PatientIdentity) -> str:
    """Return the field in which one id means two people, such as `birth date`, or an empty string.

    Different servers, birth dates, or numbers of one system always show it. Different names show it unless both birth
    dates are known and equal and a record number is shared: people marry, and clerks correct spellings.
    """
    servers = {before.source, now.source} - {""}
    # A source that is only called `fhir` may be any FHIR server.
    if len(servers) > 1 and not ("fhir" in servers and all(server.startswith("fhir") for server in servers)):
        return "server"
    if before.born and now.born and not (before.born.startswith(now.born) or now.born.startswith(before.born)):
        return "birth date"
    old, new = _numbers_by_system(before), _numbers_by_system(now)
    if any(old[system].isdisjoint(new[system]) for system in old.keys() & new.keys() - {""}):
        return "record number"
    if _is_renamed(before, now):
        # Numbers of tables have no system and match those of any system.
        shares_number = any(
            value == other and (system == other_system or not system or not other_system)
            for (system, value), (other_system, other) in product(before.numbers, now.numbers)
        )
        if not (shares_number and before.born and before.born == now.born):
            return "name"
    return ""


def _numbers_by_system(identity: PatientIdentity) -> Mapping[str, set[str]]:
    numbers = defaultdict(set)
    for system, value in identity.numbers:
        numbers[system].add(value)
    return numbers


def _is_renamed(before: PatientIdentity, now: PatientIdentity) -> bool:
    if not before.names or not now.names:
        return False
    return not any(starmap(are_alike, product(before.names, now.names)))


def merge_identities(before: PatientIdentity, now: PatientIdentity) -> PatientIdentity:
    """Return both as one person, with the newest name first."""
    return PatientIdentity(
        before.patient,
        source=max(before.source, now.source, key=len),
        names=tuple(dict.fromkeys((*now.names, *before.names))),
        born=max(before.born, now.born, key=len),
        numbers=tuple(dict.fromkeys((*before.numbers, *now.numbers))),
    )


def read_identities(folder: Path, patients: Iterable[str] | None = None) -> Mapping[str, PatientIdentity]:
    """Map these patients, or all, to their identities. A patient whom no source names has none.

    Raise LibraryDamaged if the table cannot be read.
    """
    identities = {}
    for patient, text in open_identities(folder).read(None if patients is None else sorted(set(patients))):
        try:
            values = json.loads(text)
            identities[patient] = PatientIdentity(
                patient,
                source=str(values["source"]),
                names=tuple(map(str, values["names"])),
                born=str(values["born"]),
                numbers=tuple((str(system), str(value)) for system, value in values["numbers"]),
            )
        except (ValueError, KeyError, TypeError):
            raise LibraryDamaged(
                f"{folder / NAME} has an unreadable row: copy the whole folder again, or create the library again"
            ) from None
    return identities


def read_version(folder: Path) -> int:
    """Return a number that grows with every change of the table."""
    return open_identities(folder).version()


def record_identities(folder: Path, identities: Iterable[PatientIdentity]) -> int:
    """Record these identities and return the number of patients with a new name.

    Raise InputError if an identity contradicts an earlier one; nothing is then written.
    """
    identities = list(identities)
    current = dict(read_identities(folder, (identity.patient for identity in identities)))
    changed: dict[str, PatientIdentity] = {}
    renamed = 0
    for identity in identities:
        patient = identity.patient
        before = current.get(patient, PatientIdentity(patient))
        if kind := find_contradiction(before, identity):
            raise InputError(
                f"patient {patient!a} has another {kind} than in {folder}, so one id may stand for two people: add "
                "this source to a library of its own; if it is one person, correct the sources and create the library "
                "again"
            )
        renamed += _is_renamed(before, identity)
        merged = merge_identities(before, identity)
        if merged != current.get(patient):
            current[patient] = changed[patient] = merged
    if changed:
        rows = []
        for patient, identity in changed.items():
            values = {name: getattr(identity, name) for name in ("source", "names", "born", "numbers")}
            rows.append((patient, json.dumps(values, ensure_ascii=False)))
        open_identities(folder).write(rows)
    return renamed


def forget_identities(folder: Path, patients: Iterable[str]) -> None:
    """Remove these patients from the table and from the file's unused pages."""
    if ids := list(patients):
        open_identities(folder).forget(ids)


def declare_literature(folder: Path) -> None:
    """Record that documents without a patient in this library are literature for questions about every patient."""
    open_identities(folder).declare(_LITERATURE, datetime.now(UTC).isoformat(timespec="seconds"))


def is_literature_declared(folder: Path) -> bool:
    """Return whether `--literature` was passed for this library."""
    return open_identities(folder).is_declared(_LITERATURE)


def copy_identities(source: Path, destination: Path) -> None:
    """Make the identities and declarations of one library those of another, which is open for writing."""
    ours, theirs = dict(open_identities(source).read(None)), dict(open_identities(destination).read(None))
    if changed := [(patient, text) for patient, text in ours.items() if theirs.get(patient) != text]:
        open_identities(destination).write(changed)
    forget_identities(destination, theirs.keys() - ours.keys())
    if is_literature_declared(source):
        declare_literature(destination)


def open_identities(folder: Path) -> IdentityTable:
    """Open the table of identities of a library. Nothing is read yet."""
    if is_in_database(folder):
        table: IdentityTable = load_database_engine().open_identities(folder)
        return table
    return IdentityTable(folder)


class IdentityTable:
    """The identities of the patients of a library in a folder, as JSON."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, patients: Sequence[str] | None) -> Sequence[tuple[str, str]]:
        """Return (patient, JSON) of these patients, or of all."""
        if patients is None:
            return self._read("SELECT id, identity FROM patients")
        query = "SELECT id, identity FROM patients WHERE id IN (SELECT value FROM json_each(?))"
        return self._read(query, json.dumps(patients))

    def version(self) -> int:
        """Return a number that grows with every change."""
        rows = self._read("SELECT coalesce(max(sequence), 0) FROM patients")
        return int(rows[0][0]) if rows else 0

    def write(self, rows: Sequence[tuple[str, str]]) -> None:
        """Write (patient, JSON), durably."""
        with self._transaction() as db:
            db.executemany("INSERT OR REPLACE INTO patients(id, identity) VALUES (?, ?)", rows)

    def forget(self, patients: Sequence[str]) -> None:
        """Remove these patients, also from unused pages."""
        if not self._exists():
            return
        with self._transaction() as db:
            db.executemany("DELETE FROM patients WHERE id = ?", zip(patients))
        path = self._folder / NAME
        with translate_errors(path), closing(sqlite3.connect(path, timeout=60)) as db:
            db.execute("VACUUM")

    def declare(self, what: str, at: str) -> None:
        """Record a declaration with its time, unless there is one."""
        with self._transaction() as db:
            db.execute("INSERT OR IGNORE INTO declared VALUES (?, ?)", (what, at))

    def is_declared(self, what: str) -> bool:
        """Return whether this was declared."""
        return bool(self._read("SELECT 1 FROM declared WHERE what = ?", what))

    def _exists(self) -> bool:
        """Return whether there is a table. A kill before its creation leaves an empty file."""
        path = self._folder / NAME
        return path.exists() and path.stat().st_size > 0

    def _read(self, query: str, *values: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query, none if there is no table."""
        path = self._folder / NAME
        if not self._exists():
            return []
        # Not read-only, so that SQLite can roll back the unfinished transaction of a killed process.
        uri = f"{path.absolute().as_uri()}?mode=rw"
        with translate_errors(path), closing(sqlite3.connect(uri, timeout=60, uri=True)) as db:
            return db.execute(query, values).fetchall()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Open one durable transaction."""
        path = self._folder / NAME
        with translate_errors(path):
            os.close(open_private(path, os.O_RDWR))
            with closing(sqlite3.connect(path, timeout=60)) as db:
                db.execute("PRAGMA synchronous=FULL")
                db.executescript(_SCHEMA)
                with db:
                    yield db
