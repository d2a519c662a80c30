"""May what a folder holds of patients reach other machines? Said once for the folder, and written down in it.

The folder is a library's, or one of answers about patients' records. `remote.jsonl` in it, its owner's alone to read,
has a line for each time that it was allowed, with the hosts that were named, or forbidden again; the last such line
holds. Where there is none it is forbidden. Knows no settings.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from epicrisis.errors import LibraryDamaged
from epicrisis.library.engine_errors import translate_errors
from epicrisis.privacy import open_private

NAME = "remote.jsonl"


@dataclass(frozen=True, slots=True)
class RemoteConsent:
    """`hosts` are those that were named since it was last forbidden, sorted; `since` is ISO 8601, UTC."""

    allowed: bool = False
    hosts: tuple[str, ...] = ()
    since: str | None = None


def read_remote(folder: Path) -> RemoteConsent:
    """What holds now. Raises LibraryDamaged where the file is none of this form, so that nothing is allowed by it."""
    path = folder / NAME
    if not path.exists():
        return RemoteConsent()
    now = RemoteConsent()
    with translate_errors(folder):
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    for line in lines:
        now = _after(now, line, path)
    return now


def _after(before: RemoteConsent, line: str, path: Path) -> RemoteConsent:
    try:
        said: Any = json.loads(line)
        at, allowed, hosts = str(said["at"]), said["allowed"], tuple(map(str, said["hosts"]))
        if not isinstance(allowed, bool):
            raise TypeError
    except (ValueError, KeyError, TypeError, RecursionError):
        raise LibraryDamaged(
            f"{path} cannot be read, so no other machine is allowed: delete it, and say --allow-remote anew"
        ) from None
    if not allowed:
        return RemoteConsent(since=at)
    both = {*before.hosts, *hosts}
    return RemoteConsent(True, tuple(sorted(both)), before.since if before.allowed else at)


def allow_remote(folder: Path, hosts: Iterable[str]) -> None:
    """Writes down that it is allowed, where that or one of the hosts is new; durable. Raises StorageError."""
    now, named = read_remote(folder), sorted(set(hosts))
    if not now.allowed or not set(named) <= set(now.hosts):
        _append(folder, {"allowed": True, "hosts": named})


def forbid_remote(folder: Path) -> None:
    """Takes it back, where it is allowed; durable. What was allowed before stays on record. Raises StorageError."""
    if read_remote(folder).allowed:
        _append(folder, {"allowed": False, "hosts": []})


def _append(folder: Path, said: dict[str, Any]) -> None:
    line = json.dumps({"at": datetime.now(UTC).isoformat(timespec="seconds"), **said}) + "\n"
    with translate_errors(folder):
        file = open_private(folder / NAME, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(file, line.encode())
            os.fsync(file)
        finally:
            os.close(file)
