"""Receive uploaded files: a multipart body is written to the disk while it arrives, under random names.

    received = await receive_upload(request, folder, UploadLimits())

The name that the sender gives to a file is text for readers. It is cut to its last part and its printable characters,
and is never part of a path.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from fastapi import Request
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import ClientDisconnect

from epicrisis.core.errors import StorageError
from epicrisis.core.printable import printable
from epicrisis.corpus.readers.sources import find_suffix, list_suffixes
from epicrisis.server.base.http_errors import BodyTooLarge, UploadRefused
from epicrisis.server.libraries.streaming import ClientGone
from epicrisis.server.work.import_process import ReceivedFile
from epicrisis.system.local_only import open_private

MAX_NAME = 150
"""Characters of a file's name that are kept."""
_WRITE_BYTES = 1 << 20
_MAX_FIELD_BYTES = 1_000
_MAX_FIELDS = 10
_PUBMED = re.compile(r"pubmed(\d\d)n(\d{1,5})(?!\d)", re.ASCII)
"""PubMed numbers its files, and the numbers order the revisions of an article."""


@dataclass(frozen=True, slots=True)
class UploadLimits:
    """What one upload may be."""

    file_bytes: int = 200_000_000
    upload_bytes: int = 1_000_000_000
    files: int = 200
    free_bytes: int = 1_000_000_000
    """Free disk that an upload must leave."""
    memory_bytes: int = 8 * 1024**3
    """Memory of an import, with encoder and library. The replies of parsers, up to 512 MB of JSON, and the longest
    texts take 3 GB; encoders that run on torch take the most besides."""
    processor_seconds: int = 3_600
    """Processor time of an import without a sign of progress: a file, a commit, or 256 passages encoded. The slowest
    encoders take minutes for these, and an hour is no limit for a busy machine."""


@dataclass(frozen=True, slots=True)
class ReceivedUpload:
    """The content of an upload."""

    files: tuple[ReceivedFile, ...]
    fields: dict[str, str]
    """The fields of the form that are no files."""


async def receive_upload(request: Request, folder: Path, limits: UploadLimits) -> ReceivedUpload:
    """Write the files of a multipart body to a folder, and return what was received.

    Raises UploadRefused for a body of another form or without a file, BodyTooLarge, StorageError, and ClientGone.
    """
    media_type, options = parse_options_header(request.headers.get("content-type", ""))
    boundary = options.get(b"boundary", b"")
    if media_type != b"multipart/form-data" or not boundary:
        raise UploadRefused("the body is not multipart/form-data with a boundary")
    receiver = _Receiver(folder, limits)
    try:
        receiver.start(boundary)
        pending = bytearray()
        async for chunk in request.stream():
            pending += chunk
            if len(pending) >= _WRITE_BYTES:
                await asyncio.to_thread(receiver.write, bytes(pending))
                pending.clear()
        await asyncio.to_thread(receiver.write, bytes(pending))
        return receiver.finish()
    except ClientDisconnect:
        raise ClientGone from None
    except FormParserError:
        raise UploadRefused("the body is no well-formed multipart/form-data") from None
    except OSError as error:
        raise StorageError(f"the upload cannot be stored: {error.strerror}") from None
    finally:
        receiver.close()


class _Part:
    """The part of the body that is being read."""

    def __init__(self) -> None:
        self.headers: dict[bytes, bytes] = {}
        self.field_name = self.name = self.stored = self.refusal = ""
        self.is_file = False
        self.size = 0
        self.data = bytearray()


