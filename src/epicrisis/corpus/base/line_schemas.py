"""Pydantic models of the lines of JSON files from outside, which never repeat a value in the reason for rejecting it.

Imported only when a file is read, because importing pydantic takes a tenth of a second.
"""

from __future__ import annotations

import string
from typing import Annotated, Any, TypeVar

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

from epicrisis.core.dates import last_day
from epicrisis.core.types import QuestionForm
from epicrisis.corpus.base.patient_numbers import stands_for_nobody

_SAFE_KEYS = frozenset(("document_id", "start", "end", "fact", *string.ascii_uppercase))
"""Names of nested fields that a reason may repeat: those defined here, and the letters of options."""
Line = TypeVar("Line", bound=BaseModel)


def validate(model: type[Line], value: Any) -> Line:
    """Return the value as a model. Raises ValueError with the reasons in one line."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise ValueError(describe_errors(error)) from error


def describe_errors(error: ValidationError) -> str:
    """Return one line naming every invalid field and why; the file's own keys may be private and become `...`."""
    reasons = []
    for item in error.errors():
        field, *inner = item["loc"] or ("",)
        place = [str(field)]
        for part in inner:
            place.append(str(part) if isinstance(part, int) or part in _SAFE_KEYS else "...")
        message = item["msg"].removeprefix("Value error, ")
        reasons.append(f"{'.'.join(place)}: {message}" if place != [""] else message)
    return "; ".join(reasons)


def _check_not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("empty")
    return text


def _check_date(date: str) -> str | None:
    try:
        last_day(date)
    except ValueError:
        raise ValueError("not a date of the form YYYY, YYYY-MM or YYYY-MM-DD") from None
    return date


def _check_patient(patient: str) -> str:
    # An empty id, taken as "no patient", would show the record under every scope.
    if stands_for_nobody(patient):
        raise ValueError("empty or a placeholder; name the patient, or leave it out for literature")
    return patient


def _number_to_text(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


NonBlank = Annotated[str, AfterValidator(_check_not_blank)]
Identifier = Annotated[NonBlank, BeforeValidator(_number_to_text)]
NullableText = Annotated[str, BeforeValidator(lambda value: "" if value is None else value)]
GoldAnswer = Annotated[
    Annotated[str, AfterValidator(lambda text: text and _check_not_blank(text))], BeforeValidator(_number_to_text)
]
PartialDate = Annotated[
    Annotated[str, AfterValidator(_check_date)] | None,
    BeforeValidator(lambda value: None if value == "" else value),
    BeforeValidator(_number_to_text),
]
PatientId = Annotated[Annotated[str, AfterValidator(_check_patient)] | None, BeforeValidator(_number_to_text)]


class DocumentLine(BaseModel):
    """One document of a JSONL file; keys without a field here become its metadata."""

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
        """Take the id from `_id`, else from `pmid` (as `pubmed:<pmid>`), if the line has no `id`."""
        if line.get("id") is not None:
            return line
        line = {key: value for key, value in line.items() if key != "id"}
        if line.get("_id") is not None:
            line["id"] = line.pop("_id")
        elif type(line.get("pmid")) in (int, str) and str(line["pmid"]).strip():
            line["id"] = f"pubmed:{line.pop('pmid')}"
        return line


class EvidenceLine(BaseModel):
    """A span of a document, offsets in characters; other keys are ignored."""

    model_config = ConfigDict(strict=True)

    document_id: Identifier
    start: int = Field(ge=0)
    end: int = Field(ge=1)
    fact: NullableText = ""

    @model_validator(mode="after")
    def _check_order(self) -> EvidenceLine:
        if self.end <= self.start:
            raise ValueError("end: not after start; offsets are in characters, the end excluded")
        return self


class QuestionLine(BaseModel):
    """One question of a JSONL file; other keys are ignored."""

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
            raise ValueError("options: more than 26, the number of letters A to Z")
        return {**line, "options": dict(zip(string.ascii_uppercase, options, strict=False))}

    @model_validator(mode="after")
    def _check_form(self) -> QuestionLine:
        if self.options and not set(self.options).issubset(string.ascii_uppercase):
            raise ValueError("options: each key must be one letter, A to Z")
        if self.options and self.gold is not None and self.gold not in self.options:
            raise ValueError("gold: not a letter of the options")
        # An empty gold means that no document has the answer; without a form it may be a slip.
        if self.gold == "" and self.form is None:
            raise ValueError("gold: empty; leave it out, or add the form if no document has the answer")
        if self.form is not None and (self.form == "choice") != bool(self.options):
            raise ValueError("form: choice needs options, extractive and open have none")
        if self.also and (self.options or not self.gold):
            raise ValueError("also: other right answers need a gold text and no options")
        return self


class PubMedQAEntry(BaseModel):
    """One entry of PubMedQA's file. The conclusion (`LONG_ANSWER`) is ignored because it gives the answer away."""

    model_config = ConfigDict(strict=True)

    question: NonBlank = Field(validation_alias="QUESTION")
    contexts: list[str] = Field(validation_alias="CONTEXTS")
    labels: list[str] = Field(default=[], validation_alias="LABELS")
    meshes: list[str] = Field(default=[], validation_alias="MESHES")
    year: PartialDate = Field(default=None, validation_alias="YEAR")
    final_decision: str | None = None
