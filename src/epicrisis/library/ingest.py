"""Documents into a library: what is new or changed is cut, encoded and committed, in batches that can be resumed.

Run again after a kill, it skips what was acknowledged. A vector is made only where a passage's title or text is new: a
revision that changes nothing else, and a document that brings its vector, cost no encoding. Does not know where
documents come from.
"""

from __future__ import annotations

import hashlib
import json
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

import numpy as np

from epicrisis.corpus.inputs import Deleted, Encoded, Item, Skipped, WholeFile
from epicrisis.seams import Encoder, StoredDocument, Vectors
from epicrisis.types import Document, Passage, to_json

from .checks import unfit
from .cutting import cut
from .journal import Source
from .library import Library
from .manifest import NAME as MANIFEST
from .manifest import check_encoder

DEFAULT_OVERLAP = 32
"""Tokens that neighbouring passages of a new library share, at most."""
SHOWN = 20
"""Skipped documents that a report names; the others are counted."""
_FIRST_BATCH = 16
_ENCODED_AT_ONCE = 256
_MARGIN = 0.6
_PROGRESS_EVERY = 500


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an addition is. `documents` were read so far; the others count what is acknowledged or left out."""

    documents: int
    added: int
    replaced: int
    unchanged: int
    outdated: int
    deleted: int
    skipped: int
    passages: int
    seconds: float

    @property
    def saved(self) -> int:
        """Documents acknowledged by this addition."""
        return self.added + self.replaced


@dataclass(frozen=True, slots=True)
class IngestReport:
    """What became of the documents. `passages` were written; `skipped` counts all, `first_skipped` names the first.

    `outdated` are older than what the library has, or than their deletion; `deleted` were there and are gone.
    `seconds` are wall clock; `encode_seconds` the part of them in the encoder.
    """

    added: int
    replaced: int
    unchanged: int
    outdated: int
    deleted: int
    passages: int
    skipped: int
    first_skipped: tuple[Skipped, ...]
    seconds: float
    encode_seconds: float


def open_or_create(
    path: Path, encoder: Encoder, encoder_name: str, overlap: int = DEFAULT_OVERLAP, splitter: str = "tokens"
) -> Library:
    """The library at `path`, open for writing; a new one, cut for this encoder, where there is none.

    Raises EncoderMismatch where it was made by another encoder, and what `Library.open` and `Library.create` raise.
    """
    if (path / MANIFEST).is_file():
        return Library.open(path, write=True, encoder_fingerprint=encoder.fingerprint)
    return Library.create(
        path,
        encoder_fingerprint=encoder.fingerprint,
        encoder_name=encoder_name,
        dimensions=encoder.dimensions,
        max_tokens=encoder.max_tokens,
        overlap=overlap,
        splitter=splitter,
    )


def content_hash(document: Document) -> str:
    """32 digits of the SHA-256 of everything of the document, by canonical JSON: whatever changes, it does."""
    canonical = json.dumps(to_json(document), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:32]


def add_documents(
    library: Library,
    items: Iterable[Item],
    encoder: Encoder,
    *,
    on_progress: Callable[[Progress], None] | None = None,
    seconds_between_commits: float = 10.0,
    passages_per_batch: int = 8192,
) -> IngestReport:
    """Adds what is new, replaces what has changed, leaves the rest, and says what it left out and why.

    Of several documents with one id the latest revision counts, in whatever order they come, and a deletion counts as
    one; of those without a revision the first of this addition does, and the others are skipped unless they are the
    same. Everything is acknowledged at least every `seconds_between_commits`, judged by the encoder's speed so far;
    only a single document that takes longer by itself breaks that. Ctrl-C waits for the commit under way; what is
    acknowledged stays.

    Raises EncoderMismatch, StorageError, LibraryError, and whatever `items` raises.
    """
    check_encoder(library.path, library.manifest, encoder.fingerprint)
    addition = _Addition(library, encoder, on_progress, seconds_between_commits, passages_per_batch)
    with closing(_Seen()) as seen:
        for item in items:
            addition.read += 1
            addition.take(item, seen)
            if addition.read % _PROGRESS_EVERY == 0:
                addition.tell()
    addition.commit()
    if addition.passages:
        with _uninterrupted():
            library.compact()
    return addition.report()


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A document that is to be written; `vector` `(d,)` where it brought one."""

    document: Document
    digest: str
    passages: tuple[Passage, ...]
    vector: Vectors | None


