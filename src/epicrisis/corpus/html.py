"""HTML files: the text a reader sees, a block a line. One file, one document.

Left out are scripts, styles, templates, `noscript`, navigation (`nav`), drawings and form controls; headers, footers
and asides stay, because articles keep their findings there too. Knows nothing of what a style sheet hides, and fetches
nothing.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from epicrisis.corpus.reader_base import Skipped, os_error_reason, printable_path
from epicrisis.corpus.text_encodings import text_encoding
from epicrisis.types import Document

if TYPE_CHECKING:
    from selectolax.lexbor import LexborNode

LARGEST = 64 * 1024 * 1024
"""Bytes of a file."""
DEEPEST = 10_000
"""Elements within elements. The parser's time grows with the square of it: 0.1 s at 10,000, minutes at 200,000."""
MOST_STEPS = 1_000_000_000
"""Open elements that the parser may look through for end tags, all together: some 5 s."""
MOST_ATTRIBUTES = 5_000
"""Of an element. The parser compares them with each other: 120,000 take minutes."""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_LEFT_OUT = _names("script style template noscript nav svg button select textarea datalist iframe object")
_BLOCKS = _names(
    "address article aside blockquote body br caption dd details dialog div dl dt fieldset figcaption figure footer "
    "form h1 h2 h3 h4 h5 h6 header hgroup hr legend li main ol p pre section summary table tbody tfoot thead ul"
)
_CELLS = ("td", "th")
_TAG = re.compile(r"<(/?)([a-zA-Z][^\s/>]*)")
_LONG_TAG = re.compile(rf"<[a-zA-Z][^<>]{{{2 * MOST_ATTRIBUTES},}}")
_QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'")
_NOT_NESTING = _names(
    "area base br col dd dt embed hr img input li link meta option p source tbody td tfoot th thead tr track wbr"
)
_RAISED_NUMBER = re.compile(r"[+\-−–]?\d")
_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_NAMED = re.compile(rb"""<(?:meta|\?xml)[^<>]*?(?:charset|encoding)\s*+=\s*+["']?\s*+([\w.:-]++)""", re.IGNORECASE)
_NAMED_WITHIN = 4096
# As browsers do: what calls itself Latin-1 is Windows-1252, and no file of ASCII tags is UTF-16.
_MEANT = {"iso8859-1": "cp1252", "ascii": "cp1252", "utf-16": "utf-8", "utf-16-le": "utf-8", "utf-16-be": "utf-8"}


def read_document(path: Path, name: str) -> Iterator[Document | Skipped]:
    """The one document, or why it was left out.

    `name` is as for text files: it makes the id (`file:<name>`) and the source. The title is the page's, else its first
    heading, else the file's stem. Runs of white space are one space; blocks and line breaks begin a new line; a table's
    row is one line with ` | ` between its cells, unless a cell holds several lines. Where a superscript follows a digit
    and is a number, `^` stands between (`10^9`, `10^-3`), for a subscript `_`.

    The encoding is that of the byte order mark, else the one the page names, else UTF-8.
    """
    try:
        if path.stat().st_size > LARGEST:
            raise ValueError(f"larger than {LARGEST // 2**20} MB; split it")
        title, text = _title_and_text(_decoded(path.read_bytes()))
        if not text:
            raise ValueError("holds no text")
    except OSError as error:
        yield Skipped(printable_path(path), "", f"{os_error_reason(error)}; check the file and its permissions")
        return
    except ValueError as error:
        yield Skipped(printable_path(path), "", str(error))
        return
    yield Document(id=f"file:{name}", text=text, title=title or path.stem, source=name)


def page_text(data: bytes) -> str:
    """The text of a page as `read_document` gives it, empty where there is none. Raises ValueError with the reason."""
    return _title_and_text(_decoded(data))[1]


def _decoded(data: bytes) -> str:
    """Raises ValueError with the reason."""
    mark, encoding = next(((mark, encoding) for mark, encoding in _BOMS if data.startswith(mark)), (b"", ""))
    data = data.removeprefix(mark)
    encoding = encoding or _named_encoding(data)
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        raise ValueError(f"not {encoding} at byte {error.start + 1}; save it as UTF-8 and let it say so") from error


def _named_encoding(data: bytes) -> str:
    named = _NAMED.search(data, 0, _NAMED_WITHIN)
    try:
        encoding = text_encoding(named[1].decode() if named else "utf-8")
    except LookupError as error:
        raise ValueError("names an encoding that is not known; save it as UTF-8") from error
    return _MEANT.get(encoding, encoding)


