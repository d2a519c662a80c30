"""Let many users search several libraries in turn, each through its own `epicrisis serve`, and compare what they wait.

    python benchmarks/many_users.py adopt LIBRARY          # a library of large_library.py gets the name of MiniLM
    python benchmarks/many_users.py FOLDER@1 FOLDER@2 URL@2 --users 200 --pause 20 --seconds 60 --rounds 2

`@2` starts two server processes, with the users split over both. All servers run all the time; each round loads one
library after the other with the same questions, so that other work on the machine meets all of them. A user searches,
reads for the pause (half to one and a half of it), and searches again; `--pause 0` shows the most that a library can
do. `--database-pid` is the server of the database, whose CPU seconds are counted then.

The vectors of `large_library.py` are synthetic. `adopt` writes the name of MiniLM, which has as many dimensions, into
the manifest, so that the servers encode every question as they would for real vectors: times are real, hits are not.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from server_load import ServerProcess, describe_times, fetch, wait_until_ready

WORDS = 300_000
HIGH_RANK = 16


@dataclasses.dataclass
class Waits:
    """What the users of one library received."""

    seconds: list[float] = dataclasses.field(default_factory=list)
    faults: list[str] = dataclasses.field(default_factory=list)
    duration: float = 0.0
    cpu: float = 0.0
    database_cpu: float = 0.0


def main() -> None:
    """Start the servers, run the rounds, and print a table."""
    if sys.argv[1:2] == ["adopt"]:
        adopt_encoder(sys.argv[2])
        return
    options = parse_options()
    searches = list(dict.fromkeys(options.by))
    print(
        "| library | search | users, pause | searches, faults | a second | p50, p95, p99 | CPU of servers, database |"
    )
    print("|---|---|---|---|---|---|---|")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        servers: dict[str, list[ServerProcess]] = {}
        for number, name in enumerate(options.libraries):
            place, _, processes = name.rpartition("@")
            servers[name] = []
            for process in range(int(processes)):
                home = folder / f"{number}-{process}"
                servers[name].append(stack.enter_context(run_server(place, home)))
        for by in searches:
            waits = {name: Waits() for name in servers}
            for round_ in range(options.rounds):
                for name, processes in servers.items():
                    measure(processes, waits[name], by, round_, options)
            for number, (name, wait) in enumerate(waits.items()):
                print_row(f"{number + 1}: {len(servers[name])} processes", by, wait, options)


def adopt_encoder(place: str) -> None:
    """Write MiniLM's name and fingerprint into the manifest of a library."""
    from epicrisis.library.base.manifest import NAME, read_manifest, write_manifest
    from epicrisis.library.core.journal import Journal
    from epicrisis.library.engines.checksums import ChecksumChanges, sha256
    from epicrisis.library.postgresql.database import find_database
    from epicrisis.models.model_pool import ModelPool
    from epicrisis.settings.configuration import load_settings
    from epicrisis.system.remote_libraries import library_folder

    encoder = ModelPool().load_encoder("minilm", load_settings())
    names: dict[str, Any] = {
        "encoder_name": "minilm",
        "encoder_fingerprint": encoder.fingerprint,
        "max_tokens": encoder.max_tokens,
    }
    path = library_folder(place)
    manifest = dataclasses.replace(read_manifest(path), **names)
    if "://" not in place:
        write_manifest(path, manifest)
        with closing(Journal(path)) as journal:
            journal.set_files(ChecksumChanges({NAME: sha256(path / NAME)}))
        return
    text = json.dumps(dataclasses.asdict(manifest), sort_keys=True)
    with find_database(path).connect() as connection:
        connection.execute("UPDATE library SET manifest = %s", (text,))


