"""Kills of Ray's nodes during additions: documents lost, documents twice, wrong vectors.

    PYTHONPATH=. .venv-ray/bin/python benchmarks/ray_faults.py 30 FOLDER    # needs root: network namespaces

A head in this network namespace and two nodes in namespaces of their own, joined by veth pairs and a bridge. Each
addition of 3,000 documents runs as `epicrisis library add --on ray://...` in a process of its own. Meanwhile raylets
(the nodes) and workers are killed with -9 at random moments, and killed nodes are started again. At the end: a node
whose link is cut, a command that is killed and repeated, and a head that is killed. After each addition every passage
of the library is compared with its text.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import numpy as np

from epicrisis.core.types import Document
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.testing.hashing_encoder import HashingEncoder
from tests.support.node_networks import HEAD, NODES, make_namespaces, set_link
from tests.support.ray_cluster import ENCODER, RayCluster, install_encoder, make_documents, make_environment

DOCUMENTS = 3000
ENCODE_SECONDS = 0.03


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
    with make_namespaces(), closing(cluster):
        cluster.start_head()
        for name, address in NODES.items():
            cluster.add_node(name, address, name)
        while trial.sums["kills"] < kills:
            trial.run("kills", partial(trial.kill_repeatedly, kills))
        trial.run("link of node-1 cut", lambda _: set_link("node-1", "down"))
        set_link("node-1", "up")
        trial.run("command killed and repeated", lambda process: process.kill(), is_repeated=True)
        trial.run("head killed, repeated on a new cluster", trial.replace_head, is_repeated=True)
    print(json.dumps(trial.sums))


class Trial:
    """Additions to a new library each, and what is wrong with them."""

    def __init__(self, folder: Path, environment: dict[str, str], cluster: RayCluster) -> None:
        self._folder, self._environment, self._cluster = folder, environment, cluster
        self.sums: Counter[str] = Counter()

    def run(self, what: str, fault: Callable[[subprocess.Popen[bytes]], object], is_repeated: bool = False) -> None:
        """Add the documents, begin `fault` at a random moment, and print a line. Repeat the command if asked to."""
        library = self._folder / f"library-{self.sums['additions']}"
        start = time.monotonic()
        process = self._start(library)
        while not (library / "manifest.json").exists() and process.poll() is None:
            time.sleep(0.05)
        time.sleep(random.uniform(0.1, 10))
        self.sums["during"] += process.poll() is None
        fault(process)
        output = process.communicate(timeout=900)[0].decode(errors="replace").strip()
        if is_repeated:
            print(f"first: rc {process.returncode}: {output}", flush=True)
            process = self._start(library)
            output = process.communicate(timeout=900)[0].decode(errors="replace").strip()
        print(f"rc {process.returncode}: {output}", flush=True)
        faults = count_faults(library)
        self.sums.update(faults)
        self.sums.update({"additions": 1, "failed": process.returncode != 0})
        print(f"{what}: {time.monotonic() - start:.0f} s, {dict(faults)}, {dict(self.sums)}", flush=True)
        shutil.rmtree(library, ignore_errors=True)

    def kill_repeatedly(self, kills: int, process: subprocess.Popen[bytes]) -> None:
        """Kill raylets and workers at random moments until the addition ends. A killed node is started again."""
        restart: threading.Thread | None = None
        down = ""
        while process.poll() is None and self.sums["kills"] < kills:
            time.sleep(random.uniform(0.5, 3))
            if restart is not None and not restart.is_alive():
                restart, down = None, ""
            name = random.choice([node for node in NODES if node != down])
            if restart is None and random.random() < 0.5:
                self._cluster.kill_node(name)
                kind, down = "raylets", name
                restart = threading.Thread(target=self._cluster.add_node, args=(name, NODES[name], name))
                restart.start()
            elif self._cluster.kill_worker(name):
                kind = "workers"
            else:
                continue
            if process.poll() is None:
                self.sums.update({"kills": 1, kind: 1})
        if restart is not None:
            restart.join()

    def replace_head(self, process: subprocess.Popen[bytes]) -> None:
        """Kill the head, wait for the end of the command, and start another cluster."""
        self._cluster.kill_head()
        process.wait(300)
        self._cluster.close()
        self._cluster.start_head()
        for name, address in NODES.items():
            self._cluster.add_node(name, address, name)

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


if __name__ == "__main__":
    main()
