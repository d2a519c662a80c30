"""XML from outside: opened so that no entity, network or size can hurt, its mixed content told as readable text.

Knows no format: neither PubMed's elements nor JATS's sections, only inline markup and MathML.

One line of text is made of an element by these rules. Runs of spaces, tabs and line ends become one space, with none
at the ends; other spaces (no-break, thin) stay as they are. Bold, italics
and other inline markup fall away. A subscript is written as it is said, `H2O`, `Tmax`; after a digit with `_`, so that
no other number arises. A superscript that begins with a digit or a signed digit gets a `^` where it follows a letter, a
digit or a closing bracket (`10^-3`, `m^2`), and so does a single letter after a digit (`10^n`); charges, genotypes,
isotopes and the rest stay as they are commonly written (`Ca2+`, `CD4+`, `p53-/-`, `99mTc`, `1st`). MathML is linear:
`(a+b)/c`, `x_i^2`, `√(x)`. An entity of HTML's names is its character, any other stays as `&name;`.
"""

from __future__ import annotations

import html
import re
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, cast

from epicrisis.corpus.compression import open_packed
from epicrisis.corpus.reader_base import os_error_reason

if TYPE_CHECKING:
    from lxml.etree import _Element, _ElementTree

LARGEST = 16 * 1024 * 1024
"""Bytes of XML that one record, or one article, may take. A paper of 5,000 authors takes a third."""

_CHUNK = 64 * 1024
_SAFE: dict[str, Any] = {
    "resolve_entities": False,
    "no_network": True,
    "load_dtd": False,
    "huge_tree": False,
    "remove_comments": True,
    "remove_pis": True,
}


class BrokenXML(Exception):
    """The file cannot be read on. The message says why and what to do, and holds nothing of the text."""


def detect_xml_kind(path: Path) -> Literal["pubmed", "nxml"] | None:
    """Which XML this is, by the first element in its first 64 KiB (unpacked) that tells; `None` where none does.

    Raises OSError where the file cannot be opened.
    """
    head = b""
    with open_packed(path) as file:
        try:
            while len(head) < _CHUNK and (more := _read_some(file, _CHUNK - len(head))):
                head += more
        except (OSError, EOFError, zlib.error):
            pass  # the reader will say where it breaks off
    # Without the NULs, UTF-16 looks like ASCII.
    found = re.search(rb"<(?:(Pubmed(?:Book)?Article|DeleteCitation)|(?:\w+:)?article[\s>])", head.replace(b"\0", b""))
    return None if found is None else "pubmed" if found[1] else "nxml"


def read_records(path: Path, tags: tuple[str, ...]) -> Iterator[_Element]:
    """The elements of these tags as they end, in the file's order; each is gone when the next is asked for.

    Memory is bounded by LARGEST. Raises BrokenXML where the file breaks off, after the complete elements before.
    """
    from lxml import etree

    first = True
    try:
        with open_packed(path) as file:
            source = _Source(file)
            # Cast, as the stubs know fewer parameters than there are.
            walk: Iterable[tuple[str, _Element]] = cast(Any, etree.iterparse)(source, tag=tags, **_SAFE)
            for _, element in walk:
                if first:
                    _refuse_entities(element.getroottree())
                    first = False
                yield element
                source.allowance = LARGEST
                # The element itself stays until the next one: the parser may still be writing what follows it.
                parent = element.getparent()
                while parent is not None and element.getprevious() is not None:
                    del parent[0]
    except (etree.XMLSyntaxError, OSError, EOFError, zlib.error) as error:
        raise BrokenXML(_why(error)) from error


def parse_file(path: Path) -> _Element:
    """The root of a file of at most LARGEST bytes. Raises BrokenXML."""
    from lxml import etree

    try:
        with open_packed(path) as file:
            source = _Source(file)
            # Cast, as the stubs know fewer parameters than there are.
            tree: _ElementTree = etree.parse(cast(Any, source), cast(Any, etree.XMLParser)(**_SAFE))
    except (etree.XMLSyntaxError, OSError, EOFError, zlib.error) as error:
        raise BrokenXML(_why(error)) from error
    _refuse_entities(tree)
    return tree.getroot()


