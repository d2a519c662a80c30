"""What `--on local` costs beside an addition without it, and how fast one writer can feed and empty a cluster.

    PYTHONPATH=. .venv-ray/bin/python benchmarks/ray_speed.py local minilm 300 FOLDER
    PYTHONPATH=. .venv-ray/bin/python benchmarks/ray_speed.py growth 3334 FOLDER
    PYTHONPATH=. .venv-ray/bin/python benchmarks/ray_speed.py writer 100000 FOLDER
    PYTHONPATH=. .venv-ray/bin/python benchmarks/ray_speed.py lance 100000 FOLDER

`local` adds the same texts without and with Ray, each as a command of its own, alternately; CPU seconds are those of
the command and of the processes it waited for. `growth` is one command with `--on local`, whose nodes have an encoder
that costs next to nothing: what grows with the passages are reading, cutting, the way to the nodes and back, and
writing. Every vector is then compared with its text. `writer` adds to a library with vectors that cost nothing: what
is left is what the one writer does for every passage of a cluster, by its parts. `lance` writes rows to LanceDB alone:
more than this cannot be saved by nodes that write fragments (lance-ray).
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from large_library import DIMENSIONS, documents

from epicrisis.core.protocols import Vectors
from epicrisis.core.types import Document
from epicrisis.corpus.base.reader_base import EncodedDocument, ReaderItem
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.write.ingest import add_documents, open_or_create
from epicrisis.testing.hashing_encoder import HashingEncoder
from tests.support.ray_cluster import make_environment

ROUNDS = 2
SAMPLE_SECONDS = 1.0


def main() -> None:
    """Run one of the measurements and print a line of JSON for each step."""
    mode, *arguments = sys.argv[1:]
    folder = Path(arguments[-1]).absolute()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if mode == "local":
        measure_local(arguments[0], int(arguments[1]), folder)
    elif mode == "growth":
        measure_growth(int(arguments[0]), folder)
    elif mode == "writer":
        measure_writer(int(arguments[0]), folder)
    else:
        measure_lance(int(arguments[0]), folder)


def measure_local(encoder: str, count: int, folder: Path) -> None:
    """Add the texts by the command, without and with `--on local`."""
    write_source(folder / "source.jsonl", count)
    program = [str(Path(sys.executable).with_name("epicrisis")), "library", "add"]
    for number in range(ROUNDS):
        for name, options in (("without", []), ("--on local", ["--on", "local"])):
            library = folder / f"{name}-{number}"
            command = [*program, str(library), str(folder / "source.jsonl"), "--encoder", encoder, "--json", *options]
            before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
            report = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            show(
                name,
                passages=report["passages"],
                seconds=time.monotonic() - start,
                adding=report["seconds"],
                waiting_for_vectors=report["encode_seconds"],
                cpu_of_command=cpu,
            )


def measure_growth(count: int, folder: Path) -> None:
    """Add the texts by the command with `--on local`, and compare every vector of the library with its text."""
    write_source(folder / "source.jsonl", count)
    packages = folder / "packages"
    (packages / "drawn-1.0.dist-info").mkdir(parents=True)
    (packages / "drawn-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: drawn\nVersion: 1.0\n")
    (packages / "drawn-1.0.dist-info" / "entry_points.txt").write_text(
        "[epicrisis.encoders]\ndrawn = ray_speed:DrawnEncoder\n"
    )
    environment = make_environment(packages)
    environment["PYTHONPATH"] += f"{os.pathsep}{Path(__file__).parent}"
    program = [str(Path(sys.executable).with_name("epicrisis")), "library", "add"]
    command = [*program, str(folder / "library"), str(folder / "source.jsonl"), "--encoder", "drawn", "--json"]
    start = time.monotonic()
    process = subprocess.Popen([*command, "--on", "local"], env=environment, stdout=subprocess.PIPE)
    assert process.stdout is not None
    use = ProcessTree(process.pid)
    report = json.loads(process.stdout.read())
    show(
        "growth",
        passages=report["passages"],
        seconds=time.monotonic() - start,
        adding=report["seconds"],
        waiting_for_vectors=report["encode_seconds"],
        cpu_of_command=use.cpu(is_root=True),
        cpu_of_cluster=use.cpu(is_root=False),
        peak_gb_of_command=use.peak_of_root / 1e6,
        peak_gb_of_cluster=use.peak_of_others / 1e6,
    )
    assert process.wait() == 0
    compare_vectors(folder / "library")


def compare_vectors(folder: Path) -> None:
    """Print how many passages there are, how many ids are there twice, and how many have the vector of another text."""
    encoder = DrawnEncoder()
    ids: set[str] = set()
    passages = wrong = 0
    with LibraryStore.open(folder) as library:
        for columns in library.open_table().read_columns(("id", "title", "text", "vector")):
            texts = list(zip(columns["title"], columns["text"], strict=True))
            expected = encoder.draw_vectors(texts)
            wrong += int((np.abs(np.stack(list(columns["vector"])) - expected).max(axis=1) > 1e-3).sum())
            ids.update(columns["id"])
            passages += len(texts)
        problems = len(library.info().problems)
    show("compared", passages=passages, twice=passages - len(ids), wrong_vectors=wrong, problems=problems)


class ProcessTree:
    """CPU seconds and memory of a process and of all that it started, looked at once a second until it ends."""

    def __init__(self, root: int) -> None:
        self.root = root
        self.peak_of_root = self.peak_of_others = 0
        """Kilobytes, shared memory counted once, files not at all."""
        self._ticks: dict[int, int] = {}
        threading.Thread(target=self._look, daemon=True).start()

    def cpu(self, *, is_root: bool) -> float:
        """Return the CPU seconds of the process itself, or of all others."""
        ticks = sum(value for pid, value in self._ticks.items() if (pid == self.root) == is_root)
        return ticks / os.sysconf("SC_CLK_TCK")

    def _look(self) -> None:
        while Path(f"/proc/{self.root}").exists():
            own, others, shared = 0, 0, 0
            for pid in self._find_members():
                try:
                    numbers = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
                    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
                except OSError:
                    continue
                self._ticks[pid] = sum(map(int, numbers[11:13]))
                values = {line.split(":")[0]: line.split(":")[1].split()[0] for line in lines if line.startswith("Rss")}
                memory = int(values.get("RssAnon", 0))
                shared = max(shared, int(values.get("RssShmem", 0)))
                own, others = (own + memory, others) if pid == self.root else (own, others + memory)
            self.peak_of_root = max(self.peak_of_root, own)
            self.peak_of_others = max(self.peak_of_others, others + shared)
            time.sleep(SAMPLE_SECONDS)

    def _find_members(self) -> set[int]:
        parents: dict[int, int] = {}
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                numbers = path.read_text(encoding="utf-8").rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(path.parent.name)] = int(numbers[1])
        members = {self.root}
        while more := {pid for pid, parent in parents.items() if parent in members} - members:
            members |= more
        # Members that a dead parent has left to another process.
        return members | {pid for pid in self._ticks if pid in parents}


class DrawnEncoder(HashingEncoder):
    """Cuts texts by MiniLM's tokenizer. A vector is drawn at random from a number that its text decides."""

    def __init__(self) -> None:
        from epicrisis.models.encoders import load_encoder
        from epicrisis.settings.settings import Settings

        real = load_encoder("minilm", Settings().home.expanduser(), 1)
        super().__init__(DIMENSIONS, real.max_tokens)
        self.token_spans = real.token_spans  # type: ignore[method-assign]
        self.fingerprint = "drawn-1"

    def draw_vectors(self, texts: Sequence[tuple[str, str]]) -> Vectors:
        """Return a vector of length 1 for each title and text."""
        rows = np.empty((len(texts), DIMENSIONS), dtype=np.float32)
        for row, (title, text) in zip(rows, texts, strict=True):
            digest = hashlib.blake2b(f"{title}\n{text}".encode(), digest_size=8).digest()
            row[:] = np.random.default_rng(int.from_bytes(digest, "big")).standard_normal(DIMENSIONS)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        return rows

    def encode_passages(self, texts: Sequence[tuple[str, str]]) -> Vectors:
        return self.draw_vectors(texts)


