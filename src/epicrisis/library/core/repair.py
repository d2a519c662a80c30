"""Rebuild the parts of a library that follow from its passages."""

from __future__ import annotations

from pathlib import Path

from epicrisis.library.base import manifest as manifests
from epicrisis.library.base.remote_store import check_in_folder, load_engine
from epicrisis.library.core import library_parts as parts
from epicrisis.library.core.library_parts import LibraryInfo
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.system.remote_libraries import library_folder


def repair_library(path: Path | str) -> LibraryInfo:
    """Rebuild the word index and the table of documents from the passages. After a kill, repeat the call.

    An incomplete new library becomes empty. Raises LibraryDamaged for lost passages, LibraryBusy and StorageError.
    """
    folder = library_folder(path).absolute()
    check_in_folder(folder, "library repair", "restore a backup of the database, and rebuild indexes with REINDEX")
    if (module := load_engine(folder)) is not None:
        report: LibraryInfo = module.repair_library(folder)
        return report
    manifest = manifests.read_manifest(folder)
    if manifest.complete:
        lock = parts.acquire_lock(folder)
        try:
            parts.rebuild_from_passages(folder, manifest.dimensions)
        finally:
            lock.release()
    else:
        LibraryStore.open(folder, write=True).close()
    with LibraryStore.open(folder) as library:
        return library.info()
