"""A writer of a library in PostgreSQL in a process of its own, for tests that kill its servers.

    python -m tests.support.postgresql_writer_child URL ACKNOWLEDGED

Adds batches of documents until its input ends, and writes the number of each to the file ACKNOWLEDGED once `add` has
returned. After a failure it opens the library again, and adds the same batch again, as a person would.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from epicrisis.core.errors import EpicrisisError
from epicrisis.core.protocols import StoredDocument
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.testing.stores import DIMENSIONS, build_stored_document

BATCH = 5
"""Documents that a batch adds. It replaces one of the batch before."""
_WORDS = ("aspirin", "warfarin", "stroke", "bleeding", "trial", "risk", "placebo", "dose", "mortality", "women")
_COMPACT_AFTER = 8


def build_batch(number: int) -> list[StoredDocument]:
    """Return the documents of a batch."""
    documents = [_build(BATCH * number + item, "1") for item in range(BATCH)]
    if number:
        documents.append(_build(BATCH * (number - 1), "2"))
    return documents


def expect_passages(batches: int) -> Mapping[str, str]:
    """Map the passage ids of the library after so many batches to their texts."""
    passages: dict[str, str] = {}
    for number in range(batches):
        for document in build_batch(number):
            for passage in document.passages:
                passages[passage.id] = passage.text
    return passages


def _build(number: int, version: str) -> StoredDocument:
    chance = random.Random(f"{number} {version}")
    texts = [" ".join(chance.choices(_WORDS, k=12)) + f" n{number} v{version}" for _ in range(2)]
    vectors = np.random.default_rng([number, int(version)]).normal(size=(2, DIMENSIONS))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    patient = f"patient{number % 7}" if number % 3 == 0 else None
    return build_stored_document(f"doc{number:06d}", *texts, vectors=vectors.tolist(), patient=patient, version=version)


def main(url: str, acknowledged: str) -> None:
    has_ended = threading.Event()

    def wait_for_end() -> None:
        sys.stdin.read()
        has_ended.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    number = 0
    with Path(acknowledged).open("ab", 0) as file:
        while not has_ended.is_set():
            try:
                with LibraryStore.open(url, write=True) as library:
                    while not has_ended.is_set():
                        library.add(build_batch(number))
                        file.write(f"{number}\n".encode())
                        number += 1
                        if number % _COMPACT_AFTER == 0:
                            library.compact()
                    library.compact()
                    return
            except EpicrisisError as error:
                sys.stderr.write(f"{error}\n")
                time.sleep(0.2)


if __name__ == "__main__":
    main(*sys.argv[1:])
