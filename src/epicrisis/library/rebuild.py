"""Makes what can be made from the passages: the word index and the journal's table of documents.

Documents remembered as deleted, and source files, are taken over from the old journal where it can still be read.

The caller holds the write lock. Knows nothing of open batches: afterwards there are none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from epicrisis.errors import LibraryDamaged

from . import journal as journals
from . import words as indexes
from .folder import clear
from .foreign import ours
from .journal import Journal, Marks, Row, Source
from .manifest import sync_folder
from .marks import Statement
from .vectors import PassageTable, StoredPassage
from .words import WordIndex

_NEW = f"{journals.NAME}.new"


def rebuild(folder: Path, dimensions: int) -> None:
    """Both anew, whole or not at all. Raises LibraryDamaged where passages cannot be read, StorageError."""
    table = PassageTable(folder, dimensions)
    table.check()
    buried, sources, statements = _remembered(folder)
    clear(folder, _NEW)
    journal = Journal.create(folder, _NEW)
    try:
        journal.bury(buried)
        if statements is not None:
            # All their targets are due again: whatever the passages say, it is held against them.
            journal.make_marks(statements)
        for source in sources:
            journal.add_source(source)
        # Without its journal the folder is no whole library: it goes first and comes back last, in one piece.
        clear(folder, journals.NAME, indexes.NAME)
        words = WordIndex(folder, create=True)
        opstamp = words.replace([], (stored for batch in table.batches() for stored in batch))
        words.close()
        rows = (row for batch in table.batches() for row in rows_of(batch))
        journal.rebuild(rows, Marks(table.version, opstamp))
    finally:
        journal.close()
    with ours(folder):
        (folder / _NEW).replace(folder / journals.NAME)
        sync_folder(folder)


def _remembered(folder: Path) -> tuple[Mapping[str, str], list[Source], list[Statement] | None]:
    """What only the old journal knows: deleted documents, source files and what was stated of articles (`None`: it kept
    no statements); nothing where it cannot be read."""
    name = next((name for name in (journals.NAME, _NEW) if (folder / name).is_file()), None)
    if name is None:
        return {}, [], None
    try:
        journal = Journal(folder, name)
        try:
            return journal.buried(), journal.sources(), journal.statements() if journal.has_marks else None
        finally:
            journal.close()
    except LibraryDamaged:
        return {}, [], None


def rows_of(passages: Sequence[StoredPassage]) -> list[Row]:
    """One row a document."""
    versions = {stored.passage.document_id: (stored.content_hash, stored.revision) for stored in passages}
    counts = Counter(stored.passage.document_id for stored in passages)
    return [Row(each, versions[each][0], count, versions[each][1]) for each, count in counts.items()]
