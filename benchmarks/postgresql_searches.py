"""Round trips, rows and milliseconds of reads from a library in PostgreSQL.

    python benchmarks/postgresql_searches.py fill postgresql://library_owner@HOST/DATABASE 100000 1000
    python benchmarks/postgresql_searches.py measure postgresql://ward_app@HOST/DATABASE 100000 1000

`fill` adds so many synthetic passages of `large_library.py`, as notes of so many patients (0: as literature).
`measure` counts through a proxy, which reads the protocol of the server, and takes times without it. A round trip is a
change of direction: the client sends after the server has. Times are medians of 100, and include the client.
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from urllib.parse import SplitResult, urlsplit

import numpy as np
from large_library import DIMENSIONS, QueryEncoder, create_library, documents, make_queries

from epicrisis.core.types import Scope, SearchMode
from epicrisis.corpus.base.reader_base import EncodedDocument
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.core.patients import Roster
from epicrisis.library.write.ingest import add_documents
from epicrisis.pipeline.components import LibrarySearch
from epicrisis.pipeline.passage_search import search_passages
from epicrisis.retrieval.retriever import Retriever
from epicrisis.settings.configuration import load_settings
from epicrisis.system.remote_libraries import library_folder
from epicrisis.testing.hashing_encoder import HashingEncoder

REPEATS = 100
WITHOUT_ENCRYPTION = "sslmode=disable&gssencmode=disable"


def main() -> None:
    """Fill a library, or measure one."""
    step, url, count, patients = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    if step == "fill":
        encoder = HashingEncoder(DIMENSIONS, max_tokens=512)
        with create_library(library_folder(url), encoder, "sqlite") as library:
            print(add_documents(library, make_documents(count, patients), encoder))
    else:
        measure(url, count, patients)


def make_documents(count: int, patients: int) -> Iterator[EncodedDocument]:
    """Yield synthetic passages. With patients they are notes, of eight types and twenty stays of each patient."""
    for number, item in enumerate(documents(count)):
        if not patients:
            yield item
            continue
        patient = number % patients
        metadata = {
            "encounter": f"stay-{patient}-{number // patients % 20}",
            "note_type": f"type {number % 8}",
            "patient_name": f"Name{patient} Surname{patient}",
        }
        yield EncodedDocument(replace(item.document, patient=f"p{patient:05}", metadata=metadata), item.vector)


def measure(url: str, count: int, patients: int) -> None:
    """Print a line for each kind of read."""
    proxy = Proxy(urlsplit(url))
    counted, direct = make_reads(proxy.url, count, patients), make_reads(url, count, patients)
    for name, read in counted.items():
        for number in range(12):
            read(number)
        proxy.reset()
        read(12)
        trips, rows, size = proxy.round_trips, proxy.rows, proxy.bytes
        seconds, cpu = [], time.process_time()
        repeats = 10 if name.startswith("list") else REPEATS
        for number in range(repeats):
            began = time.perf_counter()
            direct[name](number)
            seconds.append(time.perf_counter() - began)
        cpu = (time.process_time() - cpu) / repeats * 1000
        print(
            f"{name}: {trips} round trips, {rows} rows, {size} bytes, {np.median(seconds) * 1000:.1f} ms, "
            f"CPU of the client {cpu:.1f} ms",
            flush=True,
        )


def make_reads(url: str, count: int, patients: int) -> dict[str, Callable[[int], object]]:
    """Return the reads to measure by name. Each gets the number of its question."""
    store = LibraryStore.open(url)
    texts, vectors = make_queries(count)
    retriever = Retriever(store, QueryEncoder(dict(zip(texts, vectors, strict=True))))
    searcher = LibrarySearch(store, retriever, rosters=(Roster(store),))
    settings = load_settings().model_copy(update={"by": "bm25"})
    scope = Scope(patient="p00007" if patients else None)

    def rank(by: SearchMode, number: int) -> object:
        return retriever.rank(texts[number], 16, by, scope)

    def find(number: int) -> object:
        return search_passages(settings, searcher, texts[number], scope.patient)

    return {
        "list of patients": lambda _: Roster(store).patients(),
        "words": partial(rank, "bm25"),
        "vectors": partial(rank, "dense"),
        "hybrid": partial(rank, "hybrid"),
        "checked search by words": find,
    }


@dataclass
class Proxy:
    """Passes connections on to a server, and counts what it sends."""

    server: SplitResult
    round_trips: int = 0
    rows: int = 0
    bytes: int = 0
    _listener: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))

    def __post_init__(self) -> None:
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        """The URL of the library through this proxy."""
        port = self._listener.getsockname()[1]
        query = "&".join(filter(None, (self.server.query, WITHOUT_ENCRYPTION)))
        user, mark, _ = self.server.netloc.rpartition("@")
        return self.server._replace(netloc=f"{user}{mark}127.0.0.1:{port}", query=query).geturl()

    def reset(self) -> None:
        """Count anew."""
        self.round_trips = self.rows = self.bytes = 0

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            server = socket.create_connection((self.server.hostname, self.server.port or 5432))
            turn = ["server"]
            threading.Thread(target=self._send, args=(client, server, turn), daemon=True).start()
            threading.Thread(target=self._receive, args=(server, client, turn), daemon=True).start()

    def _send(self, client: socket.socket, server: socket.socket, turn: list[str]) -> None:
        while data := client.recv(65536):
            if turn[0] == "server":
                turn[0] = "client"
                self.round_trips += 1
            server.sendall(data)

    def _receive(self, server: socket.socket, client: socket.socket, turn: list[str]) -> None:
        pending = b""
        while data := server.recv(65536):
            turn[0] = "server"
            self.bytes += len(data)
            pending += data
            while len(pending) >= 5 and len(pending) > (length := int.from_bytes(pending[1:5])):
                self.rows += pending[:1] == b"D"
                pending = pending[length + 1 :]
            client.sendall(data)


if __name__ == "__main__":
    main()
