"""What a line from outside must look like: pydantic models, and the faults that no type tells.

Imported when a file is read, never before: pydantic takes a tenth of a second. Does not know where a value came from.
A reason never repeats the value itself: it may be a patient's.
"""

from __future__ import annotations

import math
import string
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from epicrisis.dates import last_day
from epicrisis.types import QuestionForm

MAX_DEPTH = 32
_FIELDS = frozenset(("document_id", "start", "end", "fact", *string.ascii_uppercase))
"""Fields within a field whose names are the program's own, and the letters of options."""


def find_json_fault(value: Any, depth: int = 0) -> str | None:
    """What of parsed JSON no store, prompt or record could hold; `None` when nothing is wrong."""
    if depth > MAX_DEPTH:
        return f"nested deeper than {MAX_DEPTH} levels"
    if isinstance(value, str):
        if "\0" in value:
            return "holds a NUL character"
        try:
            value.encode()
        except UnicodeEncodeError:
            return "holds half of a surrogate pair, which is no character"
    elif isinstance(value, float) and not math.isfinite(value):
        return "holds a number that is not finite"
    elif isinstance(value, dict):
        return next((f for pair in value.items() for part in pair if (f := find_json_fault(part, depth + 1))), None)
    elif isinstance(value, list):
        return next((f for item in value if (f := find_json_fault(item, depth + 1))), None)
    return None


def describe_errors(error: ValidationError) -> str:
    """One line: every field that is wrong and why. Of a field's keys, which the file made up, only the place."""
    faults = []
    for item in error.errors():
        field, *inner = item["loc"] or ("",)
        place = [str(part) if isinstance(part, int) or part in _FIELDS else "..." for part in inner]
        faults.append((".".join([str(field), *place]), item["msg"].removeprefix("Value error, ")))
    return "; ".join(f"{field}: {message}" if field else message for field, message in faults)


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("empty")
    return text


def _date(date: str) -> str | None:
    try:
        last_day(date)
    except ValueError:
        raise ValueError("not a date of the form YYYY, YYYY-MM or YYYY-MM-DD") from None
    return date


def _patient(patient: str) -> str:
    # Read as "no patient", an empty name would show the record under every scope.
    if not patient.strip():
        raise ValueError("empty; name the patient, or leave it out for literature")
    return patient


def _empty_or_filled(text: str) -> str:
    return _not_blank(text) if text else text


def _number_to_text(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _null_to_empty(value: Any) -> Any:
    return "" if value is None else value


def _empty_to_null(value: Any) -> Any:
    return None if value == "" else value


NonBlank = Annotated[str, AfterValidator(_not_blank)]
Identifier = Annotated[NonBlank, BeforeValidator(_number_to_text)]
NullableText = Annotated[str, BeforeValidator(_null_to_empty)]
GoldAnswer = Annotated[Annotated[str, AfterValidator(_empty_or_filled)], BeforeValidator(_number_to_text)]
PartialDate = Annotated[
    Annotated[str, AfterValidator(_date)] | None,
    BeforeValidator(_empty_to_null),
    BeforeValidator(_number_to_text),
]
PatientId = Annotated[Annotated[str, AfterValidator(_patient)] | None, BeforeValidator(_number_to_text)]


class DocumentLine(BaseModel):
    """One document of a JSONL file; keys that have no field here are its metadata."""

    model_config = ConfigDict(extra="allow", strict=True)

    id: Identifier
    text: NonBlank
    title: NullableText = ""
    source: NullableText = ""
    date: PartialDate = None
    patient: PatientId = None
    metadata: dict[str, Any] | None = None

    @model_validator(mode="before")
    @classmethod
    def _find_id(cls, line: dict[str, Any]) -> dict[str, Any]:
        """Where there is no `id`, `_id` stands for it, and `pmid` for `pubmed:<pmid>`."""
        line = {key: value for key, value in line.items() if key != "id" or value is not None}
        if "id" not in line and line.get("_id") is not None:
            line["id"] = line.pop("_id")
        elif "id" not in line and type(line.get("pmid")) in (int, str) and str(line["pmid"]).strip():
            line["id"] = f"pubmed:{line.pop('pmid')}"
        return line


class EvidenceLine(BaseModel):
    """Where in a document something stands, offsets in characters; other keys are not read."""

    model_config = ConfigDict(strict=True)

    document_id: Identifier
    start: int = Field(ge=0)
    end: int = Field(ge=1)
    fact: NullableText = ""

    @model_validator(mode="after")
    def _not_empty(self) -> EvidenceLine:
        if self.end <= self.start:
            raise ValueError("end: not behind start; offsets are in characters, the end not included")
        return self


class QuestionLine(BaseModel):
    """One question of a JSONL file; other keys are not read."""

    model_config = ConfigDict(strict=True)

    id: Identifier | None = None
    text: NonBlank = Field(validation_alias=AliasChoices("text", "question"))
    options: dict[str, NonBlank] | None = None
    form: QuestionForm | None = None
    gold: GoldAnswer | None = None
    also: list[Identifier] | None = None
    gold_documents: list[Identifier] | None = None
    evidence: list[EvidenceLine] | None = None
    category: NullableText = ""
    patient: PatientId = None

    @model_validator(mode="before")
    @classmethod
    def _letter_options(cls, line: dict[str, Any]) -> dict[str, Any]:
        options = line.get("options")
        if not isinstance(options, list):
            return line
        if len(options) > len(string.ascii_uppercase):
            raise ValueError("options: more than 26, so that the letters A to Z do not suffice")
        return {**line, "options": dict(zip(string.ascii_uppercase, options, strict=False))}

    @model_validator(mode="after")
    def _letters(self) -> QuestionLine:
        if self.options and not all(len(key) == 1 and key in string.ascii_uppercase for key in self.options):
            raise ValueError("options: each key must be one letter, A to Z")
        if self.options and self.gold is not None and self.gold not in self.options:
            raise ValueError("gold: not a letter of the options")
        return self

    @model_validator(mode="after")
    def _agrees_with_its_form(self) -> QuestionLine:
        """An empty gold says that no document has the answer; where the form is not said it may be a slip."""
        if self.gold == "" and self.form is None:
            raise ValueError("gold: empty; leave it out, or give the form too where no document has the answer")
        if self.form is not None and (self.form == "choice") != bool(self.options):
            raise ValueError("form: choice goes with options, extractive and open without them")
        if self.also and (self.options or not self.gold):
            raise ValueError("also: other right answers stand beside a gold text, never beside options")
        return self


class PubMedQAEntry(BaseModel):
    """One entry of PubMedQA's file. The conclusion (`LONG_ANSWER`) is not read: it gives the answer away."""

    model_config = ConfigDict(strict=True)

    question: NonBlank = Field(validation_alias="QUESTION")
    contexts: list[str] = Field(validation_alias="CONTEXTS")
    labels: list[str] = Field(default=[], validation_alias="LABELS")
    meshes: list[str] = Field(default=[], validation_alias="MESHES")
    year: PartialDate = Field(default=None, validation_alias="YEAR")
    final_decision: str | None = None
