"""Makes what can be made from the passages: the word index and the journal's table of documents.

The caller holds the write lock. Knows nothing of open batches: afterwards there are none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from . import journal as journals
from . import words as indexes
from .folder import clear
from .foreign import ours
from .journal import Journal, Marks, Row
from .manifest import sync_folder
from .vectors import PassageTable, StoredPassage
from .words import WordIndex

_NEW = f"{journals.NAME}.new"


def rebuild(folder: Path, dimensions: int) -> None:
    """Both anew, whole or not at all. Raises LibraryDamaged where passages cannot be read, StorageError."""
    table = PassageTable(folder, dimensions)
    table.check()
    # Without its journal the folder is no whole library: it goes first and comes back last, in one piece.
    clear(folder, journals.NAME, indexes.NAME, _NEW)
    words = WordIndex(folder, create=True)
    opstamp = words.replace([], (stored for batch in table.batches() for stored in batch))
    words.close()
    journal = Journal.create(folder, _NEW)
    try:
        rows = (row for batch in table.batches() for row in rows_of(batch))
        journal.rebuild(rows, Marks(table.version, opstamp))
    finally:
        journal.close()
    with ours(folder):
        (folder / _NEW).replace(folder / journals.NAME)
        sync_folder(folder)


def rows_of(passages: Sequence[StoredPassage]) -> list[Row]:
    """One row a document."""
    hashes = {stored.passage.document_id: stored.content_sha256 for stored in passages}
    counts = Counter(stored.passage.document_id for stored in passages)
    return [Row(document_id, hashes[document_id], count) for document_id, count in counts.items()]
