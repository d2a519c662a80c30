"""Answers of a run with all that is needed to score them: references, evidence, notes, and how the case ended."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from epicrisis.core.answers import Citation, Retrieved
from epicrisis.core.computed_values import ComputedAnswer
from epicrisis.core.errors import InputError
from epicrisis.core.protocols import PassageStore, fetch_all
from epicrisis.core.question_options import is_unanswerable
from epicrisis.core.types import EvidenceSpan, Passage, QuestionForm, Scope
from epicrisis.evaluation.grading.blind_pairs import remove_citations
from epicrisis.evaluation.runs.outcomes import read_model_text, score_record
from epicrisis.evaluation.runs.run_folder import RECORDS
from epicrisis.pipeline.recording.answer_record import RunRecord, read_records
from epicrisis.pipeline.recording.case import Condition
from epicrisis.retrieval.record_context import restore_notes

Ending: TypeAlias = Literal["answered", "abstained", "empty", "refused", "unparsed", "over-window", "failed"]
"""How a case ended, in more detail than its state: an empty reply, a refusal and a wrong answer differ (errata E2).

`empty`: the reply had no text; `refused`: withheld by the endpoint, or refused in words; `over-window`: the prompt was
longer than the model's window, so no request was sent. Only `answered` cases are measured; the others are counted.
"""
ENDINGS: tuple[Ending, ...] = get_args(Ending)

_FAILURE_ENDINGS: Mapping[str, Ending] = {
    "ContextOverflow": "over-window",
    "EmptyReply": "empty",
    "ReplyEmpty": "empty",
    "ReplyMisplaced": "empty",
    "ReplyWithheld": "refused",
}

# Only at the beginning of the answer, and only in the first person: "cannot be excluded" is an answer, and "I cannot
# find it in the notes" is an abstention.
_REFUSAL = re.compile(
    r"""(?ix) ^ \W*
    (?: (?:i['’]?m\s+(?:really\s+|very\s+)?sorry|i\s+am\s+sorry|sorry|i\s+apologi[sz]e|unfortunately) \b [\s,.:;]*
        (?:but\s+)? )?
    (?: as\s+an?\s+(?:\w+\s+)?(?:ai|artificial\s+intelligence|(?:large\s+)?language\s+model)\b
      | i\s+(?:can(?:no|['’])t | can\s+not | am\s+(?:unable|not\s+(?:able|allowed|permitted))\s+to
               | (?:will|must)\s+not | won['’]t)
        \s+(?:help|assist|comply|(?:provide|give|offer)\s+(?:you\s+)?(?:with\s+)?(?:any\s+)?(?:medical|clinical)\s+advice
            |(?:answer|discuss|fulfil?l)\s+(?:this|that|your|such)\b)
      | i\s+(?:must|have\s+to)\s+(?:decline|refuse)\b
    )"""
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredAnswer:
    """One case of a run in the form that measurers take."""

    key: str
    """Key of the case."""
    question: str
    """Text of the question."""
    references: tuple[str, ...]
    """The gold answer and other right answers. Empty without a gold answer, and for questions with options."""
    answer: str
    """The model's words without citations such as `[1]` and `(doc 2)`. A verified span is exactly as in the note."""
    ending: Ending = "answered"
    question_key: str = ""
    condition: Condition = field(default_factory=dict)
    form: QuestionForm = "open"
    patient: str | None = None
    category: str = ""
    right: bool | None = None
    """Of a question with options: whether the letter is right. None without a letter."""
    unanswerable: bool = False
    """Whether the right answer, or the right option, is that the notes do not say."""
    evidence: tuple[EvidenceSpan, ...] = ()
    """The places of the right answer."""
    citations: tuple[Citation, ...] = ()
    given: tuple[Passage, ...] = ()
    """The passages in the prompt, in the order of their ranking. Those of a run have no texts."""
    searched: bool = False
    """Whether there was a search for passages, even one without a result."""
    computed: ComputedAnswer | None = None
    """What was computed from structured entries. None without facts, and for a question that is not about them."""

    @property
    def measurable(self) -> bool:
        """Whether there is an answer and a reference."""
        return self.ending == "answered" and self.form != "choice" and bool(self.references)

    @property
    def cited(self) -> tuple[Passage, ...]:
        """The passages in the prompt that the answer cites."""
        ids = {citation.passage_id for citation in self.citations}
        return tuple(passage for passage in self.given if passage.id in ids)

    @property
    def cites_evidence(self) -> bool | None:
        """Whether a verified citation overlaps the evidence. None without known evidence or without an answer."""
        if self.ending != "answered" or not self.evidence:
            return None
        for citation, span in product(self.citations, self.evidence):
            overlaps = citation.start < span.end and span.start < citation.end
            if citation.verified and not citation.in_title and citation.document_id == span.document_id and overlaps:
                return True
        return False

    @property
    def digest(self) -> str:
        """A hash of all that is measured. A measurement of other texts does not belong to this case."""
        place = ("document_id", "start", "end")
        citations = list(map(attrgetter(*place, "verified"), self.citations))
        evidence = list(map(attrgetter(*place, "fact"), self.evidence))
        passages = list(map(attrgetter(*place), self.given))
        content = [self.question, self.references, self.answer, citations, evidence, passages]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


def read_answers(run: Path) -> Iterator[ScoredAnswer]:
    """Yield the cases of a run's folder, or of its records, in order, one at a time in memory. Raises InputError."""
    return map(answer_from_record, read_records(run / RECORDS if run.is_dir() else run))


def answer_from_record(record: RunRecord) -> ScoredAnswer:
    """Return the answer of a record with all that is needed to score it."""
    answer, question = record.answer, record.answer.question
    text = read_model_text(answer)
    options, gold = question.options, question.gold
    form: QuestionForm = "choice" if options else question.form
    passages: dict[str, Passage] = {}
    rankings = [event.ranking for event in answer.trace if isinstance(event, Retrieved)]
    # If the date filter was lifted, the answer comes from the second search alone.
    for ranking in rankings[-1:] if answer.narrowing == "lifted" else rankings:
        for passage in ranking.passages:
            passages.setdefault(passage.id, passage)
    # A span may contain a `[1]` or a `(doc 2)` of the note itself.
    is_span = form == "extractive" and any(c.verified and c.quotation == text for c in answer.citations)
    return ScoredAnswer(
        key=record.key,
        question=question.text.strip(),
        references=() if options or not gold else tuple(dict.fromkeys((gold, *question.other_answers))),
        answer=text if is_span else remove_citations(text),
        ending=classify_ending(record),
        question_key=record.question_key,
        condition=record.condition,
        form=form,
        # The patient of the answer is known even if the question had a record number.
        patient=answer.patient or question.patient,
        category=question.category,
        right=score_record(record).right,
        unanswerable=is_unanswerable(gold, options),
        evidence=question.evidence,
        citations=answer.citations,
        given=tuple(passages.values()),
        searched=bool(rankings),
        computed=answer.computed,
    )


def classify_ending(record: RunRecord) -> Ending:
    """Return how the case of this record ended.

    An open or extractive answer is `refused` if it begins with a refusal ("I'm sorry, but I cannot help with ...", "As
    an AI ..."). Refusals in other words, or later in an answer, are not recognized.
    """
    answer = record.answer
    state, text = answer.model_state, read_model_text(answer)
    failure = answer.failure if answer.model_outcome is None else answer.model_outcome.failure
    kind = "" if failure is None else failure.kind
    if state != "answered" and kind in _FAILURE_ENDINGS:
        return _FAILURE_ENDINGS[kind]
    if answer.withheld is not None:
        # A refusal has no quotation, so it was withheld from the reader.
        text = answer.withheld.text
    has_text = state in ("answered", "unparsed") or answer.withheld is not None
    if not answer.question.options and has_text and is_refusal(text):
        return "refused"
    if state == "answered":
        return "answered" if text.strip() or answer.choice is not None else "empty"
    return state


def is_refusal(text: str) -> bool:
    """Return whether the text begins with a refusal to answer."""
    return _REFUSAL.match(text) is not None


class NoteTexts:
    """The texts of passages, from the record or from a library. Keeps the notes of one patient in memory."""

    def __init__(self, store: PassageStore | None = None, library: dict[str, Any] | None = None) -> None:
        """`library` describes the library for a recipe."""
        self._store = store
        self.library = library
        self._patient: str | None = None
        self._notes: dict[str, Passage] = {}

    def read(self, passages: Sequence[Passage], patient: str | None) -> tuple[Passage, ...]:
        """Return the passages with their texts, reading only notes of `patient`. Raises InputError if missing."""
        return tuple(passage if passage.text else self._read(passage, patient) for passage in passages)

    def _read(self, passage: Passage, patient: str | None) -> Passage:
        if self._store is None:
            raise InputError("the run has no texts of its notes: give the library that it used (--against-notes)")
        if passage.patient is None:
            (stored,) = fetch_all(self._store, [passage.id], Scope(patient=patient))
            return stored
        if patient != self._patient:
            # The prompt may have held a whole note, which no library stores as one passage.
            notes = restore_notes(self._store.fetch_record(Scope(patient=patient)))
            self._patient, self._notes = patient, dict(zip((note.document_id for note in notes), notes, strict=True))
        note = self._notes.get(passage.document_id)
        if note is None or not note.start <= passage.start <= passage.end <= note.end:
            raise InputError(
                f"the library has no such place in {passage.document_id!r} of this patient: give the library of the run"
            )
        return replace(passage, text=note.text[passage.start - note.start : passage.end - note.start])
