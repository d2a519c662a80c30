"""Read the lines of a PDF page by the places of their characters: raised numbers, columns and line numbers.

    layout = read_layout(text_page)
    layout.text  # "Mortality fell by 12 [3] percent. Platelets were 150 x 10^9/L."

PDFium's order and line ends are kept, apart from what the places show: a raised number is set apart, pieces of one line
are joined, and columns that the file draws row by row are read one after the other. The whole file decides on line
numbers: see `has_line_numbers`.
"""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

MAX_CHARACTERS = 60_000
"""Characters of a page whose places are read: a dense page of a journal has eight thousand."""
MAX_ROWS = 2_000
"""Rows of a page whose columns and line numbers are looked for."""
HYPHEN = "\x02"
"""What PDFium writes for a hyphen at a line's end, in the place of the line end."""

_RAISED = 0.15
"""The least height of a raised number above its line, as a share of the line's size."""
_SMALLER = 0.9
"""The largest size of a raised number, as a share of the line's size."""
_RAISED_NUMBER = re.compile(r"[+\-−–]?\d{1,3}(?:[,;–\-−] ?\d{1,3}){0,9}")
_POWER = re.compile(
    r"(?:(?<![\d.,])10\^\d+|(?<![^\W\d_])[kcmµμnd]?m\^[23]|(?<![^\W\d_])(?:[Rr]|I|χ|Chi|chi)\^2|\^[+\-−–]\d+)$"
)
"""A number raised behind ten, a unit or the letter of a statistic, or a negative one. Others are citations."""
_MAX_JOINED_GAP = 1.2
"""The widest gap between pieces of one line, in sizes of its font."""
_WORD_GAP = 0.15
_WIDE_GAP = 0.8
"""The narrowest gap between columns, in sizes of the font."""
_JUMP = 0.3
"""The least difference of height between lines, in sizes of the font."""
_TOLERANCE = 2.5
"""Points by which the edge of a column varies."""
MIN_ROWS = 3
_MIN_CELL = 20
"""Characters of the usual line of a column. Cells of tables are shorter."""
_MIN_CONTINUED = 0.4
"""The least share of a column's lines that continue the sentence of the line before: rows of tables do not."""
_MAY_CONTINUE = 0.25
_MAX_DIGITS = 0.2
_MIN_NUMBERS, _MIN_FIFTHS = 8, 4
_MIN_REGULAR, _MIN_COVERED = 0.7, 0.6
_MIN_NUMBERED_PAGES = 0.5
_SAMPLE = 300


class Glyph(NamedTuple):
    """A character on a page."""

    place: int
    """Its number in PDFium's text."""
    character: str
    left: float
    right: float
    y: float
    """The height of its baseline in points."""
    size: float
    """Of the font, in points."""


@dataclass(frozen=True, slots=True)
class LineNumber:
    """A number beside a line of the text that may count the lines."""

    value: int
    glyphs: tuple[int, ...]
    """Their numbers in PDFium's text."""
    left: float
    right: float
    y: float


@dataclass(frozen=True, slots=True)
class PageLayout:
    """The rows of a page in their reading order, and what is doubtful about it."""

    rows: tuple[tuple[Glyph, ...], ...] = ()
    """A row that ends with `HYPHEN` goes on in the next one."""
    numbers: tuple[LineNumber, ...] = ()
    """Possible line numbers of this page, in their order; empty without a regular sequence."""
    is_changed: bool = False
    """Whether the text is another than PDFium's."""
    unmapped: float = 0.0
    """The share of characters whose font does not say which letters they are."""
    has_doubtful_order: bool = False
    """Whether the page may have columns that were read across."""

    def write(self, *, with_numbers: bool = True) -> tuple[str, list[int]]:
        """Return the text with or without line numbers, and for each line the number of its first character."""
        hidden = frozenset() if with_numbers else {index for number in self.numbers for index in number.glyphs}
        lines: list[str] = []
        firsts: list[int] = []
        for row in self.rows:
            visible = _strip(glyph for glyph in row if glyph.place not in hidden)
            if visible and lines and lines[-1].endswith(HYPHEN):
                end = next((at for at, glyph in enumerate(visible) if glyph.character == " "), len(visible))
                lines[-1] += _write_row(visible[:end])
                visible = _strip(visible[end:])
            if visible:
                lines.append(_write_row(visible))
                # A numbered line is no running head.
                firsts.append(visible[0].place if len(visible) == len(_strip(row)) else -1)
        return "\n".join(lines), firsts

    def list_glyphs(self) -> Iterator[int]:
        """Yield the numbers of the characters in reading order, without possible line numbers."""
        hidden = {index for number in self.numbers for index in number.glyphs}
        for row in self.rows:
            for glyph in row:
                if glyph.place not in hidden:
                    yield glyph.place


