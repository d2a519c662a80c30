"""Summarize a patient's record problem by problem: one question for each problem, answered like any other question.

    async for section in summarize(pipeline, record, "p1", since="2150-01-01"):
        print(section.problem, section.answer.text)

The strategy of the settings reads the record: `brief-context` by map and reduce, `evidence` without a chat model. Every
sentence has its citations and the same check of support as other answers.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from epicrisis.core.answers import Answer
from epicrisis.core.types import Passage, Question
from epicrisis.corpus.base.note_cleaning import find_sections
from epicrisis.corpus.records.assertions import assess_line, strip_bullet
from epicrisis.pipeline.components import build_scope
from epicrisis.pipeline.pipeline import Pipeline
from epicrisis.records.fact_questions.subjects import split_words
from epicrisis.records.fact_questions.synonyms import write_out
from epicrisis.records.patient_chart import ChartState, PatientChart
from epicrisis.retrieval.record_context import restore_notes, sort_by_time

QUESTION = (
    "What does the record say about {problem}: since when, what was found, how was it treated, and how is it now?"
)
_LISTS = (re.compile(r"diagnos[ei]s|problem list|active problems"), re.compile(r"past medical history|\bpmh\b"))
"""Titles of sections that list problems."""
_LABEL = re.compile(r"(?:primary|secondary|principal|admission|discharge|active|chronic)[^:\n]{0,60}:", re.IGNORECASE)
_DETAIL = re.compile(
    r"\s*(?:on|with|without|in|at|by|from|since|well|poorly|currently|complicated|\w*controlled|stage|grade|class|type|ef|"
    r"right|left|bilateral|chronic|acute|severe|mild|moderate|last|now|post)\b",
    re.IGNORECASE,
)
"""What begins like this belongs to the item before it: `on metformin`."""
_LIST_COMMAS = 2
"""A section of one line with so many commas lists problems between them."""
_MAX_NAME = 80
"""Longer lines are sentences and not the name of a problem."""


@dataclass(frozen=True, slots=True)
class ProblemName:
    """A problem of the record."""

    name: str
    origin: Literal["structured", "notes"]
    """Structured data, or the list of diagnoses in the last note that has one."""
    state: ChartState | None = None
    """None: only notes name it."""
    documents: tuple[str, ...] = ()
    other_names: tuple[str, ...] = ()
    """What notes call it, such as an abbreviation."""

    @property
    def full_name(self) -> str:
        """The name, with its other names in parentheses, so that a search finds the notes that use them."""
        return f"{self.name} ({', '.join(self.other_names)})" if self.other_names else self.name


@dataclass(frozen=True, slots=True)
class SummarySection:
    """One problem with the answer about it."""

    problem: ProblemName
    answer: Answer


def list_problems(chart: PatientChart, record: Sequence[Passage]) -> tuple[ProblemName, ...]:
    """Return the problems of structured data, then those that the last lists of diagnoses and history add.

    Names are compared without case, and a known abbreviation as what it stands for. Refuted problems are left out.
    """
    problems: dict[str, ProblemName] = {}
    refuted: set[str] = set()
    for course in chart.courses:
        if course.kind != "problem":
            continue
        key = _write_key(course.name)
        if course.state == "withdrawn":
            refuted.add(key)
        else:
            problems[key] = ProblemName(course.name, "structured", course.state, course.documents)
    for name, document_id in _read_lists(record):
        key = _write_key(name)
        if key in refuted:
            continue
        problem = problems.setdefault(key, ProblemName(name, "notes", documents=(document_id,)))
        names = (problem.name, *problem.other_names)
        if name.casefold() not in map(str.casefold, names):
            problems[key] = replace(problem, other_names=(*problem.other_names, name))
    return tuple(problems.values())


def _write_key(name: str) -> str:
    """Return a key that a name of a problem shares with its abbreviations."""
    return " ".join(write_out(split_words(name), "problem")) or name.casefold()


def _read_lists(record: Sequence[Passage]) -> Iterator[tuple[str, str]]:
    """Yield the items of the last list of each kind, with the id of its note."""
    notes = [note for note in reversed(sort_by_time(restore_notes(record))) if note.date is not None]
    for titles in _LISTS:
        for note in notes:
            names = list(_read_items(note.text, titles))
            if names:
                for name in names:
                    yield name, note.document_id
                break


def _read_items(text: str, titles: re.Pattern[str]) -> Iterator[str]:
    """Yield the problems that the sections with these titles say are or were the patient's own.

    Behind a label (`Secondary: T2DM, OA`) and in a section of one line with several commas each item between commas
    counts, otherwise what stands before the first comma (`T2DM, known since 2123`).
    """
    for start, end, title in find_sections(text):
        if not titles.search(str(title).casefold()):
            continue
        section = text[int(start) : int(end)]
        body = section.partition(":")[2] if ":" in section.partition("\n")[0] else section.partition("\n")[2]
        lines = [line for line in re.split(r"[\n;]", body) if line.strip()]
        for line in lines:
            entry = strip_bullet(line)
            label = _LABEL.match(entry)
            is_list = label or (len(lines) == 1 and entry.count(",") >= _LIST_COMMAS)
            for item in _split_items(entry[label.end() if label else 0 :]) if is_list else [entry]:
                assertion = assess_line(item)
                if assertion.status == "present" and 1 < len(assertion.name) <= _MAX_NAME:
                    yield assertion.name


def _split_items(text: str) -> Sequence[str]:
    """Return the items between commas, each with its details (`not confirmed`)."""
    items: list[str] = []
    for part in text.split(","):
        if items and (_DETAIL.match(part) or not assess_line(part).name):
            items[-1] += f", {part}"
        else:
            items.append(part)
    return items


async def summarize(
    pipeline: Pipeline, problems: Iterable[ProblemName], patient: str, since: str | None = None
) -> AsyncIterator[SummarySection]:
    """Yield a section for each problem, in their order. A failed one has an answer in the state `failed`.

    `since` leaves out notes of an earlier day. Raises UserError as `Pipeline.answer` does.
    """
    for problem in problems:
        question = Question(QUESTION.format(problem=problem.full_name), id=f"summary:{problem.name}", patient=patient)
        scope = build_scope(pipeline.settings.scope, question=question)
        if since is not None:
            scope = replace(scope, since=since)
        yield SummarySection(problem, await pipeline.answer(question, scope))
