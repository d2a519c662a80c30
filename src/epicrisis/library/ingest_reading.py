"""The first stages of an ingestion: read items, compare documents with the library, and cut the new ones."""

from __future__ import annotations

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
from epicrisis.library.document_ids import DocumentCopy, FileDocumentIds
from epicrisis.library.ingest_batches import BatchWriter, uninterrupted
from epicrisis.library.ingest_comparison import (
    SAME_ID_OTHER_NOTE,
    SAME_ID_OTHER_TEXT,
    DocumentState,
    FirstHashes,
    compare_with_library,
    content_hash,
)
from epicrisis.library.ingest_encoding import PendingDocument
from epicrisis.library.ingest_patients import NotesAndLiterature, PatientRegistration, read_document_patients
from epicrisis.library.ingest_report import IngestCounts
from epicrisis.library.library import Library
from epicrisis.library.passage_checks import find_fault, find_vector_fault
from epicrisis.library.splitters import check_fits_window, split_document
from epicrisis.protocols import Encoder, Vectors
from epicrisis.types import Document, Origin, Passage


class ItemReader:
    """Reads the items of one ingestion and passes what is new to the batch."""

    def __init__(
        self,
        library: Library,
        encoder: Encoder,
        batch: BatchWriter,
        patients: PatientRegistration,
        counts: IngestCounts,
        *,
        replace: bool,
        literature: bool | None,
    ) -> None:
        self._library = library
        self._encoder = encoder
        self._batch = batch
        self._patients = patients
        self._counts = counts
        self._kinds = NotesAndLiterature(library, literature)
        self._file_ids = FileDocumentIds(library, counts, replace)
        self._first_hashes = FirstHashes()

    def close(self) -> None:
        self._first_hashes.close()

    def read(self, item: ReaderItem) -> None:
        if isinstance(item, PatientIdentity):
            self._patients.add(item)
            return
        self._patients.record()
        if isinstance(item, FileFingerprint):
            self._batch.add_whole_file(item)
            return
        self._counts.documents += 1
        if isinstance(item, Skipped):
            self._counts.add_skipped(item)
        elif isinstance(item, DeletedDocument):
            self._read_deletion(item)
        elif isinstance(item, ArticleStatement):
            self._counts.statements += 1
            self._counts.nameless += not item.targets
            self._batch.add_statement(item)
        elif isinstance(item, EncodedDocument):
            self._read_document(item.document, vector=item.vector)
        elif isinstance(item, FileDocument):
            self._read_file_document(item)
        else:
            self._read_document(item)

    def record_kinds(self) -> None:
        """Record in the library that it may hold notes and literature, if both were allowed."""
        self._kinds.save()

    def _read_deletion(self, item: DeletedDocument) -> None:
        """Delete the document, unless the library has a later revision."""
        self._batch.commit_if_pending(item.id)
        if not item.revision:
            # Later documents with this id do not restore it in this ingestion.
            self._first_hashes.add(item.id, "")
            if read_document_patients(self._library, [item.id]).get(item.id, "") == item.patient:
                self._counts.deleted += 1
                with uninterrupted():
                    self._library.delete([item.id])
            return
        revision = self._library.revisions([item.id]).get(item.id)
        if revision is not None and revision > item.revision:
            self._counts.outdated += 1
            return
        self._counts.deleted += item.id in self._library.content_hashes([item.id])
        with uninterrupted():
            self._library.delete([item.id], {item.id: item.revision})

    def _read_file_document(self, item: FileDocument) -> None:
        resolved = self._file_ids.resolve(item) if item.origin.name else item
        if isinstance(resolved, DocumentCopy):
            self._counts.already_there += 1
            self._counts.unchanged += 1
        else:
            self._read_document(resolved.document, origin=resolved.origin)

    def _read_document(
        self, document: Document, *, vector: Vectors | None = None, origin: Origin | None = None
    ) -> None:
        fault = find_fault(document) or self._kinds.find_fault(document)
        if fault is None and vector is not None:
            fault = find_vector_fault(vector, self._library.manifest.dimensions)
        if fault is not None:
            self._counts.skip(document.id, fault)
            return
        digest = content_hash(document)
        first = self._first_hashes.add(document.id, digest) if document.revision is None else None
        if first not in (None, digest):
            self._counts.skip(document.id, SAME_ID_OTHER_TEXT if document.patient is None else SAME_ID_OTHER_NOTE)
            return
        if first is None:
            self._batch.commit_if_pending(document.id)
        state = compare_with_library(self._library, document, digest)
        if state is DocumentState.OUTDATED:
            self._counts.outdated += 1
        elif state is DocumentState.UNCHANGED or first is not None:
            self._counts.unchanged += 1
            if first is None and origin is not None:
                self._update_origin(document.id, origin)
        elif state is DocumentState.NEW or self._may_replace(document, origin):
            passages = self._cut(document, vector)
            self._batch.add(PendingDocument(document, digest, passages, vector, origin))

    def _may_replace(self, document: Document, origin: Origin | None) -> bool:
        """Return whether a changed document may replace the existing one, which may be from another file."""
        if origin is None:
            return True
        existing = self._library.origins([document.id]).get(document.id)
        if fault := self._file_ids.find_fault(origin, existing):
            self._counts.skip(document.id, fault)
            return False
        self._counts.of_unknown_file += existing is None
        return True

    def _update_origin(self, document_id: str, origin: Origin) -> None:
        """Record the file of an unchanged document if the recorded file is unknown or missing."""
        existing = self._library.origins([document_id]).get(document_id)
        if self._file_ids.is_better(origin, existing):
            self._batch.add_origin(document_id, origin)

    def _cut(self, document: Document, vector: Vectors | None) -> tuple[Passage, ...]:
        """Cut the document with the library's splitter. A document with a precomputed vector is one passage."""
        manifest = self._library.manifest
        splitter = "whole" if vector is not None else manifest.splitter
        passages = split_document(document, splitter, self._encoder.token_spans, manifest.max_tokens, manifest.overlap)
        check_fits_window(document, passages, manifest.splitter, self._encoder)
        return passages