class _Addition:
    """One call of `add_documents`: what waits for the next commit, and the counts."""

    def __init__(
        self,
        library: Library,
        encoder: Encoder,
        on_progress: Callable[[Progress], None] | None,
        limit_seconds: float,
        limit_passages: int,
    ) -> None:
        self.library = library
        self.encoder = encoder
        self.on_progress = on_progress
        self.limit_seconds = limit_seconds
        self.limit_passages = limit_passages
        self.started = time.monotonic()
        self.waiting: list[_Waiting] = []
        self.waiting_ids: set[str] = set()
        self.waiting_passages = 0
        self.whole_files: list[WholeFile] = []
        self.waiting_since = 0.0
        # Passages a second from encoding to acknowledgement, over the last batch.
        self.rate: float | None = None
        self.read = self.added = self.replaced = self.unchanged = self.passages = self.skipped = 0
        self.outdated = self.deleted = 0
        self.first_skipped: list[Skipped] = []
        self.encode_seconds = 0.0

    def take(self, item: Item, seen: _Seen) -> None:
        if isinstance(item, Skipped):
            self.skip(item)
        elif isinstance(item, WholeFile):
            self.whole_files.append(item)
        elif isinstance(item, Deleted):
            self.take_back(item)
        elif isinstance(item, Encoded):
            self.take_document(item.document, item.vector, seen)
        else:
            self.take_document(item, None, seen)

    def take_back(self, item: Deleted) -> None:
        """Deletes the document, unless a later revision of it is there."""
        if item.id in self.waiting_ids:
            self.commit()
        known = self.library.revisions([item.id]).get(item.id)
        if known is not None and known > item.revision:
            self.outdated += 1
            return
        self.deleted += item.id in self.library.content_hashes([item.id])
        with _uninterrupted():
            self.library.delete([item.id], {item.id: item.revision})

    def take_document(self, document: Document, vector: Vectors | None, seen: _Seen) -> None:
        reason = unfit(document)
        if reason is None and vector is not None and len(vector) != self.library.manifest.dimensions:
            reason = f"its vector has {len(vector)} numbers: make a library of its own for these"
        if reason is not None:
            self.skip(Skipped(document.id, "", reason))
            return
        digest = content_hash(document)
        if document.revision is None:
            first = seen.first(document.id, digest)
            if first not in (None, digest):
                self.skip(Skipped(document.id, "", "same id, different text"))
                return
            fresh = first is None
        else:
            fresh = True
            if document.id in self.waiting_ids:
                self.commit()
        known = self.library.revisions([document.id]).get(document.id)
        if (known or "") > (document.revision or ""):
            self.outdated += 1
        elif fresh and self.library.content_hashes([document.id]).get(document.id) != digest:
            self.wait(_Waiting(document, digest, self.passages_of(document, vector), vector))
        else:
            self.unchanged += 1

    def passages_of(self, document: Document, vector: Vectors | None) -> tuple[Passage, ...]:
        """A document that brings its vector is one passage."""
        manifest = self.library.manifest
        splitter = "whole" if vector is not None else manifest.splitter
        return cut(document, splitter, self.encoder.token_spans, manifest.max_tokens, manifest.overlap)

    def skip(self, skipped: Skipped) -> None:
        self.skipped += 1
        if len(self.first_skipped) < SHOWN:
            self.first_skipped.append(skipped)

    def wait(self, waiting: _Waiting) -> None:
        """Puts the document with those that wait; commits when there are enough, or time is running out."""
        if self.is_full(len(waiting.passages)):
            self.commit()
        if not self.waiting:
            self.waiting_since = time.monotonic()
        self.waiting.append(waiting)
        self.waiting_ids.add(waiting.document.id)
        self.waiting_passages += len(waiting.passages)
        if self.is_full(0):
            self.commit()

    def is_full(self, more: int) -> bool:
        """True when the batch, with so many passages more, would be too large or take too long."""
        passages = self.waiting_passages + more
        if self.rate is None:
            return passages >= _FIRST_BATCH
        spent = time.monotonic() - self.waiting_since if self.waiting else 0.0
        return passages >= self.limit_passages or spent + passages / self.rate >= self.limit_seconds * _MARGIN

    def commit(self) -> None:
        """Encodes what waits and writes it; it is acknowledged when this returns."""
        if self.waiting:
            began = time.monotonic()
            ids = [each.document.id for each in self.waiting]
            replaced = list(self.library.content_hashes(ids))
            stored = self.library.vectors_of(replaced)
            documents = self.encoded({_words(*text): vector for text, vector in stored.items()})
            with _uninterrupted():
                self.library.add(documents)
                self.replaced += len(replaced)
                self.added += len(documents) - len(replaced)
                self.passages += self.waiting_passages
                self.rate = self.waiting_passages / max(time.monotonic() - began, 1e-6)
                self.waiting, self.waiting_passages = [], 0
                self.waiting_ids.clear()
            self.tell()
        for file in self.whole_files:
            now = datetime.now(UTC).isoformat(timespec="seconds")
            self.library.add_source(Source(file.sha256, file.name, file.bytes, now))
        self.whole_files.clear()

    def encoded(self, known: Mapping[tuple[str, str], Vectors]) -> list[StoredDocument]:
        """What waits, with its vectors: brought along, `known` by the words of title and text, or made."""
        rows: list[Vectors | None] = []
        for each in self.waiting:
            if each.vector is not None:
                rows.append(each.vector)
            else:
                rows += [known.get(_words(passage.title, passage.text)) for passage in each.passages]
        passages = [passage for each in self.waiting for passage in each.passages]
        missing = [i for i, row in enumerate(rows) if row is None]
        vectors = np.empty((len(rows), self.library.manifest.dimensions), dtype=np.float32)
        for i, row in enumerate(rows):
            if row is not None:
                vectors[i] = row
        vectors[missing] = self.encode([passages[i] for i in missing])
        documents, place = [], 0
        for each in self.waiting:
            end = place + len(each.passages)
            documents.append(
                StoredDocument(each.document.id, each.digest, each.passages, vectors[place:end], each.document.revision)
            )
            place = end
        return documents

    def encode(self, passages: list[Passage]) -> Vectors:
        """`(n, d)` in the order of the passages; encoded in the order of their length, which saves padding."""
        began = time.monotonic()
        vectors = np.empty((len(passages), self.library.manifest.dimensions), dtype=np.float32)
        order = sorted(range(len(passages)), key=lambda i: len(passages[i].title) + len(passages[i].text))
        for first in range(0, len(order), _ENCODED_AT_ONCE):
            some = order[first : first + _ENCODED_AT_ONCE]
            vectors[some] = self.encoder.encode_passages([(passages[i].title, passages[i].text) for i in some])
        self.encode_seconds += time.monotonic() - began
        return vectors

    def tell(self) -> None:
        if self.on_progress is not None:
            self.on_progress(
                Progress(
                    documents=self.read,
                    added=self.added,
                    replaced=self.replaced,
                    unchanged=self.unchanged,
                    outdated=self.outdated,
                    deleted=self.deleted,
                    skipped=self.skipped,
                    passages=self.passages,
                    seconds=time.monotonic() - self.started,
                )
            )

    def report(self) -> IngestReport:
        return IngestReport(
            added=self.added,
            replaced=self.replaced,
            unchanged=self.unchanged,
            outdated=self.outdated,
            deleted=self.deleted,
            passages=self.passages,
            skipped=self.skipped,
            first_skipped=tuple(self.first_skipped),
            seconds=time.monotonic() - self.started,
            encode_seconds=self.encode_seconds,
        )


