"""The parts of a cluster, and the results of checks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from epicrisis.core.errors import InputError
from epicrisis.system.local_only import parse_host, strip_secrets
from epicrisis.system.remote_libraries import SCHEMES, find_address, library_folder

CheckState: TypeAlias = Literal["ok", "note", "unknown", "problem"]
"""`note`: works, and the administrator should know. `unknown`: could not be checked."""


@dataclass(frozen=True, slots=True)
class ClusterCheck:
    """The result of one check."""

    part: str
    """The part of the cluster, as the user named it, without secrets."""
    topic: str
    state: CheckState
    message: str
    """What was found, and for every state but `ok` what to do."""


@dataclass(frozen=True, slots=True)
class ServerTables:
    """The tables with the state of servers that this program uses."""

    schema: str
    role: str
    """The role of server processes."""
    version: int


@dataclass(frozen=True, slots=True)
class ClusterPart:
    """A part of a cluster: a server of epicrisis, a cluster of Ray, or a library in a database or on object storage."""

    name: str
    """The URL without secrets."""
    url: str = ""
    """The URL of a server or of a cluster of Ray."""
    library: Path | None = None

    @classmethod
    def parse(cls, text: str) -> ClusterPart:
        """Return the part that a URL names. Raise InputError for anything else."""
        if text.startswith(("http://", "https://")):
            if not parse_host(text):
                raise InputError("--cluster: the URL of a server has no host: write http://HOST:PORT")
            return cls(strip_secrets(text), url=text.rstrip("/"))
        if text.startswith("ray://"):
            return cls(strip_secrets(text), url=text)
        folder = library_folder(text) if text.partition("://")[0].lower() in SCHEMES else None
        address = None if folder is None else find_address(folder)
        if address is None:
            raise InputError(
                "--cluster: name a server (http://HOST:PORT) or a library with a URL (postgresql://... or s3://...), or ray://HOST:PORT"
            )
        return cls(address.public, library=folder)
