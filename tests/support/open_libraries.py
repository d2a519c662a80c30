"""Libraries that are closed after the test that opened them: server tests would keep hundreds of files open."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from epicrisis.library.core.library_store import LibraryStore

OPENED: list[LibraryStore] = []


def close_libraries() -> None:
    """Close every library in OPENED."""
    while OPENED:
        OPENED.pop().close()
