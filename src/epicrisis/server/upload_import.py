"""Add the files of an upload to a library, with the readers and the ingestion of `epicrisis library add`.

Notes of patients are skipped: the page does not take them. Each skipped file has a reason and a cure.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from epicrisis.components import load_ingest_encoder
from epicrisis.corpus.reader_base import (
    FileDocument,
    FileFingerprint,
    PatientIdentity,
    ReaderItem,
    Skipped,
    check_file,
    printable_path,
)
from epicrisis.corpus.readers import NOTE_FORMATS, detect_format, read_sources
from epicrisis.errors import InputError
from epicrisis.library.ingest import add_documents, check_vectors
from epicrisis.library.ingest_batches import IngestProgress, IngestReport
from epicrisis.library.library import LibraryStore
from epicrisis.library.skipped_items import SkippedReason
from epicrisis.models.encoders import PrecomputedEncoder
from epicrisis.printable import count_noun, printable
from epicrisis.protocols import Encoder, Vectors
from epicrisis.server.resources import OpenLibrary
from epicrisis.server.upload_reception import ReceivedFile
from epicrisis.types import CharacterSpan, Document

_ENCODED_AT_ONCE = 16
"""Passages that are encoded between two looks whether the import is cancelled: about a second on one core."""
NO_NOTES = "notes of patients are not taken as uploads: add them with `epicrisis library add`"
_PDF = ".pdf"


class ImportCancelled(Exception):
    """The import was told to end."""


@dataclass(frozen=True, slots=True)
class ImportProgress:
    """What an import has done so far."""

    file: str = ""
    """The name of the file that is read."""
    files_read: int = 0
    files: int = 0
    documents: int = 0
    """Documents read."""
    saved: int = 0
    """Documents in the library."""
    skipped: int = 0
    passages: int = 0
    passages_per_second: float = 0.0
    seconds_left: float | None = None
    """Estimated from the bytes of the files read so far; None before the first is read."""


@dataclass(frozen=True, slots=True)
class ImportResult:
    """How an import ended."""

    added: int
    replaced: int
    unchanged: int
    skipped: int
    passages: int
    seconds: float
    reasons: tuple[SkippedReason, ...] = ()
    more_skipped: int = 0
    """Skipped documents without a listed reason, in records of earlier versions."""
    remarks: tuple[str, ...] = ()
    """What to know of files whose name or content was in the library already."""


class UploadImport:
    """The import of one upload.

    `folder` holds the files, `originals` keeps PDFs so that their pages can be shown. `replace_others`: replace
    documents of the same id from other files.
    """

    def __init__(
        self,
        library: OpenLibrary,
        files: Sequence[ReceivedFile],
        folder: Path,
        originals: Path,
        *,
        replace_others: bool = False,
    ) -> None:
        self.library = library
        self.files = files
        self.folder = folder
        self.originals = originals
        self.replace_others = replace_others
        self.progress = ImportProgress(files=len(files))
        self._names = {file.stored: file.name for file in files if file.stored}

    def run(self, cancelled: threading.Event, show: Callable[[ImportProgress], None]) -> ImportResult:
        """Add the documents and return the result. A file that is damaged or unknown is skipped.

        Raises ImportCancelled, and what `LibraryStore.open` and `add_documents` raise.
        """

        def show_progress(counts: IngestProgress) -> None:
            self.progress = replace(
                self.progress,
                documents=counts.documents,
                saved=counts.saved,
                skipped=counts.skipped,
                passages=counts.passages,
                passages_per_second=round(counts.passages / max(counts.seconds, 1e-9), 1),
            )
            show(self.progress)
            if cancelled.is_set():
                raise ImportCancelled

        def read() -> Iterator[ReaderItem]:
            for item in self._read_files(show):
                if cancelled.is_set():
                    raise ImportCancelled
                yield item

        search = self.library.pipeline.search
        assert search is not None
        path = search.library.path
        encoder = find_encoder(self.library)
        started = time.monotonic()
        with LibraryStore.open(path, write=True, encoder_fingerprint=encoder.fingerprint) as store:
            report = add_documents(
                store,
                read(),
                _CancelledEncoder(encoder, cancelled),
                on_progress=show_progress,
                replace=self.replace_others,
                literature=False,
            )
            if not isinstance(encoder, PrecomputedEncoder):
                check_vectors(store, encoder)
            delete_unused_originals(store, self.files, self.originals)
        return self._make_result(report, time.monotonic() - started)

    def _read_files(self, show: Callable[[ImportProgress], None]) -> Iterator[ReaderItem]:
        """Yield the items of every file, with the names that the sender gave in place of the stored ones."""
        started = time.monotonic()
        for number, file in enumerate(self.files):
            self.progress = replace(
                self.progress, file=file.name, files_read=number, seconds_left=self._estimate_rest(number, started)
            )
            show(self.progress)
            if file.refusal:
                yield Skipped(file.name, "", file.refusal)
                continue
            path = self._find_path(file)
            try:
                check_file(path)
                if detect_format(path) in NOTE_FORMATS:
                    yield Skipped(file.name, "", NO_NOTES)
                    continue
                items = read_sources([path], names={path: file.name}, with_origins=True)
                for item in items:
                    yield from self._check_item(file, item)
            except InputError as error:
                reason = error.message.removeprefix(f"{printable_path(path)}: ")
                yield Skipped(file.name, "", self._hide(reason))
        self.progress = replace(self.progress, files_read=len(self.files), seconds_left=0.0)

    def _estimate_rest(self, files_read: int, started: float) -> float | None:
        """Return the seconds until all files are read, if those that follow take as long for their size."""
        total = sum(file.bytes for file in self.files)
        done = sum(file.bytes for file in self.files[:files_read])
        return round((time.monotonic() - started) * (total - done) / done, 1) if done else None

    def _find_path(self, file: ReceivedFile) -> Path:
        """Return where a file is stored. A PDF is moved to the originals first, since the library records its path."""
        path = self.folder / file.stored
        if not file.stored.endswith(_PDF):
            return path
        original = self.originals / file.stored
        if path.is_file():
            self.originals.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.replace(original)
        return original

    def _check_item(self, file: ReceivedFile, item: ReaderItem) -> Iterator[ReaderItem]:
        """Yield an item of a file, or why it is skipped. Nothing of a patient passes."""
        document = item.document if isinstance(item, FileDocument) else item
        if isinstance(item, PatientIdentity):
            return
        if isinstance(document, Document) and document.patient is not None:
            yield Skipped(file.name, "", NO_NOTES)
        elif isinstance(item, Skipped):
            yield Skipped(file.name, item.where, self._hide(item.reason))
        elif isinstance(item, FileFingerprint):
            yield replace(item, name=file.name)
        else:
            yield item

    def _make_result(self, report: IngestReport, seconds: float) -> ImportResult:
        reasons: list[SkippedReason] = []
        for skipped in report.reasons:
            names: list[str] = []
            for name in skipped.names:
                names.append(printable(self._hide(name)))
            reasons.append(SkippedReason(printable(self._hide(skipped.reason)), skipped.count, tuple(names)))
        return ImportResult(
            added=report.added,
            replaced=report.replaced,
            unchanged=report.unchanged + report.outdated,
            skipped=report.skipped,
            passages=report.passages,
            seconds=round(seconds, 1),
            reasons=tuple(reasons),
            remarks=tuple(printable(self._hide(remark)) for remark in report.remarks),
        )

    def _hide(self, text: str) -> str:
        """Return a text with the given names of the files in place of the stored ones, and without folders."""
        for folder in (self.folder, self.folder.resolve(), self.originals, self.originals.resolve()):
            text = text.replace(f"{folder}/", "")
        for stored, name in self._names.items():
            text = text.replace(stored, name)
        return text.replace("with --replace", "with Replace chosen").replace("pass --replace", "choose Replace")


class _CancelledEncoder:
    """An encoder that raises ImportCancelled once it is told to: one document may be the work of minutes."""

    def __init__(self, encoder: Encoder, cancelled: threading.Event) -> None:
        self.fingerprint, self.dimensions = encoder.fingerprint, encoder.dimensions
        self.max_tokens, self.max_query_tokens = encoder.max_tokens, encoder.max_query_tokens
        self._encoder, self._cancelled = encoder, cancelled

    def token_spans(self, text: str) -> Sequence[CharacterSpan]:
        self._check()
        return self._encoder.token_spans(text)

    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        self._check()
        return self._encoder.encode_queries(texts)

    def encode_passages(self, texts: Sequence[tuple[str, str]]) -> Vectors:
        vectors = []
        for first in range(0, len(texts), _ENCODED_AT_ONCE):
            self._check()
            vectors.append(self._encoder.encode_passages(texts[first : first + _ENCODED_AT_ONCE]))
        return np.concatenate(vectors) if vectors else self._encoder.encode_passages([])

    def _check(self) -> None:
        if self._cancelled.is_set():
            raise ImportCancelled


def delete_unused_originals(store: LibraryStore, files: Sequence[ReceivedFile], originals: Path) -> None:
    """Delete the PDFs of an upload that no document of the library names: skipped ones, and copies of others."""
    for file in files:
        path = originals / file.stored
        if file.stored.endswith(_PDF) and store.find_origin(path=str(path.resolve())) is None:
            path.unlink(missing_ok=True)


def find_encoder(library: OpenLibrary) -> Encoder:
    """Return the encoder of a library: the open one, or else that of the settings.

    Raises ModelMissing and EncoderMismatch.
    """
    search = library.pipeline.search
    assert search is not None
    if search.retriever.encoder is not None:
        return search.retriever.encoder
    encoder, _ = load_ingest_encoder(library.pipeline.settings, search.library.path, precomputed=False)
    return encoder


def describe_result(result: ImportResult) -> str:
    """Return the counts of an import in one sentence."""
    return (
        f"{count_noun(result.added, 'document')} added, {result.replaced:,} replaced, {result.unchanged:,} unchanged, "
        f"{result.skipped:,} skipped; {count_noun(result.passages, 'passage')} in {result.seconds:.1f} s."
    )
