"""Read PDF files: their text, page after page. One file, one document.

Text keeps PDFium's order. Line ends within a sentence become spaces. Running heads, feet and page numbers are left out.
A page without text is read by OCR if tesseract is installed. PDFium is not thread-safe: read in one thread at a time.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from epicrisis.corpus import ocr
from epicrisis.corpus.article_ids import find_article_ids
from epicrisis.corpus.reader_base import FileRemark, OmittedText, Skipped, read_limited, skip
from epicrisis.corpus.removal_log import RUNNING_LINE
from epicrisis.corpus.retraction_wording import find_banner
from epicrisis.corpus.running_heads import OUTER_LINES, OuterLine, find_running_lines
from epicrisis.corpus.wrapped_lines import is_continued, join_wrapped_lines
from epicrisis.types import Document

MAX_FILE_BYTES = 512 * 1024 * 1024
MAX_CHARACTERS = 50_000_000
"""Characters of a file's text: about thirty thousand pages."""
MAX_PAGES = 100_000
"""Pages of a file. A file of 1 kB can name a page a million times."""

_MAX_OCR_SIDE = 6_000
"""Pixels of the longer side of an image that is read by OCR."""
_PAGE_SEPARATOR = "\n\n"
"""As long as the two spaces between pages that share a sentence."""
# PDFium writes \x02 for a hyphen at a line's end, and omits the line end.
_DIVIDED_WORD = re.compile(r"(\w{0,64}+)\x02(\w{0,64}+)")
_WORD = re.compile(r"\w+")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]+")
_INFORMATION = ("doi", "DOI", "WPS-ARTICLEDOI", "Subject", "Keywords", "Title")
"""Keys of the document information in which publishers write the DOI."""


@dataclass(slots=True, frozen=True)
class _Pages:
    """The pages of a file: title, identifiers, and for each page the text and its outer lines."""

    title: str
    ids: dict[str, str]
    texts: list[str | None]
    """None for an unreadable page."""
    outer_lines: list[list[OuterLine]]
    by_ocr: list[int] = field(default_factory=list)
    """Numbers, from 1, of pages read by OCR."""


def read_document(
    path: Path, name: str, before_ocr: Callable[[], object] = lambda: None
) -> Iterator[Document | Skipped | OmittedText | FileRemark]:
    """Yield the only document, or why it was skipped: encrypted, broken, without text.

    `name` becomes the id (`file:<name>`) and the source. The title is the one in the file, else its stem. Pages are
    separated by a blank line, or by two spaces within a sentence. In the metadata, `pages` has the offset in characters
    of each page's start; `pages_without_text`, `pages_unreadable` and `pages_by_ocr` have page numbers, from 1, if
    there are such pages. `doi` and `pmid` are there if they are clear, see `article_ids`.

    A word divided at a line end is joined if the joined word occurs elsewhere in the file. Otherwise the hyphen stays,
    as in `IL-6`, and only the line end is removed. `before_ocr` is called before each page that is read by OCR.
    """
    try:
        data = read_limited(path, MAX_FILE_BYTES)
    except ValueError as error:
        yield skip(path, "", str(error))
        return
    for item in read_pdf(data, name, before_ocr):
        yield skip(path, "", item.reason) if isinstance(item, Skipped) else item


def read_pdf(
    data: bytes, name: str, before_ocr: Callable[[], object] = lambda: None
) -> Iterator[Document | Skipped | OmittedText | FileRemark]:
    """Yield the items of `read_document` for the content of a file."""
    try:
        pages = _read_pages(data, before_ocr)
        page_texts, running = _remove_running_lines(pages)
        texts = _clean_texts(page_texts)
        empty = [number for number, text in enumerate(page_texts, 1) if text is not None and not text.strip()]
        if not any(texts):
            raise ValueError(f"no text on any page, only pictures perhaps: {_describe_ocr()}")
    except ValueError as error:
        yield skip(Path(name), "", str(error))
        return
    starts = [0]
    for text in texts[:-1]:
        starts.append(starts[-1] + len(text) + len(_PAGE_SEPARATOR))
    metadata: dict[str, Any] = {"pages": starts, **pages.ids, **find_banner([text or "" for text in pages.texts])}
    unreadable = [number for number, page in enumerate(page_texts, 1) if page is None]
    for key, numbers in (
        ("pages_without_text", empty),
        ("pages_unreadable", unreadable),
        ("pages_by_ocr", pages.by_ocr),
    ):
        if numbers:
            metadata[key] = numbers
    id_ = f"file:{name}"
    yield Document(
        id=id_,
        text=_join_pages(texts, pages.title),
        title=pages.title or Path(name).stem,
        source=name,
        metadata=metadata,
    )
    if running:
        yield OmittedText(id_, RUNNING_LINE, tuple(line.text for line in running))
    if empty:
        yield FileRemark(name, "page", f"without text: {_describe_ocr()}", len(empty))
    if unreadable:
        yield FileRemark(name, "page", "could not be read: print the file to a new PDF file", len(unreadable))
    if pages.by_ocr:
        yield FileRemark(name, "page", "read by OCR, which makes mistakes: compare figures", len(pages.by_ocr))


def _describe_ocr() -> str:
    return "they hold no words for tesseract either" if ocr.list_languages() else ocr.INSTALL


