"""How a library on object storage grows: time, CPU, memory, disk and network of each step for one existing library.

    PYTHONPATH=. python benchmarks/object_storage_growth.py SOURCE FOLDER
    PYTHONPATH=. python benchmarks/object_storage_growth.py SOURCE FOLDER upload

SOURCE is a library of `large_library.py` with the engine `lance`. It is only read. Each step is a process of its own,
so that its peak memory is its own. The server is SeaweedFS on this machine, so the network takes no time. Seconds
include the start of LanceDB. `upload` publishes the files of SOURCE as they are, instead of copying its passages.
`received` and `sent` are the megabytes of files that the step downloaded and uploaded.
"""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from large_library import DIMENSIONS, QueryEncoder, make_queries

from epicrisis.core.types import Scope, SearchMode
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.object_storage.object_store import ObjectStore
from epicrisis.library.object_storage.replica import find_replica, refresh_replica
from epicrisis.library.object_storage.shared_writer import SharedWriter
from epicrisis.library.write.copying import copy_library
from epicrisis.retrieval.retriever import Retriever
from epicrisis.system.remote_libraries import library_folder
from epicrisis.testing.stores import build_stored_document
from tests.support.s3_server import BUCKET, run_s3_server, set_environment

URL = f"s3://{BUCKET}/growth"
ADDITIONS = 5
WARM_UP = 20
MODES: tuple[SearchMode, ...] = ("dense", "bm25", "hybrid")
_traffic = {"received": 0, "sent": 0}


def main() -> None:
    """Run all steps, or the one that is named."""
    source, folder = Path(sys.argv[1]), Path(sys.argv[2]).absolute()
    first = sys.argv[3] if len(sys.argv) > 3 else "copy"
    if first not in ("copy", "upload") or "step" in sys.argv:
        run_step(first, source)
        return
    shutil.rmtree(folder, ignore_errors=True)
    with run_s3_server(folder / "server") as server:
        for step, machine in (
            (first, "writer"),
            ("first download", "reader"),
            ("search", "reader"),
            ("open for writing, first", "writer"),
            ("small additions", "writer"),
            ("refresh", "reader"),
            ("small additions", "writer"),
            ("refresh", "reader"),
            ("open", "reader"),
            ("open local", "reader"),
            ("copy back", "reader") if first == "copy" else ("check", "reader"),
        ):
            set_environment(server, folder / machine)
            done = subprocess.run(
                [sys.executable, __file__, str(source), str(folder), step, "step"], capture_output=True, text=True
            )
            print(step, done.stdout.strip() or done.stderr, flush=True)
        shutil.rmtree(folder / "back", ignore_errors=True)
        for name in ("server", "writer", "reader"):
            used = subprocess.run(["du", "-sm", str(folder / name)], capture_output=True, text=True, check=True)
            print(f"disk of the {name}: {used.stdout.split()[0]} MB", flush=True)


def run_step(step: str, source: Path) -> None:
    """Run one step and print its figures."""
    count_traffic()
    began = time.perf_counter()
    folder = library_folder(URL)
    steps: dict[str, Callable[[], dict[str, Any]]] = {
        "copy": partial(copy, source, folder),
        "upload": partial(upload, source, folder),
        "check": partial(check, folder),
        "first download": partial(refresh, folder),
        "open for writing, first": partial(open_and_close, folder, write=True),
        "small additions": partial(add, folder),
        "refresh": partial(refresh, folder),
        "open": partial(open_and_close, folder),
        "open local": partial(open_and_close, source),
        "search": partial(search, source, folder),
        "copy back": partial(copy, folder, Path(sys.argv[2]) / "back"),
    }
    figures = steps[step]()
    figures |= {"seconds": round(time.perf_counter() - began, 2)}
    usage = resource.getrusage(resource.RUSAGE_SELF)
    figures |= {"CPU seconds": round(usage.ru_utime + usage.ru_stime, 1)}
    figures |= {"peak memory GB": round(usage.ru_maxrss / 1e6, 2)}
    figures |= {f"{name} MB": round(size / 1e6, 2) for name, size in _traffic.items()}
    print(json.dumps(figures))


