"""The voter: a chat model whose votes follow a known distribution over the options, with a known bias to what stands
first. So what self-consistency and choice shuffling make of it can be worked out beforehand.

It knows options by their texts, so that shuffling changes nothing but where they stand.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from epicrisis.prompts import unescape
from epicrisis.protocols import ChatRequest
from epicrisis.testing.chat import ScriptedModel
from epicrisis.testing.reader import hash_to_unit_interval
from epicrisis.testing.replies import fill

_OPTION = re.compile(r"(?m)^([A-Z])\. (.*)$")


def build_voter(beliefs: Mapping[str, Mapping[str, float]], *, first: float = 0.0, seed: int = 0) -> ScriptedModel:
    """Of each question (by its text) the probability of each option's text; they add up to 1.

    With probability `first` it takes whatever option stands first instead. Deterministic in the seed, the request's own
    seed and sample, and the question: temperature changes nothing.
    """

    def asked(request: ChatRequest) -> tuple[str, dict[str, str]]:
        """The question, and each option's letter by its text."""
        prompt = unescape(request.messages[-1].content)
        question = max((text for text in beliefs if text in prompt), key=len)
        return question, {text: letter for letter, text in _OPTION.findall(prompt.partition(question)[2])}

    def script(request: ChatRequest) -> str:
        question, letters = asked(request)
        place = (seed, request.seed, request.sample, question)
        if hash_to_unit_interval("first", *place) < first:
            letter = min(letters.values())
        else:
            letter = letters[_of(beliefs[question], hash_to_unit_interval("belief", *place))]
        return json.dumps(fill(request.schema or {"type": "object"}, {"found": True, "choice": letter}, "It is so."))

    def probabilities(request: ChatRequest) -> dict[str, float]:
        question, letters = asked(request)
        told = {letters[text]: (1 - first) * share for text, share in beliefs[question].items()}
        standing_first = min(letters.values())
        return {letter: p for letter, p in (told | {standing_first: told[standing_first] + first}).items() if p > 0}

    return ScriptedModel(script, name="voter", probabilities=probabilities)


def _of(belief: Mapping[str, float], at: float) -> str:
    """The option in whose part of [0, 1) the number lies."""
    for text, share in belief.items():
        at -= share
        if at < 0:
            return text
    return list(belief)[-1]