def _title_and_text(page: str) -> tuple[str, str]:
    from selectolax.lexbor import LexborHTMLParser, SelectolaxError

    _check_tags(page)
    try:
        tree = LexborHTMLParser(page)
    except (SelectolaxError, UnicodeEncodeError) as error:
        raise ValueError("the HTML parser refuses it; save it as text") from error
    if tree.body is None:
        return "", ""
    lines = _Lines()
    lines.walk(tree.body)
    named = (
        found for root, tag in ((tree.head, "title"), (tree.body, "h1")) if root and (found := root.css_first(tag))
    )
    titles = (" ".join(node.text().split()) for node in named)
    return next((title for title in titles if title), ""), "\n".join(lines.lines)


def _check_tags(page: str) -> None:
    """Raise ValueError for tags that would keep the parser busy for minutes.

    The depth is counted from above, but for elements that end each other. An end tag ends an element only where one of
    its name is open; where none is, the parser looks through all open elements.
    """
    is_open: Counter[str] = Counter()
    depth = steps = 0
    for tag in _TAG.finditer(page):
        name = tag[2].lower()
        steps += depth if tag[1] else 0
        if name in _NOT_NESTING or (tag[1] and not is_open[name]):
            continue
        step = -1 if tag[1] else 1
        is_open[name] += step
        depth += step
        if depth > DEEPEST:
            raise ValueError(f"elements nested deeper than {DEEPEST:,}; save it as text")
    if steps > MOST_STEPS:
        raise ValueError("too many end tags for elements nested that deep; save it as text")
    for tag in _LONG_TAG.finditer(page):
        if len(_QUOTED.sub(" ", tag[0]).split()) > MOST_ATTRIBUTES:
            raise ValueError(f"an element of more than {MOST_ATTRIBUTES:,} attributes; save it as text")


class _Lines:
    """Collects lines of text while it walks a tree. Rows of tables are held back until they are whole."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._line: list[str] = []
        self._rows: list[list[list[str]]] = []
        self._mark = ""
        self._preformatted = 0

    def walk(self, root: LexborNode) -> None:
        node = root
        while True:
            self._enter(node)
            inner = None if node.tag in _LEFT_OUT else node.first_child
            while inner is None:
                self._leave(node)
                if node.mem_id == root.mem_id:
                    return
                inner = node.next
                if inner is None:
                    parent = node.parent
                    assert parent is not None, "every node of the walk lies below its root"
                    node = parent
            node = inner

    def _enter(self, node: LexborNode) -> None:
        tag = node.tag
        if node.is_text_node:
            self._write(node)
        elif tag in ("sup", "sub"):
            self._mark = "^" if tag == "sup" else "_"
        elif tag in _BLOCKS:
            self._end_line()
            self._preformatted += tag == "pre"
        elif tag == "tr":
            self._end_line()
            self._rows.append([])
        elif tag in _CELLS and self._rows:
            self._end_line()
            self._rows[-1].append([])

    def _leave(self, node: LexborNode) -> None:
        tag = node.tag
        if tag in ("sup", "sub"):
            self._mark = ""
        elif tag in _BLOCKS or (tag in _CELLS and self._rows):
            self._end_line()
            self._preformatted -= tag == "pre"
        elif tag == "tr":
            self._end_line()
            cells = self._rows.pop()
            if any(len(cell) > 1 for cell in cells):
                self._target().extend(line for cell in cells for line in cell)
            elif any(cells):
                self._target().append(" | ".join(cell[0] if cell else "" for cell in cells))

    def _write(self, node: LexborNode) -> None:
        text = node.text_content or ""
        if self._mark and text.strip():
            if self._line and self._line[-1][-1:].isdigit() and _RAISED_NUMBER.match(text):
                text = self._mark + text
            self._mark = ""
        first, *others = text.split("\n") if self._preformatted else [text]
        self._line.append(first)
        for line in others:
            self._end_line()
            self._line.append(line)

    def _end_line(self) -> None:
        line = " ".join("".join(self._line).split())
        self._line.clear()
        if line:
            self._target().append(line)

    def _target(self) -> list[str]:
        """Where a line goes: the open cell of the innermost row that has one, else the page."""
        return next((row[-1] for row in reversed(self._rows) if row), self.lines)
