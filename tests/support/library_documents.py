"""A small made-up corpus in versions, and the questions that tell two libraries apart."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np

from epicrisis.core.types import Document, Scope
from epicrisis.corpus.base.reader_base import DeletedDocument, FileFingerprint, ReaderItem
from epicrisis.library.core import library_parts
from epicrisis.library.core import library_store as libraries
from epicrisis.library.core.journal import Journal
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.engines import index_recall, sqlite_table, vector_index, vector_search
from epicrisis.library.engines.engine_choice import TableEngine
from epicrisis.library.engines.word_index import WordIndex
from epicrisis.library.write.ingest import add_documents
from epicrisis.testing.hashing_encoder import HashingEncoder

DIMENSIONS = 16
COUNT = 48
LARGE = 160
_WORDS = (
    "aspirin",
    "warfarin",
    "statin",
    "metformin",
    "stroke",
    "sepsis",
    "asthma",
    "renal",
    "liver",
    "trial",
    "dose",
    "placebo",
    "mortality",
    "risk",
    "fever",
    "cough",
    "plasma",
    "serum",
    "biopsy",
    "cohort",
)


def encoder() -> HashingEncoder:
    return HashingEncoder(DIMENSIONS, max_tokens=12)


def documents(version: int, count: int) -> Iterator[Document]:
    """Yield version `n` of the corpus. A third of the documents change with the version, in length as well."""
    for number in range(count):
        changes = number % 3 == 0
        dice = random.Random(f"{number}/{version if changes else 0}")
        sentences = [" ".join(dice.choices(_WORDS, k=7)).capitalize() + "." for _ in range(dice.randint(1, 4))]
        yield Document(
            id=f"doc:{number}",
            text=" ".join(sentences),
            title=f"Study {number}" if number % 2 else "",
            date="2020-05" if number % 4 else None,
            patient="anna" if number % 5 == 0 else None,
            metadata={"version": version if changes else 0},
        )


def revised(version: int, count: int) -> Iterator[ReaderItem]:
    """Yield version `n` with revisions: a seventh is deleted, a fingerprint follows every 16."""
    revision = f"{version:04}"
    for number, document in enumerate(documents(version, count)):
        is_deleted = random.Random(f"gone {number}/{version}").random() < 1 / 7
        yield DeletedDocument(document.id, revision) if is_deleted else dataclasses.replace(document, revision=revision)
        if number % 16 == 15:
            yield FileFingerprint(f"v{version}-{number // 16}", f"{version:032}{number:032}", number)


SMALL = (
    *((module, "EXACT_LIMIT", 20) for module in (libraries, library_parts, vector_search, vector_index)),
    (index_recall, "QUERIES", 10),
    # The move to LanceDB copies several batches.
    (sqlite_table, "BATCH_ROWS", 20),
    # All of it is probed and looked at again, so that its answers do not depend on chance.
    (vector_index, "MAX_PARTITIONS", 1),
)
"""(module, name, value): limits that make this corpus a large library, with an index."""


def create(folder: Path, engine: TableEngine = "sqlite") -> LibraryStore:
    hashing = encoder()
    return LibraryStore.create(
        folder,
        encoder_fingerprint=hashing.fingerprint,
        encoder_name="hashing",
        dimensions=hashing.dimensions,
        max_tokens=hashing.max_tokens,
        overlap=0,
        engine=engine,
    )


def add(library: LibraryStore, version: int, count: int) -> None:
    add_documents(library, documents(version, count), encoder(), passages_per_batch=12)


def revise(library: LibraryStore, version: int, count: int) -> None:
    add_documents(library, revised(version, count), encoder(), passages_per_batch=12)


@dataclass(frozen=True, slots=True)
class Contents:
    """All that a library holds, by passage id, as each of its parts tells it."""

    table: dict[str, tuple[str, str]]
    """(text, content hash) by passage id."""
    vectors: dict[str, bytes]
    rows: int
    words: list[tuple[str, int]]
    """(passage id, version) in the word index, sorted."""
    hashes: dict[str, str]
    revisions: dict[str, str | None]
    """Of the documents that are there."""
    deleted: dict[str, str]
    """The revisions of those that were taken back."""
    sources: list[str]
    results: tuple[tuple[str, ...], ...]
    """What a few questions find, by vectors and by words."""


def contents(library: LibraryStore) -> Contents:
    """Read the contents of each part, so that no filter hides anything."""
    table = library.open_table()
    stored = list(chain.from_iterable(table.batches()))
    with closing(WordIndex(library.path)) as index:
        words = sorted(chain.from_iterable(index.all_entries()))
        assert len(words) == index.count()
    with closing(Journal(library.path)) as journal:
        documents, deleted = list(journal.documents()), dict(journal.deletions())
    vectors: dict[str, bytes] = {}
    for columns in table.read_columns(["id", "vector"]):
        vectors |= dict(zip(columns["id"], map(np.ndarray.tobytes, columns["vector"]), strict=True))
    return Contents(
        table={entry.passage.id: (entry.passage.text, entry.content_hash) for entry in stored},
        vectors=vectors,
        rows=len(stored),
        words=words,
        hashes={row.id: row.content_hash for row in documents},
        revisions={row.id: row.revision for row in documents},
        deleted=deleted,
        sources=sorted(source.name for source in library.sources()),
        results=tuple(_search(library)),
    )


def _search(library: LibraryStore) -> Iterator[tuple[str, ...]]:
    for question in ("aspirin and stroke", "liver biopsy in sepsis"):
        for scope in (Scope(), Scope(patient="anna", as_of="2021")):
            vector = np.asarray(encoder().encode_queries([question])[0])
            yield tuple(hit.id for hit in library.search_vectors(vector, 20, scope))
            # The order may differ: BM25 counts replaced passages until tantivy merges them away.
            yield tuple(sorted(hit.id for hit in library.search_words(question, 1000, scope)))
