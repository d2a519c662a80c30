"""Documents into a library: what is new or changed is cut, encoded and committed, in batches that can be resumed.

Run again after a kill, it skips what was acknowledged. A vector is made only where a passage's title or text is new: a
revision that changes nothing else, and a document that brings its vector, cost no encoding. Does not know where
documents come from.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from epicrisis.corpus.inputs import Deleted, Encoded, FromFile, Identity, Item, Skipped, WholeFile
from epicrisis.errors import EncoderMismatch, LibraryError
from epicrisis.plain import to_json
from epicrisis.seams import Encoder, StoredDocument, Vectors
from epicrisis.types import Document, Origin, Passage, Splitter

from .checks import unfit, unfit_vector
from .cutting import cut
from .identity import AlreadyThere, Identities
from .ingest_checks import (
    ANOTHER,
    OTHER,
    Kinds,
    check_chunks,
    check_is_read,
    is_longer_than_window,
    meet_patients,
    whose,
)
from .ingest_report import SHOWN, IngestReport, Progress
from .interrupts import uninterrupted
from .journal import Source
from .library import Library
from .manifest import PRECOMPUTED, check_encoder, complete_manifest
from .seen import Seen

DEFAULT_OVERLAP = 32
"""Tokens that neighbouring passages of a new library share, at most."""
_FIRST_BATCH = 16
_ENCODED_AT_ONCE = 256
_MARGIN = 0.6
_PROGRESS_EVERY = 500
_ORIGINS_AT_ONCE = 10_000
_COMPARED = 4


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

    A library whose creation was interrupted holds nothing, and is created again from these arguments.

    `splitter` is that of a new library; `ready_made`: its vectors come along, made for whole documents by an encoder of
    that name whose files nobody knows; `chunk_tokens`: the most of a new passage, where not said as many as the
    encoder reads. Raises EncoderMismatch where the library was made by another encoder, LibraryError where with another
    splitter or other chunks, InputError for chunks that the encoder does not read to their end, and what `Library.open`
    and `Library.create` raise.
    """
    if chunk_tokens is not None:
        check_chunks(chunk_tokens, encoder, encoder_name, overlap, splitter, ready_made)
    if complete_manifest(path) is not None:
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
    replace: bool = False,
    literature: bool | None = None,
) -> IngestReport:
    """Adds what is new, replaces what has changed, leaves the rest, and says what it left out and why.

    Of several documents with one id the latest revision counts, in whatever order they come, and a deletion counts as
    one; of those without a revision the first of this addition does, and the others are skipped unless they are the
    same. A document from a file (`FromFile`) replaces only one of the same file, see `identity`; with `replace`, any of
    its id. Everything is acknowledged at least every `seconds_between_commits`, judged by the encoder's speed so far;
    only a single document that takes longer by itself breaks that. Ctrl-C waits for the commit under way; what is
    acknowledged stays.

    A library holds patients' notes or literature. `literature` True says that both may be in this one, where every
    patient's questions read the documents of no patient. With False these are skipped in a library of notes, and notes
    are refused in a library of literature. With None both are let in, and whoever asks is told of it.

    Raises EncoderMismatch, StorageError, LibraryError, InputError where a patient's id may stand for two people, and
    whatever `items` raises.
    """
    check_encoder(library.path, library.manifest, encoder.fingerprint)
    addition = _Addition(
        library, encoder, on_progress, seconds_between_commits, passages_per_batch, replace, literature
    )
    with closing(Seen()) as seen:
        for item in items:
            addition.read += not isinstance(item, WholeFile | Identity)
            addition.take(item, seen)
            if addition.read % _PROGRESS_EVERY == 0:
                addition.tell()
    addition.meet_patients()
    addition.commit()
    if addition.passages:
        with uninterrupted():
            library.compact()
    addition.kinds.close()
    return addition.report()


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A document that is to be written; `vector` `(d,)` where it brought one."""

    document: Document
    digest: str
    passages: tuple[Passage, ...]
    vector: Vectors | None
    origin: Origin | None = None


class _Addition:
    """One call of `add_documents`: what waits for the next commit, and the counts."""

    def __init__(
        self,
        library: Library,
        encoder: Encoder,
        on_progress: Callable[[Progress], None] | None,
        limit_seconds: float,
        limit_passages: int,
        replace: bool,
        literature: bool | None,
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
        self.outdated = self.deleted = self.cut_off = self.renamed = 0
        self.patients: list[Identity] = []
        self.kinds = Kinds(library, literature)
        self.first_skipped: list[Skipped] = []
        self.identities = Identities(library, replace)
        self.moved: dict[str, Origin] = {}
        self.already_there = self.of_unknown_file = 0
        self.encode_seconds = 0.0

    def take(self, item: Item, seen: Seen) -> None:
        if isinstance(item, Identity):
            self.patients.append(item)
            return
        self.meet_patients()
        if isinstance(item, Skipped):
            self.skip(item)
        elif isinstance(item, WholeFile):
            self.whole_files.append(item)
        elif isinstance(item, Deleted):
            self.take_back(item, seen)
        elif isinstance(item, Encoded):
            self.take_document(item.document, item.vector, seen)
        elif isinstance(item, FromFile):
            self.take_from_file(item, seen)
        else:
            self.take_document(item, None, seen)

    def meet_patients(self) -> None:
        """Write down who the patients are that were told of, before the first of their notes."""
        if self.patients:
            self.renamed += meet_patients(self.library, self.patients)
            self.patients = []

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

    def take_from_file(self, item: FromFile, seen: Seen) -> None:
        named = self.identities.named(item) if item.origin.name else item
        if isinstance(named, AlreadyThere):
            self.already_there += 1
            self.unchanged += 1
        else:
            self.take_document(named.document, None, seen, named.origin)

    def take_document(
        self, document: Document, vector: Vectors | None, seen: Seen, origin: Origin | None = None
    ) -> None:
        reason = unfit(document) or self.kinds.misfit(document)
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
            self.take_changed(document, digest, vector, origin, is_there=there is not None)
        else:
            self.unchanged += 1
            if fresh and origin is not None and document.id not in self.waiting_ids:
                self.keep_origin(document.id, origin)

    def take_changed(
        self, document: Document, digest: str, vector: Vectors | None, origin: Origin | None, is_there: bool
    ) -> None:
        """Puts a new or changed document with those that wait, unless it is no successor of the one that is there."""
        if origin is not None and is_there:
            known = self.library.origins([document.id]).get(document.id)
            if reason := self.identities.refusal(document, origin, known):
                self.skip(Skipped(document.id, "", reason))
                return
            self.of_unknown_file += known is None
        passages = self.passages_of(document, vector)
        check_is_read(document, passages, self.library.manifest.splitter, self.encoder)
        self.wait(_Waiting(document, digest, passages, vector, origin))

    def keep_origin(self, document_id: str, origin: Origin) -> None:
        """Knows an unchanged document by this file, where its own was not known or is gone."""
        if self.identities.is_news(origin, self.library.origins([document_id]).get(document_id)):
            self.moved[document_id] = origin
            if len(self.moved) >= _ORIGINS_AT_ONCE:
                self.commit()

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
        if self.moved:
            self.library.set_origins(self.moved)
            self.moved.clear()
        self.refuse_other_patients()
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
        for each in self.waiting:
            end = place + len(each.passages)
            revision = each.document.revision
            documents.append(
                StoredDocument(each.document.id, each.digest, each.passages, vectors[place:end], revision, each.origin)
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
            skipped=self.skipped,
            first_skipped=tuple(self.first_skipped),
            seconds=time.monotonic() - self.started,
            encode_seconds=self.encode_seconds,
            already_there=self.already_there,
            of_unknown_file=self.of_unknown_file,
            remarks=tuple(self.identities.remarks),
            more_remarks=self.identities.more_remarks,
            renamed=self.renamed,
        )


def _words(title: str, text: str) -> tuple[str, str]:
    """Both without the white space that encoders do not see."""
    return " ".join(title.split()), " ".join(text.split())
