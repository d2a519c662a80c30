"""Extractive questions in SQuAD's format: articles of paragraphs with questions and offsets of answers.

COVID-QA, RadQA and CliniQG4QA have this format. Answers are searched in the text, as offsets in the files may be wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from epicrisis.corpus.reader_base import path_error
from epicrisis.evaluation.datasets.patient_records.source import describe_first_error, read_json
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
    """The distinct answers of a question without outer white space, and the offsets of the first in the context."""

    texts: tuple[str, ...]
    place: tuple[int, int] | None
    """None if it is not in the context."""
    moved: bool
    """Whether the offsets in the file are wrong, apart from white space."""


def read(path: Path, what: str) -> list[Article]:
    """Return the articles in order. Raises InputError for another format."""
    value = read_json(path, what)
    try:
        return _File.model_validate(value).data
    except ValidationError as error:
        wrong = describe_first_error(error) or "its top"
        raise path_error(path, f"not {what}: wrong at {wrong}; fetch it again") from None


def find_gold_spans(squad_question: SquadQuestion, context: str) -> GoldSpans:
    """Return the answers of a question, with the first located in the context."""
    spans = [span for span in squad_question.answers if span.text.strip()]
    texts = tuple(dict.fromkeys(span.text.strip() for span in spans))
    if squad_question.is_impossible or not spans:
        return GoldSpans((), None, False)
    text, start = spans[0].text.strip(), spans[0].answer_start
    stated = start + len(spans[0].text) - len(spans[0].text.lstrip())
    for at in (stated, start):
        if at >= 0 and context.startswith(text, at):
            return GoldSpans(texts, (at, at + len(text)), False)
    nearest = None
    at = context.find(text)
    while at >= 0:
        if nearest is None or abs(at - start) < abs(nearest - start):
            nearest = at
        at = context.find(text, at + 1)
    return GoldSpans(texts, None if nearest is None else (nearest, nearest + len(text)), True)


def make_question(
    squad_question: SquadQuestion, gold: GoldSpans, patient: str, note: str, place: tuple[int, int] | None
) -> Question:
    """Return the question about a patient's note. `place` is the offset of its first answer in the note's text.

    A question without an answer gets the category `absence`.
    """
    return Question(
        text=squad_question.question.strip(),
        form="extractive",
        id=squad_question.id,
        gold=gold.texts[0] if gold.texts else "",
        other_answers=gold.texts[1:],
        gold_documents=(note,),
        patient=patient,
        evidence=() if place is None else (EvidenceSpan(note, *place),),
        category="" if gold.texts else "absence",
    )


def describe_moved_answers(golds: Sequence[GoldSpans]) -> tuple[str, ...]:
    """Return notices on the number of answers with wrong offsets, and of answers that are not in their text."""
    moved = missing = 0
    for gold in golds:
        moved += gold.moved and gold.place is not None
        missing += gold.moved and gold.place is None
    remarks = []
    if moved:
        remarks.append(f"{moved} of {len(golds)} answers are not at their offsets: the nearest place was used")
    if missing:
        remarks.append(f"{missing} of {len(golds)} answers are not in their text: their places are unknown")
    return tuple(remarks)
