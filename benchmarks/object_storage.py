"""A library on object storage beside the same library on the local disk, and kills of its writer and its server.

    PYTHONPATH=. python benchmarks/object_storage.py speed 20000 FOLDER
    PYTHONPATH=. python benchmarks/object_storage.py kills 30 30 FOLDER    # 30 of a writer, 30 of the server

`speed` measures additions, the first download, opening and searches. Both libraries are in one process, and each query
runs on one after the other, so that other programs disturb both alike. Documents and queries are those of
`large_library.py`. `kills` ends writers and the server by `kill -9` at random moments. Then it looks for all documents
that `add` had acknowledged from a machine without a copy. The server is SeaweedFS (`make test-s3` installs it) on this
machine, so the network takes no time.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import large_library
import numpy as np
from large_library import DIMENSIONS, QueryEncoder, documents, make_queries

from epicrisis.core.types import Scope, SearchMode
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.write.ingest import add_documents
from epicrisis.retrieval.retriever import Retriever
from epicrisis.system.remote_libraries import library_folder
from epicrisis.testing.hashing_encoder import HashingEncoder
from epicrisis.testing.stores import build_stored_document
from tests.support.s3_server import BUCKET, S3Server, run_s3_server, set_environment
from tests.support.shared_writer_child import create_library

URL = f"s3://{BUCKET}/library"
WARM_UP = 20


def main() -> None:
    """Run one of the two measurements."""
    folder = Path(sys.argv[-1]).absolute()
    shutil.rmtree(folder, ignore_errors=True)
    with run_s3_server(folder / "server") as server:
        set_environment(server, folder / "writer")
        if sys.argv[1] == "speed":
            measure_speed(int(sys.argv[2]), folder)
        else:
            count_losses(server, int(sys.argv[2]), int(sys.argv[3]), folder)


def measure_speed(count: int, folder: Path) -> None:
    """Print the seconds of each step, and the milliseconds of each kind of search, on the local disk and the copy."""
    for name, place in (("local", folder / "local"), ("object storage", library_folder(URL))):
        show(f"add {count:,} documents, {name}", partial(add, place, count))
    with LibraryStore.open(library_folder(URL), write=True) as library:
        for number in range(5):
            document = build_stored_document(f"new{number}", "aspirin", vectors=[[0.1] * DIMENSIONS])
            show("add one document, durably on the server", partial(library.add, [document]))
        library.delete([f"new{number}" for number in range(5)])
    os.environ["EPICRISIS_HOME"] = str(folder / "reader")
    copy = library_folder(URL)
    show("open the first time (download)", lambda: LibraryStore.open(copy).close())
    # Another process of the same machine: the newest version is asked for.
    for name, place in (("local", folder / "local"), ("object storage", copy)):
        code = (
            f"from epicrisis.library.core.library_store import LibraryStore; LibraryStore.open({str(place)!r}).close()"
        )
        for _ in range(3):
            show(
                f"open again in a new process, {name}",
                partial(subprocess.run, [sys.executable, "-c", code], check=True),
            )
    with LibraryStore.open(folder / "local") as local, LibraryStore.open(copy) as shared:
        texts, vectors = make_queries(count)
        encoder = QueryEncoder(dict(zip(texts, vectors, strict=True)))
        retrievers = {"local": Retriever(local, encoder), "copy": Retriever(shared, encoder)}
        modes: tuple[SearchMode, ...] = ("dense", "bm25", "hybrid")
        for by in modes:
            searches = {}
            for name, retriever in retrievers.items():
                searches[name] = partial(retriever.rank, k=16, by=by, scope=Scope())
            compare(by, searches, texts)
        table = local.open_table()
        direct = connect(table.lance.to_arrow())  # type: ignore[attr-defined]
        tables = {"local": table.lance, "LanceDB on S3": direct}  # type: ignore[attr-defined]
        by_text = dict(zip(texts, vectors, strict=True))
        calls = {name: partial(search_directly, lance, by_text) for name, lance in tables.items()}
        compare("LanceDB's own search", calls, texts[:60])


def add(place: Path, count: int) -> None:
    """Create the library and add the documents."""
    encoder = HashingEncoder(DIMENSIONS, max_tokens=512)
    with large_library.create_library(place, encoder, "lance") as library:
        add_documents(library, documents(count), encoder)


def connect(rows: Any) -> Any:
    """Return a table of LanceDB in the bucket with these rows, without anything of epicrisis."""
    import lancedb

    options = {"endpoint": os.environ["AWS_ENDPOINT_URL"], "allow_http": "true", "region": "us-east-1"}
    return lancedb.connect(f"s3://{BUCKET}/direct", storage_options=options).create_table("passages", data=rows)


def search_directly(table: Any, vectors: dict[str, Any], text: str) -> None:
    """Search the 16 nearest passages with LanceDB itself, and read their texts."""
    search = table.search(vectors[text], vector_column_name="vector").distance_type("dot").limit(16)
    search.select(["id", "text", "_distance"]).to_arrow()


def compare(title: str, searches: Mapping[str, Callable[[str], object]], texts: list[str]) -> None:
    """Print median and 95th percentile of each search in milliseconds, and the ratio of the medians."""
    seconds: dict[str, list[float]] = {name: [] for name in searches}
    for text in texts:
        for name, search in searches.items():
            began = time.perf_counter()
            search(text)
            seconds[name].append(time.perf_counter() - began)
    medians = []
    for name, values in seconds.items():
        median, high = np.percentile(values[WARM_UP:], [50, 95]) * 1000
        medians.append(median)
        print(f"{title}, {name}: {median:.1f} / {high:.1f} ms", flush=True)
    print(f"{title}: ratio of the medians {medians[1] / medians[0]:.2f}", flush=True)


def show(title: str, step: Callable[[], object]) -> None:
    """Print how long a step takes."""
    began = time.perf_counter()
    step()
    print(f"{title}: {time.perf_counter() - began:.2f} s", flush=True)


def count_losses(server: S3Server, writers: int, servers: int, folder: Path) -> None:
    """Kill writers and the server at random moments, and print what was lost and what is there twice."""
    dice = random.Random(0)
    acknowledged = folder / "acknowledged"
    acknowledged.touch()
    create_library(URL).close()
    kills = Counter[str]()
    for kind in ["writer"] * writers + ["server"] * servers:
        first = len(set(acknowledged.read_text().split()))
        command = [
            sys.executable,
            "-m",
            "tests.support.shared_writer_child",
            URL,
            str(acknowledged),
            str(first),
            "100000",
        ]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        # Kills also fall into the opening of the library, but not all: a busy machine takes long for it.
        if dice.random() < 0.8:
            child.stdout.readline()
        time.sleep(dice.uniform(0.0, 2.0))
        if kind == "writer":
            child.kill()
        else:
            server.kill()
            time.sleep(dice.uniform(0.0, 1.0))
            server.start()
            time.sleep(dice.uniform(0.0, 2.0))
            child.terminate()
        child.communicate()
        kills[kind] += 1
    print(f"killed: {dict(kills)}", flush=True)
    os.environ["EPICRISIS_HOME"] = str(folder / "reader")
    with LibraryStore.open(library_folder(URL)) as library:
        rows = Counter(row["id"] for row in library.open_table().rows(["id"]))
        problems = library.info().problems
        documents, passages = library.count()
    expected = set(acknowledged.read_text().split())
    lost = [id_ for id_ in expected if rows[f"{id_}#0"] == 0 or rows[f"{id_}#1"] == 0]
    twice = [id_ for id_, times in rows.items() if times > 1]
    print(f"acknowledged {len(expected)}, lost {len(lost)}, twice {len(twice)}")
    print(f"{documents} documents, {passages} passages")
    print(f"problems: {list(problems)}")
    if lost or twice or problems or passages != 2 * documents:
        sys.exit(1)


if __name__ == "__main__":
    main()
