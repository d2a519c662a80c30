"""Names as people type them."""

from __future__ import annotations

from collections.abc import Iterable


def match_case(name: str, names: Iterable[str]) -> str:
    """Return the one of the names that differs from `name` in capitals only, or `name` itself."""
    choices = list(names)
    if name in choices:
        return name
    matches = [choice for choice in choices if choice.casefold() == name.casefold()]
    return matches[0] if len(matches) == 1 else name
