"""What all readers share: the items that they yield, the checks of a path, and opening plain and gzip files alike.

The unpacked size is limited, because a gzip file of 10 MB can unpack to 10 GB.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import io
import os
import re
import stat
import time
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeAlias, cast
from weakref import WeakValueDictionary

from epicrisis.core.errors import InputError
from epicrisis.core.printable import printable
from epicrisis.core.types import Document, Origin

if TYPE_CHECKING:
    from epicrisis.core.protocols import Vectors
_UNKNOWN_ENDING = "its ending is not one that `epicrisis library add --help` names; save it as PDF, .docx or text"
_UNKNOWN_CONTENT = "other XML or JSON than `epicrisis library add --help` names; save it as PDF, .docx or text"
_UNKNOWN_TABLE = (
    "a table with other columns than those of notes, and of the tables of OMOP and MIMIC that are read; save it as text"
)
_TABLE_ENDINGS = (".csv", ".tsv", ".parquet")
_PICTURE = "a picture; save it as PDF, whose pages are read by OCR where tesseract is installed"
_EXPORT = "export the references as RIS"
_ENDNOTE = f"EndNote's library or XML; {_EXPORT} (File > Export, style RefMan (RIS)), or as .enw"
_ZOTERO = f"Zotero RDF; {_EXPORT}, or add Zotero's folder itself"
_MARC = f"a library catalogue's format (MARC, MODS); {_EXPORT}"
CURES = {
    **dict.fromkeys((".png", ".jpg", ".jpeg", ".gif", ".tif", ".tiff", ".bmp", ".webp"), _PICTURE),
    ".doc": "Word's old format, in which deleted text is text; convert it: soffice --headless --convert-to docx *.doc",
    ".ppt": "PowerPoint's old format; convert it: soffice --headless --convert-to pptx *.ppt",
    **dict.fromkeys((".enl", ".enlx"), _ENDNOTE),
    ".rdf": _ZOTERO,
    **dict.fromkeys((".mrc", ".marc", ".mods"), _MARC),
    **dict.fromkeys((".papers", ".papers2", ".papers3"), f"a library of Papers; {_EXPORT}"),
    **dict.fromkeys((".ctv5", ".ctv6", ".ctv7", ".ctw"), f"a project of Citavi; {_EXPORT}"),
}
"""What to do with files that no reader takes, by their ending."""
_XML_CURES = (
    (re.compile(rb"<records>\s{0,99}<record>\s{0,99}<(?:database|source-app|ref-type)\b"), _ENDNOTE),
    (re.compile(rb"<rdf:RDF\b[^>]{0,2000}zotero\.org"), _ZOTERO),
    (re.compile(rb"loc\.gov/(?:MARC21|mods)\b"), _MARC),
)
"""The same for XML, by its beginning."""
_XML_START_BYTES = 4_096


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file, or a part of one, that was not read. Contains none of the file's text, so that it may be logged."""

    path: str
    where: str
    """`line 17`, `entry '21645374'`, or empty for the complete file."""
    reason: str


@dataclass(frozen=True, slots=True)
class FileRemark:
    """A remark about a file for the reader of the report. `noun` and `text` are one line for all files of an addition:
    `3 pages without text (a.pdf, b.pdf)`. Contains none of the file's text, so that it may be logged."""

    path: str
    noun: str
    """What `count` counts: `page`."""
    text: str
    """The rest of the line, with the cure."""
    count: int = 1


@dataclass(frozen=True, slots=True)
class OmittedText:
    """Texts of one kind that the reader of a file left out of a document, for the removal log."""

    document: str
    kind: str
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeletedDocument:
    """A document withdrawn by its source, as of `revision`; without one, it is deleted if it belongs to `patient`."""

    id: str
    revision: str = ""
    patient: str | None = None
    any_patient: bool = False
    """The source names the document and not its patient, so it is deleted whosever it is."""
    every_version: bool = False
    """Delete the patient's documents of all versions of this id: `note:D1@...`."""

    def names(self, document_id: str) -> bool:
        """Return whether this is the id of the document, or of a version of it."""
        return document_id == self.id or (self.every_version and document_id.startswith(f"{self.id}@"))


