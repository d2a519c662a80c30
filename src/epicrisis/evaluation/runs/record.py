"""The form of a record: what each line of a run's records must hold before anything reads it.

    check_record({"key": ..., "recipe": ..., "answer": ...})

It raises ValueError where a field is missing or of a wrong type.

Fields that this version does not know are passed over, and those that earlier versions did not write are optional.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from epicrisis.answers import Citation, Usage
from epicrisis.dates import last_day
from epicrisis.evaluation.runs.case import canonical
from epicrisis.types import AnswerState, EvidenceSpan, Passage

_Scalar = str | int | float | bool | None


class _Part(BaseModel):
    """What is read of one object. Numbers are numbers and texts are texts: nothing is converted."""

    model_config = ConfigDict(extra="ignore", strict=True)


class _Value(_Part):
    """An object that is read as a value of a class of ours: a field that the class has not is refused."""

    read_as: ClassVar[type[Any]]

    @model_validator(mode="before")
    @classmethod
    def _has_its_fields_alone(cls, value: Any) -> Any:
        names = {each.name for each in fields(cls.read_as)}
        if isinstance(value, Mapping) and not names.issuperset(value):
            raise ValueError("a field that no version wrote")
        return value


class _Usage(_Value):
    read_as = Usage

    calls: int = 0
    failed_calls: int = 0
    uncounted_calls: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0
    seconds: float = 0.0
    cost: float | None = 0.0
    replayed_calls: int = 0
    replayed_tokens: int = 0


class _Failure(_Part):
    kind: str
    message: str


class _Place(_Value):
    read_as = EvidenceSpan

    document_id: str
    start: int
    end: int
    fact: str = ""


class _Question(_Part):
    id: str
    text: str
    gold: str | None
    patient: str | None
    options: dict[str, str]
    form: Literal["choice", "extractive", "open"] = "open"
    gold_documents: list[str] = []
    also: list[str] = []
    evidence: list[_Place] = []
    category: str = ""


class _Quotation(_Part):
    passage_id: str
    text: str
    start: int | None = None
    end: int | None = None


class _Partial(_Part):
    partition: int
    passages: list[str]
    state: Literal["relevant", "nothing", "failed"]
    text: str = ""
    choice: str | None = None
    quotations: list[_Quotation] = []


class _Citation(_Value):
    read_as = Citation

    number: int
    passage_id: str
    document_id: str
    title: str
    source: str
    date: str | None
    start: int
    end: int
    quotation: str
    verified: bool
    marks: list[str] = []


class _Passage(_Value):
    read_as = Passage

    id: str
    document_id: str
    ordinal: int
    start: int
    end: int
    text: str = ""
    title: str = ""
    source: str = ""
    date: str | None = None
    patient: str | None = None
    metadata: dict[str, Any] = {}


class _Hit(_Part):
    passage: _Passage
    score: float
    rank: int


class _Ranking(_Part):
    hits: list[_Hit]
    parameters: dict[str, Any]


class _Event(_Part):
    event: str
    kind: str = ""
    message: str = ""
    stage: str = ""
    usage: _Usage | None = None
    ranking: _Ranking | None = None
    models: list[str] = []


class _Vote(_Part):
    state: AnswerState
    choice: str | None = None


class _Answer(_Part):
    question: _Question
    strategy: str
    state: AnswerState
    text: str
    choice: str | None
    usage: _Usage
    partials: list[_Partial]
    trace: list[_Event]
    citations: list[_Citation] = []
    votes: list[_Vote] = []
    distribution: dict[str, float] = {}
    failure: _Failure | None = None


class _Record(_Part):
    key: str
    recipe: dict[str, Any]
    answer: _Answer
    condition: dict[str, _Scalar] = {}


class _Named(_Part):
    name: str


class _Library(_Part):
    id: str
    passages: int
    fused: list[dict[str, Any]] = []


class _Recipe(_Part):
    settings: dict[str, Any] = {}
    models: dict[str, _Named] = {}
    library: _Library | None = None


_NEEDED = {"retrieved": "ranking", "called": "usage"}
"""What an event of this name cannot lack."""


def check_record(value: Mapping[str, Any]) -> None:
    """Raise ValueError unless this is a whole record of one answer under the key that belongs to it."""
    record = _checked(value)
    condition = value.get("condition", {})
    if not record.key.endswith(f" {canonical(condition)}" if condition else tuple("0123456789abcdef")):
        raise ValueError("the key is not that of a question under this condition")
    for event in record.answer.trace:
        needed = _NEEDED.get(event.event)
        if needed is not None and getattr(event, needed) is None:
            raise ValueError(f"an event {event.event} lacks its {needed}")
        for hit in event.ranking.hits if event.ranking is not None else ():
            if hit.passage.date is not None:
                last_day(hit.passage.date)
    check_recipe(record.recipe)


def _checked(value: Mapping[str, Any]) -> _Record:
    try:
        return _Record.model_validate(value)
    except ValidationError as error:
        # Its own message would quote the record.
        first = error.errors(include_url=False, include_input=False)[0]
        raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None


def check_recipe(recipe: Mapping[str, Any]) -> None:
    """Raise ValueError unless what reports read of a recipe is of its kind."""
    try:
        _Recipe.model_validate(recipe)
    except ValidationError:
        raise ValueError("the recipe is none of this program") from None
