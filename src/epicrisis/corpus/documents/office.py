"""Read Word, PowerPoint, OpenDocument and RTF files with the extra `office`, and spreadsheets without it.

Paragraphs, items of lists and rows of tables are lines. Headings, slides and sheets are sections. Footnotes follow at
the end. Headers and footers, comments, deleted text and hidden text are left out. Macros and links are never followed.
"""

from __future__ import annotations

import datetime
import io
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby, repeat, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from epicrisis.core.types import Document
from epicrisis.corpus.base.reader_base import FileRemark, OmittedText, Skipped, read_head, read_limited, skip
from epicrisis.corpus.base.reference_lists import HEADING, remove_reference_lists
from epicrisis.corpus.base.removal_log import REFERENCE_LIST
from epicrisis.corpus.base.sectioned_text import SectionedText
from epicrisis.corpus.documents.office_markup import MAX_UNPACKED_BYTES, prepare_office_file

if TYPE_CHECKING:
    from anydoc import Block, Inline, List, Note, Table

MAX_FILE_BYTES = 128 * 1024 * 1024
MAX_REPEATED = 256
"""Equal cells of a row, or equal rows, that are written one by one."""
_INSTALL = 'needs the extra `office`: pip install "epicrisis[office]"'
_SLIDE_FORMATS = frozenset({"pptx", "odp"})


def is_newer_format(path: Path) -> bool:
    """Return whether a file called `.doc` or `.ppt` is RTF or a format with markup after all. Raises OSError."""
    return read_head(path).data.startswith((b"{\\rtf", b"PK\x03\x04"))


def read_document(path: Path, name: str) -> Iterator[Document | Skipped | FileRemark | OmittedText]:
    """Yield the only document of a text or of slides, or why it was skipped. `name` becomes the id (`file:<name>`).

    The title is the first heading, else the file's stem. A reference to a note is `[note 1]`, the note a line at the
    end. A struck-out word is `[struck out: word]`. In the metadata, `sections` is as in JATS files. Lists of references
    are left out.
    """
    try:
        data = read_limited(path, MAX_FILE_BYTES)
    except ValueError as error:
        yield skip(path, "", str(error))
        return
    for item in read_office(data, name):
        if isinstance(item, Document):
            yield from _leave_out_references(item)
        else:
            yield skip(path, "", item.reason) if isinstance(item, Skipped) else item


def _leave_out_references(document: Document) -> Iterator[Document | OmittedText]:
    """Yield a document without its lists of references, and these. Sections keep their places."""
    sections: list[tuple[int, int, str]] = document.metadata.get("sections", [])
    text = plain = document.text
    starts: dict[int, int] = {}
    for start, _, title in sections:
        # Below other headings, the line is `Zinc for colds / References`.
        last = title.rpartition(" / ")[2]
        if HEADING.fullmatch(last):
            place = start + len(title) - len(last)
            plain = plain[:start] + "\n" * (place - start) + plain[place:]
            starts[place] = start
    _, lists = remove_reference_lists(plain)
    # From the end, so that the places before a list stay.
    for entries in reversed(lists):
        place = plain.rindex(entries)
        start, end = starts.get(place, place), place + len(entries)
        text, plain = text[:start] + text[end:], plain[:place]
        cut = partial(_cut_place, start, end)
        sections = [(cut(first), cut(last), title) for first, last, title in sections if cut(first) < cut(last)]
    text = text.rstrip("\n")
    metadata = dict(document.metadata)
    if sections:
        metadata["sections"] = [[first, min(last, len(text)), title] for first, last, title in sections]
    yield replace(document, text=text, metadata=metadata) if lists else document
    if lists:
        yield OmittedText(document.id, REFERENCE_LIST, tuple(lists))


def _cut_place(start: int, end: int, place: int) -> int:
    """Return where a place of a text is without a part of it."""
    return min(place, start) if place < end else place - (end - start)


def read_office(data: bytes, name: str) -> Iterator[Document | Skipped | FileRemark]:
    """Yield the items of `read_document` for the content of a file; the ending of `name` is its format."""
    format = Path(name).suffix.lower().removeprefix(".")
    try:
        text, title, hidden = _convert(data, format)
    except ValueError as error:
        yield skip(Path(name), "", str(error))
        return
    if not text.lines:
        yield skip(Path(name), "", "holds no text, only pictures perhaps; save it as PDF and OCR it")
        return
    yield _make_document(name, title, text)
    if hidden:
        yield FileRemark(name, "piece", "of hidden text left out; show it in its program to have it read", hidden)


