"""Real clusters of Ray on this machine (`make test-ray`), with an encoder that every node finds, and their kills."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from epicrisis.core.protocols import Vectors
from epicrisis.core.types import Document
from epicrisis.corpus.base.reader_base import ReaderItem
from epicrisis.testing.hashing_encoder import HashingEncoder

ENCODER = "slow-hashing"
TOKEN = "t" * 64
_SECONDS_VARIABLE = "SLOW_HASHING_SECONDS"
_PASSAGES_PER_QUESTION = 20
"""A question takes as long as so many passages: a kill finds questions on the way."""
_START_SECONDS = 240.0
_STARTS = 5
"""Ray gives up after the 30 s that a busy machine may need for one of its processes."""


class SlowHashingEncoder(HashingEncoder):
    """A hashing encoder that sleeps for each passage and question, as long as an environment variable says."""

    def encode_passages(self, texts: Sequence[tuple[str, str]]) -> Vectors:
        _sleep(len(texts))
        return super().encode_passages(texts)

    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        _sleep(len(texts) * _PASSAGES_PER_QUESTION)
        return super().encode_queries(texts)


def _sleep(passages: int) -> None:
    time.sleep(float(os.environ.get(_SECONDS_VARIABLE, "0")) * passages)


def install_encoder(folder: Path) -> None:
    """Put a package with the encoder `slow-hashing` into the folder, for the path of this process and of nodes."""
    place = folder / "slow_hashing-1.0.dist-info"
    place.mkdir(parents=True, exist_ok=True)
    (place / "METADATA").write_text("Metadata-Version: 2.1\nName: slow-hashing\nVersion: 1.0\n", encoding="utf-8")
    entry = f"[epicrisis.encoders]\n{ENCODER} = tests.support.ray_cluster:SlowHashingEncoder\n"
    (place / "entry_points.txt").write_text(entry, encoding="utf-8")


def make_environment(packages: Path, encode_seconds: float = 0.0) -> dict[str, str]:
    """Return the environment of a node, and of a command, with the encoder in the folder `packages`."""
    source, root = Path(__file__).parents[2] / "src", Path(__file__).parents[2]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, (source, root, packages))),
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": TOKEN,
        "RAY_USAGE_STATS_ENABLED": "0",
        # Of a node, on a machine with much other work.
        "RAY_raylet_start_wait_time_s": "240",
        _SECONDS_VARIABLE: str(encode_seconds),
    }


def make_documents(count: int) -> list[ReaderItem]:
    """Return documents of one passage each, with different texts."""
    documents: list[ReaderItem] = []
    for number in range(count):
        text = f"Patient cohort {number} received aspirin; outcome {number * 7919 % 1009} was recorded. " * 3
        documents.append(Document(f"doc:{number}", text, title=f"Trial {number}", date="2020"))
    return documents


class RayCluster:
    """A head node without cores, and nodes that can be killed, each of one core. Stop it with `close`."""

    def __init__(self, folder: Path, environment: Mapping[str, str], address: str = "127.0.0.1") -> None:
        self._folder, self._environment, self._address = folder, environment, address
        self._port, self._client_port = _find_port(), _find_port()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def url(self) -> str:
        """What `--on` takes."""
        return f"ray://{self._address}:{self._client_port}"

    def start_head(self) -> None:
        """Start the head, and return when clients can connect."""
        # fmt: off
        self._start("head", [
            "--head", "--num-cpus=0", f"--port={self._port}", f"--ray-client-server-port={self._client_port}",
            "--include-dashboard=false", f"--temp-dir={self._folder / 'r'}",
        ], self._address)
        # fmt: on

    def add_node(self, name: str, address: str | None = None, namespace: str | None = None) -> None:
        """Start a node of one core, and return when it has joined."""
        prefix = [] if namespace is None else ["ip", "netns", "exec", namespace]
        self._start(name, [f"--address={self._address}:{self._port}", "--num-cpus=1"], address or self._address, prefix)

    def kill_node(self, name: str) -> None:
        """Kill the raylet of a node with -9. Its workers end with it."""
        self._kill(name, "raylet/raylet")
        # Otherwise the process that started it stays as a zombie.
        threading.Thread(target=self._processes[name].wait, daemon=True).start()

    def kill_worker(self, name: str) -> bool:
        """Kill a worker of a node with -9. Return whether there was one."""
        return self._kill(name, "ray::")

    def kill_head(self) -> None:
        """Kill the server that knows all nodes. Ray then ends the rest of the head."""
        self._kill("head", "gcs/gcs_server")

    def close(self) -> None:
        """Stop all processes."""
        for process in reversed(self._processes.values()):
            if process.poll() is None:
                process.terminate()
        for process in self._processes.values():
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def wait_dead(self, name: str) -> None:
        """Wait until what was started for a node has ended."""
        self._processes[name].wait(60)

    def _start(self, name: str, options: Sequence[str], address: str, prefix: Sequence[str] = ()) -> None:
        # fmt: off
        command = [
            *prefix, sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats",
            f"--node-ip-address={address}", "--object-store-memory=100000000", *options,
        ]
        # fmt: on
        for _ in range(_STARTS):
            if self._try_start(name, command):
                return
        raise RuntimeError(f"{name} did not start: {self._log(name)[-2000:].decode(errors='replace')}")

    def _try_start(self, name: str, command: Sequence[str]) -> bool:
        with (self._folder / f"{name}.log").open("wb") as log:
            self._processes[name] = subprocess.Popen(
                command, env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + _START_SECONDS
        while b"Ray runtime started" not in self._log(name):
            if self._processes[name].poll() is not None or time.monotonic() > deadline:
                return False
            time.sleep(0.2)
        return True

    def _log(self, name: str) -> bytes:
        return (self._folder / f"{name}.log").read_bytes()

    def _kill(self, name: str, program: str) -> bool:
        for pid in list_descendants(self._processes[name].pid):
            try:
                line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if program in line and "Agent" not in line and "ray.util.client" not in line:
                os.kill(pid, signal.SIGKILL)
                return True
        return False


@contextmanager
def run_cluster(folder: Path, environment: Mapping[str, str], nodes: int) -> Iterator[RayCluster]:
    """Give a cluster with nodes `node-0`, `node-1`..."""
    cluster = RayCluster(folder, environment)
    try:
        cluster.start_head()
        for number in range(nodes):
            cluster.add_node(f"node-{number}")
        yield cluster
    finally:
        cluster.close()


def _find_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def list_descendants(pid: int) -> list[int]:
    """Return the ids of all processes below a process."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(path.parent.name))
    pending, found = [pid], []
    while pending:
        for child in children.get(pending.pop(), []):
            found.append(child)
            pending.append(child)
    return found
