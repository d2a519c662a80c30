"""The access log: who read what of which patient, or was refused, when and why, and never a text.

Each entry holds the hash of the one before it, so that an entry that was changed, removed or moved breaks the chain. An
end that was cut off shows in `audit verify --head`, with a hash that was noted elsewhere.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypeAlias

from filelock import FileLock

from epicrisis.errors import InputError, StorageError
from epicrisis.evaluation.runs.jsonl_store import append_line, read_lines

NAME = "access.jsonl"
START = "0" * 64
"""The hash before the first entry."""
_FIRST_FIELDS = ("number", "at", "user", "action", "library", "patient", "documents", "reason", "previous")
"""The fields of entries that older versions wrote."""
_FIELDS = (*_FIRST_FIELDS, "user_id", "outcome")

AccessOutcome: TypeAlias = Literal["allowed", "refused"]


@dataclass(frozen=True, slots=True)
class AuditResult:
    """The state of an access log."""

    entries: int
    head: str
    """The hash of the last entry."""
    fault: str | None = None
    """The first entry that does not fit the chain, and why. None: the log is complete up to its end."""


class AccessLog:
    """An access log on disk. Two processes may write to it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = FileLock(f"{path}.lock", mode=0o600)

    @property
    def name(self) -> str:
        """How messages name the log."""
        return str(self.path)

    def entries(self) -> Iterator[Mapping[str, Any]]:
        """Yield the entries in order, and an empty one in place of what is no JSON object.

        Raises InputError without such a file.
        """
        if not self.path.is_file():
            raise InputError(
                f"there is no access log at {self.path}: name the file access.jsonl of the server's folder"
            )
        try:
            for line in read_lines(self.path):
                yield line.value
        except InputError:
            yield {}

    def verify(self, head: str | None = None) -> AuditResult:
        """Return whether every entry fits the one before it. With `head`, its entry must exist too.

        Raises InputError if there is no log.
        """
        return verify_entries(self.entries(), head)

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

    def append(self, entry: dict[str, Any]) -> None:
        """Write an entry of `build_entry`, as `record` does. Blocks until it is on the disk. Raises StorageError."""
        try:
            with self._lock:
                number, previous = self._read_end()
                entry = {"number": number + 1, **entry, "previous": previous}
                append_line(self.path, {**entry, "hash": hash_entry(entry)})
        except OSError as error:
            raise StorageError(f"the access log cannot be written, so nothing was read: {error.strerror}") from error

    def _read_end(self) -> tuple[int, str]:
        """Return number and hash of the last entry. Reads only the end of the file."""
        if not self.path.exists():
            self.path.touch(mode=0o600)
        last: dict[str, Any] | None = None
        with self.path.open("rb") as file:
            size, length = file.seek(0, 2), 4096
            while last is None and size:
                file.seek(max(0, size - length))
                lines = file.read().split(b"\n")
                last = _parse_last(lines if length >= size else lines[1:])
                if length >= size:
                    break
                length *= 4
        if last is None:
            return 0, START
        try:
            return int(last["number"]), str(last["hash"])
        except (ValueError, KeyError, TypeError):
            raise StorageError(
                "the access log is damaged, so nothing was read: check it with `epicrisis audit verify`"
            ) from None


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
        "action": action,
        "outcome": outcome,
        "library": library,
        "patient": patient,
        "documents": list(dict.fromkeys(documents)),
        "reason": reason,
    }


def hash_entry(entry: Mapping[str, Any]) -> str:
    """Return the hash of an entry with the hash of the one before it."""
    fields = _FIELDS if "outcome" in entry else _FIRST_FIELDS
    content = json.dumps([entry.get(name) for name in fields], ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(content.encode()).hexdigest()


def verify_log(path: Path, head: str | None = None) -> AuditResult:
    """Return what `AccessLog.verify` returns for the log in a file."""
    return AccessLog(path).verify(head)


def verify_entries(entries: Iterable[Mapping[str, Any]], head: str | None = None) -> AuditResult:
    """Return whether every entry fits the one before it. With `head`, its entry must exist too."""
    count, previous, heads = 0, START, {START}
    for entry in entries:
        fault = _find_fault(entry, count + 1, previous)
        if fault is not None:
            return AuditResult(count, previous, f"entry {count + 1}: {fault}")
        count, previous = count + 1, str(entry["hash"])
        heads.add(previous)
    if head is not None and head not in heads:
        return AuditResult(count, previous, "the log has no entry with the hash of --head: its end was cut off")
    return AuditResult(count, previous)


def _find_fault(entry: Mapping[str, Any], number: int, previous: str) -> str | None:
    if set(entry) not in ({*_FIELDS, "hash"}, {*_FIRST_FIELDS, "hash"}):
        return "has other fields than an entry"
    if entry["number"] != number or entry["previous"] != previous:
        return "does not follow the entry before it: one was removed, added or moved"
    if entry["hash"] != hash_entry(entry):
        return "was changed"
    return None


def _parse_last(lines: Sequence[bytes]) -> dict[str, Any] | None:
    """Return the last of these lines that is complete. A kill leaves an incomplete line, which nobody relied on."""
    for line in reversed(lines):
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict):
            return entry
    return None
