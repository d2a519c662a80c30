"""Parse XML from outside safely (no entity is expanded, nothing is fetched), and turn mixed content into readable text.

`element_text` gives one line of text by these rules. Runs of spaces, tabs and line ends become one space. Bold, italics
and other inline markup are dropped. A subscript is written as it is spoken, `H2O`, `Tmax`; after a digit with `_`, so
that no other number arises. A superscript beginning with a digit or a signed digit gets a `^` after a letter, a digit
or a closing bracket (`10^-3`, `m^2`), and so does a single letter after a digit (`10^n`). Charges, genotypes, isotopes
and others stay as commonly written (`Ca2+`, `CD4+`, `99mTc`). The number of a cited work or footnote is in brackets
(`12 [3] percent`, `12 [note 1]`), so that it is no power. MathML is linear: `(a+b)/c`, `x_i^2`, `√(x)`. An entity
of HTML becomes its character; any other stays as `&name;`.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, cast

from epicrisis.corpus.base.reader_base import READ_ERRORS, describe_read_error, open_packed, read_head

if TYPE_CHECKING:
    from lxml.etree import _Element, _ElementTree

MAX_RECORD_BYTES = 16 * 1024 * 1024
"""Limit of one record, or one article. A paper of 5,000 authors takes a third."""

_CHUNK_BYTES = 64 * 1024
_SAFE: dict[str, Any] = {
    "resolve_entities": False,
    "no_network": True,
    "load_dtd": False,
    "huge_tree": False,
    "remove_comments": True,
    "remove_pis": True,
}


_KNOWN_ELEMENT = re.compile(
    rb"<(?:(Pubmed(?:Book)?Article|DeleteCitation)|(?:\w+:)?(?:(ClinicalDocument)|article)[\s>])"
)


class BrokenXML(Exception):
    """The file cannot be read further. The message says why and what to do, and repeats none of the text."""


def detect_xml_kind(path: Path) -> Literal["pubmed", "nxml", "ccda"] | None:
    """Return the kind of XML, by the first known element in the first 64 KiB (unpacked), or None. Raises OSError."""
    # Without the NULs, UTF-16 looks like ASCII. The reader will report a damage.
    match = _KNOWN_ELEMENT.search(read_head(path).data[:_CHUNK_BYTES].replace(b"\0", b""))
    if match is None:
        return None
    if match[1]:
        return "pubmed"
    return "ccda" if match[2] else "nxml"


def read_records(path: Path, tags: tuple[str, ...]) -> Iterator[_Element]:
    """Yield the elements with these tags in the file's order. An element is valid only until the next one.

    Memory is bounded by MAX_RECORD_BYTES. Raises BrokenXML if the file breaks off, after the complete elements.
    """
    from lxml import etree

    is_first = True
    try:
        with open_packed(path) as file:
            source = _Source(file)
            # Cast because the stubs lack some parameters.
            walk: Iterable[tuple[str, _Element]] = cast(Any, etree.iterparse)(source, tag=tags, **_SAFE)
            for _, element in walk:
                if is_first:
                    _refuse_entities(element.getroottree())
                    is_first = False
                yield element
                source.allowance = MAX_RECORD_BYTES
                # The element itself stays until the next one: the parser may still be writing what follows it.
                parent = element.getparent()
                while parent is not None and element.getprevious() is not None:
                    del parent[0]
    except (etree.XMLSyntaxError, *READ_ERRORS) as error:
        raise BrokenXML(_describe_error(error)) from error


def parse_file(path: Path) -> _Element:
    """Return the root of a file of at most MAX_RECORD_BYTES. Raises BrokenXML."""
    try:
        with open_packed(path) as file:
            return parse_stream(file)
    except READ_ERRORS as error:
        raise BrokenXML(_describe_error(error)) from error


def parse_stream(file: IO[bytes], limit: int = MAX_RECORD_BYTES) -> _Element:
    """Return the root of a stream of at most `limit` bytes. Raises BrokenXML."""
    from lxml import etree

    source = _Source(file)
    source.allowance = limit
    try:
        # Cast because the stubs lack some parameters.
        tree: _ElementTree = etree.parse(cast(Any, source), cast(Any, etree.XMLParser)(**_SAFE))
    except (etree.XMLSyntaxError, *READ_ERRORS) as error:
        raise BrokenXML(_describe_error(error)) from error
    _refuse_entities(tree)
    return tree.getroot()


class _Source:
    """The bytes of a file, until the allowance is used up."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.allowance = MAX_RECORD_BYTES

    def read(self, size: int = -1) -> bytes:
        data = _read_some(self._file, _CHUNK_BYTES)
        self.allowance -= len(data)
        if self.allowance < 0:
            raise BrokenXML(
                f"more than {MAX_RECORD_BYTES // 2**20} MiB without the end of a record; check what file this is"
            )
        return data


