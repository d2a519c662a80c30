"""Prepare office files for their reader: write raised digits as `10^9`, and remove comments and hidden or deleted text.

The library that reads office files drops the difference between 10⁹ and 109, and a few kinds of text that are not
printed. Here these are settled in the file's own markup. Nothing of a file is executed or fetched.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from epicrisis.corpus.base.xml_text import is_raised_citation

if TYPE_CHECKING:
    from lxml.etree import _Element

MAX_UNPACKED_BYTES = 512 * 1024 * 1024
"""Unpacked size of all parts of a file together."""

_WORD_PARTS = re.compile(r"word/(?:document|footnotes|endnotes)\.xml")
_SLIDES = re.compile(r"ppt/(?:slides|notesSlides)/[^/]+\.xml")
_SHARED_STRINGS = re.compile(r"xl/sharedStrings\.xml")
_OPEN_DOCUMENT_PARTS = re.compile(r"content\.xml")
_NUMBER = re.compile(r"[+\-−–]?\d")
_RTF_TOKEN = re.compile(rb"\\([a-z]{1,32})(-?\d{1,10})? ?|\\'[0-9a-fA-F]{2}|\\.|[{}]|[^\\{}]+", re.DOTALL)
_RTF_NUMBER = re.compile(rb"\s*[+-]?\d")
_RAISED_MARKS = {"superscript": "^", "subscript": "_"}


def prepare_office_file(data: bytes, format: str) -> tuple[bytes, int]:
    """Return the file for its reader, and how many pieces of hidden text were removed.

    `format` is `docx`, `pptx`, `xlsx`, `odt`, `odp` or `rtf`. Raises ValueError with the reason if the file is no such
    file, or unpacks to more than `MAX_UNPACKED_BYTES`.
    """
    if format == "rtf":
        return _prepare_rtf(data)
    parts, edit = _EDITS[format]
    return _edit_parts(data, parts, edit)


def _edit_parts(data: bytes, parts: re.Pattern[str], edit: Callable[[_Element], int]) -> tuple[bytes, int]:
    """Return the ZIP file with these XML parts edited, and the sum of what the edits return."""
    from lxml import etree

    hidden = 0
    output = io.BytesIO()
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as source, zipfile.ZipFile(output, "w") as target:
            if sum(entry.file_size for entry in source.infolist()) > MAX_UNPACKED_BYTES:
                raise ValueError(f"it unpacks to more than {MAX_UNPACKED_BYTES // 2**20} MB; split it")
            for entry in source.infolist():
                content = source.read(entry)
                if parts.fullmatch(entry.filename):
                    parser: Any = etree.XMLParser(resolve_entities=False, no_network=True)
                    root = etree.fromstring(content, parser)
                    hidden += edit(root)
                    content = etree.tostring(root, encoding="UTF-8", xml_declaration=True)
                target.writestr(entry.filename, content)
    except RuntimeError as error:
        # Python's ZIP reader reports an encrypted part so.
        raise ValueError("encrypted; save a copy without a password") from error
    except (zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError, EOFError, OSError) as error:
        raise ValueError("broken, or not the kind of file that its name says; save it again") from error
    except etree.XMLSyntaxError as error:
        raise ValueError("its XML is broken; open it in its program and save it again") from error
    return output.getvalue(), hidden


def _name(element: Any) -> str:
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""


def _attribute(element: Any, name: str) -> str:
    """Return the value of an attribute of any namespace, or an empty string."""
    for key, value in element.attrib.items():
        if key.rpartition("}")[2] == name:
            return str(value)
    return ""


def _children(element: Any, name: str) -> Iterator[Any]:
    return (child for child in element if _name(child) == name)


def _edit_word(root: _Element) -> int:
    """Mark raised digits in Word's runs and remove hidden runs. Return how many were removed."""
    hidden = 0
    for paragraph in root.iter("{*}p"):
        last = ""
        for run in list(paragraph.iter("{*}r")):
            if "relationships" in str(run.tag) or "math" in str(run.tag):
                continue
            position = ""
            is_hidden = False
            for properties in _children(run, "rPr"):
                for item in properties:
                    if _name(item) == "vertAlign":
                        position = _attribute(item, "val")
                    elif _name(item) == "vanish":
                        is_hidden = _attribute(item, "val") not in ("0", "false", "off")
            texts = list(_children(run, "t"))
            if is_hidden and any(text.text for text in texts):
                hidden += 1
                for text in texts:
                    run.remove(text)
                continue
            last = _mark_raised(texts, _RAISED_MARKS.get(position, ""), last)
    return hidden


def _edit_slide(root: _Element) -> int:
    """Mark raised digits in a slide's runs."""
    for paragraph in root.iter("{*}p"):
        last = ""
        for run in list(paragraph.iter("{*}r")):
            baseline = ""
            for properties in _children(run, "rPr"):
                baseline = properties.get("baseline", "")
            mark = "" if baseline in ("", "0") else "_" if baseline.startswith("-") else "^"
            last = _mark_raised(list(_children(run, "t")), mark, last)
    return 0


