"""Turn the narrative blocks of C-CDA documents into lines: paragraphs, items of lists, and rows of tables.

    lines = narrative_lines(section.find("text"))    # ["- Aspirin 81 mg daily", "Drug: Aspirin | Dose: 81 mg"]

Each row of a table with a header repeats the names of its columns, so that a passage of one row can be understood. A
deleted word is `[struck out: warfarin]`, a picture `[picture: its caption]`.
"""

from __future__ import annotations

import html
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from epicrisis.corpus.base.xml_text import write_inline

if TYPE_CHECKING:
    from lxml.etree import _Element

_PARAGRAPHS = frozenset(("paragraph", "caption", "p", "div", "title", "text"))
_BLOCKS = frozenset((*_PARAGRAPHS, "list", "table", "ul", "ol"))
_IGNORED = frozenset(("col", "colgroup", "footnoteRef"))
_MAX_COLUMNS = 50
_MAX_REPEATED = 200
"""Characters of a cell that is repeated in each row over which it extends; a longer one is written once."""


def narrative_lines(block: _Element) -> list[str]:
    """Return the lines of a narrative block, whose tags have no namespace."""
    writer = _LineWriter()
    writer.write_content(block)
    writer.end_line()
    return writer.lines


class _LineWriter:
    """Collects lines; text between two blocks is one line."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._pieces: list[str] = []

    def end_line(self) -> None:
        """Finish the current line. Empty lines are dropped."""
        if line := " ".join("".join(self._pieces).split()):
            self.lines.append(line)
        self._pieces.clear()

    def write_content(self, element: _Element) -> None:
        """Write the text and the elements within an element."""
        self._pieces.append(element.text or "")
        for child in element:
            self._write_element(child)
            self._pieces.append(child.tail or "")

    def _write_element(self, element: Any) -> None:
        name = element.tag
        if not isinstance(name, str):
            self._pieces.append(html.unescape(element.text or ""))
        elif name == "br":
            self.end_line()
        elif name in ("sub", "sup"):
            write_inline(element, self._pieces)
        elif name == "renderMultiMedia":
            self._pieces.append(f" [picture: {_inline_text(element)}] " if _inline_text(element) else " [picture] ")
        elif name == "content" and element.get("revised") == "delete":
            self._pieces.append(f" [struck out: {_inline_text(element)}] ")
        elif name == "footnote":
            self._pieces.append(f" [note: {_inline_text(element)}] ")
        elif name in _IGNORED:
            return
        elif name in ("td", "th"):
            # A cell of a row that an entry refers to.
            self._pieces.append(" ")
            self.write_content(element)
        elif name in _BLOCKS:
            self.end_line()
            self._write_block(element)
            self.end_line()
        else:
            self.write_content(element)

    def _write_block(self, element: _Element) -> None:
        if element.tag in ("list", "ul", "ol"):
            self.lines += _list_lines(element)
        elif element.tag == "table":
            self.lines += _table_lines(element)
        else:
            self.write_content(element)


def _inline_text(element: _Element) -> str:
    return " ".join(narrative_lines(element))


def _list_lines(items: _Element) -> Iterator[str]:
    """Yield the lines of a list, each item with its marker."""
    is_ordered = items.get("listType") == "ordered" or items.tag == "ol"
    number = 0
    for item in items:
        if item.tag not in ("item", "li"):
            yield from narrative_lines(item) if isinstance(item.tag, str) else ()
            continue
        number += 1
        marker = f"{number}." if is_ordered else "-"
        for index, line in enumerate(narrative_lines(item)):
            yield f"  {line}" if index else f"{marker} {line}"


def _table_lines(table: _Element) -> Iterator[str]:
    """Yield the caption and the rows of a table."""
    for caption in table.iterchildren("caption"):
        yield from narrative_lines(caption)
    header_rows: list[_Element] = []
    rows: list[_Element] = []
    for part in table:
        if part.tag == "thead":
            header_rows += part.iterchildren("tr")
        elif part.tag in ("tbody", "tfoot"):
            rows += part.iterchildren("tr")
        elif part.tag == "tr":
            rows.append(part)
    if not header_rows and len(rows) > 1 and rows[0].find("td") is None:
        header_rows.append(rows.pop(0))
    header = _grid_rows(header_rows)
    labels = header.pop() if header else []
    if labels and not rows:
        header.append(labels)
    for cells in header:
        yield from _format_row(cells, [])
    for cells in _grid_rows(rows):
        yield from _format_row(cells, labels)


def _format_row(cells: list[str], labels: list[str]) -> Iterator[str]:
    """Yield the row as a line, unless it is empty. Its cells have labels if there is one for each."""
    filled = [cell for cell in cells if cell]
    if len(cells) == len(labels) and len(filled) > 1:
        parts = []
        for label, cell in zip(labels, cells, strict=True):
            if cell:
                parts.append(f"{label.removesuffix(':')}: {cell}" if label else cell)
        yield " | ".join(parts)
    elif filled:
        yield " | ".join(filled)


def _grid_rows(rows: list[_Element]) -> list[list[str]]:
    """Return the texts of the cells by row and column. A cell that extends over rows is repeated in each of them."""
    grid: list[list[str]] = []
    spans: dict[int, tuple[int, str]] = {}
    for row in rows:
        cells: list[str] = []
        for cell in row.iterchildren("td", "th"):
            _add_spanned(cells, spans)
            text, height = _cell_text(cell), _read_span(cell, "rowspan")
            if height > 1:
                spans[len(cells)] = (height - 1, text if len(text) <= _MAX_REPEATED else "")
            cells.append(text)
            cells += [""] * (_read_span(cell, "colspan") - 1)
        _add_spanned(cells, spans)
        grid.append(cells[:_MAX_COLUMNS] + list(filter(None, cells[_MAX_COLUMNS:])))
    return grid


def _add_spanned(cells: list[str], spans: dict[int, tuple[int, str]]) -> None:
    """Add the cells of earlier rows that extend into this one at this place."""
    while len(cells) in spans:
        height, text = spans.pop(len(cells))
        if height > 1:
            spans[len(cells)] = (height - 1, text)
            cells.append(text)
            continue
        cells.append(text)


def _read_span(cell: _Element, name: str) -> int:
    span = cell.get(name) or ""
    return min(int(span), _MAX_COLUMNS) if span.isascii() and span.isdecimal() and int(span) else 1


def _cell_text(cell: _Element) -> str:
    lines = narrative_lines(cell)
    has_blocks = any(child.tag in _BLOCKS for child in cell)
    return ("; " if has_blocks else " ").join(line.strip() for line in lines)