def read_layout(page: Any, box: tuple[float, float, float, float]) -> PageLayout:
    """Return the layout of a text page of PDFium within a box: left, bottom, right and top in points."""
    glyphs = _read_glyphs(page, box)
    rows = _join_pieces(_split_rows(glyphs))
    if len(rows) > MAX_ROWS:
        return PageLayout(tuple(rows), unmapped=_share_unmapped(page, glyphs))
    numbers = _find_numbers(rows)
    ordered = _Columns()
    hidden = {index for number in numbers for index in number.glyphs}
    ordered.add([tuple(glyph for glyph in row if glyph.place not in hidden) for row in rows])
    is_changed = ordered.is_changed or any(_find_raised(row) for row in rows)
    if ordered.is_changed:
        kept = {glyph.place: row for row in rows for glyph in row if glyph.place in hidden}
        # Line numbers that the file does not confirm stay before the columns.
        rest = [tuple(glyph for glyph in row if glyph.place in hidden) for row in kept.values()]
        rows = [*dict.fromkeys(rest), *ordered.rows]
    unmapped = _share_unmapped(page, glyphs)
    return PageLayout(tuple(rows), tuple(numbers), is_changed, unmapped, ordered.is_doubtful)


def has_line_numbers(pages: Sequence[tuple[int, Sequence[LineNumber]]]) -> bool:
    """Return whether a file has line numbers. `pages` are the rows and the possible line numbers of each page.

    Half of the pages with enough rows must have them. In a file of one such page they must begin the count.
    """
    long = [numbers for rows, numbers in pages if rows >= _MIN_NUMBERS]
    numbered = [numbers for numbers in long if numbers]
    if len(long) == 1 and numbered:
        return numbered[0][0].value in (1, 5)
    return bool(numbered) and len(numbered) >= _MIN_NUMBERED_PAGES * len(long)


def _read_glyphs(page: Any, limits: tuple[float, float, float, float]) -> list[Glyph]:
    """Return the characters of a page within the limits. The second half of a character in two halves is empty.

    Right edges are those of the page before white space, and estimated within words, where nothing depends on them.
    """
    import ctypes

    from pypdfium2 import raw

    handle = page.raw
    x, y, box = ctypes.c_double(), ctypes.c_double(), raw.FS_RECTF()
    glyphs: list[Glyph] = []
    for place, character in enumerate(_list_characters(page)):
        raw.FPDFText_GetCharOrigin(handle, place, x, y)
        left, height = x.value, round(y.value, 1)
        if not (limits[0] <= left <= limits[2] and limits[1] <= height <= limits[3]):
            continue
        if character.isspace():
            if glyphs and not glyphs[-1].character.isspace():
                raw.FPDFText_GetLooseCharBox(handle, glyphs[-1].place, box)
                glyphs[-1] = glyphs[-1]._replace(right=max(box.right, glyphs[-1].left))
            glyphs.append(Glyph(place, character, left, left, height, 1.0))
        else:
            size = round(abs(raw.FPDFText_GetFontSize(handle, place)), 1)
            glyphs.append(Glyph(place, character, left, left + 0.5 * size, height, size))
    return glyphs


def _list_characters(page: Any) -> list[str]:
    """Return the characters of a page by their numbers."""
    from pypdfium2.raw import FPDFText_GetUnicode

    count = page.count_chars()
    text = page.get_text_range()
    if len(text) == count:
        return list(text[:MAX_CHARACTERS])
    characters: list[str] = []
    high = 0
    for place in range(min(count, MAX_CHARACTERS)):
        code = FPDFText_GetUnicode(page.raw, place)
        if 0xD800 <= code < 0xDC00:
            high = code
            characters.append("")
        elif 0xDC00 <= code < 0xE000:
            characters.append(chr(0x10000 + ((high - 0xD800) << 10) + (code - 0xDC00)) if high else "")
            high = 0
        else:
            characters.append(chr(code))
    return characters


def _share_unmapped(page: Any, glyphs: Sequence[Glyph]) -> float:
    """Return the share of characters without a letter in their font, of the first ones of a page."""
    from pypdfium2.raw import FPDFText_HasUnicodeMapError

    inked = [glyph for glyph in glyphs if glyph.character.strip()][:_SAMPLE]
    unmapped = [glyph for glyph in inked if FPDFText_HasUnicodeMapError(page.raw, glyph.place) == 1]
    return len(unmapped) / max(1, len(inked))


