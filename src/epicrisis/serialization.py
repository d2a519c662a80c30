"""Plain JSON data of any value: the wire form of `--json`, of the trace and of the run record. Knows no file."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from epicrisis.answers import EVENT_NAMES, Quotation
from epicrisis.types import Hit


def to_json(value: Any) -> Any:
    """Plain JSON data of any value here. Events carry their name under `event`; a quotation says `verified`, a hit
    the `marks` of its document."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        out = {f.name: to_json(getattr(value, f.name)) for f in dataclasses.fields(value)}
        if type(value) in EVENT_NAMES:
            out = {"event": EVENT_NAMES[type(value)], **out}
        if isinstance(value, Quotation):
            out["verified"] = value.verified
        if isinstance(value, Hit) and (marks := value.passage.marks):
            out["marks"] = list(marks)
        return out
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted(to_json(item) for item in value)
    return str(value) if isinstance(value, PurePath) else value
