"""Two machines that use a library on object storage over a slow network: how long each step takes.

    PYTHONPATH=. python benchmarks/object_storage_latency.py SOURCE FOLDER [MILLISECONDS]    # as root, on Linux

Each machine is a network namespace of its own. Between it and the server (SeaweedFS) is a proxy that holds everything
back for so many milliseconds in each direction (20 by default), the handshake of a connection included. The steps and
SOURCE are those of `object_storage_growth.py`.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from tests.support.s3_server import run_s3_server, set_environment

MACHINES = ("reader1", "reader2")
STEPS = Path(__file__).with_name("object_storage_growth.py")
_PIECE = 1 << 16


def main() -> None:
    """Copy the library to the bucket without delay, then run the steps of both machines."""
    source, folder = sys.argv[1], Path(sys.argv[2]).absolute()
    delay = float(sys.argv[3] if len(sys.argv) > 3 else 20) / 1000
    shutil.rmtree(folder, ignore_errors=True)
    with run_s3_server(folder / "server") as server, make_machines() as addresses:
        set_environment(server, folder / "writer")
        start_step("", source, folder, "copy")
        target = urlsplit(server.url)
        for address in addresses.values():
            threading.Thread(target=run_proxy, args=(address, int(target.port or 0), delay), daemon=True).start()
        time.sleep(1)
        for steps in (("first download", "first download"), ("open", "open"), ("small additions", ""), ("", "refresh")):
            running = {}
            for machine, step in zip(MACHINES, steps, strict=True):
                os.environ["EPICRISIS_HOME"] = str(folder / machine)
                os.environ["AWS_ENDPOINT_URL"] = f"http://{addresses[machine]}:{target.port}"
                if step:
                    running[f"{machine}, {step}"] = start_step(machine, source, folder, step)
            for name, process in running.items():
                print(name, process.communicate()[0].strip(), flush=True)


def start_step(machine: str, source: str, folder: Path, step: str) -> subprocess.Popen[str]:
    """Start a step on a machine. Without the name of one it runs here, to its end."""
    prefix = ["ip", "netns", "exec", machine] if machine else []
    command = [*prefix, sys.executable, str(STEPS), source, str(folder), step, "step"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    if not machine:
        print(step, process.communicate()[0].strip(), flush=True)
    return process


@contextmanager
def make_machines() -> Iterator[dict[str, str]]:
    """Make the namespaces, and map each to the address at which it reaches this machine."""
    addresses = {}
    try:
        for number, machine in enumerate(MACHINES, start=81):
            addresses[machine] = f"10.99.{number}.1"
            for command in (
                f"ip netns add {machine}",
                f"ip link add to-{machine} type veth peer name eth0 netns {machine}",
                f"ip address add 10.99.{number}.1/24 dev to-{machine}",
                f"ip link set to-{machine} up",
                f"ip -n {machine} address add 10.99.{number}.2/24 dev eth0",
                f"ip -n {machine} link set eth0 up",
                f"ip -n {machine} link set lo up",
            ):
                subprocess.run(command.split(), check=True)
        yield addresses
    finally:
        for machine in addresses:
            subprocess.run(["ip", "netns", "delete", machine], check=False)


def run_proxy(address: str, port: int, delay: float) -> None:
    """Accept connections at the address, and pass them on to the same port of this machine with the delay."""

    async def send_late(source: asyncio.StreamReader, target: asyncio.StreamWriter, first: float) -> None:
        pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def read() -> None:
            extra, piece = first, b"-"
            while piece:
                piece = await source.read(_PIECE)
                pieces.put_nowait((time.monotonic() + delay + extra, piece))
                extra = 0.0

        reading = asyncio.create_task(read())
        while True:
            due, piece = await pieces.get()
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            if not piece:
                break
            target.write(piece)
            await target.drain()
        await reading
        target.close()

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", port)
        # A handshake takes one way there and one back before the first byte can leave.
        await asyncio.gather(send_late(reader, back, 2 * delay), send_late(there, writer, 0.0), return_exceptions=True)

    async def serve() -> None:
        async with await asyncio.start_server(pass_on, address, port) as proxy:
            await proxy.serve_forever()

    asyncio.run(serve())


if __name__ == "__main__":
    main()
