"""Progress and result of adding documents to a library."""

from __future__ import annotations

from dataclasses import dataclass

from epicrisis.corpus.reader_base import Skipped
from epicrisis.corpus.removal_log import RemovalSummary

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
    """Passages written."""
    cut_off: int
    """Passages longer than the encoder reads. Vector search ignores their ends."""
    skipped: int
    first_skipped: tuple[Skipped, ...]
    seconds: float
    """Wall-clock time."""
    encode_seconds: float
    """Time spent in the encoder."""
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
    """Mutable counts during an ingestion, see IngestReport."""

    def __init__(self) -> None:
        self.documents = 0
        self.added = self.replaced = self.unchanged = self.outdated = self.deleted = 0
        self.passages = self.statements = self.nameless = self.marked = 0
        self.already_there = self.of_unknown_file = 0
        self.skipped = 0
        self.first_skipped: list[Skipped] = []
        self.remarks: list[str] = []
        self.more_remarks = 0

    def skip(self, document_id: str, reason: str) -> None:
        """Count a skipped document."""
        self.add_skipped(Skipped(document_id, "", reason))

    def add_skipped(self, skipped: Skipped) -> None:
        """Count a skipped item."""
        self.skipped += 1
        if len(self.first_skipped) < MAX_LISTED:
            self.first_skipped.append(skipped)

    def add_remark(self, text: str) -> None:
        """Add a line about a file to the report."""
        if len(self.remarks) < MAX_LISTED:
            self.remarks.append(text)
        else:
            self.more_remarks += 1

    def progress(self, seconds: float) -> IngestProgress:
        """Return the progress after so many seconds."""
        return IngestProgress(
            documents=self.documents,
            added=self.added,
            replaced=self.replaced,
            unchanged=self.unchanged,
            outdated=self.outdated,
            deleted=self.deleted,
            skipped=self.skipped,
            passages=self.passages,
            seconds=seconds,
        )

    def report(self, *, seconds: float, encode_seconds: float, cut_off: int, renamed: int) -> IngestReport:
        return IngestReport(
            added=self.added,
            replaced=self.replaced,
            unchanged=self.unchanged,
            outdated=self.outdated,
            deleted=self.deleted,
            passages=self.passages,
            cut_off=cut_off,
            skipped=self.skipped,
            first_skipped=tuple(self.first_skipped),
            seconds=seconds,
            encode_seconds=encode_seconds,
            renamed=renamed,
            statements=self.statements,
            nameless=self.nameless,
            marked=self.marked,
            already_there=self.already_there,
            of_unknown_file=self.of_unknown_file,
            remarks=tuple(self.remarks),
            more_remarks=self.more_remarks,
        )
