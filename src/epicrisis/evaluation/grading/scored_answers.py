"""The noun of measuring: an answer beside what it is held against, read off a run's record.

Knows no metric, no judge and no file of theirs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from epicrisis.answers import Answer, Citation, Retrieved
from epicrisis.evaluation.grading.blind_pairs import remove_citations
from epicrisis.evaluation.grading.case_outcomes import Ending, classify_ending
from epicrisis.evaluation.runs.case import Condition
from epicrisis.evaluation.runs.outcomes import score_record
from epicrisis.evaluation.runs.record import RunRecord, read_records
from epicrisis.evaluation.runs.run_folder import RECORDS
from epicrisis.question_options import is_unanswerable
from epicrisis.types import EvidenceSpan, Passage, QuestionForm


@dataclass(frozen=True, slots=True)
class ScoredAnswer:
    """One case of a run, as it is measured."""

    key: str
    """Of the case."""
    question: str
    """Its text."""
    references: tuple[str, ...]
    """The gold answer and those that are as right; empty where nobody gave one, or where none is to be had."""
    answer: str
    """Without what names its evidence: `[1]`, `(doc 2)`; a verified span as it stands in the note."""
    ending: Ending = "answered"
    question_key: str = ""
    condition: Condition = field(default_factory=dict)
    form: QuestionForm = "open"
    patient: str | None = None
    category: str = ""
    right: bool | None = None
    """Of a question with options: whether the letter is the right one; `None` unless one was given."""
    unanswerable: bool = False
    """Whether the right answer, or the right option, is that the notes do not say."""
    evidence: tuple[EvidenceSpan, ...] = ()
    """Where the right answer stands."""
    citations: tuple[Citation, ...] = ()
    given: tuple[Passage, ...] = ()
    """What the answer was given to read, in the order of its ranking; of a run their texts are empty."""
    searched: bool = False
    """Whether anything was to be given, be it that nothing was found; not so of a model that reads no note."""

    @property
    def measurable(self) -> bool:
        """Whether there is an answer, and something to hold it against."""
        return self.ending == "answered" and self.form != "choice" and bool(self.references)

    @property
    def cited(self) -> tuple[Passage, ...]:
        """Those of the passages that the answer cites."""
        ids = {citation.passage_id for citation in self.citations}
        return tuple(passage for passage in self.given if passage.id in ids)

    @property
    def cites_evidence(self) -> bool | None:
        """Whether a verified citation overlaps a place where the right answer stands; `None` where no such place is
        known, or nothing was answered."""
        if self.ending != "answered" or not self.evidence:
            return None
        return any(
            cited.document_id == place.document_id and cited.start < place.end and place.start < cited.end
            for cited in self.citations
            if cited.verified and not cited.in_title
            for place in self.evidence
        )

    @property
    def of(self) -> str:
        """A hash of all that is measured: a measure of other words is none of this case."""
        cited = [[each.document_id, each.start, each.end, each.verified] for each in self.citations]
        places = [[each.document_id, each.start, each.end, each.fact] for each in self.evidence]
        given = [[each.document_id, each.start, each.end] for each in self.given]
        told = [self.question, self.references, self.answer, cited, places, given]
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]


def read_answers(run: Path) -> Iterator[ScoredAnswer]:
    """The cases of a run's folder, or of its records, in their order, one at a time in memory. Raises InputError."""
    return map(answer_from_record, read_records(run / RECORDS if run.is_dir() else run))


def answer_from_record(record: RunRecord) -> ScoredAnswer:
    """What is measured of this record."""
    answer, question = record.answer, record.answer.question
    options, gold = question.options, question.gold
    form: QuestionForm = "choice" if options else question.form
    return ScoredAnswer(
        key=record.key,
        question=question.text.strip(),
        references=() if options or not gold else tuple(dict.fromkeys((gold, *question.other_answers))),
        answer=_said(answer.text, form, answer.citations),
        ending=classify_ending(record),
        question_key=record.question_key,
        condition=record.condition,
        form=form,
        # The question may have been asked by a record number.
        patient=answer.patient or question.patient,
        category=question.category,
        right=score_record(record).right,
        unanswerable=is_unanswerable(gold, options),
        evidence=question.evidence,
        citations=answer.citations,
        given=_given(answer),
        searched=any(isinstance(event, Retrieved) for event in answer.trace),
    )


def _said(text: str, form: QuestionForm, citations: Sequence[Citation]) -> str:
    # A span may hold a `[1]` or a `(doc 2)` of the note's own.
    is_span = form == "extractive" and any(each.verified and each.quotation == text for each in citations)
    return text if is_span else remove_citations(text)


def _given(answer: Answer) -> tuple[Passage, ...]:
    found: dict[str, Passage] = {}
    rankings = [event.ranking for event in answer.trace if isinstance(event, Retrieved)]
    # The answer comes from the second asking alone.
    for ranking in rankings[-1:] if answer.narrowing == "lifted" else rankings:
        for passage in ranking.passages:
            found.setdefault(passage.id, passage)
    return tuple(found.values())
