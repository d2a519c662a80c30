"""How open answers are drafted and refined (OpenMedprompt): the values. Knows no model."""

from __future__ import annotations

from dataclasses import dataclass

from epicrisis.types import DraftSelection


@dataclass(frozen=True, slots=True)
class RefiningOptions:
    """`drafts` of ensemble refining, `rounds` of self-reflection."""

    drafts: int = 5
    rounds: int = 5
    keep: DraftSelection = "best"
