"""Read HTML files: the text visible to a reader, one block a line. Style sheets are ignored, and nothing is fetched.

Scripts, styles, templates, `noscript`, navigation (`nav`), drawings and form controls are left out. Headers, footers
and asides stay, because articles have findings in them too.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from epicrisis.core.dates import find_publication_date
from epicrisis.core.types import Document
from epicrisis.corpus.base.article_ids import find_dois
from epicrisis.corpus.base.encodings import decode_text, encoding_remark
from epicrisis.corpus.base.reader_base import FileRemark, OmittedText, Skipped, read_limited, skip
from epicrisis.corpus.base.reference_lists import remove_reference_lists
from epicrisis.corpus.base.removal_log import REFERENCE_LIST
from epicrisis.corpus.base.xml_text import is_raised_citation

if TYPE_CHECKING:
    from selectolax.lexbor import LexborHTMLParser, LexborNode

MAX_FILE_BYTES = 64 * 1024 * 1024
MAX_DEPTH = 10_000
"""Nested elements. The parser's time grows with the square of it: 0.1 s at 10,000, minutes at 200,000."""
MAX_STEPS = 1_000_000_000
"""Open elements that the parser may search for all end tags together: about 5 s."""
MAX_ATTRIBUTES = 5_000
"""Attributes of an element. The parser compares them with each other: 120,000 take minutes."""


def _split_names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_IGNORED = _split_names("script style template noscript nav svg button select textarea datalist iframe object")
_BLOCKS = _split_names(
    "address article aside blockquote body br caption dd details dialog div dl dt fieldset figcaption figure footer "
    "form h1 h2 h3 h4 h5 h6 header hgroup hr legend li main ol p pre section summary table tbody tfoot thead ul"
)
_CELLS = ("td", "th")
_TAG = re.compile(r"<(/?)([a-zA-Z][^\s/>]*)")
_LONG_TAG = re.compile(rf"<[a-zA-Z][^<>]{{{2 * MAX_ATTRIBUTES},}}")
_QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'")
_NOT_NESTING = _split_names(
    "area base br col dd dt embed hr img input li link meta option p source tbody td tfoot th thead tr track wbr"
)
_RAISED_NUMBER = re.compile(r"[+\-−–]?\d")
_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_DECLARATION = re.compile(
    rb"""<(?:meta|\?xml)[^<>]*?(?:charset|encoding)\s*+=\s*+["']?\s*+([\w.:-]++)""", re.IGNORECASE
)
_DECLARATION_BYTES = 4096
# As in browsers: a page declared as Latin-1 is Windows-1252, and a page with ASCII tags is not UTF-16.
_EFFECTIVE = {"iso8859-1": "cp1252", "ascii": "cp1252", "utf-16": "utf-8", "utf-16-le": "utf-8", "utf-16-be": "utf-8"}
_BROWSER_ENCODINGS = {
    *_split_names(
        "ascii utf-8 utf-8-sig utf-16 utf-16-le utf-16-be utf-32 utf-32-le utf-32-be cp866 cp874 koi8-r koi8-u cp437 "
        "mac-roman mac-cyrillic gbk gb2312 gb18030 hz big5 big5hkscs cp950 euc_jp iso2022_jp shift_jis cp932 euc_kr "
        "cp949 cp850"
    ),
    *(f"iso8859-{item}" for item in range(1, 17)),
    *(f"cp125{item}" for item in range(9)),
}
"""Others that Python knows are traps: `punycode` takes hours for a megabyte, `unicode_escape` changes the text."""


def text_encoding(name: str) -> str:
    """Return Python's name of an encoding. Raises LookupError for an unknown one, or one that browsers do not use."""
    encoding = codecs.lookup(name).name
    if encoding not in _BROWSER_ENCODINGS:
        raise LookupError(name)
    return encoding


