"""`epicrisis ask --file` and `evaluate` over many questions against a pool of endpoints that delay, refuse and die.

    PYTHONPATH=. python benchmarks/question_file.py FOLDER --library LIBRARY --questions 1000 10000 100000
    PYTHONPATH=. python benchmarks/question_file.py FOLDER --library LIBRARY --questions 10000 --kills 30
    PYTHONPATH=. python benchmarks/question_file.py FOLDER --library LIBRARY --questions 10000 --command evaluate
    PYTHONPATH=. python benchmarks/question_file.py FOLDER --library LIBRARY --strategy rag --setting unverified=keep

The command runs as a user would run it. Each endpoint is a process of its own: a real HTTP server on loopback that
waits, then streams a reply which repeats the number of the question. It refuses what exceeds its places (429). With
`--kills`, endpoints die by `kill -9` at random moments and return seconds later, and the command itself is killed as
often and continued. With `--on local`, the command searches on a cluster of Ray that it starts, and `--worker-kills`
kills that many of its workers.

Prints a line of JSON for each number of questions: questions per second, CPU a question (of the command alone, of all
that it started, and of Ray's workers), peak memory, and what became of the answers: lost, twice in the file, with the
number of another question.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NUMBER = re.compile(rb"case (\d{7})")
LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")
MODEL = "scripted"
REPLY = (
    "In case {}, the trial reports the result that the quoted sentence states, and nothing in the other documents "
    "that were read says otherwise for patients like those of the trial."
)
STARTUP_SECONDS = 20.0


# -- an endpoint ------------------------------------------------------------------------------------------------------


class _Calls(asyncio.Protocol):
    """One connection to the endpoint. Every call in it is answered after a random delay around the mean."""

    places = 0
    delay = 0.0
    in_flight = 0
    words = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._buffer = b""

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, separator, rest = self._buffer.partition(b"\r\n\r\n")
        length = LENGTH.search(head)
        size = int(length[1]) if length else 0
        if not separator or len(rest) < size:
            return
        self._buffer = rest[size:]
        path, body = head.split(b" ", 2)[1], rest[:size]
        if path.endswith(b"/chat/completions"):
            self._call(body)
        elif path.endswith(b"/models"):
            listing = {"object": "list", "data": [{"id": MODEL, "object": "model", "max_model_len": 32768}]}
            self._send(b"200 OK", json.dumps(listing).encode())
        elif path.endswith(b"/tokenize"):
            self._send(b"200 OK", json.dumps({"count": len(body) // 4 + 1}).encode())
        else:
            self._send(b"404 Not Found", b"{}")

    def _call(self, body: bytes) -> None:
        kind = type(self)
        if kind.in_flight >= kind.places:
            self._send(b"429 Too Many Requests", b'{"error": {"message": "busy"}}', b"Retry-After: 1\r\n")
            return
        kind.in_flight += 1
        asyncio.get_running_loop().call_later(kind.delay * random.uniform(0.5, 1.5), self._reply, body)

    def _reply(self, body: bytes) -> None:
        type(self).in_flight -= 1
        numbers = NUMBER.findall(body)
        text = REPLY.format(numbers[-1].decode() if numbers else "0000000")
        request = json.loads(body)
        properties = ((request.get("response_format") or {}).get("json_schema") or {}).get("schema", {})
        content = _fill(properties, text) if properties else text
        usage = {"prompt_tokens": len(body) // 4 + 1, "completion_tokens": len(content.split())}
        head = {"id": "1", "object": "chat.completion", "created": 0, "model": MODEL}
        if not request.get("stream"):
            message = {"role": "assistant", "content": content}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            self._send(b"200 OK", json.dumps({**head, "choices": [choice], "usage": usage}).encode())
            return
        pieces = re.findall(r"\S+\s*|\s+", content) if self.words else [content]
        events = []
        for piece in pieces:
            events.append({**head, "choices": [{"index": 0, "delta": {"content": piece}, "finish_reason": None}]})
        events.append({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        events.append({**head, "choices": [], "usage": usage})
        stream = b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in events) + b"data: [DONE]\n\n"
        self._send(b"200 OK", stream, kind=b"text/event-stream")

    def _send(self, status: bytes, body: bytes, headers: bytes = b"", kind: bytes = b"application/json") -> None:
        if self._transport.is_closing():
            return
        head = b"HTTP/1.1 %b\r\nContent-Type: %b\r\nContent-Length: %d\r\n%b\r\n" % (status, kind, len(body), headers)
        self._transport.write(head + body)


def _fill(schema: dict[str, Any], text: str) -> str:
    from tests.support.replies import fill

    return json.dumps(fill(schema, {"found": True}, text))


async def serve(port: int, places: int, delay: float, *, words: bool) -> None:
    """Answer calls at this port until the process ends."""
    _Calls.places, _Calls.delay, _Calls.words = places, delay, words
    server = await asyncio.get_running_loop().create_server(_Calls, "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


class Endpoint:
    """The process of one endpoint, at a port that stays the same when it is started again."""

    def __init__(self, places: int, delay: float, *, words: bool) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self._options = [str(places), str(delay), str(int(words))]
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def start(self) -> None:
        """Start the process, and return when it answers."""
        command = [sys.executable, __file__, "--serve", str(self.port), *self._options]
        self._process = subprocess.Popen(command)
        end = time.monotonic() + STARTUP_SECONDS
        while time.monotonic() < end:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.02)
        raise SystemExit("an endpoint did not start")

    def kill(self) -> None:
        """Kill the process (SIGKILL)."""
        self._process.kill()
        self._process.wait()


@contextmanager
def open_endpoints(count: int, places: int, delay: float, *, words: bool) -> Iterator[list[Endpoint]]:
    """Run this many endpoints during the block."""
    endpoints: list[Endpoint] = []
    try:
        for _ in range(count):
            endpoints.append(Endpoint(places, delay, words=words))
        yield endpoints
    finally:
        for endpoint in endpoints:
            endpoint.kill()


# -- the run ----------------------------------------------------------------------------------------------------------


def write_questions(path: Path, count: int, library: Path | None = None) -> None:
    """Write a file of numbered questions, each with eight words of a passage of the library, if one is given."""
    topics = ["does aspirin lower the risk there"]
    if library is not None:
        from epicrisis.core.types import Scope
        from epicrisis.library.core.library_store import LibraryStore
        from epicrisis.library.core.passage_lookup import sample_passages

        with LibraryStore.open(library) as store:
            passages = sample_passages(store, min(count, 1000), 0, Scope())
        topics = [" ".join(passage.text.split()[:8]) for passage in passages]
    with path.open("w", encoding="utf-8") as file:
        for number in range(count):
            topic = topics[number % len(topics)]
            text = f"What does the trial report in case {number:07d}, and {topic}?"
            file.write(json.dumps({"id": f"q{number:07d}", "text": text}) + "\n")


class Killer(threading.Thread):
    """Kills one endpoint after another at random moments; each returns seconds later. One always runs."""

    def __init__(self, endpoints: Sequence[Endpoint], pause: float, seed: int) -> None:
        super().__init__(daemon=True)
        self._endpoints, self._pause, self._random = endpoints, pause, random.Random(seed)
        self._has_ended = threading.Event()
        self.kills = 0

    def run(self) -> None:
        while not self._has_ended.wait(self._random.uniform(0.2, 2 * self._pause)):
            endpoint = self._random.choice(self._endpoints)
            endpoint.kill()
            self.kills += 1
            self._has_ended.wait(self._random.uniform(0.0, self._pause))
            endpoint.start()

    def stop(self) -> None:
        """End the thread. Every endpoint runs again."""
        self._has_ended.set()
        self.join()


class ProcessTree(threading.Thread):
    """Adds up the CPU time of a command and of all that it starts, and kills workers of Ray among them."""

    def __init__(self, pid: int, kills: int, pause: float, seed: int) -> None:
        super().__init__(daemon=True)
        self._pid, self._left, self._pause, self._random = pid, kills, pause, random.Random(seed)
        self._has_ended = threading.Event()
        self._seconds: dict[int, float] = {}
        self._searching: set[int] = set()
        self.kills = 0

    def run(self) -> None:
        next_kill = 0.0
        while not self._has_ended.wait(0.1):
            workers = self._look()
            if not workers or not self._left:
                continue
            if not next_kill:
                next_kill = time.monotonic() + self._random.uniform(0.5, self._pause)
            elif time.monotonic() > next_kill:
                os.kill(self._random.choice(workers), signal.SIGKILL)
                self.kills, self._left = self.kills + 1, self._left - 1
                next_kill = time.monotonic() + self._random.uniform(0.1, 2 * self._pause)

    def stop(self) -> tuple[float, float]:
        """End the thread. Return the CPU seconds of all processes, and of Ray's workers among them."""
        self._has_ended.set()
        self.join()
        return sum(self._seconds.values()), sum(self._seconds[pid] for pid in self._searching)

    def _look(self) -> list[int]:
        """Read the CPU time of every process, and return those that search."""
        children: dict[int, list[int]] = {}
        seconds: dict[int, float] = {}
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = path.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            children.setdefault(int(fields[1]), []).append(int(path.parent.name))
            seconds[int(path.parent.name)] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        workers, pending = [], [self._pid]
        while pending:
            pid = pending.pop()
            pending += children.get(pid, [])
            self._seconds[pid] = max(self._seconds.get(pid, 0.0), seconds.get(pid, 0.0))
            try:
                name = Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:
                continue
            if name.startswith(b"ray::search_block"):
                workers.append(pid)
                self._searching.add(pid)
        return workers