def _split_rows(glyphs: Sequence[Glyph]) -> list[tuple[Glyph, ...]]:
    """Return the characters between line ends. A hyphen at a line's end, or a jump to another line, ends a row, too."""
    rows: list[tuple[Glyph, ...]] = []
    row: list[Glyph] = []
    last: Glyph | None = None
    for glyph in glyphs:
        if glyph.character.strip():
            if last and row and _is_jump(last, glyph):
                rows.append(tuple(row))
                row = []
            last = glyph
        if glyph.character not in ("\r", "\n"):
            row.append(glyph)
        if glyph.character in ("\r", "\n", HYPHEN):
            if row:
                rows.append(tuple(row))
            row = []
    return [*rows, tuple(row)] if row else rows


def _is_jump(last: Glyph, glyph: Glyph) -> bool:
    """Return whether a character is in another line than the last one: to the left, beyond a wide gap, or one digit
    below another."""
    size = max(last.size, glyph.size)
    gap = glyph.left - last.right
    if last.character.isdigit() and glyph.character.isdigit() and abs(glyph.y - last.y) > _WIDE_GAP * size:
        return True
    return abs(glyph.y - last.y) > _JUMP * size and (gap < -2 * size or gap > _WIDE_GAP * size)


@dataclass(frozen=True, slots=True)
class _Line:
    """Where the usual characters of a row stand."""

    y: float
    size: float


def _strip(row: Iterable[Glyph]) -> list[Glyph]:
    """Return a row without white space at its ends."""
    glyphs = list(row)
    inked = [at for at, glyph in enumerate(glyphs) if glyph.character.strip()]
    return glyphs[inked[0] : inked[-1] + 1] if inked else []


def _measure(row: Sequence[Glyph]) -> _Line | None:
    """Return the baseline and the size of most characters of a row."""
    places = [(glyph.size, glyph.y) for glyph in row if glyph.character and not glyph.character.isspace()]
    if not places:
        return None
    size, y = places[0]
    if len(set(places)) > 1:
        size = Counter(size for size, _ in places).most_common(1)[0][0]
        y = Counter(y for one, y in places if one == size).most_common(1)[0][0]
    return _Line(y, max(size, 0.1))


def _join_pieces(rows: Sequence[tuple[Glyph, ...]]) -> list[tuple[Glyph, ...]]:
    """Join rows that are pieces of one line: PDFium ends a line after a raised number."""
    joined: list[tuple[Glyph, ...]] = []
    for row in rows:
        if joined and (gap := _find_gap(joined[-1], row)) is not None:
            last = joined[-1][-1]
            space = (last._replace(character=" "),) if gap and last.character != " " else ()
            joined[-1] = (*joined[-1], *space, *row)
        else:
            joined.append(row)
    return joined


def _find_gap(row: Sequence[Glyph], following: Sequence[Glyph]) -> bool | None:
    """Return whether a space belongs between two pieces of one line, or None if the second is another line."""
    line, other = _measure(row), _measure(following)
    if line is None or other is None or row[-1].character == HYPHEN:
        return None
    last = next(glyph for glyph in reversed(row) if glyph.character.strip())
    first = next(glyph for glyph in following if glyph.character.strip())
    is_raised = last.y - line.y > _RAISED * line.size or first.y - line.y > _RAISED * line.size
    size = max(line.size, other.size)
    gap = first.left - last.right
    if not is_raised or abs(line.y - other.y) > 0.6 * size or not -0.2 * size <= gap <= _MAX_JOINED_GAP * size:
        return None
    return gap > _WORD_GAP * size


def _find_raised(row: Sequence[Glyph]) -> list[tuple[int, int]]:
    """Return the places, from and to, of raised numbers in a row behind a letter, a digit or a sign."""
    line = _measure(row)
    if line is None or max(glyph.y for glyph in row) - line.y <= _RAISED * line.size:
        return []
    places: list[tuple[int, int]] = []
    start = None
    for place, glyph in enumerate((*row, None)):
        is_raised = (
            glyph is not None
            and glyph.character.strip() != ""
            and glyph.y - line.y > _RAISED * line.size
            and glyph.size < _SMALLER * line.size
        )
        if is_raised and start is None:
            start = place
        if not is_raised and start is not None:
            number = "".join(one.character for one in row[start:place])
            before = row[start - 1].character if start else " "
            after = row[place].character if glyph is not None else " "
            # A number before a letter, as in 18F-FDG, and a charge, as in Ca2+, are part of the word.
            is_part = before in "([" or (after.isalpha() and not before.isalnum())
            if before.strip() and not is_part and _RAISED_NUMBER.fullmatch(number):
                places.append((start, place))
            start = None
    return places


