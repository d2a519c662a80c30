r"""Split files of HL7 v2 into messages, segments and fields: batches, MLLP frames, any line ends and delimiters.

    for place, message in read_messages(path):
        message.kind, message.segments[1].text(3)    # "ORU", "4711"

A line that begins with no segment's name continues the field before it, as some senders write texts. No parser of the
registry is used, see docs/design/records.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from epicrisis.corpus.base.encodings import ENCODED_TWICE, decode_text
from epicrisis.corpus.base.reader_base import READ_ERRORS, Skipped, describe_read_error, open_packed, read_head, skip

MAX_FILE_BYTES = 512 * 1024 * 1024
_BEGINNING = re.compile(rb"[\s\x0b]*(?:\xef\xbb\xbf)?(?:MSH|FHS|BHS)[^\w\s][^\w\s]{2,6}")
_SEGMENT = re.compile(rb"[A-Z][A-Z0-9]{2}(?=[^\w\s]|$)")
_MLLP = bytes.maketrans(b"\x0b\x1c", b"\n\n")
_LINE_END = re.compile(rb"\r\n?|\n")
_ENVELOPES = (b"FHS", b"BHS", b"BTS", b"FTS")
_CHARSETS = {
    "UNICODE UTF-8": "utf-8",
    "UNICODE": "utf-8",
    "UTF-8": "utf-8",
    "UTF8": "utf-8",
    "8859/1": "cp1252",
    "GB 18030-2000": "gb18030",
    "WINDOWS-1252": "cp1252",
    **{f"8859/{number}": f"iso8859-{number}" for number in (2, 3, 4, 5, 6, 7, 8, 9, 15)},
}
"""Python's encodings for MSH-18. What senders call Latin 1 is Windows-1252, which has more characters."""
_LAYOUT = {".br": "\n", ".sp": "\n", ".ce": "\n", ".sk": " ", ".in": " ", ".ti": " ", ".fi": "", ".nf": ""}
_LAYOUT_SEQUENCE = re.compile(r"(\.[a-z]{2})\s?([+-]?\d{1,3})?")
_MAX_REPEATS = 10
_DELETED = '""'


@dataclass(frozen=True, slots=True)
class Delimiters:
    """The signs of a message, from MSH-1 and MSH-2."""

    field: str = "|"
    component: str = "^"
    repetition: str = "~"
    escape: str = "\\"
    subcomponent: str = "&"


@dataclass(frozen=True, slots=True)
class Hl7Segment:
    """A segment; `fields[n]` is field n, with its escape sequences."""

    name: str
    fields: tuple[str, ...]
    delimiters: Delimiters
    encoding: str = "utf-8"

    def raw(self, field: int) -> str:
        """Return a field as it is written; empty if it is missing, or deleted by its sender."""
        value = self.fields[field] if field < len(self.fields) else ""
        return "" if value == _DELETED else value

    def repetitions(self, field: int) -> list[list[str]]:
        """Return the components of each repetition of a field, as text."""
        rows: list[list[str]] = []
        for repetition in self.raw(field).split(self.delimiters.repetition):
            if repetition:
                rows.append([self.unescape(part) for part in repetition.split(self.delimiters.component)])
        return rows

    def text(self, field: int, component: int = 1) -> str:
        """Return one component of the first repetition of a field, or an empty string."""
        repetition = self.raw(field).partition(self.delimiters.repetition)[0]
        components = repetition.split(self.delimiters.component)
        value = components[component - 1] if component <= len(components) else ""
        return "" if value == _DELETED else self.unescape(value).strip()

    def free_text(self, field: int) -> str:
        """Return a field of words, in which components are no parts, with a line for each repetition."""
        return "\n".join(self.unescape(part) for part in self.raw(field).split(self.delimiters.repetition))

    def unescape(self, text: str) -> str:
        """Return text without escape sequences; an unknown one stays."""
        escape = re.escape(self.delimiters.escape)
        if not escape or self.delimiters.escape not in text:
            return text
        return re.sub(rf"{escape}([^{escape}\r\n]{{1,400}}){escape}", partial(_replace_escape, self), text)


def _replace_escape(segment: Hl7Segment, match: re.Match[str]) -> str:
    code, signs = match[1], segment.delimiters
    words = {
        "F": signs.field,
        "S": signs.component,
        "T": signs.subcomponent,
        "R": signs.repetition,
        "E": signs.escape,
        "H": "",
        "N": "",
    }
    if code in words:
        return words[code]
    layout = _LAYOUT_SEQUENCE.fullmatch(code)
    if layout and layout[1] in _LAYOUT:
        repeats = abs(int(layout[2])) if layout[2] and layout[1] != ".ti" else 1
        return _LAYOUT[layout[1]] * min(max(repeats, 1), _MAX_REPEATS)
    if code[0] == "X":
        try:
            return bytes.fromhex(code[1:]).decode(segment.encoding)
        except ValueError:
            return match[0]
    return match[0]


