"""Convert values to JSON data: the format of `--json`, traces and run records."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from epicrisis.answers import EVENT_NAMES, Quotation
from epicrisis.types import Hit


def to_json(value: Any) -> Any:
    """Return any value of the package as plain JSON data.

    Events get their name under `event`. A quotation gets `verified`, a hit the `marks` of its document.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        data: dict[str, Any] = {}
        if type(value) in EVENT_NAMES:
            data["event"] = EVENT_NAMES[type(value)]
        for field in dataclasses.fields(value):
            data[field.metadata.get("json", field.name)] = to_json(getattr(value, field.name))
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
