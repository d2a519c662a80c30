"""Names as people type them."""

from __future__ import annotations

from collections.abc import Iterable


def match_case(name: str, names: Iterable[str]) -> str:
    """Return the one of the names that differs from `name` in capitals only, or `name` itself."""
    known = list(names)
    if name in known:
        return name
    same = [each for each in known if each.casefold() == name.casefold()]
    return same[0] if len(same) == 1 else name