@contextmanager
def run_server(place: str, folder: Path) -> Iterator[ServerProcess]:
    """Run `epicrisis serve` over the library until the end of the block, and wait until it answers."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "epicrisis", "serve", place, "--port", str(port), "--folder", str(folder)]
    process = subprocess.Popen([*command, "--max-questions", "400"], stdout=subprocess.DEVNULL)
    try:
        asyncio.run(wait_until_ready(process, port))
        yield ServerProcess(process.pid, port)
    finally:
        process.terminate()
        process.wait(timeout=90)


def measure(servers: Sequence[ServerProcess], waits: Waits, by: str, round_: int, options: argparse.Namespace) -> None:
    """Let the users search one library for the seconds of a round, and add what they received."""
    questions = write_questions(round_)
    asyncio.run(search_all(servers, Waits(), by, questions, 16, 2.0, 0.0))
    cpu, database = sum(server.read_cpu() for server in servers), read_tree_cpu(options.database_pid)
    started = time.monotonic()
    asyncio.run(search_all(servers, waits, by, questions, options.users, options.seconds, options.pause))
    waits.duration += time.monotonic() - started
    waits.cpu += sum(server.read_cpu() for server in servers) - cpu
    waits.database_cpu += read_tree_cpu(options.database_pid) - database


def write_questions(round_: int) -> list[str]:
    """Return questions of six words by the law of the library's texts, the same for every library."""
    dice = random.Random(round_)
    questions = []
    for _ in range(5000):
        words = [f"w{int(WORDS ** dice.random())}" for _ in range(6)]
        questions.append(" ".join(words))
    return questions


async def search_all(
    servers: Sequence[ServerProcess],
    waits: Waits,
    by: str,
    questions: Sequence[str],
    users: int,
    seconds: float,
    pause: float,
) -> None:
    """Let the users search for these seconds. They begin one after the other within the first pause."""
    end = time.monotonic() + seconds
    numbers = iter(range(10_000_000))

    async def search_as_user(user: int) -> None:
        dice = random.Random(user)
        server = servers[user % len(servers)]
        await asyncio.sleep(pause * user / users)
        while time.monotonic() < end:
            body = {"query": questions[next(numbers) % len(questions)], "settings": {"by": by, "k": HIGH_RANK}}
            try:
                reply = await fetch(server.port, "/api/v1/search", body)
                hits = json.loads(reply.body)["hits"] if reply.status == 200 else None
                fault = f"status {reply.status}: {reply.body[:200]!r}" if not hits else None
            except (OSError, ValueError, KeyError, asyncio.IncompleteReadError) as error:
                fault = f"{type(error).__name__} {error}"
            if fault is None:
                waits.seconds.append(reply.seconds)
            else:
                waits.faults.append(fault)
                print(f"fault: {fault}", file=sys.stderr)
            await asyncio.sleep(min(pause * dice.uniform(0.5, 1.5), max(0.0, end - time.monotonic())))

    async with asyncio.TaskGroup() as group:
        for user in range(users):
            group.create_task(search_as_user(user))


def read_tree_cpu(pid: int | None) -> float:
    """Return the CPU seconds of a process, of its children, and of those that have ended."""
    if pid is None:
        return 0.0
    ticks = 0
    for path in Path("/proc").iterdir():
        if not path.name.isdigit():
            continue
        try:
            numbers = (path / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:
            continue
        if int(path.name) == pid:
            ticks += sum(map(int, numbers[11:15]))
        elif int(numbers[1]) == pid:
            ticks += sum(map(int, numbers[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def print_row(name: str, by: str, waits: Waits, options: argparse.Namespace) -> None:
    """Print the figures of one library."""
    count = len(waits.seconds)
    per_search = 1000 / max(1, count)
    cells = [
        name,
        by,
        f"{options.users}, {options.pause:g} s",
        f"{count:,}, {len(waits.faults)}",
        f"{count / waits.duration:.1f}",
        describe_times(waits.seconds),
        f"{waits.cpu * per_search:.1f}, {waits.database_cpu * per_search:.1f} ms a search",
    ]
    print(f"| {' | '.join(cells)} |", flush=True)


def parse_options() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("libraries", nargs="+", help="a folder or URL, @ and the number of server processes")
    parser.add_argument("--users", type=int, default=200)
    parser.add_argument("--pause", type=float, default=20.0, help="mean seconds between two searches of a user")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long a round of one library takes")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--by", nargs="+", default=["hybrid", "bm25"])
    parser.add_argument("--database-pid", type=int)
    return parser.parse_args()


if __name__ == "__main__":
    main()
