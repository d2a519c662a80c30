"""Who reads a patient's record on this machine, and the access log of a library.

    access = open_record_access("~/ward", settings.home)
    access.record("search", "10083814", ["note:7"])

On the command line and in Python the reader is the user of the operating system. The log lies in the library's folder,
or among the data of this user if that folder is read-only. Where the library or the server of this machine has users,
that user may read the assigned patients only (`user_rights`). Both hold within this program: who may read the files can
read and change them without it.
"""

from __future__ import annotations

import getpass
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from epicrisis.core.answers import Event, Retrieved, SentencesSelected
from epicrisis.core.errors import InputError
from epicrisis.privacy.access_log import NAME, AccessLog, AccessOutcome, build_entry
from epicrisis.privacy.user_rights import UserRights, find_rights
from epicrisis.settings.settings import Settings
from epicrisis.system.remote_libraries import library_folder, show_library


@dataclass(frozen=True, slots=True)
class SystemUser:
    """The user of the operating system."""

    name: str
    id: str
    """`uid:1000`; empty where users have no numbers."""
    caller: str = ""
    """Who became root by `sudo`."""

    @property
    def account(self) -> str:
        """The name whose rights count."""
        return self.caller or self.name


@cache
def find_user() -> SystemUser:
    """Return who runs this process. A number without a name is the name."""
    number = os.getuid() if hasattr(os, "getuid") else None
    try:
        import pwd

        name = str(number) if number is None else pwd.getpwuid(number).pw_name
    except (ImportError, KeyError):
        name = getpass.getuser() if number is None else str(number)
    # Only root can set this variable for a process of root.
    caller = os.environ.get("SUDO_USER", "") if number == 0 else ""
    if caller:
        name = f"{name} (sudo by {caller})"
    return SystemUser(name, "" if number is None else f"uid:{number}", caller)


@dataclass(frozen=True, slots=True)
class RecordAccess:
    """Writes to the access log of a library what the user of this process reads."""

    library: str
    """How readers name the library."""
    log: AccessLog
    reason: str | None = None
    rights: UserRights | None = None
    """What the user may read. None: everything."""

    def check(self, action: str, patient: str | None, *, is_known: bool = True) -> None:
        """Raise InputError unless the user may read this patient's record, or all if it is None. A refusal is logged.

        A patient who is not in the library is not named in the log, which is no place for whatever was typed. Raises
        StorageError if the refusal cannot be logged.
        """
        if self.rights is None:
            return
        try:
            self.rights.check(patient, self.reason)
        except InputError:
            self._append(action, patient if is_known else None, (), outcome="refused")
            raise

    @property
    def readable(self) -> frozenset[str] | None:
        """The patients that the user may learn of. None: all, also for a user with a reason."""
        return None if self.rights is None or self.reason is not None else self.rights.patients

    @contextmanager
    def refusals(self, action: str, patient: str | None) -> Iterator[None]:
        """Write an entry if the block raises InputError."""
        try:
            yield
        except InputError:
            self._append(action, patient, (), outcome="refused")
            raise

    def record(self, action: str, patient: str | None, documents: Sequence[str] = ()) -> None:
        """Write an entry. It is on the disk when this returns.

        Raises InputError as `check`, and StorageError; nothing may be shown then.
        """
        self.check(action, patient)
        self._append(action, patient, documents)

    def _append(
        self, action: str, patient: str | None, documents: Sequence[str], outcome: AccessOutcome = "allowed"
    ) -> None:
        reader = find_user()
        entry = build_entry(
            reader.name, action, self.library, patient, documents, self.reason, user_id=reader.id, outcome=outcome
        )
        self.log.append(entry)


@contextmanager
def watch_reading(
    access: RecordAccess | None, action: str, patient: str | None, emit: Callable[[Event], None]
) -> Iterator[Callable[[Event], None]]:
    """Yield a function that writes an entry for the documents of each event before it passes the event on.

    Without access or patient it is `emit`. A reading without documents has an entry, too. Raises InputError if the user
    may not read the patient's record.
    """
    if access is None or patient is None:
        yield emit
        return
    # Before a search, since a model could be asked with its result.
    access.check(action, patient)
    watched = WatchedReading(access, action, patient, emit)
    yield watched
    watched.close()


class WatchedReading:
    """Writes the documents of a question's events to the access log before anybody sees the events."""

    def __init__(self, access: RecordAccess, action: str, patient: str, emit: Callable[[Event], None]) -> None:
        self._access = access
        self._action = action
        self._patient = patient
        self._emit = emit
        self._documents: set[str] = set()
        self._has_entry = False

    def __call__(self, event: Event) -> None:
        """Pass on an event."""
        documents = [id_ for id_ in list_documents(event) if id_ not in self._documents]
        if documents:
            self._write(documents)
        self._emit(event)

    def close(self) -> None:
        """Write an entry without documents if there was none."""
        if not self._has_entry:
            self._write([])

    def _write(self, documents: Sequence[str]) -> None:
        self._access.record(self._action, self._patient, documents)
        self._documents.update(documents)
        self._has_entry = True


def open_record_access(library: Path | str, home: Path, break_glass: str | None = None) -> RecordAccess:
    """Return the access to the records of a library. It writes nothing until something is read or refused."""
    folder = library_folder(library).absolute()
    rights = find_rights(folder, home, find_user().account)
    return RecordAccess(show_library(folder), find_log(folder, home), break_glass, rights)


def open_access(settings: Settings, library: Path | str | None) -> RecordAccess | None:
    """Return where readings of patients' records in this library are recorded. None for a store of another package."""
    if library is None or settings.store is not None:
        return None
    return open_record_access(library, settings.home, settings.break_glass)


def list_documents(event: Event) -> Sequence[str]:
    """Return the documents whose text an event shows for the first time."""
    if isinstance(event, Retrieved):
        documents, tops = event.ranking.document_ids, event.ranking.tops
    elif isinstance(event, SentencesSelected):
        documents, tops = tuple(sentence.document_id for sentence in event.sentences), event.tops
    else:
        return ()
    # The titles of the first documents of each search are shown, also of those that are not read.
    return documents if tops is None else tuple(dict.fromkeys((*documents, *tops.titles)))


def find_log(folder: Path, home: Path) -> AccessLog:
    """Return the access log of the library in this folder: in it, or below `home` if the folder is read-only."""
    path = folder / NAME
    if os.access(path if path.exists() else folder, os.W_OK):
        return AccessLog(path)
    return AccessLog(locate_outside_log(folder, home))


def locate_outside_log(folder: Path, home: Path) -> Path:
    """Return the file of the access log of a library whose folder is read-only."""
    digest = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]
    return home / "access" / digest / NAME
