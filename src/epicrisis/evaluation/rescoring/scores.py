"""The figures of a run according to each scoring."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal, TypeAlias, get_args

from epicrisis.answering.stated_choice import read_free_reply
from epicrisis.errors import InputError
from epicrisis.evaluation.rescoring.mirage_scorers import Reading, read_like_early_2024, read_like_head
from epicrisis.evaluation.rescoring.released_replies import AnsweredQuestion
from epicrisis.question_options import chance_accuracy, is_same_option
from epicrisis.types import Question

Scoring: TypeAlias = Literal["ours", "mirage-2024", "mirage-head"]
SCORINGS: tuple[Scoring, ...] = get_args(Scoring)


@dataclass(frozen=True, slots=True)
class Score:
    """The figures of a run: `n == right + wrong + abstained + unparsed + failed`, numbers of questions."""

    scoring: Scoring
    n: int
    right: int
    wrong: int
    abstained: int
    unparsed: int
    failed: int
    """No reply, a blank one, or no request (`over-window`)."""
    by_default: int
    """Right and wrong answers whose letter the reply does not state (MIRAGE's scorers)."""
    accuracy: float
    """Share of right answers among all questions, 0 to 1: MIRAGE's figure."""
    accuracy_scored: float | None
    """Share of right answers among those with a letter; None if there are none."""
    chance: float
    """Expected accuracy of guessing among each question's options."""


def read_replies(questions: Sequence[AnsweredQuestion], scoring: Scoring) -> tuple[Reading, ...]:
    """Return how a scoring reads the reply to each question, in the given order.

    `mirage-2024` reads a question without a reply as the previous one in the order of the ids, so the readings for part
    of a data set can differ from those for all of it.
    """
    if scoring == "ours":
        return tuple(map(_read_strictly, questions))
    if scoring == "mirage-head":
        return tuple(read_like_head(question.outputs for question in questions))
    order = sorted(range(len(questions)), key=lambda place: questions[place].question.id)
    in_order = read_like_early_2024(questions[place].outputs for place in order)
    by_place = dict(zip(order, in_order, strict=True))
    return tuple(map(by_place.__getitem__, range(len(questions))))


def _read_strictly(question: AnsweredQuestion) -> Reading:
    if question.reading is not None:
        return question.reading
    if not question.outputs:
        return Reading("failed")
    reply = read_free_reply(question.outputs[0], question.question.options)
    return Reading(reply.state, reply.choice)


def is_right(question: Question, reading: Reading, scoring: Scoring = "ours") -> bool | None:
    """Return whether the letter is the gold one; None for abstained, unparsed and failed, neither right nor wrong.

    `ours` also accepts the letter of an option with the same text. MIRAGE's scorings compare letters.
    """
    if reading.state != "answered":
        return None
    if scoring == "ours":
        return is_same_option(question.options, reading.choice, question.gold)
    return reading.choice == question.gold


def _chance(question: Question, scoring: Scoring) -> float:
    if scoring == "ours":
        return chance_accuracy(question.options, question.gold) or 0.0
    return 1 / len(question.options)


def score_replies(questions: Sequence[AnsweredQuestion], scoring: Scoring) -> Score:
    """Return the figures of one scoring. Raises InputError if a question has no options or no gold letter."""
    n = len(questions)
    if not n:
        raise InputError("there is no question to score: pass at least one")
    unscorable = 0
    for question in questions:
        unscorable += not question.question.options or question.question.gold is None
    if unscorable:
        raise InputError(
            f"{unscorable} of {n} questions have no options or no gold letter: leave them out, only letters are scored"
        )
    readings = read_replies(questions, scoring)
    marks: Counter[bool | None] = Counter()
    states: Counter[str] = Counter()
    by_default = 0
    for question, reading in zip(questions, readings, strict=True):
        marks[is_right(question.question, reading, scoring)] += 1
        states[reading.state] += 1
        by_default += reading.by_default
    right, wrong = marks[True], marks[False]
    return Score(
        scoring=scoring,
        n=n,
        right=right,
        wrong=wrong,
        abstained=states["abstained"],
        unparsed=states["unparsed"],
        failed=states["failed"] + states["over-window"],
        by_default=by_default,
        accuracy=right / n,
        accuracy_scored=right / (right + wrong) if right + wrong else None,
        chance=fmean(_chance(question.question, scoring) for question in questions),
    )
