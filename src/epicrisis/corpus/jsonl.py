"""Documents from JSON lines, plain or gzip: one object a line, read as a stream.

A broken line is left out, with its number and the reason; the good ones are kept. Knows nothing of folders, and not
whether an id was seen before (that would take memory for every line): an addition to a library tells that.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from epicrisis.corpus.compression import check_value_count, open_packed
from epicrisis.corpus.reader_base import Skipped, os_error_reason, printable_path
from epicrisis.types import Document

__all__ = ["LONGEST", "objects", "open_packed", "read"]

LONGEST = 32 * 1024 * 1024
"""Bytes of a line. A textbook has about 5 MB."""
MOST_VALUES = 2_000_000
"""Values of a line."""

_BOM = b"\xef\xbb\xbf"
_PIECE = 1 << 20


def read_documents(path: Path) -> Iterator[Document | Skipped]:
    """The documents in the file's order.

    `id` (or `_id`, or `pmid`: then the id is `pubmed:<pmid>`) and `text` are required; `title`, `source`, `date` and
    `patient` are optional. Every other key goes into the metadata, together with those of a `metadata` object (where
    both have a key, the line's own wins).
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
            yield Skipped(printable_path(path), f"line {number}", describe_errors(error))
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
    """The file's objects with their line numbers, from 1; blank lines are passed over.

    A line of more than LONGEST bytes is passed over without being held. A file that breaks off (a gzip file cut short,
    a disk error) gives the lines before and then says where it broke.
    Of a gzip file garbled in its middle the last of those lines may be wrong ones: its checksum comes only at the end.
    """
    number = 0
    empty = True
    try:
        with open_packed(path) as file:
            for number, raw in enumerate(iter(lambda: file.readline(LONGEST + 1), b""), 1):
                if len(raw) > LONGEST and not raw.endswith(b"\n"):
                    empty = False
                    yield Skipped(printable_path(path), f"line {number}", _too_long(len(raw) + _passed_over(file)))
                    continue
                line = raw.removeprefix(_BOM) if number == 1 else raw
                if not line.strip():
                    continue
                empty = False
                try:
                    yield number, _parse(line)
                except ValueError as error:
                    yield Skipped(printable_path(path), f"line {number}", str(error))
    except (OSError, EOFError, zlib.error) as error:
        cause = os_error_reason(error) if isinstance(error, OSError) else str(error)
        yield Skipped(
            printable_path(path), f"after line {number}", f"the file breaks off ({cause}); fetch or make it again"
        )
        return
    if empty:
        yield Skipped(printable_path(path), "", "holds no line but blank ones")


def _passed_over(file: IO[bytes]) -> int:
    """Read to the end of the line, and return how many bytes that was."""
    size = 0
    while piece := file.readline(_PIECE):
        size += len(piece)
        if piece.endswith(b"\n"):
            break
    return size


def _too_long(size: int) -> str:
    limit = LONGEST // 2**20
    return f"a line of {size / 2**20:,.0f} MB, and the limit is {limit}; make it several documents, a line each"


def _parse(line: bytes) -> dict[str, Any]:
    """Raises ValueError with a reason that repeats nothing of the line."""
    from epicrisis.corpus.line_schemas import find_json_fault

    check_value_count(line, MOST_VALUES)
    try:
        value = json.loads(line.rstrip().decode())
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 at byte {error.start + 1}; save the file as UTF-8") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at character {error.pos + 1}") from error
    except (ValueError, RecursionError) as error:
        raise ValueError("not JSON that can be read: a number too long, or nested too deep") from error
    if not isinstance(value, dict):
        raise ValueError("not a JSON object; each line must be one, with id and text")  # noqa: TRY004
    if wrong := find_json_fault(value):
        raise ValueError(wrong)
    return value
