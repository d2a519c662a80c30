"""Add files to a library, and create it if there is none: for the command line and for programs.

report = add_files(settings, Path("~/lib").expanduser(), [Path("papers")], AddOptions())
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from pathlib import Path

from epicrisis.core.errors import InputError
from epicrisis.core.protocols import Encoder, PassageStore, StoredDocument
from epicrisis.core.types import Document, Scope, SplitterName
from epicrisis.corpus.base.chunking import DEFAULT_OVERLAP
from epicrisis.corpus.base.patient_numbers import StoredPatients
from epicrisis.corpus.base.reader_base import (
    DeletedDocument,
    FileDocument,
    FileFingerprint,
    PatientIdentity,
    ReaderItem,
    Skipped,
)
from epicrisis.corpus.base.reading_progress import ReadingProgress
from epicrisis.corpus.base.removal_log import RemovalLog
from epicrisis.corpus.readers.sources import read_sources
from epicrisis.corpus.records.note_documents import NoteCleaning
from epicrisis.corpus.records.note_tables import NoteColumns
from epicrisis.library.base.manifest import complete_manifest
from epicrisis.library.base.passage_table import find_fault
from epicrisis.library.base.splitters import check_notes_fit_window, split_document
from epicrisis.library.core.journal import open_journal
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.core.patient_identities import find_contradiction, read_identities
from epicrisis.library.write.ingest import add_documents, check_vectors, content_hash, open_or_create
from epicrisis.library.write.ingest_batches import IngestCounts, IngestProgress, IngestReport
from epicrisis.models.cluster import ClusterAddress, join_cluster
from epicrisis.models.cluster_encoding import ClusterEncoder
from epicrisis.models.encoders import PrecomputedEncoder
from epicrisis.models.model_pool import ModelPool
from epicrisis.pipeline.components import load_ingest_encoder
from epicrisis.privacy.patient_data_policy import check_cluster, record_cluster, refuse_note
from epicrisis.settings.settings import Settings
from epicrisis.system.local_only import guard_network

READY_MADE = "medcpt"
"""The format whose documents come with vectors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddOptions:
    """How files are read and cut into passages. The names are those of `epicrisis library add`."""

    format: str | None = None
    """The format of all files. None: by their names and beginnings."""
    replace: bool = False
    splitter: SplitterName | None = None
    overlap: int = DEFAULT_OVERLAP
    chunk_tokens: int | None = None
    literature: bool | None = False
    """See `library.ingest.add_documents`."""
    columns: NoteColumns | None = None
    collection: str = ""
    """The collection of Zotero whose items are read; empty: all."""
    cleaning: NoteCleaning = field(default_factory=lambda: NoteCleaning(removal_log=RemovalLog(keep_texts=True)))
    cluster: ClusterAddress | None = None
    """Where passages are encoded. None: in this process."""


def add_files(
    settings: Settings,
    library: Path,
    sources: Sequence[Path],
    options: AddOptions,
    on_progress: Callable[[IngestProgress], None] | None = None,
    *,
    documents: Sequence[ReaderItem] = (),
    encoder: tuple[Encoder, str] | None = None,
    files: ReadingProgress | None = None,
    only: Collection[Path] | None = None,
    pool: ModelPool | None = None,
) -> IngestReport:
    """Add the documents of files and folders to the library, which is created if necessary. Return what was done.

    `documents` are added after those of the files; there must be one or the other. No other machine can be contacted
    meanwhile, since the files may hold patients' notes. `encoder` is a loaded encoder and its name, by default that of
    the library or the settings. `files` counts the files as they are read. `only`: of folders, these files alone are
    added. Raises UserError for wrong arguments before a library is created, StorageError, and ClusterError.
    """
    if options.cluster is not None:
        if settings.store is not None or options.format == READY_MADE:
            raise InputError(
                "--on encodes for libraries of epicrisis, and not the documents that bring their vectors: leave it out"
            )
        check_cluster(settings, library, options.cluster)
    read_files = None
    if sources or not documents:
        read_files = partial(
            read_sources, sources, options.format, columns=options.columns, only=only, collection=options.collection
        )
    with guard_network():
        if settings.store is not None:
            store = (pool or ModelPool()).load_store(settings.store, library)
            chosen, _ = encoder or load_ingest_encoder(settings, library, precomputed=False)
            in_files = read_files(cleaning=options.cleaning) if read_files is not None else ()
            return _add_to_own_store(store, chain(in_files, documents), chosen, options)
        folders = [source for source in sources if only is None and source.is_dir()]
        return _add_items(settings, library, read_files, options, on_progress, documents, encoder, files, folders)


