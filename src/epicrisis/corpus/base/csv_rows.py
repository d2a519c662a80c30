"""Read rows of CSV files of notes, plain or gzip, as a stream: each row with its line number, or why it was skipped.

Reading stops at broken quotes, because the text after them could get into the row of another patient.
"""

from __future__ import annotations

import csv
import functools
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from epicrisis.core.errors import InputError
from epicrisis.corpus.base import reader_base
from epicrisis.corpus.base.encodings import detect_file_encoding, open_as_utf8
from epicrisis.corpus.base.note_times import parse_note_time

MAX_ROW_BYTES = 10 * 1024 * 1024
"""Limit of a row. The longest note of MIMIC has about 60,000 bytes."""
_MAX_SEARCH_BYTES = 4 * MAX_ROW_BYTES
"""Bytes after which the end of a row is no longer searched: delimiters and quotes of a long row are still kept."""
_PIECE_BYTES = 1 << 16
_DELIMITERS = (",", "\t", ";", "|")
_QUOTES = "quotes within a field must be doubled, and fields with quotes or line ends must be quoted"
_BOM = b"\xef\xbb\xbf"
_NOT_STRUCTURE = re.compile(rb'[^",;\t|\r\n]+')
_NUMBER_CHARACTERS = frozenset(" \t0123456789.+-<>=")


@dataclass(frozen=True, slots=True)
class CsvRow:
    """One row of a file; `line` is the number of its first line, from 1."""

    line: int
    cells: list[str]


@dataclass(frozen=True, slots=True)
class CsvLayout:
    """The number of columns of a file, its delimiter, and the positions of the columns that identify a row."""

    columns: int
    delimiter: str
    patient: int
    text: int
    times: tuple[int, ...] = ()

    def find_embedded_row(self, cells: Sequence[str]) -> int | None:
        """Return the index of a line, within a quoted cell, with the form of a row; None if there is none.

        An unclosed quote draws such a line into the text of another row. It has as many delimiters before its text as
        a row, and a patient id of the same form. Then either its times decide, or, without times, every cell must be
        as in a row: tables of findings use the same delimiters.
        """
        if len(cells) <= self.patient:
            return None
        mark = re.escape(self.delimiter)
        beginning = re.compile(rf"\n(?:[^{mark}\n]*{mark}){{{max(self.text, self.patient)}}}")
        lines_before = 0
        for cell in cells:
            for match in beginning.finditer(cell):
                start = match.start() + 1
                end = cell.find("\n", start)
                line = cell[start : len(cell) if end < 0 else end].removesuffix("\r").split(self.delimiter)
                if self._is_row(line, cells, is_last=end < 0):
                    return lines_before + cell.count("\n", 0, start)
            lines_before += cell.count("\n")
        return None

    def _is_row(self, line: Sequence[str], row: Sequence[str], is_last: bool) -> bool:
        """Return whether the line resembles the row. `is_last`: it is the last line of its cell."""
        row_id, line_id = row[self.patient].strip(), line[self.patient].strip()
        # Ids of one hospital, such as `P0012` and `P7`. Those that mix digits and letters freely are equally long.
        has_digit = any(map(str.isdigit, line_id))
        is_same_length = has_digit and re.sub(r"[^\W_]", "x", row_id) == re.sub(r"[^\W_]", "x", line_id)
        if not row_id or not line_id or not (is_same_length or _shape(row_id) == _shape(line_id)):
            return False
        times = [place for place in self.times if place <= max(self.text, self.patient) and line[place].strip()]
        for place in times:
            cell, row_cell = line[place].strip(), row[place].strip() if place < len(row) else ""
            if time := parse_note_time(cell):
                # A year alone, which may be any number of four digits, counts only if the row's own time is one.
                is_time = len(time[0]) > 4 or len(row_cell) == 4
            else:
                # An unreadable time counts if it has the shape of the row's own.
                is_time = _shape(cell) == _shape(row_cell) and abs(len(cell) - len(row_cell)) <= 2
            if not is_time:
                return False
        return bool(times) or self._has_cells_of(line, row, is_last)

    def _has_cells_of(self, line: Sequence[str], row: Sequence[str], is_last: bool) -> bool:
        """Return whether the line is complete, or ends where its text begins, and its cells are like the row's."""
        text = line[self.text]
        if text and (len(line) != self.columns or text[0] in _NUMBER_CHARACTERS):
            return False
        if not text and not (is_last and len(line) == self.text + 1):
            return False
        for place, cell in enumerate(row[: len(line)]):
            is_comparable = place != self.text and cell.strip() and line[place].strip()
            if is_comparable and _cell_kind(cell) != _cell_kind(line[place]):
                return False
        return True


