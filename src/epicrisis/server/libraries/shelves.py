"""What the libraries of the server hold, and whether they are sound: counts, lists of documents, health checks.

    contents = await Shelves(reader).read_contents("lib", caller)

Documents of literature are listed for every reader of their library. Of a library with notes only counts are given,
without an id.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from epicrisis.core.errors import EpicrisisError
from epicrisis.library.base.remote_store import is_in_database
from epicrisis.library.core.document_list import (
    DocumentCounts,
    DocumentFilter,
    DocumentPage,
    count_documents,
    list_documents,
)
from epicrisis.library.core.library_parts import LibraryInfo
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.write.health import check_health, without_ids
from epicrisis.library.write.health_report import HealthReport
from epicrisis.server.base.error_log import log_fault
from epicrisis.server.base.http_errors import AccessDenied, NotFound, ServerBusy
from epicrisis.server.base.users import LOCAL, Caller
from epicrisis.server.libraries.reading import LibraryReader, offload
from epicrisis.server.libraries.resources import OpenLibrary

LOW_DISK_BYTES = 1_000_000_000
"""Free disk below which a finding says so."""
_FAULT = "a fault of the program; its place is in the log of the server"


@dataclass(frozen=True, slots=True)
class ShelfContents:
    """What a library holds."""

    info: LibraryInfo
    counts: DocumentCounts
    patients: int
    free_bytes: int | None
    """Free space on the disk of the library. None if it is on a server."""
    findings: tuple[str, ...]
    """Sentences that name what is wrong or slow, each with its cure. Empty for a sound library."""


@dataclass(frozen=True, slots=True)
class LibraryCheck:
    """A complete check of a library: running, finished or failed."""

    started: str
    """ISO 8601, UTC."""
    done: int = 0
    """Passages read."""
    passages: int = 0
    report: HealthReport | None = None
    """None while the check runs, and after a failure."""
    failure: str | None = None

    @property
    def is_running(self) -> bool:
        """Whether the check has not ended."""
        return self.report is None and self.failure is None


class Shelves:
    """Counts, lists and checks the libraries of the server for callers."""

    def __init__(self, reader: LibraryReader) -> None:
        self.reader = reader
        self.resources = reader.resources
        self._counts: dict[str, tuple[int, DocumentCounts]] = {}
        self._checks: dict[str, LibraryCheck] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def find(self, name: str, caller: Caller) -> OpenLibrary:
        """Return a library that the caller may read. Raises NotFound and AccessDenied."""
        library = self.resources.find(name)
        await self.reader.access.check(caller, "library", library, None)
        return library

    async def read_contents(self, name: str, caller: Caller) -> ShelfContents:
        """Return what a library holds. Raises NotFound, AccessDenied and errors of the library."""
        library = await self.find(name, caller)
        return await offload(library.pipeline, self._read_contents, library)

    def _read_contents(self, library: OpenLibrary) -> ShelfContents:
        store, search = find_store(library), library.pipeline.search
        assert search is not None
        info = store.info()
        patients = len(search.rosters[0].patients()) if library.holds_patients else 0
        free = None if is_in_database(store.path) else shutil.disk_usage(store.path).free
        return ShelfContents(info, self.count(library), patients, free, tuple(find_quick_faults(info, free)))

    def count(self, library: OpenLibrary) -> DocumentCounts:
        """Return the counts of the literature in a library, read again once the library has changed."""
        store = find_store(library)
        version = store.open_table().version
        cached = self._counts.get(library.name)
        if cached is None or cached[0] != version:
            cached = self._counts[library.name] = version, count_documents(store)
        return cached[1]

    async def list_documents(
        self, name: str, caller: Caller, document_filter: DocumentFilter, offset: int = 0
    ) -> DocumentPage:
        """Return a page of the documents of literature. A library of notes lists none, for any role.

        Raises NotFound, AccessDenied and errors of the library.
        """
        library = await self.find(name, caller)
        if library.holds_patients:
            raise AccessDenied(f"the documents of {library.name} are not listed, because it holds patients' notes")
        return await offload(library.pipeline, list_documents, find_store(library), document_filter, offset)

    async def latest_check(self, name: str, caller: Caller) -> LibraryCheck | None:
        """Return the check that runs or ran last, or None. Raises NotFound and AccessDenied."""
        return self._checks.get((await self.find(name, caller)).name)

    async def start_check(self, name: str, caller: Caller) -> LibraryCheck:
        """Start a complete check of a library, unless one runs, and return it.

        Raises NotFound, AccessDenied, and ServerBusy while another library is checked.
        """
        library = await self.find(name, caller)
        require_maintainer(caller)
        running = [other for other, check in self._checks.items() if check.is_running]
        if library.name in running:
            return self._checks[library.name]
        if running:
            raise ServerBusy("another library is being checked: wait until it has ended", retry_after=60)
        started = datetime.now(UTC).isoformat(timespec="seconds")
        check = self._checks[library.name] = LibraryCheck(started)
        task = asyncio.create_task(self._check(library))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return check

    async def _check(self, library: OpenLibrary) -> None:
        def show(done: int, passages: int) -> None:
            self._checks[library.name] = replace(self._checks[library.name], done=done, passages=passages)

        try:
            report = await asyncio.to_thread(_check_library, library, show)
        except EpicrisisError as error:
            failure = self.resources.hide_paths(error.message)
            self._checks[library.name] = replace(self._checks[library.name], failure=failure)
        except Exception as error:  # noqa: BLE001 - the message of a fault may hold text of a record
            log_fault(error)
            self._checks[library.name] = replace(self._checks[library.name], failure=_FAULT)
        else:
            self._checks[library.name] = replace(self._checks[library.name], report=report)

    async def stop(self) -> None:
        """Wait for running checks for a moment. A check changes nothing, so it may be cut off."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=1)


