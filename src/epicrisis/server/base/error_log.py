"""The log of the server's errors on its standard error, and their figures: class, place and system cause.

    log_error(error)        # LibraryBusy (503) at .../library.py:61
    log_fault(error)        # fault ZeroDivisionError at .../questions.py:88

Never a message: it may hold text of a question, a record or a reply.
"""

from __future__ import annotations

import logging
import time
import traceback
from collections import Counter

from epicrisis.core.errors import EpicrisisError

LOGGER = logging.getLogger("epicrisis.server")
ERRORS: Counter[str] = Counter()
"""The number of errors of this process with a status of 500 or more, and of its faults, by class."""
REPEAT_SECONDS = 60.0
"""A line that was just written is written again after this time, with how often it happened."""
MAX_LINES = 1_000
_PACKAGE = "epicrisis"


class RepeatedLines:
    """Writes a line at most once in `REPEAT_SECONDS`, so that a busy server does not fill its log."""

    def __init__(self) -> None:
        self._last: dict[str, float] = {}
        self._skipped: dict[str, int] = {}

    def write(self, line: str) -> None:
        """Log the line, or count it for the next time."""
        now = time.monotonic()
        if now - self._last.get(line, -REPEAT_SECONDS) < REPEAT_SECONDS:
            self._skipped[line] = self._skipped.get(line, 0) + 1
            return
        if len(self._last) >= MAX_LINES:
            self._last.clear()
            self._skipped.clear()
        self._last[line] = now
        skipped = self._skipped.pop(line, 0)
        LOGGER.error("%s%s", line, f" ({skipped} more since the last line of this kind)" if skipped else "")


_LINES = RepeatedLines()


def log_error(kind: str, status: int, error: BaseException | None = None) -> None:
    """Log and count an error that a client got with a status of 500 or more.

    With `error`: its place, and what the system refused, if that is behind it. Each line is written once a minute.
    """
    ERRORS[kind] += 1
    place = f" at {find_place(error)}" if error is not None and error.__traceback__ is not None else ""
    _LINES.write(f"{kind} ({status}){place}{describe_system_error(error)}")


def log_fault(error: BaseException) -> None:
    """Log and count a fault of the program: its class, and the line of the package where it happened."""
    log_described_fault(describe_fault(error))


def log_described_fault(fault: str) -> None:
    """Log and count a fault of this process or of one that it started, as `describe_fault` returns it."""
    ERRORS["fault"] += 1
    LOGGER.error("fault %s", fault)


def describe_fault(error: BaseException) -> str:
    """Return the class of a fault, and the line of the package where it happened."""
    return f"{type(error).__name__} at {find_place(error)}"


def find_place(error: BaseException) -> str:
    """Return file and line of the package where an error was raised."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _PACKAGE in frame.filename]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "outside the package"


def describe_system_error(error: BaseException | None) -> str:
    """Return the system's refusal with its file, `: No space left on device: PATH`, or an empty text."""
    while error is not None:
        if isinstance(error, OSError) and error.errno is not None:
            place = f": {error.filename!a}" if error.filename else ""
            return f": {error.strerror}{place}"
        error = error.__cause__ or error.__context__
    return ""


def is_logged(error: type[BaseException], status: int) -> bool:
    """Return whether an error with this status is logged. The body of a fault is not: the fault was."""
    return status >= 500 and error is not EpicrisisError
