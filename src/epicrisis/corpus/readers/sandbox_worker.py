"""The child process of `sandbox`: reads one request a line, parses, and sends the reply as JSON after its length."""

from __future__ import annotations

import base64
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from epicrisis.corpus.base.encodings import decode_text
from epicrisis.corpus.base.reader_base import (
    READ_ERRORS,
    describe_read_error,
    open_packed,
    read_limited,
    skip,
)
from epicrisis.corpus.documents import embedded_files, html, ocr, pdf_pages
from epicrisis.corpus.readers.formats import FORMATS
from epicrisis.corpus.records.ccda import clinical_documents as documents
from epicrisis.corpus.references.reference_entries import parse_references
from epicrisis.corpus.sandbox import OUT_OF_MEMORY
from epicrisis.system.process_limits import disable_core_dumps, read_memory, set_soft_limit

_Reply = TypeVar("_Reply")
MAX_SHEET_BYTES = 64 * 1024 * 1024
_REPLACE_BYTES = 512 * 1024**2
"""Memory in use after which a child is replaced, so that the remains of one file cannot make the next fail."""
_OPTIONS: Mapping[str, Mapping[str, Any]] = {"pdf": {"before_ocr": lambda: signal.alarm(2 * ocr.PAGE_SECONDS)}}
"""Arguments of the readers of some formats: each page that is read by OCR has its own time."""


def main() -> None:
    """Serve requests until the parent closes the pipe."""
    requests = sys.stdin.buffer
    # Output of libraries is discarded: the pipe is for replies.
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    _prepare()
    replace_above = max(_REPLACE_BYTES, _peak_memory())
    while line := requests.readline():
        request = json.loads(line)
        data = requests.read(request["bytes"])
        _limit_life(request["seconds"], request["clock"])
        try:
            set_soft_limit("RLIMIT_AS", request["memory"])
            items = _reply(request, data)
            is_last = _peak_memory() > replace_above
            reply = json.dumps({"items": items, "is_last": is_last}).encode()
        except MemoryError:
            os._exit(OUT_OF_MEMORY)
        _limit_life(0, 0)
        replies.write(len(reply).to_bytes(8, "big") + reply)
        replies.flush()
        if is_last:
            return


def _reply(request: dict[str, Any], data: bytes) -> list[dict[str, Any]]:
    kind = request["kind"]
    try:
        if kind in _VALUES:
            return [_VALUES[kind](request, data)]
    except ValueError as error:
        return [{"error": str(error)}]
    path = Path(request["path"])
    try:
        items = FORMATS[kind].parse(path, request["name"], **_OPTIONS.get(kind, {}))
        return [asdict(item) for item in items]
    except MemoryError:
        raise
    except RecursionError:
        return [asdict(skip(path, "", "nested too deep to be read; save it as text"))]
    except Exception as error:  # noqa: BLE001 - a parser's error costs one file only
        reason = f"its parser failed ({type(error).__name__}); save the file as text, or recreate it"
        return [asdict(skip(path, "", reason))]


def _read_embedded(request: Mapping[str, Any], data: bytes) -> dict[str, Any]:
    if embedded_files.detect_embedded(data, request["type"]) != "ccda":
        return {"embedded": _guard_parser(lambda: asdict(embedded_files.read_embedded(data, request["type"])))}
    document = _guard_parser(lambda: documents.read_clinical_document(data))
    return {"embedded": {name: getattr(document, name) for name in ("text", "headings", "remarks")}}


def _read_ccda(request: Mapping[str, Any], data: bytes) -> dict[str, Any]:
    if not request["path"]:
        return {"documents": _guard_parser(lambda: list(map(asdict, documents.read_clinical_documents(data))))}
    return {"documents": _guard_parser(lambda: _read_clinical_documents(Path(request["path"])))}


