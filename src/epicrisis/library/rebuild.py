"""Makes what can be made from the passages: the word index and the journal's table of documents.

Documents remembered as deleted, source files, and the files of documents are taken over from the old journal where it
can still be read.

The caller holds the write lock. Knows nothing of open batches: afterwards there are none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from epicrisis.errors import LibraryDamaged
from epicrisis.library import journal as journals
from epicrisis.library import word_index as indexes
from epicrisis.library.checksums import ChecksumChanges, check_small_files, find_checksum_changes
from epicrisis.library.engine_errors import translate_errors
from epicrisis.library.journal import Checkpoint, DocumentRow, IngestedFile, Journal
from epicrisis.library.library_folder import remove_parts
from epicrisis.library.manifest import sync_folder
from epicrisis.library.passage_table import PassageTable, StoredPassage
from epicrisis.library.retraction_statements import Statement
from epicrisis.library.word_index import WordIndex
from epicrisis.types import Origin

REBUILT = f"{journals.NAME}.new"
"""The journal that is being made anew; beside a whole journal what a killed repair left."""


def rebuild_from_passages(folder: Path, dimensions: int) -> None:
    """Both anew, whole or not at all. Raises LibraryDamaged where passages cannot be read, StorageError."""
    old = _remembered(folder)
    check_small_files(folder, old.files)
    table = PassageTable(folder, dimensions)
    table.check()
    journal = _begun(folder, old)
    try:
        # Without its journal the folder is no whole library: it goes first and comes back last, in one piece.
        remove_parts(folder, journals.NAME, indexes.NAME)
        words = WordIndex(folder, create=True)
        opstamp = words.replace([], (stored for batch in table.batches() for stored in batch))
        words.close()
        rows = (row for batch in table.batches() for row in document_rows(batch))
        # What was recorded stays: damage that is there by now must not pass for what was written.
        written = ChecksumChanges({**old.files, **find_checksum_changes(folder, old.files).written})
        journal.rebuild(rows, Checkpoint(table.version, opstamp), written)
    finally:
        journal.close()
    with translate_errors(folder):
        (folder / REBUILT).replace(folder / journals.NAME)
        sync_folder(folder)


def _begun(folder: Path, old: _Remembered) -> Journal:
    """Return the new journal, with all in it that only the old one knows: that one is removed after this."""
    if old.name == REBUILT:
        # A repair was killed after it had removed the old journal: what it wrote down stands nowhere else.
        return Journal(folder, REBUILT)
    remove_parts(folder, REBUILT)
    journal = Journal.create(folder, REBUILT)
    try:
        journal.bury(old.deleted)
        if old.statements is not None:
            # All their targets are due again: whatever the passages say, it is held against them.
            journal.make_marks(old.statements)
        for source in old.sources:
            journal.add_source(source)
        journal.set_origins(old.origins)
        journal.set_files(old.files)
    except BaseException:
        journal.close()
        raise
    return journal


class _Remembered(NamedTuple):
    """What only the old journal knows; nothing where it cannot be read."""

    name: str = ""
    """The file it was read from."""
    deleted: Mapping[str, str] = {}
    sources: Sequence[IngestedFile] = ()
    origins: Mapping[str, Origin] = {}
    statements: Sequence[Statement] | None = None
    """What was stated of articles; None where it keeps no statements."""
    files: Mapping[str, str] = {}
    """SHA-256 of data files."""


def _remembered(folder: Path) -> _Remembered:
    name = next((name for name in (journals.NAME, REBUILT) if (folder / name).is_file()), None)
    if name is None:
        return _Remembered()
    try:
        journal = Journal(folder, name)
        try:
            statements = journal.statements() if journal.has_marks else None
            return _Remembered(
                name,
                journal.buried(),
                journal.sources(),
                journal.all_origins(),
                statements,
                journal.files() or {},
            )
        finally:
            journal.close()
    except LibraryDamaged:
        return _Remembered()


def document_rows(passages: Sequence[StoredPassage]) -> list[DocumentRow]:
    """One row a document."""
    versions = {stored.passage.document_id: (stored.content_hash, stored.revision) for stored in passages}
    counts = Counter(stored.passage.document_id for stored in passages)
    return [DocumentRow(each, versions[each][0], count, versions[each][1]) for each, count in counts.items()]
