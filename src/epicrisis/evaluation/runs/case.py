"""The noun of a run: a question under a condition. Knows no file, no model and no metric."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from epicrisis.overrides import NO_OVERRIDES, RunOverrides
from epicrisis.types import Question

Condition: TypeAlias = Mapping[str, str | int | float | bool]
"""What tells the cases of one question apart (`{"arm": "rag", "k": 8, "place": 25, "repeat": 0}`); empty where a
question is asked once."""


@dataclass(frozen=True, slots=True)
class Case:
    """A question under a condition, and how it is to be answered there."""

    question: Question
    condition: Condition = field(default_factory=dict)
    treatment: RunOverrides = NO_OVERRIDES

    @property
    def key(self) -> str:
        return case_key(self.question.key, self.condition)


def case_key(question_key: str, condition: Condition) -> str:
    """The question's key, and the condition in canonical form where there is one."""
    return f"{question_key} {canonical_condition(condition)}" if condition else question_key


def canonical_condition(condition: Condition) -> str:
    """The same text for the same condition, whatever its order."""
    return json.dumps(dict(condition), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