def _shape(cell: str) -> str:
    """Return the cell with `x` for each run of letters and `9` for each run of digits."""
    return re.sub(r"\d+", "9", re.sub(r"[^\W\d_]+", "x", cell))


def _cell_kind(cell: str) -> tuple[bool, bool]:
    return cell[0].isspace(), any(map(str.isalpha, cell))


def read_header(path: Path) -> tuple[list[str], str]:
    """Return the stripped cells of the first line, and the delimiter: the one of , tab ; | that gives most cells.

    Raises InputError for a path without a file, and for a first line without column names.
    """
    reader_base.check_file(path)
    cells, delimiter = _read_header(path, reader_base.file_version(path))
    return [*cells], delimiter


@functools.lru_cache(maxsize=64)
def _read_header(path: Path, version: tuple[int, ...]) -> tuple[tuple[str, ...], str]:
    shown_path = reader_base.printable_path(path)
    try:
        with open_as_utf8(path, detect_file_encoding(path)) as file:
            raw = file.readline(_PIECE_BYTES).removeprefix(_BOM)
    except reader_base.READ_ERRORS as error:
        raise InputError(f"{shown_path}: {reader_base.describe_read_error(error)}") from error
    if raw.startswith(b"PAR1"):
        raise InputError(
            f"{shown_path}: a Parquet file with other columns than the tables that are read; save it as CSV"
        )
    if b"\0" in raw:
        raise InputError(f"{shown_path}: its first line has NUL characters; if it is UTF-16: iconv -f UTF-16 -t UTF-8")
    if raw.startswith(b"PK\x03\x04"):
        raise InputError(f"{shown_path}: a ZIP or Excel file; save the sheet as CSV (UTF-8)")
    try:
        line = raw.decode()
    except UnicodeDecodeError as error:
        raise InputError(
            f"{shown_path}: its first line is not UTF-8: iconv -f WINDOWS-1252 -t UTF-8 FILE > NEW"
        ) from error
    cells: list[str] = []
    delimiter = ""
    for mark in _DELIMITERS:
        # Quotes may rule a delimiter out: a closing quote must precede one.
        with suppress(csv.Error):
            cells_with_mark = next(csv.reader([line], delimiter=mark, strict=True), [])
            if len(cells_with_mark) > len(cells):
                cells, delimiter = cells_with_mark, mark
    if not cells:
        raise InputError(f"{shown_path}: its first line does not consist of column names: {_QUOTES}")
    return tuple(cell.strip() for cell in cells), delimiter


@dataclass(frozen=True, slots=True)
class _ReadRow:
    """A row, or why it was skipped. `is_broken`: its cells cannot be separated, or are too few or too many."""

    item: CsvRow | reader_base.Skipped
    first: int
    has_more_lines: bool = False
    is_broken: bool = False


def read_rows(path: Path, layout: CsvLayout) -> Iterator[CsvRow | reader_base.Skipped]:
    """Yield the rows after the first line, without blank ones; each has as many cells as the layout has columns.

    An unclosed quote may be closed by a quote of another row. These signs reveal it and end the file before that row: a
    line within its quotes with the form of a row; too few cells in a row of several lines; a quote in a patient id;
    and a broken row directly after a row of several lines.
    """
    previous: _ReadRow | None = None
    for row in _parse_rows(path, layout):
        if previous and previous.has_more_lines and row.is_broken:
            reason = (
                f"line {row.first} begins a broken row, directly after a row of several lines (from line "
                f"{previous.first}): the quotes of either may be broken, so both are left out and nothing more was "
                f"read: {_QUOTES}"
            )
            yield reader_base.skip(path, f"after line {previous.first - 1}", reason)
            return
        if previous:
            yield previous.item
        previous = row
    if previous:
        yield previous.item


