"""The position-biased reader: a chat model with a known blind spot.

It attends to a document with a known probability, given by the document's place and by how many documents the prompt
holds, and to nothing else. So every experiment on position has a right answer that can be worked out beforehand. It
is told the key passage of each question and finds that passage by its text in the prompt; it is told nothing of
strategies, stages or rankings.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from epicrisis.prompts import OPEN, unescape, unfence
from epicrisis.seams import ChatRequest
from epicrisis.testing.chat import ScriptedModel
from epicrisis.testing.replies import fill, quotation

Curve: TypeAlias = Callable[[int, int], float]
"""(place from 0, documents in the prompt) -> probability of attending to the document there."""

_QUOTED = re.compile(r'"([^"]{20,})"')


def u_curve(edge: float = 0.95, dip: float = 0.6, reference: int = 16) -> Curve:
    """A U over the places, deeper the longer the context (Liu et al. 2023; BriefContext, Fig. 2 and 5).

    At both ends the probability is `edge`; in the middle of `reference` documents it is `edge - dip`, and the dip
    shrinks in proportion for fewer documents. One document alone is always read.
    """

    def probability(place: int, documents: int) -> float:
        if documents == 1:
            return 1.0
        across = place / (documents - 1)
        depth = dip * min(1.0, (documents - 1) / (reference - 1))
        return edge - depth * 4 * across * (1 - across)

    return probability


@dataclass(frozen=True, slots=True)
class Key:
    """What settles a question: the key passage's text and the right letter."""

    passage: str
    choice: str


def position_biased_reader(
    keys: Mapping[str, Key], curve: Curve, *, seed: int = 0, context_tokens: int = 1_000_000
) -> ScriptedModel:
    """A reader of the questions in `keys` (question text -> key). Deterministic in seed, question and documents.

    Where it attends to the key passage it says so, quotes it and gives its choice; otherwise it reports that it found
    nothing, whatever it was asked for.
    """

    def script(request: ChatRequest) -> str:
        prompt = request.messages[-1].content
        items = unfence(prompt)
        asked = unescape(prompt.partition(OPEN)[0])
        # The longest: one question's text may stand inside another's.
        named = max((text for text in keys if text in asked), key=len, default=None)
        key = None if named is None else keys[named]
        place = None if key is None else _place_of(key, items)
        attends = place is not None and drawn(seed, request.seed, prompt) < curve(place, len(items))
        schema = request.schema or {"type": "object"}
        if key is None or place is None or not attends:
            return json.dumps(fill(schema, {"found": False, "quotes": [], "choice": None}, "nothing relevant"))
        quote = quotation(key.passage)
        values = {"found": True, "quotes": [{"doc": place + 1, "quote": quote}], "choice": key.choice}
        return json.dumps(fill(schema, values, f'It says "{quote}".'))

    return ScriptedModel(script, name="position-biased-reader", context_tokens=context_tokens)


def _place_of(key: Key, items: Sequence[str]) -> int | None:
    """Where the key passage stands: whole, or quoted in a finding."""
    for place, item in enumerate(items):
        if key.passage in item or any(quote in key.passage for quote in _QUOTED.findall(item)):
            return place
    return None


def drawn(*parts: object) -> float:
    """A number in [0, 1) that depends on the parts alone."""
    digest = hashlib.sha256("\0".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64
