"""A library on object storage, `s3://bucket/folder`, for one writer and many readers on any machine.

Readers use a copy on their own disk (`replica`), which follows the newest version. The writer prepares each version in
a folder of its own and publishes it as a whole (`shared_writer`). Both folders are ordinary libraries.
"""

from __future__ import annotations

import dataclasses
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from epicrisis.core.errors import EpicrisisError, LibraryBusy
from epicrisis.core.protocols import StoredDocument
from epicrisis.library.base.engine_errors import translate_errors
from epicrisis.library.base.manifest import LibraryManifest, read_manifest
from epicrisis.library.core import repair
from epicrisis.library.core.library_parts import LibraryInfo
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.engines.index_recall import DEFAULT_RECALL, IndexReport
from epicrisis.library.object_storage.replica import Replica, find_replica, refresh_replica
from epicrisis.library.object_storage.shared_version import FOLDER
from epicrisis.library.object_storage.shared_writer import SharedWriter

_BULK_SECONDS = 300.0
_SNAPSHOT = "snapshot"
_OTHER_MACHINES = "copies of this library on other machines, until ten minutes after their next command"
__all__ = [
    "SharedLibrary",
    "create_library",
    "find_unused_objects",
    "open_library",
    "open_snapshot",
    "refresh_replica",
    "remove_old_files",
    "repair_library",
]


class SharedLibrary(LibraryStore):
    """A PassageStore on object storage. `add` and `delete` are durable on the server when they return.

    Use `create_library` or `open_library`. Other changes are published with the next `add` or `delete`, or by `close`.
    Errors of the server are raised as StorageError, and LibraryBusy if another writer has taken over.
    """

    _replica: Replica
    _writer: SharedWriter | None = None
    _has_failed = False
    _bulk_until: float | None = None
    """When to publish next during many additions."""

    def add(self, documents: Sequence[StoredDocument]) -> None:
        """Add or replace all documents, durably on the server. Raise LibraryError for notes on another machine."""
        if self._writer is not None:
            self._writer.check_documents(documents)
        super().add(documents)
        self._publish()

    def delete(self, document_ids: Sequence[str], revisions: Mapping[str, str] | None = None) -> None:
        """Delete documents, durably on the server, and their cached replies on every machine with its next refresh."""
        super().delete(document_ids, revisions)
        if self._writer is not None and revisions is None:
            self._writer.request_deletion()
        self._publish()

    def purge(self, on_step: Callable[[str], None]) -> None:
        """Rewrite all files, and have the next publication remove the objects of all earlier versions."""
        super().purge(on_step)
        if self._writer is not None:
            self._writer.request_removal()

    def list_copies(self) -> tuple[str, ...]:
        """Return where copies of deleted documents stay after `purge`. Raise StorageError without the server."""
        copies = [_OTHER_MACHINES]
        keeps_versions = self._replica.objects.keeps_versions()
        if keeps_versions is None:
            copies.append("earlier versions of objects, if the bucket keeps them: this key may not ask for it")
        elif keeps_versions:
            copies.append(
                "earlier versions of objects, which this bucket keeps: its administrator deletes them, or sets a rule "
                "that lets noncurrent versions expire"
            )
        return tuple(copies)

    def prepare_bulk(self) -> None:
        """Publish additions every few minutes until `optimize`. They are durable on the server when published."""
        self._bulk_until = time.monotonic() + _BULK_SECONDS

    def optimize(
        self, recall: float = DEFAULT_RECALL, *, rebuild: bool = False, on_step: Callable[[str], None] | None = None
    ) -> IndexReport | None:
        """Join small files and refresh the vector index, see `LibraryStore.optimize`, and publish the result."""
        report = super().optimize(recall, rebuild=rebuild, on_step=on_step)
        self._bulk_until = None
        self._publish()
        return report

    def info(self) -> LibraryInfo:
        """Return a summary of the copy on this machine."""
        return dataclasses.replace(super().info(), path=self._replica.url)

    def close(self) -> None:
        """Publish the last changes and release the lock. Idempotent."""
        super().close()
        writer, self._writer = self._writer, None
        if writer is not None:
            try:
                # After a failure nothing more is published: the caller knows that its changes were not saved.
                if not self._has_failed:
                    writer.publish()
            finally:
                writer.release()

    def _publish(self) -> None:
        if self._writer is not None:
            with self._thread_lock:
                if self._bulk_until is not None:
                    if time.monotonic() < self._bulk_until:
                        return
                    self.prepare_bulk()
                try:
                    self._writer.publish()
                    self._has_failed = False
                except EpicrisisError:
                    self._has_failed = True
                    raise

    def _attach(self, replica: Replica, writer: SharedWriter | None) -> None:
        self._replica = replica
        self._writer = writer
        if writer is None:
            self._parts.before_read = replica.poll