def _remove_running_lines(pages: _Pages) -> tuple[list[str | None], list[OuterLine]]:
    """Return the texts of the pages without running lines, and these lines. Never removes everything."""
    running = find_running_lines(pages.outer_lines)
    indexes: dict[int, set[int]] = {}
    for line in running:
        indexes.setdefault(line.page, set()).add(line.index)
    texts = list(pages.texts)
    for number, removed in indexes.items():
        lines = _split_lines(texts[number - 1] or "")
        texts[number - 1] = "\n".join(line for index, line in enumerate(lines) if index not in removed)
    if not any((text or "").strip() for text in texts):
        return list(pages.texts), []
    return texts, running


def _split_lines(text: str) -> list[str]:
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def _clean_texts(pages: Sequence[str | None]) -> list[str]:
    """Return the text of each page without control characters and divided words."""
    words = {word.lower() for page in pages for word in _WORD.findall(page or "")}
    texts: list[str] = []
    for page in pages:
        text = _DIVIDED_WORD.sub(partial(_join_word, words), page or "").replace("\r\n", "\n").replace("\r", "\n")
        texts.append(_CONTROL.sub(" ", text).strip())
    return texts


def _join_pages(texts: Sequence[str], title: str) -> str:
    """Return the texts without line ends within sentences, separated by a blank line, or by two spaces in a sentence.

    No character moves to another offset.
    """
    joined = [join_wrapped_lines(text, title) for text in texts[:1]]
    for page, following in itertools.pairwise(texts):
        separator = "  " if is_continued(page, following) else _PAGE_SEPARATOR
        joined += [separator, join_wrapped_lines(following, title)]
    return "".join(joined)


def _join_word(words: Container[str], match: re.Match[str]) -> str:
    """Return a divided word, joined if that is certain."""
    joined = match[1] + match[2]
    return joined if match[1] and match[2] and joined.lower() in words else f"{match[1]}-{match[2]}"


def _read_pages(data: bytes, before_ocr: Callable[[], object]) -> _Pages:
    """Return the pages of a file. Raises ValueError with the reason."""
    import pypdfium2
    from pypdfium2.raw import FPDF_ERR_PASSWORD

    try:
        document = pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as error:
        if error.err_code == FPDF_ERR_PASSWORD:
            raise ValueError("encrypted; save a copy without a password") from error
        raise ValueError("not a PDF file, or broken; print it to a new PDF file") from error
    with closing(document):
        if len(document) > MAX_PAGES:
            raise ValueError(f"{len(document):,} pages, and the limit is {MAX_PAGES:,}; split it")
        information = [document.get_metadata_value(key) for key in _INFORMATION]
        title = " ".join(_CONTROL.sub(" ", document.get_metadata_value("Title")).split())
        pages = _Pages(title, {}, [], [])
        characters = 0
        for number in range(1, len(document) + 1):
            text: str | None = None
            lines: list[OuterLine] = []
            with suppress(pypdfium2.PdfiumError), closing(document[number - 1]) as sheet:
                text, lines = _read_sheet(sheet, number)
            pages.texts.append(text)
            pages.outer_lines.append(lines)
            characters += len(text or "")
            if characters > MAX_CHARACTERS:
                raise ValueError(f"more than {MAX_CHARACTERS:,} characters of text; split it")
        _read_by_ocr(document, pages, before_ocr)
    pages.ids.update(find_article_ids(pages.texts[0] or "" if pages.texts else "", information, data))
    return pages


def _read_sheet(sheet: Any, number: int) -> tuple[str, list[OuterLine]]:
    """Return the text of a page and its first and last lines with their heights. Raises PdfiumError."""
    height = sheet.get_height()
    with closing(sheet.get_textpage()) as page:
        text = str(page.get_text_bounded())
        all_text = str(page.get_text_range())
        lines = [(index, line) for index, line in enumerate(_split_lines(text)) if line.strip()]
        outer = lines if len(lines) <= 2 * OUTER_LINES else [*lines[:OUTER_LINES], *lines[-OUTER_LINES:]]
        outer_lines: list[OuterLine] = []
        # With characters beyond 16 bits the places of the text are not those of the page.
        if height > 0 and len(all_text) == page.count_chars():
            for index, line in outer:
                start = all_text.find(line) if (index, line) in lines[:OUTER_LINES] else all_text.rfind(line)
                if start >= 0:
                    top = page.get_charbox(start + len(line) - len(line.lstrip()), loose=True)[3]
                    outer_lines.append(OuterLine(number, index, line.strip(), min(1.0, max(0.0, 1 - top / height))))
    return text, outer_lines


def _read_by_ocr(document: Any, pages: _Pages, before_ocr: Callable[[], object]) -> None:
    """Read the pages without text by OCR if tesseract is installed. A page on which it fails stays without text."""
    page_texts, _ = _remove_running_lines(pages)
    numbers = [number for number, text in enumerate(page_texts, 1) if text is not None and not text.strip()]
    if not numbers or not ocr.list_languages():
        return
    for number in numbers:
        before_ocr()
        with suppress(ValueError), closing(document[number - 1]) as sheet:
            scale = min(ocr.DOTS_PER_INCH / 72, _MAX_OCR_SIDE / max(*sheet.get_size(), 1))
            with closing(sheet.render(scale=scale, may_draw_forms=False)) as bitmap:
                text = ocr.read_image(bitmap.to_pil())
            if text:
                pages.texts[number - 1] = text
                pages.outer_lines[number - 1] = []
                pages.by_ocr.append(number)
