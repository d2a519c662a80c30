"""Extractive questions in SQuAD's form: articles of paragraphs, each with its questions and their answers' offsets.

COVID-QA, RadQA and CliniQG4QA come so. Knows nothing of patients; an answer is taken from where it stands, which is
not always where a file says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from epicrisis.corpus.reader_base import printable_path
from epicrisis.errors import InputError
from epicrisis.evaluation.datasets.patient_records.source import read_json
from epicrisis.types import EvidenceSpan, Question


class SquadSpan(BaseModel):
    text: str
    answer_start: int


class SquadQuestion(BaseModel):
    model_config = ConfigDict(coerce_numbers_to_str=True)

    id: str = Field(min_length=1)
    question: str = Field(min_length=1)
    answers: list[SquadSpan]
    is_impossible: bool = False


class Paragraph(BaseModel):
    model_config = ConfigDict(coerce_numbers_to_str=True)

    context: str = Field(min_length=1)
    qas: list[SquadQuestion]
    document_id: str = ""


class Article(BaseModel):
    model_config = ConfigDict(coerce_numbers_to_str=True)

    paragraphs: list[Paragraph]
    title: str = ""


class _File(BaseModel):
    data: list[Article]


@dataclass(frozen=True, slots=True)
class GoldSpans:
    """A question's answers, each once, outer white space off; and where in the context the first stands."""

    texts: tuple[str, ...]
    place: tuple[int, int] | None
    """`None` where it stands nowhere in the context."""
    moved: bool
    """It stands elsewhere than the file says, white space aside."""


def read(path: Path, what: str) -> list[Article]:
    """The articles in the file's order. Raises InputError at the first place that is not of the form."""
    value = read_json(path, what)
    try:
        return _File.model_validate(value).data
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        at = ".".join(map(str, first["loc"])) or "its top"
        raise InputError(f"{printable_path(path)}: not {what}: wrong at {at}; fetch it again") from None


def find_gold_spans(asked: SquadQuestion, context: str) -> GoldSpans:
    """What the file says of this question, its first answer found in the context."""
    spans = [span for span in asked.answers if span.text.strip()]
    texts = tuple(dict.fromkeys(span.text.strip() for span in spans))
    if asked.is_impossible or not spans:
        return GoldSpans((), None, False)
    text, start = spans[0].text.strip(), spans[0].answer_start
    stated = start + len(spans[0].text) - len(spans[0].text.lstrip())
    if any(context.startswith(text, at) for at in (stated, start) if at >= 0):
        at = stated if context.startswith(text, stated) else start
        return GoldSpans(texts, (at, at + len(text)), False)
    near = min(_occurrences(context, text), key=lambda at: abs(at - start), default=None)
    return GoldSpans(texts, None if near is None else (near, near + len(text)), True)


def make_question(
    asked: SquadQuestion, found: GoldSpans, patient: str, note: str, place: tuple[int, int] | None
) -> Question:
    """The question of a patient's note, `place` being where in the note's text its first answer stands. One without an
    answer is one that no note answers."""
    return Question(
        text=asked.question.strip(),
        form="extractive",
        id=asked.id,
        gold=found.texts[0] if found.texts else "",
        other_answers=found.texts[1:],
        gold_documents=(note,),
        patient=patient,
        evidence=() if place is None else (EvidenceSpan(note, *place),),
        category="" if found.texts else "absence",
    )


def describe_moved_answers(found: Sequence[GoldSpans]) -> tuple[str, ...]:
    """How many answers stand elsewhere than stated, and how many nowhere."""
    moved = sum(each.moved and each.place is not None for each in found)
    lost = sum(each.moved and each.place is None for each in found)
    said = []
    if moved:
        said.append(f"{moved} of {len(found)} answers do not stand at their offsets: the nearest place was taken")
    if lost:
        said.append(f"{lost} of {len(found)} answers stand nowhere in their text: their places are unknown")
    return tuple(said)


def _occurrences(context: str, text: str) -> Iterator[int]:
    at = context.find(text)
    while at >= 0:
        yield at
        at = context.find(text, at + 1)