def read_spreadsheet(path: Path, name: str) -> Iterator[Document | Skipped]:
    """Yield the only document of a spreadsheet, or why it was skipped: its sheets as sections, each row a line.

    Cells are separated by ` | `; columns without text are left out. Hidden sheets, rows and columns are read. Formulas
    are read as their last result.
    """
    from python_calamine import CalamineError, PasswordError

    try:
        text = _read_sheets(read_limited(path, MAX_FILE_BYTES))
    except PasswordError:
        yield skip(path, "", "encrypted; save a copy without a password")
    except (CalamineError, OSError):
        yield skip(path, "", "not a spreadsheet that can be read, or broken; save it again as .xlsx")
    except ValueError as error:
        yield skip(path, "", str(error))
    else:
        yield _make_document(name, "", text) if text.lines else skip(path, "", "holds no text; leave it out")


def _read_sheets(data: bytes) -> SectionedText:
    """Return the rows of all sheets. Raises ValueError with the reason, and the errors of python-calamine."""
    from python_calamine import CalamineWorkbook, SheetTypeEnum

    _check_unpacked_size(data)
    if _is_excel_package(data):
        data, _ = prepare_office_file(data, "xlsx")
    text = SectionedText()
    with CalamineWorkbook.from_filelike(io.BytesIO(data)) as workbook:
        for sheet in workbook.sheets_metadata:
            if sheet.typ == SheetTypeEnum.WorkSheet:
                for line in _format_rows(workbook.get_sheet_by_name(sheet.name).to_python()):
                    text.add_text((sheet.name,), line)
    return text


