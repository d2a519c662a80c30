"""Processes that write to a library and kill themselves at a named moment. Run as a module, by the crash tests.

The engines are imported once; each line of input (a JSON list) is then a process of its own, and its exit code one line
of output. The list: what to do (create, add, repair), the folder, the file of acknowledged documents, version and count
of the corpus, the moment to die at, and how often it comes to pass before. Production code knows nothing of this.
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
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from epicrisis.library import library as libraries
from epicrisis.library import manifest, rebuild
from epicrisis.library.journal import Journal
from epicrisis.library.library import Library
from epicrisis.library.vectors import PassageTable
from epicrisis.library.words import WordIndex
from epicrisis.seams import StoredDocument
from tests.library import corpus

_AFTER: dict[str, tuple[Any, str]] = {
    "journal-begun": (Journal, "begin"),
    "table-written": (PassageTable, "write"),
    "words-committed": (WordIndex, "_commit"),
    "journal-done": (Journal, "finish"),
    "manifest-written": (manifest, "write_manifest"),
    "cleared": (rebuild, "clear"),
}
_BEFORE: dict[str, tuple[Any, str]] = {
    "table-not-synced": (PassageTable, "sync"),
    "words-added": (WordIndex, "_commit"),
    "journal-not-committed": (Journal, "_mark"),
    "parts-built": (manifest, "completed"),
    "rebuilt": (Journal, "rebuild"),
}
_DURING: dict[str, tuple[Any, str]] = {
    "writing-table": (PassageTable, "write"),
    "writing-words": (WordIndex, "replace"),
    "compacting": (PassageTable, "compact"),
    "adding": (Library, "add"),
}
PHASES = ("journal-begun", "writing-table", "table-not-synced", "table-written", "writing-words", "words-added",
          "words-committed", "journal-not-committed", "journal-done")  # fmt: skip


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arm(moment: str, passes: int) -> None:
    """Wraps the function of that moment so that the process dies there, after it came to pass `passes` times.

    For a moment within a function `passes` seeds the delay as well.
    """
    if moment == "never":
        return
    owner, name = {**_AFTER, **_BEFORE, **_DURING}[moment]
    original: Callable[..., Any] = getattr(owner, name)
    dice = random.Random(passes)
    delay = dice.uniform(0.0, {"adding": 0.1, "compacting": 0.02}.get(moment, 0.006))
    left = {"adding": dice.randint(0, 6), "compacting": 0}.get(moment, passes)

    def wrapped(*arguments: Any, **named: Any) -> Any:
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

    setattr(owner, name, wrapped)


def acknowledge(path: Path) -> None:
    """Writes down each document (id, hash) when the library has acknowledged it, durably."""
    original = libraries.Library.add

    def add(self: Library, documents: Sequence[StoredDocument]) -> None:
        original(self, documents)
        with path.open("a", encoding="utf-8") as file:
            for document in documents:
                file.write(json.dumps([document.id, document.content_hash]) + "\n")
            file.flush()
            os.fsync(file.fileno())

    libraries.Library.add = add  # type: ignore[method-assign]


def main(action: str, folder: Path, acknowledged: Path, version: int, count: int, moment: str, passes: int) -> None:
    arm(moment, passes)
    acknowledge(acknowledged)
    if action == "repair":
        Library.repair(folder)
    elif action == "create":
        corpus.create(folder).close()
    else:
        with Library.open(folder, write=True) as library:
            corpus.add(library, version, count)


def forked(arguments: list[str]) -> int:
    """Runs `main` in a process of its own; its exit code, -9 where it was killed."""
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
