"""Measure how long `epicrisis ask` takes beyond the calls of a chat model with a fixed delay, and which calls it sends.

    PYTHONPATH=. python benchmarks/ask_latency.py                # BriefContext in 8 parts, 1 s a call
    PYTHONPATH=. python benchmarks/ask_latency.py --delay 0.2 --runs 5

The endpoint is a real HTTP server on loopback. It answers every request after the delay, any number at a time; it
knows no path but the chat completions, like most servers of other vendors. The first run knows nothing of the
endpoint, the others what the first has learned. Each question is one process, from its start to its exit.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from epicrisis.settings.settings import Settings
from tests.support.faults import build_reply, build_success
from tests.support.replies import schema_reply

ROOT = Path(__file__).resolve().parent.parent
QUESTION = "Does low-dose aspirin lower the risk of preterm pre-eclampsia?"
PARTS = 8


@dataclass
class Call:
    """One request that the endpoint received, in seconds since the process began."""

    path: str
    start: float


class DelayedEndpoint(ThreadingHTTPServer):
    """An endpoint that answers each request after a fixed delay and notes when it came."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, delay: float) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.delay = delay
        self.begin = time.monotonic()
        self.calls: list[Call] = []


class _Handler(BaseHTTPRequestHandler):
    server: DelayedEndpoint

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers["Content-Length"])))

    def _answer(self, body: bytes) -> None:
        self.server.calls.append(Call(self.path, time.monotonic() - self.server.begin))
        time.sleep(self.server.delay)
        if self.path != "/v1/chat/completions":
            self.send_error(404)
            return
        request = json.loads(body)
        response = build_success(build_reply(request, schema_reply(request), "scripted"))
        content = b"".join(response.pieces)
        self.send_response(200)
        self.send_header("Content-Type", response.kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: object) -> None:
        """Write nothing."""


def make_environment(home: Path) -> dict[str, str]:
    """Create a home folder with the installed models. Return the environment of a process that uses it.

    Python may write compiled modules, as in a usual installation; without them each start takes 0.2 s more.
    """
    home.mkdir()
    (home / "models").symlink_to(Path(Settings().home).expanduser() / "models")
    environment = {**os.environ, "EPICRISIS_HOME": str(home)}
    if environment.pop("PYTHONDONTWRITEBYTECODE", None):
        environment["PYTHONPYCACHEPREFIX"] = str(home / "compiled")
    return environment


def ask_once(endpoint: DelayedEndpoint, library: Path, environment: dict[str, str]) -> tuple[float, float, list[Call]]:
    """Ask one question in a process. Return its wall-clock seconds, its CPU seconds, and the calls it sent."""
    url = f"http://127.0.0.1:{endpoint.server_port}/v1#scripted"
    command = [sys.executable, "-m", "epicrisis", "ask", str(library), QUESTION, "--model", url]
    command += ["--strategy", "brief-context", "-k", str(2 * PARTS), "--setting", "partition=2"]
    command += ["--setting", "preflight.enabled=false", "--setting", "cache.mode=off"]
    endpoint.calls, endpoint.begin = [], time.monotonic()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    seconds, after = time.monotonic() - endpoint.begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, endpoint.calls


def describe_calls(calls: list[Call], start: float) -> str:
    """Return the calls in their order, those within a tenth of a second as one group, with the time of each group."""
    groups: list[list[Call]] = []
    for call in calls:
        if groups and call.start - groups[-1][-1].start < start:
            groups[-1].append(call)
        else:
            groups.append([call])
    parts: list[str] = []
    for group in groups:
        names = sorted({call.path.removeprefix("/v1") for call in group})
        counts = [f"{sum(call.path.endswith(name) for call in group)} x {name}" for name in names]
        parts.append(f"{group[0].start:.1f} s: {', '.join(counts)}")
    return "; ".join(parts)


def main() -> None:
    """Ask the question several times and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--delay", type=float, default=1.0, help="seconds of each call")
    parser.add_argument("--runs", type=int, default=4)
    options = parser.parse_args()
    print("| run | seconds | beyond two calls | CPU seconds | calls, by the time they came |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        environment, library = make_environment(Path(name) / "home"), Path(name) / "demo"
        command = [
            sys.executable,
            "-m",
            "epicrisis",
            "library",
            "add",
            str(library),
            str(ROOT / "demo/documents.jsonl"),
        ]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
        with DelayedEndpoint(options.delay) as endpoint:
            threading.Thread(target=endpoint.serve_forever, daemon=True).start()
            later: list[float] = []
            for run in range(options.runs):
                seconds, cpu, calls = ask_once(endpoint, library, environment)
                beyond = seconds - 2 * options.delay
                later += [beyond] if run else []
                trace = describe_calls(calls, options.delay / 2)
                print(f"| {run + 1} | {seconds:.1f} | {beyond:.1f} | {cpu:.1f} | {trace} |", flush=True)
            if later:
                print(f"\nBeyond two calls, median of the later runs: {statistics.median(later):.2f} s")
            endpoint.shutdown()


if __name__ == "__main__":
    main()
