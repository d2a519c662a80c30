"""The voter: a chat model whose votes follow a known distribution over the options, with a known bias to what stands
first. So what self-consistency and choice shuffling make of it can be worked out beforehand.

It knows options by their texts, so that shuffling changes nothing but where they stand.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from epicrisis.prompts import unescape
from epicrisis.seams import ChatRequest
from epicrisis.testing.chat import ScriptedModel
from epicrisis.testing.reader import drawn
from epicrisis.testing.replies import fill

_OPTION = re.compile(r"(?m)^([A-Z])\. (.*)$")


def voter(beliefs: Mapping[str, Mapping[str, float]], *, first: float = 0.0, seed: int = 0) -> ScriptedModel:
    """Of each question (by its text) the probability of each option's text; they add up to 1.

    With probability `first` it takes whatever option stands first instead. Deterministic in the seed, the request's own
    seed and sample, and the question: temperature changes nothing.
    """

    def script(request: ChatRequest) -> str:
        prompt = unescape(request.messages[-1].content)
        question = max((text for text in beliefs if text in prompt), key=len)
        letters = {text: letter for letter, text in _OPTION.findall(prompt.partition(question)[2])}
        place = (seed, request.seed, request.sample, question)
        if drawn("first", *place) < first:
            letter = min(letters.values())
        else:
            letter = letters[_of(beliefs[question], drawn("belief", *place))]
        return json.dumps(fill(request.schema or {"type": "object"}, {"found": True, "choice": letter}, "It is so."))

    return ScriptedModel(script, name="voter")


def _of(belief: Mapping[str, float], at: float) -> str:
    """The option in whose part of [0, 1) the number lies."""
    for text, share in belief.items():
        at -= share
        if at < 0:
            return text
    return list(belief)[-1]
