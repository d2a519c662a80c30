"""A chat model as reward model: the stand-in where no trained one is at hand, and named so (`Rewarder.judge`).

It gives each attribute a mark from 1 to 5. The context-retrieval study has trained scores, of ArmoRM, on another scale:
the two are not to be compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from epicrisis.answering.baselines import PROMPTS
from epicrisis.answering.strategy_context import Context, ask
from epicrisis.answering.structured_request import Unreadable, json_objects
from epicrisis.prompts import fence, render
from epicrisis.types import Question

ROLE = "reward"
ATTRIBUTES = ("truthfulness", "honesty", "helpfulness")
BEST = 5


@dataclass(frozen=True, slots=True)
class RewardFormat:
    """A mark for each attribute."""

    attributes: tuple[str, ...] = ATTRIBUTES

    @property
    def max_tokens(self) -> int:
        return 30 + 20 * len(self.attributes)

    def schema(self) -> Mapping[str, Any]:
        """JSON schema: an object with a whole number from 1 to 5 for each attribute."""
        mark = {"type": "integer", "minimum": 1, "maximum": BEST}
        return {
            "type": "object",
            "properties": dict.fromkeys(self.attributes, mark),
            "required": list(self.attributes),
            "additionalProperties": False,
        }

    def read(self, text: str) -> Mapping[str, float]:
        """The marks. Raises Unreadable."""
        for found in json_objects(text, frozenset(self.attributes)):
            marks = {name: found.get(name) for name in self.attributes}
            if all(type(mark) is int and 1 <= mark <= BEST for mark in marks.values()):
                return {name: float(mark) for name, mark in marks.items() if mark is not None}
        raise Unreadable(f"the reply gives no marks from 1 to {BEST}")


async def request_reward(question: Question, text: str, context: Context) -> Mapping[str, float]:
    """The marks of an answer. Raises ChatError, Unreadable."""
    answer = fence([text], label="answer")
    prompt = render(PROMPTS, "reward", question=question.text, options=question.options, answer=answer)
    return await ask(context, ROLE, "reward", prompt, RewardFormat())
