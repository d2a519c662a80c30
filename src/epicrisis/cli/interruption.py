"""Ctrl-C and SIGTERM end a command in the same way: what was saved is kept, and one line says how to continue."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPTED = 130
"""Exit code for Ctrl-C. Everything saved until then is kept."""
TERMINATED = 143
"""Exit code for SIGTERM, which a service manager, a batch system or a closed container sends."""

_received: set[int] = set()


def exit_code() -> int:
    """Return the exit code of a command that was stopped: 143 after SIGTERM, else 130."""
    return TERMINATED if signal.SIGTERM in _received else INTERRUPTED


@contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """Treat SIGTERM like Ctrl-C during the block.

    The current handler of Ctrl-C receives it: asyncio's cancels its tasks first, for example. Programs with a handler
    of SIGTERM, and threads other than the main one, are not changed.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        _received.add(number)
        handler = signal.getsignal(signal.SIGINT)
        if not callable(handler):
            # A shell starts its background jobs with Ctrl-C ignored. SIGTERM is not.
            handler = signal.default_int_handler
        handler(signal.SIGINT, frame)

    signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        _received.clear()
