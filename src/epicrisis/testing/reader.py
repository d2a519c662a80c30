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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from epicrisis.prompts import OPEN, unescape, unfence
from epicrisis.protocols import ChatRequest
from epicrisis.testing.chat import ScriptedModel
from epicrisis.testing.replies import fill, quotation
from epicrisis.types import EvidenceSpan, Question

PositionCurve: TypeAlias = Callable[[int, int], float]
"""(place from 0, documents in the prompt) -> probability of attending to the document there."""

_QUOTED = re.compile(r'"([^"]{20,})"')
_FINDING = 168
"""Characters of a finding for its quotations."""
_ENDS = re.compile(r"(?<=[.!?])[ ]+(?=[A-Z0-9])")
HOLISTIC = "holistic"
_QUOTED_WORDS = 3
"""Fewer are no quotation to whoever verifies them."""
MAX_SOURCES = 3


def u_curve(edge: float = 0.95, dip: float = 0.6, reference: int = 16) -> PositionCurve:
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
class KeyPassage:
    """What settles a question: the key passage's text and the right letter."""

    passage: str
    choice: str = ""
    answer: str = ""
    """What it answers where the question has no options; where the prompt lists this text as an option, its letter."""
    also_needs: tuple[str, ...] = ()
    """Further passages that it must attend to as well."""

    @property
    def passages(self) -> tuple[str, ...]:
        return (self.passage, *self.also_needs)


KeyPassages: TypeAlias = Mapping[str, KeyPassage | Sequence[KeyPassage]]
"""Question text -> its key; or several, where it is asked of several records, or answered in several places."""


def position_biased_reader(
    keys: KeyPassages, curve: PositionCurve, *, seed: int = 0, context_tokens: int = 1_000_000
) -> ScriptedModel:
    """A reader of the questions in `keys`. Deterministic in seed, question and documents.

    A key is settled where it attends to each of the key's passages; of several keys any one will do. Then it says so,
    quotes the passages and gives its choice or its answer. Asked for a finding (a map call) it reports a part of what
    a key needs as well, and chooses nothing. Otherwise it reports that it found nothing, whatever it was asked for.
    """

    def script(request: ChatRequest) -> str:
        prompt = request.messages[-1].content
        items = unfence(prompt)
        asked = unescape(prompt.partition(OPEN)[0])
        # The longest: one question's text may stand inside another's.
        named = max((text for text in keys if text in asked), key=len, default=None)
        mine = () if named is None else _several(keys[named])
        held = _attended([_places_of(key, items) for key in mine], len(items), curve, (seed, request.seed, prompt))
        schema = request.schema or {"type": "object"}
        reported = _reported(mine, held, partly="finding" in json.dumps(schema))
        if reported is None:
            return json.dumps(fill(schema, {"found": False, "quotes": [], "choice": None}, "nothing relevant"))
        key, places = reported
        return json.dumps(_reply(schema, key, places, asked))

    return ScriptedModel(script, name="position-biased-reader", context_tokens=context_tokens)


def _several(keys: KeyPassage | Sequence[KeyPassage]) -> tuple[KeyPassage, ...]:
    return (keys,) if isinstance(keys, KeyPassage) else tuple(keys)


def _places_of(key: KeyPassage, items: Sequence[str]) -> list[list[int]]:
    """For each passage of the key the items that hold it: whole, or quoted in a finding."""
    quoted = [_QUOTED.findall(item) for item in items]
    return [
        [
            place
            for place, item in enumerate(items)
            if passage in item or any(quote in passage for quote in quoted[place])
        ]
        for passage in key.passages
    ]


def _attended(
    found: Sequence[Sequence[Sequence[int]]], documents: int, curve: PositionCurve, of: tuple[object, ...]
) -> list[list[int | None]]:
    """For each key and passage the first place that it stands at and that is attended to; `None` where there is none.

    One draw a document: whatever stands in it is read with it, or missed with it.
    """
    places = sorted({place for key in found for passage in key for place in passage})
    attends = {
        # The first place's draw is of the prompt alone, as it was before keys had several passages.
        place: hash_to_unit_interval(*of, *([place] if number else [])) < curve(place, documents)
        for number, place in enumerate(places)
    }
    return [[next((place for place in passage if attends[place]), None) for passage in key] for key in found]


