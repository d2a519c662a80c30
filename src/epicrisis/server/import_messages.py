"""What the server tells the process of an import, and what the process answers: a line of JSON for each message."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from epicrisis.library.skipped_items import SkippedReason


@dataclass(frozen=True, slots=True)
class ReceivedFile:
    """A file of an upload."""

    name: str
    """As the sender calls it, printable."""
    stored: str
    """The random name under which it is stored. Empty for a file that was not stored."""
    bytes: int
    refusal: str = ""
    """Why the file was not stored, and what to do. Empty for a stored one."""


class ImportTask(BaseModel):
    """What a process imports, and how."""

    model_config = ConfigDict(frozen=True)

    library: str = Field(repr=False)
    """The folder of the library, or its URL, which may hold a password."""
    files: tuple[ReceivedFile, ...]
    folder: Path
    """Where the files are."""
    originals: Path
    """Where PDFs stay, so that their pages can be shown."""
    replace_others: bool = False
    """Replace documents of the same id from other files."""
    encoder: str | None = None
    """As the settings name it. None: that of the library."""
    home: Path
    threads: int | None = None
    local_only: bool = False
    memory_bytes: int
    """The limit of the process."""
    processor_seconds: int
    """The limit between two signs of progress."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportProgress:
    """What an import has done so far."""

    file: str = ""
    """The name of the file that is read."""
    files_read: int = 0
    files: int = 0
    documents: int = 0
    """Documents read."""
    saved: int = 0
    """Documents in the library."""
    skipped: int = 0
    passages: int = 0
    passages_per_second: float = 0.0
    seconds_left: float | None = None
    """Estimated from the bytes of the files read so far; None before the first is read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportResult:
    """How an import ended."""

    added: int
    replaced: int
    unchanged: int
    skipped: int
    passages: int
    seconds: float
    reasons: tuple[SkippedReason, ...] = ()
    more_skipped: int = 0
    """Skipped documents without a listed reason, in records of earlier versions."""
    remarks: tuple[str, ...] = ()
    """What to know of files whose name or content was in the library already."""


class ImportMessage(BaseModel):
    """A message of the process. One of the fields is set."""

    progress: ImportProgress | None = None
    result: ImportResult | None = None
    error: str | None = None
    """The message of an error that has a cure."""
    fault: str | None = None
    """Class and place of a fault of the program. Its message may hold text of a document."""
