"""Several real `epicrisis serve` processes on one database, and a client that reaches each of them."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from tests.support.postgresql_server import find_free_port


@dataclass
class ServerProcess:
    """One process, and the port that it listens on."""

    process: subprocess.Popen[bytes]
    port: int
    output: Path

    def wait(self) -> None:
        """Wait until the process accepts questions. Raises AssertionError with its output if it ends."""
        for _ in range(600):
            try:
                if httpx2.get(f"http://127.0.0.1:{self.port}/readyz", timeout=5).status_code == 200:
                    return
            except httpx2.TransportError:
                pass
            assert self.process.poll() is None, self.output.read_text()
            time.sleep(0.1)
        raise AssertionError(self.output.read_text())

    def kill(self) -> None:
        """Kill the process with -9."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@dataclass
class ServerGroup:
    """Processes of the same command, as behind a proxy that sends each request to any of them."""

    command: tuple[str, ...]
    folder: Path
    processes: list[ServerProcess] = field(default_factory=list)

    def add(self) -> ServerProcess:
        """Start one more process."""
        port = find_free_port()
        output = self.folder / f"server{len(self.processes)}.log"
        with output.open("wb") as file:
            command = [sys.executable, "-m", "epicrisis", "serve", *self.command, "--port", str(port)]
            process = subprocess.Popen(command, stdout=file, stderr=file)
        server = ServerProcess(process, port, output)
        self.processes.append(server)
        return server

    def request(self, number: int, method: str, path: str, client: httpx2.Client | None = None, **more: Any) -> Any:
        """Send a request to the process of this number, with the cookies of the client if there is one.

        As behind a balancer, all processes are reached under one name.
        """
        address = f"http://127.0.0.1:{self.processes[number].port}{path}"
        more["headers"] = {"Host": "127.0.0.1:8080", **(more.get("headers") or {})}
        if client is not None:
            return client.request(method, address, **more)
        return httpx2.request(method, address, timeout=60, **more)


@contextmanager
def run_servers(count: int, folder: Path, *command: str) -> Iterator[ServerGroup]:
    """Run `epicrisis serve` with these arguments `count` times. All are killed at the end."""
    group = ServerGroup(command, folder)
    try:
        for _ in range(count):
            group.add()
        for process in group.processes:
            process.wait()
        yield group
    finally:
        for process in group.processes:
            process.process.kill()
            process.process.wait()