def run_command(
    command: Sequence[str], log: Path, *, kill_after: float | None, worker_kills: int = 0, pause: float = 1.0
) -> tuple[int, float, int, dict[str, float]]:
    """Run the command. Return its exit code, its CPU seconds, its peak memory in bytes, and those of its processes."""
    with log.open("ab") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, stdin=subprocess.DEVNULL)
        tree = ProcessTree(process.pid, worker_kills, pause, worker_kills)
        tree.start()
        timer = None
        if kill_after is not None:
            timer = threading.Timer(kill_after, process.send_signal, (signal.SIGKILL,))
            timer.start()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if timer is not None:
            timer.cancel()
    seconds, searching = tree.stop()
    figures = {"all": seconds, "workers": searching, "kills of workers": tree.kills}
    return process.returncode, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, figures


def check_answers(path: Path, count: int) -> dict[str, int]:
    """Count the answers that are lost, twice there, of another question, or not in the order of the questions."""
    seen: Counter[str] = Counter()
    wrong = failed = out_of_order = 0
    last = ""
    with path.open(encoding="utf-8") as file:
        for line in file:
            answer = json.loads(line)["answer"]
            name = answer["question"]["id"]
            if answer["state"] == "failed":
                failed += 1
                continue
            seen[name] += 1
            wrong += f"case {name[1:]}" not in answer["text"]
            out_of_order += name < last
            last = name
    twice = sum(1 for times in seen.values() if times > 1)
    return {"lost": count - len(seen), "twice": twice, "wrong": wrong, "failed": failed, "out of order": out_of_order}


