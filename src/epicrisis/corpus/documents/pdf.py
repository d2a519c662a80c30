"""Read PDF files: their text, page after page. One file, one document.

Text keeps PDFium's order, apart from columns that are drawn row by row, see `pdf_layout`. Line ends within a sentence
become spaces. Running heads, feet, page numbers and line numbers are left out. A page without text, or whose fonts do
not say which letters they show, is read by OCR if tesseract is installed. PDFium is not thread-safe: read in one thread
at a time.
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

from epicrisis.core.printable import printable
from epicrisis.core.references import PAGE_LABELS
from epicrisis.core.types import Document
from epicrisis.corpus.base.article_ids import find_article_ids
from epicrisis.corpus.base.reader_base import FileRemark, OmittedText, Skipped, read_limited, skip
from epicrisis.corpus.base.removal_log import LINE_NUMBERS, RUNNING_LINE
from epicrisis.corpus.base.retraction_wording import find_banner
from epicrisis.corpus.documents import ocr
from epicrisis.corpus.documents.pdf_layout import LineNumber, has_line_numbers, read_layout
from epicrisis.corpus.documents.pdf_text import (
    OUTER_LINES,
    OuterLine,
    find_running_lines,
    is_continued,
    is_garbled,
    join_wrapped_lines,
)

MAX_FILE_BYTES = 512 * 1024 * 1024
MAX_CHARACTERS = 50_000_000
"""Characters of a file's text: about thirty thousand pages."""
MAX_PAGES = 100_000
"""Pages of a file. A file of 1 kB can name a page a million times."""

_MAX_OCR_SIDE = 6_000
"""Pixels of the longer side of an image that is read by OCR."""
_MAX_LABEL = 20
_PAGE_SEPARATOR = "\n\n"
"""As long as the two spaces between pages that share a sentence."""
# PDFium writes \x02 for a hyphen at a line's end, and omits the line end.
_UNMAPPED_HYPHEN = re.compile("\ufffe(?:\r?\n)?")
"""The same in files that browsers print: a sign that is no letter, and the line end."""
_DIVIDED_WORD = re.compile(r"(\w{0,64}+)\x02(\w{0,64}+)")
_WORD = re.compile(r"\w+")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]+")
_GARBLED = "its fonts do not say which letters they show"
_INFORMATION = ("doi", "DOI", "WPS-ARTICLEDOI", "Subject", "Keywords", "Title")
"""Keys of the document information in which publishers write the DOI."""


@dataclass(slots=True, frozen=True, kw_only=True)
class _Pages:
    """The pages of a file: title, identifiers, and for each page the text and its outer lines."""

    title: str
    ids: dict[str, Any]
    """With `page_labels`, if the pages have printed numbers."""
    texts: list[str | None]
    """None for an unreadable page."""
    outer_lines: list[list[OuterLine]]
    by_ocr: list[int] = field(default_factory=list)
    """Numbers, from 1, of pages read by OCR."""
    garbled: list[int] = field(default_factory=list)
    """Numbers of pages whose fonts do not say which letters they show, and that OCR did not read."""
    doubtful: list[int] = field(default_factory=list)
    """Numbers of pages whose columns may have been read across."""
    line_numbers: list[str] = field(default_factory=list)
    """The line numbers that were left out, page after page."""


