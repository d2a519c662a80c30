"""The outcome of a case: the little of its record that tables of accuracy are made from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import get_args

from epicrisis.answering.strategies.evidence import NAME as EVIDENCE
from epicrisis.core.answers import Answer
from epicrisis.core.errors import InputError
from epicrisis.core.question_options import chance_accuracy, is_same_option
from epicrisis.core.types import AnswerState
from epicrisis.pipeline.recording.answer_record import RunRecord
from epicrisis.pipeline.recording.case import Case, Condition

STATES: tuple[AnswerState, ...] = get_args(AnswerState)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How one case ended, by the chat model's own answer: a computed answer in its place does not count."""

    question: str
    """`Question.key`: the cases of one question are one cluster."""
    condition: Condition
    state: AnswerState
    right: bool | None = None
    """Whether the letter is the gold letter, or that of an option with the same text. None unless the state is
    `answered`, and for a question without options or gold letter."""
    chance: float | None = None
    """The probability of guessing right among the options; None without options."""
    unread_parts: int = 0
    """Parts whose calls were lost or whose replies could not be read. BriefContext leaves them out (errata C4)."""
    is_unmarked: bool = False
    """Whether a judge should have marked the open answer and gave no verdict. Such a case has no score."""
    is_withheld: bool = False
    """Whether the model's answer was kept from the reader, as no quotation was verified. The state is `abstained`."""

    @property
    def is_lost(self) -> bool:
        """Whether a call was not made or not answered, so that the answer may have been right."""
        return self.state == "failed" and not self.is_unmarked


def read_model_text(answer: Answer) -> str:
    """Return the words of the chat model, without the computed sentence before them unless the model repeats it.

    The strategy `evidence` has no model, so its text is complete.
    """
    if answer.strategy == EVIDENCE:
        return answer.text
    if answer.model_outcome is not None:
        return answer.model_outcome.text
    is_computed = any(claim.is_computed for claim in answer.claims)
    return answer.text.partition("\n")[2] or answer.text if is_computed else answer.text


def score_case(case: Case, answer: Answer) -> Outcome:
    """Return the outcome of a case that has just been answered."""
    return _score(case.question.key, case.condition, answer)


def score_record(record: RunRecord) -> Outcome:
    """Return the outcome of a recorded case."""
    return _score(record.question_key, record.condition, record.answer)


def score_records(records: Iterable[RunRecord]) -> tuple[Outcome, ...]:
    """Return the outcomes of recorded cases. Raises InputError for a question without options or gold letter."""
    outcomes = []
    for record in records:
        question = record.answer.question
        if question.gold is None or not question.options:
            raise InputError(
                f"question {question.id!r} has no options or no gold letter, so its answer cannot be scored: leave "
                "the question out"
            )
        outcomes.append(score_record(record))
    return tuple(outcomes)


def _score(question_key: str, condition: Condition, answer: Answer) -> Outcome:
    question, right = answer.question, None
    if answer.state == "answered" and question.options and question.gold is not None:
        right = is_same_option(question.options, answer.choice, question.gold)
    return Outcome(
        question=question_key,
        condition=condition,
        state=answer.model_state,
        right=right,
        chance=chance_accuracy(question.options, question.gold),
        is_withheld=answer.withheld is not None,
        unread_parts=sum(partial.is_unread for partial in answer.partials),
    )
