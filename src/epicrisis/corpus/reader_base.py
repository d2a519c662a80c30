"""What every reader shares: the record of what was left out, and the checks a file must pass before it is read.

Does not know any format.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from epicrisis.errors import InputError
from epicrisis.printable import printable
from epicrisis.types import Document, Origin

if TYPE_CHECKING:
    from epicrisis.protocols import Vectors


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file, or a part of one, that was left out. Holds nothing of the file's text, so that it may be logged."""

    path: str
    where: str
    """`line 17`, `entry '21645374'`, or empty for the whole file."""
    reason: str


@dataclass(frozen=True, slots=True)
class DeletedDocument:
    """A document its source has taken back, as of `revision` (see `Document.revision`).

    Without a revision (`""`) it is deleted if it is there and of this `patient`; what is added later counts again.
    """

    id: str
    revision: str = ""
    patient: str | None = None


@dataclass(frozen=True, slots=True)
class ArticleStatement:
    """What a notice or a list says of an article that is, or will be, in the library."""

    source: str
    """Who says so: the document id of a notice, or the entry of a list."""
    targets: tuple[str, ...]
    """Names of the article (`pubmed:123`, `doi:10.1/x`); empty where the source names none."""
    mark: str
    """A `facets.Mark`, or `reinstated`, which lifts a retraction of an earlier day."""
    day: int | None = None
    """As yyyymmdd, where it is known."""


@dataclass(frozen=True, slots=True)
class EncodedDocument:
    """A document that comes with the vector `(d,)` of its one passage, the whole text."""

    document: Document
    vector: Vectors


@dataclass(frozen=True, slots=True)
class FileDocument:
    """A document without a revision, with the file it was read from."""

    document: Document
    origin: Origin


@dataclass(frozen=True, slots=True)
class FileFingerprint:
    """A file of which everything was given: it comes after its last document. `name` without its folder."""

    name: str
    sha256: str
    bytes: int


@dataclass(frozen=True, slots=True)
class PatientIdentity:
    """Who is meant by a patient's id, as far as a source says; it comes before the patient's first note."""

    patient: str
    source: str = ""
    """`fhir:<server>`; `fhir` where it does not say which; `identifier` where a record number stands for an id; empty
    for a table, whose ids may be anybody's."""
    names: tuple[str, ...] = ()
    """As they are written; of several the first is the one to show."""
    born: str = ""
    """`1950-01-02`, or less of it."""
    numbers: tuple[tuple[str, str], ...] = ()
    """Record numbers and other identifiers: (system, value); the system may be empty."""


ReaderItem: TypeAlias = (
    Document
    | EncodedDocument
    | FileDocument
    | DeletedDocument
    | PatientIdentity
    | ArticleStatement
    | Skipped
    | FileFingerprint
)
"""What a reader gives."""


def append_fingerprint(path: Path, items: Iterable[ReaderItem]) -> Iterator[ReaderItem]:
    """The items, and the mark of the whole file unless it could not be read to its end."""
    broken = False
    for item in items:
        # A part that was left out has its place; a file that breaks off says `after` where.
        broken = broken or (isinstance(item, Skipped) and item.where.partition(" ")[0] in ("", "after"))
        yield item
    if not broken:
        yield fingerprint_file(path)


def fingerprint_file(path: Path) -> FileFingerprint:
    """Raises InputError where the file can no longer be read."""
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        return FileFingerprint(printable_path(path.name), digest, path.stat().st_size)
    except OSError as error:
        raise InputError(
            f"{printable_path(path)}: {os_error_reason(error)}; check the path and its permissions"
        ) from error


def printable_path(path: Path | str) -> str:
    """Return the path as one printable line: bytes of a file name that are not UTF-8 become U+FFFD."""
    return printable(os.fsencode(path).decode("utf-8", "replace"))


def os_error_reason(error: OSError) -> str:
    """Why the operating system refused, without the path."""
    return error.strerror or str(error)


def is_folder(path: Path) -> bool:
    """True for a folder, False for a file. Raises InputError for anything else: missing, a device, a pipe."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise InputError(
            f"{printable_path(path)}: no such file or folder; check the spelling and the folder you are in"
        ) from None
    except OSError as error:
        raise InputError(
            f"{printable_path(path)}: {os_error_reason(error)}; check the path and its permissions"
        ) from error
    if stat.S_ISDIR(mode):
        return True
    if stat.S_ISREG(mode):
        return False
    raise InputError(f"{printable_path(path)}: neither a file nor a folder; write the data to a file first")


def check_file(path: Path) -> None:
    """Raises InputError unless this is a file that can be opened and holds at least one byte."""
    if is_folder(path):
        raise InputError(f"{printable_path(path)}: a folder; name the file in it")
    try:
        with path.open("rb") as file:
            first = file.read(1)
    except OSError as error:
        raise InputError(
            f"{printable_path(path)}: {os_error_reason(error)}; check the path and its permissions"
        ) from error
    if not first:
        raise InputError(f"{printable_path(path)}: the file is empty; leave it out, or make it again")
