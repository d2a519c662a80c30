"""What a row of a CSV file of notes looks like: tells a row that a quote left open has drawn into another row's text.

Reads no file.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from epicrisis.corpus.note_times import parse_note_time

_NUMBERS = frozenset(" \t0123456789.+-<>=")
"""What a cell of a table of findings may begin with."""


@dataclass(frozen=True, slots=True)
class CsvLayout:
    """How many columns a file has, what parts them, and where those stand that a row is known by."""

    columns: int
    delimiter: str
    patient: int
    text: int
    times: tuple[int, ...] = ()

    def row_within(self, cells: Sequence[str]) -> int | None:
        """The line, counted from the row's own first one as 0, that stands within a quoted cell of the row and has the
        form of a row itself; `None` where there is none.

        Such a line has the delimiters in front of the text and an id of the same form in the patient's place. Then
        either a time stands in its place, or, where no time can tell, all of the line is as in a row: tables of
        findings are parted by the same marks.
        """
        if len(cells) <= self.patient:
            return None
        mark = re.escape(self.delimiter)
        beginning = re.compile(rf"\n(?:[^{mark}\n]*{mark}){{{max(self.text, self.patient)}}}")
        before = 0
        for cell in cells:
            for match in beginning.finditer(cell):
                start = match.start() + 1
                end = cell.find("\n", start)
                line = cell[start : len(cell) if end < 0 else end].removesuffix("\r").split(self.delimiter)
                if self._is_row(line, cells, ends=end < 0):
                    return before + cell.count("\n", 0, start)
            before += cell.count("\n")
        return None

    def _is_row(self, line: Sequence[str], own: Sequence[str], ends: bool) -> bool:
        """`ends`: the quotes are closed behind the line, as by one that begins a text."""
        if not _alike(own[self.patient], line[self.patient]):
            return False
        written = [place for place in self.times if place <= max(self.text, self.patient) and line[place].strip()]
        if written:
            return all(_is_time(line[place], own[place] if place < len(own) else "") for place in written)
        return self._is_whole(line, ends) and all(
            _kind(cell) == _kind(line[place])
            for place, cell in enumerate(own[: len(line)])
            if place != self.text and cell.strip() and line[place].strip()
        )

    def _is_whole(self, line: Sequence[str], ends: bool) -> bool:
        """Whether the line has every cell, or ends where its text begins; and a text that begins as none of numbers."""
        text = line[self.text]
        if not text:
            return ends and len(line) == self.text + 1
        return len(line) == self.columns and text[0] not in _NUMBERS


def _alike(own: str, other: str) -> bool:
    """Whether both may be ids of one hospital: `P0012` and `P7`; of mixed digits and letters those of one length."""
    own, other = own.strip(), other.strip()
    if not own or not other:
        return False
    mixed = any(map(str.isdigit, other)) and _masked(own, r"[^\W_]") == _masked(other, r"[^\W_]")
    return mixed or _shape(own) == _shape(other)


def _shape(cell: str) -> str:
    return re.sub(r"\d+", "9", _masked(cell, r"[^\W\d_]+"))


def _masked(cell: str, what: str) -> str:
    return re.sub(what, "x", cell)


def _is_time(cell: str, own: str) -> bool:
    """A year alone, which any number of four digits is, counts only where the row's own time is one; a time that cannot
    be read where the row's own has its shape."""
    if read := parse_note_time(cell):
        return len(read[0]) > 4 or len(own.strip()) == 4
    return _shape(cell.strip()) == _shape(own.strip()) and abs(len(cell.strip()) - len(own.strip())) <= 2


def _kind(cell: str) -> tuple[bool, bool]:
    return cell[0].isspace(), any(map(str.isalpha, cell))