@dataclass(frozen=True, slots=True)
class Hl7Message:
    """A message: its segments, MSH first."""

    segments: tuple[Hl7Segment, ...]

    @property
    def header(self) -> Hl7Segment:
        """The MSH segment."""
        return self.segments[0]

    @property
    def kind(self) -> str:
        """`ORU`, `MDM`, `ADT` and so on."""
        return self.header.text(9).upper()

    @property
    def event(self) -> str:
        """`R01`, `T02` and so on."""
        return self.header.text(9, 2).upper()


def is_hl7(path: Path) -> bool:
    """Return whether the file begins with a header of HL7 v2."""
    head = read_head(path)
    return not head.is_damaged and _BEGINNING.match(head.data[:200]) is not None


def read_messages(path: Path) -> Iterator[tuple[str, Hl7Message | Skipped]]:
    """Yield the messages with their places (`message 3`), and what cannot be read."""
    try:
        with open_packed(path) as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except READ_ERRORS as error:
        yield "", skip(path, "", describe_read_error(error))
        return
    if len(data) > MAX_FILE_BYTES:
        yield "", skip(path, "", f"larger than {MAX_FILE_BYTES // 2**20} MB; split it")
        return
    lines: list[bytes] = []
    number = 0
    for line in _LINE_END.split(data.removeprefix(b"\xef\xbb\xbf").translate(_MLLP)):
        if line.startswith(b"MSH"):
            if lines:
                yield _read_message(path, number, lines)
            number += 1
            lines = [line]
        elif lines and line.strip() and not line.startswith(_ENVELOPES):
            lines.append(line)
        elif line.strip() and not line.startswith(_ENVELOPES):
            yield "", skip(path, "before message 1", "a line before the first MSH segment; export the file again")
    if lines:
        yield _read_message(path, number, lines)


def _read_message(path: Path, number: int, lines: list[bytes]) -> tuple[str, Hl7Message | Skipped]:
    place = f"message {number}"
    header = lines[0]
    if len(header) < 8 or header[3:4].isalnum():
        return place, skip(path, place, "its MSH segment names no delimiters; export it again")
    delimiters = _read_delimiters(header)
    if delimiters is None:
        return place, skip(path, place, "its MSH segment names no delimiters; export it again")
    try:
        text, encoding = _decode(lines, delimiters)
    except ValueError as error:
        return place, skip(path, place, str(error))
    segments: list[Hl7Segment] = []
    for line in text.split("\r"):
        fields = line.split(delimiters.field)
        if fields[0] == "MSH":
            # The sign between the fields is itself the first field.
            fields.insert(1, delimiters.field)
        segments.append(Hl7Segment(fields[0], tuple(fields), delimiters, encoding))
    return place, Hl7Message(tuple(segments))


def _read_delimiters(header: bytes) -> Delimiters | None:
    """Return the signs of a message, or None if they are not different signs."""
    field = header[3:4]
    signs = header[4:].partition(field)[0]
    text = (field + signs).decode("ascii", "replace")
    if not 3 <= len(text) <= 6 or len(set(text)) != len(text) or any(sign.isalnum() for sign in text):
        return None
    return Delimiters(*text[:5])


def _decode(lines: list[bytes], delimiters: Delimiters) -> tuple[str, str]:
    """Return the segments, separated by CR, and their encoding. Raises ValueError with the reason."""
    separator = delimiters.field.encode()
    joined: list[bytes] = []
    for line in lines:
        name = _SEGMENT.match(line)
        if joined and (name is None or (len(line) > 3 and line[3:4] != separator)):
            # A line end within a field.
            joined[-1] += b"\n" + line
        else:
            joined.append(line)
    data = b"\r".join(joined)
    declared = joined[0].split(separator)
    charset = (
        declared[17].split(delimiters.repetition.encode())[0].decode("ascii", "replace") if len(declared) > 17 else ""
    )
    encoding = _CHARSETS.get(charset.strip().upper(), "")
    if encoding:
        try:
            return data.decode(encoding), encoding
        except UnicodeDecodeError:
            pass
    text, detected = decode_text(data)
    return text, "utf-8" if detected in ("", ENCODED_TWICE) else detected
