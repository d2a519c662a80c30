"""The access log: who read what of which patient, or was refused, when and why, and never a text.

    log = AccessLog(library / NAME)
    log.append(build_entry("maria", "ask", "ward", "10083814", ["note:7"], user_id="uid:1000"))
    log.verify().fault

A library of notes has one in its folder, a server one in its own. Three files belong together:

    access.jsonl    the entries, each with the hash of the one before it
    access.head     number and hash of the last entry, so that a shortened log is noticed
    access.key      the secret behind the pseudonyms of patients

An entry has patient, documents and reason, and a hash of them. Only that hash is part of the chain. So a forgotten
patient can be taken out of the log, which keeps a pseudonym and stays verifiable.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import os
import secrets
import socket
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypeAlias

from filelock import FileLock

from epicrisis.core.errors import InputError, StorageError
from epicrisis.system.json_lines import append_line, dump_line
from epicrisis.system.local_only import open_private, replace_file

NAME = "access.jsonl"
START = "0" * 64
"""The hash before the first entry."""
FORGET = "forget"
"""The action of an entry that justifies that entries about its patient name nobody any more."""
_FIELDS = (
    "number",
    "at",
    "user",
    "user_id",
    "host",
    "action",
    "outcome",
    "library",
    "subject",
    "commitment",
    "previous",
)
"""The fields in the chain."""
_PRIVATE_FIELDS = ("salt", "patient", "documents", "reason")
"""The fields behind `commitment`, which a removal empties."""
_DAMAGED = (
    "the access log {} is damaged ({}), so nothing was read: check it with `epicrisis audit verify`, move it with "
    "access.head and access.key to another folder as evidence, and repeat the command; a new log begins"
)

AccessOutcome: TypeAlias = Literal["allowed", "refused"]


@dataclass(frozen=True, slots=True)
class AuditResult:
    """The state of an access log."""

    entries: int
    head: str
    """The hash of the last entry."""
    fault: str | None = None
    """The first entry that does not fit the chain, and why. None: the log is complete up to its end."""
    removed: int = 0
    """Entries that name no patient any more, because the patient was forgotten."""
    incomplete: bool = False
    """Whether a killed process left half a line at the end. Nobody relied on it, and the next entry removes it."""


class AccessLog:
    """An access log on disk. Several processes may write to it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._head = path.with_suffix(".head")
        self._key = path.with_suffix(".key")

    @property
    def name(self) -> str:
        """How messages name the log."""
        return str(self.path)

    def entries(self) -> Iterator[Mapping[str, Any]]:
        """Yield the entries in order, and an empty one in place of what is not the line of an entry.

        Half a line at the end is left out. Raises InputError without such a file.
        """
        if not self.path.is_file():
            if self._head.exists():
                raise InputError(
                    f"the access log {self.path} was removed: {self._head.name} states its end. Restore it from a "
                    "backup, or keep the remaining files access.* as evidence in another folder"
                )
            raise InputError(
                f"there is no access log at {self.path}: nobody has read a patient's record there, or it was removed"
            )
        with self.path.open("rb") as file:
            for line in file:
                if line.endswith(b"\n"):
                    yield _parse_line(line)

    def verify(self, head: str | None = None) -> AuditResult:
        """Return whether every entry fits the one before it, up to the end that `access.head` states.

        With `head`, its entry must exist too. Raises InputError if there is no log.
        """
        # A writer between log and head would look like a fault.
        with self._lock():
            result = verify_entries(self.entries(), head)
            if result.fault is None:
                result = self._verify_end(result)
        return result

    async def record(
        self,
        user: str,
        action: str,
        library: str,
        patient: str | None,
        documents: Sequence[str],
        reason: str | None = None,
        *,
        user_id: str | None = None,
        outcome: AccessOutcome = "allowed",
    ) -> None:
        """Write an entry. It is on the disk when this returns. Raises StorageError, and nothing may be read then.

        `user_id` tells users of one name apart (`Caller.owner`).
        """
        entry = build_entry(user, action, library, patient, documents, reason, user_id=user_id, outcome=outcome)
        await asyncio.to_thread(self.append, entry)

    def append(self, entry: Mapping[str, Any]) -> None:
        """Write an entry of `build_entry`, as `record` does. Blocks until it is on the disk. Raises StorageError."""
        try:
            with self._lock():
                self._append(entry)
        except OSError as error:
            raise StorageError(
                f"the access log {self.path} cannot be written, so nothing was read: {error.strerror}"
            ) from error

    def pseudonym(self, patient: str) -> str:
        """Return the pseudonym of the patient: a hash of the id under the secret of this log. Raises OSError."""
        key = bytes.fromhex(self._read_key())
        return hmac.new(key, patient.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()[:32]

    def seal(self, entry: Mapping[str, Any], number: int, previous: str, subject: str | None = None) -> dict[str, Any]:
        """Return the entry with pseudonym, place in the chain and hash. An entry of FORGET names nobody.

        Without `subject`, the pseudonym is that of the entry's patient under the present key.
        """
        patient = entry["patient"]
        if subject is None and patient is not None:
            subject = self.pseudonym(patient)
        sealed = {"number": number, **entry, "subject": subject, "commitment": commit(entry), "previous": previous}
        if entry["action"] == FORGET:
            sealed = remove_names(sealed)
        return {**sealed, "hash": hash_entry(sealed)}

    def forget(self, patients: Collection[str]) -> int:
        """Take the names of these patients out of the entries about them, and return the number of changed entries.

        The caller has written an entry of FORGET for each. If `access.key` was deleted meanwhile, each earlier
        pseudonym of a patient gets such an entry too. Entries of version 0.1 cannot be changed. Raises StorageError if
        the log is damaged.
        """
        if not self.path.is_file():
            return 0
        changed = 0
        with self._lock():
            self._read_end()
            for entry, subject in self._find_unjustified(patients):
                self._append(entry, subject)
            new = self.path.with_name(f".{self.path.name}.new")
            with os.fdopen(open_private(new, os.O_WRONLY | os.O_TRUNC), "wb") as file:
                for entry in self.entries():
                    if entry.get("patient") in patients:
                        entry = remove_names(entry)
                        changed += 1
                    file.write(dump_line(entry))
                file.flush()
                os.fsync(file.fileno())
            new.replace(self.path)
        return changed

    def _append(self, entry: Mapping[str, Any], subject: str | None = None) -> None:
        """Write an entry at the end. The caller holds the lock."""
        number, previous = self._read_end()
        # The head exists before the first entry that relies on it.
        self._write_head(number, previous)
        sealed = self.seal(entry, number + 1, previous, subject)
        append_line(self.path, sealed)
        self._write_head(number + 1, sealed["hash"])

    def _find_unjustified(self, patients: Collection[str]) -> list[tuple[Mapping[str, Any], str]]:
        """Return an entry of FORGET, and its pseudonym, for each pseudonym of these patients under an earlier key."""
        subjects: dict[str, set[str]] = {}
        forgetting: dict[str, Mapping[str, Any]] = {}
        for entry in self.entries():
            if entry.get("action") == FORGET and entry.get("subject"):
                forgetting[entry["subject"]] = entry
            elif entry.get("patient") in patients:
                subjects.setdefault(entry["patient"], set()).add(entry["subject"])
        missing: list[tuple[Mapping[str, Any], str]] = []
        for patient, pseudonyms in subjects.items():
            written = forgetting.get(self.pseudonym(patient))
            if written is None:
                continue
            user, library = written["user"], written["library"]
            for subject in sorted(pseudonyms - forgetting.keys()):
                entry = build_entry(user, FORGET, library, patient, (), user_id=written["user_id"])
                missing.append((entry, subject))
        return missing

    def _lock(self) -> FileLock:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return FileLock(f"{self.path}.lock", mode=0o600)

    def _verify_end(self, result: AuditResult) -> AuditResult:
        """Return the result with a fault if the end is not the one that `access.head` states."""
        fault = None
        stated = self._read_head()
        is_incomplete = _ends_incompletely(self.path)
        if stated is None:
            last = _read_last(self.path)
            if last is not None:
                fault = f"{self._head.name} is missing: the end may have been cut off"
        elif stated == (-1, ""):
            fault = f"{self._head.name} cannot be read"
        elif stated[0] > result.entries:
            fault = (
                f"{self._head.name} states {stated[0]} entries, and the log has {result.entries}: its end was cut off"
            )
        else:
            hashes = {0: START}
            hashes |= {number: str(entry["hash"]) for number, entry in enumerate(self.entries(), 1)}
            if hashes[stated[0]] != stated[1]:
                fault = f"entry {stated[0]} is not the one that {self._head.name} states"
        return AuditResult(result.entries, result.head, fault, result.removed, is_incomplete)

    def _read_end(self) -> tuple[int, str]:
        """Return number and hash of the last entry. Reads only the end of the file. Raises StorageError for damage."""
        if not self.path.exists():
            os.close(open_private(self.path, os.O_WRONLY))
        last = _read_last(self.path)
        try:
            end = (0, START) if last is None else (int(last["number"]), str(last["hash"]))
        except (ValueError, KeyError, TypeError):
            raise StorageError(_DAMAGED.format(self.path, "its last line is no entry")) from None
        stated = self._read_head()
        if stated is None:
            if last is not None:
                raise StorageError(_DAMAGED.format(self.path, f"{self._head.name} is missing"))
        elif stated == (-1, "") or stated[0] > end[0] or (stated[0] == end[0] and stated[1] != end[1]):
            raise StorageError(_DAMAGED.format(self.path, f"its end is not the one that {self._head.name} states"))
        return end

    def _read_head(self) -> tuple[int, str] | None:
        """Return number and hash of the stated end, None without the file, and (-1, "") if it cannot be read."""
        try:
            value = json.loads(self._head.read_bytes())
            return int(value["number"]), str(value["hash"])
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError):
            return -1, ""

    def _write_head(self, number: int, digest: str) -> None:
        if self._read_head() == (number, digest):
            return
        content = json.dumps({"number": number, "hash": digest}).encode()
        replace_file(self._head, self._head.with_name(f".{self._head.name}.new"), [content])

    def _read_key(self) -> str:
        """Return the secret of the pseudonyms. The first call makes it."""
        try:
            return self._key.read_text(encoding="ascii").strip()
        except FileNotFoundError:
            pass
        key = secrets.token_hex(32)
        replace_file(self._key, self._key.with_name(f".{self._key.name}.new"), [key.encode()])
        return key


