"""Rebuild the word index and the journal's table of documents from the passages.

Deletions, source files, origins and statements are copied from the old journal if it is readable. The caller holds the
write lock. Afterwards no batch is open.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

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
"""The new journal during a repair. A killed repair leaves it next to the old one."""


@dataclass(frozen=True, slots=True)
class _JournalContent:
    """The content of the old journal that cannot be rebuilt from passages. Empty if the journal is unreadable."""

    name: str = ""
    """The file it was read from."""
    deletions: Mapping[str, str] = field(default_factory=dict)
    sources: Sequence[IngestedFile] = ()
    origins: Mapping[str, Origin] = field(default_factory=dict)
    statements: Sequence[Statement] | None = None
    """None if the journal has no tables of statements."""
    files: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 of data files."""


def rebuild_from_passages(folder: Path, dimensions: int) -> None:
    """Rebuild both parts atomically. Raise LibraryDamaged if passages cannot be read, or StorageError."""
    old = _read_old_journal(folder)
    check_small_files(folder, old.files)
    table = PassageTable(folder, dimensions)
    table.check()
    journal = _create_journal(folder, old)
    try:
        # The journal is removed first and replaced last, so that a killed repair does not leave a valid library.
        remove_parts(folder, journals.NAME, indexes.NAME)
        words = WordIndex(folder, create=True)
        opstamp = words.replace([], _iterate_passages(table))
        words.close()
        # Old checksums stay, so that damaged files do not get valid ones.
        changes = ChecksumChanges({**old.files, **find_checksum_changes(folder, old.files).updated})
        journal.rebuild(_iterate_rows(table), Checkpoint(table.version, opstamp), changes)
    finally:
        journal.close()
    with translate_errors(folder):
        (folder / REBUILT).replace(folder / journals.NAME)
        sync_folder(folder)


def _create_journal(folder: Path, old: _JournalContent) -> Journal:
    """Create the new journal with the content of the old one, before that is removed."""
    if old.name == REBUILT:
        # A killed repair has already removed the old journal, so this file is the only copy of its content.
        return Journal(folder, REBUILT)
    remove_parts(folder, REBUILT)
    journal = Journal.create(folder, REBUILT)
    try:
        journal.record_deletions(old.deletions)
        if old.statements is not None:
            # This makes all targets due, so that the marks of all passages are checked again.
            journal.create_statements(old.statements)
        for source in old.sources:
            journal.add_source(source)
        journal.set_origins(old.origins)
        journal.set_files(old.files)
    except BaseException:
        journal.close()
        raise
    return journal


def _read_old_journal(folder: Path) -> _JournalContent:
    name = next((name for name in (journals.NAME, REBUILT) if (folder / name).is_file()), None)
    if name is None:
        return _JournalContent()
    try:
        journal = Journal(folder, name)
        try:
            statements = journal.statements() if journal.has_statements else None
            return _JournalContent(
                name,
                journal.deletions(),
                journal.sources(),
                journal.all_origins(),
                statements,
                journal.files() or {},
            )
        finally:
            journal.close()
    except LibraryDamaged:
        return _JournalContent()


def _iterate_passages(table: PassageTable) -> Iterator[StoredPassage]:
    for batch in table.batches():
        yield from batch


def _iterate_rows(table: PassageTable) -> Iterator[DocumentRow]:
    for batch in table.batches():
        yield from document_rows(batch)


def document_rows(passages: Sequence[StoredPassage]) -> list[DocumentRow]:
    """Return one row for each document of these passages."""
    by_document: dict[str, list[StoredPassage]] = {}
    for stored in passages:
        by_document.setdefault(stored.passage.document_id, []).append(stored)
    rows = []
    for document_id, parts in by_document.items():
        rows.append(DocumentRow(document_id, parts[-1].content_hash, len(parts), parts[-1].revision))
    return rows
