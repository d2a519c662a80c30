"""Convert values to JSON data: the format of `--json`, traces and run records."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cache
from pathlib import PurePath
from typing import Any

from epicrisis.answers import EVENT_NAMES, Quotation
from epicrisis.types import Hit

_PLAIN = frozenset({str, int, float, bool, type(None)})


def to_json(value: Any) -> Any:
    """Return any value of the package as plain JSON data.

    Events get their name under `event`. A quotation gets `verified`, a hit the `marks` of its document.
    """
    if type(value) in _PLAIN:
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        data: dict[str, Any] = {}
        if type(value) in EVENT_NAMES:
            data["event"] = EVENT_NAMES[type(value)]
        for name, key in _list_keys(type(value)):
            data[key] = to_json(getattr(value, name))
        if isinstance(value, Quotation):
            data["verified"] = value.verified
        if isinstance(value, Hit) and value.passage.marks:
            data["marks"] = list(value.passage.marks)
        return data
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return list(map(to_json, value))
    if isinstance(value, (set, frozenset)):
        return sorted(map(to_json, value))
    return str(value) if isinstance(value, PurePath) else value


@cache
def _list_keys(kind: type) -> tuple[tuple[str, str], ...]:
    """Return each field of a dataclass with its key in JSON."""
    return tuple((field.name, field.metadata.get("json", field.name)) for field in dataclasses.fields(kind))
