"""Load `epicrisis serve` with many clients and print a table of what each of them waited for.

    PYTHONPATH=. python benchmarks/server_load.py   # 200 clients for 60 s, and all below
    PYTHONPATH=. python benchmarks/server_load.py load --clients 50 --seconds 20
    PYTHONPATH=. python benchmarks/server_load.py memory --requests 2000

The server is the real command in a process of its own, over the demo's library with the real encoder. The chat model is
another process on loopback: an OpenAI-compatible endpoint that waits, then streams a reply word by word, so that the
time of a reply is known. Clients, server and model share the machine, so their work is part of every figure.

Each question carries a number; the stream of its answer must name it, and no other. Overhead is the time of a question
minus the fixed time of the model. The same clients also ask the model directly, and through a bare FastAPI that
searches nothing and passes the reply on: that overhead is the clients' own, and the interpreter's. Memory and CPU
seconds are those of the server, from /proc.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeAlias

import httpx2
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse

from tests.support.faults import build_reply, build_success
from tests.support.replies import schema_reply

ROOT = Path(__file__).resolve().parent.parent
PHASES = ("load", "pages", "disconnect", "memory")
CASE = re.compile(r"[Cc]ase (\d{7})")
PLAIN_REPLY = "It is so."
REPLY = (
    "The trial reports the result that the sentence of the document states, and nothing in the other documents that "
    "were read says otherwise for patients like those of the trial."
)
LENGTH = re.compile(r"(?i)\r\ncontent-length: *(\d+)")
LINK = re.compile(rb'(?:src|href)="(/static/[^"]+)"')
START_SECONDS = 60.0
MEMORY_CLIENTS = 16
QUESTIONS = (
    "Does low-dose aspirin lower the risk of preterm pre-eclampsia?",
    "Which infection causes most duodenal ulcers?",
    "Which drug lowers mortality in systolic heart failure?",
    "Does dexamethasone lower mortality in patients hospitalised with COVID-19?",
)


# -- the chat model ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ReplyTime:
    """How long a reply takes: seconds before its first event, and from that one to the last."""

    first: float
    stream: float

    @property
    def total(self) -> float:
        """Seconds from the request to the end of the reply."""
        return self.first + self.stream


@dataclass
class ModelLog:
    """What the chat model has done."""

    calls: int = 0
    finished: int = 0
    stopped: int = 0
    """Calls whose connection was closed before the end of the reply."""


@dataclass(frozen=True)
class ModelProcess:
    """A chat model in a process of its own."""

    url: str
    port: int
    pipe: Connection

    def read_log(self) -> ModelLog:
        """Return what it has done so far."""
        self.pipe.send(None)
        log: ModelLog = self.pipe.recv()
        return log


@contextmanager
def run_model(reply_time: ReplyTime) -> Iterator[ModelProcess]:
    """Run a chat model, and stop it at the end of the block."""
    spawning = multiprocessing.get_context("spawn")
    ours, theirs = spawning.Pipe()
    process = spawning.Process(target=_run_model, args=(theirs, reply_time), daemon=True)
    process.start()
    theirs.close()
    try:
        port = ours.recv()
        yield ModelProcess(f"http://127.0.0.1:{port}/v1", port, ours)
    finally:
        ours.close()
        process.join()


def _run_model(pipe: Connection, reply_time: ReplyTime) -> None:
    asyncio.run(_serve_model(pipe, reply_time))


async def _serve_model(pipe: Connection, reply_time: ReplyTime) -> None:
    log = ModelLog()
    closed = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await read_request(reader)
        if request is not None:
            log.calls += 1
            sending = asyncio.create_task(send_reply(writer, request, reply_time))
            hanging_up = asyncio.create_task(reader.read())
            await asyncio.wait([sending, hanging_up], return_when=asyncio.FIRST_COMPLETED)
            is_finished = sending.done() and sending.exception() is None
            log.finished += is_finished
            log.stopped += not is_finished
            for task in (sending, hanging_up):
                task.cancel()
        else:
            writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()

    def report() -> None:
        try:
            pipe.recv()
            pipe.send(log)
        except EOFError:
            closed.set()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=1024)
    asyncio.get_running_loop().add_reader(pipe.fileno(), report)
    pipe.send(server.sockets[0].getsockname()[1])
    await closed.wait()


async def read_request(reader: asyncio.StreamReader) -> dict[str, Any] | None:
    """Return the body of a call for a chat completion, or None for another request."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    length = LENGTH.search(head)
    body = await reader.readexactly(int(length[1])) if length else b"{}"
    return json.loads(body) if "/chat/completions " in head.partition("\r\n")[0] else None


