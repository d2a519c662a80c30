"""A library of N synthetic passages: time, peak memory, disk, recall and search times of each step.

    python benchmarks/large_library.py 1000000 FOLDER
    python benchmarks/large_library.py 10000 FOLDER lance     # sqlite is the default
    python benchmarks/large_library.py 10000 postgresql://library_owner@localhost/db
    python benchmarks/large_library.py 10000 FOLDER lance append      # one step: add, optimize, tidy, search...
    python benchmarks/large_library.py 10000 FOLDER lance search dense hybrid       # these methods alone
    python benchmarks/large_library.py 10000 FOLDER lance recall      # vector search beside exact search

Each step is a process of its own, so that its peak memory is its own. Texts are 1,000 characters of words whose
frequencies follow Zipf's law; vectors of 384 dimensions lie around 2,000 centres. What is measured is the library: the
vectors are brought along, so that no encoder takes part. Searches are 100 by each method, of which the first 20 warm
up; each returns 16 passages with their texts. Times are real; CPU times are of this process, so without those of a
server. `append` adds 10 and then 1,000 further documents, and `recall` compares 50 searches by vector, also with
filters, with exact search; no other step needs them.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from epicrisis.core.protocols import StoredDocument, Vectors
from epicrisis.core.types import Document, Scope, SearchMode
from epicrisis.corpus.base.reader_base import EncodedDocument
from epicrisis.library.base.remote_store import is_in_database
from epicrisis.library.base.splitters import split_document
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.engines import lance_table
from epicrisis.library.engines.engine_choice import TableEngine
from epicrisis.library.write.ingest import add_documents, content_hash
from epicrisis.retrieval.retriever import Retriever
from epicrisis.system.remote_libraries import library_folder
from epicrisis.testing.hashing_encoder import HashingEncoder

DIMENSIONS = 384
CENTRES = 2000
VOCABULARY = 300_000
WORDS = 160
BLOCK = 10_000
FILL_BATCH = 4000
QUERIES = 100
FILTERS = {
    "since 2016 (a tenth)": Scope(since="2016"),
    "type (1 in 100)": Scope(publication_types=frozenset({"Randomized Controlled Trial"})),
    "journals (1 in 1,000)": Scope(journals=frozenset(f"Journal {number}" for number in range(1, 6))),
}
K = 16
MODES: tuple[SearchMode, ...] = ("dense", "bm25", "hybrid")


def main() -> None:
    """Runs the steps and prints what each tells."""
    count, folder = int(sys.argv[1]), library_folder(sys.argv[2])
    engine = sys.argv[3] if len(sys.argv) > 3 else "sqlite"
    if len(sys.argv) > 4:
        step = sys.argv[4]
        if step == "add":
            told = add(count, folder, "lance" if engine == "lance" else "sqlite")
        else:
            steps = {"optimize": optimize, "tidy": tidy, "search": search, "append": append, "recall": recall}
            told = steps[step](count, folder)
        usage = resource.getrusage(resource.RUSAGE_SELF)
        told |= {"CPU seconds": round(usage.ru_utime + usage.ru_stime, 1)}
        print(json.dumps(told | {"peak memory GB": round(usage.ru_maxrss / 1e6, 2)}))
        return
    for step in ("add", "optimize", "tidy", "search"):
        command = [sys.executable, __file__, str(count), sys.argv[2], engine, step]
        done = subprocess.run(command, capture_output=True, text=True)
        print(step, done.stdout.strip() or done.stderr, flush=True)


def add(count: int, folder: Path, engine: TableEngine) -> dict[str, Any]:
    """The texts and vectors in; time of the library alone is what is left when making them is taken off."""
    encoder = HashingEncoder(DIMENSIONS, max_tokens=512)
    began = time.perf_counter()
    for _ in documents(min(count, BLOCK)):
        pass
    making = (time.perf_counter() - began) * count / min(count, BLOCK)
    with create_library(folder, encoder, engine) as library:
        if is_in_database(folder):
            return fill(library, count) | {"of them making texts": round(making)}
        report = add_documents(library, documents(count), encoder)
        return {"added": report.added, "seconds": round(report.seconds), "of them making texts": round(making)}


def fill(library: LibraryStore, count: int) -> dict[str, Any]:
    """Fill an empty library as `library copy` does, which asks the server for batches of documents, not for each."""
    began = time.perf_counter()
    library.prepare_bulk()
    items = documents(count)
    while batch := list(islice(items, FILL_BATCH)):
        stored = []
        for item in batch:
            passages = split_document(item.document, "whole", lambda text: [], 512, 0)
            digest = content_hash(item.document)
            stored.append(StoredDocument(item.document.id, digest, tuple(passages), item.vector[None], None, None))
        library.add(stored)
    rows = time.perf_counter() - began
    library.compact()
    seconds = time.perf_counter() - began
    return {"added": count, "seconds": round(seconds), "of them rows without indexes": round(rows)}


def create_library(folder: Path, encoder: HashingEncoder, engine: TableEngine) -> LibraryStore:
    """Return an empty library for synthetic passages."""
    return LibraryStore.create(
        folder,
        encoder_fingerprint=encoder.fingerprint,
        encoder_name="synthetic",
        dimensions=DIMENSIONS,
        max_tokens=512,
        overlap=0,
        splitter="whole",
        engine=engine,
    )


def optimize(count: int, folder: Path) -> dict[str, Any]:
    """The index, measured."""
    began = time.perf_counter()
    with LibraryStore.open(folder, write=True) as library:
        report = library.optimize()
    told: dict[str, Any] = {"seconds": round(time.perf_counter() - began)}
    if report is not None:
        told |= {"recall@16": round(report.recall, 4), "recall@16 in a tenth": report.filtered_recall}
        told["index"] = report.parameters
    return told


def tidy(count: int, folder: Path) -> dict[str, Any]:
    """Old versions go ten minutes after they were replaced; here at once, as nobody reads them."""
    lance_table._OLD_VERSIONS_LIFETIME = timedelta(0)
    with LibraryStore.open(folder, write=True) as library:
        library.compact()
        sizes = library.info().bytes_on_disk
    parts = dict(sizes) | {"of it vectors": count * DIMENSIONS * 2}
    index = folder / lance_table.NAME / "_indices"
    parts |= {"of it indexes": sum(path.stat().st_size for path in index.rglob("*") if path.is_file())}
    return {"bytes a passage": {part: round(size / count, 1) for part, size in parts.items()}}


def search(count: int, folder: Path) -> dict[str, Any]:
    """Milliseconds, median and 95th percentile."""
    with LibraryStore.open(folder) as library:
        texts, queries = make_queries(count)
        retriever = Retriever(library, QueryEncoder(dict(zip(texts, queries, strict=True))))
        told: dict[str, Any] = {}
        chosen = sys.argv[5:] or MODES
        for by in MODES:
            if by not in chosen:
                continue
            told[by] = _timed(partial(retriever.rank, k=K, by=by, scope=Scope()), texts)
            for called, scope in FILTERS.items():
                told[f"{by}, {called}"] = _timed(partial(retriever.rank, k=K, by=by, scope=scope), texts)
        return told | {"problems": library.info().problems}


def recall(count: int, folder: Path) -> dict[str, Any]:
    """Recall@16 of searches by vector against exact search, among all passages and with filters."""
    with LibraryStore.open(folder) as library:
        queries = make_queries(count)[1][: QUERIES // 2]
        scopes = {"all": Scope(), **FILTERS}
        # The highest scores so far of each query, and their passages. The stored vectors are of half precision.
        shape = (len(queries), K)
        best = {name: (np.full(shape, -np.inf), np.full(shape, -1)) for name in scopes}
        for block, rows in enumerate(_vectors(0, count)):
            numbers = np.arange(block * BLOCK, block * BLOCK + len(rows))
            scores = queries @ rows.astype(np.float16).astype(np.float32).T
            for name, passes in _find_filtered(numbers).items():
                highest, ids = best[name]
                all_scores = np.concatenate([highest, scores[:, passes]], axis=1)
                all_ids = np.concatenate([ids, np.broadcast_to(numbers[passes], (len(queries), passes.sum()))], axis=1)
                order = np.argsort(-all_scores, axis=1)[:, :K]
                best[name] = (np.take_along_axis(all_scores, order, 1), np.take_along_axis(all_ids, order, 1))
        told: dict[str, Any] = {}
        for name, scope in scopes.items():
            shared = total = 0
            for query, expected in zip(queries, best[name][1].tolist(), strict=True):
                nearest = {f"pubmed:{number}#0" for number in expected if number >= 0}
                shared += len(nearest & {hit.id for hit in library.search_vectors(query, K, scope)})
                total += len(nearest)
            told[name] = f"{shared / total:.4f} of {total}"
        return told


def _find_filtered(numbers: npt.NDArray[np.int64]) -> dict[str, npt.NDArray[np.bool_]]:
    """Return which of these documents are in each scope of FILTERS."""
    masks = (numbers % 29 >= 26, numbers % 100 == 0, (numbers % 5000 >= 1) & (numbers % 5000 <= 5))
    return {"all": np.ones(len(numbers), bool), **dict(zip(FILTERS, masks, strict=True))}


def make_queries(count: int) -> tuple[list[str], Vectors]:
    """Return the texts and the vectors of the questions to a library of so many passages."""
    dice = np.random.default_rng(1)
    queries = next(_vectors(0, BLOCK))[dice.integers(0, min(BLOCK, count), QUERIES)]
    queries = queries + (0.3 / DIMENSIONS**0.5) * dice.normal(size=queries.shape).astype(np.float32)
    texts = [" ".join(f"w{word}" for word in _words(dice, 6)) for _ in range(QUERIES)]
    return texts, queries


class QueryEncoder(HashingEncoder):
    """Has the vectors of the questions, so that no encoder takes part."""

    def __init__(self, vectors: Mapping[str, Vectors]) -> None:
        super().__init__(DIMENSIONS, max_tokens=512)
        self._vectors = vectors

    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        return np.array([self._vectors[text] for text in texts], dtype=np.float32)


def append(count: int, folder: Path) -> dict[str, Any]:
    """Further documents, added to the finished library in two additions."""
    encoder = HashingEncoder(DIMENSIONS, max_tokens=512)
    told: dict[str, Any] = {}
    # Each addition takes its documents from a block of its own.
    for number, size in enumerate((10, 1000)):
        first = count + number * BLOCK
        began, cpu = time.perf_counter(), time.process_time()
        with LibraryStore.open(folder, write=True) as library:
            opened = time.perf_counter() - began
            report = add_documents(library, documents(first + size, first), encoder)
        seconds = time.perf_counter() - began
        told[f"{report.added} documents"] = {
            "seconds": round(seconds, 2),
            "of them opening": round(opened, 2),
            "CPU seconds": round(time.process_time() - cpu, 2),
        }
    return told


def _timed(search: Callable[[str], object], texts: Sequence[str]) -> str:
    seconds, cpu = [], []
    for text in texts:
        began, began_cpu = time.perf_counter(), time.process_time()
        search(text)
        seconds.append(time.perf_counter() - began)
        cpu.append(time.process_time() - began_cpu)
    median, high = np.percentile(seconds[20:], [50, 95]) * 1000
    return f"{median:.1f} / {high:.1f} ms, CPU {np.median(cpu[20:]) * 1000:.1f} ms"


def documents(count: int, first: int = 0) -> Iterator[EncodedDocument]:
    """Yield the documents from number `first`, a multiple of BLOCK, up to `count`, the same every time."""
    for block, rows in enumerate(_vectors(first, count), start=first // BLOCK):
        dice = np.random.default_rng([2, block])
        for row, vector in enumerate(rows):
            number = block * BLOCK + row
            types = ["Randomized Controlled Trial"] if number % 100 == 0 else ["Journal Article"]
            document = Document(
                id=f"pubmed:{number}",
                title=" ".join(f"w{word}" for word in _words(dice, 12)),
                text=" ".join(f"w{word}" for word in _words(dice, WORDS)),
                source="synthetic",
                date=f"{1990 + number % 29}-{1 + number % 12:02d}",
                metadata={"publication_types": types, "journal": f"Journal {number % 5000}"},
            )
            yield EncodedDocument(document, vector)


def _words(dice: np.random.Generator, count: int) -> npt.NDArray[np.int64]:
    """Word numbers by a law near Zipf's: the logarithm of the rank is uniform."""
    return np.exp(dice.uniform(0, np.log(VOCABULARY), count)).astype(np.int64)


def _vectors(first: int, count: int) -> Iterator[npt.NDArray[np.float32]]:
    """`(BLOCK, DIMENSIONS)` at a time, of length 1."""
    centres = np.random.default_rng(0).normal(size=(CENTRES, DIMENSIONS)).astype(np.float32)
    for start in range(first, count, BLOCK):
        dice = np.random.default_rng([1, start])
        rows = centres[dice.integers(0, CENTRES, min(BLOCK, count - start))]
        rows = rows + dice.normal(size=rows.shape).astype(np.float32)
        yield rows / np.linalg.norm(rows, axis=1, keepdims=True)


if __name__ == "__main__":
    main()
