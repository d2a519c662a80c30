"""Read documents from JSON lines, plain or gzip: one object a line, as a stream. Limit all JSON from outside.

UTF-16, which PowerShell writes, is read too.
A broken line is skipped with its number and the reason. Repeated ids are left to the library.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from epicrisis.core.types import Document
from epicrisis.corpus.base.encodings import detect_wide_encoding, encoding_remark, open_as_utf8
from epicrisis.corpus.base.note_times import leave_out_no_date
from epicrisis.corpus.base.reader_base import READ_ERRORS, FileRemark, Skipped, describe_read_error, skip

MAX_LINE_BYTES = 32 * 1024 * 1024
"""Limit of a line. A textbook has about 5 MB."""
MAX_LINE_VALUES = 2_000_000
MAX_VALUES = 20_000_000
"""Values of a JSON file that is parsed in one go: about 2 GB of memory. 10 MB of JSON can take 300 MB."""
MAX_DEPTH = 32

_BOM = b"\xef\xbb\xbf"
_PIECE_BYTES = 1 << 20

NumberedObject: TypeAlias = tuple[int, dict[str, Any]]
"""A line's number, from 1, and its object."""
T = TypeVar("T")


def read_documents(path: Path) -> Iterator[Document | Skipped]:
    """Yield the documents in the file's order.

    `id` (or `_id`, or `pmid`, giving the id `pubmed:<pmid>`) and `text` are required; `title`, `source`, `date` and
    `patient` are optional. Every other key goes into the metadata, with the members of a `metadata` object; if both
    have a key, the line's own value is used.
    """
    for item in convert_objects(path, read_objects(path), _build_document):
        if isinstance(item, Skipped) and item.where.startswith("line ") and ";" not in item.reason:
            item = replace(item, reason=f"{item.reason}; correct the line")
        yield item


def _build_document(number: int, value: dict[str, Any]) -> Document:
    from epicrisis.corpus.base.line_schemas import DocumentLine, validate

    line = validate(DocumentLine, value)
    document = Document(
        id=line.id,
        text=line.text,
        title=line.title,
        source=line.source,
        date=line.date,
        patient=line.patient,
        metadata={**(line.metadata or {}), **(line.model_extra or {})},
    )
    return leave_out_no_date(document)


def convert_objects(
    path: Path, items: Iterable[NumberedObject | Skipped], convert: Callable[[int, dict[str, Any]], T]
) -> Iterator[T | Skipped]:
    """Yield the conversion of each object; it is `Skipped` if the conversion raises ValueError with the reason."""
    for item in items:
        if isinstance(item, Skipped):
            yield item
            continue
        try:
            yield convert(*item)
        except ValueError as error:
            yield skip(path, f"line {item[0]}", str(error))


@dataclass(frozen=True, slots=True)
class JsonLine:
    """An object and its line: number from 1, and place in the file in bytes, unpacked if it is gzip."""

    number: int
    value: dict[str, Any]
    start: int
    """-1 in a file that is not UTF-8."""
    size: int


def read_objects(path: Path) -> Iterator[NumberedObject | Skipped]:
    """Yield the file's objects with their line numbers, see `read_lines`."""
    for item in read_lines(path):
        yield item if isinstance(item, Skipped) else (item.number, item.value)


def read_lines(path: Path) -> Iterator[JsonLine | Skipped]:
    """Yield the file's objects with their lines, without blank lines.

    A line of more than MAX_LINE_BYTES is skipped without being loaded. A file that breaks off yields the lines before
    and then a `Skipped` naming the place. Of a gzip file garbled in the middle, the last of those lines may be wrong.
    """
    number = end = 0
    is_empty = True
    try:
        encoding = detect_wide_encoding(path)
        with open_as_utf8(path, encoding) as file:
            while raw := file.readline(MAX_LINE_BYTES + 1):
                number += 1
                start, end = end, end + len(raw)
                if len(raw) > MAX_LINE_BYTES and not raw.endswith(b"\n"):
                    is_empty = False
                    size, piece = len(raw), raw
                    while piece and not piece.endswith(b"\n"):
                        piece = file.readline(_PIECE_BYTES)
                        size += len(piece)
                    end = start + size
                    reason = f"a line of {size / 2**20:,.0f} MB, and the limit is {MAX_LINE_BYTES // 2**20}"
                    yield skip(path, f"line {number}", f"{reason}; split it into several documents, one a line")
                    continue
                line = raw.removeprefix(_BOM) if number == 1 else raw
                if not line.strip():
                    continue
                is_empty = False
                try:
                    yield JsonLine(number, parse_line(line), -1 if encoding else start, len(raw))
                except ValueError as error:
                    yield skip(path, f"line {number}", str(error))
    except READ_ERRORS as error:
        yield skip(path, f"after line {number}", describe_read_error(error))
        return
    if is_empty:
        yield skip(path, "", "has only blank lines")


def parse_line(line: bytes) -> dict[str, Any]:
    """Return the object of a line. Raises ValueError with the reason."""
    check_value_count(line, MAX_LINE_VALUES)
    try:
        value = json.loads(line.rstrip().decode())
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 at byte {error.start + 1}; save the file as UTF-8") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at character {error.pos + 1}") from error
    except (ValueError, RecursionError) as error:
        raise ValueError("JSON that cannot be read: a number is too long, or the nesting too deep") from error
    if not isinstance(value, dict):
        raise ValueError("not a JSON object; each line must be one, with id and text")  # noqa: TRY004
    if fault := find_json_fault(value):
        raise ValueError(fault)
    return value


def check_value_count(raw: bytes, limit: int = MAX_VALUES) -> None:
    """Raise ValueError for JSON with more than `limit` values, estimated from above by its commas and brackets."""
    if raw.count(b",") + raw.count(b"[") + raw.count(b"{") > limit:
        raise ValueError(f"holds more than {limit:,} values; split it")


def find_json_fault(value: Any, depth: int = 0) -> str | None:
    """Return why no store, prompt or record could hold this parsed JSON, or None. It repeats none of the value."""
    if isinstance(value, dict):
        members: Iterable[Any] = chain.from_iterable(value.items())
    elif isinstance(value, list):
        members = value
    else:
        return _find_leaf_fault(value)
    if value and depth >= MAX_DEPTH:
        return f"nested deeper than {MAX_DEPTH} levels"
    for member in members:
        kind = type(member)
        if kind is str and member.isascii() and "\0" not in member:
            # Most values; a call for each would take most of the time.
            continue
        fault = find_json_fault(member, depth + 1) if kind in (dict, list) else _find_leaf_fault(member)
        if fault:
            return fault
    return None


def _find_leaf_fault(value: Any) -> str | None:
    if isinstance(value, float) and not math.isfinite(value):
        return "holds a number that is not finite"
    if isinstance(value, str):
        if "\0" in value:
            return "contains a NUL character"
        try:
            value.encode()
        except UnicodeEncodeError:
            return "contains half of a surrogate pair, which is not a character"
    return None


def read_file(path: Path) -> Iterator[Document | Skipped | FileRemark]:
    """Yield the documents of a file, and a remark if it is not UTF-8."""
    yield from read_documents(path)
    with suppress(*READ_ERRORS):
        if encoding := detect_wide_encoding(path):
            yield encoding_remark(path.name, encoding)
