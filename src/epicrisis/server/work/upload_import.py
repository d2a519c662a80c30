"""Add the files of an upload to a library, with the readers and the ingestion of `epicrisis library add`.

Notes of patients are skipped: the page does not take them. Each skipped file has a reason and a cure.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from epicrisis.core.errors import InputError
from epicrisis.core.printable import printable
from epicrisis.core.types import Document
from epicrisis.corpus.base.reader_base import (
    FileDocument,
    FileFingerprint,
    PatientIdentity,
    ReaderItem,
    Skipped,
    check_file,
    printable_path,
)
from epicrisis.corpus.readers.sources import NOTE_FORMATS, detect_format, read_sources
from epicrisis.library.base.skipped_items import SkippedReason
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.write.ingest import add_documents, check_vectors
from epicrisis.library.write.ingest_batches import IngestProgress, IngestReport
from epicrisis.models.encoders import PrecomputedEncoder
from epicrisis.pipeline.components import load_ingest_encoder
from epicrisis.server.work.import_process import ImportProgress, ImportResult, ImportTask, ReceivedFile
from epicrisis.settings.settings import Settings
from epicrisis.system.remote_libraries import library_folder

NO_NOTES = "notes of patients are not taken as uploads: add them with `epicrisis library add`"
_PDF = ".pdf"


class UploadImport:
    """The import of one upload, in a process of its own. `show` gets its progress."""

    def __init__(self, task: ImportTask, show: Callable[[ImportProgress], None]) -> None:
        self._task = task
        self._show = show
        self._progress = ImportProgress(files=len(task.files))
        self._names = {file.stored: file.name for file in task.files if file.stored}

    def run(self) -> ImportResult:
        """Add the documents and return the result. A file that is damaged or unknown is skipped.

        Raises what `load_ingest_encoder`, `LibraryStore.open` and `add_documents` raise.
        """
        task = self._task
        path = library_folder(task.library)
        settings = Settings(home=task.home, encoder=task.encoder, threads=task.threads)
        encoder, _ = load_ingest_encoder(settings, path, precomputed=False)
        started = time.monotonic()
        with LibraryStore.open(path, write=True, encoder_fingerprint=encoder.fingerprint) as store:
            report = add_documents(
                store,
                self._read_files(),
                encoder,
                on_progress=self._show_counts,
                replace=task.replace_others,
                literature=False,
            )
            if not isinstance(encoder, PrecomputedEncoder):
                check_vectors(store, encoder)
            delete_unused_originals(store, task.files, task.originals)
        return self._make_result(report, time.monotonic() - started)

    def _change_progress(self, **changes: Any) -> None:
        self._progress = replace(self._progress, **changes)
        self._show(self._progress)

    def _show_counts(self, counts: IngestProgress) -> None:
        self._change_progress(
            documents=counts.documents,
            saved=counts.saved,
            skipped=counts.skipped,
            passages=counts.passages,
            passages_per_second=round(counts.passages / max(counts.seconds, 1e-9), 1),
        )

    def _read_files(self) -> Iterator[ReaderItem]:
        """Yield the items of every file, with the names that the sender gave in place of the stored ones."""
        started = time.monotonic()
        for number, file in enumerate(self._task.files):
            self._change_progress(file=file.name, files_read=number, seconds_left=self._estimate_rest(number, started))
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
        self._change_progress(files_read=len(self._task.files), seconds_left=0.0)

    def _estimate_rest(self, files_read: int, started: float) -> float | None:
        """Return the seconds until all files are read, if those that follow take as long for their size."""
        total = sum(file.bytes for file in self._task.files)
        done = sum(file.bytes for file in self._task.files[:files_read])
        return round((time.monotonic() - started) * (total - done) / done, 1) if done else None

    def _find_path(self, file: ReceivedFile) -> Path:
        """Return where a file is stored. A PDF is moved to the originals first, since the library records its path."""
        path = self._task.folder / file.stored
        if not file.stored.endswith(_PDF):
            return path
        original = self._task.originals / file.stored
        if path.is_file():
            self._task.originals.mkdir(mode=0o700, parents=True, exist_ok=True)
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
        for folder in (
            self._task.folder,
            self._task.folder.resolve(),
            self._task.originals,
            self._task.originals.resolve(),
        ):
            text = text.replace(f"{folder}/", "")
        for stored, name in self._names.items():
            text = text.replace(stored, name)
        return text.replace("with --replace", "with Replace chosen").replace("pass --replace", "choose Replace")


def delete_unused_originals(store: LibraryStore, files: Sequence[ReceivedFile], originals: Path) -> None:
    """Delete the PDFs of an upload that no document of the library names: skipped ones, and copies of others."""
    for file in files:
        path = originals / file.stored
        if file.stored.endswith(_PDF) and store.find_origin(path=str(path.resolve())) is None:
            path.unlink(missing_ok=True)