def count_traffic() -> None:
    """Count the bytes of the files that this process uploads and downloads."""
    upload, download = ObjectStore.upload, ObjectStore.download

    def count_upload(self: ObjectStore, path: Path, name: str) -> None:
        upload(self, path, name)
        _traffic["sent"] += path.stat().st_size

    def count_download(self: ObjectStore, name: str, path: Path) -> None:
        download(self, name, path)
        _traffic["received"] += path.stat().st_size

    ObjectStore.upload, ObjectStore.download = count_upload, count_download  # type: ignore[method-assign]


def copy(source: Path, destination: Path) -> dict[str, Any]:
    """Copy the library."""
    report = copy_library(source, destination)
    return {"documents": report.copied}


def upload(source: Path, destination: Path) -> dict[str, Any]:
    """Publish the files of a library as they are."""
    replica = find_replica(destination)
    assert replica is not None
    writer = SharedWriter.open(replica, new=True)
    began = time.perf_counter()
    shutil.copytree(source, writer.folder, dirs_exist_ok=True)
    copied = time.perf_counter()
    writer.publish()
    published = time.perf_counter()
    writer.release()
    return {"local copy": round(copied - began, 2), "publish": round(published - copied, 2)}


def check(folder: Path) -> dict[str, Any]:
    """Return the contradictions between the parts of the library."""
    with LibraryStore.open(folder) as library:
        return {"problems": library.info().problems}


def refresh(folder: Path) -> dict[str, Any]:
    """Bring the copy of this machine to the newest version."""
    assert refresh_replica(folder)
    return {}


def open_and_close(folder: Path, write: bool = False) -> dict[str, Any]:
    """Open the library, and close it."""
    began = time.perf_counter()
    library = LibraryStore.open(folder, write=write)
    opened = time.perf_counter()
    library.close()
    return {"open": round(opened - began, 2), "close": round(time.perf_counter() - opened, 2)}


def add(folder: Path) -> dict[str, Any]:
    """Add documents one by one, each durably on the server, and delete one."""
    began = time.perf_counter()
    library = LibraryStore.open(folder, write=True)
    figures: dict[str, Any] = {"open": round(time.perf_counter() - began, 2)}
    seconds = []
    number = time.time_ns()
    for index in range(ADDITIONS):
        document = build_stored_document(f"new{number}-{index}", "aspirin", vectors=[[0.1] * DIMENSIONS])
        began = time.perf_counter()
        library.add([document])
        seconds.append(round(time.perf_counter() - began, 2))
    figures["add one document"] = seconds
    began = time.perf_counter()
    library.delete([f"new{number}-0"])
    figures["delete one"] = round(time.perf_counter() - began, 2)
    began = time.perf_counter()
    library.close()
    return figures | {"close": round(time.perf_counter() - began, 2)}


def search(source: Path, folder: Path) -> dict[str, Any]:
    """Search the library on the local disk and the copy in turn."""
    figures = {}
    with LibraryStore.open(source) as local, LibraryStore.open(folder) as shared:
        texts, vectors = make_queries(min(local.count()[1], 10_000))
        encoder = QueryEncoder(dict(zip(texts, vectors, strict=True)))
        retrievers = {"local": Retriever(local, encoder), "copy": Retriever(shared, encoder)}
        for by in MODES:
            seconds: dict[str, list[float]] = {name: [] for name in retrievers}
            for text in texts:
                for name, retriever in retrievers.items():
                    began = time.perf_counter()
                    retriever.rank(text, k=16, by=by, scope=Scope())
                    seconds[name].append(time.perf_counter() - began)
            medians = {}
            for name, values in seconds.items():
                median, high = np.percentile(values[WARM_UP:], [50, 95]) * 1000
                medians[name] = median
                figures[f"{by}, {name}"] = f"{median:.1f} / {high:.1f} ms"
            figures[f"{by}, ratio"] = f"{medians['copy'] / medians['local']:.2f}"
    return figures


if __name__ == "__main__":
    main()
