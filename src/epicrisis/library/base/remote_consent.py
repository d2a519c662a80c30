"""Consent to send patient data of a folder to other machines, recorded in the folder.

The folder is a library, or holds answers about patients' records. Each line of `remote.jsonl`, a file readable only by
its owner, allows some hosts or forbids all. Without the file sending is forbidden.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from epicrisis.core.errors import LibraryDamaged
from epicrisis.library.base.engine_errors import translate_errors
from epicrisis.system.local_only import open_private

NAME = "remote.jsonl"


@dataclass(frozen=True, slots=True)
class RemoteConsent:
    """The current consent of a folder."""

    allowed: bool = False
    hosts: tuple[str, ...] = ()
    """Hosts allowed since the last prohibition, sorted."""
    since: str | None = None
    """ISO 8601, UTC."""


def read_remote(folder: Path) -> RemoteConsent:
    """Return the current consent. Raise LibraryDamaged for an invalid file, so that it allows nothing."""
    path = folder / NAME
    consent = RemoteConsent()
    if not path.exists():
        return consent
    with translate_errors(folder):
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    for line in lines:
        try:
            entry: Any = json.loads(line)
            at, allowed, hosts = str(entry["at"]), entry["allowed"], set(map(str, entry["hosts"]))
            if not isinstance(allowed, bool):
                raise TypeError
        except (ValueError, KeyError, TypeError, RecursionError):
            raise LibraryDamaged(
                f"{path} cannot be read, so no other machine is allowed: delete it, and pass --allow-remote again"
            ) from None
        if allowed:
            since = consent.since if consent.allowed else at
            consent = RemoteConsent(True, tuple(sorted(hosts.union(consent.hosts))), since)
        else:
            consent = RemoteConsent(since=at)
    return consent


def allow_remote(folder: Path, hosts: Iterable[str]) -> None:
    """Record consent for these hosts, durably, unless it exists already. Raise StorageError."""
    consent, new_hosts = read_remote(folder), sorted(set(hosts))
    if not consent.allowed or not set(new_hosts) <= set(consent.hosts):
        _append(folder, {"allowed": True, "hosts": new_hosts})


def forbid_remote(folder: Path) -> None:
    """Record the withdrawal of consent, durably. Earlier lines remain. Raise StorageError."""
    if read_remote(folder).allowed:
        _append(folder, {"allowed": False, "hosts": []})


def _append(folder: Path, entry: dict[str, Any]) -> None:
    line = json.dumps({"at": datetime.now(UTC).isoformat(timespec="seconds"), **entry}) + "\n"
    with translate_errors(folder):
        file = open_private(folder / NAME, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(file, line.encode())
            os.fsync(file)
        finally:
            os.close(file)
