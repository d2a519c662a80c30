"""PDF files: the text that stands in them, page after page. One file, one document.

Pictures of pages hold no text; they have to be recognised (OCR) before. Text is kept in the order and with the line
ends that PDFium finds, running heads and page numbers included: telling them from the text is a guess. Only one thing
is mended: a word divided at a line end. PDFium is not thread-safe: read in one thread at a time.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from epicrisis.corpus.reader_base import Skipped, os_error_reason, printable_path
from epicrisis.types import Document

if TYPE_CHECKING:
    from pypdfium2 import PdfDocument

LARGEST = 512 * 1024 * 1024
"""Bytes of a file."""
LONGEST = 50_000_000
"""Characters of a file's text: some thirty thousand pages."""
MOST_PAGES = 100_000
"""Pages of a file. A file of 1 kB can name a page a million times."""

_BETWEEN = "\n\n"
# What PDFium puts for a hyphen at a line's end, whose line end it then leaves out.
_DIVIDED = re.compile(r"(\w{0,64}+)\x02(\w{0,64}+)")
_WORD = re.compile(r"\w+")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]+")


def read_document(path: Path, name: str) -> Iterator[Document | Skipped]:
    """The one document, or why it was left out: encrypted, broken, without text.

    `name` is as for text files: it makes the id (`file:<name>`) and the source. The title is the one the file names,
    else its stem. Pages are parted by a blank line; in the metadata `pages` holds the offset at which each begins, and
    `pages_without_text` and `pages_unreadable` the numbers, from 1, of those that are lost, where there are any.

    A word divided at a line end is joined where the undivided word stands elsewhere in the file; else the hyphen stays,
    as in `IL-6`, and only the line end is gone.
    """
    try:
        if path.stat().st_size > LARGEST:
            raise ValueError(f"larger than {LARGEST // 2**20} MB; split it")
        title, pages = _pages(path.read_bytes())
        texts = _joined([page or "" for page in pages])
        if not any(texts):
            raise ValueError(f"no text on any of its {len(texts)} pages, only pictures perhaps: OCR it first")
    except OSError as error:
        yield Skipped(printable_path(path), "", f"{os_error_reason(error)}; check the file and its permissions")
        return
    except ValueError as error:
        yield Skipped(printable_path(path), "", str(error))
        return
    starts = list(accumulate((len(text) + len(_BETWEEN) for text in texts[:-1]), initial=0))
    lost = {
        "pages_without_text": [n for n, text in enumerate(pages, 1) if text is not None and not text.strip()],
        "pages_unreadable": [n for n, text in enumerate(pages, 1) if text is None],
    }
    yield Document(
        id=f"file:{name}",
        text=_BETWEEN.join(texts),
        title=title or path.stem,
        source=name,
        metadata={"pages": starts, **{key: numbers for key, numbers in lost.items() if numbers}},
    )


def find_page(pages: Sequence[int], offset: int) -> int:
    """The number, from 1, of the page on which the character at `offset` stands; `pages` as in the metadata."""
    return max(bisect_right(pages, offset), 1)


def _pages(data: bytes) -> tuple[str, list[str | None]]:
    """The title, and the text of each page, `None` for one that cannot be read. Raises ValueError with the reason."""
    import pypdfium2
    from pypdfium2.raw import FPDF_ERR_PASSWORD

    try:
        document = pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as error:
        if error.err_code == FPDF_ERR_PASSWORD:
            raise ValueError("encrypted; save a copy without a password") from error
        raise ValueError("not a PDF file, or broken; print it to a new PDF file") from error
    try:
        if len(document) > MOST_PAGES:
            raise ValueError(f"{len(document):,} pages, and the limit is {MOST_PAGES:,}; split it")
        title = " ".join(_CONTROL.sub(" ", document.get_metadata_value("Title")).split())
        pages: list[str | None] = []
        left = LONGEST
        for number in range(len(document)):
            pages.append(page := _page(document, number))
            left -= len(page or "")
            if left < 0:
                raise ValueError(f"more than {LONGEST:,} characters of text; split it")
    finally:
        document.close()
    return title, pages


def _page(document: PdfDocument, number: int) -> str | None:
    import pypdfium2

    try:
        page = document[number]
        try:
            text = page.get_textpage()
            try:
                return str(text.get_text_bounded())
            finally:
                text.close()
        finally:
            page.close()
    except pypdfium2.PdfiumError:
        return None


def _joined(pages: Sequence[str]) -> list[str]:
    """The pages' texts with plain line ends, and divided words made whole where that is certain."""
    words = {word.lower() for page in pages for word in _WORD.findall(page)}

    def mend(match: re.Match[str]) -> str:
        whole = match[1] + match[2]
        return whole if match[1] and match[2] and whole.lower() in words else f"{match[1]}-{match[2]}"

    mended = (_DIVIDED.sub(mend, page) for page in pages)
    return [_CONTROL.sub(" ", page.replace("\r\n", "\n").replace("\r", "\n")).strip() for page in mended]
