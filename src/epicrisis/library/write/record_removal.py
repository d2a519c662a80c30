"""Remove the records of patients from a library's folder: passages, words, journal, identities, and all remnants.

    with LibraryStore.open(folder, write=True) as store:
        remove_records(store, ["10083814"], find_documents(store, ["10083814"]), is_theirs, print)

Every step can be repeated, so a removal that was killed continues when it is called again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from epicrisis.corpus.base.removal_log import REMOVAL_LOG_FILE
from epicrisis.library.base.engine_errors import translate_errors
from epicrisis.library.base.passage_table import sql_in
from epicrisis.library.base.remote_store import is_in_database, load_object_storage
from epicrisis.library.base.skipped_items import SKIPPED_FILE
from epicrisis.library.core import library_parts
from epicrisis.library.core.journal import open_journal
from epicrisis.library.core.library_store import LibraryStore
from epicrisis.library.core.patient_identities import forget_identities
from epicrisis.library.engines import word_index
from epicrisis.library.engines.checksums import list_current_files
from epicrisis.library.engines.lance_table import LanceTable
from epicrisis.system.local_only import replace_file

LINE_FILES = (REMOVAL_LOG_FILE, f"{REMOVAL_LOG_FILE}.new", f"{REMOVAL_LOG_FILE}.joined", SKIPPED_FILE)
"""Files of a library whose lines may quote or name documents."""
_BATCH = 5_000
_SEGMENT_DIGITS = 32
"""Length of the id of a segment in the names of its files."""


def find_documents(store: LibraryStore, patients: Sequence[str]) -> list[str]:
    """Return the ids of all documents of these patients, sorted."""
    ids = {row["document_id"] for row in store.open_table().rows(["document_id"], sql_in("patient", patients))}
    return sorted(ids)


def remove_records(
    store: LibraryStore,
    patients: Sequence[str],
    documents: Sequence[str],
    is_theirs: Callable[[str], bool],
    on_step: Callable[[str], None],
) -> None:
    """Remove the documents and identities of these patients, and rewrite all files of the library.

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
    with open_journal(store.path) as journal:
        journal.forget_traces(documents, is_theirs)
    for name in LINE_FILES:
        filter_lines(store.path / name, lambda line: not is_theirs(line))
    store.purge(on_step)


def find_remnants(store: LibraryStore) -> list[str]:
    """Return what the files of a library may still hold of deleted documents, empty after `remove_records`.

    The files of LanceDB and of the word index are compressed, so that a search of their bytes proves nothing. Of a
    library on object storage, the objects in the bucket count too.
    """
    if is_in_database(store.path):
        return []
    remnants: list[str] = []
    if (storage := load_object_storage(store.path)) is not None:
        remnants += [f"the object {name} is not in use" for name in storage.find_unused_objects(store.path)]
    table = store.open_table()
    if isinstance(table, LanceTable):
        if len(table.lance.list_versions()) > 1:
            remnants.append(f"{table.name} has earlier versions")
        data = {path.relative_to(store.path).as_posix() for path in (store.path / table.name / "data").rglob("*.lance")}
        if data - list_current_files(store.path):
            remnants.append(f"{table.name} has files that are not in use")
    meta = json.loads((store.path / word_index.NAME / word_index.META).read_bytes())
    if any(segment.get("deletes") for segment in meta["segments"]):
        remnants.append(f"{word_index.NAME} has deleted entries")
    segments = {segment["segment_id"].replace("-", "") for segment in meta["segments"]}
    for path in (store.path / word_index.NAME).iterdir():
        stem = path.name.partition(".")[0]
        if len(stem) == _SEGMENT_DIGITS and stem not in segments:
            remnants.append(f"{word_index.NAME}/{path.name} is not in use")
    return remnants


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
