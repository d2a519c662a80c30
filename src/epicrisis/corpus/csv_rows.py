"""Rows of a CSV file of notes, plain or gzip, as a stream: each with the line it begins in, or why it was left out.

A row that is broken is left out; after one whose quotes are broken nothing more is read, since what follows could be
put into the wrong row, and so under the wrong patient. Memory is bounded by `LARGEST`, whatever the file holds. What a
row looks like is told by its `Form`.
"""

from __future__ import annotations

import csv
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from epicrisis.corpus.csv_layout import CsvLayout
from epicrisis.corpus.jsonl import open_packed
from epicrisis.corpus.reader_base import Skipped, check_file, os_error_reason, printable_path
from epicrisis.errors import InputError

LARGEST = 10 * 1024 * 1024
"""Bytes of a row. The longest note of MIMIC has about 60,000."""
_ENDLESS = 4 * LARGEST
"""Bytes of a row after which its end is no longer looked for: even of such a row delimiters and quotes are held."""
_PIECE = 1 << 16
_DELIMITERS = (",", "\t", ";", "|")
_QUOTES = "quotes within a field must be doubled, and fields that hold quotes or line ends be quoted"
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class CsvRow:
    """One row of a file; `line` is where it begins, from 1."""

    line: int
    cells: list[str]


def read_header(path: Path) -> tuple[list[str], str]:
    """The cells of the first line, stripped, and the delimiter: of comma, tab, semicolon and bar what parts it most.

    Raises InputError for a path that is no file, and for a first line that cannot be one of column names.
    """
    check_file(path)
    try:
        with open_packed(path) as file:
            raw = file.readline(_PIECE).removeprefix(_BOM)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{printable_path(path)}: {_why(error)}; fetch or make it again") from error
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in raw:
        raise InputError(f"{printable_path(path)}: not UTF-8; if it is UTF-16: iconv -f UTF-16 -t UTF-8 FILE > NEW")
    if raw.startswith(b"PK\x03\x04"):
        raise InputError(f"{printable_path(path)}: a ZIP or Excel file; save the sheet as CSV (UTF-8)")
    try:
        line = raw.decode()
    except UnicodeDecodeError as error:
        raise InputError(
            f"{printable_path(path)}: its first line is not UTF-8: iconv -f WINDOWS-1252 -t UTF-8 FILE > NEW"
        ) from error
    parted = {mark: _parted(line, mark) for mark in _DELIMITERS}
    if not any(parted.values()):
        raise InputError(f"{printable_path(path)}: its first line is not one of column names: {_QUOTES}")
    delimiter = max(_DELIMITERS, key=lambda mark: len(parted[mark]))
    return [cell.strip() for cell in parted[delimiter]], delimiter


def _parted(line: str, mark: str) -> list[str]:
    """Nothing where quotes say that this is not the delimiter: behind one that closes a name the delimiter comes."""
    try:
        return next(csv.reader([line], delimiter=mark, strict=True), [])
    except csv.Error:
        return []


@dataclass(frozen=True, slots=True)
class _Read:
    """What was made of a row. `is_broken`: its cells cannot be told apart, or are too few or too many."""

    item: CsvRow | Skipped
    first: int
    has_more_lines: bool = False
    is_broken: bool = False


def read_rows(path: Path, form: CsvLayout) -> Iterator[CsvRow | Skipped]:
    """The rows behind the first line, blank ones passed over; each with as many cells as the form has columns.

    A quote left open may be closed by one of another row. Each of these betrays it and ends the file in front of that
    row: a line within its quotes that has the form of a row; too few cells in a row of several lines; a quote in a
    patient's id; and, behind a row of several lines, one that is broken.
    """
    held: _Read | None = None
    for read in _read(path, form):
        if held and held.has_more_lines and read.is_broken:
            reason = (
                f"line {read.first} begins a row that is broken, directly behind one of several lines (from line "
                f"{held.first}): the quotes of either may be, so both are left out and nothing more was read: {_QUOTES}"
            )
            yield Skipped(printable_path(path), f"after line {held.first - 1}", reason)
            return
        if held:
            yield held.item
        held = read
    if held:
        yield held.item


