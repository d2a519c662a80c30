"""A writer of a library on object storage in a process of its own, for tests that stop and kill it.

    python -m tests.support.shared_writer_child URL ACKNOWLEDGED FIRST COUNT [MOMENT [PASSES [LEASE_SECONDS]]]

Adds documents one by one, and appends the id of each to the file ACKNOWLEDGED once `add` has returned. Kills itself at
the moment, after so many passes. Prints a line when the library is open, and one for each document.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from epicrisis.core.errors import EpicrisisError
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.object_storage import shared_writer, writer_lease
from epicrisis.library.object_storage.object_store import ObjectStore
from epicrisis.library.object_storage.replica import Replica
from epicrisis.system.remote_libraries import library_folder
from epicrisis.testing.stores import DIMENSIONS, build_stored_document

MOMENTS = ("uploaded", "before-commit", "after-commit", "staged", "refreshed", "checked-out")


def create_library(url: str) -> LibraryStore:
    """Create an empty library for these documents."""
    return LibraryStore.create(
        library_folder(url),
        encoder_fingerprint="tests",
        encoder_name="tests",
        dimensions=DIMENSIONS,
        max_tokens=100,
        overlap=0,
    )


def arm(moment: str, passes: int) -> None:
    """Have this process kill itself at the moment."""
    owner: Any
    owner, name, is_before = {
        "uploaded": (ObjectStore, "upload", False),
        "before-commit": (shared_writer.SharedWriter, "_commit", True),
        "after-commit": (shared_writer.SharedWriter, "_commit", False),
        "staged": (shared_writer.SharedWriter, "_stage_files", False),
        "refreshed": (Replica, "_apply", False),
        "checked-out": (Replica, "check_out", False),
    }[moment]
    original = getattr(owner, name)
    left = passes

    def call(*arguments: Any, **named: Any) -> Any:
        nonlocal left
        left -= 1
        if is_before and left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*arguments, **named)
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, call)


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(
    url: str, acknowledged: str, first: str, count: str, moment: str = "", passes: str = "0", lease: str = ""
) -> int:
    if moment:
        arm(moment, int(passes))
    if lease:
        vars(writer_lease)["SECONDS"] = float(lease)
    try:
        with LibraryStore.open(library_folder(url), write=True) as library, Path(acknowledged).open("ab", 0) as file:
            say("open")
            for number in range(int(first), int(first) + int(count)):
                id_ = f"doc{number:05d}"
                library.add([build_stored_document(id_, f"aspirin number {number}", "second passage")])
                file.write(f"{id_}\n".encode())
                say(id_)
    except EpicrisisError as error:
        say(f"error: {error.message}")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