@dataclass(frozen=True, slots=True)
class ArticleStatement:
    """A statement of a notice or a list about an article (retracted, corrected, ...), in the library or not."""

    source: str
    """The document id of the notice, or the entry of the list."""
    targets: tuple[str, ...]
    """Names of the article (`pubmed:123`, `doi:10.1/x`); empty if the source names none."""
    mark: str
    """An `ArticleMark` of `facets`, or `reinstated`, which lifts an earlier retraction."""
    day: int | None = None


@dataclass(frozen=True, slots=True)
class EncodedDocument:
    """A document with the vector `(d,)` of its only passage, the complete text."""

    document: Document
    vector: Vectors


@dataclass(frozen=True, slots=True)
class FileDocument:
    """A document without a revision, and the file from which it was read."""

    document: Document
    origin: Origin


@dataclass(frozen=True, slots=True)
class FileFingerprint:
    """Name without folder, hash and size of a file. Follows its last document if all of the file was read."""

    name: str
    sha256: str
    bytes: int


@dataclass(frozen=True, slots=True)
class PatientIdentity:
    """The person behind a patient id, as far as a source says. Precedes the patient's first note."""

    patient: str
    source: str = ""
    """`fhir:<server>`; `fhir` without a known server; `identifier` if a record number replaces the id; empty for a
    table, whose ids may be anybody's."""
    names: tuple[str, ...] = ()
    """As written; the first of several is displayed."""
    born: str = ""
    """`1950-01-02`, or less of it."""
    numbers: tuple[tuple[str, str], ...] = ()
    """Record numbers and other identifiers: (system, value). The system may be empty."""
    alias: str = ""
    """The id that the source gives to a patient whom the library has under another id."""


@dataclass(frozen=True, slots=True)
class StatedSources:
    """The sources of structured facts that an incremental export states or withdraws for a patient.

    Precedes the patient's documents of facts. Facts of other sources in earlier documents of the same days stay.
    """

    patient: str
    sources: frozenset[str]
    prefix: str
    """How the sources of this kind of export begin: `fhir:`. Facts of others are replaced with their document."""


ReaderItem: TypeAlias = (
    Document
    | EncodedDocument
    | FileDocument
    | DeletedDocument
    | PatientIdentity
    | StatedSources
    | ArticleStatement
    | Skipped
    | FileRemark
    | FileFingerprint
)


def append_fingerprint(path: Path, items: Iterable[ReaderItem]) -> Iterator[ReaderItem]:
    """Yield the items, then the file's fingerprint unless the file could not be read to its end."""
    is_broken = False
    for item in items:
        # A skipped part has a place; a file that breaks off has `after ...`, and a skipped file has none.
        if isinstance(item, Skipped) and item.where.partition(" ")[0] in ("", "after"):
            is_broken = True
        yield item
    if not is_broken:
        yield fingerprint_file(path)


def hold_fingerprint(path: Path, items: Iterable[ReaderItem], fingerprints: list[ReaderItem]) -> Iterator[ReaderItem]:
    """Yield the items, and add the file's fingerprint to the list unless the file could not be read to its end.

    For files with facts: they have been read only once the documents of their facts are written.
    """
    for item in append_fingerprint(path, items):
        if isinstance(item, FileFingerprint):
            fingerprints.append(item)
        else:
            yield item


def fingerprint_file(path: Path) -> FileFingerprint:
    """Return the file's fingerprint. Raises InputError if the file can no longer be read."""
    try:
        head = read_head(path)
        if head.is_whole and not head.is_packed:
            digest = hashlib.sha256(head.data).hexdigest()
        else:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        return FileFingerprint(printable_path(path.name), digest, path.stat().st_size)
    except OSError as error:
        raise unreadable(path, error) from error


def printable_path(path: Path | str) -> str:
    """Return the path as one printable line; bytes of a file name that are not UTF-8 become U+FFFD."""
    return printable(os.fsencode(path).decode("utf-8", "replace"))


def os_error_reason(error: OSError) -> str:
    """Return the operating system's reason, without the path."""
    return error.strerror or str(error)


def skip(path: Path, where: str, reason: str) -> Skipped:
    """Return the item for an unread part of a file; `where` is empty for the complete file."""
    return Skipped(printable_path(path), where, reason)


def is_number(text: str) -> bool:
    """Return whether the text has only the digits 0 to 9, and at least one."""
    return text.isascii() and text.isdecimal()


def path_error(path: Path | str, reason: str) -> InputError:
    """Return the error to raise for a path, with its cause and cure."""
    return InputError(f"{printable_path(path)}: {reason}")