class InstantEncoder(HashingEncoder):
    """A parallel encoder whose vectors cost nothing, as those of an endless cluster."""

    def start_passages(self, texts: Sequence[tuple[str, str]]) -> Callable[[], Vectors]:
        vectors = np.full((len(texts), self.dimensions), 0.05, dtype=np.float32)
        return lambda: vectors

    def encode_passages(self, texts: Sequence[tuple[str, str]]) -> Vectors:
        return self.start_passages(texts)()


def measure_writer(count: int, folder: Path) -> None:
    """Add texts of a source file in this process, with vectors that cost nothing."""
    write_source(folder / "source.jsonl", count)
    from epicrisis.corpus.base.chunking import chunk_document
    from epicrisis.corpus.readers.sources import read_sources
    from epicrisis.models.encoders import load_encoder
    from epicrisis.settings.settings import Settings

    real = load_encoder("minilm", Settings().home.expanduser(), 1)
    encoder = InstantEncoder(DIMENSIONS, real.max_tokens)
    encoder.token_spans = real.token_spans  # type: ignore[method-assign]
    start = time.process_time()
    items: list[ReaderItem] = list(read_sources([folder / "source.jsonl"], None))
    show("reading", cpu=time.process_time() - start, documents=len(items))
    sample = [item for item in items[:1000] if isinstance(item, Document)]
    start = time.process_time()
    passages = sum(len(list(chunk_document(item, real.token_spans, real.max_tokens, 32))) for item in sample)
    show("chunking 1,000", cpu=time.process_time() - start, passages=passages)
    begin, start = time.monotonic(), time.process_time()
    with open_or_create(folder / "library", encoder, "instant") as library:
        report = add_documents(library, items, encoder)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    show(
        "all the writer does",
        cpu=time.process_time() - start,
        seconds=time.monotonic() - begin,
        passages=report.passages,
        peak_memory_gb=usage.ru_maxrss / 1e6,
    )