def read_document(path: Path, name: str) -> Iterator[Document | Skipped | FileRemark | OmittedText]:
    """Yield the only document, or why it was skipped.

    `name` becomes the id (`file:<name>`) and the source. The title is that of the page's metadata, else the page's,
    else its first heading, else the file's stem. Runs of white space become one space; blocks and line breaks begin a
    new line. A table's row is one line with ` | ` between its cells, unless a cell has several lines. A numeric
    superscript after a digit is preceded by `^` (`10^9`, `10^-3`), or a citation (`12 [3]`), a subscript by `_`. The
    encoding is that of the byte order mark, else the declared one, else UTF-8, else it is detected from the text. See
    `html_metadata` for metadata. Lists of references are left out.
    """
    try:
        page = _parse_page(read_limited(path, MAX_FILE_BYTES))
        if not page.text:
            raise ValueError("holds no text; leave it out")
    except ValueError as error:
        yield skip(path, "", str(error))
        return
    text, lists = remove_reference_lists(page.text)
    yield Document(
        id=f"file:{name}",
        text=text,
        title=page.title or Path(name).stem,
        source=name,
        date=page.date,
        metadata=page.metadata,
    )
    if lists:
        yield OmittedText(f"file:{name}", REFERENCE_LIST, tuple(lists))
    if page.encoding:
        yield encoding_remark(name, page.encoding)


def page_text(data: bytes) -> str:
    """Return the text of a page as in `read_document`, empty if it has none. Raises ValueError with the reason."""
    return _parse_page(data).text


class _ParsedPage(NamedTuple):
    title: str
    date: str | None
    text: str
    metadata: dict[str, Any]
    encoding: str
    """Empty unless it was told from the text."""


def _decode_page(data: bytes) -> tuple[str, str]:
    """Return the page, and its encoding if it names none and is not UTF-8. Raises ValueError with the reason."""
    mark, encoding = next((bom for bom in _BOMS if data.startswith(bom[0])), (b"", ""))
    data = data.removeprefix(mark)
    if not encoding:
        declaration = _DECLARATION.search(data, 0, _DECLARATION_BYTES)
        if declaration is None:
            return decode_text(data)
        try:
            encoding = text_encoding(declaration[1].decode())
        except LookupError as error:
            raise ValueError("names an unknown encoding; save it as UTF-8") from error
        encoding = _EFFECTIVE.get(encoding, encoding)
    try:
        return data.decode(encoding), ""
    except UnicodeDecodeError as error:
        place = f"at byte {error.start + 1}"
        raise ValueError(f"not {encoding} {place}; save it as UTF-8 with a declaration of UTF-8") from error


def _parse_page(data: bytes) -> _ParsedPage:
    """Return title, date, text and metadata, empty if there are none. Raises ValueError with the reason."""
    from selectolax.lexbor import LexborHTMLParser, SelectolaxError

    page, encoding = _decode_page(data)
    _check_tags(page)
    try:
        tree = LexborHTMLParser(page)
    except (SelectolaxError, UnicodeEncodeError) as error:
        raise ValueError("the HTML parser rejects it; save it as text") from error
    if tree.body is None:
        return _ParsedPage("", None, "", {}, encoding)
    lines = _LineCollector()
    lines.walk(tree.body)
    title, date, metadata = read_metadata(tree)
    title = title or _first_text(tree.head, "title") or _first_text(tree.body, "h1")
    return _ParsedPage(title, date, "\n".join(lines.lines), metadata, encoding)


def _first_text(root: LexborNode | None, tag: str) -> str:
    node = root.css_first(tag) if root else None
    return " ".join(node.text().split()) if node else ""


def _check_tags(page: str) -> None:
    """Raise ValueError for tags that would keep the parser busy for minutes."""
    # The depth is estimated from above, without elements that end each other. An end tag ends an element only if one
    # of its name is open; otherwise the parser searches all open elements.
    open_elements: Counter[str] = Counter()
    depth = steps = 0
    for tag in _TAG.finditer(page):
        name = tag[2].lower()
        is_end = bool(tag[1])
        if is_end:
            steps += depth
        if name in _NOT_NESTING or (is_end and not open_elements[name]):
            continue
        change = -1 if is_end else 1
        open_elements[name] += change
        depth += change
        if depth > MAX_DEPTH:
            raise ValueError(f"elements nested deeper than {MAX_DEPTH:,}; save it as text")
    if steps > MAX_STEPS:
        raise ValueError("too many end tags for such deeply nested elements; save it as text")
    for tag in _LONG_TAG.finditer(page):
        if len(_QUOTED.sub(" ", tag[0]).split()) > MAX_ATTRIBUTES:
            raise ValueError(f"an element of more than {MAX_ATTRIBUTES:,} attributes; save it as text")


