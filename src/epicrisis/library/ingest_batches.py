"""The last stage of an ingestion: collect documents in batches and commit each batch to the library."""

from __future__ import annotations

import dataclasses
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from types import FrameType

from epicrisis.corpus.reader_base import ArticleStatement, FileFingerprint
from epicrisis.corpus.retractions import extract_statements
from epicrisis.library.ingest_comparison import SAME_ID_OTHER_NOTE
from epicrisis.library.ingest_encoding import PassageEncoder, PendingDocument
from epicrisis.library.ingest_patients import PatientRegistration, read_document_patients
from epicrisis.library.ingest_report import IngestCounts, IngestProgress, IngestReport
from epicrisis.library.journal import IngestedFile
from epicrisis.library.library import Library
from epicrisis.library.passage_table import replace_marks
from epicrisis.protocols import StoredDocument, Vectors
from epicrisis.types import Origin

_FIRST_BATCH = 16
_MARGIN = 0.6
_MAX_ORIGINS = 10_000
_MAX_STATEMENTS = 5_000


class BatchWriter:
    """Collects documents, statements and files, and commits them when there are enough or time runs out."""

    def __init__(
        self,
        library: Library,
        encoder: PassageEncoder,
        patients: PatientRegistration,
        counts: IngestCounts,
        on_progress: Callable[[IngestProgress], None] | None,
        max_seconds: float,
        max_passages: int,
    ) -> None:
        self._library = library
        self._encoder = encoder
        self._patients = patients
        self._counts = counts
        self._on_progress = on_progress
        self._max_seconds = max_seconds
        self._max_passages = max_passages
        self._started = time.monotonic()
        self._documents: list[PendingDocument] = []
        self._document_ids: set[str] = set()
        self._passages = 0
        self._batch_started = 0.0
        # Passages per second of the last batch, from encoding to acknowledgement.
        self._rate: float | None = None
        self._origins: dict[str, Origin] = {}
        self._statements: list[ArticleStatement] = []
        self._whole_files: list[FileFingerprint] = []

    def add(self, pending: PendingDocument) -> None:
        """Add a document to the batch. Commit before if it would be too large, and afterwards if it is full."""
        if self._is_full(len(pending.passages)):
            self.commit()
        if not self._documents:
            self._batch_started = time.monotonic()
        self._documents.append(pending)
        self._document_ids.add(pending.document.id)
        self._passages += len(pending.passages)
        if self._is_full(0):
            self.commit()

    def add_origin(self, document_id: str, origin: Origin) -> None:
        """Record the file of an existing document with the next commit."""
        self._origins[document_id] = origin
        if len(self._origins) >= _MAX_ORIGINS:
            self.commit()

    def add_statement(self, statement: ArticleStatement) -> None:
        """Record a statement about another article with the next commit."""
        self._statements.append(statement)
        if len(self._statements) >= _MAX_STATEMENTS:
            self.commit()

    def add_whole_file(self, file: FileFingerprint) -> None:
        """Record after the next commit that all documents of the file have been added."""
        self._whole_files.append(file)

    def commit_if_pending(self, document_id: str) -> None:
        """Write the batch if it contains this document."""
        if document_id in self._document_ids:
            self.commit()

    def commit(self) -> None:
        """Encode the batch and write everything collected. It is acknowledged when this returns."""
        if self._origins:
            self._library.set_origins(self._origins)
            self._origins.clear()
        self._skip_other_patients()
        self._patients.add_from_notes(pending.document for pending in self._documents)
        self._patients.record()
        self._commit_statements()
        if self._documents:
            self._commit_documents()
        for file in self._whole_files:
            now = datetime.now(UTC).isoformat(timespec="seconds")
            self._library.add_source(IngestedFile(file.sha256, file.name, file.bytes, now))
        self._whole_files.clear()

    def finish(self) -> None:
        """Write the last batch, apply changed statements to existing documents, and compact the library."""
        self.commit()
        with uninterrupted():
            self._counts.marked = self._library.update_due_marks()
        if self._counts.passages:
            with uninterrupted():
                self._library.compact()

    def report_progress(self) -> None:
        """Call `on_progress` with the current counts."""
        if self._on_progress is not None:
            self._on_progress(self._counts.progress(time.monotonic() - self._started))

    def report(self) -> IngestReport:
        """Return the report of the ingestion."""
        return self._counts.report(
            seconds=time.monotonic() - self._started,
            encode_seconds=self._encoder.seconds,
            cut_off=self._encoder.cut_off,
            renamed=self._patients.renamed,
        )

    def _is_full(self, additional: int) -> bool:
        """Return whether the batch with these additional passages would be too large or take too long."""
        passages = self._passages + additional
        if self._rate is None:
            return passages >= _FIRST_BATCH
        age = time.monotonic() - self._batch_started if self._documents else 0.0
        return passages >= self._max_passages or age + passages / self._rate >= self._max_seconds * _MARGIN

    def _skip_other_patients(self) -> None:
        """Skip documents that would replace another patient's document."""
        patients = read_document_patients(self._library, sorted(self._document_ids))
        documents, self._documents = self._documents, []
        self._document_ids.clear()
        self._passages = 0
        for pending in documents:
            document = pending.document
            if patients.get(document.id, document.patient) == document.patient:
                self._documents.append(pending)
                self._document_ids.add(document.id)
                self._passages += len(pending.passages)
            else:
                self._counts.skip(document.id, SAME_ID_OTHER_NOTE)

    def _commit_statements(self) -> None:
        """Write the pending statements, including those of notices in the batch.

        This precedes the documents, because committed documents are not read for statements again.
        """
        statements = list(self._statements)
        sources = set()
        for pending in self._documents:
            if pending.document.revision is not None:
                sources.add(pending.document.id)
                statements += extract_statements(pending.document)
        sources.update(statement.source for statement in statements)
        if sources:
            with uninterrupted():
                self._library.replace_statements(sorted(sources), statements)
        self._statements.clear()

    def _commit_documents(self) -> None:
        start = time.monotonic()
        replaced = list(self._library.content_hashes(sorted(self._document_ids)))
        vectors = self._encoder.encode_batch(self._documents, self._library.vectors_of(replaced))
        documents = self._to_stored(vectors)
        with uninterrupted():
            self._library.add(documents)
            self._counts.replaced += len(replaced)
            self._counts.added += len(documents) - len(replaced)
            self._counts.passages += self._passages
            self._rate = self._passages / max(time.monotonic() - start, 1e-6)
            self._documents, self._passages = [], 0
            self._document_ids.clear()
        self.report_progress()

    def _to_stored(self, vectors: list[Vectors]) -> list[StoredDocument]:
        """Return the documents of the batch with their vectors and marks."""
        marks_of = self._library.compute_marks([pending.document for pending in self._documents])
        stored = []
        for pending, rows in zip(self._documents, vectors, strict=True):
            document, passages = pending.document, pending.passages
            if marks := marks_of.get(document.id):
                passages = tuple(
                    dataclasses.replace(passage, metadata=replace_marks(passage.metadata, marks))
                    for passage in passages
                )
            stored.append(
                StoredDocument(document.id, pending.digest, passages, rows, document.revision, pending.origin)
            )
        return stored


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold Ctrl-C until the end of the block. Only the main thread receives Ctrl-C."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is None:
        yield
        return
    signals: list[tuple[int, FrameType | None]] = []
    handler = signal.signal(signal.SIGINT, lambda number, frame: signals.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    if signals and callable(handler):
        handler(*signals[0])
