"""Runs the parsers of untrusted files in one child process, with limits on its time and memory.

    items = sandbox.read("pdf", path, "report.pdf")

PDFium, lexbor and libxml2 are C code, and a file of 1 kB can make each of them run for hours, take all memory or crash.
In the child that costs one file: the child is killed, the file comes as `Skipped`, and the next file gets a new child.
One child serves all files, since starting one takes longer than reading a small file. What it reads comes back as JSON.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from epicrisis.corpus.reader_base import Skipped, printable_path
from epicrisis.types import Document

SECONDS = 60
"""Wall-clock seconds for a file, and more for a large one."""
SECONDS_PER_MB = 10
MEMORY = 3 * 1024**3
"""Bytes of address space of the child. A page of 64 MB takes half of it. Where the system has no such limit (macOS),
only the time is limited."""
LARGEST_REPLY = 512 * 1024**2
"""Bytes of what the child sends of one file."""
OUT_OF_MEMORY = 3
"""The exit code of a child that reached its limit."""

_ROOT = Path(__file__).parents[2]
_START = "import sys; sys.path.append(sys.argv[1]); from epicrisis.corpus.sandbox_worker import main; main()"
_ENVIRONMENT = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "PYTHONPATH", "PYTHONHOME", "PYTHONUTF8", "TMPDIR")
"""All that the child is told of the environment: no keys of endpoints."""
_HEADER = 8


class _Failure(Exception):
    """The child could not read the file. The message says why and what to do."""


def read_file(kind: str, path: Path, name: str = "") -> Iterator[Document | Skipped]:
    """Return what the reader of this kind (`pdf`, `html`, `nxml`, `statpearls`) returns for a file.

    A file that takes too much time or memory, or crashes its parser, comes as `Skipped` with the reason and the cure.
    """
    try:
        size = path.stat().st_size
    except OSError:
        size = 0
    request = {"kind": kind, "path": str(path), "name": name}
    try:
        items = _CHILD.ask(request, b"", size)
    except _Failure as error:
        yield Skipped(printable_path(path), "", str(error))
        return
    for item in items:
        yield _item(item)


def page_text(data: bytes) -> str:
    """Return the text of an HTML page, empty where there is none. Raises ValueError with the reason."""
    try:
        (reply,) = _CHILD.ask({"kind": "page"}, data, len(data))
    except _Failure as error:
        raise ValueError(str(error)) from error
    if "error" in reply:
        raise ValueError(str(reply["error"]))
    return str(reply["text"])


def sheet_rows(path: Path) -> list[list[str]]:
    """Return the rows of the first sheet of a spreadsheet, its cells as text. Raises ValueError with the reason."""
    try:
        (reply,) = _CHILD.ask({"kind": "sheet", "path": str(path)}, b"", path.stat().st_size)
    except _Failure as error:
        raise ValueError(str(error)) from error
    if "error" in reply:
        raise ValueError(str(reply["error"]))
    return list(reply["rows"])


def _item(item: Mapping[str, Any]) -> Document | Skipped:
    if "reason" in item:
        return Skipped(item["path"], item["where"], item["reason"])
    return Document(item["id"], item["text"], item["title"], item["source"], item["date"], metadata=item["metadata"])


class _Child:
    """The child process: started at the first request, and again after one that ended it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, request: Mapping[str, Any], data: bytes, size: int) -> list[dict[str, Any]]:
        """Return the reply to a request about a file of `size` bytes. Raises _Failure."""
        seconds = SECONDS + SECONDS_PER_MB * size // 1_000_000
        limits = {"seconds": seconds, "memory": MEMORY, "bytes": len(data)}
        line = json.dumps({**request, **limits}).encode() + b"\n"
        with self._lock:
            try:
                if not self._is_sent(line, data):
                    self.end()
                    if not self._is_sent(line, data):
                        raise _Failure(self._why(seconds))
                reply = self._reply(seconds)
                if reply["is_last"]:
                    self.end()
                return list(reply["items"])
            except BaseException:
                self.end()
                raise

    def _is_sent(self, line: bytes, data: bytes) -> bool:
        """Send the request; False where the child has ended since the last one."""
        if self._process is None:
            environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
            # -P: no module of the working folder is imported. A group of its own: Ctrl-C is for the parent.
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-c", _START, str(_ROOT)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    env=environment,
                    process_group=0,
                )
            except OSError as error:
                raise _Failure(
                    f"no process can be started to parse it ({error.strerror}); make room for one"
                ) from error
        assert self._process.stdin is not None, "a pipe was asked for"
        try:
            self._process.stdin.write(line + data)
            self._process.stdin.flush()
        except BrokenPipeError:
            return False
        return True

    def _reply(self, seconds: int) -> dict[str, Any]:
        assert self._process is not None, "the request was sent"
        assert self._process.stdout is not None, "a pipe was asked for"
        head = self._process.stdout.read(_HEADER)
        size = int.from_bytes(head, "big")
        if len(head) == _HEADER and size > LARGEST_REPLY:
            raise _Failure(f"holds more than {LARGEST_REPLY // 2**20} MB of text; split it")
        body = self._process.stdout.read(size)
        if len(head) < _HEADER or len(body) < size:
            raise _Failure(self._why(seconds))
        return dict(json.loads(body))

    def _why(self, seconds: int) -> str:
        """Say why the child ended."""
        assert self._process is not None, "it was started"
        code = self._process.wait()
        if code == -signal.SIGALRM:
            return f"its parser took longer than {seconds} s and was stopped; split the file, or save it as text"
        if code == OUT_OF_MEMORY:
            return f"its parser needs more than {MEMORY / 2**30:.1f} GB of memory; split the file, or save it as text"
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return f"its parser crashed ({how}), or ran out of memory; save the file as text, or make it again"

    def end(self) -> None:
        """Kill the child, if there is one."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    _close(pipe)


def _close(pipe: Any) -> None:
    # Of a request that the child never read.
    with suppress(BrokenPipeError):
        pipe.close()


_CHILD = _Child()
atexit.register(_CHILD.end)