class _Source:
    """Hands out a file's bytes as long as the allowance lasts."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.allowance = LARGEST

    def read(self, size: int = -1) -> bytes:
        data = _read_some(self._file, _CHUNK)
        self.allowance -= len(data)
        if self.allowance < 0:
            raise BrokenXML(f"more than {LARGEST // 2**20} MiB without the end of a record; check what file this is")
        return data


def _read_some(file: IO[bytes], size: int) -> bytes:
    """At most `size` bytes. What was unpacked before a gzip file breaks off comes out: `read` would swallow it."""
    return cast(bytes, cast(Any, file).read1(size))


def _refuse_entities(tree: _ElementTree) -> None:
    declared = tree.docinfo.internalDTD
    if declared is not None and any(True for _ in cast(Any, declared).iterentities()):
        raise BrokenXML("declares entities of its own, which are never expanded; fetch the file from its publisher")


def _why(error: Any) -> str:
    """Of a failure while reading. libxml2's own words are not repeated: they may hold some of the text."""
    from lxml import etree

    if isinstance(error, OSError | EOFError | zlib.error):
        cause = os_error_reason(error) if isinstance(error, OSError) else str(error)
        return f"the file breaks off ({cause}); fetch or make it again"
    if error.code in (etree.ErrorTypes.ERR_ENTITY_LOOP, etree.ErrorTypes.ERR_RESOURCE_LIMIT):
        return "its entities, texts or nesting go beyond all bounds; fetch the file from its publisher"
    line, column = error.position
    place = f" at line {line}, column {column}" if line else ""
    return f"not well-formed XML{place}, or cut off there; fetch or make it again"


# -- mixed content --------------------------------------------------------------------------------------------------

_SPACES = re.compile(r"[ \t\r\n]+")
_POWER = re.compile(r"[+\-−–]?\d")
_CHARGE = re.compile(r"\d*[+\-−–]+")
_BLOCKS = frozenset(
    [
        "p",
        "title",
        "label",
        "list",
        "list-item",
        "def-list",
        "def-item",
        "term",
        "def",
        "sec",
        "br",
        "break",
        "td",
        "th",
        "tr",
        "table",
        "caption",
        "disp-formula",
        "DispFormula",
        "disp-quote",
        "boxed-text",
        "fn",
        "attrib",
    ]
)


def element_text(element: _Element) -> str:
    """The element's text on one line, without what follows the element. The module's docstring has the rules."""
    raw = _mixed(element) if len(element) else element.text
    if not raw or raw.isalnum():
        return raw or ""
    # Four searches in C take a tenth of the time of one by a regular expression.
    if "\n" in raw or "  " in raw or "\t" in raw or "\r" in raw:
        raw = _SPACES.sub(" ", raw)
    return raw.strip(" ")


def _tidy(raw: str | None) -> str:
    return _SPACES.sub(" ", raw or "").strip(" ")


def _mixed(element: _Element) -> str:
    out = [element.text or ""]
    for child in element:
        _write(child, out)
        if child.tail:
            out.append(child.tail)
    return "".join(out)


def _write(child: Any, out: list[str]) -> None:
    """Appends the child's text to the pieces before it, the last of which a subscript may shorten."""
    if not isinstance(child.tag, str):
        out.append(html.unescape(child.text or ""))
        return
    name = child.tag.rpartition("}")[2]
    if name == "sub":
        _write_subscript(_mixed(child), out)
    elif name == "sup":
        out.append(_superscript(_mixed(child), _last(out)))
    elif name == "math":
        out.append(_linear(child))
    elif name == "alternatives":
        _write_best(child, out)
    elif name == "tex-math":
        out.append(_tex(child.text or ""))
    else:
        inner = _mixed(child)
        out.append(f" {inner} " if name in _BLOCKS else inner)


