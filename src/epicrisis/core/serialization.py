"""Convert values to JSON data: the format of `--json`, traces and run records."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from functools import cache
from pathlib import PurePath
from typing import Any

from epicrisis.core.answers import (
    Answered,
    AnswerStarted,
    Drafted,
    ExamplesFound,
    MapFinished,
    MapStarted,
    ModelCalled,
    Notice,
    PreflightChecked,
    Quotation,
    Retrieved,
    SentencesSelected,
    TextDelta,
    Voted,
)
from epicrisis.core.types import Hit

PLAIN_TYPES = frozenset({str, int, bool, type(None)})
"""Types whose values are the same in JSON."""
EVENT_NAMES: Mapping[type, str] = {
    Retrieved: "retrieved",
    SentencesSelected: "sentences",
    PreflightChecked: "preflight",
    ExamplesFound: "examples",
    MapStarted: "map-started",
    MapFinished: "map-finished",
    Voted: "voted",
    Drafted: "drafted",
    AnswerStarted: "answer-started",
    TextDelta: "delta",
    ModelCalled: "called",
    Notice: "notice",
    Answered: "answered",
}
"""The name of each kind of event."""


def to_json(value: Any) -> Any:
    """Return any value of the package as plain JSON data.

    Events get their name under `event`. A quotation gets `verified`, a hit the `marks` of its document.
    """
    kind = type(value)
    if kind in PLAIN_TYPES or kind is float:
        return value
    # Whether a value is a mapping takes longer to find out than whether it is a dictionary, which most are.
    if kind is dict or isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return list(map(to_json, value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {key: to_json(item) for key, item in _convert_fields(value).items()}
    if isinstance(value, (set, frozenset)):
        return sorted(map(to_json, value))
    return str(value) if isinstance(value, PurePath) else value


def dump_json(value: Any) -> str:
    """Return `to_json(value)` as JSON text on one line, with the characters of other scripts as they are."""
    return _ENCODER.encode(value)


def _convert(value: Any) -> Any:
    """Return what JSON has no form for as data that may hold such values again."""
    if isinstance(value, Mapping):
        return {str(key): item for key, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _convert_fields(value)
    converted = to_json(value)
    if converted is value:
        raise TypeError(f"{type(value).__name__} has no form in JSON")
    return converted


_ENCODER = json.JSONEncoder(ensure_ascii=False, default=_convert)


def _convert_fields(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass by their keys in JSON. Their values are not converted."""
    kind: type = type(value)
    data: dict[str, Any] = {}
    if kind in EVENT_NAMES:
        data["event"] = EVENT_NAMES[kind]
    for name, key in _list_keys(kind):
        data[key] = getattr(value, name)
    if isinstance(value, Quotation):
        data["verified"] = value.verified
    if isinstance(value, Hit) and value.passage.marks:
        data["marks"] = list(value.passage.marks)
    return data


@cache
def _list_keys(kind: type) -> tuple[tuple[str, str], ...]:
    """Return each field of a dataclass with its key in JSON."""
    return tuple((field.name, field.metadata.get("json", field.name)) for field in dataclasses.fields(kind))
