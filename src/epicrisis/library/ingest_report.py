"""How far an addition is, and what became of its documents: plain values. Knows nothing of how they are added."""

from __future__ import annotations

from dataclasses import dataclass

from epicrisis.corpus.reader_base import Skipped
from epicrisis.corpus.removal_log import RemovalSummary

SHOWN = 20
"""Skipped documents that a report names; the others are counted."""


@dataclass(frozen=True, slots=True)
class IngestProgress:
    """How far an addition is. `documents` were read so far; the others count what is acknowledged or left out."""

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
        """Documents acknowledged by this addition."""
        return self.added + self.replaced


@dataclass(frozen=True, slots=True)
class IngestReport:
    """What became of the documents. `passages` were written; `skipped` counts all, `first_skipped` names the first.

    `outdated` are older than what the library has, or than their deletion; `deleted` were there and are gone;
    `cut_off` passages are longer than the encoder reads, so that dense search does not see their ends.
    `seconds` are wall clock; `encode_seconds` the part of them in the encoder.
    """

    added: int
    replaced: int
    unchanged: int
    outdated: int
    deleted: int
    passages: int
    cut_off: int
    skipped: int
    first_skipped: tuple[Skipped, ...]
    seconds: float
    encode_seconds: float
    renamed: int = 0
    """Patients whose name is another than before, with the same birth date and a shared record number."""
    statements: int = 0
    """Entries of a list of retractions that were read; `nameless` of them name no PMID and no DOI."""
    nameless: int = 0
    marked: int = 0
    """Documents that were there and whose marks changed: retracted, doubted, corrected or reinstated since."""
    removed: RemovalSummary | None = None
    """What was taken out of notes, where there were any."""
    already_there: int = 0
    """Of the unchanged: copies of files that are there under another name."""
    of_unknown_file: int = 0
    """Of the replaced: documents of an earlier version's library, which does not say what file they came from."""
    remarks: tuple[str, ...] = ()
    """On the first files that got another id than their name, or were there: a line each."""
    more_remarks: int = 0
