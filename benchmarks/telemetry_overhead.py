"""Measure the CPU that spans and figures add to a question, in one run.

    python benchmarks/telemetry_overhead.py          # 10 rounds of 40 questions
    python benchmarks/telemetry_overhead.py --rounds 3

A server in this process answers questions with BriefContext: BM25 and dense search, two map calls, one reduce call. The
chat model is a script without a wait, so nothing hides the cost. Rounds without and with telemetry take turns. The
collector is a process of its own on loopback. Figures are measured in both: `/metrics` has them in any case.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import statistics
import tempfile
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import httpx2

from epicrisis.models.chat.loading import add_layers
from epicrisis.server.app import create_app
from epicrisis.settings.settings import ModelSettings
from epicrisis.system.telemetry import record_spans, span
from epicrisis.system.telemetry_export import make_tracer_provider
from tests.support.patient_records import papers, recorder
from tests.support.servers import QUESTION, connect, open_library, open_resources

WARM_UP = 5


class _Collector(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def collect(pipe: Connection) -> None:
    """Receive spans and drop them, until the process is ended."""
    server = HTTPServer(("127.0.0.1", 0), _Collector)
    pipe.send(server.server_port)
    server.serve_forever()


async def ask(client: httpx2.AsyncClient, questions: int) -> float:
    """Return the CPU seconds for each of these questions."""
    start = time.process_time()
    for _ in range(questions):
        response = await client.post("/api/v1/ask", json={"question": QUESTION, "settings": {"k": 4}})
        assert response.status_code == 200, response.text
    return (time.process_time() - start) / questions


async def compare(url: str, rounds: int, questions: int) -> tuple[list[float], list[float]]:
    """Return the CPU seconds of a question in each round, without telemetry and with it."""
    model = ModelSettings(name="http://127.0.0.1:9/v1#scripted")
    preflight = {"signal": "dense-gap", "threshold": 1000}
    with tempfile.TemporaryDirectory() as folder:
        settings: dict[str, Any] = {"strategy": "brief-context", "partition": 2, "preflight": preflight}
        library = open_library(Path(folder) / "lib", add_layers(recorder(), model), list(papers()), **settings)
        app = create_app(open_resources(library))
        provider = make_tracer_provider(url)
        without: list[float] = []
        recorded: list[float] = []
        async with connect(app) as client:
            await ask(client, WARM_UP)
            for _ in range(rounds):
                record_spans(None)
                without.append(await ask(client, questions))
                record_spans(provider)
                recorded.append(await ask(client, questions))
                provider.force_flush()
        record_spans(None)
        provider.shutdown()
    return without, recorded


def measure_span(count: int = 200_000) -> float:
    """Return the seconds of a span that is not recorded."""
    start = time.process_time()
    for _ in range(count):
        with span("search words", {"epicrisis.k": 8}):
            pass
    return (time.process_time() - start) / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--questions", type=int, default=40)
    options = parser.parse_args()
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(target=collect, args=(sender,), daemon=True)
    process.start()
    try:
        url = f"http://127.0.0.1:{receiver.recv()}/v1/traces"
        without, recorded = asyncio.run(compare(url, options.rounds, options.questions))
    finally:
        process.terminate()
    ratios = [after / before for before, after in zip(without, recorded, strict=True)]
    print(f"CPU of a question without telemetry: {statistics.median(without) * 1e3:.2f} ms (median of rounds)")
    print(f"CPU of a question with spans sent:   {statistics.median(recorded) * 1e3:.2f} ms")
    print(f"ratio: {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})")
    print(f"a span that is not recorded: {measure_span() * 1e6:.2f} microseconds")


if __name__ == "__main__":
    main()
