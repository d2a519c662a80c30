"""Documents into a library: what is new or changed is cut, encoded and committed, in batches that can be resumed.

Run again after a kill, it skips what was acknowledged. A vector is made only where a passage's title or text is new: a
revision that changes nothing else, and a document that brings its vector, cost no encoding. Does not know where
documents come from.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from epicrisis.corpus.inputs import Deleted, Encoded, Item, Marked, Skipped, WholeFile
from epicrisis.corpus.retractions import stated_by
from epicrisis.errors import EncoderMismatch, LibraryError
from epicrisis.plain import to_json
from epicrisis.seams import Encoder, StoredDocument, Vectors
from epicrisis.types import Document, Passage, Splitter

from .checks import unfit, unfit_vector
from .cutting import cut
from .ingest_checks import ANOTHER, OTHER, check_chunks, check_is_read, is_longer_than_window, whose
from .ingest_report import SHOWN, IngestReport, Progress
from .interrupts import uninterrupted
from .journal import Source
from .library import Library
from .manifest import NAME as MANIFEST
from .manifest import PRECOMPUTED, check_encoder
from .marks import with_marks
from .seen import Seen

DEFAULT_OVERLAP = 32
"""Tokens that neighbouring passages of a new library share, at most."""
_FIRST_BATCH = 16
_ENCODED_AT_ONCE = 256
_MARGIN = 0.6
_PROGRESS_EVERY = 500
_COMPARED = 4
_MARKS_AT_ONCE = 5_000


def open_or_create(
    path: Path,
    encoder: Encoder,
    encoder_name: str,
    overlap: int = DEFAULT_OVERLAP,
    splitter: Splitter | None = None,
    ready_made: bool = False,
    chunk_tokens: int | None = None,
) -> Library:
    """The library at `path`, open for writing; a new one, cut for this encoder, where there is none.

    `splitter` is that of a new library; `ready_made`: its vectors come along, made for whole documents by an encoder of
    that name whose files nobody knows; `chunk_tokens`: the most of a new passage, where not said as many as the
    encoder reads. Raises EncoderMismatch where the library was made by another encoder, LibraryError where with another
    splitter or other chunks, InputError for chunks that the encoder does not read to their end, and what `Library.open`
    and `Library.create` raise.
    """
    if chunk_tokens is not None:
        check_chunks(chunk_tokens, encoder, encoder_name, overlap, splitter, ready_made)
    if (path / MANIFEST).is_file():
        library = Library.open(path, write=True, encoder_fingerprint=encoder.fingerprint)
        made = library.manifest
        if splitter not in (None, made.splitter):
            library.close()
            raise LibraryError(
                f"{path} cuts documents by {made.splitter}, not by {splitter}: leave the splitter out, or make another "
                "library"
            )
        if chunk_tokens not in (None, made.max_tokens):
            library.close()
            raise LibraryError(
                f"{path} has chunks of {made.max_tokens} tokens, not of {chunk_tokens}: leave --chunk-tokens out, or "
                "make another library"
            )
        return library
    return Library.create(
        path,
        encoder_fingerprint=f"{PRECOMPUTED}{encoder_name}" if ready_made else encoder.fingerprint,
        encoder_name=encoder_name,
        dimensions=encoder.dimensions,
        max_tokens=chunk_tokens or encoder.max_tokens,
        overlap=overlap,
        splitter=splitter or ("whole" if ready_made else "tokens"),
    )


def content_hash(document: Document) -> str:
    """32 digits of the SHA-256 of everything of the document, by canonical JSON: whatever changes, it does."""
    canonical = json.dumps(to_json(document), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:32]


def check_vectors(library: Library, encoder: Encoder) -> None:
    """Whether ready-made vectors are this encoder's: a few of the library's passages are encoded anew and compared.

    Nothing to do for a library of vectors that were made here.

    Raises EncoderMismatch where the two differ by more than rounding (cosine below 0.99).
    """
    if not library.manifest.encoder_fingerprint.startswith(PRECOMPUTED):
        return
    for title, text, vector in library.some_vectors(_COMPARED):
        made = encoder.encode_passages([(title, text)])[0]
        if made.shape != vector.shape or made @ vector < 0.99 * np.linalg.norm(made) * np.linalg.norm(vector):
            raise EncoderMismatch(
                f"{library.path} holds vectors that this encoder does not make: name the encoder they were made with "
                "(--encoder)"
            )


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
    library.prepare_marks()
    addition = _Addition(library, encoder, on_progress, seconds_between_commits, passages_per_batch)
    with closing(Seen()) as seen:
        for item in items:
            addition.read += not isinstance(item, WholeFile)
            addition.take(item, seen)
            if addition.read % _PROGRESS_EVERY == 0:
                addition.tell()
    addition.commit()
    with uninterrupted():
        addition.marked = library.mark_due()
    if addition.passages:
        with uninterrupted():
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
        self.outdated = self.deleted = self.cut_off = 0
        self.waiting_marks: list[Marked] = []
        self.statements = self.nameless = self.marked = 0
        self.first_skipped: list[Skipped] = []
        self.encode_seconds = 0.0

    def take(self, item: Item, seen: Seen) -> None:
        if isinstance(item, Skipped):
            self.skip(item)
        elif isinstance(item, WholeFile):
            self.whole_files.append(item)
        elif isinstance(item, Deleted):
            self.take_back(item, seen)
        elif isinstance(item, Marked):
            self.take_mark(item)
        elif isinstance(item, Encoded):
            self.take_document(item.document, item.vector, seen)
        else:
            self.take_document(item, None, seen)

    def take_back(self, item: Deleted, seen: Seen) -> None:
        """Deletes the document, unless a later revision of it is there."""
        if item.id in self.waiting_ids:
            self.commit()
        if not item.revision:
            # Given again by this addition, it stays withdrawn.
            seen.first(item.id, "")
            if whose(self.library, [item.id]).get(item.id, "") == item.patient:
                self.deleted += 1
                with uninterrupted():
                    self.library.delete([item.id])
            return
        known = self.library.revisions([item.id]).get(item.id)
        if known is not None and known > item.revision:
            self.outdated += 1
            return
        self.deleted += item.id in self.library.content_hashes([item.id])
        with uninterrupted():
            self.library.delete([item.id], {item.id: item.revision})

    def take_mark(self, item: Marked) -> None:
        self.statements += 1
        self.nameless += not item.targets
        self.waiting_marks.append(item)
        if len(self.waiting_marks) >= _MARKS_AT_ONCE:
            self.commit()

    def take_document(self, document: Document, vector: Vectors | None, seen: Seen) -> None:
        reason = unfit(document)
        if reason is None and vector is not None:
            reason = unfit_vector(vector, self.library.manifest.dimensions)
        if reason is not None:
            self.skip(Skipped(document.id, "", reason))
            return
        digest = content_hash(document)
        if document.revision is None:
            first = seen.first(document.id, digest)
            if first not in (None, digest):
                self.skip(Skipped(document.id, "", OTHER if document.patient is None else ANOTHER))
                return
            fresh = first is None
        else:
            fresh = True
        if fresh and document.id in self.waiting_ids:
            self.commit()
        known = self.library.revisions([document.id]).get(document.id)
        there = self.library.content_hashes([document.id]).get(document.id)
        deleted = known is not None and there is None
        # Of a deletion and a version that are of one revision the deletion counts, whichever comes first.
        if (known or "") > (document.revision or "") or (deleted and known == document.revision):
            self.outdated += 1
        elif fresh and there != digest:
            passages = self.passages_of(document, vector)
            check_is_read(document, passages, self.library.manifest.splitter, self.encoder)
            self.wait(_Waiting(document, digest, passages, vector))
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
        self.refuse_other_patients()
        self.state()
        if self.waiting:
            began = time.monotonic()
            ids = [each.document.id for each in self.waiting]
            replaced = list(self.library.content_hashes(ids))
            stored = self.library.vectors_of(replaced)
            documents = self.encoded({_words(*text): vector for text, vector in stored.items()})
            with uninterrupted():
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

    def state(self) -> None:
        """Writes down what waits to be said of other articles, before the documents that say it: a document that is
        there is not read for it again."""
        notices = [each.document for each in self.waiting if each.document.revision is not None]
        stated = [*self.waiting_marks, *(marked for notice in notices for marked in stated_by(notice))]
        sources = {each.source for each in stated} | {each.id for each in notices}
        if sources:
            with uninterrupted():
                self.library.state(sorted(sources), stated)
        self.waiting_marks.clear()

    def refuse_other_patients(self) -> None:
        """Leaves out what would replace another patient's document."""
        there = whose(self.library, [each.document.id for each in self.waiting])
        mine = []
        for each in self.waiting:
            if there.get(each.document.id, each.document.patient) == each.document.patient:
                mine.append(each)
            else:
                self.skip(Skipped(each.document.id, "", ANOTHER))
        self.waiting = mine
        self.waiting_ids = {each.document.id for each in mine}
        self.waiting_passages = sum(len(each.passages) for each in mine)

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
        marks = self.library.marks_for([each.document for each in self.waiting])
        for each in self.waiting:
            end = place + len(each.passages)
            marked = _marked(each.passages, marks.get(each.document.id, ()))
            documents.append(
                StoredDocument(each.document.id, each.digest, marked, vectors[place:end], each.document.revision)
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
        if self.library.manifest.splitter != "tokens":
            self.cut_off += sum(is_longer_than_window(passage, self.encoder) for passage in passages)
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
            cut_off=self.cut_off,
            statements=self.statements,
            nameless=self.nameless,
            marked=self.marked,
            skipped=self.skipped,
            first_skipped=tuple(self.first_skipped),
            seconds=time.monotonic() - self.started,
            encode_seconds=self.encode_seconds,
        )


def _marked(passages: tuple[Passage, ...], marks: Sequence[Mapping[str, Any]]) -> tuple[Passage, ...]:
    """The passages with these marks in their metadata."""
    if not marks:
        return passages
    return tuple(replace(passage, metadata=with_marks(passage.metadata, marks)) for passage in passages)


def _words(title: str, text: str) -> tuple[str, str]:
    """Both without the white space that encoders do not see."""
    return " ".join(title.split()), " ".join(text.split())