def _format_rows(rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """Yield the lines of a sheet, without columns that have no text.

    A file of 1 kB can repeat a cell or a row a million times: more than `MAX_REPEATED` equal neighbours are counted.
    """
    cells = [[_format_cell(value) for value in row] for row in rows]
    columns = [column for column, values in enumerate(zip_longest(*cells, fillvalue="")) if any(values)]
    lines = []
    for row in cells:
        texts = _shorten_runs(row[column] if column < len(row) else "" for column in columns)
        lines.append(" | ".join(texts).rstrip(" |"))
    yield from _shorten_runs(lines)


def _shorten_runs(texts: Iterable[str]) -> Iterator[str]:
    for text, group in groupby(texts):
        count = sum(1 for _ in group)
        if count <= MAX_REPEATED:
            yield from repeat(text, count)
        elif text:
            yield f"{text} ({count:,} times)"


def _is_excel_package(data: bytes) -> bool:
    return data.startswith(b"PK") and b"xl/sharedStrings.xml" in data


def _check_unpacked_size(data: bytes) -> None:
    """Raise ValueError for a ZIP file that unpacks to too much."""
    if zipfile.is_zipfile(io.BytesIO(data)):
        with zipfile.ZipFile(io.BytesIO(data)) as file:
            if sum(entry.file_size for entry in file.infolist()) > MAX_UNPACKED_BYTES:
                raise ValueError(f"it unpacks to more than {MAX_UNPACKED_BYTES // 2**20} MB; split it")


def _format_cell(value: Any) -> str:
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    if isinstance(value, datetime.datetime) and value.time() == datetime.time():
        value = value.date()
    return " ".join(str(value).split())


def _make_document(name: str, title: str, text: SectionedText) -> Document:
    metadata = {"sections": text.sections} if text.sections else {}
    return Document(
        id=f"file:{name}", text="\n".join(text.lines), title=title or Path(name).stem, source=name, metadata=metadata
    )


def _convert(data: bytes, format: str) -> tuple[SectionedText, str, int]:
    """Return the text, its first heading and the pieces of hidden text. Raises ValueError with the reason."""
    try:
        import anydoc
    except ImportError as error:
        raise ValueError(_INSTALL) from error
    # An encrypted .docx is no ZIP file, so the library is asked first.
    actual = anydoc.format_from_bytes(data)
    if actual in _FORMATS:
        format = actual
    try:
        prepared, hidden = prepare_office_file(data, format) if actual in _FORMATS else (data, 0)
        document = anydoc.to_document(prepared, format)  # type: ignore[arg-type]
    except anydoc.EncryptedError as error:
        raise ValueError("encrypted; save a copy without a password") from error
    except anydoc.ResourceLimitError as error:
        raise ValueError("exceeds the limits of its parser on size or nesting; split it") from error
    except anydoc.ConvertError as error:
        raise ValueError("broken, or not the kind of file that its name says; save it again") from error
    writer = _Writer(is_slides=format in _SLIDE_FORMATS)
    writer.write_blocks(document.blocks)
    writer.flush_heading()
    writer.write_notes(document.notes)
    return writer.text, writer.title, hidden


_FORMATS = frozenset({"docx", "pptx", "odt", "odp", "rtf"})


class _Writer:
    """Writes blocks as lines below the path of their headings."""

    def __init__(self, is_slides: bool) -> None:
        self.text = SectionedText()
        self.title = ""
        self._is_slides = is_slides
        self._path: list[tuple[int, str]] = []
        self._numbers: dict[str, int] = {}
        self._has_unwritten_heading = False

    def write_blocks(self, blocks: Sequence[Block]) -> None:
        for block in blocks:
            if block.kind == "heading":
                self._begin_section(block.level or 1, _inline_text(block.content or [], self._numbers))
                continue
            prefix = "Speaker notes: " if self._is_slides and block.kind == "block_quote" else ""
            for line in _block_lines([block], self._numbers):
                self.text.add_text(self._titles(), prefix + line)
                self._has_unwritten_heading = False

    def write_notes(self, notes: Sequence[Note]) -> None:
        """Write the footnotes and endnotes."""
        for note in notes:
            number = self._numbers.setdefault(note.id, len(self._numbers) + 1)
            content = " ".join(_block_lines(note.blocks, self._numbers))
            self.text.add_text(("Notes",), f"note {number}: {content}" if content else "")

    def flush_heading(self) -> None:
        """Write the last heading if nothing followed it."""
        if self._has_unwritten_heading:
            self.text.begin_section(self._titles())
            self._has_unwritten_heading = False

    def _begin_section(self, level: int, title: str) -> None:
        if not title:
            return
        if self._path and level <= self._path[-1][0]:
            self.flush_heading()
        self._path = [entry for entry in self._path if entry[0] < level]
        self._path.append((level, title))
        self._has_unwritten_heading = True
        self.title = self.title or title

    def _titles(self) -> tuple[str, ...]:
        return tuple(title for _, title in self._path)


def _block_lines(blocks: Sequence[Block], notes: dict[str, int], indent: str = "") -> Iterator[str]:
    """Yield the lines of blocks: a paragraph, an item of a list or a row of a table each."""
    for block in blocks:
        # The package's stub has a field called `list`, which hides the type of this one.
        inner: Any = block.blocks
        if block.content is not None:
            for line in _inline_text(block.content, notes).split("\n"):
                if line.strip():
                    yield indent + line.strip()
        elif block.list is not None:
            yield from _list_lines(block.list, notes, indent)
        elif block.table is not None:
            yield from _table_lines(block.table, notes)
        elif inner is not None:
            yield from _block_lines(inner, notes, indent)
        elif block.text:
            yield from filter(str.strip, block.text.split("\n"))


def _list_lines(items: List, notes: dict[str, int], indent: str) -> Iterator[str]:
    """Yield the lines of a list, each item with its marker."""
    for number, item in enumerate(items.items, items.start):
        marker = item.marker_label or ("-" if items.marker == "bullet" else f"{number}.")
        is_first = True
        for line in _block_lines(item.blocks, notes, indent):
            yield f"{indent}{marker} {line.strip()}" if is_first else f"  {line}"
            is_first = False


def _table_lines(table: Table, notes: dict[str, int]) -> Iterator[str]:
    """Yield the rows of a table. A cell that extends over several columns or rows is written once."""
    for row in table.grid:
        cells = ["" if slot.cell is None else " ".join(_block_lines(slot.cell.blocks, notes)) for slot in row]
        line = " | ".join(cells).rstrip(" |")
        if line:
            yield line


def _inline_text(content: Sequence[Inline], notes: dict[str, int]) -> str:
    """Return the text of a paragraph; line feeds are its line breaks."""
    pieces: list[str] = []
    for inline in content:
        if inline.kind == "line_break":
            pieces.append("\n")
        elif inline.kind == "link":
            pieces.append(_inline_text(inline.content or [], notes))
        elif inline.kind == "note_ref":
            number = notes.setdefault(inline.note_id or "", len(notes) + 1)
            pieces.append(f" [note {number}]")
        elif inline.kind == "checkbox":
            pieces.append("[x]" if inline.checked else "[ ]")
        elif inline.kind == "image":
            pieces.append(f" {inline.alt} " if inline.alt else "")
        elif inline.style is not None and inline.style.strike and (inline.text or "").strip():
            pieces.append(f"[struck out: {(inline.text or '').strip()}] ")
        else:
            pieces.append(inline.text or "")
    lines = [" ".join(line.split()) for line in "".join(pieces).split("\n")]
    return "\n".join(lines)
