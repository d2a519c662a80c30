"""What comes of a run by each scoring, in numbers that can stand side by side. Knows no file and no interval."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from epicrisis.errors import InputError
from epicrisis.evaluation.rescoring import mirage_scorers, stated_choice
from epicrisis.evaluation.rescoring.readings import Reading, Scoring
from epicrisis.evaluation.rescoring.released_replies import Replied
from epicrisis.question_options import chance_accuracy, is_same_option
from epicrisis.types import Question


@dataclass(frozen=True, slots=True)
class Score:
    """One scoring of one run: `n == right + wrong + abstained + unparsed + failed`, counts of questions."""

    scoring: Scoring
    n: int
    right: int
    wrong: int
    abstained: int
    unparsed: int
    failed: int
    """Nothing came back: an empty list of replies, or a blank one; or nothing was asked (`over-window`)."""
    by_default: int
    """Of the right and wrong ones: those whose letter the reply does not state (MIRAGE's scorers)."""
    accuracy: float
    """Right of all, 0 to 1: MIRAGE's figure."""
    accuracy_scored: float | None
    """Right of those with a letter; `None` where there is none."""
    chance: float
    """What guessing among each question's options would get of all."""


def readings(replied: Sequence[Replied], scoring: Scoring) -> tuple[Reading, ...]:
    """How the scoring reads each question's replies, in the order given.

    `mirage-2024` reads a question without a reply as the one before it in the order of the ids, of the given questions:
    on a part of a data set it is another scorer than on the whole.
    """
    if scoring == "ours":
        return tuple(each.reading or _read(each) for each in replied)
    if scoring == "mirage-head":
        return tuple(mirage_scorers.head(each.outputs for each in replied))
    order = sorted(range(len(replied)), key=lambda place: replied[place].question.id)
    by_place = dict(zip(order, mirage_scorers.early_2024(replied[place].outputs for place in order), strict=True))
    return tuple(by_place[place] for place in range(len(replied)))


def is_right(question: Question, reading: Reading, scoring: Scoring = "ours") -> bool | None:
    """Return whether the letter is the gold one; None for abstained, unparsed and failed, neither right nor wrong.

    Ours takes the letter of an option with the same text as well. MIRAGE's scorings compare letters, as its program.
    """
    if reading.state != "answered":
        return None
    if scoring == "ours":
        return is_same_option(question.options, reading.choice, question.gold)
    return reading.choice == question.gold


def _chance(question: Question, scoring: Scoring) -> float:
    return (chance_accuracy(question.options, question.gold) or 0.0) if scoring == "ours" else 1 / len(question.options)


def score(replied: Sequence[Replied], scoring: Scoring) -> Score:
    """The numbers of one scoring. Raises InputError where a question has no options or no gold letter."""
    without = sum(not each.question.options or each.question.gold is None for each in replied)
    if without or not replied:
        raise InputError(
            f"{without} of {len(replied)} questions have no options or no gold letter: only others can be scored so"
            if replied
            else "there is no question to score: give at least one"
        )
    read = readings(replied, scoring)
    marks = [is_right(each.question, reading, scoring) for each, reading in zip(replied, read, strict=True)]
    counts = Counter(reading.state for reading in read)
    right, wrong, n = marks.count(True), marks.count(False), len(replied)
    return Score(
        scoring=scoring,
        n=n,
        right=right,
        wrong=wrong,
        abstained=counts["abstained"],
        unparsed=counts["unparsed"],
        failed=counts["failed"] + counts["over-window"],
        by_default=sum(reading.by_default for reading in read),
        accuracy=right / n,
        accuracy_scored=right / (right + wrong) if right + wrong else None,
        chance=fmean(_chance(each.question, scoring) for each in replied),
    )


def _read(replied: Replied) -> Reading:
    return stated_choice.read(replied.outputs[0], replied.question.options) if replied.outputs else Reading("failed")