class _LineCollector:
    """Lines of text collected from a tree. A table's row is added when it is complete."""

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
            inner = None if node.tag in _IGNORED else node.first_child
            while inner is None:
                self._leave(node)
                if node.mem_id == root.mem_id:
                    return
                inner = node.next
                if inner is None:
                    parent = node.parent
                    assert parent is not None, "every node of the walk is below its root"
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
                self._target().extend(chain.from_iterable(cells))
            elif any(cells):
                self._target().append(" | ".join(cell[0] if cell else "" for cell in cells))

    def _write(self, node: LexborNode) -> None:
        text = node.text_content or ""
        if self._mark and text.strip():
            before = "".join(self._line[-2:])
            if self._mark == "^" and is_raised_citation(before, text.strip()):
                text = f" [{text.strip()}]"
            elif before[-1:].isdigit() and _RAISED_NUMBER.match(text):
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
        """Return the list for the next line: the open cell of the innermost row that has one, else the page's lines."""
        for row in reversed(self._rows):
            if row:
                return row[-1]
        return self.lines


MAX_VALUES = 5_000
"""Values of one name that are read: authors of a large trial, keywords."""
_PMID = re.compile(r"\d{1,9}")
_TEXTS = {
    "journal": ("citation_journal_title", "prism.publicationname"),
    "journal_abbreviation": ("citation_journal_abbrev",),
    "volume": ("citation_volume", "prism.volume"),
    "issue": ("citation_issue", "prism.number"),
    "book": ("citation_inbook_title", "citation_book_title"),
    "publisher": ("citation_publisher", "dc.publisher"),
    "issn": ("citation_issn", "prism.issn"),
    "isbn": ("citation_isbn",),
    "url": ("citation_abstract_html_url", "citation_fulltext_html_url", "citation_public_url"),
}
"""Metadata that are one text, and the names of their tags, the first that has a value."""
_DATES = ("citation_publication_date", "citation_date", "citation_online_date", "dc.date", "dc.date.issued")


def read_metadata(tree: LexborHTMLParser) -> tuple[str, str | None, dict[str, Any]]:
    """Return title, date and metadata of a page, as far as its tags say. The names are those of `docs/documents.md`."""
    tags: dict[str, list[str]] = defaultdict(list)
    for node in tree.css("meta[content]"):
        attributes = node.attributes
        name = (attributes.get("name") or attributes.get("property") or "").lower().replace("dcterms.", "dc.")
        content = " ".join((attributes.get("content") or "").split())
        if name.startswith(("citation_", "dc.", "prism.")) and content and len(tags[name]) < MAX_VALUES:
            tags[name].append(content)
    metadata: dict[str, Any] = {}
    for key, names in _TEXTS.items():
        if value := _first(tags, *names):
            metadata[key] = value
    if not str(metadata.get("url", "")).startswith(("http://", "https://")):
        metadata.pop("url", None)
    authors = tags["citation_author"] or _split_list(tags["citation_authors"], ";") or tags["dc.creator"]
    for key, values in (
        ("authors", [_family_first(author) for author in authors]),
        ("keywords", _split_list(tags["citation_keywords"], ";")),
        ("language", tags["citation_language"] or tags["dc.language"]),
    ):
        if values:
            metadata[key] = values
    metadata.update(_read_ids(tags))
    return _first(tags, "citation_title", "dc.title"), find_publication_date(_first(tags, *_DATES)), metadata


def _read_ids(tags: dict[str, list[str]]) -> dict[str, str]:
    """Return pages, DOI and PMID."""
    ids: dict[str, str] = {}
    first, last = _first(tags, "citation_firstpage", "prism.startingpage"), _first(tags, "citation_lastpage")
    if first:
        ids["page_range"] = f"{first}-{last}" if last not in ("", first) else first
    dois = find_dois("\n".join([*tags["citation_doi"], *tags["dc.identifier"], *tags["dc.identifier.doi"]]))
    if len(dois) == 1:
        ids["doi"] = dois[0]
    pmid = _first(tags, "citation_pmid")
    if _PMID.fullmatch(pmid):
        ids["pmid"] = pmid
    return ids


def _first(tags: dict[str, list[str]], *names: str) -> str:
    """Return the first value of the first of these names that has one, or an empty string."""
    for name in names:
        if tags.get(name):
            return tags[name][0]
    return ""


def _split_list(values: list[str], mark: str) -> list[str]:
    parts: list[str] = []
    for value in values:
        parts += filter(None, map(str.strip, value.split(mark)))
    return parts


def _family_first(name: str) -> str:
    """Return a name of a person with the family name first: `Peter R. Walsh` is `Walsh, Peter R.`."""
    words = name.split()
    is_plain = "," not in name and 2 <= len(words) <= 4
    return f"{words[-1]}, {' '.join(words[:-1])}" if is_plain else name