def unreadable(path: Path, error: OSError) -> InputError:
    """Return the error to raise for a path that the operating system refuses to read."""
    return path_error(path, f"{os_error_reason(error)}; check the path and its permissions")


def read_limited(path: Path, limit: int) -> bytes:
    """Return the file's content. Raises ValueError with the reason if it is unreadable or larger than `limit` bytes."""
    try:
        if path.stat().st_size > limit:
            raise ValueError(f"larger than {limit // 2**20} MB; split it")
        # A pipe can be read only once.
        head = read_head(path) if path.is_file() else None
        return path.read_bytes() if head is None or head.is_packed or not head.is_whole else head.data
    except OSError as error:
        raise ValueError(f"{os_error_reason(error)}; check the file and its permissions") from error


def is_folder(path: Path) -> bool:
    """Return True for a folder and False for a file. Raises InputError for a missing path, a device or a pipe."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise path_error(path, "no such file or folder; check the spelling and the folder you are in") from None
    except OSError as error:
        raise unreadable(path, error) from error
    if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
        raise path_error(path, "neither a file nor a folder; write the data to a file first")
    return stat.S_ISDIR(mode)


def check_file(path: Path) -> None:
    """Raise InputError unless the path is a file that can be opened and has at least one byte."""
    if is_folder(path):
        raise path_error(path, "a folder; give the file in it")
    try:
        head = read_head(path)
    except OSError as error:
        raise unreadable(path, error) from error
    if not head.data and not head.is_packed:
        raise path_error(path, "the file is empty; leave it out, or create it again")


MAX_UNPACK_RATIO = 200
"""Limit of the unpacked size as a multiple of the gzip file's size. Text unpacks to 3 to 30 times its size."""
UNPACK_ALLOWANCE = 1024**3
"""Bytes that any gzip file may unpack to, with any ratio."""
READ_ERRORS = (OSError, EOFError, zlib.error)
"""Exceptions raised while reading a damaged file; gzip's own error is an OSError."""

_WINDOWS_FILES = ("thumbs.db", "ehthumbs.db", "desktop.ini")
_GZIP_MAGIC = b"\x1f\x8b"
_PIECE_BYTES = 1 << 20
_CLOCK_STEP_NS = 2_000_000_000
"""The longest step of the clock of a file system (FAT), in nanoseconds."""
HEAD_BYTES = 1 << 20
"""Bytes of a file, unpacked, by which its format is told. A smaller file is opened once, and read from memory."""


_open_files: WeakValueDictionary[Path, IO[bytes]] = WeakValueDictionary()
"""The files that `open_packed` opened last, for `read_position`."""


@dataclass(frozen=True, slots=True)
class FileHead:
    """The beginning of a file, unpacked."""

    data: bytes
    """At most HEAD_BYTES."""
    is_packed: bool
    """Whether the file is gzip. The name is not used: browsers unpack `.gz` and keep the name."""
    is_damaged: bool
    """Whether it breaks off within these bytes."""

    @property
    def is_whole(self) -> bool:
        """Whether these bytes are the whole file."""
        return len(self.data) < HEAD_BYTES and not self.is_damaged


def read_head(path: Path) -> FileHead:
    """Return the beginning of a file, by which its format is told. It is read once. Raises OSError."""
    return _read_head(path, file_version(path))


def file_version(path: Path) -> tuple[int, ...]:
    """Return what differs once a file has changed, for what is kept of it. Raises OSError.

    A file that changed a moment ago may change again at the same time of its clock, so each call gives another version.
    """
    status = path.stat()
    version = status.st_ino, status.st_size, status.st_mtime_ns
    now = time.time_ns()
    return (*version, now) if now - status.st_mtime_ns < _CLOCK_STEP_NS else version


@functools.lru_cache(maxsize=16)
def _read_head(path: Path, version: tuple[int, ...]) -> FileHead:
    size = path.stat().st_size
    with path.open("rb") as raw:
        packed = raw.read(2) == _GZIP_MAGIC
        raw.seek(0)
        if not packed:
            return FileHead(raw.read(HEAD_BYTES), is_packed=False, is_damaged=False)
        data = b""
        try:
            unpacked = _GzipReader(raw, size)
            while len(data) < HEAD_BYTES and (piece := unpacked.read(HEAD_BYTES - len(data))):
                data += piece
        except READ_ERRORS:
            return FileHead(data, is_packed=True, is_damaged=True)
        return FileHead(data, is_packed=True, is_damaged=False)


