"""Cases that a metric cannot score, which are neither 0 nor ignored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from epicrisis.errors import ContextOverflow

Case = TypeVar("Case")
Score = TypeVar("Score")


@dataclass(frozen=True, slots=True)
class Unscored:
    """The reason why a case has no score, in one line without text of the case."""

    reason: str


def score_fitting(score: Callable[[Sequence[Case]], Sequence[Score]], cases: Sequence[Case]) -> list[Score | Unscored]:
    """Return the score of each case, or Unscored for a case that exceeds the model's window.

    A model refuses all cases if one exceeds its window. Then each half is scored separately, down to single cases.
    """
    try:
        return list(score(cases))
    except ContextOverflow as error:
        if len(cases) == 1:
            return [Unscored(str(error))]
        middle = len(cases) // 2
        return score_fitting(score, cases[:middle]) + score_fitting(score, cases[middle:])
