"""The child process of `sandbox`: reads one request a line, parses, and sends the reply as JSON behind its length.

Ends by itself where the parent is gone, where a file takes too long (SIGALRM) or too much memory.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from epicrisis.corpus import html, jats, medrag, pdf, spreadsheets
from epicrisis.corpus.reader_base import Skipped, printable_path
from epicrisis.corpus.sandbox import OUT_OF_MEMORY
from epicrisis.types import Document

_MUCH = 512 * 1024**2
"""Bytes of memory after which a child is replaced: what one file left behind is not to fail the next."""
_READERS: dict[str, Callable[[Path, str], Iterable[Document | Skipped]]] = {
    "pdf": pdf.read_document,
    "html": html.read_document,
    "nxml": jats.read_articles,
    "statpearls": lambda path, name: medrag.read_statpearls(path),
}


def main() -> None:
    """Serve requests until the parent closes the pipe."""
    requests = sys.stdin.buffer
    # What libraries print goes nowhere: the pipe is for replies.
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    _prepare()
    much = max(_MUCH, _peak())
    while line := requests.readline():
        request = json.loads(line)
        data = requests.read(request["bytes"])
        signal.alarm(request["seconds"])
        try:
            _limit_memory(request["memory"])
            items = _reply(request, data)
            is_last = _peak() > much
            reply = json.dumps({"items": items, "is_last": is_last}).encode()
        except MemoryError:
            os._exit(OUT_OF_MEMORY)
        signal.alarm(0)
        replies.write(len(reply).to_bytes(8, "big") + reply)
        replies.flush()
        if is_last:
            return


def _reply(request: dict[str, Any], data: bytes) -> list[dict[str, Any]]:
    if request["kind"] == "page":
        try:
            return [{"text": html.page_text(data)}]
        except ValueError as error:
            return [{"error": str(error)}]
    path = Path(request["path"])
    if request["kind"] == "sheet":
        try:
            return [{"rows": spreadsheets.rows(path)}]
        except ValueError as error:
            return [{"error": str(error)}]
    try:
        return [asdict(item) for item in _READERS[request["kind"]](path, request["name"])]
    except MemoryError:
        raise
    except RecursionError:
        return [asdict(Skipped(printable_path(path), "", "nested too deep to be read; save it as text"))]
    except Exception as error:  # noqa: BLE001 - whatever a parser raises costs one file
        reason = f"its parser failed ({type(error).__name__}); save the file as text, or make it again"
        return [asdict(Skipped(printable_path(path), "", reason))]


def _prepare() -> None:
    """No core dumps, which would hold patients' text; and an alarm that kills, whatever the parent did to signals."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
    with suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _limit_memory(size: int) -> None:
    with suppress(ImportError, OSError, ValueError):
        import resource

        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        soft = size if hard == resource.RLIM_INFINITY else min(size, hard)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _peak() -> int:
    """Return the most memory that was in use so far, in bytes; 0 where the system does not say."""
    with suppress(OSError, StopIteration):
        # Of this program alone: what getrusage says includes the parent's, up to the moment this one was started.
        lines = Path("/proc/self/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) * 1024
    with suppress(ImportError):
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
    return 0