def _last(out: list[str]) -> str:
    """The last character so far, or nothing."""
    return next((piece[-1] for piece in reversed(out) if piece), "")


def _write_subscript(content: str, out: list[str]) -> None:
    inner = content.strip()
    if inner[:1].isdigit():
        # `CO <sub>2</sub>`: the space is the typesetter's; a number below the line belongs to what stands before it.
        while out and not (shortened := out[-1].rstrip(" \t\r\n")):
            out.pop()
        if out:
            out[-1] = shortened
        content = ("_" if _last(out).isdigit() else "") + content.lstrip()
    out.append(content)


def _superscript(content: str, before: str) -> str:
    inner = content.strip()
    follows = before.isalnum() or before in (")", "]", "}")
    power = follows and _POWER.match(inner) and not _CHARGE.fullmatch(inner)
    index = before.isdigit() and len(inner) == 1 and inner.isalpha()
    return f"^{content.lstrip()}" if power or index else content


def _write_best(alternatives: _Element, out: list[str]) -> None:
    """Of several forms of one thing the most readable: MathML, a table, TeX; all of them where none is known."""
    by_name = {child.tag.rpartition("}")[2]: child for child in alternatives if isinstance(child.tag, str)}
    best = next((by_name[name] for name in ("math", "table", "tex-math", "textual-form") if name in by_name), None)
    if best is not None:
        _write(best, out)
    else:
        out.append(_mixed(alternatives))


def _tex(source: str) -> str:
    """The formula alone, without the document that publishers wrap it in."""
    body = source.partition(r"\begin{document}")[2].partition(r"\end{document}")[0] or source
    return body.strip().strip("$").strip()


# -- MathML ---------------------------------------------------------------------------------------------------------

_UNSEEN = str.maketrans("", "", "\u2061\u2062\u2063\u2064")
"""Invisible operators: function application, times, separator, plus."""
_ATOM = re.compile(r"[+\-−]?\w*|\([^()]*\)")
_SHAPES = {
    "msup": "{}^{}",
    "mover": "{}^{}",
    "msub": "{}_{}",
    "munder": "{}_{}",
    "msubsup": "{}_{}^{}",
    "munderover": "{}_{}^{}",
    "mfrac": "{}/{}",
}


def _linear(node: Any) -> str:
    """MathML on one line."""
    if not isinstance(node.tag, str):
        return html.unescape(node.text or "")
    name = node.tag.rpartition("}")[2]
    if name == "semantics" and len(node):
        # What follows the first child says the same once more, in TeX or in content markup.
        return _linear(node[0])
    if name == "mspace":
        return " "
    parts = [_linear(child) + _tidy(child.tail) for child in node]
    shape = _SHAPES.get(name, "")
    if shape and len(parts) == shape.count("{}"):
        return shape.format(*(part if _ATOM.fullmatch(part) else f"({part})" for part in parts))
    if name == "mfenced":
        inner = node.get("separators", ",")[:1].join(parts)
        return f"{node.get('open', '(')}{inner}{node.get('close', ')')}"
    if name == "mtable":
        return f"[{'; '.join(parts)}]"
    if name == "mtr":
        return ", ".join(parts)
    if name == "mroot" and len(parts) == 2:
        return f"{parts[1]}√({parts[0]})"
    inner = _row([_tidy(node.text).translate(_UNSEEN), *parts])
    return f"√({inner})" if name == "msqrt" else inner


def _row(parts: list[str]) -> str:
    """The parts side by side, a space where two words would run together."""
    out = [""]
    for part in parts:
        if part[:1].isalpha() and out[-1][-1:].isalpha() and len(part) + len(out[-1]) > 2:
            out.append(" ")
        if part:
            out.append(part)
    return "".join(out)