def build_entry(
    user: str,
    action: str,
    library: str,
    patient: str | None,
    documents: Sequence[str],
    reason: str | None = None,
    *,
    user_id: str | None = None,
    outcome: AccessOutcome = "allowed",
) -> dict[str, Any]:
    """Return an entry of now, without its place in the chain."""
    return {
        "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "user": user,
        "user_id": user_id,
        "host": socket.gethostname(),
        "action": action,
        "outcome": outcome,
        "library": library,
        "salt": secrets.token_hex(16),
        "patient": patient,
        "documents": list(dict.fromkeys(documents)),
        "reason": reason,
    }


def commit(entry: Mapping[str, Any]) -> str:
    """Return the hash of the private fields of an entry. The salt makes it impossible to guess them."""
    return _hash([entry[name] for name in _PRIVATE_FIELDS])


def remove_names(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entry without its private fields. Its place in the chain is the same."""
    return {**entry, "salt": None, "patient": None, "documents": [], "reason": None}


def hash_entry(entry: Mapping[str, Any]) -> str:
    """Return the hash of an entry with the hash of the one before it."""
    return _hash([entry.get(name) for name in _FIELDS])


def _hash(values: Sequence[Any]) -> str:
    return hashlib.sha256(json.dumps(values, ensure_ascii=True, separators=(",", ":")).encode()).hexdigest()


def verify_entries(entries: Iterable[Mapping[str, Any]], head: str | None = None) -> AuditResult:
    """Return whether every entry fits the one before it. With `head`, its entry must exist too."""
    count, previous, heads = 0, START, {START}
    nameless: dict[str | None, int] = {}
    forgotten: set[str | None] = set()
    removed = 0
    for entry in entries:
        fault = _find_fault(entry, count + 1, previous)
        if fault is not None:
            return AuditResult(count, previous, f"entry {count + 1}: {fault}", removed)
        count, previous = count + 1, str(entry["hash"])
        heads.add(previous)
        if entry["salt"] is None:
            if entry["action"] == FORGET:
                forgotten.add(entry["subject"])
            else:
                nameless.setdefault(entry["subject"], count)
                removed += 1
    for subject, number in nameless.items():
        if subject is None or subject not in forgotten:
            fault = f"entry {number}: names nobody, and no entry says that its patient was forgotten"
            return AuditResult(count, previous, fault, removed)
    if head is not None and head not in heads:
        fault = "the log has no entry with the hash of --head: its end was cut off"
        return AuditResult(count, previous, fault, removed)
    return AuditResult(count, previous, removed=removed)


def _find_fault(entry: Mapping[str, Any], number: int, previous: str) -> str | None:
    if set(entry) != {*_FIELDS, *_PRIVATE_FIELDS, "hash"}:
        return "is no entry, or has other fields"
    if entry["number"] != number or entry["previous"] != previous:
        return "does not follow the entry before it: one was removed, added or moved"
    if entry["hash"] != hash_entry(entry):
        return "was changed"
    if entry["salt"] is None:
        return None if entry == remove_names(entry) else "was changed"
    return None if entry["commitment"] == commit(entry) else "was changed"


def _parse_line(line: bytes) -> dict[str, Any]:
    """Return the entry of a line, or an empty one if it is not exactly the line that an entry has."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    # Blanks and other spellings of the same JSON do not change the hash.
    return entry if isinstance(entry, dict) and dump_line(entry) == line else {}


def _ends_incompletely(path: Path) -> bool:
    with path.open("rb") as file:
        if not file.seek(0, os.SEEK_END):
            return False
        file.seek(-1, os.SEEK_END)
        return file.read() != b"\n"


def _read_last(path: Path) -> dict[str, Any] | None:
    """Return the last complete entry of a file. A kill leaves an incomplete line, which nobody relied on."""
    if not path.exists():
        return None
    last: dict[str, Any] | None = None
    with path.open("rb") as file:
        size, length = file.seek(0, os.SEEK_END), 4096
        while last is None and size:
            file.seek(max(0, size - length))
            lines = file.read().split(b"\n")
            last = _find_last(lines if length >= size else lines[1:])
            if length >= size:
                break
            length *= 4
    return last


def _find_last(lines: Sequence[bytes]) -> dict[str, Any] | None:
    """Return the last complete line, even without its line end. The next entry adds that."""
    for line in reversed(lines):
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict):
            return entry
    return None
