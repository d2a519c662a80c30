"""The cases of a run: questions under conditions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from epicrisis.core.types import Question
from epicrisis.pipeline.overrides import NO_OVERRIDES, RunOverrides

Condition: TypeAlias = Mapping[str, str | int | float | bool]
"""The values in which the cases of a question differ: `{"arm": "rag", "k": 8, "place": 25, "repeat": 0}`. Empty if each
question is one case."""


@dataclass(frozen=True, slots=True)
class Case:
    """A question under a condition, and the settings that the condition changes."""

    question: Question
    condition: Condition = field(default_factory=dict)
    treatment: RunOverrides = NO_OVERRIDES

    @property
    def key(self) -> str:
        return case_key(self.question.key, self.condition)


def case_key(question_key: str, condition: Condition) -> str:
    """Return the key of a question under a condition."""
    return f"{question_key} {canonical_condition(condition)}" if condition else question_key


def canonical_condition(condition: Condition) -> str:
    """Return a condition as text that does not depend on its order."""
    return json.dumps(dict(condition), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
