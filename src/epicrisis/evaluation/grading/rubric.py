"""The five-point rubric of open answers (EHR study, 3.4): correctness, completeness and faithfulness against the
reference as published, and faithfulness against the notes in the prompt (errata E4).

The descriptions of the points are ours, because the study prints none. One request asks for the three grades. The
prompt holds each text as fenced data, without citations and author.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from epicrisis.answering.structured_request import JsonFormat, ModelClient, Unreadable, read_object, text_schema
from epicrisis.evaluation.grading.grader import PROMPTS, Grader
from epicrisis.prompts import Prompt, fence, fence_passages, render
from epicrisis.types import Passage, Scope

ASPECTS = ("correctness", "completeness", "faithfulness")
LOWEST, HIGHEST = 1, 5
_REASON_CHARACTERS = 600
_POINTS = range(LOWEST, HIGHEST + 1)


def render_prompt(question: str, reference: str, answer: str) -> Prompt:
    """Return the prompt for one answer: the three texts in one fence, in this order."""
    return render(PROMPTS, "rubric", documents=fence([question, reference, answer]))


def render_notes_prompt(question: str, answer: str, notes: Sequence[Passage], scope: Scope) -> Prompt:
    """Return the prompt for one answer and the notes it is based on.

    The notes come first, so that prompts about one record share their beginning. Raises ScopeViolation for a note
    outside the scope.
    """
    fenced = fence_passages(notes, scope)
    return render(PROMPTS, "rubric_notes", notes=fenced, judged=fence([question, answer], "answer"))


def _rubric_format(aspects: Sequence[str]) -> JsonFormat[tuple[Mapping[str, float], str]]:
    """Return the format of a reply with a reason and a whole number, with or without quotes, for each aspect.

    Grades are read as shares, 0 for the lowest and 1 for the highest.
    """

    def read(reply: str) -> tuple[Mapping[str, float], str]:
        value = read_object(reply, aspects[-1])
        shares: dict[str, float] = {}
        for aspect in aspects:
            grade = str(value.get(aspect)).strip()
            if grade not in map(str, _POINTS):
                raise Unreadable(f"{aspect} is no whole number from {LOWEST} to {HIGHEST}")
            shares[aspect] = (int(grade) - LOWEST) / (HIGHEST - LOWEST)
        return shares, str(value.get("reason", ""))

    point = {"type": "integer", "enum": list(_POINTS)}
    schema = {"reason": text_schema(_REASON_CHARACTERS), **dict.fromkeys(aspects, point)}
    return JsonFormat(schema, _REASON_CHARACTERS + 40 * len(aspects), read)


FORMAT = _rubric_format(ASPECTS)
NOTES_FORMAT = _rubric_format(ASPECTS[-1:])


def rubric_grader(client: ModelClient) -> Grader[Mapping[str, float]]:
    """Return the model as a grader by the rubric. Its grades are shares by aspect."""
    return Grader(client, render_prompt("", "", "").template, FORMAT, checks_window=True)


def notes_grader(client: ModelClient) -> Grader[Mapping[str, float]]:
    """Return the model as a grader of faithfulness to notes. Notes that do not fit its window are never cut."""
    template = render_notes_prompt("", "", (), Scope()).template
    return Grader(client, template, NOTES_FORMAT, checks_window=True)
