"""Run the parsers of untrusted files in one child process, with limits on time and memory.

    items = sandbox.read_file("pdf", path, "report.pdf")
    image = sandbox.render_page(path, sha256, 3)

PDFium, lexbor and libxml2 are C code, and a file of 1 kB can make each of them run for hours, use all memory or crash.
In the child that costs one file: the child is killed, the file is `Skipped`, and the next file gets a new child. A
second child with lower limits draws pages of PDF files, so that reading and drawing do not wait for each other.
"""

from __future__ import annotations

import atexit
import base64
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from epicrisis.core.types import Document
from epicrisis.corpus.base.reader_base import FileRemark, OmittedText, Skipped, skip
from epicrisis.corpus.documents.embedded_files import EmbeddedText
from epicrisis.corpus.documents.pdf_pages import PageBox, PageBoxes, PageWords
from epicrisis.corpus.references.reference_entries import ReferenceEntry

SECONDS = 60
"""Seconds of processor time for any file: on a busy machine a file must not fail that is read on an idle one."""
SECONDS_PER_MB = 10
WAITING = 10
"""How many times as long a file may take on the clock."""
MEMORY = 3 * 1024**3
"""Bytes of address space of the child. A page of 64 MB takes half of it. On macOS, which has no such limit, only the
time is limited."""
VIEW_SECONDS = 20
"""Seconds of processor time for showing a page of a PDF file of any size."""
VIEW_MEMORY = 1024**3
"""Bytes of address space of the child that shows pages."""
MAX_REPLY_BYTES = 512 * 1024**2
OUT_OF_MEMORY = 3
"""The exit code of a child that reached its memory limit."""
PROCESS_GROUP: int | None = 0
"""The process group of the children. 0: one of their own, as Ctrl-C is for the parent. None: the parent's."""

_ROOT = Path(__file__).parents[2]
_START = "import sys; sys.path.append(sys.argv[1]); from epicrisis.corpus.readers.sandbox_worker import main; main()"
_ENVIRONMENT = (
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "PYTHONPATH",
    "PYTHONHOME",
    "PYTHONUTF8",
    "TMPDIR",
    # Windows starts no Python without the first, and has the others instead of HOME and TMPDIR.
    "SYSTEMROOT",
    "USERPROFILE",
    "TEMP",
    "TMP",
    "TESSDATA_PREFIX",
)
"""The only environment variables of the child: no keys of endpoints."""
_HAS_ALARM = hasattr(signal, "alarm")
_NEW_GROUP = getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)
_LENGTH_BYTES = 8


class _ParserError(Exception):
    """The child could not read the file. The message says why and what to do."""


def read_file(kind: str, path: Path, name: str = "") -> Iterator[Document | Skipped | FileRemark | OmittedText]:
    """Yield the items of the reader of this kind for a file. A file that exceeds a limit, or crashes, is `Skipped`."""
    size = 0
    with suppress(OSError):
        size = path.stat().st_size
    try:
        items = _CHILD.ask({"kind": kind, "path": str(path), "name": name}, b"", size)
    except _ParserError as error:
        yield skip(path, "", str(error))
        return
    for item in items:
        if "reason" in item:
            yield Skipped(item["path"], item["where"], item["reason"])
        elif "noun" in item:
            yield FileRemark(**item)
        elif "texts" in item:
            yield OmittedText(item["document"], item["kind"], tuple(item["texts"]))
        else:
            fields = {field: item[field] for field in ("id", "text", "title", "source", "date", "metadata")}
            yield Document(**fields)


def page_text(data: bytes) -> str:
    """Return the text of an HTML page, empty if it has none. Raises ValueError with the reason."""
    return str(_request_value({"kind": "page"}, data, len(data), "text"))


def read_embedded(data: bytes, content_type: str = "") -> EmbeddedText:
    """Return the text of a file embedded in a record: PDF, RTF, HTML, C-CDA, text and others, whatever its type says.

    Raises ValueError with the reason.
    """
    reply = _request_value({"kind": "embedded", "type": content_type}, data, len(data), "embedded")
    return EmbeddedText(reply["text"], tuple(reply["headings"]), tuple(reply["remarks"]))


def read_clinical_documents(source: Path | bytes) -> list[Any]:
    """Return the C-CDA documents of a file, for `ClinicalDocument.from_json`; one may have no text.

    Raises ValueError with the reason.
    """
    if isinstance(source, bytes):
        documents = _request_value({"kind": "ccda", "path": ""}, source, len(source), "documents")
    else:
        documents = _request_value({"kind": "ccda", "path": str(source)}, b"", source.stat().st_size, "documents")
    return list(documents)


def sheet_rows(path: Path) -> list[list[str]]:
    """Return the rows of the first sheet of a spreadsheet, cells as text. Raises ValueError with the reason."""
    return list(_request_value({"kind": "sheet", "path": str(path)}, b"", path.stat().st_size, "rows"))


def read_references(path: Path) -> tuple[list[ReferenceEntry], list[tuple[str, str]], str]:
    """Return the entries of a reference manager's file, (place, reason) of those that cannot be read, the encoding.

    The encoding is empty for UTF-8. Raises ValueError with the reason if nothing can be read.
    """
    reply = _request_value({"kind": "references", "path": str(path)}, b"", path.stat().st_size, "references")
    entries = [ReferenceEntry(**{**entry, "files": tuple(entry["files"])}) for entry in reply["entries"]]
    return entries, [(where, reason) for where, reason in reply["skipped"]], str(reply["encoding"])