def _write_row(row: Sequence[Glyph]) -> str:
    """Return the text of a row: a raised number as `^9` behind ten or a unit, else as a citation, `[3]`."""
    text = ""
    last = 0
    for start, end in _find_raised(row):
        text += "".join(glyph.character for glyph in row[last:start])
        number = "".join(glyph.character for glyph in row[start:end])
        is_power = _POWER.search(f"{text[-8:]}^{number}")
        text += f"^{number}" if is_power else f" [{number}]"
        last = end
        # PDFium adds a space where there is one.
        if [glyph.character for glyph in row[end : end + 2]] == [" ", " "]:
            last += 1
    return text + "".join(glyph.character for glyph in row[last:])


@dataclass(slots=True)
class _Columns:
    """Puts the rows of a page into the order of its columns."""

    rows: list[tuple[Glyph, ...]] = field(default_factory=list)
    is_changed: bool = False
    is_doubtful: bool = False
    tried: dict[int, int] = field(default_factory=dict)
    """By edge in whole points, the row up to which it was tried."""

    def add(self, rows: Sequence[tuple[Glyph, ...]]) -> None:
        """Add rows. Where columns are drawn row by row, the left one comes first."""
        place = 0
        self.tried = {}
        while place < len(rows):
            end, sides = self._find_region(rows, place)
            if sides is None:
                self.rows.append(rows[place])
                place += 1
                continue
            self.is_changed = True
            self.rows += [_with_hyphen(row) for row in sides[0]]
            self.add(sides[1])
            self.tried = {}
            place = end

    def _find_region(self, rows: Sequence[tuple[Glyph, ...]], start: int) -> tuple[int, _Sides | None]:
        """Return the end of the region that begins here, and its two columns; None without columns."""
        for edge in _list_edges(rows, start):
            # The rows below, up to there, were tried with this edge.
            if start < self.tried.get(round(edge), 0):
                continue
            end, sides = _divide(rows, start, edge)
            self.tried[round(edge)] = end
            if sides is None:
                continue
            shares = [_share_continued(side) for side in sides]
            if min(shares) >= _MIN_CONTINUED:
                return end, sides
            self.is_doubtful = self.is_doubtful or (min(shares) >= 0 and max(shares) >= _MAY_CONTINUE)
        return start, None


_Sides = tuple[list[tuple[Glyph, ...]], list[tuple[Glyph, ...]]]


def _list_edges(rows: Sequence[tuple[Glyph, ...]], start: int) -> list[float]:
    """Return the left edges of possible second columns: behind a wide gap in this row, or of the next row beside it."""
    row = rows[start]
    edges = [right.left for left, right in _list_wide_gaps(row)]
    if start + 1 < len(rows) and (line := _measure(row)) and (other := _measure(rows[start + 1])):
        first, last = _find_first(rows[start + 1]), _find_last(row)
        if abs(line.y - other.y) < line.size and first.left - last.right > _WIDE_GAP * line.size:
            edges.append(first.left)
    return edges


def _list_wide_gaps(row: Sequence[Glyph]) -> list[tuple[Glyph, Glyph]]:
    inked = [glyph for glyph in row if glyph.character.strip()]
    return [(one, two) for one, two in pairwise(inked) if two.left - one.right > _WIDE_GAP * max(one.size, two.size)]


def _find_first(row: Sequence[Glyph]) -> Glyph:
    return next(glyph for glyph in row if glyph.character.strip())


def _find_last(row: Sequence[Glyph]) -> Glyph:
    return next(glyph for glyph in reversed(row) if glyph.character.strip())


def _divide(rows: Sequence[tuple[Glyph, ...]], start: int, edge: float) -> tuple[int, _Sides | None]:
    """Return the end of the rows that an edge divides, and both sides if they are drawn in turn row by row."""
    sides: _Sides = ([], [])
    turns, end, last_side = 0, start, 1
    for place in range(start, len(rows)):
        row = rows[place]
        if _measure(row) is None:
            continue
        cut = next(
            (at for at, glyph in enumerate(row) if glyph.character.strip() and glyph.left >= edge - _TOLERANCE), None
        )
        left = row if cut is None else row[:cut]
        right = () if cut is None else row[cut:]
        inked = [glyph for glyph in left if glyph.character.strip()]
        if inked and max(glyph.right for glyph in inked) > edge - _WIDE_GAP * max(glyph.size for glyph in inked) * 0.5:
            break
        if any(glyph.left < edge - _TOLERANCE for glyph in right if glyph.character.strip()):
            break
        # A wide distance downwards ends the columns, and a jump upwards begins another pair.
        for side, part in enumerate((tuple(inked and left), right)):
            if not part:
                continue
            turns += last_side == 1 and side == 0
            last_side = side
            sides[side].append(part)
        end = place + 1
    return end, sides if turns >= MIN_ROWS and min(len(side) for side in sides) >= MIN_ROWS - 1 else None