def _reported(
    keys: Sequence[KeyPassage], held: Sequence[Sequence[int | None]], partly: bool
) -> tuple[KeyPassage, Sequence[int | None]] | None:
    """The first key that is settled; `partly` else the one of which most passages are attended to."""
    for key, places in zip(keys, held, strict=True):
        if None not in places:
            return key, places
    parts = [pair for pair in zip(keys, held, strict=True) if any(place is not None for place in pair[1])]
    most = max(parts, key=lambda pair: sum(place is not None for place in pair[1]), default=None)
    return most if partly else None


def _reply(schema: Mapping[str, Any], key: KeyPassage, places: Sequence[int | None], asked: str) -> Any:
    read = [(place, passage) for place, passage in zip(places, key.passages, strict=True) if place is not None]
    # A finding has few words: each of its quotations must be in it, and long enough to be known again.
    room = max(_FINDING // len(read) - 4, 20)
    said = ", ".join('"' + quotation(passage)[:room].strip() + '"' for _, passage in read)
    quotes = [{"doc": place + 1, "quote": _words(key, passage)} for place, passage in read]
    values: dict[str, Any] = {"found": True, "quotes": quotes, "choice": key.choice, "doc": quotes[0]["doc"]}
    values["span"] = key.answer if key.answer in read[0][1] and key.answer else quotation(read[0][1])
    if "quotes" not in json.dumps(schema):
        values["sources"] = sorted({place + 1 for place, _ in read})[:MAX_SOURCES]
    if None in places:
        values["choice"] = None
    elif key.answer:
        listed = re.search(rf"(?m)^([A-Z])\. {re.escape(key.answer)}$", asked)
        values |= {"choice": listed[1]} if listed else {"answer": key.answer}
    return fill(schema, values, f"It says {said}.")


def _words(key: KeyPassage, passage: str) -> str:
    """The words that are quoted: the answer itself where it stands there and is no letter, for they may become it."""
    verbatim = not key.choice and key.answer in passage and len(key.answer.split()) >= _QUOTED_WORDS
    return key.answer if verbatim else quotation(passage)


def find_key_passages(questions: Iterable[Question], notes: Mapping[str, str]) -> dict[str, tuple[KeyPassage, ...]]:
    """The keys of questions whose evidence is known; `notes` holds the text of each document by its id.

    A key passage is the sentence, on its line, around a place of the evidence. A holistic question needs all of its
    places; of any other one is enough. A question without evidence (what the record does not say) has no key.
    Raises KeyError where a note is missing.
    """
    keys: dict[str, list[KeyPassage]] = {}
    for question in questions:
        passages = list(dict.fromkeys(_around(notes[place.document_id], place) for place in question.evidence))
        letter = (question.gold or "") if question.options else ""
        answer = question.options[letter] if question.options else question.gold or ""
        if question.category == HOLISTIC:
            made = [KeyPassage(passages[0], letter, answer, tuple(passages[1:]))] if passages else []
        else:
            made = [KeyPassage(passage, letter, answer) for passage in passages]
        keys.setdefault(question.text, []).extend(made)
    return {text: tuple(dict.fromkeys(several)) for text, several in keys.items() if several}


def _around(text: str, place: EvidenceSpan) -> str:
    line = text.rfind("\n", 0, place.start) + 1
    ends = (found.end() for found in _ENDS.finditer(text, line, place.start + 1) if found.end() <= place.start)
    begin = max(ends, default=line)
    line_end = text.find("\n", place.end)
    line_end = len(text) if line_end < 0 else line_end
    found = _ENDS.search(text, max(place.end - 1, begin), line_end)
    return text[begin : found.start() if found else line_end].strip()


def hash_to_unit_interval(*parts: object) -> float:
    """A number in [0, 1) that depends on the parts alone."""
    digest = hashlib.sha256("\0".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64