def _find_words(request: Mapping[str, Any], data: bytes) -> dict[str, Any]:
    places = [pdf_pages.PageWords(**place) for place in request["places"]]
    pages = pdf_pages.find_words(Path(request["path"]), request["sha256"], places)
    return {"pages": list(map(asdict, pages))}


def _draw_page(request: Mapping[str, Any], data: bytes) -> dict[str, Any]:
    image = pdf_pages.render_page(Path(request["path"]), request["sha256"], request["page"])
    return {"image": base64.b64encode(image).decode()}


_VALUES: Mapping[str, Callable[[Mapping[str, Any], bytes], dict[str, Any]]] = {
    "page": lambda request, data: {"text": html.page_text(data)},
    "embedded": _read_embedded,
    "ccda": _read_ccda,
    "sheet": lambda request, data: {"rows": _read_sheet(Path(request["path"]))},
    "references": lambda request, data: {"references": _read_references(Path(request["path"]))},
    "words": _find_words,
    "image": _draw_page,
}
"""Requests with one value as the reply, which raise ValueError with the reason."""


def _guard_parser(parse: Callable[[], _Reply]) -> _Reply:
    """Return the result of a parser. Raises ValueError with the reason for any error of it."""
    try:
        return parse()
    except (MemoryError, ValueError):
        raise
    except RecursionError as error:
        raise ValueError("nested too deep to be read; save it as text") from error
    except Exception as error:  # a parser may raise any error, and it costs one document only
        reason = f"its parser failed ({type(error).__name__}); save the file as text, or recreate it"
        raise ValueError(reason) from error


def _read_clinical_documents(path: Path) -> list[dict[str, Any]]:
    try:
        with open_packed(path) as file:
            data = file.read(documents.MAX_FILE_BYTES + 1)
    except READ_ERRORS as error:
        raise ValueError(describe_read_error(error)) from error
    if len(data) > documents.MAX_FILE_BYTES:
        raise ValueError(f"larger than {documents.MAX_FILE_BYTES // 2**20} MB; split it")
    return list(map(asdict, documents.read_clinical_documents(data)))


def _read_references(path: Path) -> dict[str, Any]:
    text, encoding = decode_text(read_limited(path, MAX_SHEET_BYTES))
    entries, skipped = _guard_parser(lambda: parse_references(text))
    return {"entries": list(map(asdict, entries)), "skipped": skipped, "encoding": encoding}


def _read_sheet(path: Path) -> list[list[str]]:
    from python_calamine import CalamineError, CalamineWorkbook

    try:
        if path.stat().st_size > MAX_SHEET_BYTES:
            raise ValueError(f"larger than {MAX_SHEET_BYTES // 2**20} MB")
        sheet = CalamineWorkbook.from_path(path).get_sheet_by_index(0)
        return [list(map(str, row)) for row in sheet.to_python()]
    except (CalamineError, OSError, IndexError) as error:
        raise ValueError("not a sheet (.xlsx) that can be read") from error


def _limit_life(seconds: int, clock: int) -> None:
    """Let this process end after so many seconds of processor time, or on the clock; 0: no limit.

    Without alarms the parent keeps the time.
    """
    if hasattr(signal, "alarm"):
        signal.setitimer(signal.ITIMER_PROF, seconds)
        signal.alarm(clock)


def _prepare() -> None:
    """Disable core dumps, as they contain patients' text, and let the signals of both alarms kill."""
    if hasattr(signal, "alarm"):
        for number in (signal.SIGALRM, signal.SIGPROF):
            signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    disable_core_dumps()
    # The process of an import has a limit that its parser, which reads file after file, must not inherit.
    set_soft_limit("RLIMIT_CPU", None)


def _peak_memory() -> int:
    """Return the peak memory use in bytes; 0 if the system does not provide it."""
    # Of this program alone: getrusage includes the parent's, up to the start of this process.
    if peak := read_memory("VmHWM"):
        return peak
    with suppress(ImportError):
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
    return 0
