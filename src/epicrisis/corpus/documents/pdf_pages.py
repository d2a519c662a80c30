"""Find words on pages of a PDF file, and render a page as an image. Runs in the child process of `sandbox`.

    (page,) = find_words(path, sha256, [PageWords(3, "Aspirin lowered the risk.")])
    [(box.left, box.top, box.width, box.height) for box in page.boxes]

The text of a library differs from that of its file in white space, line ends and hyphens. So words are compared by
their letters and digits alone. A file is used only if it has the hash of the one that was read.
"""

from __future__ import annotations

import hashlib
import io
import math
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from epicrisis.corpus.base.reader_base import read_limited
from epicrisis.corpus.documents.pdf_layout import read_layout

MAX_FILE_BYTES = 256 * 1024 * 1024
MAX_PIXELS = 3_000_000
"""Pixels of an image: a page of A4 at 144 dots per inch has two million."""
MAX_SIDE = 4_000
"""Pixels of the longer side of an image."""
SCALE = 2.0
"""Pixels per point (1/72 inch) of a page of usual size."""
MAX_BOXES = 2_000

_DEVICE = 100
"""Device units per point for the positions of boxes, which PDFium gives as whole numbers."""
_MIN_OVERLAP = 0.5
"""The least share of the height of the lower box that two boxes of one line share."""

_Rectangle = tuple[float, float, float, float]
"""Left, bottom, right and top in points. The origin is the lower left corner of the page."""


@dataclass(frozen=True, slots=True)
class PageWords:
    """Words to find on a page."""

    page: int
    """From 1."""
    words: str
    letters_before: int = 0
    """Letters and digits before them on the page. Of several places, the nearest to this one is chosen."""


@dataclass(frozen=True, slots=True)
class PageBox:
    """A box around words on one line, as shares of the page's width and height from its upper left corner."""

    left: float
    top: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class PageBoxes:
    """A page and the boxes around the words on it."""

    page: int
    """From 1."""
    width: float
    """In points, as the page is displayed."""
    height: float
    boxes: tuple[PageBox, ...]
    """Empty if the words are not on the page."""


def fold_letters(text: str) -> str:
    """Return the letters and digits of a text without the difference of case, ligatures written as letters."""
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKC", text).casefold()))


def find_words(path: Path, sha256: str, places: Sequence[PageWords]) -> tuple[PageBoxes, ...]:
    """Return the boxes around the words of each place. Raises ValueError with the reason if the file cannot be used."""
    pages: list[PageBoxes] = []
    with _open(path, sha256) as document:
        for place in places:
            with _load(document, place.page) as page:
                width, height = page.get_size()
                pages.append(PageBoxes(place.page, width, height, tuple(_find_boxes(page, place))))
    return tuple(pages)


def render_page(path: Path, sha256: str, number: int) -> bytes:
    """Return a page as PNG, at most `MAX_PIXELS` large. Raises ValueError with the reason."""
    from PIL import ImageChops

    with _open(path, sha256) as document, _load(document, number) as page:
        width, height = page.get_size()
        scale = min(SCALE, math.sqrt(MAX_PIXELS / (width * height)), MAX_SIDE / max(width, height))
        with closing(page.render(scale=scale, may_draw_forms=False)) as bitmap:
            image = bitmap.to_pil().convert("RGB")
    red, green, blue = image.split()
    # Most pages have no colour. Without it the file is less than half as large.
    if not (ImageChops.difference(red, green).getbbox() or ImageChops.difference(red, blue).getbbox()):
        image = red
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


@contextmanager
def _open(path: Path, sha256: str) -> Iterator[Any]:
    """Open the file. Raises ValueError if it is gone, changed, or no PDF file. The bytes that are checked are used."""
    import pypdfium2

    if not path.is_file():
        raise ValueError("its file is not where it was when it was added; put it back, or add it from its new place")
    data = read_limited(path, MAX_FILE_BYTES)
    if hashlib.sha256(data).hexdigest() != sha256:
        raise ValueError("its file has changed since it was added; add the changed file")
    try:
        document = pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as error:
        raise ValueError("its file is not a PDF file that can be opened") from error
    with closing(document):
        yield document


@contextmanager
def _load(document: Any, number: int) -> Iterator[Any]:
    """Load a page. Raises ValueError if it does not exist, is broken or has no area."""
    import pypdfium2

    if not 1 <= number <= len(document):
        raise ValueError(f"its file has no page {number}")
    try:
        page = document[number - 1]
    except pypdfium2.PdfiumError as error:
        raise ValueError(f"page {number} of its file cannot be read") from error
    with closing(page):
        if not all(math.isfinite(side) and side > 0 for side in page.get_size()):
            raise ValueError(f"page {number} of its file has no area")
        yield page


def _find_boxes(page: Any, place: PageWords) -> list[PageBox]:
    """Return the boxes around the words on the page, none if they are not there."""
    if not fold_letters(place.words):
        return []
    with closing(page.get_textpage()) as text:
        characters = _read_characters(text)
        indexes = _find_characters(characters, range(len(characters)), place)
        if not indexes:
            # Columns were put in order, or line numbers left out.
            indexes = _find_characters(characters, list(read_layout(text, page.get_bbox()).list_glyphs()), place)
        lines = _join_lines([_read_box(text, index) for index in indexes if characters[index].strip()])
    return [_place_box(page, line) for line in lines[:MAX_BOXES]]


