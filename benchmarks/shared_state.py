"""Milliseconds that a request costs with the state of the server in a folder and in PostgreSQL, in alternation.

    python benchmarks/shared_state.py [REQUESTS]

Needs the server program that `make test-postgresql` fetches. Both applications run in this process, without sockets of
their own; the database listens on loopback and writes its log to the disk before it confirms, as usual.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import httpx2
from fastapi import FastAPI

from epicrisis.server.api import guards
from epicrisis.server.app import ServerOptions, create_app
from epicrisis.server.state.state import open_state, state_folder
from tests.support.patient_records import notes, recorder
from tests.support.postgresql_server import OWNER, PASSWORDS, SERVER, PostgresqlServer, find_wheel
from tests.support.servers import connect, open_library, open_resources

REQUESTS: Mapping[str, tuple[str, str, Any]] = {
    "key alone (GET /api/v1/libraries)": ("GET", "/api/v1/libraries", None),
    "key, one log entry (POST /api/v1/patient)": ("POST", "/api/v1/patient", {"patient": "P-100"}),
    "key, log entries, search (POST /api/v1/search)": (
        "POST",
        "/api/v1/search",
        {"query": "aspirin", "patient": "P-100"},
    ),
}


def make_app(folder: Path, state: Path, owner: Path) -> tuple[FastAPI, str]:
    """Return the application with this state, and the key of its user, whom the owner adds."""
    key = open_state(owner).users.add("maria", "patient-reader")
    resources = open_resources(open_library(folder, recorder(), notes()))
    return create_app(resources, ServerOptions(folder=state)), key


async def measure(apps: Mapping[str, tuple[FastAPI, str]], count: int) -> None:
    """Print the times of each request by application."""
    clients: dict[str, httpx2.AsyncClient] = {}
    for name, (app, key) in apps.items():
        clients[name] = connect(app, headers={"Authorization": f"Bearer {key}"})
    for title, (method, path, body) in REQUESTS.items():
        times: dict[str, list[float]] = {name: [] for name in clients}
        for _ in range(count):
            for name, client in clients.items():
                start = time.perf_counter()
                reply = await client.request(method, path, json=body)
                times[name].append((time.perf_counter() - start) * 1000)
                reply.raise_for_status()
        print(title)
        medians = {name: median(values[10:]) for name, values in times.items()}
        for name, values in times.items():
            print(f"  {name}: median {medians[name]:.2f} ms, p95 {quantiles(values[10:], n=20)[18]:.2f} ms")
        first, second = medians.values()
        print(f"  difference {second - first:+.2f} ms, ratio {second / first:.2f}")


def main() -> None:
    """Measure, on a server and in folders that are removed afterwards."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    # One user sends more requests than one user may.
    guards.RateLimiter.check = lambda *_: None  # type: ignore[method-assign]
    wheel = find_wheel()
    if wheel is None:
        raise SystemExit("there is no server: make test-postgresql fetches it")
    server = PostgresqlServer(wheel)
    try:
        server.create()
        server.create_database("hospital", ())
        with tempfile.TemporaryDirectory() as text:
            folder = Path(text)
            urls: dict[str, Path] = {}
            for user in (OWNER, SERVER):
                password = PASSWORDS[user].replace("@", "%40").replace("#", "%23").replace(" ", "%20")
                urls[user] = state_folder(f"postgresql://{user}:{password}@127.0.0.1:{server.port}/hospital")
            apps = {
                "folder": make_app(folder / "a", folder / "state", folder / "state"),
                "PostgreSQL": make_app(folder / "b", urls[SERVER], urls[OWNER]),
            }
            asyncio.run(measure(apps, count))
    finally:
        server.remove()


if __name__ == "__main__":
    main()
