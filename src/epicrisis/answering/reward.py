"""A chat model as a reward model, for installations without a trained one; `Rewarder.judge` names it.

It marks each attribute from 1 to 5. The context-retrieval study uses the scores of ArmoRM, a trained model with another
scale, so the two cannot be compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from epicrisis.answering.strategy_context import PROMPTS, Context, ask
from epicrisis.answering.structured_request import Unreadable, json_objects, object_schema
from epicrisis.prompts import fence, render
from epicrisis.types import Question

ROLE = "reward"
ATTRIBUTES = ("truthfulness", "honesty", "helpfulness")
BEST = 5


@dataclass(frozen=True, slots=True)
class RewardFormat:
    """The format of a reply with a mark for each attribute."""

    attributes: tuple[str, ...] = ATTRIBUTES

    @property
    def max_tokens(self) -> int:
        return 30 + 20 * len(self.attributes)

    def schema(self) -> Mapping[str, Any]:
        """Return the JSON schema: an object with a whole number from 1 to 5 for each attribute."""
        mark = {"type": "integer", "minimum": 1, "maximum": BEST}
        return object_schema(dict.fromkeys(self.attributes, mark))

    def read(self, text: str) -> Mapping[str, float]:
        """Return the mark of each attribute. Raises Unreadable."""
        for reply in json_objects(text, frozenset(self.attributes)):
            if all(map(_is_mark, map(reply.get, self.attributes))):
                return {name: float(reply[name]) for name in self.attributes}
        raise Unreadable(f"the reply gives no marks from 1 to {BEST}")


def _is_mark(value: object) -> bool:
    return type(value) is int and 1 <= value <= BEST


async def request_reward(question: Question, text: str, context: Context) -> Mapping[str, float]:
    """Return the marks of an answer by attribute. Raises ChatError and Unreadable."""
    answer = fence([text], label="answer")
    prompt = render(PROMPTS, "reward", question=question.text, options=question.options, answer=answer)
    return await ask(context, ROLE, "reward", prompt, RewardFormat())