def may_maintain(caller: Caller) -> bool:
    """Return whether the caller may check libraries and add documents: an administrator, or anybody without users."""
    return caller is LOCAL or caller.has("administrator")


def require_maintainer(caller: Caller) -> None:
    """Raise AccessDenied unless `may_maintain`."""
    if caller is not LOCAL:
        caller.require("administrator")


def find_store(library: OpenLibrary) -> LibraryStore:
    """Return the open store of a library. Raises NotFound for a store of another package."""
    search = library.pipeline.search
    assert search is not None
    if search.has_own_store:
        raise NotFound(
            f"{library.name} is a store of another package: it can be searched here, and not listed, checked or "
            "changed; add documents with `epicrisis library add`"
        )
    return search.library


def find_quick_faults(info: LibraryInfo, free_bytes: int | None) -> list[str]:
    """Return sentences about what is wrong or slow, as far as it is known without reading the library."""
    faults = list(info.problems)
    if info.index is not None and not info.index.good:
        faults.append(
            f"The index finds {info.index.recall:.3f} of the nearest 16, and {info.index.asked:.2f} are required, "
            f"so {info.index.effect_below_recall}: run `epicrisis library optimize --rebuild`."
        )
    elif info.unindexed:
        faults.append(
            f"{info.unindexed:,} passages are not in the index and are scanned: run `epicrisis library optimize`."
        )
    if info.open_batches:
        faults.append(
            "An addition is running, or was stopped: the next `epicrisis library add` completes or removes its work."
        )
    if free_bytes is not None and free_bytes < max(LOW_DISK_BYTES, sum(info.bytes_on_disk.values()) // 2):
        faults.append(
            f"Only {free_bytes / 1e9:.1f} GB of the disk are free. Adding documents and `epicrisis library optimize` "
            "need room for a copy: free some space."
        )
    return faults


def _check_library(library: OpenLibrary, show: Callable[[int, int], None]) -> HealthReport:
    last = 0.0

    def show_sometimes(done: int, passages: int) -> None:
        nonlocal last
        if time.monotonic() - last > 0.2:
            last = time.monotonic()
            show(done, passages)

    report = check_health(find_store(library), show_sometimes)
    return without_ids(report) if library.holds_patients else report