def _add_items(
    settings: Settings,
    library: Path,
    read_files: Callable[..., Iterator[ReaderItem]] | None,
    options: AddOptions,
    on_progress: Callable[[IngestProgress], None] | None,
    documents: Sequence[ReaderItem],
    encoder: tuple[Encoder, str] | None,
    files: ReadingProgress | None,
    folders: Sequence[Path],
) -> IngestReport:
    splitter, complete_files = _read_library(library)
    items: Iterator[ReaderItem] = iter(documents)
    if read_files is not None:
        patients = StoredPatients(partial(_read_patients, library), find_contradiction)
        read_files = partial(read_files, patients=patients)
        in_files = read_files(previous=complete_files, cleaning=options.cleaning, with_origins=True, progress=files)
        items = chain(in_files, documents)
    if options.cluster is not None:
        items = _check_notes(items, settings, library, options.cluster)
    # The first item is read now, so that wrong arguments fail before a library is created.
    first = list(islice(items, 1))
    ready_made = options.format == READY_MADE
    loaded, name = encoder or load_ingest_encoder(settings, library, ready_made)
    splitter = splitter or options.splitter or "tokens"
    if splitter != "tokens" and not ready_made and read_files is not None:
        # An encoder that could not read all notes is refused before a library is created.
        recount = dataclasses.replace(options.cleaning, removal_log=RemovalLog())
        check_notes_fit_window(read_files(cleaning=recount, only_notes=True), splitter, loaded)
    removal_log = options.cleaning.removal_log
    with ExitStack() as resources:
        reading: Encoder = loaded
        if options.cluster is not None:
            if on_progress is not None:
                step = "starting Ray" if not options.cluster.is_remote else "joining the cluster"
                on_progress(dataclasses.replace(IngestCounts().build(IngestProgress, 0.0), step=step))
            reading = _distribute(loaded, name, settings, options.cluster, resources)
        store = resources.enter_context(
            open_or_create(library, reading, name, options.overlap, options.splitter, ready_made, options.chunk_tokens)
        )
        removal_log.write_to(store.path)
        try:
            report = add_documents(
                store,
                chain(first, items),
                reading,
                replace=options.replace,
                literature=options.literature,
                on_progress=on_progress,
            )
            if not isinstance(loaded, PrecomputedEncoder):
                check_vectors(store, loaded)
        finally:
            removal_log.close()
            record_cluster(settings, store.path, options.cluster)
        removed = removal_log.summary() if removal_log.has_sources else None
        return dataclasses.replace(report, removed=removed, gone=_list_gone(store, folders))


def _list_gone(store: LibraryStore, folders: Sequence[Path]) -> tuple[str, ...]:
    """Return the files below these folders that the library has documents of, and that are no longer there."""
    roots = [os.path.join(os.path.realpath(folder), "") for folder in folders]
    if not roots:
        return ()
    with open_journal(store.path) as journal:
        paths = [file.path for file in journal.list_files() if file.path.startswith(tuple(roots))]
    return tuple(path for path in paths if not os.path.lexists(path))


def _check_notes(
    items: Iterable[ReaderItem], settings: Settings, library: Path, cluster: ClusterAddress
) -> Iterator[ReaderItem]:
    """Yield the items. Raises SettingsError at a patient's note that must not leave this machine."""
    for item in items:
        document = item.document if isinstance(item, FileDocument) else item
        if isinstance(document, Document) and document.patient is not None:
            refuse_note(settings, library, cluster)
        yield item


def _distribute(
    encoder: Encoder, name: str, settings: Settings, cluster: ClusterAddress, resources: ExitStack
) -> ClusterEncoder:
    """Return the encoder, with passages encoded by the cluster. `resources` leaves it."""
    if isinstance(encoder, PrecomputedEncoder):
        encoder.encode_passages([("", "")])
    ray = resources.enter_context(join_cluster(cluster))
    is_here = not cluster.is_remote
    return ClusterEncoder(ray, encoder, name, settings.home, threads=settings.threads, same_machine=is_here)


def _add_to_own_store(
    store: PassageStore, items: Iterable[ReaderItem], encoder: Encoder, options: AddOptions
) -> IngestReport:
    """Add documents to a store of another package. It keeps no revisions, files, patients or retractions."""
    started = time.monotonic()
    counts = IngestCounts()
    encode_seconds = 0.0
    for item in items:
        document = item.document if isinstance(item, FileDocument) else item
        if isinstance(document, Skipped):
            counts.add_skipped(document)
        elif isinstance(document, DeletedDocument):
            versions = {document.id}
            if document.every_version:
                record = store.fetch_record(Scope(patient=document.patient))
                versions |= {passage.document_id for passage in record if document.names(passage.document_id)}
            counts.deleted += len(store.content_hashes(sorted(versions)))
            store.delete(sorted(versions))
        elif isinstance(document, Document):
            fault, digest = find_fault(document), content_hash(document)
            existing = store.content_hashes([document.id]).get(document.id)
            if fault is not None:
                counts.skip(document.id, fault)
            elif existing == digest:
                counts.unchanged += 1
            else:
                length = options.chunk_tokens or encoder.max_tokens
                splitter = options.splitter or "tokens"
                passages = split_document(document, splitter, encoder.token_spans, length, options.overlap)
                encoding_start = time.monotonic()
                vectors = encoder.encode_passages([(passage.title, passage.text) for passage in passages])
                encode_seconds += time.monotonic() - encoding_start
                store.add([StoredDocument(document.id, digest, passages, vectors)])
                counts.passages += len(passages)
                counts.added += existing is None
                counts.replaced += existing is not None
    return IngestReport(
        added=counts.added,
        replaced=counts.replaced,
        unchanged=counts.unchanged,
        outdated=0,
        deleted=counts.deleted,
        passages=counts.passages,
        cut_off=0,
        skipped=counts.skipped,
        first_skipped=counts.first_skipped,
        seconds=time.monotonic() - started,
        encode_seconds=encode_seconds,
        remarks=("a store of another package keeps no patients' names, retraction notices or versions of articles",),
    )


def _read_patients(library: Path) -> Iterable[PatientIdentity]:
    """Return the patients of a library; none without a library."""
    return read_identities(library).values() if complete_manifest(library) is not None else ()


def _read_library(path: Path) -> tuple[str | None, list[FileFingerprint]]:
    """Return how the library splits documents, and the files that it holds completely; none without a library."""
    manifest = complete_manifest(path)
    if manifest is None:
        return None, []
    with LibraryStore.open(path) as store:
        return manifest.splitter, [FileFingerprint(file.name, file.sha256, file.bytes) for file in store.sources()]
