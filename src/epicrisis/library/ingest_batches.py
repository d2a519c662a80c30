"""One addition of documents to a library: what waits for the next commit, and what has been counted so far."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from epicrisis.corpus.reader_base import (
    ArticleStatement,
    DeletedDocument,
    EncodedDocument,
    FileDocument,
    FileFingerprint,
    PatientIdentity,
    ReaderItem,
    Skipped,
)
from epicrisis.corpus.retractions import extract_statements
from epicrisis.library.document_identity import AlreadyThere, Identities
from epicrisis.library.duplicate_ids import Seen
from epicrisis.library.ingest_checks import (
    ANOTHER,
    OTHER,
    Kinds,
    check_is_read,
    is_longer_than_window,
    meet_patients,
    named_in,
    whose,
)
from epicrisis.library.ingest_report import SHOWN, IngestProgress, IngestReport
from epicrisis.library.interrupts import uninterrupted
from epicrisis.library.journal import IngestedFile
from epicrisis.library.library import Library
from epicrisis.library.passage_checks import unfit, unfit_vector
from epicrisis.library.retraction_statements import with_marks
from epicrisis.library.splitters import cut
from epicrisis.protocols import Encoder, StoredDocument, Vectors
from epicrisis.serialization import to_json
from epicrisis.types import Document, Origin, Passage

_FIRST_BATCH = 16
_ENCODED_AT_ONCE = 256
_MARGIN = 0.6
_ORIGINS_AT_ONCE = 10_000
_MARKS_AT_ONCE = 5_000


def content_hash(document: Document) -> str:
    """32 digits of the SHA-256 of everything of the document, by canonical JSON: whatever changes, it does."""
    canonical = json.dumps(to_json(document), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A document that is to be written; `vector` `(d,)` where it brought one."""

    document: Document
    digest: str
    passages: tuple[Passage, ...]
    vector: Vectors | None
    origin: Origin | None = None


class Addition:
    """One call of `add_documents`: what waits for the next commit, and the counts."""

    def __init__(
        self,
        library: Library,
        encoder: Encoder,
        on_progress: Callable[[IngestProgress], None] | None,
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
        self.whole_files: list[FileFingerprint] = []
        self.waiting_since = 0.0
        # Passages a second from encoding to acknowledgement, over the last batch.
        self.rate: float | None = None
        self.read = self.added = self.replaced = self.unchanged = self.passages = self.skipped = 0
        self.outdated = self.deleted = self.cut_off = self.renamed = 0
        self.patients: list[PatientIdentity] = []
        self.named_patients: set[tuple[str, str]] = set()
        self.kinds = Kinds(library, literature)
        self.waiting_marks: list[ArticleStatement] = []
        self.statements = self.nameless = self.marked = 0
        self.first_skipped: list[Skipped] = []
        self.identities = Identities(library, replace)
        self.moved: dict[str, Origin] = {}
        self.already_there = self.of_unknown_file = 0
        self.encode_seconds = 0.0

    def take(self, item: ReaderItem, seen: Seen) -> None:
        if isinstance(item, PatientIdentity):
            self.patients.append(item)
            self.named_patients.update((item.patient, name) for name in item.names)
            return
        self.meet_patients()
        if isinstance(item, Skipped):
            self.skip(item)
        elif isinstance(item, FileFingerprint):
            self.whole_files.append(item)
        elif isinstance(item, DeletedDocument):
            self.take_back(item, seen)
        elif isinstance(item, ArticleStatement):
            self.take_mark(item)
        elif isinstance(item, EncodedDocument):
            self.take_document(item.document, item.vector, seen)
        elif isinstance(item, FileDocument):
            self.take_from_file(item, seen)
        else:
            self.take_document(item, None, seen)

    def meet_patients(self) -> None:
        """Write down who the patients are that were told of, before the first of their notes."""
        if self.patients:
            self.renamed += meet_patients(self.library, self.patients)
            self.patients = []

    def meet_named_patients(self) -> None:
        """Do the same for patients of whom the waiting notes alone tell."""
        named = named_in(each.document for each in self.waiting)
        self.patients += [identity for key, identity in named.items() if key not in self.named_patients]
        self.meet_patients()
        self.named_patients.update(named)

    def take_back(self, item: DeletedDocument, seen: Seen) -> None:
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

    def take_mark(self, item: ArticleStatement) -> None:
        self.statements += 1
        self.nameless += not item.targets
        self.waiting_marks.append(item)
        if len(self.waiting_marks) >= _MARKS_AT_ONCE:
            self.commit()

    def take_from_file(self, item: FileDocument, seen: Seen) -> None:
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
        self.meet_named_patients()
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
            self.library.add_source(IngestedFile(file.sha256, file.name, file.bytes, now))
        self.whole_files.clear()

    def state(self) -> None:
        """Writes down what waits to be said of other articles, before the documents that say it: a document that is
        there is not read for it again."""
        notices = [each.document for each in self.waiting if each.document.revision is not None]
        stated = [*self.waiting_marks, *(marked for notice in notices for marked in extract_statements(notice))]
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
            revision = each.document.revision
            marked = _marked(each.passages, marks.get(each.document.id, ()))
            documents.append(
                StoredDocument(each.document.id, each.digest, marked, vectors[place:end], revision, each.origin)
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
                IngestProgress(
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
            already_there=self.already_there,
            of_unknown_file=self.of_unknown_file,
            remarks=tuple(self.identities.remarks),
            more_remarks=self.identities.more_remarks,
            renamed=self.renamed,
        )


def _marked(passages: tuple[Passage, ...], marks: Sequence[Mapping[str, Any]]) -> tuple[Passage, ...]:
    """The passages with these marks in their metadata."""
    if not marks:
        return passages
    return tuple(replace(passage, metadata=with_marks(passage.metadata, marks)) for passage in passages)


def _words(title: str, text: str) -> tuple[str, str]:
    """Both without the white space that encoders do not see."""
    return " ".join(title.split()), " ".join(text.split())
