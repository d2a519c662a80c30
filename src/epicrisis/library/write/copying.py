"""Copy a library to another place: from a folder into a database, or back, without encoding anything again.

    report = copy_library(library_folder("~/lib"), library_folder("postgresql://owner@db/hospital"))

A copy that was killed continues. At its end all rows of both libraries are compared, and what the journals record.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from epicrisis.core.errors import LibraryDamaged, LibraryError
from epicrisis.core.protocols import StoredDocument, Vectors
from epicrisis.library.base.manifest import complete_manifest
from epicrisis.library.base.passage_table import ALL_COLUMNS, StoredPassage, sql_in
from epicrisis.library.base.remote_store import load_object_storage
from epicrisis.library.core import patient_identities as registry
from epicrisis.library.core.journal import DocumentRow, Journal, open_journal
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.engines.engine_choice import compute_digest
from epicrisis.library.engines.lance_table import has_lance
from epicrisis.library.engines.vector_search import EXACT_LIMIT
from epicrisis.system.remote_libraries import show_library

_BATCH_PASSAGES = 4096
_CHECK_DOCUMENTS = 1000
"""Documents whose hashes are compared at a time."""


@dataclass(frozen=True, slots=True)
class CopyReport:
    """What a copy did. Both libraries hold the same at its end."""

    documents: int
    passages: int
    copied: int
    """Documents copied by this call. The others were copied before."""
    deleted: int
    """Documents deleted from the copy, because the source has lost them since."""
    seconds: float


def copy_library(
    source: Path, destination: Path, on_progress: Callable[[int, int, str], None] | None = None
) -> CopyReport:
    """Copy all documents with vectors, files, patients, deletions and statements, and compare both libraries.

    `destination` is new, or an earlier copy of this library, which is brought up to date. `on_progress` receives the
    documents done, their number, and the step. Raise LibraryError for another library there, if this user of a
    database may not read everything, or if the source changed meanwhile, and LibraryDamaged if the copy differs.
    """
    report = on_progress or (lambda done, total, step: None)
    started = time.monotonic()
    if source == destination:
        raise LibraryError("the copy cannot replace its source: give another destination")
    with ExitStack() as stack:
        original = stack.enter_context(_open_source(source))
        copy = stack.enter_context(_open_copy(original, source, destination))
        ours = stack.enter_context(open_journal(original.path))
        theirs = stack.enter_context(open_journal(copy.path))
        documents, passages = original.count()
        if ours.recount() != (documents, passages):
            raise LibraryError(
                f"{show_library(source)}: this user of the database sees {ours.recount()[0]:,} of {documents:,} "
                "documents: copy as a member of epicrisis_writer"
            )
        report(0, documents, "copying")
        # The writer of a library on object storage works in a folder of its own.
        _copy_records(original.path, copy.path, ours, theirs)
        copied = _copy_documents(original, copy, ours, lambda done: report(done, documents, "copying"))
        _copy_sources(copy, ours, theirs)
        deleted = _delete_others(copy, ours, theirs)
        report(documents, documents, "building indexes")
        copy.optimize(on_step=lambda step: report(documents, documents, step))
        report(documents, documents, "comparing")
        _compare(original, copy, ours, theirs)
        documents, passages = copy.count()
    return CopyReport(documents, passages, copied, deleted, time.monotonic() - started)


def _open_source(source: Path) -> AbstractContextManager[LibraryStore]:
    """Open the source. On object storage it is one version, although a writer may publish others meanwhile."""
    module = load_object_storage(source)
    if module is None:
        return LibraryStore.open(source)
    snapshot: AbstractContextManager[LibraryStore] = module.open_snapshot(source)
    return snapshot


def _open_copy(original: LibraryStore, source: Path, destination: Path) -> LibraryStore:
    """Create the copy, or open an earlier one, for writing."""
    manifest = original.manifest
    mark = f"copy of {manifest.library_id}"
    if complete_manifest(destination) is None:
        is_large = original.count()[1] > EXACT_LIMIT and has_lance()
        copy = LibraryStore.create(
            destination,
            encoder_fingerprint=manifest.encoder_fingerprint,
            encoder_name=manifest.encoder_name,
            dimensions=manifest.dimensions,
            max_tokens=manifest.max_tokens,
            overlap=manifest.overlap,
            splitter=manifest.splitter,
            engine="lance" if is_large else "sqlite",
        )
    else:
        copy = LibraryStore.open(destination, write=True, encoder_fingerprint=manifest.encoder_fingerprint)
    try:
        identities = registry.open_identities(copy.path)
        if not identities.is_declared(mark):
            if copy.count() != (0, 0):
                raise LibraryError(
                    f"{show_library(destination)} holds documents and is no copy of {show_library(source)}: choose an "
                    "empty or new place"
                )
            identities.declare(mark, datetime.now(UTC).isoformat(timespec="seconds"))
        if copy.count() == (0, 0):
            copy.prepare_bulk()
    except BaseException:
        copy.close()
        raise
    return copy


def _copy_records(source: Path, destination: Path, ours: Journal, theirs: Journal) -> None:
    """Copy what must be there before the passages: patients, deletions, statements."""
    registry.copy_identities(source, destination)
    theirs.record_deletions(ours.deletions())
    if ours.has_statements:
        theirs.create_statements([])
        statements = ours.statements()
        sources = {statement.source for statement in (*statements, *theirs.statements())}
        theirs.replace_statements(sorted(sources), statements)
        # The marks are in the metadata of the documents already.
        theirs.clear_due(sorted(set(theirs.due_targets()) - set(ours.due_targets())))


def _copy_documents(
    original: LibraryStore, copy: LibraryStore, ours: Journal, on_progress: Callable[[int], None]
) -> int:
    """Copy the documents that the copy lacks, or has in another version or with other marks. Return their number."""
    done = copied = 0
    for rows in _split(ours.documents()):
        ids = [row.id for row in rows]
        for batch in _split(_find_outdated(original, copy, rows), _BATCH_PASSAGES):
            copy.add(_read_documents(original, batch))
            copied += len(batch)
            on_progress(done + len(batch))
        origins, copied_origins = original.origins(ids), copy.origins(ids)
        if changed := {id_: origin for id_, origin in origins.items() if copied_origins.get(id_) != origin}:
            copy.set_origins(changed)
        done += len(rows)
        on_progress(done)
    return copied


def _copy_sources(copy: LibraryStore, ours: Journal, theirs: Journal) -> None:
    """Record the files of the source, and forget those that it has forgotten."""
    files = ours.sources()
    for file in files:
        copy.add_source(file)
    digests = {file.sha256 for file in files}
    theirs.forget_sources([file for file in theirs.sources() if file.sha256 not in digests])


def _find_outdated(original: LibraryStore, copy: LibraryStore, rows: Sequence[DocumentRow]) -> list[DocumentRow]:
    """Return the documents that the copy lacks, or has with another text, revision or mark."""
    hashes = copy.content_hashes([row.id for row in rows])
    ids = list(hashes)
    ours, theirs = _read_states(original, ids), _read_states(copy, ids)
    outdated = []
    for row in rows:
        # The hash of the content covers neither the revision nor the marks.
        if hashes.get(row.id) != row.content_hash or ours.get(row.id) != theirs.get(row.id):
            outdated.append(row)
    return outdated


def _read_states(library: LibraryStore, document_ids: Sequence[str]) -> dict[str, tuple[str, str | None]]:
    """Map each of these documents to its metadata and revision."""
    if not document_ids:
        return {}
    states = {}
    condition = f"{sql_in('document_id', document_ids)} AND ordinal = 0"
    for row in library.open_table().rows(["document_id", "metadata", "revision"], condition):
        states[row["document_id"]] = (row["metadata"], row["revision"])
    return states


def _split(rows: Iterable[DocumentRow], passages: float = math.inf) -> Iterator[list[DocumentRow]]:
    """Yield the rows in batches, each complete with so many documents, or with so many passages."""
    batch: list[DocumentRow] = []
    count = 0
    for row in rows:
        batch.append(row)
        count += row.passages
        if len(batch) == _CHECK_DOCUMENTS or count >= passages:
            yield batch
            batch, count = [], 0
    if batch:
        yield batch


def _read_documents(original: LibraryStore, rows: Sequence[DocumentRow]) -> list[StoredDocument]:
    """Return documents with their vectors. Raise LibraryError for one that was deleted meanwhile."""
    table = original.open_table()
    passages: dict[str, list[tuple[StoredPassage, Vectors]]] = {row.id: [] for row in rows}
    for columns in table.read_columns(ALL_COLUMNS, sql_in("document_id", list(passages))):
        vectors = columns["vector"].astype(np.float32)
        for stored, vector in zip(table.parse(columns), vectors, strict=True):
            passages[stored.passage.document_id].append((stored, vector))
    documents = []
    for row in rows:
        pairs = sorted(passages[row.id], key=lambda pair: pair[0].passage.ordinal)
        if len(pairs) != row.passages or {stored.content_hash for stored, _ in pairs} != {row.content_hash}:
            raise LibraryError(f"{show_library(original.path)} was changed during the copy: repeat the command")
        documents.append(
            StoredDocument(
                row.id,
                row.content_hash,
                tuple(stored.passage for stored, _ in pairs),
                np.stack([vector for _, vector in pairs]),
                row.revision,
            )
        )
    return documents


def _delete_others(copy: LibraryStore, ours: Journal, theirs: Journal) -> int:
    """Delete the documents of the copy that the source does not have. Return their number."""
    others: list[str] = []
    for rows in _split(theirs.documents()):
        ids = [row.id for row in rows]
        existing = ours.hashes(ids)
        others += [id_ for id_ in ids if id_ not in existing]
    if others:
        copy.delete(others)
    return len(others)


def _compare(original: LibraryStore, copy: LibraryStore, ours: Journal, theirs: Journal) -> None:
    """Raise LibraryDamaged unless both libraries hold the same rows, and record the same."""
    records = {
        "the numbers of documents and passages": original.count() == copy.count(),
        "the files": ours.sources() == theirs.sources() and ours.origins() == theirs.origins(),
        "the patients": registry.read_identities(original.path) == registry.read_identities(copy.path),
        "the deletions": ours.deletions() == theirs.deletions(),
        "the statements on retractions": set(ours.statements()) == set(theirs.statements()),
        "the passages": compute_digest(original.open_table()) == compute_digest(copy.open_table()),
    }
    if differing := [name for name, is_equal in records.items() if not is_equal]:
        raise LibraryDamaged(
            f"{show_library(copy.path)} differs from its source in {', '.join(differing)}: repeat the command; if it "
            "differs again, check the source with `epicrisis library check`"
        )