def _read_some(file: IO[bytes], size: int) -> bytes:
    """Return at most `size` bytes. Unlike `read`, this returns the bytes before the damage of a gzip file."""
    return cast(bytes, cast(Any, file).read1(size))


def _refuse_entities(tree: _ElementTree) -> None:
    dtd = tree.docinfo.internalDTD
    if dtd is not None and next(iter(cast(Any, dtd).iterentities()), None) is not None:
        raise BrokenXML("declares its own entities, which are never expanded; get the file from its publisher")


def _describe_error(error: Any) -> str:
    """Return why reading failed. libxml2's own message is not repeated because it may contain some of the text."""
    from lxml import etree

    if isinstance(error, READ_ERRORS):
        return describe_read_error(error)
    if error.code in (etree.ErrorTypes.ERR_ENTITY_LOOP, etree.ErrorTypes.ERR_RESOURCE_LIMIT):
        return "its entities, texts or nesting exceed the parser's limits; fetch the file from its publisher"
    if error.code in _ENCODING_ERRORS:
        return "its bytes are not in the encoding that it declares (UTF-8 if it declares none); save it as UTF-8"
    line, column = error.position
    place = f" at line {line}, column {column}" if line else ""
    return f"not well-formed XML{place}, or cut off there; fetch it again or recreate it"


_ENCODING_ERRORS = (9, 31, 32, 81)
"""libxml2's codes for invalid characters, unknown and unsupported encodings, and invalid bytes."""
_SPACES = re.compile(r"[ \t\r\n]+")
_POWER = re.compile(r"[+\-−–]?\d")
_CITED_NUMBERS = re.compile(r"\d{1,4}(?:[,;–—-]\d{1,4}){0,40}[a-z]?")
_RAISED_CITATION = re.compile(r"\d{1,3}(?:[,;–—-] ?\d{1,3}){0,20}")
_CITED_BEFORE = re.compile(r" \[\d[\d,;–—-]{0,80}\](?:\s?[,;–—-]|,? and)?\s{0,3}$")
_PUNCTUATION = ".,;:?!”’"
_BRACKET_PIECES = 60
"""Pieces of text before a citation among which an open bracket is searched."""
_CHARGE = re.compile(r"\d*[+\-−–]+")
_BLOCKS = frozenset(
    "p title label list list-item def-list def-item term def sec br break td th tr table caption disp-formula "  # noqa: SIM905
    "DispFormula disp-quote boxed-text fn attrib".split()
)


def element_text(element: _Element) -> str:
    """Return the element's text on one line, without its tail, by the rules in the module's docstring."""
    raw = _mixed(element) if len(element) else element.text
    if not raw or raw.isalnum():
        return raw or ""
    # Four searches in C take a tenth of the time of one regular expression.
    if "\n" in raw or "  " in raw or "\t" in raw or "\r" in raw:
        raw = _SPACES.sub(" ", raw)
    return raw.strip(" ")


def _mixed(element: _Element) -> str:
    out = [element.text or ""]
    for child in element:
        write_inline(child, out)
        if child.tail:
            out.append(child.tail)
    return "".join(out)


def is_raised_citation(before: str, number: str) -> bool:
    """Return whether a raised number behind a number cites a work: it is positive, and no power of ten."""
    follows = before[-1:].isdigit() or before.endswith("%")
    return follows and not before.endswith(("10", "l0")) and _RAISED_CITATION.fullmatch(number) is not None


def write_inline(child: Any, out: list[str]) -> None:
    """Append the child's text to the pieces in `out`. A subscript may shorten the last piece."""
    if not isinstance(child.tag, str):
        out.append(html.unescape(child.text or ""))
        return
    name = child.tag.rpartition("}")[2]
    if citation := _find_citation(child, name, out):
        out.append(citation)
    elif name == "sub":
        _write_subscript(_mixed(child), out)
    elif name == "sup":
        content, before = _mixed(child), _last(out)
        inner = content.strip()
        follows = before.isalnum() or before in (")", "]", "}")
        power = follows and _POWER.match(inner) and not _CHARGE.fullmatch(inner)
        index = before.isdigit() and len(inner) == 1 and inner.isalpha()
        if is_raised_citation("".join(out[-_BRACKET_PIECES:]), inner):
            out.append(f" [{inner}]")
        else:
            out.append(f"^{content.lstrip()}" if power or index else content)
    elif name == "math":
        out.append(_linear(child))
    elif name == "alternatives":
        # The most readable of several forms of one thing, else all forms.
        forms = {form.tag.rpartition("}")[2]: form for form in child if isinstance(form.tag, str)}
        best = next((item for item in ("math", "table", "tex-math", "textual-form") if item in forms), None)
        if best is None:
            out.append(_mixed(child))
        else:
            write_inline(forms[best], out)
    elif name == "tex-math":
        # The formula without the document that publishers wrap around it.
        source = child.text or ""
        body = source.partition(r"\begin{document}")[2].partition(r"\end{document}")[0] or source
        out.append(body.strip().strip("$").strip())
    else:
        inner = _mixed(child)
        out.append(f" {inner} " if name in _BLOCKS else inner)