def read_document(
    path: Path, name: str, before_ocr: Callable[[], object] = lambda: None
) -> Iterator[Document | Skipped | OmittedText | FileRemark]:
    """Yield the only document, or why it was skipped: encrypted, broken, without text.

    `name` becomes the id (`file:<name>`) and the source. The title is the one in the file, else its stem. Pages are
    separated by a blank line, or by two spaces within a sentence. In the metadata, `pages` has the offset in characters
    of each page's start; `pages_without_text`, `pages_unreadable` and `pages_by_ocr` have page numbers, from 1, if
    there are such pages. `doi` and `pmid` are there if they are clear, see `article_ids`. `page_labels` has
    the numbers printed on the pages, such as `703` or `xii`, if the file says so.

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
            reason = _GARBLED if pages.garbled else "no text on any page, only pictures perhaps"
            raise ValueError(f"{reason}: {_describe_ocr()}")
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
    if pages.line_numbers:
        yield OmittedText(id_, LINE_NUMBERS, tuple(pages.line_numbers))
    yield from _list_remarks(name, pages, empty, unreadable)


def _list_remarks(name: str, pages: _Pages, empty: Sequence[int], unreadable: Sequence[int]) -> Iterator[FileRemark]:
    """Yield what was not read of a file, and what is doubtful."""
    broken = [number for number in unreadable if number not in pages.garbled]
    for text, numbers in (
        ("may have columns that were read across: compare quotations with the page", pages.doubtful),
        (f"not read, {_GARBLED}: {_describe_ocr()}", pages.garbled),
        (f"without text: {_describe_ocr()}", empty),
        ("could not be read: print the file to a new PDF file", broken),
        ("read by OCR, which makes mistakes: compare figures", pages.by_ocr),
    ):
        if numbers:
            yield FileRemark(name, "page", text, len(numbers))


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
        text = _UNMAPPED_HYPHEN.sub("\x02", page or "")
        text = _DIVIDED_WORD.sub(partial(_join_word, words), text).replace("\r\n", "\n").replace("\r", "\n")
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
        pages = _Pages(title=title if is_title(title) else "", ids={}, texts=[], outer_lines=[])
        sheets: list[_Sheet | None] = []
        characters = 0
        for number in range(1, len(document) + 1):
            sheet: _Sheet | None = None
            with suppress(pypdfium2.PdfiumError), closing(document[number - 1]) as page:
                sheet = _read_sheet(page, number)
            sheets.append(sheet)
            characters += len(sheet.text) if sheet else 0
            if characters > MAX_CHARACTERS:
                raise ValueError(f"more than {MAX_CHARACTERS:,} characters of text; split it")
        _collect_sheets(sheets, pages)
        labels = [printable(document.get_page_label(index)).strip()[:_MAX_LABEL] for index in range(len(document))]
        if any(label not in ("", str(number)) for number, label in enumerate(labels, 1)):
            pages.ids[PAGE_LABELS] = labels
        _read_by_ocr(document, pages, before_ocr)
    pages.ids.update(find_article_ids(pages.texts[0] or "" if pages.texts else "", information, data))
    return pages


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sheet:
    """The text of a page and its outer lines, and both without its possible line numbers."""

    text: str
    lines: list[OuterLine]
    rows: int = 0
    numbers: tuple[LineNumber, ...] = ()
    unnumbered_text: str = ""
    unnumbered_lines: list[OuterLine] = field(default_factory=list)
    is_garbled: bool = False
    has_doubtful_order: bool = False


def _collect_sheets(sheets: Sequence[_Sheet | None], pages: _Pages) -> None:
    """Add the texts of the pages, without line numbers if the file has them. A garbled page has an empty text."""
    is_numbered = has_line_numbers([(sheet.rows, sheet.numbers) for sheet in sheets if sheet])
    for number, sheet in enumerate(sheets, 1):
        if sheet is None or sheet.is_garbled:
            pages.texts.append(None if sheet is None else "")
            pages.outer_lines.append([])
            if sheet:
                pages.garbled.append(number)
            continue
        if is_numbered and sheet.numbers:
            pages.texts.append(sheet.unnumbered_text)
            pages.outer_lines.append(sheet.unnumbered_lines)
            pages.line_numbers.append(" ".join(str(one.value) for one in sheet.numbers))
        else:
            pages.texts.append(sheet.text)
            pages.outer_lines.append(sheet.lines)
        if sheet.has_doubtful_order:
            pages.doubtful.append(number)


def _read_sheet(sheet: Any, number: int) -> _Sheet:
    """Return the text of a page. Raises PdfiumError."""
    height = sheet.get_height()
    with closing(sheet.get_textpage()) as page:
        text = str(page.get_text_bounded())
        layout = read_layout(page, sheet.get_bbox())
        if is_garbled(text, layout.unmapped):
            return _Sheet(text=text, lines=[], is_garbled=True)
        if layout.is_changed:
            text, places = layout.write()
        else:
            places = _find_places(page, text)
        unnumbered, unnumbered_places = layout.write(with_numbers=False) if layout.numbers else ("", [])
        return _Sheet(
            text=text,
            lines=_list_outer_lines(page, text, places, number, height),
            rows=len(layout.rows),
            numbers=layout.numbers,
            unnumbered_text=unnumbered,
            unnumbered_lines=_list_outer_lines(page, unnumbered, unnumbered_places, number, height),
            has_doubtful_order=layout.has_doubtful_order,
        )


def _find_places(page: Any, text: str) -> list[int]:
    """Return the number of the first character of each line, -1 if unknown. Only outer lines are looked up."""
    all_text = str(page.get_text_range())
    lines = _split_lines(text)
    places = [-1] * len(lines)
    # With characters beyond 16 bits the places of the text are not those of the page.
    if len(all_text) != page.count_chars():
        return places
    outer = _list_outer_indexes(lines)
    for index in outer:
        line = lines[index]
        start = all_text.find(line) if index in outer[:OUTER_LINES] else all_text.rfind(line)
        places[index] = start + len(line) - len(line.lstrip()) if start >= 0 else -1
    return places


def _list_outer_indexes(lines: Sequence[str]) -> list[int]:
    """Return the places of the first and last lines with text."""
    filled = [index for index, line in enumerate(lines) if line.strip()]
    return filled if len(filled) <= 2 * OUTER_LINES else [*filled[:OUTER_LINES], *filled[-OUTER_LINES:]]


def _list_outer_lines(page: Any, text: str, places: Sequence[int], number: int, height: float) -> list[OuterLine]:
    """Return the outer lines of a page's text with their heights. `places` are the numbers of their characters."""
    lines = _split_lines(text)
    outer_lines: list[OuterLine] = []
    for index in _list_outer_indexes(lines) if height > 0 else ():
        if places[index] >= 0:
            top = page.get_charbox(places[index], loose=True)[3]
            share = min(1.0, max(0.0, 1 - top / height))
            outer_lines.append(OuterLine(number, index, lines[index].strip(), share))
    return outer_lines