def measure_lance(count: int, folder: Path) -> None:
    """Write rows of text and vectors in one process: the time that fragments written by nodes could save."""
    import lancedb
    import pyarrow as pa

    rows: dict[str, list[Any]] = {"id": [], "title": [], "text": []}
    vectors = np.empty((count, DIMENSIONS), dtype=np.float16)
    for number, item in enumerate(documents(count)):
        if isinstance(item, EncodedDocument):
            rows["id"].append(item.document.id)
            rows["title"].append(item.document.title)
            rows["text"].append(item.document.text)
            vectors[number] = item.vector
    flat = pa.array(vectors.reshape(-1))
    table = pa.table({**rows, "vector": pa.FixedSizeListArray.from_arrays(flat, DIMENSIONS)})
    start, begin = time.monotonic(), time.process_time()
    stored = lancedb.connect(folder).create_table("passages", schema=table.schema)
    for first in range(0, count, 8192):
        stored.add(table.slice(first, 8192))
    cpu = time.process_time() - begin
    show("LanceDB alone, 8,192 rows a commit", seconds=time.monotonic() - start, cpu=cpu, rows=count)


def write_source(path: Path, count: int) -> None:
    """Write synthetic texts of 1,000 characters as JSONL."""
    with path.open("w", encoding="utf-8") as file:
        for item in documents(count):
            if isinstance(item, EncodedDocument):
                row = {"id": item.document.id, "title": item.document.title, "text": item.document.text}
                file.write(json.dumps(row) + "\n")


def show(name: str, **figures: float) -> None:
    """Print one line."""
    print(json.dumps({"step": name, **{key: round(value, 2) for key, value in figures.items()}}), flush=True)


if __name__ == "__main__":
    main()