def _find_characters(characters: Sequence[str], order: Sequence[int], place: PageWords) -> Sequence[int]:
    """Return the indexes of the characters of the words, where the page is read in this order; empty without them."""
    target = fold_letters(place.words)
    ordered = [characters[index] for index in order]
    letters, places = _fold_characters(ordered)
    start = _find_nearest(letters, target, place.letters_before)
    if start is None:
        return []
    first, last = places[start], places[start + len(target) - 1]
    before, after = _split_signs(place.words)
    first -= _count_equal(ordered[:first][::-1], before[::-1])
    last += _count_equal(ordered[last + 1 :], after)
    return order[first : last + 1]


def _read_characters(text: Any) -> list[str]:
    """Return the characters of a page by index. The second half of a character in two halves is empty."""
    from pypdfium2.raw import FPDFText_GetUnicode

    codes = [FPDFText_GetUnicode(text, index) for index in range(text.count_chars())]
    characters = list(map(chr, codes))
    for index, (high, low) in enumerate(pairwise(codes)):
        if 0xD800 <= high < 0xDC00 <= low < 0xE000:
            characters[index] = chr(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))
            characters[index + 1] = ""
    return characters


def _fold_characters(characters: Sequence[str]) -> tuple[str, list[int]]:
    """Return the letters and digits of a page, and for each the index of its character."""
    letters: list[str] = []
    indexes: list[int] = []
    for index, character in enumerate(characters):
        folded = fold_letters(character)
        letters.append(folded)
        indexes += [index] * len(folded)
    return "".join(letters), indexes


def _find_nearest(letters: str, target: str, expected: int) -> int | None:
    """Return the place of the target letters nearest to the expected one, or None if they are absent."""
    best: int | None = None
    start = letters.find(target)
    while start >= 0:
        if best is None or abs(start - expected) < abs(best - expected):
            best = start
        start = letters.find(target, start + 1)
    return best


def _split_signs(words: str) -> tuple[str, str]:
    """Return the signs before the first letter of the words, and those after the last, such as `(` and `%).`."""
    signs = [not fold_letters(character) for character in words.strip()]
    return words.strip()[: signs.index(False)], words.strip()[len(signs) - signs[::-1].index(False) :]


def _count_equal(characters: Sequence[str], signs: str) -> int:
    """Return how many characters at the beginning of a sequence are these signs, white space aside."""
    target = [sign for sign in signs if not sign.isspace()]
    count = 0
    for index, character in enumerate(characters):
        if not target or not (character == target[0] or character.isspace()):
            break
        if character == target[0]:
            del target[0]
            count = index + 1
    return count


def _read_box(text: Any, index: int) -> _Rectangle:
    """Return the box of a character with the height of its font."""
    left, bottom, right, top = text.get_charbox(index, loose=True)
    return left, bottom, right, top


def _join_lines(boxes: Sequence[_Rectangle]) -> list[_Rectangle]:
    """Return one box for each piece of a line."""
    lines: list[_Rectangle] = []
    for box in boxes:
        if lines and _is_beside(lines[-1], box):
            last = lines[-1]
            lines[-1] = (min(last[0], box[0]), min(last[1], box[1]), max(last[2], box[2]), max(last[3], box[3]))
        else:
            lines.append(box)
    return lines


def _is_beside(line: _Rectangle, box: _Rectangle) -> bool:
    """Return whether a character continues a line: at the same height, and no farther away than a wide space."""
    height = min(line[3] - line[1], box[3] - box[1])
    overlap = min(line[3], box[3]) - max(line[1], box[1])
    gap = max(box[0] - line[2], line[0] - box[2])
    return overlap >= _MIN_OVERLAP * height and gap <= max(line[3] - line[1], box[3] - box[1])


def _place_box(page: Any, box: _Rectangle) -> PageBox:
    """Return a box as shares of the displayed page, which may be rotated or cropped."""
    first, second = _place_point(page, box[0], box[3]), _place_point(page, box[2], box[1])
    left, right = sorted((first[0], second[0]))
    top, bottom = sorted((first[1], second[1]))
    return PageBox(left, top, right - left, bottom - top)


def _place_point(page: Any, x: float, y: float) -> tuple[float, float]:
    """Return a point of the page as shares of its displayed width and height."""
    import ctypes

    from pypdfium2.raw import FPDF_PageToDevice

    width, height = page.get_size()
    columns, rows = max(1, round(width * _DEVICE)), max(1, round(height * _DEVICE))
    across, down = ctypes.c_int(), ctypes.c_int()
    FPDF_PageToDevice(page, 0, 0, columns, rows, 0, x, y, across, down)
    return _clamp(across.value / columns), _clamp(down.value / rows)


def _clamp(share: float) -> float:
    return min(1.0, max(0.0, share))