def _read(path: Path, form: CsvLayout) -> Iterator[_Read]:
    csv.field_size_limit(max(csv.field_size_limit(), 2 * LARGEST))
    lines: _Lines | None = None
    try:
        with open_packed(path) as file:
            lines = _Lines(file)
            reader = csv.reader(lines, delimiter=form.delimiter, strict=True)
            next(reader)
            lines.begin()
            for cells in reader:
                if cells and (within := form.row_within(cells)) is not None:
                    yield _Read(_drawn_in(path, lines.first, lines.first + within), lines.first)
                    return
                has_more_lines = lines.number > lines.first
                if cells and _is_torn(cells, has_more_lines, form):
                    raise csv.Error
                if cells:
                    fault = lines.fault or _fault(cells, form.columns)
                    item = (
                        Skipped(printable_path(path), f"line {lines.first}", fault)
                        if fault
                        else CsvRow(lines.first, cells)
                    )
                    yield _Read(item, lines.first, has_more_lines, len(cells) != form.columns)
                lines.begin()
    except _EndlessRow:
        assert lines is not None, "the file was opened"
        reason = (
            f"line {lines.first} begins a row of more than {_ENDLESS // 2**20} MB, and nothing more was read: look for "
            "a missing quote"
        )
        yield _Read(Skipped(printable_path(path), f"after line {lines.first - 1}", reason), lines.first, is_broken=True)
    except csv.Error:
        assert lines is not None, "the file was opened"
        reason = f"from the next row on the quotes or line ends are broken, and nothing more was read: {_QUOTES}"
        yield _Read(Skipped(printable_path(path), f"after line {lines.first - 1}", reason), lines.first, is_broken=True)
    except (OSError, EOFError, zlib.error) as error:
        reason = f"the file breaks off ({_why(error)}); fetch or make it again"
        number = lines.number if lines else 0
        yield _Read(Skipped(printable_path(path), f"after line {number}", reason), number)


def _is_torn(cells: list[str], has_more_lines: bool, form: CsvLayout) -> bool:
    """Whether delimiters were taken as text, within quotes, or a quote as part of the patient's id."""
    too_few = has_more_lines and len(cells) < form.columns
    return too_few or (len(cells) > form.patient and '"' in cells[form.patient])


def _drawn_in(path: Path, first: int, line: int) -> Skipped:
    reason = (
        f"line {line} has the form of a row but stands within quotes of the row of line {first}, and nothing more was "
        "read: close those quotes, or, if the line is part of the note, put a word in front of it"
    )
    return Skipped(printable_path(path), f"after line {first - 1}", reason)


class _EndlessRow(csv.Error):
    """A row without an end."""


class _Lines:
    """A file's lines as text, for the csv module: `first` is the line in which the present row begins, `fault` what is
    wrong with it. Of a row that is too long only quotes and delimiters are still given, so that its end is found."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.number = 0
        self.first = 1
        self.fault = ""
        self._size = 0

    def begin(self) -> None:
        """The next row begins with the next line."""
        self.first, self.fault, self._size = self.number + 1, "", 0

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        pieces = []
        while piece := self._file.readline(_PIECE):
            self._size += len(piece)
            if self._size > _ENDLESS:
                raise _EndlessRow
            pieces.append(piece if self._size <= LARGEST else _SKELETON.sub(b"x", piece))
            if piece.endswith(b"\n"):
                break
        if not pieces:
            raise StopIteration
        self.number += 1
        raw = b"".join(pieces)
        if self.number == 1:
            raw = raw.removeprefix(_BOM)
        if self._size > LARGEST:
            self.fault = f"longer than {LARGEST // 2**20} MB: no note; look for a missing quote, or split it"
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            self.fault = self.fault or (
                f"not UTF-8 at byte {error.start + 1} of line {self.number}, so two encodings may be mixed; if it is "
                "Windows-1252 throughout: iconv -f WINDOWS-1252 -t UTF-8 FILE > NEW"
            )
            return raw.decode(errors="replace")


_SKELETON = re.compile(rb'[^",;\t|\r\n]+')


def _fault(cells: list[str], columns: int) -> str:
    if cells and len(cells) != columns:
        return f"has {len(cells)} columns, the first line {columns}: {_QUOTES}"
    return "holds a NUL character; make the file again" if any("\0" in cell for cell in cells) else ""


def _why(error: Exception) -> str:
    return os_error_reason(error) if isinstance(error, OSError) else str(error)
