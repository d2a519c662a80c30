"""A library on object storage, `s3://bucket/folder`, for one writer and many readers on any machine.

Readers use a copy on their own disk (`replica`), which follows the newest version. The writer prepares each version in
a folder of its own and publishes it as a whole (`shared_writer`). Both folders are ordinary libraries.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from epicrisis.errors import EpicrisisError
from epicrisis.library.library import LibraryStore
from epicrisis.library.library_parts import LibraryInfo
from epicrisis.library.manifest import LibraryManifest, read_manifest
from epicrisis.library.object_storage.replica import Replica, find_replica, refresh_replica
from epicrisis.library.object_storage.shared_writer import SharedWriter
from epicrisis.protocols import StoredDocument

__all__ = ["SharedLibrary", "create_library", "open_library", "refresh_replica", "repair_library"]


class SharedLibrary(LibraryStore):
    """A PassageStore on object storage. `add` and `delete` are durable on the server when they return.

    Use `create_library` or `open_library`. Other changes are published with the next `add` or `delete`, or by `close`.
    Errors of the server are raised as StorageError, and LibraryBusy if another writer has taken over.
    """

    _replica: Replica
    _writer: SharedWriter | None = None
    _has_failed = False

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

    def info(self) -> LibraryInfo:
        """Return a summary of the copy on this machine."""
        return dataclasses.replace(super().info(), path=self._replica.url)

    def close(self) -> None:
        """Publish what is left, and release the lock. Further calls have no effect."""
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


def repair_library(folder: Path) -> LibraryInfo:
    """Compare the copy with its checksums, download damaged files again, and rebuild the rest from the passages."""
    replica = _find(folder)
    replica.forget_state()
    writer = SharedWriter.open(replica)
    try:
        info = LibraryStore.repair(writer.folder)
        writer.publish()
    finally:
        writer.release()
    return dataclasses.replace(info, path=replica.url)


def _find(folder: Path) -> Replica:
    replica = find_replica(folder)
    assert replica is not None
    return replica