def measure(options: argparse.Namespace, endpoints: Sequence[Endpoint], count: int) -> dict[str, Any]:
    """Run the command over `count` questions, and continue it as often as it is killed."""
    folder = options.folder / f"{options.command}-{count}-{os.getpid()}"
    folder.mkdir(parents=True)
    questions, log = folder / "questions.jsonl", folder / "log"
    write_questions(questions, count, None if options.strategy == "closed-book" else options.library)
    model = ",".join(endpoint.url for endpoint in endpoints) + f"#{MODEL}"
    program = [sys.executable, "-m", "epicrisis", options.command]
    if options.command == "ask":
        output = folder / "answers.jsonl"
        program += [str(options.library), "--file", str(questions), "-o", str(output)]
    else:
        output = folder / "run" / "records.jsonl"
        program += [str(questions), "--library", str(options.library), "-o", str(folder / "run")]
    program += ["--yes", "--model", model, "--strategy", options.strategy, "--by", options.by, "--json"]
    program += [
        "--setting",
        f"models.writer.concurrency={options.calls}",
        "--setting",
        f"cache.path={folder / 'cache'}",
    ]
    for setting in options.setting:
        program += ["--setting", setting]
    if options.on:
        program += ["--on", options.on]
    killer = Killer(endpoints, options.pause, count)
    if options.kills:
        killer.start()
    start, cpu, memory, restarts, code = time.monotonic(), 0.0, 0, 0, -signal.SIGKILL
    chance = random.Random(count)
    while code == -signal.SIGKILL:
        is_killed = restarts < options.restarts
        kill_after = chance.uniform(2.0, 2 * options.restart_pause) if is_killed else None
        code, seconds, peak, processes = run_command(
            program, log, kill_after=kill_after, worker_kills=options.worker_kills, pause=options.worker_pause
        )
        cpu, memory, restarts = cpu + seconds, max(memory, peak), restarts + is_killed
    elapsed = time.monotonic() - start
    if options.kills:
        killer.stop()
    return {
        "questions": count,
        "exit code": code,
        "questions per second": round(count / elapsed, 1),
        "CPU ms a question": round(1000 * cpu / count, 2),
        **({"on": options.on} if options.on else {}),
        "CPU ms of all processes": round(1000 * processes["all"] / count, 2),
        "CPU ms of workers": round(1000 * processes["workers"] / count, 2),
        "kills of workers": processes["kills of workers"],
        "peak memory MB": round(memory / 1e6),
        "file MB": round(output.stat().st_size / 1e6, 1),
        "kills of endpoints": killer.kills,
        "kills of the command": restarts if options.restarts else 0,
        **check_answers(output, count),
    }


