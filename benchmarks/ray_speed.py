"""What `--on local` costs beside an addition without it, and how fast one writer can feed and empty a cluster.

    PYTHONPATH=. .venv-ray/bin/python benchmarks/ray_speed.py local minilm 300 FOLDER
    PYTHONPATH=. .venv-ray/bin/python benchmarks/ray_speed.py writer 100000 FOLDER
    PYTHONPATH=. .venv-ray/bin/python benchmarks/ray_speed.py lance 100000 FOLDER

`local` adds the same texts without and with Ray, each as a command of its own, alternately; CPU seconds are those of
the command and of the processes it waited for. `writer` adds to a library with vectors that cost nothing: what is left
is what the one writer does for every passage of a cluster, by its parts. `lance` writes rows to LanceDB alone: more
than this cannot be saved by nodes that write fragments (lance-ray).
"""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from large_library import DIMENSIONS, documents

from epicrisis.corpus.reader_base import EncodedDocument, ReaderItem
from epicrisis.library.ingest import add_documents, open_or_create
from epicrisis.protocols import Vectors
from epicrisis.testing.encoders import HashingEncoder
from epicrisis.types import Document

ROUNDS = 2


def main() -> None:
    """Run one of the measurements and print a line of JSON for each step."""
    mode, *arguments = sys.argv[1:]
    folder = Path(arguments[-1]).absolute()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if mode == "local":
        measure_local(arguments[0], int(arguments[1]), folder)
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
    from epicrisis.corpus.chunking import chunk_document
    from epicrisis.corpus.readers import read_sources
    from epicrisis.models.encoders import load_encoder
    from epicrisis.settings import Settings

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