class _Receiver:
    """Writes the parts of one multipart body."""

    def __init__(self, folder: Path, limits: UploadLimits) -> None:
        self._folder = folder
        self._limits = limits
        self._part = _Part()
        self._header = (bytearray(), bytearray())
        self._file: BinaryIO | None = None
        self._files: list[ReceivedFile] = []
        self._fields: dict[str, str] = {}
        self._has_ended = False

    def start(self, boundary: bytes) -> None:
        """Begin a body with this boundary."""
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._begin_part,
                "on_header_field": self._read_header_name,
                "on_header_value": self._read_header_value,
                "on_header_end": self._end_header,
                "on_headers_finished": self._begin_content,
                "on_part_data": self._read_content,
                "on_part_end": self._end_part,
                "on_end": self._end,
            },
        )

    def write(self, data: bytes) -> None:
        """Read the next bytes of the body."""
        self._parser.write(data)

    def finish(self) -> ReceivedUpload:
        """Return what was received. Raises UploadRefused for a body that breaks off or has no file."""
        self._parser.finalize()
        if not self._has_ended:
            raise UploadRefused("the body breaks off before its last boundary")
        if not self._files:
            raise UploadRefused("no file was chosen")
        return ReceivedUpload(tuple(self._files), self._fields)

    def close(self) -> None:
        """Close a file that is still open."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _begin_part(self) -> None:
        self._part = _Part()

    def _read_header_name(self, data: bytes, start: int, end: int) -> None:
        self._header[0].extend(data[start:end])

    def _read_header_value(self, data: bytes, start: int, end: int) -> None:
        self._header[1].extend(data[start:end])

    def _end_header(self) -> None:
        self._part.headers[bytes(self._header[0]).lower()] = bytes(self._header[1])
        self._header = (bytearray(), bytearray())

    def _begin_content(self) -> None:
        part = self._part
        _, options = parse_options_header(part.headers.get(b"content-disposition", b"").decode("latin-1"))
        part.field_name = options.get(b"name", b"").decode("utf-8", "replace")
        part.is_file = b"filename" in options
        if not part.is_file:
            if len(self._fields) >= _MAX_FIELDS:
                raise UploadRefused(f"more than {_MAX_FIELDS} fields besides the files")
            return
        part.name = clean_name(options[b"filename"].decode("utf-8", "replace"))
        if len(self._files) >= self._limits.files:
            raise UploadRefused(f"more than {self._limits.files} files: send them in several uploads")
        suffix = find_suffix(part.name)
        if suffix is None:
            part.refusal = f"its ending is not one of {', '.join(list_suffixes())}: rename the file, or convert it"
            return
        part.stored = _make_stored_name(part.name, suffix)
        descriptor = open_private(self._folder / part.stored, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        self._file = os.fdopen(descriptor, "wb")

    def _read_content(self, data: bytes, start: int, end: int) -> None:
        part = self._part
        part.size += end - start
        if part.is_file:
            if part.size > self._limits.file_bytes:
                limit = self._limits.file_bytes // 1_000_000
                raise BodyTooLarge(f"the file {part.name} is larger than {limit:,} MB: split it")
            if self._file is not None:
                self._file.write(data[start:end])
            return
        if part.size > _MAX_FIELD_BYTES:
            raise UploadRefused(f"a field besides the files is longer than {_MAX_FIELD_BYTES:,} bytes")
        part.data += data[start:end]

    def _end_part(self) -> None:
        part = self._part
        if not part.is_file:
            self._fields[part.field_name] = part.data.decode("utf-8", "replace")
            return
        if self._file is not None:
            self._file.flush()
            os.fsync(self._file.fileno())
            self.close()
        # A browser sends one file without name and content if none was chosen.
        if part.name or part.size:
            self._files.append(ReceivedFile(part.name or "unnamed", part.stored, part.size, part.refusal))

    def _end(self) -> None:
        self._has_ended = True


def clean_name(name: str) -> str:
    """Return the last part of a file's name in printable characters, at most MAX_NAME of them, the ending kept."""
    last = printable(name.replace("\\", "/").rpartition("/")[2]).strip().lstrip(".")
    if len(last) <= MAX_NAME:
        return last
    suffix = find_suffix(last) or ""
    return last[: MAX_NAME - len(suffix)] + suffix


def _make_stored_name(name: str, suffix: str) -> str:
    """Return a random name with an ending of the table of formats, and with the number of a file of PubMed."""
    match = _PUBMED.search(name)
    number = f"-pubmed{match[1]}n{match[2]}" if match else ""
    return f"{secrets.token_hex(16)}{number}{suffix}"
