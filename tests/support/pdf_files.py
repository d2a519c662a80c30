"""PDF files with real text at known places: one and two columns, divided words, several pages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pypdfium2

from epicrisis.core.types import Document
from epicrisis.corpus.base.reader_base import FileDocument, Skipped
from epicrisis.corpus.documents.pdf_pages import PageBox, PageBoxes
from epicrisis.corpus.readers.sources import read_sources
from tests.support.pages import Page

Line = tuple[float, float, str]
"""Left edge and base line in points, and the text. A text in `^{3}` is small and raised."""
WIDTH, HEIGHT = 612, 792
_SIZE, _LEADING = 10, 13
_COLUMN_LINES = 48


def placed_pdf(
    pages: Sequence[Sequence[Line]], *, title: str = "", page_entries: bytes = b"", catalog_entries: bytes = b""
) -> bytes:
    """Return a PDF with these lines. `catalog_entries` are further entries of the file, such as `/PageLabels`, and
    `page_entries` are further entries of each page, such as `/Rotate 90`."""
    font = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>"
    objects = [b"<< /Type /Catalog /Pages 2 0 R %s >>" % catalog_entries, b"", font]
    kids: list[bytes] = []
    for lines in pages:
        shown = [b"1 0 0 1 %.2f %.2f Tm %s" % (x, y, _draw(text)) for x, y, text in lines]
        body = b"BT /F1 %d Tf %s ET" % (_SIZE, b" ".join(shown))
        objects.append(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(body), body))
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 %d %d] /Resources << /Font << /F1 3 0 R >> >> "
            b"/Contents %d 0 R %s >>" % (WIDTH, HEIGHT, len(objects), page_entries)
        )
        kids.append(b"%d 0 R" % len(objects))
    objects[1] = b"<< /Type /Pages /Kids [%s] /Count %d >>" % (b" ".join(kids), len(kids))
    objects.append(b"<< /Title (%s) >>" % _escape(title))
    return _join_objects(objects)


def _draw(text: str) -> bytes:
    """Return the operators that draw a text."""
    pieces: list[bytes] = []
    for number, piece in enumerate(re.split(r"\^\{([^}]+)\}", text)):
        drawn = b"(%s) Tj" % _escape(piece)
        pieces.append(b"/F1 6 Tf 4 Ts %s 0 Ts /F1 %d Tf" % (drawn, _SIZE) if number % 2 else drawn)
    return b" ".join(pieces)


def column(words: str, left: float, top: float, characters: int) -> list[Line]:
    """Return the words as lines of at most so many characters, one below the other. A word may end in a soft hyphen."""
    lines: list[str] = []
    line = ""
    for word in words.split():
        if line and len(line) + 1 + len(word) > characters:
            lines.append(line)
            line = ""
        line = f"{line} {word}".strip()
        if "\xad" in line:
            # Divided here: the rest of the word begins the next line.
            first, _, line = line.rpartition("\xad")
            lines.append(f"{first}-")
    return [(left, top - _LEADING * number, text) for number, text in enumerate([*lines, line])]


def two_columns(words: str, heading: str) -> list[list[Line]]:
    """Return the words as pages of two columns, each with a running head and a page number."""
    lines = [text for _, _, text in column(words, 0, 0, 44)]
    pages: list[list[Line]] = []
    for first in range(0, len(lines), 2 * _COLUMN_LINES):
        page: list[Line] = [(60, 750, heading)]
        for side, left in enumerate((60, 320)):
            begin = first + side * _COLUMN_LINES
            for number, text in enumerate(lines[begin : begin + _COLUMN_LINES]):
                page.append((left, 715 - _LEADING * number, text))
        pages.append([*page, (300, 30, str(len(pages) + 1))])
    return pages


def read_marked_characters(path: Path, pages: Sequence[PageBoxes]) -> str:
    """Return the characters whose middle is in a box, without white space, from PDFium's boxes of single characters.

    The pages must not be rotated or cropped.
    """
    marked: list[str] = []
    with closing(pypdfium2.PdfDocument(path)) as document:
        for page in pages:
            text = document[page.page - 1].get_textpage()
            marked += [text.get_text_range(i, 1) for i in range(text.count_chars()) if _is_marked(text, i, page)]
    return re.sub("[\x02\ufffe]", "-", "".join("".join(marked).split()))


def read_boxed_text(path: Path, page: PageBoxes) -> list[str]:
    """Return the text that PDFium finds in each box of a page."""
    texts: list[str] = []
    with closing(pypdfium2.PdfDocument(path)) as document:
        text = document[page.page - 1].get_textpage()
        for box in page.boxes:
            left, right = box.left * page.width, (box.left + box.width) * page.width
            top, bottom = (1 - box.top) * page.height, (1 - box.top - box.height) * page.height
            # Fonts overlap the lines above and below by a little.
            texts.append(
                text.get_text_bounded(left + 0.2, bottom + 3, right - 0.2, top - 3).strip().replace("\x02", "-")
            )
    return texts


def _is_marked(text: Any, index: int, page: PageBoxes) -> bool:
    left, bottom, right, top = text.get_charbox(index)
    x, y = (left + right) / 2 / page.width, 1 - (bottom + top) / 2 / page.height
    inside = [box for box in page.boxes if _is_within(x, box.left, box.width) and _is_within(y, box.top, box.height)]
    return any(islice(inside, 1))


def _is_within(value: float, start: float, length: float) -> bool:
    return start <= value <= start + length


def _escape(text: str) -> bytes:
    return text.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)").encode("cp1252", "replace")


def _join_objects(objects: Sequence[bytes]) -> bytes:
    out = b"%PDF-1.4\n"
    offsets: list[int] = []
    for number, body in enumerate(objects, 1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    size = len(objects) + 1
    trailer = b"trailer << /Size %d /Root 1 0 R /Info %d 0 R >>" % (size, len(objects))
    head = b"xref\n0 %d\n0000000000 65535 f \n" % size
    return out + head + table + trailer + b"\nstartxref\n%d\n%%%%EOF\n" % len(out)


def read_boxes(page: Page) -> list[PageBoxes]:
    """Return the boxes on each sheet that a page of the server shows."""
    sheets: list[PageBoxes] = []
    for element in page.elements:
        if element.name == "img":
            attributes = element.attributes
            number = int(attributes["src"].rpartition("/")[2].removesuffix(".png"))
            sheets.append(PageBoxes(number, float(attributes["width"]), float(attributes["height"]), ()))
        elif "place" in element.classes:
            shares = [float(element.attributes[name].removesuffix("%")) / 100 for name in ("x", "y", "width", "height")]
            sheets[-1] = replace(sheets[-1], boxes=(*sheets[-1].boxes, PageBox(*shares)))
    return sheets


def read_files(folder: Path) -> list[FileDocument | Document]:
    """Return the documents of all files in a folder, as an import reads them. Raises AssertionError for a bad file."""
    documents: list[FileDocument | Document] = []
    for item in read_sources([folder], with_origins=True):
        assert not isinstance(item, Skipped), item
        if isinstance(item, FileDocument | Document):
            documents.append(item)
    return documents
