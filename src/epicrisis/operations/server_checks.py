"""Check servers of epicrisis: whether they accept questions, and agree in version, libraries and clock."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from epicrisis.operations.cluster_parts import ClusterCheck, ClusterPart
from epicrisis.system.local_only import is_local, parse_host

if TYPE_CHECKING:
    import httpx2

KEY_VARIABLE = "EPICRISIS_API_KEY_SERVER"
"""The environment variable with the key of a user of the servers."""
MAX_CLOCK_SECONDS = 5.0
TIMEOUT_SECONDS = 10.0
_NEEDS_KEY = f"needs a key: set {KEY_VARIABLE} to that of a user of the servers"


@dataclass(slots=True)
class _Server:
    part: str
    version: str = ""
    libraries: dict[str, tuple[int, int, int | None]] = field(default_factory=dict)
    """Documents, passages and version of each library."""


def read_clock() -> datetime:
    """Return the time of this machine."""
    return datetime.now(UTC)


def check_servers(parts: Sequence[ClusterPart]) -> Iterator[ClusterCheck]:
    """Yield the checks of each server, then those of all together."""
    import httpx2

    servers = []
    key = os.environ.get(KEY_VARIABLE, "").strip()
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    with httpx2.Client(timeout=TIMEOUT_SECONDS, headers=headers, follow_redirects=False) as client:
        for part in parts:
            server = _Server(part.name)
            try:
                yield from _check_server(part, client, server)
            except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
                message = f"no answer ({type(error).__name__}): check that the server runs, its address and its log"
                yield ClusterCheck(part.name, "server", "problem", message)
            servers.append(server)
    yield from _compare(servers)


def _check_server(part: ClusterPart, client: httpx2.Client, server: _Server) -> Iterator[ClusterCheck]:
    sent = read_clock()
    reply = client.get(f"{part.url}/readyz")
    received = read_clock()
    if reply.status_code == 421:
        message = "refuses this name of it: start the server with it as one more --host-name"
        yield ClusterCheck(part.name, "server", "problem", message)
        return
    state: Any = reply.json() if reply.status_code in (200, 503) else {}
    if reply.status_code != 200 or not isinstance(state, dict) or state.get("status") != "ready":
        is_stopping = reply.status_code == 503
        fault = "is stopping" if is_stopping else f"answers {reply.status_code} at /readyz"
        cure = "wait until it has started again" if is_stopping else "check that epicrisis serves at this address"
        yield ClusterCheck(part.name, "server", "problem", f"{fault}: {cure}")
        return
    yield ClusterCheck(part.name, "server", "ok", "accepts questions")
    if part.url.startswith("http:") and not is_local(parse_host(part.url)):
        message = "not encrypted up to here: fine within a private network behind the proxy, nowhere else"
        yield ClusterCheck(part.name, "connection", "note", message)
    yield _check_clock(part, reply.headers.get("Date"), sent, received)
    yield from _read_version(part, client, server)


def _check_clock(part: ClusterPart, date: str | None, sent: datetime, received: datetime) -> ClusterCheck:
    if date is None:
        return ClusterCheck(part.name, "clock", "unknown", "the reply has no date: ask the server without the proxy")
    clock = parsedate_to_datetime(date)
    # The header has whole seconds, and its moment lies between those of the request and the reply.
    early, late = (clock - sent).total_seconds() + 1, (clock - received).total_seconds()
    if late > MAX_CLOCK_SECONDS or early < -MAX_CLOCK_SECONDS:
        difference = late if late > 0 else early
        message = f"differs from this machine by {difference:+.0f} s: set up time synchronization (chrony, systemd)"
        return ClusterCheck(part.name, "clock", "problem", message)
    return ClusterCheck(part.name, "clock", "ok", f"agrees within {MAX_CLOCK_SECONDS:.0f} s")


def _read_version(part: ClusterPart, client: httpx2.Client, server: _Server) -> Iterator[ClusterCheck]:
    description = client.get(f"{part.url}/openapi.json")
    libraries = client.get(f"{part.url}/api/v1/libraries")
    if description.status_code in (401, 403) or libraries.status_code in (401, 403):
        yield ClusterCheck(part.name, "version", "unknown", _NEEDS_KEY)
        return
    server.version = str(description.raise_for_status().json()["info"]["version"])
    for row in libraries.raise_for_status().json():
        server.libraries[str(row["name"])] = row["documents"], row["passages"], row.get("version")
    yield ClusterCheck(part.name, "version", "ok", f"epicrisis {server.version}")


def _compare(servers: Sequence[_Server]) -> Iterator[ClusterCheck]:
    known = [server for server in servers if server.version]
    if len(known) < 2:
        return
    part = f"{len(known)} servers"
    versions = sorted({server.version for server in known})
    if len(versions) > 1:
        message = f"run {' and '.join(versions)}: complete the update (docs/deployment.md#update-a-deployment)"
        yield ClusterCheck(part, "versions", "problem", message)
    else:
        yield ClusterCheck(part, "versions", "ok", f"all run epicrisis {versions[0]}")
    if any(server.libraries.keys() != known[0].libraries.keys() for server in known):
        message = "serve different libraries: start all with the same ones"
        yield ClusterCheck(part, "libraries", "problem", message)
        return
    for name in sorted(known[0].libraries):
        states = {server.libraries[name] for server in known}
        if len(states) == 1:
            documents, passages, _ = states.pop()
            message = f"{name}: all have the same {documents:,} documents, {passages:,} passages"
            yield ClusterCheck(part, "libraries", "ok", message)
        else:
            message = (
                f"{name}: the servers have different versions: check again in a minute; if they still differ, look "
                "into the log of the servers that are behind"
            )
            yield ClusterCheck(part, "libraries", "problem", message)
