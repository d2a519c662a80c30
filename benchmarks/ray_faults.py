"""Kills of Ray's nodes during additions: documents lost, documents twice, wrong vectors.

    PYTHONPATH=. .venv-ray/bin/python benchmarks/ray_faults.py 30 FOLDER    # needs root: network namespaces

A head in this network namespace and two nodes in namespaces of their own, joined by veth pairs and a bridge. Each
addition of 400 documents runs as `epicrisis library add --on ray://...` in a process of its own, and at a random moment
a raylet (the node) or a worker is killed with -9. At the end: a node whose link is cut, a command that is killed and
repeated, and a head that is killed. After each addition every passage of the library is compared with its text.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from epicrisis.library.library import LibraryStore
from epicrisis.testing.encoders import HashingEncoder
from epicrisis.types import Document
from tests.support.ray_cluster import ENCODER, RayCluster, install_encoder, make_documents, make_environment

DOCUMENTS = 400
ENCODE_SECONDS = 0.03
BRIDGE, HEAD = "epi-br", "10.77.0.1"
NODES = {"node-0": "10.77.0.2", "node-1": "10.77.0.3"}


def main() -> None:
    """Run the kills and print one line each, and the sums."""
    kills, folder = int(sys.argv[1]), Path(sys.argv[2]).absolute()
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "packages").mkdir(parents=True)
    install_encoder(folder / "packages")
    environment = make_environment(folder / "packages", ENCODE_SECONDS)
    write_source(folder / "source.jsonl")
    random.seed(29)
    cluster = RayCluster(folder / "ray", environment, HEAD)
    trial = Trial(folder, environment, cluster)
    make_namespaces()
    try:
        cluster.start_head()
        for name, address in NODES.items():
            cluster.add_node(name, address, name)
        trial.run("no kill", lambda: None)
        for number in range(kills):
            name = random.choice(list(NODES))
            if number % 2:
                trial.run(f"worker of {name}", partial(cluster.kill_worker, name))
            else:
                trial.run(f"raylet of {name}", partial(cluster.kill_node, name))
                cluster.add_node(name, NODES[name], name)
        trial.run("link of node-1 cut", lambda: set_link("node-1", "down"))
        set_link("node-1", "up")
        trial.run("command killed and repeated", None)
        trial.run("head killed, started again", cluster.kill_head, repeat=lambda: restart(cluster))
    finally:
        cluster.close()
        remove_namespaces()
    print(json.dumps(trial.sums))


class Trial:
    """Additions to a new library each, and what is wrong with them."""

    def __init__(self, folder: Path, environment: dict[str, str], cluster: RayCluster) -> None:
        self._folder, self._environment, self._cluster = folder, environment, cluster
        self.sums: Counter[str] = Counter()

    def run(self, what: str, fault: Callable[[], object] | None, repeat: Callable[[], None] | None = None) -> None:
        """Add the documents, do `fault` at a random moment (None: kill the command), and print a line."""
        library = self._folder / f"library-{self.sums['additions']}"
        start = time.monotonic()
        process = self._start(library)
        while not (library / "manifest.json").exists() and process.poll() is None:
            time.sleep(0.05)
        time.sleep(random.uniform(0.1, DOCUMENTS * ENCODE_SECONDS / 2 * 0.8))
        was_running = process.poll() is None
        if fault is None:
            os.kill(process.pid, signal.SIGKILL)
        else:
            fault()
        output = process.communicate(timeout=600)[0].decode(errors="replace").strip()
        lines = [] if process.returncode == 0 else [f"rc {process.returncode}: {output}"]
        if repeat is not None:
            repeat()
        if fault is None or repeat is not None:
            process = self._start(library)
            output = process.communicate(timeout=600)[0].decode(errors="replace").strip()
        faults = count_faults(library)
        self.sums.update(faults)
        self.sums.update({"additions": 1, "during": was_running, "failed": process.returncode != 0})
        print(f"{what}: {time.monotonic() - start:.0f} s, {dict(faults)}, rc {process.returncode}", *lines, flush=True)
        if process.returncode:
            print(output, flush=True)
        shutil.rmtree(library, ignore_errors=True)

    def _start(self, library: Path) -> subprocess.Popen[bytes]:
        program = Path(sys.executable).with_name("epicrisis")
        command: list[Path | str] = [
            program,
            "library",
            "add",
            library,
            self._folder / "source.jsonl",
            "--encoder",
            ENCODER,
        ]
        return subprocess.Popen(
            [*command, "--on", self._cluster.url],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )


def count_faults(library: Path) -> Counter[str]:
    """Compare each passage of the library with the texts."""
    expected = [document for document in make_documents(DOCUMENTS) if isinstance(document, Document)]
    encoder = HashingEncoder()
    numbers: Counter[str] = Counter()
    faults = Counter({"lost": 0, "twice": 0, "wrong vector": 0})
    with LibraryStore.open(library) as store:
        faults["problems"] = len(store.info().problems)
        for rows in store.open_table().batches():
            numbers.update(row.passage.document_id for row in rows)
        vectors = store.vectors_of([document.id for document in expected])
    for document in expected:
        vector = encoder.encode_passages([(document.title, document.text)])[0]
        stored = vectors.get((document.title, document.text.strip()), np.zeros(encoder.dimensions))
        faults["wrong vector"] += not np.allclose(stored, vector, atol=1e-3)
    expected_ids = {document.id for document in expected}
    faults["lost"] = len(expected_ids - numbers.keys())
    faults["twice"] = sum(number - 1 for number in numbers.values())
    return faults


def write_source(path: Path) -> None:
    """Write the documents as JSONL."""
    with path.open("w", encoding="utf-8") as file:
        for document in make_documents(DOCUMENTS):
            assert isinstance(document, Document)
            row = {"id": document.id, "title": document.title, "text": document.text, "date": document.date}
            file.write(json.dumps(row) + "\n")


def restart(cluster: RayCluster) -> None:
    """Wait for the end of all processes, and start head and nodes again."""
    cluster.close()
    cluster.start_head()
    for name, address in NODES.items():
        cluster.add_node(name, address, name)


def make_namespaces() -> None:
    """Make a bridge, and a namespace for each node with a link to it."""
    remove_namespaces()
    ip(f"link add {BRIDGE} type bridge", f"addr add {HEAD}/24 dev {BRIDGE}", f"link set {BRIDGE} up")
    for name, address in NODES.items():
        ip(
            f"netns add {name}",
            f"link add v-{name} type veth peer name eth0 netns {name}",
            f"link set v-{name} master {BRIDGE} up",
            f"-n {name} addr add {address}/24 dev eth0",
            f"-n {name} link set eth0 up",
            f"-n {name} link set lo up",
        )


def remove_namespaces() -> None:
    """Remove what `make_namespaces` made."""
    for name in NODES:
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", f"v-{name}"], capture_output=True, check=False)
    subprocess.run(["ip", "link", "del", BRIDGE], capture_output=True, check=False)


def set_link(name: str, state: str) -> None:
    """Cut the link of a node, or join it again."""
    ip(f"link set v-{name} {state}")


def ip(*commands: str) -> None:
    """Run commands of `ip`."""
    for command in commands:
        subprocess.run(["ip", *command.split()], check=True, capture_output=True)


if __name__ == "__main__":
    main()