def _share_continued(rows: Sequence[tuple[Glyph, ...]]) -> float:
    """Return the share of the lines that continue a sentence; -1 for short lines and figures, as in tables."""
    texts = [text for row in rows if (text := "".join(glyph.character for glyph in row).strip())]
    letters = "".join(texts)
    digits = sum(sign.isdigit() for sign in letters)
    if statistics.median(len(text) for text in texts) < _MIN_CELL or digits > _MAX_DIGITS * len(letters):
        return -1.0
    continued = sum(text[0].islower() or before[-1] in f"-{HYPHEN}" for before, text in pairwise(texts))
    return continued / max(1, len(texts) - 1)


def _with_hyphen(row: tuple[Glyph, ...]) -> tuple[Glyph, ...]:
    """Return a row of a column with the sign for a hyphen at a line's end."""
    last = max((place for place, glyph in enumerate(row) if glyph.character.strip()), default=0)
    if last and row[last].character == "-" and row[last - 1].character.isalpha():
        return (*row[:last], row[last]._replace(character=HYPHEN))
    return row


def _find_numbers(rows: Sequence[tuple[Glyph, ...]]) -> list[LineNumber]:
    """Return the numbers on the left or right of the lines that count them; empty if they are not regular."""
    for is_left in (True, False):
        numbers = [number for row in rows if (number := _read_number(row, is_left)) is not None]
        groups: dict[tuple[str, int], list[LineNumber]] = {}
        for number in numbers:
            for name, edge in (("left", number.left), ("right", number.right)):
                # Edges on both sides of a limit are in two groups.
                for key in {round(edge / _TOLERANCE), round(edge / _TOLERANCE - 0.5)}:
                    groups.setdefault((name, key), []).append(number)
        for group in sorted(groups.values(), key=len, reverse=True):
            group.sort(key=lambda number: -number.y)
            if _is_counting(group, rows):
                return group
    return []


def _read_number(row: Sequence[Glyph], is_left: bool) -> LineNumber | None:
    """Return the number at one end of a row, if a wide gap parts it from the text."""
    inked = [glyph for glyph in row if glyph.character.strip()]
    ordered = inked if is_left else inked[::-1]
    digits: list[Glyph] = []
    for place, glyph in enumerate(ordered):
        if not (glyph.character.isascii() and glyph.character.isdigit()):
            break
        if place:
            one, two = sorted((ordered[place - 1], glyph), key=lambda glyph: glyph.left)
            if two.left - one.right > 0.5 * glyph.size:
                break
        digits.append(glyph)
    if not 1 <= len(digits) <= 4:
        return None
    if len(digits) < len(ordered):
        one, two = sorted((digits[-1], ordered[len(digits)]), key=lambda glyph: glyph.left)
        if two.left - one.right < 0.5 * digits[0].size:
            return None
    digits.sort(key=lambda glyph: glyph.left)
    value = int("".join(glyph.character for glyph in digits))
    return LineNumber(value, tuple(glyph.place for glyph in digits), digits[0].left, digits[-1].right, digits[0].y)


def _is_counting(numbers: Sequence[LineNumber], rows: Sequence[tuple[Glyph, ...]]) -> bool:
    """Return whether numbers from the top of a page to its foot rise with the lines and count most of them."""
    heights = sorted((line.y for row in rows if (line := _measure(row))), reverse=True)
    lines = [height for place, height in enumerate(heights) if not place or heights[place - 1] - height > _TOLERANCE]
    steps = [two.value - one.value for one, two in pairwise(numbers)]
    least = min(_MIN_FIFTHS, len(lines) // 5) if steps and max(steps) > 1 else _MIN_NUMBERS
    # A short page, such as the last one, needs two.
    if not steps or (len(numbers) < least and len(rows) >= 2 * _MIN_NUMBERS):
        return False
    places = [min(range(len(lines)), key=lambda place: abs(lines[place] - number.y)) for number in numbers]
    regular = sum(0 < step == two - one for step, (one, two) in zip(steps, pairwise(places), strict=True))
    covered = numbers[-1].value - numbers[0].value + min(steps)
    return regular >= _MIN_REGULAR * len(steps) and covered >= _MIN_COVERED * len(lines)
