"""The record of one answered case: a line of a run's `records.jsonl`, or of the output of `epicrisis ask --file`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    InstanceOf,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from epicrisis.core.answers import Answer, MapFinished, Retrieved, Vote, Voted
from epicrisis.core.dates import last_day
from epicrisis.core.errors import InputError
from epicrisis.core.serialization import EVENT_NAMES
from epicrisis.core.types import Question
from epicrisis.pipeline.recording.case import canonical_condition
from epicrisis.system.json_lines import read_latest_lines
from epicrisis.system.jsonl_store import StoredLine, parse_line

SCHEMA_VERSION = 2
"""Version 1 had no condition."""

CONTENT = "answers"
"""The lines of a file of records, in error messages."""

_REQUIRED = {"question", "text", "choice", "usage", "partials", "trace"}
_REQUIRED_OF_QUESTION = {"options", "gold", "patient"}
_EVENT_TYPES = dict(zip(EVENT_NAMES.values(), EVENT_NAMES, strict=True))
_HEX_DIGITS = tuple("0123456789abcdef")


def _read_answer(value: Any) -> Answer:
    """Return the answer of a record's JSON. Raises ValueError for a missing, an unknown or a malformed field."""
    if isinstance(value, Answer):
        return value
    try:
        if _REQUIRED - value.keys() or _REQUIRED_OF_QUESTION - value["question"].keys():
            raise ValueError("a field of the answer is missing")
        fields = {
            **value,
            "question": _validate(Question, value["question"]),
            "partials": tuple(map(_without_verified, value["partials"])),
            "votes": tuple(map(partial(_validate, Vote), value.get("votes", ()))),
            "trace": tuple(map(_read_event, value["trace"])),
        }
    except (AttributeError, KeyError, TypeError):
        raise ValueError("a field of the answer has the wrong type") from None
    answer: Answer = _validate(Answer, fields)
    return answer


def _read_event(value: Mapping[str, Any]) -> Any:
    event_type = _EVENT_TYPES[value["event"]]
    fields = _without(value, "event")
    if event_type is MapFinished:
        fields["partial"] = _without_verified(value["partial"])
    elif event_type is Voted:
        fields["vote"] = _validate(Vote, value["vote"])
    elif event_type is Retrieved:
        # A hit without `marks`, which are computed, and with a text: runs store none.
        hits = []
        for hit in value["ranking"]["hits"]:
            hits.append({**_without(hit, "marks"), "passage": {"text": "", **hit["passage"]}})
        fields["ranking"] = {**value["ranking"], "hits": hits}
    return _validate(event_type, fields)


def _without(value: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {name: field for name, field in value.items() if name != key}


def _without_verified(reading: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON of a partial without `verified`, which is computed from the other fields of a quotation."""
    quotations = [_without(quotation, "verified") for quotation in reading.get("quotations", ())]
    return {**reading, "quotations": quotations}


def _validate(value_type: Any, data: Mapping[str, Any]) -> Any:
    """Return the dataclass with this JSON form. Raises ValueError for a key that it does not have."""
    names = {field.metadata.get("json", field.name): field.name for field in dataclasses.fields(value_type)}
    (value,) = _adapter(value_type).validate_python(({names.get(key, key): item for key, item in data.items()},))
    return value


@cache
def _adapter(value_type: Any) -> TypeAdapter[Any]:
    # pydantic takes no configuration for a plain dataclass, but passes it on through the tuple.
    return TypeAdapter(tuple[value_type], config=ConfigDict(extra="forbid", allow_inf_nan=False))


class RunRecord(StoredLine):
    """The answer of one case, with the recipe that it was made by."""

    schema_version: int = SCHEMA_VERSION
    key: str
    """`Case.key`."""
    condition: dict[str, str | int | float | bool] = Field(default_factory=dict)
    answer: Annotated[InstanceOf[Answer], BeforeValidator(_read_answer)]
    """The texts of its passages are empty in a run folder."""

    @property
    def identity(self) -> str:
        return self.key

    @property
    def question_key(self) -> str:
        """`Question.key`."""
        if not self.condition:
            return self.key
        return self.key.removesuffix(f" {canonical_condition(self.condition)}")

    @property
    def arm(self) -> str:
        """The arm of an experiment, or else the strategy of the answer."""
        return str(self.condition.get("arm", self.answer.strategy))

    @model_validator(mode="after")
    def _check(self) -> RunRecord:
        suffix = f" {canonical_condition(self.condition)}" if self.condition else _HEX_DIGITS
        if not self.key.endswith(suffix):
            raise ValueError("the key is not that of a question under this condition")
        for event in self.answer.trace:
            for hit in event.ranking.hits if isinstance(event, Retrieved) else ():
                if hit.passage.date is not None:
                    last_day(hit.passage.date)
        check_recipe(self.recipe)
        return self


def read_records(path: Path) -> Iterator[RunRecord]:
    """Yield the last record of each case, in the order of the cases' first records, one at a time in memory.

    Raises InputError for a file that does not exist, cannot be read, or holds anything but records.
    """
    if not path.is_file():
        raise InputError(f"{path} does not exist: give the folder of a run, or a file of answers")
    for line in read_latest_lines(path, lambda value: str(value.get("key"))):
        yield parse_line(path, line, RunRecord, CONTENT)


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)


class _Model(_Part):
    name: str


class _Library(_Part):
    id: str
    passages: int
    fused: list[dict[str, Any]] = []


class _Recipe(_Part):
    settings: dict[str, Any] = {}
    models: dict[str, _Model] = {}
    library: _Library | None = None


def check_recipe(recipe: Mapping[str, Any]) -> None:
    """Raise ValueError unless the fields of a recipe that reports read have the right types."""
    try:
        _Recipe.model_validate(recipe)
    except ValidationError:
        raise ValueError("the recipe was not written by this program") from None