def main() -> None:
    """Run the measurement that the options name."""
    if sys.argv[1:2] == ["--serve"]:
        port, places, delay, words = sys.argv[2:]
        asyncio.run(serve(int(port), int(places), float(delay), words=words == "1"))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--library", type=Path, required=True)
    parser.add_argument("--questions", type=int, nargs="+", default=[1000])
    parser.add_argument("--command", choices=("ask", "evaluate"), default="ask")
    parser.add_argument("--strategy", default="closed-book")
    parser.add_argument("--by", default="bm25")
    parser.add_argument("--endpoints", type=int, default=4)
    parser.add_argument("--places", type=int, default=32, help="calls that an endpoint answers at once")
    parser.add_argument("--calls", type=int, default=32, help="setting concurrency")
    parser.add_argument("--delay", type=float, default=0.2, help="seconds of a reply, on average")
    parser.add_argument("--whole", action="store_true", help="replies in one piece, not word by word")
    parser.add_argument("--kills", action="store_true", help="kill endpoints all the time")
    parser.add_argument("--restarts", type=int, default=0, help="kills of the command itself")
    parser.add_argument("--pause", type=float, default=3.0, help="seconds between kills, on average")
    parser.add_argument(
        "--restart-pause", type=float, default=6.0, help="seconds until the command is killed, on average"
    )
    parser.add_argument("--on", help="search on this cluster of Ray, such as local")
    parser.add_argument("--worker-kills", type=int, default=0, help="kills of Ray's workers, with --on local")
    parser.add_argument("--worker-pause", type=float, default=1.0, help="seconds between them, on average")
    parser.add_argument("--setting", action="append", default=[])
    options = parser.parse_args()
    with open_endpoints(options.endpoints, options.places, options.delay, words=not options.whole) as endpoints:
        for count in options.questions:
            print(json.dumps(measure(options, endpoints, count)), flush=True)


if __name__ == "__main__":
    main()
