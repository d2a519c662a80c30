"""Read documents from JSON lines, plain or gzip: one object a line, as a stream.

A broken line is skipped with its number and the reason, and the others are read. Repeated ids are left to the library,
since remembering them would take memory for every line.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from epicrisis.corpus.compression import READ_ERRORS, describe_read_error, open_packed
from epicrisis.corpus.json_checks import check_value_count, find_json_fault
from epicrisis.corpus.reader_base import Skipped, skip
from epicrisis.types import Document

MAX_LINE_BYTES = 32 * 1024 * 1024
"""Limit of a line. A textbook has about 5 MB."""
MAX_LINE_VALUES = 2_000_000
"""Limit of the JSON values of a line."""

_BOM = b"\xef\xbb\xbf"
_PIECE_BYTES = 1 << 20


def read_documents(path: Path) -> Iterator[Document | Skipped]:
    """Yield the documents in the file's order.

    `id` (or `_id`, or `pmid`, giving the id `pubmed:<pmid>`) and `text` are required; `title`, `source`, `date` and
    `patient` are optional. Every other key goes into the metadata, with the members of a `metadata` object; if both
    have a key, the line's own value is used.
    """
    from pydantic import ValidationError

    from epicrisis.corpus.line_schemas import DocumentLine, describe_errors

    for item in read_objects(path):
        if isinstance(item, Skipped):
            yield item
            continue
        number, value = item
        try:
            line = DocumentLine.model_validate(value)
        except ValidationError as error:
            yield skip(path, f"line {number}", describe_errors(error))
            continue
        yield Document(
            id=line.id,
            text=line.text,
            title=line.title,
            source=line.source,
            date=line.date,
            patient=line.patient,
            metadata={**(line.metadata or {}), **(line.model_extra or {})},
        )


def read_objects(path: Path) -> Iterator[tuple[int, dict[str, Any]] | Skipped]:
    """Yield the file's objects with their line numbers, from 1, without blank lines.

    A line of more than MAX_LINE_BYTES is skipped without being loaded. A file that breaks off (a truncated gzip file, a
    disk error) yields the lines before and then a `Skipped` naming the place. Of a gzip file garbled in the middle, the
    last of those lines may be wrong, since the checksum comes only at the end.
    """
    number = 0
    is_empty = True
    try:
        with open_packed(path) as file:
            while raw := file.readline(MAX_LINE_BYTES + 1):
                number += 1
                where = f"line {number}"
                if len(raw) > MAX_LINE_BYTES and not raw.endswith(b"\n"):
                    is_empty = False
                    yield skip(path, where, _too_long(len(raw) + _skip_line(file)))
                    continue
                line = raw.removeprefix(_BOM) if number == 1 else raw
                if not line.strip():
                    continue
                is_empty = False
                try:
                    yield number, _parse_line(line)
                except ValueError as error:
                    yield skip(path, where, str(error))
    except READ_ERRORS as error:
        yield skip(path, f"after line {number}", describe_read_error(error))
        return
    if is_empty:
        yield skip(path, "", "has only blank lines")


def _skip_line(file: IO[bytes]) -> int:
    """Read to the end of the line and return the number of bytes."""
    size = 0
    while piece := file.readline(_PIECE_BYTES):
        size += len(piece)
        if piece.endswith(b"\n"):
            break
    return size


def _too_long(size: int) -> str:
    limit = MAX_LINE_BYTES // 2**20
    return f"a line of {size / 2**20:,.0f} MB, and the limit is {limit}; split it into several documents, one a line"


def _parse_line(line: bytes) -> dict[str, Any]:
    """Return the line's object. Raises ValueError with a reason that repeats nothing of the line."""
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
