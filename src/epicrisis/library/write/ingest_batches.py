"""The last stages of an ingestion: collect documents, encode them, commit each batch to the library, and report."""

from __future__ import annotations

import dataclasses
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import numpy as np

from epicrisis.core.printable import agree, count_noun, printable, shorten
from epicrisis.core.protocols import Encoder, ParallelEncoder, StoredDocument, Vectors
from epicrisis.core.types import Document, Origin, Passage
from epicrisis.corpus.articles.retractions import extract_statements
from epicrisis.corpus.base.reader_base import ArticleStatement, FileFingerprint, FileRemark, Skipped
from epicrisis.corpus.base.removal_log import RemovalSummary
from epicrisis.library.base.passage_table import replace_marks
from epicrisis.library.base.remote_store import is_in_database
from epicrisis.library.base.skipped_items import SkippedItems, SkippedReason
from epicrisis.library.base.splitters import is_longer_than_window
from epicrisis.library.core.journal import IngestedFile
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.core.patients import PatientRegistration, read_document_patients
from epicrisis.models.catalogue import reads_english_only
from epicrisis.retrieval.question_language import FOUND_BY_PAIRS, find_document_language
from epicrisis.system.telemetry import span

_Result = TypeVar("_Result", "IngestProgress", "IngestReport")
MAX_LISTED = 20
"""Maximum number of skipped documents in a report."""
SAME_ID_OTHER_NOTE = (
    "same id, but another note or another patient's: choose a column with an id unique to each note (--column "
    "note-id=NAME), or none; for FHIR, add sources with their own ids to a separate library"
)
_NAMED_FILES = 3
_FIRST_BATCH = 16
_MARGIN = 0.6
_MAX_ORIGINS = 10_000
_MAX_STATEMENTS = 5_000
_ENCODER_BATCH = 256
_AHEAD = 1
"""Batches that a parallel encoder reads while an earlier one is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestProgress:
    """Counts so far. `documents` were read; all other counts are of acknowledged or skipped documents."""

    documents: int
    added: int
    replaced: int
    unchanged: int
    outdated: int
    deleted: int
    skipped: int
    passages: int
    seconds: float
    step: str = ""
    """What the library is doing instead of adding documents: moving its passages to LanceDB."""

    @property
    def saved(self) -> int:
        """Documents acknowledged so far."""
        return self.added + self.replaced


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestReport:
    """The result of adding documents."""

    added: int
    replaced: int
    unchanged: int
    outdated: int
    """Documents older than those in the library, or than their deletion."""
    deleted: int
    passages: int
    cut_off: int
    """Passages longer than the encoder reads. Vector search ignores their ends."""
    skipped: int
    first_skipped: tuple[Skipped, ...]
    seconds: float
    encode_seconds: float
    reasons: tuple[SkippedReason, ...] = ()
    """Why items were skipped, the most frequent reason first."""
    renamed: int = 0
    """Patients with a new name, but the same birth date and a shared record number."""
    earlier_facts: int = 0
    """Structured facts of earlier exports that stay in documents of the same days."""
    joined: tuple[tuple[str, str], ...] = ()
    """Patients whom the library has under another id: the id in the files, and the one in the library."""
    statements: int = 0
    """Entries of lists of retractions."""
    nameless: int = 0
    """Entries without a PMID or DOI."""
    marked: int = 0
    """Existing documents whose marks changed."""
    removed: RemovalSummary | None = None
    """Text removed from notes, if there were any."""
    already_there: int = 0
    """Unchanged documents that are copies of files with another name."""
    remarks: tuple[str, ...] = ()
    """One line for each of the first files with a name or content that was already in the library."""
    more_remarks: int = 0
    gone: tuple[str, ...] = ()
    """Paths of files of the added folders that are no longer there. Their documents stay."""
    outgrown: bool = False
    """Whether the library has too many passages for SQLite, and the extra `large` is missing."""

    def __repr__(self) -> str:
        """Return one short line. `reasons` and `remarks` say more, and `epicrisis.to_json` has everything."""
        reason = f" ({shorten(self.reasons[0].reason)})" if self.reasons else ""
        return (
            f"<IngestReport: {count_noun(self.added, 'document')} added, {self.replaced:,} replaced, "
            f"{self.unchanged:,} unchanged, {self.skipped:,} skipped{reason}>"
        )


class IngestCounts:
    """Mutable counts during an ingestion, with the names of IngestReport."""

    def __init__(self, library: Path | None = None) -> None:
        self.skipped_items = SkippedItems(library)
        self.documents = 0
        self.added = self.replaced = self.unchanged = self.outdated = self.deleted = 0
        self.passages = self.statements = self.nameless = self.marked = self.renamed = 0
        self.earlier_facts = 0
        self.already_there = self.cut_off = 0
        self.encode_seconds = 0.0
        self.step = ""
        self.outgrown = False
        self.skipped = 0
        self.first_skipped: tuple[Skipped, ...] = ()
        self.remarks: tuple[str, ...] = ()
        self.more_remarks = 0
        self._file_remarks: dict[tuple[str, str], list[FileRemark]] = {}
        self._languages: Counter[str] = Counter()

    def skip(self, document_id: str, reason: str) -> None:
        """Count a skipped document."""
        self.add_skipped(Skipped(document_id, "", reason))

    def add_skipped(self, skipped: Skipped) -> None:
        """Count a skipped item."""
        self.skipped += 1
        self.skipped_items.add(skipped)
        if len(self.first_skipped) < MAX_LISTED:
            self.first_skipped += (skipped,)

    def add_remark(self, text: str) -> None:
        """Add a line about a file to the report."""
        if len(self.remarks) < MAX_LISTED:
            self.remarks += (text,)
        else:
            self.more_remarks += 1

    def add_file_remark(self, remark: FileRemark) -> None:
        """Add a remark of a reader. Remarks of many files that say the same become one line."""
        self._file_remarks.setdefault((remark.noun, remark.text), []).append(remark)

    def add_language(self, text: str) -> None:
        """Count the language of a new document, if it is not English."""
        if language := find_document_language(text):
            self._languages[language] += 1

    def add_language_remark(self, encoder: str) -> None:
        """Add a line that counts the documents whose language the encoder or the search by words does not read."""
        if reads_english_only(encoder):
            readers = [f"the encoder {encoder}"]
            cure = "searches may miss them; a library with an encoder of many languages finds them by meaning"
        else:
            readers, cure = [], "it finds their words only as they are written"
        if self._languages.keys() - FOUND_BY_PAIRS:
            readers.append("the search by words")
        if not self._languages or not readers:
            return
        total = self._languages.total()
        names = ", ".join(f"{count:,} {language}" for language, count in self._languages.most_common())
        line = (
            f"{count_noun(total, 'document')} {agree(total, 'seems', 'seem')} not to be English ({names}), and "
            f"{' and '.join(readers)} {agree(len(readers), 'reads', 'read')} English: {cure}"
        )
        self.remarks = (line, *self.remarks)

    def file_remark_lines(self) -> tuple[str, ...]:
        """Return one line for each kind of remark, with the sum of the counts and the first files."""
        lines: list[str] = []
        for (noun, text), remarks in self._file_remarks.items():
            total = count_noun(sum(remark.count for remark in remarks), noun)
            names = [printable(Path(remark.path).name) for remark in remarks[:_NAMED_FILES]]
            others = f" and {len(remarks) - len(names):,} more" if len(remarks) > len(names) else ""
            lines.append(f"{total} {text} ({', '.join(names)}{others})")
        return tuple(lines)

    def build(self, kind: type[_Result], seconds: float) -> _Result:
        """Return the progress or the report after so many seconds."""
        names = vars(self).keys() & {field.name for field in fields(kind)}
        values = {name: getattr(self, name) for name in names}
        if "remarks" in values:
            values["remarks"] = (*self.file_remark_lines(), *self.remarks)
        return kind(seconds=seconds, **values)


@dataclass(frozen=True, slots=True)
class PendingDocument:
    """A document to be written with the next commit."""

    document: Document
    digest: str
    passages: tuple[Passage, ...]
    vector: Vectors | None
    """`(d,)` for a document with a precomputed vector."""
    origin: Origin | None = None


@dataclass(slots=True)
class _SentBatch:
    """Documents whose vectors are being computed."""

    documents: dict[str, PendingDocument]
    passages: int
    collect: Callable[[], list[Vectors]]
    """Waits for the vectors `(n, d)` of each document."""
    files: list[FileFingerprint]
    """Files that are complete with this batch."""
    sent: float
    replaced: int
    """Documents that exist in other versions."""


class BatchWriter:
    """Collects documents, statements and files, and commits them when there are enough or time runs out.

    With a parallel encoder the next batch is collected while it reads one, and it reads that one while the one before
    is written. Batches are written in order.
    """

    def __init__(
        self,
        library: LibraryStore,
        encoder: Encoder,
        on_progress: Callable[[IngestProgress], None] | None,
        max_seconds: float,
        max_passages: int,
    ) -> None:
        self.library = library
        self.counts = IngestCounts(library.path)
        self.patients = PatientRegistration(library)
        self.whole_files: list[FileFingerprint] = []
        """Files recorded after the next commit as added completely."""
        self._encoder = encoder
        self._on_progress = on_progress
        self._max_seconds = max_seconds
        self._max_passages = max_passages
        self._started = time.monotonic()
        self._documents: dict[str, PendingDocument] = {}
        self._passages = 0
        self._sent: deque[_SentBatch] = deque()
        self._ahead = _AHEAD if isinstance(encoder, ParallelEncoder) else 0
        self._last_written = self._started
        self._batch_started = 0.0
        # Passages per second of the last batch, from encoding to acknowledgement.
        self._rate: float | None = None
        self._origins: dict[str, Origin] = {}
        self._statements: list[ArticleStatement] = []

    def add(self, pending: PendingDocument) -> None:
        """Add a document to the batch. Close it before if it would be too large, and afterwards if it is full."""
        if self._is_full(len(pending.passages)):
            self._close_batch(self._ahead)
        if not self._documents:
            self._batch_started = time.monotonic()
        self._documents[pending.document.id] = pending
        self._passages += len(pending.passages)
        if self._is_full(0):
            self._close_batch(self._ahead)

    def _is_full(self, additional: int) -> bool:
        """Return whether the batch with these additional passages would be too large or take too long."""
        passages = self._passages + additional
        if self._rate is None:
            return passages >= _FIRST_BATCH
        age = time.monotonic() - self._batch_started if self._documents else 0.0
        return passages >= self._max_passages or age + passages / self._rate >= self._max_seconds * _MARGIN

    def add_origin(self, document_id: str, origin: Origin) -> None:
        """Record the file of an existing document with the next commit."""
        self._origins[document_id] = origin
        if len(self._origins) >= _MAX_ORIGINS:
            self.commit()

    def add_statement(self, statement: ArticleStatement) -> None:
        """Record a statement about another article with the next commit."""
        self.counts.statements += 1
        self.counts.nameless += not statement.targets
        self._statements.append(statement)
        if len(self._statements) >= _MAX_STATEMENTS:
            self.commit()

    def is_pending(self, document_id: str) -> bool:
        """Return whether this document was collected and is not yet written."""
        return document_id in self._documents or any(document_id in batch.documents for batch in self._sent)

    def commit_if_pending(self, document_id: str) -> None:
        """Write everything collected if it contains this document."""
        if self.is_pending(document_id):
            self.commit()

    def commit(self) -> None:
        """Encode the batch and write everything collected. It is acknowledged when this returns."""
        self._close_batch(0)

    def _close_batch(self, ahead: int) -> None:
        """Send the batch to the encoder, and write the oldest batches until `ahead` of them are left."""
        self._send()
        while len(self._sent) > ahead:
            batch = self._sent.popleft()
            with span("add batch", {"epicrisis.documents": len(batch.documents), "epicrisis.passages": batch.passages}):
                self._write(batch)

    def _send(self) -> None:
        """Prepare the batch, and begin to encode it."""
        if self._origins:
            self.library.set_origins(self._origins)
            self._origins.clear()
        patients = read_document_patients(self.library, sorted(self._documents))
        for document_id, pending in list(self._documents.items()):
            # A document never replaces another patient's document.
            patient = pending.document.patient
            if patients.get(document_id, patient) != patient:
                del self._documents[document_id]
                self._passages -= len(pending.passages)
                self.counts.skip(document_id, SAME_ID_OTHER_NOTE)
        self.patients.add_from_notes(pending.document for pending in self._documents.values())
        self.patients.record()
        # Statements precede their documents, because committed documents are not read for statements again.
        sources = set()
        for pending in self._documents.values():
            if pending.document.revision is not None:
                sources.add(pending.document.id)
                self._statements += extract_statements(pending.document)
        sources.update(statement.source for statement in self._statements)
        if sources:
            with uninterrupted():
                self.library.replace_statements(sorted(sources), self._statements)
        self._statements.clear()
        if self._documents:
            replaced = list(self.library.content_hashes(sorted(self._documents)))
            collect = self._start_encoding(self.library.vectors_of(replaced))
            self._sent.append(_SentBatch(self._documents, self._passages, collect, [], time.monotonic(), len(replaced)))
            self._documents, self._passages = {}, 0
        if self._sent:
            self._sent[-1].files += self.whole_files
        else:
            self._record_files(self.whole_files)
        self.whole_files.clear()

    def _record_files(self, files: Sequence[FileFingerprint]) -> None:
        for file in files:
            now = datetime.now(UTC).isoformat(timespec="seconds")
            self.library.add_source(IngestedFile(file.sha256, file.name, file.bytes, now))

    def _write(self, batch: _SentBatch) -> None:
        """Wait for the vectors of a batch, and commit its documents."""
        start = time.monotonic()
        with span("encode batch"):
            vectors = batch.collect()
        self.counts.encode_seconds += time.monotonic() - start
        marks_of = self.library.compute_marks([pending.document for pending in batch.documents.values()])
        documents = []
        for pending, rows in zip(batch.documents.values(), vectors, strict=True):
            document, passages = pending.document, list(pending.passages)
            if marks := marks_of.get(document.id):
                for index, passage in enumerate(passages):
                    passages[index] = dataclasses.replace(passage, metadata=replace_marks(passage.metadata, marks))
            documents.append(
                StoredDocument(document.id, pending.digest, tuple(passages), rows, document.revision, pending.origin)
            )
        with uninterrupted(), span("write batch", {"epicrisis.store": type(self.library).__name__}):
            self.library.prepare_addition()
            self.library.add(documents)
            self.counts.replaced += batch.replaced
            self.counts.added += len(documents) - batch.replaced
            self.counts.passages += batch.passages
            now = time.monotonic()
            self._rate = batch.passages / max(now - max(batch.sent, self._last_written), 1e-6)
            self._last_written = now
        self._record_files(batch.files)
        self.report_progress()
        # Not in the block above: Ctrl-C leaves the library as it is, and the next addition moves it.
        self.counts.outgrown = self.library.move_if_large(self._report_step)
        self.counts.step = ""

    def _report_step(self, step: str) -> None:
        self.counts.step = step
        self.report_progress()

    def _start_encoding(self, existing: Mapping[tuple[str, str], Vectors]) -> Callable[[], list[Vectors]]:
        """Begin to encode the batch, and return a function that waits for the vectors `(n, d)` of each document.

        `existing` maps (title, text) of old passages to vectors.
        """
        reusable = {_normalize(*text): vector for text, vector in existing.items()}
        vectors = np.empty((self._passages, self.library.manifest.dimensions), dtype=np.float32)
        missing: dict[int, Passage] = {}
        ends: list[int] = []
        row = 0
        for pending in self._documents.values():
            for passage in pending.passages:
                vector = pending.vector
                if vector is None:
                    vector = reusable.get(_normalize(passage.title, passage.text))
                if vector is None:
                    missing[row] = passage
                else:
                    vectors[row] = vector
                row += 1
            ends.append(row)
        if self.library.manifest.splitter != "tokens":
            self.counts.cut_off += sum(is_longer_than_window(passage, self._encoder) for passage in missing.values())
        # Sorting by length avoids padding.
        rows = sorted(missing, key=lambda row: len(missing[row].title) + len(missing[row].text))
        texts = [(missing[row].title, missing[row].text) for row in rows]
        if isinstance(self._encoder, ParallelEncoder):
            wait = self._encoder.start_passages(texts)
        else:
            wait = partial(_encode, self._encoder, texts, self.report_progress)

        def collect() -> list[Vectors]:
            if rows:
                vectors[rows] = wait()
            return np.split(vectors, ends[:-1])

        return collect

    def finish(self) -> None:
        """Write the last batch, apply changed statements to existing documents, and compact the library."""
        self.commit()
        with uninterrupted():
            self.counts.marked = self.library.update_due_marks()
        if is_in_database(self.library.path):
            # Ctrl-C takes back what is not finished. The next addition then does it, even if it adds nothing.
            self.library.compact(self._report_step)
            self.counts.step = ""
        elif self.counts.passages:
            with uninterrupted():
                self.library.compact()

    def report_progress(self) -> None:
        """Call `on_progress` with the current counts."""
        if self._on_progress is not None:
            self._on_progress(self.counts.build(IngestProgress, time.monotonic() - self._started))

    def report(self) -> IngestReport:
        self.counts.renamed = self.patients.renamed
        self.counts.skipped_items.close()
        self.counts.add_language_remark(self.library.manifest.encoder_name)
        report = self.counts.build(IngestReport, time.monotonic() - self._started)
        joined = tuple(sorted(self.patients.joined.items()))
        return dataclasses.replace(report, reasons=self.counts.skipped_items.by_reason(), joined=joined)


def _encode(encoder: Encoder, texts: Sequence[tuple[str, str]], report_progress: Callable[[], None]) -> Vectors:
    """Return the vectors `(n, d)` of these texts. One document may be the work of hours, so progress is reported."""
    blocks = []
    for first in range(0, len(texts), _ENCODER_BATCH):
        blocks.append(encoder.encode_passages(texts[first : first + _ENCODER_BATCH]))
        report_progress()
    return np.concatenate(blocks)


def _normalize(title: str, text: str) -> tuple[str, str]:
    """Return both texts without differences in white space, which encoders ignore."""
    return " ".join(title.split()), " ".join(text.split())


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold Ctrl-C, and SIGTERM if the program handles it, until the end of the block.

    Only the main thread receives signals.
    """
    handlers: dict[int, Callable[[int, FrameType | None], Any]] = {}
    if threading.current_thread() is threading.main_thread():
        for number in (int(signal.SIGINT), int(signal.SIGTERM)):
            handler = signal.getsignal(number)
            if callable(handler):
                handlers[number] = handler
    received: list[tuple[int, FrameType | None]] = []
    for number in handlers:
        signal.signal(number, lambda number, frame: received.append((number, frame)))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if received:
        number, frame = received[0]
        handlers[number](number, frame)