def open_packed(path: Path) -> IO[bytes]:
    """Open a file for reading and unpack it if it is gzip. Reading raises one of `READ_ERRORS` for a damaged file."""
    head = read_head(path)
    if head.is_whole:
        return io.BytesIO(head.data)
    file: IO[bytes] = path.open("rb")
    if head.is_packed:
        file = cast(IO[bytes], io.BufferedReader(_GzipReader(file, path.stat().st_size), 1 << 17))
    _open_files[path] = file
    return file


def read_position(path: Path) -> int:
    """Return how many bytes on disk of a file that `open_packed` opened have been read; 0 if it is not open."""
    file = _open_files.get(path)
    try:
        return 0 if file is None or file.closed else os.lseek(file.fileno(), 0, os.SEEK_CUR)
    except (OSError, ValueError):
        return 0


def is_visible(name: str) -> bool:
    """Return whether a file of a folder is one of its user's: no hidden file, and none that Office or Windows keeps."""
    is_of_office = name.startswith("~$") or (name.startswith("~WR") and name.endswith(".tmp"))
    return not (name.startswith(".") or is_of_office or name.lower() in _WINDOWS_FILES)


def is_packed(path: Path) -> bool:
    """Return whether a file is gzip. Raises OSError."""
    return read_head(path).is_packed


def describe_read_error(error: Exception) -> str:
    """Return why a file breaks off and what to do, as one phrase."""
    cause = os_error_reason(error) if isinstance(error, OSError) else str(error)
    return f"the file breaks off ({cause}); fetch it again or recreate it"


def real_path(path: Path) -> Path:
    """Return the absolute path without links. `Path.resolve` fails at links that lead to each other."""
    return Path(os.path.realpath(path))


def describe_unread(path: Path, *, is_known: bool) -> str:
    """Return why no reader takes a file, or why a folder cannot be listed, and what to do.

    `is_known`: its ending is that of a format, so its content is that of no format.
    """
    try:
        if path.is_dir():
            os.scandir(path).close()
        elif path.is_symlink() and not path.exists():
            return "a link to a file that is not there; correct or remove the link"
        elif path.is_file():
            path.open("rb").close()
    except OSError as error:
        return f"{os_error_reason(error)}; check its permissions, or leave it out"
    if not is_known:
        unknown = _UNKNOWN_ENDING
    elif path.name.lower().removesuffix(".gz").endswith(_TABLE_ENDINGS):
        unknown = _UNKNOWN_TABLE
    else:
        unknown = _UNKNOWN_CONTENT
    return describe_damage(path) or find_cure(path) or unknown


def find_cure(path: Path) -> str:
    """Return what to do with a file of a known kind that no reader takes, or an empty string. Raises OSError."""
    if cure := CURES.get(path.suffix.lower()):
        return cure
    start = read_head(path).data[:_XML_START_BYTES].replace(b"\0", b"") if path.is_file() else b""
    return next((cure for pattern, cure in _XML_CURES if pattern.search(start)), "")


def describe_damage(path: Path, *, include_truncated: bool = True) -> str:
    """Return why a gzip file cannot be read to the checksum at its end, or an empty string; a plain file has none.

    `include_truncated=False` accepts a truncated file, which is correct up to its end.
    """
    try:
        if is_packed(path):
            with open_packed(path) as file:
                while file.read(_PIECE_BYTES):
                    pass
    except READ_ERRORS as error:
        is_truncated = isinstance(error, EOFError)
        return "" if is_truncated and not include_truncated else describe_read_error(error)
    return ""


class _GzipReader(io.RawIOBase):
    """The unpacked content of a gzip file, limited in size."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        super().__init__()
        self._limit = max(UNPACK_ALLOWANCE, MAX_UNPACK_RATIO * size)
        self._raw, self._file = file, gzip.GzipFile(fileobj=file)
        self._size = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._file.read1(len(buffer))
        self._size += len(data)
        if self._size > self._limit:
            size = f"{self._limit / 2**30:.1f} GB"
            raise OSError(f"it unpacks to more than {size}, over {MAX_UNPACK_RATIO} times its size")
        buffer[: len(data)] = data
        return len(data)

    def fileno(self) -> int:
        return self._file.fileno()

    def close(self) -> None:
        self._file.close()
        self._raw.close()
        super().close()