def _words(title: str, text: str) -> tuple[str, str]:
    """Both without the white space that encoders do not see."""
    return " ".join(title.split()), " ".join(text.split())


class _Seen:
    """The ids of this addition and the hash of each one's first document, on disk where they grow large.

    Ids are kept as hashes: they may name patients, and the file lies outside the library.
    """

    def __init__(self) -> None:
        self._db = sqlite3.connect("", isolation_level=None)
        self._db.execute("CREATE TABLE seen(id BLOB PRIMARY KEY, content_hash TEXT NOT NULL) WITHOUT ROWID")
        self._db.execute("BEGIN")

    def first(self, document_id: str, content_hash: str) -> str | None:
        """The hash the id had first; `None` where this is the first."""
        key = hashlib.sha256(document_id.encode()).digest()
        if self._db.execute("INSERT OR IGNORE INTO seen VALUES (?, ?)", (key, content_hash)).rowcount:
            return None
        return str(self._db.execute("SELECT content_hash FROM seen WHERE id = ?", (key,)).fetchone()[0])

    def close(self) -> None:
        self._db.close()


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ctrl-C within is heard at the end. Other threads than the main one never hear it."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is None:
        yield
        return
    heard: list[tuple[int, FrameType | None]] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: heard.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if heard and callable(before):
        before(*heard[0])