def create_library(folder: Path, manifest: LibraryManifest) -> LibraryStore:
    """Create an empty library on the server. Its passages are always in LanceDB, whose files never change."""
    replica = _find(folder)
    writer = SharedWriter.open(replica, new=True)
    try:
        library = SharedLibrary._create(writer.folder, manifest, "lance")
        library._attach(replica, writer)
        library._publish()
    except BaseException:
        writer.release()
        raise
    return library


def open_library(folder: Path, *, write: bool = False) -> LibraryStore:
    """Open a library, see `LibraryStore.open`. A reader's copy must have been refreshed.

    Raise StorageError if the server cannot be reached.
    """
    replica = _find(folder)
    if not write:
        library = SharedLibrary._open(folder, read_manifest(folder), None)
        library._attach(replica, None)
        return library
    writer = SharedWriter.open(replica)
    try:
        shared = SharedLibrary.open(writer.folder, write=True)
        assert isinstance(shared, SharedLibrary)
        shared._attach(replica, writer)
    except BaseException:
        writer.release()
        raise
    return shared


@contextmanager
def open_snapshot(folder: Path) -> Iterator[LibraryStore]:
    """Open the newest version for reading in a folder of its own, which stays as it is while a writer publishes.

    Raise LibraryBusy if another process has one open, and the errors of `LibraryStore.open`.
    """
    read_manifest(folder)
    replica = _find(folder)
    snapshot = folder / _SNAPSHOT
    with _lock_snapshot(replica):
        try:
            replica.check_out(snapshot)
            with LibraryStore.open(snapshot) as library:
                yield library
        finally:
            shutil.rmtree(snapshot, ignore_errors=True)


def repair_library(folder: Path) -> LibraryInfo:
    """Compare the copy with its checksums, download damaged files again, and rebuild the rest from the passages."""
    replica = _find(folder)
    replica.forget_state()
    writer = SharedWriter.open(replica)
    try:
        info = repair.repair_library(writer.folder)
        writer.publish()
    finally:
        writer.release()
    return dataclasses.replace(info, path=replica.url)


def remove_old_files(folder: Path) -> None:
    """Bring the copy on this machine to the newest version, and remove all files of earlier ones from it.

    Raise LibraryBusy if another process copies the library.
    """
    replica = _find(folder)
    with translate_errors(folder), _lock_snapshot(replica):
        shutil.rmtree(folder / _SNAPSHOT, ignore_errors=True)
        replica.refresh(force=True, wait=True)
        replica.remove_retired()


def find_unused_objects(folder: Path) -> list[str]:
    """Return the objects in the bucket that the newest version lacks. All others have their checksum in the copy."""
    replica = _find(folder)
    version = replica.version()
    current = set() if version is None else {file.key for file in version.files.values()}
    return [name for name in replica.objects.list_names(FOLDER) if name not in current]


@contextmanager
def _lock_snapshot(replica: Replica) -> Iterator[None]:
    """Lock the folder of snapshots. Raise LibraryBusy if another process has one open."""
    lock = FileLock(replica.folder / f"{_SNAPSHOT}.lock", timeout=0, thread_local=False)
    with translate_errors(replica.folder):
        try:
            lock.acquire()
        except Timeout:
            raise LibraryBusy(f"another process is copying {replica.url}: wait until it ends, or stop it") from None
    try:
        yield
    finally:
        lock.release()


def _find(folder: Path) -> Replica:
    replica = find_replica(folder)
    assert replica is not None
    return replica
