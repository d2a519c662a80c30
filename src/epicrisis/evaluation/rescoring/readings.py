"""What one scoring makes of one reply. Knows no reply and no question."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from epicrisis.types import AnswerState

Scoring: TypeAlias = Literal["ours", "mirage-2024", "mirage-head"]
SCORINGS: tuple[Scoring, ...] = get_args(Scoring)


@dataclass(frozen=True, slots=True)
class Reading:
    """`choice` is a letter where the state is `answered`, else `None`. `failed`: nothing came back."""

    state: AnswerState
    choice: str | None = None
    by_default: bool = False
    """The reply does not state this letter: MIRAGE's scorers put one where they find none."""
