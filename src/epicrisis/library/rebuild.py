"""Makes what can be made from the passages: the word index and the journal's table of documents.

Documents remembered as deleted, source files, and the files of documents are taken over from the old journal where it
can still be read.

The caller holds the write lock. Knows nothing of open batches: afterwards there are none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from epicrisis.errors import LibraryDamaged
from epicrisis.types import Origin

from . import journal as journals
from . import words as indexes
from .digests import Digests, check_small_files, unrecorded
from .folder import clear
from .foreign import ours
from .journal import Journal, Marks, Row, Source
from .manifest import sync_folder
from .vectors import PassageTable, StoredPassage
from .words import WordIndex

REBUILT = f"{journals.NAME}.new"
"""The journal that is being made anew; beside a whole journal what a killed repair left."""


def rebuild(folder: Path, dimensions: int) -> None:
    """Both anew, whole or not at all. Raises LibraryDamaged where passages cannot be read, StorageError."""
    buried, sources, origins, files = _remembered(folder)
    check_small_files(folder, files)
    table = PassageTable(folder, dimensions)
    table.check()
    clear(folder, REBUILT)
    journal = Journal.create(folder, REBUILT)
    try:
        journal.bury(buried)
        for source in sources:
            journal.add_source(source)
        # Without its journal the folder is no whole library: it goes first and comes back last, in one piece.
        clear(folder, journals.NAME, indexes.NAME)
        words = WordIndex(folder, create=True)
        opstamp = words.replace([], (stored for batch in table.batches() for stored in batch))
        words.close()
        rows = (row for batch in table.batches() for row in rows_of(batch))
        # What was recorded stays: damage that is there by now must not pass for what was written.
        written = Digests({**files, **unrecorded(folder, files).written})
        journal.rebuild(rows, Marks(table.version, opstamp), written)
        journal.set_origins(origins)
    finally:
        journal.close()
    with ours(folder):
        (folder / REBUILT).replace(folder / journals.NAME)
        sync_folder(folder)


def _remembered(folder: Path) -> tuple[Mapping[str, str], list[Source], Mapping[str, Origin], Mapping[str, str]]:
    """Return what only the old journal knows: deleted documents, source files, the file of each document, checksums.

    Nothing where it cannot be read.
    """
    name = next((name for name in (journals.NAME, REBUILT) if (folder / name).is_file()), None)
    if name is None:
        return {}, [], {}, {}
    try:
        journal = Journal(folder, name)
        try:
            return journal.buried(), journal.sources(), journal.all_origins(), journal.files() or {}
        finally:
            journal.close()
    except LibraryDamaged:
        return {}, [], {}, {}


def rows_of(passages: Sequence[StoredPassage]) -> list[Row]:
    """One row a document."""
    versions = {stored.passage.document_id: (stored.content_hash, stored.revision) for stored in passages}
    counts = Counter(stored.passage.document_id for stored in passages)
    return [Row(each, versions[each][0], count, versions[each][1]) for each, count in counts.items()]
