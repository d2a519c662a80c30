"""A chat model with a known distribution of votes over the options, and a known bias to the first option.

So the effects of self-consistency and of shuffling can be calculated. Options are recognised by text in any order.
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
    """Return a model that votes for each option with the probability in `beliefs[question text][option text]`.

    With probability `first` it votes for the first option instead. Its votes depend on the seed, the seed and sample of
    the request, and the question, but not on temperature.
    """

    def read_question(request: ChatRequest) -> tuple[str, dict[str, str]]:
        """Return the question, and the letters of the options by text."""
        prompt = unescape(request.messages[-1].content)
        question = max((text for text in beliefs if text in prompt), key=len)
        return question, {text: letter for letter, text in _OPTION.findall(prompt.partition(question)[2])}

    def script(request: ChatRequest) -> str:
        question, letters = read_question(request)
        place = (seed, request.seed, request.sample, question)
        if hash_to_unit_interval("first", *place) < first:
            letter = min(letters.values())
        else:
            letter = letters[_choose(beliefs[question], hash_to_unit_interval("belief", *place))]
        return json.dumps(fill(request.schema or {"type": "object"}, {"found": True, "choice": letter}, "It is so."))

    def probabilities(request: ChatRequest) -> dict[str, float]:
        question, letters = read_question(request)
        shares = {letters[text]: (1 - first) * share for text, share in beliefs[question].items()}
        first_letter = min(letters.values())
        shares[first_letter] += first
        return {letter: share for letter, share in shares.items() if share > 0}

    return ScriptedModel(script, name="voter", probabilities=probabilities)


def _choose(belief: Mapping[str, float], at: float) -> str:
    """Return the option for a number in [0, 1)."""
    for text, share in belief.items():
        at -= share
        if at < 0:
            return text
    return list(belief)[-1]