def _parse_rows(path: Path, layout: CsvLayout) -> Iterator[_ReadRow]:
    csv.field_size_limit(max(csv.field_size_limit(), 2 * MAX_ROW_BYTES))
    lines: _LineSource | None = None
    try:
        with open_as_utf8(path, detect_file_encoding(path)) as file:
            lines = _LineSource(file)
            reader = csv.reader(lines, delimiter=layout.delimiter, strict=True)
            next(reader)
            lines.begin_row()
            for cells in reader:
                if cells:
                    has_more_lines = lines.number > lines.first
                    embedded = layout.find_embedded_row(cells) if has_more_lines else None
                    if embedded is not None:
                        reason = (
                            f"line {lines.first + embedded} has the form of a row but is within quotes of the row of "
                            f"line {lines.first}, and nothing more was read: close those quotes, or, if the line is "
                            "part of the note, put a word before it"
                        )
                        yield _ReadRow(reader_base.skip(path, f"after line {lines.first - 1}", reason), lines.first)
                        return
                    # Delimiters were read as quoted text, or a quote as part of the patient id.
                    too_few = has_more_lines and len(cells) < layout.columns
                    if too_few or (len(cells) > layout.patient and '"' in cells[layout.patient]):
                        raise csv.Error
                    fault = lines.fault
                    if not fault and len(cells) != layout.columns:
                        fault = f"has {len(cells)} columns, the first line {layout.columns}: {_QUOTES}"
                    elif not fault and "\0" in "".join(cells):
                        fault = "contains a NUL character; create the file again"
                    where = f"line {lines.first}"
                    item = reader_base.skip(path, where, fault) if fault else CsvRow(lines.first, cells)
                    yield _ReadRow(item, lines.first, has_more_lines, len(cells) != layout.columns)
                lines.begin_row()
    except csv.Error:
        assert lines is not None, "the file was opened"
        reason = f"from the next row on the quotes or line ends are broken, and nothing more was read: {_QUOTES}"
        if lines.is_endless:
            reason = (
                f"line {lines.first} begins a row of more than {_MAX_SEARCH_BYTES // 2**20} MB, and nothing more was "
                "read: look for a missing quote"
            )
        skipped = reader_base.skip(path, f"after line {lines.first - 1}", reason)
        yield _ReadRow(skipped, lines.first, is_broken=True)
    except reader_base.READ_ERRORS as error:
        number = lines.number if lines else 0
        yield _ReadRow(reader_base.skip(path, f"after line {number}", reader_base.describe_read_error(error)), number)


class _LineSource:
    """The lines of a file as text, for the csv module. Of a long row only quotes and delimiters are passed on."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.number = 0
        self.first = 1
        self.fault = ""
        self.is_endless = False
        self._size = 0

    def begin_row(self) -> None:
        self.first, self.fault, self._size = self.number + 1, "", 0

    def __iter__(self) -> _LineSource:
        return self

    def __next__(self) -> str:
        pieces = []
        while piece := self._file.readline(_PIECE_BYTES):
            self._size += len(piece)
            if self._size > _MAX_SEARCH_BYTES:
                self.is_endless = True
                raise csv.Error
            pieces.append(piece if self._size <= MAX_ROW_BYTES else _NOT_STRUCTURE.sub(b"x", piece))
            if piece.endswith(b"\n"):
                break
        if not pieces:
            raise StopIteration
        self.number += 1
        raw = b"".join(pieces)
        if self.number == 1:
            raw = raw.removeprefix(_BOM)
        if self._size > MAX_ROW_BYTES:
            self.fault = f"longer than {MAX_ROW_BYTES // 2**20} MB: no note; look for a missing quote, or split it"
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            self.fault = self.fault or (
                f"not UTF-8 at byte {error.start + 1} of line {self.number}, so two encodings may be mixed; if it is "
                "Windows-1252 throughout: iconv -f WINDOWS-1252 -t UTF-8 FILE > NEW"
            )
            return raw.decode(errors="replace")