def _read_by_ocr(document: Any, pages: _Pages, before_ocr: Callable[[], object]) -> None:
    """Read the pages without text by OCR if tesseract is installed. A page on which it fails stays without text.

    A garbled page on which it fails becomes None.
    """
    page_texts, _ = _remove_running_lines(pages)
    numbers = [number for number, text in enumerate(page_texts, 1) if text is not None and not text.strip()]
    for number in numbers if ocr.list_languages() else ():
        before_ocr()
        with suppress(ValueError), closing(document[number - 1]) as sheet:
            scale = min(ocr.DOTS_PER_INCH / 72, _MAX_OCR_SIDE / max(*sheet.get_size(), 1))
            with closing(sheet.render(scale=scale, may_draw_forms=False)) as bitmap:
                text = ocr.read_image(bitmap.to_pil())
            if text:
                pages.texts[number - 1] = text
                pages.outer_lines[number - 1] = []
                pages.by_ocr.append(number)
    pages.garbled[:] = [number for number in pages.garbled if number not in pages.by_ocr]
    for number in pages.garbled:
        pages.texts[number - 1] = None


_PROGRAM = re.compile(
    r"(?:microsoft (?:word|powerpoint|excel|office)|openoffice|libreoffice)(?: ?[-–]|$)"
    r"|(?:powerpoint presentation|word document|full page photo)$"
    r"|(?:acrobat|adobe) (?:pdf ?maker|distiller|indesign|illustrator|photoshop|acrobat|pdf library)\b"
    r"|(?:quarkxpress|pscript5|ghostscript|pdf(?:la)?tex|arbortext)\b"
    r"|(?:paper|manuscript|article|submission) (?:id|no|number)\b\W"
    r"|(?:untitled|unbenannt|sans titre|sin título|no title|title|titel|document|dokument|manuscript|article|main|"
    r"main document|layout|slide|folie|page|template|paper|draft|print|scan(?:ned)?(?: document)?|unknown|unspecified|"
    r"anonymous|none|null|doc|text|full ?text|pdf|output|final|new document|blank)[ _-]{0,3}\d{0,6}\.?$",
    re.IGNORECASE,
)
_FILE = re.compile(
    r"\.(?:docx?|odt|rtf|pdf|tex|dvi|e?ps|indd|qxd|qxp|xlsx?|pptx?|html?|xml|txt|fm|wpd|pages|cdr|ai|tiff?|jpe?g|png|p65|"
    r"3d|job|pgs)\b(?:[\s)\]]|$)",
    re.IGNORECASE,
)
_IDENTIFIER = re.compile(
    r"(?:(?:https?://)?(?:dx\.)?doi(?:\.org/|:)? ?|https?://)?10\.\d{4,9}/\S+$|doi\b|https?://|www\."
    r"|pii[: ]|S?\d{4}-?\d{3}[\dX]\(\d\d\)|arXiv:|PMC\d|ISSN|ISBN",
    re.IGNORECASE,
)
_PAGE_RANGE = re.compile(r"\d{1,5} ?\.\.\.? ?\d{0,5}$")
_LETTER = re.compile(r"[^\W\d_]")


def is_title(text: str) -> bool:
    """Return whether a text can be a title: no file name, identifier, page range, single code or word of a program."""
    text = text.strip().strip("\"'<>()[]")
    if _PROGRAM.match(text) or _FILE.search(text) or _IDENTIFIER.match(text) or _PAGE_RANGE.search(text):
        return False
    letters = len(_LETTER.findall(text))
    if letters < 3 or 2 * letters < len(text):
        return False
    # One word with figures or underscores is a code: `BMJ_n71_proof`, `12874_2020_1234`.
    return " " in text or not re.search(r"[\d_]", text)
