"""In what two recipes or plans differ, as a message names it. Knows no file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_ABSENT = object()


def list_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """The names of what differs, in their order and with those around them: `library, settings.k`."""
    return ", ".join(_changed(old, new))


def _changed(old: Mapping[str, Any], new: Mapping[str, Any], around: str = "") -> Iterator[str]:
    for name in sorted({*old, *new}):
        was, is_now = old.get(name, _ABSENT), new.get(name, _ABSENT)
        if isinstance(was, Mapping) and isinstance(is_now, Mapping):
            yield from _changed(was, is_now, f"{around}{name}.")
        elif was != is_now:
            yield f"{around}{name}"