async def send_reply(writer: asyncio.StreamWriter, body: Mapping[str, Any], reply_time: ReplyTime) -> None:
    """Send a reply that takes exactly the time: a late event delays none of the following."""
    loop = asyncio.get_running_loop()
    start = loop.time()
    response = build_success(build_reply(body, write_reply(body), "scripted"))
    framing = "Transfer-Encoding: chunked" if response.chunked else f"Content-Length: {len(response.pieces[0])}"
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {response.kind}\r\n{framing}\r\nConnection: close\r\n\r\n".encode()
    steps = max(1, len(response.pieces) - 1)
    for number, piece in enumerate(response.pieces):
        due = start + reply_time.first + reply_time.stream * number / steps
        if due > loop.time():
            await asyncio.sleep(due - loop.time())
        writer.write(head + (b"%x\r\n%b\r\n" % (len(piece), piece) if response.chunked else piece))
        head = b""
    writer.write(b"0\r\n\r\n" if response.chunked else b"")
    await writer.drain()


def write_reply(body: Mapping[str, Any]) -> str:
    """Return a reply that names the first sentences."""
    return schema_reply(body).replace(PLAIN_REPLY, REPLY)


# -- the server -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ServerProcess:
    """`epicrisis serve` in a process of its own."""

    pid: int
    port: int

    def read_memory(self) -> float:
        """Return the resident memory in MB."""
        status = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii")
        return int(status.partition("VmRSS:")[2].split()[0]) / 1024

    def read_cpu(self) -> float:
        """Return the CPU seconds so far, user and system."""
        numbers = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(numbers[11]) + int(numbers[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def run_server(
    library: Path, folder: Path, model: ModelProcess, options: argparse.Namespace
) -> Iterator[ServerProcess]:
    """Run the server over the library until the end of the block, and wait until it answers."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = [f"models.writer.concurrency={2 * options.clients}", *options.setting]
    command = [sys.executable, *options.program, "serve", str(library), "--port", str(port)]
    command += ["--folder", str(folder), "--model", f"{model.url}#scripted", "--strategy", options.strategy]
    command += ["--max-questions", str(2 * options.clients)]
    for setting in settings:
        command += ["--setting", setting]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        asyncio.run(wait_until_ready(process, port))
        yield ServerProcess(process.pid, port)
    finally:
        process.terminate()
        process.wait(timeout=90)


async def wait_until_ready(process: subprocess.Popen[bytes], port: int) -> None:
    """Return when the server answers. Raise SystemExit if it ends or takes too long."""
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        if process.poll() is not None:
            raise SystemExit(f"the server ended with exit code {process.returncode}")
        with suppress(OSError):
            if (await fetch(port, "/readyz")).status == 200:
                return
        await asyncio.sleep(0.1)
    raise SystemExit(f"the server did not start within {START_SECONDS:g} s")


def _run_relay(pipe: Connection, model_url: str) -> None:
    client = httpx2.AsyncClient(timeout=None, limits=httpx2.Limits(max_connections=None))
    app = FastAPI()

    @app.post("/v1/chat/completions")
    async def relay(request: Request) -> StreamingResponse:
        body = await request.json()

        async def pieces() -> AsyncIterator[bytes]:
            async with client.stream("POST", f"{model_url}/chat/completions", json=body) as response:
                async for piece in response.aiter_bytes():
                    yield piece

        return StreamingResponse(pieces(), media_type="text/event-stream")

    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listening:
        pipe.send(listening.getsockname()[1])
        uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False)).run([listening])


@contextmanager
def run_relay(model: ModelProcess) -> Iterator[int]:
    """Run a bare FastAPI that passes the model's replies on, in a process of its own, and return its port."""
    spawning = multiprocessing.get_context("spawn")
    ours, theirs = spawning.Pipe()
    process = spawning.Process(target=_run_relay, args=(theirs, model.url), daemon=True)
    process.start()
    try:
        yield ours.recv()
    finally:
        process.terminate()
        process.join()


# -- clients ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reply:
    """A response of the server, and its times in seconds since the connection was opened."""

    status: int
    body: bytes
    first_byte: float
    seconds: float


async def fetch(port: int, path: str, body: Mapping[str, Any] | None = None, until: bytes | None = None) -> Reply:
    """Return the response to a GET, or to a POST with a body. With `until`, hang up when this text has arrived."""
    start = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        content = b"" if body is None else json.dumps(body).encode()
        method = "GET" if body is None else "POST"
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n"
        head += f"Accept: text/html\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        writer.write(head.encode() + content)
        response = await reader.readuntil(b"\r\n\r\n")
        first_byte = time.perf_counter() - start
        is_chunked = b"transfer-encoding: chunked" in response.lower()
        rest = bytearray()
        while piece := await reader.read(65536):
            rest += piece
            if until is not None and until in rest:
                break
        seconds = time.perf_counter() - start
    finally:
        writer.close()
    text = join_chunks(bytes(rest)) if is_chunked and until is None else bytes(rest)
    return Reply(int(response.split(b" ", 2)[1]), text, first_byte, seconds)


def join_chunks(body: bytes) -> bytes:
    """Return the content of a chunked body. Raises ValueError for one that was cut off."""
    pieces: list[bytes] = []
    while True:
        size, separator, body = body.partition(b"\r\n")
        if not separator:
            raise ValueError("the body was cut off")
        length = int(size, 16)
        if length == 0:
            return b"".join(pieces)
        pieces.append(body[:length])
        body = body[length + 2 :]


@dataclass
class Outcomes:
    """What the clients received."""

    overheads: list[float] = field(default_factory=list)
    """Seconds of each complete answer beyond the time of the model."""
    faults: list[str] = field(default_factory=list)
    """Why an answer was not complete, or not that of its client."""


Ask: TypeAlias = Callable[[int], Awaitable[Reply]]
Check: TypeAlias = Callable[[Reply, int], str | None]


def build_question(number: int) -> str:
    """Return a question with this number."""
    return f"In case {number:07d}: {QUESTIONS[number % len(QUESTIONS)]}"


def find_fault(reply: Reply, number: int) -> str | None:
    """Return why the stream is not the complete answer to the question with this number, or None."""
    if reply.status != 200:
        return f"status {reply.status}: {reply.body[:200].decode(errors='replace')}"
    numbers = {int(match) for match in CASE.findall(reply.body.decode())}
    if numbers != {number}:
        return f"question {number} received an answer about {sorted(numbers)}"
    blocks = reply.body.decode().rstrip("\n").split("\n\n")
    name, _, data = blocks[-1].partition("\ndata: ")
    if name != "event: answered":
        return f"the stream ends with {name}"
    answer = json.loads(data)["answer"]
    if answer["state"] != "answered" or REPLY[:9] not in answer["text"]:
        return f"the answer is {answer['state']}: {answer['text']}"
    return None if b"event: delta\n" in reply.body else "the text was not streamed"


def find_bare_fault(reply: Reply, number: int) -> str | None:
    """Return why the model's own stream is not complete, or None."""
    is_complete = reply.status == 200 and reply.body.rstrip().endswith(b"[DONE]")
    return None if is_complete else f"question {number} received no complete reply from the model"


async def drive(ask: Ask, check: Check, clients: int, seconds: float, fixed: float) -> Outcomes:
    """Let the clients ask one question after the other for these seconds. `fixed` are the seconds of the model.

    The clients begin one after the other over the time of a first reply, as people do not ask in step.
    """
    outcomes = Outcomes()
    numbers = iter(range(1, 10_000_000))
    end = time.monotonic() + seconds

    async def run_client(place: int) -> None:
        await asyncio.sleep(fixed * place / clients)
        while time.monotonic() < end:
            number = next(numbers)
            try:
                reply = await ask(number)
                fault = check(reply, number)
            except (OSError, ValueError, asyncio.IncompleteReadError) as error:
                fault = f"question {number}: {type(error).__name__} {error}"
            if fault is None:
                outcomes.overheads.append(reply.seconds - fixed)
            else:
                outcomes.faults.append(fault)

    async with asyncio.TaskGroup() as group:
        for place in range(clients):
            group.create_task(run_client(place))
    return outcomes


# -- phases -----------------------------------------------------------------------------------------------------------


Row: TypeAlias = tuple[str, str]


async def measure_load(server: ServerProcess, model: ModelProcess, options: argparse.Namespace) -> list[Row]:
    """Return the figures of many clients that stream answers at the same time."""
    fixed = options.first + options.stream

    async def ask(number: int) -> Reply:
        body = {"question": build_question(number), "stream": True}
        return await fetch(server.port, "/api/v1/ask", body)

    await asyncio.gather(*(ask(9_999_000 + number) for number in range(4)))
    cpu, start = server.read_cpu(), time.monotonic()
    outcomes = await drive(ask, find_fault, options.clients, options.seconds, fixed)
    seconds, cpu = time.monotonic() - start, server.read_cpu() - cpu
    answers = len(outcomes.overheads)
    for fault in outcomes.faults[:5]:
        print(f"fault: {fault}", file=sys.stderr)
    return [
        ("clients at the same time", f"{options.clients}"),
        ("time of the model", f"{options.first:g} s, then a stream of {options.stream:g} s"),
        ("seconds", f"{seconds:.0f}"),
        ("answers, complete and each to its client", f"{answers:,} of {answers + len(outcomes.faults):,}"),
        ("answers a second", f"{answers / seconds:.1f}"),
        ("overhead p50, p95, p99", describe_times(outcomes.overheads)),
        (
            "CPU of the server",
            f"{1000 * cpu / max(1, answers):.1f} ms an answer, {100 * cpu / seconds:.0f} % of a core",
        ),
    ]


async def measure_bare(port: int, label: str, options: argparse.Namespace) -> list[Row]:
    """Return the overhead of the same clients that ask the model at this port, itself or through a relay."""

    async def ask(number: int) -> Reply:
        messages = [{"role": "user", "content": build_question(number)}]
        return await fetch(port, "/v1/chat/completions", {"messages": messages, "stream": True})

    seconds = min(options.seconds, 3 * (options.first + options.stream))
    outcomes = await drive(ask, find_bare_fault, options.clients, seconds, options.first + options.stream)
    if outcomes.faults:
        raise SystemExit(f"the model failed: {outcomes.faults[0]}")
    return [(f"{label}, p50, p95, p99", describe_times(outcomes.overheads))]


async def measure_pages(server: ServerProcess, _: ModelProcess, options: argparse.Namespace) -> list[Row]:
    """Return the first byte of the page and the bytes of all that it loads."""
    pages = [await fetch(server.port, "/") for _ in range(options.pages)]
    page = pages[-1]
    if page.status != 200:
        raise SystemExit(f"the page has the status {page.status}")
    paths = sorted({match.decode() for match in LINK.findall(page.body)})
    files = [await fetch(server.port, path) for path in paths]
    sizes = [len(page.body), *(len(file.body) for file in files)]
    return [
        ("first byte of the page p50, p95, p99", describe_times([each.first_byte for each in pages])),
        ("page with all its files", f"{sum(sizes) / 1000:.1f} kB in {len(sizes)} responses"),
    ]


async def measure_disconnections(server: ServerProcess, model: ModelProcess, options: argparse.Namespace) -> list[Row]:
    """Return how many calls of the model stop when the clients hang up in the middle of the stream, and how soon."""
    before = model.read_log()

    async def hang_up(number: int) -> None:
        await fetch(server.port, "/api/v1/ask", {"question": build_question(number), "stream": True}, b"event: delta")

    await asyncio.gather(*(hang_up(8_000_000 + number) for number in range(options.clients)))
    start = time.monotonic()
    while True:
        log = model.read_log()
        calls, stopped = log.calls - before.calls, log.stopped - before.stopped
        finished = log.finished - before.finished
        if stopped + finished >= options.clients or time.monotonic() > start + 30:
            break
        await asyncio.sleep(0.01)
    seconds = time.monotonic() - start
    return [("model calls stopped by closed connections", f"{stopped:,} of {calls:,}, the last after {seconds:.2f} s")]


async def measure_memory(server: ServerProcess, _: ModelProcess, options: argparse.Namespace) -> list[Row]:
    """Return the memory of the server after each tenth of many requests."""
    series = [server.read_memory()]
    step = max(1, options.requests // 10)
    limit = asyncio.Semaphore(MEMORY_CLIENTS)

    async def ask(number: int) -> None:
        async with limit:
            reply = await fetch(server.port, "/api/v1/ask", {"question": build_question(number), "stream": True})
        fault = find_fault(reply, number)
        if fault is not None:
            raise SystemExit(fault)

    for first in range(0, options.requests, step):
        await asyncio.gather(*(ask(7_000_000 + number) for number in range(first, first + step)))
        series.append(server.read_memory())
        print(f"{first + step:,} requests: {series[-1]:.1f} MB", file=sys.stderr)
    second_half = series[len(series) // 2 :]
    growth = second_half[-1] - second_half[0]
    texts = [f"{value:.0f}" for value in series]
    return [
        (f"memory over {options.requests:,} answers, MB", ", ".join(texts)),
        ("growth over the second half", f"{growth:+.1f} MB"),
    ]


def describe_times(seconds: Sequence[float]) -> str:
    """Return the median and the 95th and 99th percentile in milliseconds."""
    if len(seconds) < 2:
        return "no answers"
    cuts = statistics.quantiles(seconds, n=100, method="inclusive")
    return ", ".join(f"{1000 * cuts[percent - 1]:.0f}" for percent in (50, 95, 99)) + " ms"


def build_library(folder: Path) -> Path:
    """Create the library of the demo and return its folder."""
    library = folder / "demo"
    command = [sys.executable, "-m", "epicrisis", "library", "add", str(library), str(ROOT / "demo/documents.jsonl")]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return library


def parse_options() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("phases", nargs="*", choices=("all", *PHASES), default="all")
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long the clients ask")
    parser.add_argument("--first", type=float, default=4.0, help="seconds before the first word of a reply")
    parser.add_argument("--stream", type=float, default=6.0, help="seconds of the stream of a reply")
    parser.add_argument("--requests", type=int, default=10_000, help="answers of the phase memory")
    parser.add_argument("--pages", type=int, default=50, help="how often the page is loaded")
    parser.add_argument("--strategy", default="rag")
    parser.add_argument("--setting", action="append", default=[], help="a setting of the server, KEY=VALUE")
    parser.add_argument("--program", nargs="+", default=["-m", "epicrisis"], help="what Python runs, for profilers")
    options = parser.parse_args()
    options.phases = PHASES if "all" in options.phases else options.phases
    return options


def print_rows(rows: Sequence[Row]) -> None:
    """Print lines of the table at once, so that a run that is broken off leaves its figures."""
    for label, value in rows:
        print(f"| {label} | {value} |", flush=True)


def main() -> None:
    """Run the phases and print their figures as a table."""
    options = parse_options()
    phases = {"load": measure_load, "pages": measure_pages, "disconnect": measure_disconnections}
    print("| figure | value |\n|---|---|")
    print_rows([("cores, shared by clients, model and server", f"{len(os.sched_getaffinity(0))}")])
    with tempfile.TemporaryDirectory() as name:
        library, folder = build_library(Path(name)), Path(name) / "server"
        if set(options.phases) & phases.keys():
            with run_model(ReplyTime(options.first, options.stream)) as model:
                with run_server(library, folder, model, options) as server:
                    for phase, measure in phases.items():
                        if phase in options.phases:
                            print_rows(asyncio.run(measure(server, model, options)))
                if "load" in options.phases:
                    with run_relay(model) as port:
                        print_rows(asyncio.run(measure_bare(port, "the same through a bare FastAPI", options)))
                    print_rows(asyncio.run(measure_bare(model.port, "the same without a server", options)))
        if "memory" in options.phases:
            with run_model(ReplyTime(0.0, 0.0)) as model, run_server(library, folder, model, options) as server:
                print_rows(asyncio.run(measure_memory(server, model, options)))


if __name__ == "__main__":
    main()
