"""A case that a metric could not score, which is neither a 0 nor a case that was not there.

Knows no metric.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from epicrisis.errors import ContextOverflow

Case = TypeVar("Case")
Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class Unscored:
    """Why, in one line that holds no text of the case."""

    reason: str


def score_fitting(make: Callable[[Sequence[Case]], Sequence[Made]], cases: Sequence[Case]) -> list[Made | Unscored]:
    """What is made of each case, in their order. A model refuses all that it is given where one case does not fit its
    window: then each half is tried by itself, until that case stands alone, which is unscored."""
    try:
        return list(make(cases))
    except ContextOverflow as error:
        if len(cases) == 1:
            return [Unscored(str(error))]
        middle = len(cases) // 2
        return score_fitting(make, cases[:middle]) + score_fitting(make, cases[middle:])
