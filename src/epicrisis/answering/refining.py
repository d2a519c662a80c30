"""How open answers are drafted and refined (OpenMedprompt): the values. Knows no model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Keep: TypeAlias = Literal["last", "best"]
"""Which draft of self-reflection is the answer: the last, as published; or the one of highest reward (errata P8)."""


@dataclass(frozen=True, slots=True)
class Refining:
    """`drafts` of ensemble refining, `rounds` of self-reflection."""

    drafts: int = 5
    rounds: int = 5
    keep: Keep = "best"
