"""Limits for JSON from outside: the number of values before parsing, and contents that no store can hold."""

from __future__ import annotations

import math
from typing import Any

MAX_VALUES = 20_000_000
"""Values of a JSON file that is parsed in one go: about 2 GB of memory. 10 MB of JSON can take 300 MB."""
MAX_DEPTH = 32
"""Levels of nesting."""


def check_value_count(raw: bytes, limit: int = MAX_VALUES) -> None:
    """Raise ValueError for JSON with more than `limit` values, estimated from above by its commas and brackets."""
    if raw.count(b",") + raw.count(b"[") + raw.count(b"{") > limit:
        raise ValueError(f"holds more than {limit:,} values; split it")


def find_json_fault(value: Any, depth: int = 0) -> str | None:
    """Return why no store, prompt or record could hold this parsed JSON, or None if nothing is wrong.

    The reason never repeats the value, because it may be a patient's.
    """
    if depth > MAX_DEPTH:
        return f"nested deeper than {MAX_DEPTH} levels"
    if isinstance(value, str):
        return _find_text_fault(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "holds a number that is not finite"
    if isinstance(value, dict):
        for key, member in value.items():
            if fault := find_json_fault(key, depth + 1) or find_json_fault(member, depth + 1):
                return fault
    elif isinstance(value, list):
        for member in value:
            if fault := find_json_fault(member, depth + 1):
                return fault
    return None


def _find_text_fault(text: str) -> str | None:
    if "\0" in text:
        return "holds a NUL character"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "holds half of a surrogate pair, which is no character"
    return None