def _find_citation(child: Any, name: str, out: list[str]) -> str:
    """Return the numbers of works cited or of footnotes in brackets, or an empty string for another element.

    `12<sup><xref ref-type="bibr">3</xref></sup>` is `12 [3]`, which is no power, and neither are numbers raised after
    a punctuation mark.
    """
    if name not in ("sup", "xref"):
        return ""
    references = [child, *child.iter("{*}xref", "xref")]
    kinds = {element.get("ref-type") for element in references} - {None}
    numbers = _SPACES.sub("", "".join(child.itertext()))
    before = _last(out)
    text = "".join(out[-_BRACKET_PIECES:])
    is_continued = name == "xref" and "bibr" in kinds and _CITED_BEFORE.search(text) is not None
    if not _CITED_NUMBERS.fullmatch(numbers) or not before or (before.isspace() and not is_continued):
        return ""
    if is_continued:
        return f"[{numbers}]"
    if name == "sup" and not kinds:
        # `,<sup>13</sup>C` is an isotope.
        is_raised = before in _PUNCTUATION and not (child.tail or "")[:1].isalpha()
        return f" [{numbers}]" if is_raised else ""
    is_citation = "bibr" in kinds
    is_raised = name == "sup" or child.find("{*}sup") is not None or child.find("sup") is not None
    if not is_raised and (before in "[(–—-" or text.rfind("[") > text.rfind("]") or text.rfind("(") > text.rfind(")")):
        return ""
    if is_citation:
        return f" [{numbers}]"
    return f" [note {numbers}]" if is_raised and before.isalnum() else ""


def _last(out: list[str]) -> str:
    """Return the last character so far, or an empty string."""
    for piece in reversed(out):
        if piece:
            return piece[-1]
    return ""


def _write_subscript(content: str, out: list[str]) -> None:
    inner = content.strip()
    if inner[:1].isdigit():
        # `CO <sub>2</sub>`: the space is the typesetter's; a lowered number belongs to the word before it.
        while out and not (shortened := out[-1].rstrip(" \t\r\n")):
            out.pop()
        if out:
            out[-1] = shortened
        content = ("_" if _last(out).isdigit() else "") + content.lstrip()
    out.append(content)


_INVISIBLE = str.maketrans("", "", "\u2061\u2062\u2063\u2064")
"""Invisible operators: function application, times, separator, plus."""
_ATOM = re.compile(r"[+\-−]?\w*|\([^()]*\)")
_SHAPES = {
    **dict.fromkeys(("msup", "mover"), "{}^{}"),
    **dict.fromkeys(("msub", "munder"), "{}_{}"),
    **dict.fromkeys(("msubsup", "munderover"), "{}_{}^{}"),
    "mfrac": "{}/{}",
}


def _linear(node: Any) -> str:
    """Return MathML on one line."""
    if not isinstance(node.tag, str):
        return html.unescape(node.text or "")
    name = node.tag.rpartition("}")[2]
    if name == "semantics" and len(node):
        # The other children repeat the first, in TeX or in content markup.
        return _linear(node[0])
    if name == "mspace":
        return " "
    parts = [_linear(child) + _SPACES.sub(" ", child.tail or "").strip(" ") for child in node]
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
    inner = _row(_SPACES.sub(" ", node.text or "").strip(" ").translate(_INVISIBLE), *parts)
    return f"√({inner})" if name == "msqrt" else inner


def _row(*parts: str) -> str:
    """Return the parts side by side, with a space between two words."""
    out = [""]
    for part in parts:
        if part[:1].isalpha() and out[-1][-1:].isalpha() and len(part) + len(out[-1]) > 2:
            out.append(" ")
        if part:
            out.append(part)
    return "".join(out)
