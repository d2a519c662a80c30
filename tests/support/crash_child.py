"""Processes that write to a library and kill themselves at a named moment. Run as a module, by the crash tests.

The engines are imported once; each line of input (a JSON list) is then a process of its own, and its exit code one line
of output. The list: what to do (create, add, delete, revise, optimize, repair), the folder, the file of acknowledged
documents, version and count of the corpus, the moment to die at, and how often it comes to pass before. Production code
knows nothing of this.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from epicrisis.core.protocols import StoredDocument
from epicrisis.library.base import manifest
from epicrisis.library.base.passage_table import PassageTable
from epicrisis.library.core import library_parts
from epicrisis.library.core import library_store as libraries
from epicrisis.library.core.journal import Journal
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.core.repair import repair_library
from epicrisis.library.engines import engine_choice as tables
from epicrisis.library.engines import vector_index
from epicrisis.library.engines.lance_table import LanceTable
from epicrisis.library.engines.sqlite_table import SqliteTable
from epicrisis.library.engines.vector_search import VectorSearch
from epicrisis.library.engines.word_index import WordIndex
from tests.support import library_documents

Owners = tuple[Any, ...]

_AFTER: dict[str, tuple[Owners, str]] = {
    "journal-begun": ((Journal,), "begin"),
    "table-written": ((PassageTable,), "write"),
    "table-deleted": ((SqliteTable, LanceTable), "delete"),
    "words-committed": ((WordIndex,), "_commit"),
    "journal-done": ((Journal,), "finish"),
    "manifest-written": ((manifest,), "write_manifest"),
    "cleared": ((library_parts,), "remove_parts"),
    "deletion-remembered": ((Journal,), "record_deletions"),
    "compacted": ((SqliteTable, LanceTable), "compact"),
    "filters-built": ((VectorSearch,), "build_filters"),
    "index-built": ((VectorSearch,), "build_index"),
    "measured": ((vector_index,), "measure_index"),
    "report-not-in-place": ((json,), "dump"),
    "report-written": ((vector_index,), "write_report"),
    "copying": ((LanceTable,), "append"),
    "copied": ((tables,), "copy_to_lance"),
    "version-forgotten": ((Journal,), "forget_table_version"),
    "sqlite-removed": ((tables,), "remove_sqlite"),
}
_BEFORE: dict[str, tuple[Owners, str]] = {
    "table-not-synced": ((LanceTable,), "sync"),
    "table-not-committed": ((SqliteTable,), "_count_version"),
    "words-added": ((WordIndex,), "_commit"),
    "journal-not-committed": ((Journal,), "_set_checkpoint"),
    "parts-built": ((manifest,), "mark_complete"),
    "rebuilt": ((Journal,), "rebuild"),
    "old-report-gone": ((VectorSearch,), "build_index"),
}
_DURING: dict[str, tuple[Owners, str]] = {
    "writing-table": ((PassageTable,), "write"),
    "writing-words": ((WordIndex,), "replace"),
    "compacting": ((SqliteTable, LanceTable), "compact"),
    "adding": ((LibraryStore,), "add"),
    "writing": ((Journal,), "begin"),
    "building-filters": ((VectorSearch,), "build_filters"),
    "building-index": ((VectorSearch,), "build_index"),
    "measuring": ((vector_index,), "measure_index"),
    "optimizing": ((LibraryStore,), "optimize"),
}
PHASES = (
    "journal-begun",
    "writing-table",
    "table-not-synced",
    "table-not-committed",
    "table-written",
    "writing-words",
    "words-added",
    "words-committed",
    "journal-not-committed",
    "journal-done",
)
WITH_OLD_REPORT = ("journal-begun", "compacted", "filters-built")
WITHOUT_REPORT = ("old-report-gone", "index-built", "measured", "report-not-in-place")
WITH_NEW_REPORT = ("report-written", "journal-not-committed")
"""Between the phases of `optimize`, in their order, by what there then is of the report on the index."""
WITHIN_MOVE = ("copying", "copied", "version-forgotten", "sqlite-removed")
"""Of `optimize` for a library in SQLite that has grown."""
WITHIN_OPTIMIZE = ("compacting", "building-filters", "building-index", "measuring")
_DELAYS = {
    "adding": 0.1,
    "compacting": 0.02,
    "writing": 0.03,
    "building-filters": 0.05,
    "building-index": 0.02,
    "measuring": 0.1,
    "optimizing": 0.3,
}
"""Seconds at most from the beginning of what the process dies within."""
_LATEST = {"adding": 6, "writing": 18}


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arm(moment: str, passes: int) -> None:
    """Wrap the function of that moment so that the process dies there, after `passes` passes.

    For a moment within a function `passes` seeds the delay as well.
    """
    if moment == "never":
        return
    owners, name = {**_AFTER, **_BEFORE, **_DURING}[moment]
    dice = random.Random(passes)
    delay = dice.uniform(0.0, _DELAYS.get(moment, 0.006))
    left = dice.randint(0, _LATEST.get(moment, 0)) if moment in _DELAYS else passes

    def call(original: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0 and moment in _BEFORE:
            die()
        if left < 0 and moment in _DURING:
            threading.Timer(delay, die).start()
        result = original(*arguments, **named)
        if left < 0 and moment in _AFTER:
            die()
        return result

    for owner in owners:
        # A method, not a partial: it receives the object.
        setattr(owner, name, _bind(call, getattr(owner, name)))


def _bind(call: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments, **named: call(original, *arguments, **named)


def acknowledge(path: Path) -> None:
    """Record each document (id, hash or null) durably when the library has acknowledged it or its deletion."""
    original_add, original_delete = libraries.LibraryStore.add, libraries.LibraryStore.delete

    def add(self: LibraryStore, documents: Sequence[StoredDocument]) -> None:
        original_add(self, documents)
        note([[document.id, document.content_hash] for document in documents])

    def delete(self: LibraryStore, document_ids: Sequence[str], revisions: Mapping[str, str] | None = None) -> None:
        original_delete(self, document_ids, revisions)
        note([[document_id, None] for document_id in document_ids])

    def note(lines: Sequence[object]) -> None:
        with path.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
            file.flush()
            os.fsync(file.fileno())

    libraries.LibraryStore.add = add  # type: ignore[method-assign]
    libraries.LibraryStore.delete = delete  # type: ignore[method-assign]


def main(action: str, folder: Path, acknowledged: Path, version: int, count: int, moment: str, passes: int) -> None:
    if action == "optimize":
        for module, name, value in library_documents.SMALL:
            setattr(module, name, value)
    arm(moment, passes)
    acknowledge(acknowledged)
    if action == "repair":
        repair_library(folder)
    elif action == "create":
        library_documents.create(folder).close()
    else:
        with LibraryStore.open(folder, write=True) as library:
            if action == "optimize":
                library.optimize(recall=1.0, rebuild=True)
            elif action == "delete":
                library.delete(["a"])
            elif action == "revise":
                library_documents.revise(library, version, count)
            else:
                library_documents.add(library, version, count)


def forked(arguments: list[str]) -> int:
    """Run `main` in a forked process. Return its exit code, -9 if it was killed."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 1
    try:
        action, folder, acknowledged, version, count, moment, passes = arguments
        main(action, Path(folder), Path(acknowledged), int(version), int(count), moment, int(passes))
        code = 0
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        sys.stderr.flush()
        # Python's own end would run the server's loop on.
        os._exit(code)


if __name__ == "__main__":
    warnings.filterwarnings("ignore", message="lancedb fork support")
    for _module in ("lancedb", "tantivy", "pyarrow.compute"):
        importlib.import_module(_module)
    for _line in sys.stdin:
        sys.stdout.write(f"{forked(json.loads(_line))}\n")
        sys.stdout.flush()
