"""Remove the records of patients from a library's folder: passages, words, journal, identities, and all remnants.

    with LibraryStore.open(folder, write=True) as store:
        remove_records(store, ["10083814"], find_documents(store, ["10083814"]), is_theirs, print)

Every step can be repeated, so a removal that was killed continues when it is called again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from epicrisis.corpus.removal_log import REMOVAL_LOG_FILE
from epicrisis.library import library_parts
from epicrisis.library.engine_errors import translate_errors
from epicrisis.library.inventory import LibraryInventory
from epicrisis.library.library import LibraryStore
from epicrisis.library.passage_table import sql_in
from epicrisis.library.patient_identities import forget_identities
from epicrisis.library.skipped_items import SKIPPED_FILE
from epicrisis.privacy import open_private

LINE_FILES = (REMOVAL_LOG_FILE, f"{REMOVAL_LOG_FILE}.new", f"{REMOVAL_LOG_FILE}.joined", SKIPPED_FILE)
"""Files of a library whose lines may quote or name documents."""
_BATCH = 5_000


def find_documents(store: LibraryStore, patients: Sequence[str]) -> list[str]:
    """Return the ids of all documents of these patients, sorted."""
    ids: set[str] = set()
    for row in store.open_table().rows(["document_id"], sql_in("patient", patients)):
        ids.add(row["document_id"])
    return sorted(ids)


def remove_records(
    store: LibraryStore,
    patients: Sequence[str],
    documents: Sequence[str],
    is_theirs: Callable[[str], bool],
    on_step: Callable[[str], None],
) -> None:
    """Remove the documents and identities of these patients, and write all files of the library anew.

    `is_theirs` decides whether a name or line outside of the documents belongs to the patients: paths of files, ids of
    earlier deletions, lines about removed texts. Raises StorageError, LibraryDamaged and LibraryError.
    """
    on_step("deleting the notes")
    for start in range(0, len(documents), _BATCH):
        store.delete(documents[start : start + _BATCH])
    # Replies are stored under hashes of their prompts, so nobody can tell which ones quote these patients.
    library_parts.remove_parts(store.path, library_parts.REPLIES)
    forget_identities(store.path, set(patients))
    on_step("cleaning the journal and the lists of removed texts")
    with LibraryInventory.open(store) as inventory:
        inventory.forget_traces(documents, is_theirs)
    for name in LINE_FILES:
        filter_lines(store.path / name, lambda line: not is_theirs(line))
    store.purge(on_step)


def filter_lines(path: Path, is_kept: Callable[[str], bool]) -> int:
    """Remove lines of a text file, completely or not at all. Return their number. A missing file has none."""
    if not path.is_file():
        return 0
    removed = 0

    def read() -> Iterator[bytes]:
        nonlocal removed
        with path.open("rb") as file:
            for line in file:
                if is_kept(line.decode("utf-8", "replace")):
                    yield line
                else:
                    removed += 1

    with translate_errors(path):
        new = path.with_name(f".{path.name}.forgetting")
        replace_file(path, new, read())
    return removed


def replace_file(path: Path, new: Path, pieces: Iterable[bytes]) -> None:
    """Write the pieces to the file `new` for its owner alone, then put it in the place of `path`. Raises OSError."""
    with os.fdopen(open_private(new, os.O_WRONLY | os.O_TRUNC), "wb") as file:
        file.writelines(pieces)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