def find_words(path: Path, sha256: str, places: Sequence[PageWords]) -> tuple[PageBoxes, ...]:
    """Return `pdf_pages.find_words`, run in the child for pages. Raises ValueError with the reason."""
    return tuple(
        PageBoxes(page["page"], page["width"], page["height"], tuple(PageBox(**box) for box in page["boxes"]))
        for page in _view({"kind": "words", "places": [asdict(place) for place in places]}, path, sha256, "pages")
    )


def render_page(path: Path, sha256: str, number: int) -> bytes:
    """Return `pdf_pages.render_page`, run in the child for pages. Raises ValueError with the reason."""
    return base64.b64decode(_view({"kind": "image", "page": number}, path, sha256, "image"))


def _view(request: Mapping[str, Any], path: Path, sha256: str, key: str) -> Any:
    message = {**request, "path": str(path), "sha256": sha256}
    try:
        (reply,) = _VIEWER.ask_within(VIEW_SECONDS, VIEW_MEMORY, message)
    except _ParserError as error:
        raise ValueError("drawing it took too much time or memory, or failed") from error
    if "error" in reply:
        raise ValueError(str(reply["error"]))
    return reply[key]


def _request_value(request: Mapping[str, Any], data: bytes, size: int, key: str) -> Any:
    try:
        (reply,) = _CHILD.ask(request, data, size)
    except _ParserError as error:
        raise ValueError(str(error)) from error
    if "error" in reply:
        raise ValueError(str(reply["error"]))
    return reply[key]


class _Child:
    """The child process, started at the first request, and again after a request that ended it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_late = False

    def ask(self, request: Mapping[str, Any], data: bytes, size: int) -> list[dict[str, Any]]:
        """Return the reply to a request about a file of `size` bytes. Raises _ParserError."""
        return self.ask_within(SECONDS + SECONDS_PER_MB * size // 1_000_000, MEMORY, request, data)

    def ask_within(
        self, seconds: int, memory: int, request: Mapping[str, Any], data: bytes = b""
    ) -> list[dict[str, Any]]:
        """Return the reply to a request, within these limits of time and bytes of memory. Raises _ParserError."""
        limits = {"seconds": seconds, "clock": WAITING * seconds, "memory": memory, "bytes": len(data)}
        line = json.dumps({**request, **limits}).encode() + b"\n"
        with self._lock:
            try:
                if not self._send(line, data):
                    self.end()
                    if not self._send(line, data):
                        raise _ParserError(self._describe_end(seconds))
                reply = self._receive(seconds)
                if reply["is_last"]:
                    self.end()
                return list(reply["items"])
            except BaseException:
                self.end()
                raise

    def _send(self, line: bytes, data: bytes) -> bool:
        """Send the request and return True, or False if the child has ended since the last one."""
        if self._process is None:
            environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
            # -P: no module of the working folder is imported.
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-c", _START, str(_ROOT)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    env=environment,
                    process_group=PROCESS_GROUP,
                    creationflags=_NEW_GROUP,
                )
            except OSError as error:
                reason = f"no process can be started to parse it ({error.strerror}); free some memory"
                raise _ParserError(reason) from error
        assert self._process.stdin is not None, "stdin and stdout are pipes"
        try:
            self._process.stdin.write(line + data)
            self._process.stdin.flush()
        except BrokenPipeError:
            return False
        return True

    def _receive(self, seconds: int) -> dict[str, Any]:
        """Return the reply. Without alarms, which would end the child, end it here after the time."""
        if _HAS_ALARM:
            return self._read_reply(seconds)
        timer = threading.Timer(WAITING * seconds, self._stop_late)
        timer.start()
        try:
            return self._read_reply(seconds)
        finally:
            timer.cancel()

    def _stop_late(self) -> None:
        self._is_late = True
        if self._process is not None:
            self._process.kill()

    def _read_reply(self, seconds: int) -> dict[str, Any]:
        assert self._process is not None, "the request was sent"
        assert self._process.stdout is not None, "stdin and stdout are pipes"
        head = self._process.stdout.read(_LENGTH_BYTES)
        size = int.from_bytes(head, "big")
        if len(head) == _LENGTH_BYTES and size > MAX_REPLY_BYTES:
            raise _ParserError(f"holds more than {MAX_REPLY_BYTES // 2**20} MB of text; split it")
        body = self._process.stdout.read(size)
        if len(head) < _LENGTH_BYTES or len(body) < size:
            raise _ParserError(self._describe_end(seconds))
        return dict(json.loads(body))

    def _describe_end(self, seconds: int) -> str:
        assert self._process is not None, "it was started"
        code = self._process.wait()
        was_late, self._is_late = self._is_late, False
        if was_late or (_HAS_ALARM and code in (-signal.SIGALRM, -signal.SIGPROF)):
            return f"its parser took longer than {seconds} s and was stopped; split the file, or save it as text"
        if code == OUT_OF_MEMORY:
            return f"its parser needs more than {MEMORY / 2**30:.1f} GB of memory; split the file, or save it as text"
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return f"its parser crashed ({how}), or ran out of memory; save the file as text, or recreate it"

    def end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in filter(None, (process.stdin, process.stdout)):
                # Closing flushes a request that the child never read.
                with suppress(BrokenPipeError):
                    pipe.close()


_CHILD = _Child()
_VIEWER = _Child()
"""The child that shows pages."""
atexit.register(_CHILD.end)
atexit.register(_VIEWER.end)