def _edit_strings(root: _Element) -> int:
    """Mark raised digits in the cells of a spreadsheet."""
    for cell in root.iter("{*}si"):
        last = ""
        for run in cell.iter("{*}r"):
            position = ""
            for item in run.iterfind("{*}rPr/{*}vertAlign"):
                position = item.get("val", "")
            last = _mark_raised(list(_children(run, "t")), _RAISED_MARKS.get(position, ""), last)
    return 0


def _edit_open_document(root: _Element) -> int:
    """Remove annotations, and mark raised digits."""
    from lxml import etree

    for annotation in [*root.iter("{*}annotation"), *root.iter("{*}annotation-end")]:
        parent = annotation.getparent()
        if parent is not None:
            etree.strip_elements(parent, annotation.tag, with_tail=False)
    marks: dict[str, str] = {}
    for style in root.iter("{*}style"):
        for properties in _children(style, "text-properties"):
            position = _attribute(properties, "text-position").partition(" ")[0]
            if position and position not in ("0%", "0"):
                marks[_attribute(style, "name")] = "_" if position.startswith(("sub", "-")) else "^"
    for span in root.iter("{*}span"):
        mark = marks.get(_attribute(span, "style-name"), "")
        if mark and span.text:
            span.text = _mark_text(_text_before(span), span.text, mark)
    return 0


def _text_before(element: Any) -> str:
    previous = element.getprevious()
    if previous is not None:
        return previous.tail or "".join(previous.itertext())
    parent = element.getparent()
    return (parent.text or "") if parent is not None else ""


def _mark_raised(texts: list[Any], mark: str, last: str) -> str:
    """Put the mark before a raised number that follows a digit. Return the last two characters of the texts."""
    for text in texts:
        value = text.text or ""
        if mark and value:
            text.text = _mark_text(last, value, mark)
        mark = ""
        last = (last + value)[-2:]
    return last


def _mark_text(before: str, text: str, mark: str) -> str:
    """Return raised or lowered text with its mark, if it is a number behind a digit: `10^9`, or `12 [3]`."""
    if mark == "^" and is_raised_citation(before, text.strip()):
        return f" [{text.strip()}]"
    return mark + text if before[-1:].isdigit() and _NUMBER.match(text) else text


_EDITS: dict[str, tuple[re.Pattern[str], Callable[[Any], int]]] = {
    "docx": (_WORD_PARTS, _edit_word),
    "pptx": (_SLIDES, _edit_slide),
    "xlsx": (_SHARED_STRINGS, _edit_strings),
    "odt": (_OPEN_DOCUMENT_PARTS, _edit_open_document),
    "odp": (_OPEN_DOCUMENT_PARTS, _edit_open_document),
}


def _prepare_rtf(data: bytes) -> tuple[bytes, int]:
    """Return the RTF file without deleted and hidden text, raised digits marked, and the pieces of hidden text."""
    if not data.lstrip().startswith(b"{\\rtf"):
        raise ValueError("not an RTF file; check what file this is")
    text = _RtfText()
    output = [text.read(token) for token in _RTF_TOKEN.finditer(data)]
    return b"".join(output), text.hidden


class _RtfText:
    """The state of an RTF file's characters while its tokens are read in order."""

    def __init__(self) -> None:
        self.hidden = 0
        """Pieces of hidden text so far."""
        self._state: _RtfState = _PLAIN
        self._groups: list[_RtfState] = []
        self._last = b""

    def read(self, token: re.Match[bytes]) -> bytes:
        """Return the token, empty if it is deleted or hidden text. Raises ValueError for binary data."""
        word, raw = token[1], token[0]
        if raw == b"{":
            self._groups.append(self._state)
        elif raw == b"}":
            self._state = self._groups.pop() if self._groups else _PLAIN
        elif word == b"bin":
            raise ValueError("contains binary data; open it in its program and save it as .docx")
        elif word in _RTF_STATES:
            self._state = _RTF_STATES[word](self._state, token[2] != b"0")
        elif word is None and raw.strip() and (not raw.startswith(b"\\") or raw.startswith(b"\\'")):
            return self._read_text(raw)
        return raw

    def _read_text(self, raw: bytes) -> bytes:
        is_deleted, is_hidden, mark = self._state
        if is_deleted or is_hidden:
            self.hidden += is_hidden
            return b""
        before = self._last
        self._last = (before + raw.strip(b"\r\n"))[-2:]
        number = raw.strip()
        if mark == b"^" and is_raised_citation(before.decode("latin-1"), number.decode("latin-1")):
            return b" [" + number + b"]"
        return mark + raw if mark and before[-1:].isdigit() and _RTF_NUMBER.match(raw) else raw


_RtfState = tuple[bool, bool, bytes]
"""Deleted, hidden, and the mark of raised or lowered text."""
_PLAIN: _RtfState = (False, False, b"")
_RTF_STATES: dict[bytes, Callable[[_RtfState, bool], _RtfState]] = {
    b"deleted": lambda state, is_on: (is_on, state[1], state[2]),
    b"v": lambda state, is_on: (state[0], is_on, state[2]),
    b"super": lambda state, is_on: (*state[:2], b"^" if is_on else b""),
    b"sub": lambda state, is_on: (*state[:2], b"_" if is_on else b""),
    b"nosupersub": lambda state, is_on: (*state[:2], b""),
    b"plain": lambda state, is_on: _PLAIN,
}
"""How control words change a state. `\\plain` resets all properties of characters."""
