"""Read PDF files: their text, page after page. One file, one document.

Text keeps PDFium's order and line ends, including running heads and page numbers, because separating them from the text
would be a guess. PDFium is not thread-safe: read in one thread at a time.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

from epicrisis.corpus.reader_base import Skipped, read_limited, skip
from epicrisis.types import Document

MAX_FILE_BYTES = 512 * 1024 * 1024
MAX_CHARACTERS = 50_000_000
"""Characters of a file's text: about thirty thousand pages."""
MAX_PAGES = 100_000
"""Pages of a file. A file of 1 kB can name a page a million times."""

_PAGE_SEPARATOR = "\n\n"
# PDFium writes \x02 for a hyphen at a line's end, and omits the line end.
_DIVIDED_WORD = re.compile(r"(\w{0,64}+)\x02(\w{0,64}+)")
_WORD = re.compile(r"\w+")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]+")


def read_document(path: Path, name: str) -> Iterator[Document | Skipped]:
    """Yield the only document, or why it was skipped: encrypted, broken, without text.

    `name` becomes the id (`file:<name>`) and the source. The title is the one in the file, else its stem. Pages are
    separated by a blank line. In the metadata, `pages` has the offset in characters of each page's start;
    `pages_without_text` and `pages_unreadable` have page numbers, from 1, if there are such pages.

    A word divided at a line end is joined if the joined word occurs elsewhere in the file. Otherwise the hyphen stays,
    as in `IL-6`, and only the line end is removed.
    """
    try:
        title, pages = _read_pages(read_limited(path, MAX_FILE_BYTES))
        words = {word.lower() for page in pages for word in _WORD.findall(page or "")}
        texts = []
        for page in pages:
            text = _DIVIDED_WORD.sub(partial(_join_word, words), page or "").replace("\r\n", "\n").replace("\r", "\n")
            texts.append(_CONTROL.sub(" ", text).strip())
        if not any(texts):
            raise ValueError(f"no text on any of its {len(texts)} pages, only pictures perhaps: OCR it first")
    except ValueError as error:
        yield skip(path, "", str(error))
        return
    starts = [0]
    for text in texts[:-1]:
        starts.append(starts[-1] + len(text) + len(_PAGE_SEPARATOR))
    metadata = {"pages": starts}
    if empty := [number for number, page in enumerate(pages, 1) if page is not None and not page.strip()]:
        metadata["pages_without_text"] = empty
    if unreadable := [number for number, page in enumerate(pages, 1) if page is None]:
        metadata["pages_unreadable"] = unreadable
    text = _PAGE_SEPARATOR.join(texts)
    yield Document(id=f"file:{name}", text=text, title=title or Path(name).stem, source=name, metadata=metadata)


def _join_word(words: Container[str], match: re.Match[str]) -> str:
    """Return a divided word, joined if that is certain."""
    joined = match[1] + match[2]
    return joined if match[1] and match[2] and joined.lower() in words else f"{match[1]}-{match[2]}"


def _read_pages(data: bytes) -> tuple[str, list[str | None]]:
    """Return the title, and the text of each page, None for an unreadable page. Raises ValueError with the reason."""
    import pypdfium2
    from pypdfium2.raw import FPDF_ERR_PASSWORD

    try:
        document = pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as error:
        if error.err_code == FPDF_ERR_PASSWORD:
            raise ValueError("encrypted; save a copy without a password") from error
        raise ValueError("not a PDF file, or broken; print it to a new PDF file") from error
    try:
        if len(document) > MAX_PAGES:
            raise ValueError(f"{len(document):,} pages, and the limit is {MAX_PAGES:,}; split it")
        title = " ".join(_CONTROL.sub(" ", document.get_metadata_value("Title")).split())
        pages: list[str | None] = []
        characters = 0
        for index in range(len(document)):
            page: str | None = None
            with (
                suppress(pypdfium2.PdfiumError),
                closing(document[index]) as sheet,
                closing(sheet.get_textpage()) as text,
            ):
                page = str(text.get_text_bounded())
            pages.append(page)
            characters += len(page or "")
            if characters > MAX_CHARACTERS:
                raise ValueError(f"more than {MAX_CHARACTERS:,} characters of text; split it")
    finally:
        document.close()
    return title, pages
