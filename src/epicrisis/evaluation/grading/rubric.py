"""How good is an open answer? A model grades it from 1 to 5 (EHR study, 3.4): correctness, completeness and
faithfulness against the reference, as published; and faithfulness against the notes that it was given (errata E4).

The anchors of the grades are ours, for the study prints none. The three are asked for in one call. The judge sees each
text in a fence of documents and without citations: never who wrote it. Knows no run and no file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from epicrisis.answering.structured_request import (
    JsonFormat,
    ModelClient,
    StructuredReply,
    Unreadable,
    read_object,
    text_schema,
)
from epicrisis.answers import Failure, Usage
from epicrisis.prompts import Prompt, fence, fence_passages, render
from epicrisis.serialization import to_json
from epicrisis.types import Passage, Scope

PROMPTS = "epicrisis.evaluation.grading.prompts"
REASON_CHARACTERS = 600

ASPECTS = ("correctness", "completeness", "faithfulness")
LOWEST, HIGHEST = 1, 5


@dataclass(frozen=True, slots=True)
class RubricGrades:
    """What a judge says of one answer."""

    grades: Mapping[str, int]
    """By aspect, 1 to 5."""
    reason: str = ""

    @property
    def shares(self) -> dict[str, float]:
        """The grades as they are shown: 0 for the lowest, 1 for the highest."""
        return {aspect: (grade - LOWEST) / (HIGHEST - LOWEST) for aspect, grade in self.grades.items()}


def render_prompt(question: str, reference: str, answer: str) -> Prompt:
    """The prompt for one answer: the three texts in one fence, in this order."""
    return render(PROMPTS, "rubric", documents=fence([question, reference, answer]))


def render_notes_prompt(question: str, answer: str, notes: Sequence[Passage], scope: Scope) -> Prompt:
    """The prompt for one answer and the notes that it was given, these first, so that prompts about one record begin
    alike. Raises ScopeViolation where a note lies outside the scope."""
    fenced = fence_passages(notes, scope)
    return render(PROMPTS, "rubric_notes", notes=fenced, judged=fence([question, answer], "answer"))


def recipe(asker: ModelClient, *, against_notes: bool = False) -> dict[str, Any]:
    """What decides the grades, beside the texts."""
    prompt = render_notes_prompt("", "", (), Scope()) if against_notes else render_prompt("", "", "")
    return {"judge": to_json(asker.model_recipe), "prompt": prompt.template, "seed": asker.seed}


def _form(aspects: Sequence[str]) -> JsonFormat[RubricGrades]:
    def read(reply: str) -> RubricGrades:
        value = read_object(reply, aspects[-1])
        return RubricGrades({aspect: _grade(value, aspect) for aspect in aspects}, str(value.get("reason", "")))

    grades = {aspect: {"type": "integer", "enum": list(range(LOWEST, HIGHEST + 1))} for aspect in aspects}
    return JsonFormat({"reason": text_schema(REASON_CHARACTERS), **grades}, REASON_CHARACTERS + 40 * len(aspects), read)


def _grade(value: Mapping[str, Any], aspect: str) -> int:
    """Raises Unreadable for anything but a whole number from 1 to 5, be it in quotes or not."""
    said = str(value.get(aspect)).strip()
    if said not in map(str, range(LOWEST, HIGHEST + 1)):
        raise Unreadable(f"{aspect} is no whole number from {LOWEST} to {HIGHEST}")
    return int(said)


FORM = _form(ASPECTS)
NOTES_FORM = _form(ASPECTS[-1:])


async def grade(asker: ModelClient, question: str, reference: str, answer: str) -> StructuredReply[RubricGrades]:
    """The three grades against the reference; in the third state where the texts do not fit the judge's window."""
    return await _asked(asker, render_prompt(question, reference, answer), FORM)


async def grade_against_notes(
    asker: ModelClient, question: str, answer: str, notes: Sequence[Passage], scope: Scope
) -> StructuredReply[RubricGrades]:
    """Faithfulness to these notes. Notes that do not fit the judge's window are not cut: then there is no grade.

    Raises ScopeViolation where a note lies outside the scope.
    """
    return await _asked(asker, render_notes_prompt(question, answer, notes, scope), NOTES_FORM)


async def _asked(asker: ModelClient, prompt: Prompt, form: JsonFormat[RubricGrades]) -> StructuredReply[RubricGrades]:
    if await asker.fits(prompt, form):
        return await asker.request(prompt, form)
    told = "the texts do not fit the judge's window: name a judge that reads more"
    return StructuredReply(None, Usage(), Failure("ContextOverflow", told))
