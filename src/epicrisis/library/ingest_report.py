"""Progress and result of adding documents to a library."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TypeVar

from epicrisis.corpus.reader_base import Skipped
from epicrisis.corpus.removal_log import RemovalSummary

_Result = TypeVar("_Result", "IngestProgress", "IngestReport")
MAX_LISTED = 20
"""Maximum number of skipped documents in a report."""


@dataclass(frozen=True, slots=True)
class IngestProgress:
    """Counts so far. `documents` were read; all other counts are of acknowledged or skipped documents."""

    documents: int
    added: int
    replaced: int
    unchanged: int
    outdated: int
    deleted: int
    skipped: int
    passages: int
    seconds: float

    @property
    def saved(self) -> int:
        """Documents acknowledged so far."""
        return self.added + self.replaced


@dataclass(frozen=True, slots=True)
class IngestReport:
    """The result of adding documents."""

    added: int
    replaced: int
    unchanged: int
    outdated: int
    """Documents older than those in the library, or than their deletion."""
    deleted: int
    passages: int
    cut_off: int
    """Passages longer than the encoder reads. Vector search ignores their ends."""
    skipped: int
    first_skipped: tuple[Skipped, ...]
    seconds: float
    encode_seconds: float
    renamed: int = 0
    """Patients with a new name, but the same birth date and a shared record number."""
    statements: int = 0
    """Entries of lists of retractions."""
    nameless: int = 0
    """Entries without a PMID or DOI."""
    marked: int = 0
    """Existing documents whose marks changed."""
    removed: RemovalSummary | None = None
    """Text removed from notes, if there were any."""
    already_there: int = 0
    """Unchanged documents that are copies of files with another name."""
    of_unknown_file: int = 0
    """Replaced documents of an earlier version's library, which did not record their files."""
    remarks: tuple[str, ...] = ()
    """One line for each of the first files with a name or content that was already in the library."""
    more_remarks: int = 0


class IngestCounts:
    """Mutable counts during an ingestion, with the names of IngestReport."""

    def __init__(self) -> None:
        self.documents = 0
        self.added = self.replaced = self.unchanged = self.outdated = self.deleted = 0
        self.passages = self.statements = self.nameless = self.marked = self.renamed = 0
        self.already_there = self.of_unknown_file = self.cut_off = 0
        self.encode_seconds = 0.0
        self.skipped = 0
        self.first_skipped: tuple[Skipped, ...] = ()
        self.remarks: tuple[str, ...] = ()
        self.more_remarks = 0

    def skip(self, document_id: str, reason: str) -> None:
        """Count a skipped document."""
        self.add_skipped(Skipped(document_id, "", reason))

    def add_skipped(self, skipped: Skipped) -> None:
        """Count a skipped item."""
        self.skipped += 1
        if len(self.first_skipped) < MAX_LISTED:
            self.first_skipped += (skipped,)

    def add_remark(self, text: str) -> None:
        """Add a line about a file to the report."""
        if len(self.remarks) < MAX_LISTED:
            self.remarks += (text,)
        else:
            self.more_remarks += 1

    def build(self, kind: type[_Result], seconds: float) -> _Result:
        """Return the progress or the report after so many seconds."""
        names = vars(self).keys() & {field.name for field in fields(kind)}
        return kind(seconds=seconds, **{name: getattr(self, name) for name in names})
