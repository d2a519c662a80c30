"""The position-biased reader: a chat model with a known blind spot.

The probability of reading a document depends only on its place and on the number of documents in the prompt, so the
right result of every position experiment can be calculated. The reader has the key passage of each question, and finds
it in the prompt by its text. A second model votes over the options with a known distribution.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from epicrisis.core.prompts import _SENTENCE_LABEL, CLOSE, OPEN, _split_fence, unescape, unfence
from epicrisis.core.protocols import ChatRequest
from epicrisis.core.types import EvidenceSpan, Question
from epicrisis.testing.chat import ScriptedModel
from tests.support.replies import fill, quotation

PositionCurve: TypeAlias = Callable[[int, int], float]
"""Maps a place (from 0) and the number of documents to the probability of reading the document there."""

_QUOTED = re.compile(r'"([^"]{20,})"')
_FINDING = 168
"""Length of the quotations in a finding, in characters."""
_ENDS = re.compile(r"(?<=[.!?])[ ]+(?=[A-Z0-9])")
HOLISTIC = "holistic"
_QUOTED_WORDS = 3
"""The fewest words that count as a quotation."""
_OPTION = re.compile(r"(?m)^([A-Z])\. (.*)$")
MAX_SOURCES = 3


def unfence_numbers(prompt: str) -> list[dict[int, int]]:
    """Return for each item in the fence the numbers of its sentences, by the offset in the original item."""
    numbers: list[dict[int, int]] = []
    for item in _split_fence(prompt):
        item_numbers: dict[int, int] = {}
        offset = end = 0
        for label in _SENTENCE_LABEL.finditer(item):
            offset += len(unescape(item[end : label.start()]))
            end = label.end()
            item_numbers[offset] = int(label[0][2:-2])
        numbers.append(item_numbers)
    return numbers


def u_curve(edge: float = 0.95, dip: float = 0.6, reference: int = 16) -> PositionCurve:
    """Return a U-shaped curve, deeper for longer contexts (Liu et al. 2023; BriefContext, Fig. 2 and 5).

    At both ends the probability is `edge`; in the middle of `reference` documents it is `edge - dip`, and the dip
    shrinks in proportion for fewer documents. A single document is always read.
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
    """The text of the key passage of a question, and the right letter."""

    passage: str
    choice: str = ""
    answer: str = ""
    """The answer to a question without options. If the prompt lists it as an option, the reader returns its letter."""
    also_needs: tuple[str, ...] = ()
    """Further passages needed for the answer."""

    @property
    def passages(self) -> tuple[str, ...]:
        """All passages needed for the answer."""
        return (self.passage, *self.also_needs)


KeyPassages: TypeAlias = Mapping[str, KeyPassage | Sequence[KeyPassage]]
"""Keys by question text. A question may have several, in several records or places."""


def position_biased_reader(
    keys: KeyPassages, curve: PositionCurve, *, seed: int = 0, context_tokens: int = 1_000_000
) -> ScriptedModel:
    """Return a reader of the questions in `keys`. It depends only on seed, question and documents.

    It answers if it reads all passages of one key: it quotes them, and returns the choice or answer of the key. In a
    map call it reports some passages of a key as well, without a choice. Otherwise it reports that it found nothing.

    If the schema asks for numbers of sentences, it names one sentence of each passage it read. If none of them has a
    number, it names the first numbered sentence of the document, or sentence 1. If it must copy the answer from a
    numbered sentence and none that it names has it, it finds nothing. Its confidence is 5 for a complete key, else 3.
    """

    def script(request: ChatRequest) -> str:
        prompt = request.messages[-1].content
        items = unfence(prompt)
        instructions = unescape(prompt.partition(OPEN)[0] + prompt.rpartition(CLOSE)[2])
        # The longest, as one question may contain the text of another.
        question = max((key for key in keys if key in instructions), key=len, default=None)
        key_or_keys = () if question is None else keys[question]
        question_keys = (key_or_keys,) if isinstance(key_or_keys, KeyPassage) else tuple(key_or_keys)
        schema = request.schema or {"type": "object"}
        hash_parts = (seed, request.seed, prompt)
        choice = _choose_key(question_keys, items, curve, hash_parts, partly="finding" in json.dumps(schema))
        if choice is None:
            return json.dumps(fill(schema, {"found": False, "quotes": [], "choice": None}, "nothing relevant"))
        key, places = choice
        values, text = _build_values(schema, key, places, instructions)
        if '"sentences"' in json.dumps(schema):
            sentences = _find_sentences(items, unfence_numbers(prompt))
            values["sentences"] = _name_sentences(key, places, items, sentences)
            values["text"] = values.get("answer", text)
            if _copies_span(schema):
                values["text"] = _copy_words(key, [sentences[number].text for number in values["sentences"]])
                if not values["text"]:
                    return json.dumps(fill(schema, {"found": False}, "nothing relevant"))
        return json.dumps(fill(schema, values, text))

    return ScriptedModel(script, name="position-biased-reader", context_tokens=context_tokens)


def _find_places(key: KeyPassage, items: Sequence[str]) -> list[list[int]]:
    """Return for each passage of the key the items with it, complete or quoted in a finding."""
    places_by_passage: list[list[int]] = [[] for _ in key.passages]
    for place, item in enumerate(items):
        quotations = _QUOTED.findall(item)
        for places, passage in zip(places_by_passage, key.passages, strict=True):
            if passage in item or any(quotation in passage for quotation in quotations):
                places.append(place)
    return places_by_passage


def _choose_key(
    keys: Sequence[KeyPassage], items: Sequence[str], curve: PositionCurve, hash_parts: tuple[object, ...], partly: bool
) -> tuple[KeyPassage, Sequence[int | None]] | None:
    """Return the first key with all passages read, or with `partly` the one with most, and the places read.

    Each document is read or missed as a whole.
    """
    places_by_key = [_find_places(key, items) for key in keys]
    all_places = set(itertools.chain.from_iterable(itertools.chain.from_iterable(places_by_key)))
    attended: set[int] = set()
    for number, place in enumerate(sorted(all_places)):
        # The first place uses the prompt alone, so that keys of one passage keep their results.
        parts = (*hash_parts, place) if number else hash_parts
        if hash_to_unit_interval(*parts) < curve(place, len(items)):
            attended.add(place)
    best, most = None, 0
    for key, key_places in zip(keys, places_by_key, strict=True):
        # The first place of each passage that the reader attends to.
        first_places = [next((place for place in places if place in attended), None) for places in key_places]
        if None not in first_places:
            return key, first_places
        count = len(first_places) - first_places.count(None)
        if partly and count > most:
            best, most = (key, first_places), count
    return best


@dataclass(frozen=True, slots=True)
class _Sentence:
    """A numbered sentence of a prompt."""

    place: int
    """The place of its document, from 0."""
    start: int
    """Its offset in the document."""
    text: str
    """Up to its end or its line's, or to the next numbered sentence if that comes first."""

    def overlaps(self, place: int, item: str, passage: str) -> bool:
        """Return whether it begins in this passage of the item, or the passage begins in it."""
        if self.place != place:
            return False
        at = item.find(passage)
        if at < 0:
            # A finding has single sentences of the passage.
            return self.text in passage
        return at <= self.start < at + len(passage) or self.start <= at < self.start + len(self.text)


def _find_sentences(items: Sequence[str], numbers_by_item: Sequence[Mapping[int, int]]) -> dict[int, _Sentence]:
    """Return the numbered sentences of a prompt by their number."""
    sentences: dict[int, _Sentence] = {}
    for place, (item, numbers) in enumerate(zip(items, numbers_by_item, strict=True)):
        offsets = sorted(numbers)
        for start, end in itertools.pairwise([*offsets, len(item)]):
            text = _ENDS.split(item[start:end].partition("\n")[0])[0].strip()
            sentences[numbers[start]] = _Sentence(place, start, text)
    return sentences


def _name_sentences(
    key: KeyPassage, places: Sequence[int | None], items: Sequence[str], sentences: Mapping[int, _Sentence]
) -> list[int]:
    """Return the number of one sentence for each passage that was read: with the answer if possible, else the first."""
    named: dict[int, None] = {}
    for place, passage in zip(places, key.passages, strict=True):
        if place is None:
            continue
        of_document = [number for number, sentence in sentences.items() if sentence.place == place]
        of_passage = [number for number in of_document if sentences[number].overlaps(place, items[place], passage)]
        with_answer = [number for number in of_passage if key.answer and key.answer in sentences[number].text]
        named[(with_answer or of_passage or of_document or [1])[0]] = None
    return list(named)[:MAX_SOURCES]


def _copy_words(key: KeyPassage, texts: Sequence[str]) -> str:
    """Return the answer if a text has it, words of the first text if the key has no answer, else an empty string."""
    if not key.answer:
        return quotation(texts[0])
    return key.answer if any(key.answer in text for text in texts) else ""


def _copies_span(schema: Mapping[str, Any]) -> bool:
    """Return whether the only claim of a reply copies words of a numbered sentence."""
    branches = schema.get("properties", {}).get("result", {}).get("anyOf", [{}])
    claims: Mapping[str, Any] = branches[0].get("properties", {}).get("claims", {})
    return claims.get("maxItems") == 1


def _build_values(
    schema: Mapping[str, Any], key: KeyPassage, places: Sequence[int | None], instructions: str
) -> tuple[dict[str, Any], str]:
    """Return the values of a reply by the names of their fields, and the text of the other fields."""
    # A finding is short: its quotations share the space, and must be long enough to be recognised.
    room = max(_FINDING // (len(places) - places.count(None)) - 4, 20)
    finding: list[str] = []
    quotes: list[dict[str, Any]] = []
    span = ""
    for place, passage in zip(places, key.passages, strict=True):
        if place is not None:
            if not quotes:
                span = key.answer if key.answer in passage and key.answer else quotation(passage)
            finding.append('"' + quotation(passage)[:room].strip() + '"')
            # The answer itself if the passage contains it and it is not a letter.
            verbatim = not key.choice and key.answer in passage and len(key.answer.split()) >= _QUOTED_WORDS
            quotes.append({"doc": place + 1, "quote": key.answer if verbatim else quotation(passage)})
    values: dict[str, Any] = {"found": True, "quotes": quotes, "choice": key.choice, "doc": quotes[0]["doc"]}
    values["span"] = span
    if "quotes" not in json.dumps(schema):
        values["sources"] = sorted({quote["doc"] for quote in quotes})[:MAX_SOURCES]
    if None in places:
        values["choice"] = None
    elif key.answer:
        # Behind a letter, or by its words.
        option = re.search(rf"(?m)^(?:([A-Z])\.|-) {re.escape(key.answer)}$", instructions)
        values |= {"choice": option[1] or key.answer} if option else {"answer": key.answer}
    values["confidence"] = 3 if None in places else 5
    return values, f"It says {', '.join(finding)}."


def find_key_passages(questions: Iterable[Question], notes: Mapping[str, str]) -> dict[str, tuple[KeyPassage, ...]]:
    """Return the keys of questions with evidence. `notes` has the text of each document by id.

    A key passage is the sentence around a span of evidence, within its line. A holistic question needs all spans, any
    other question one of them. A question without evidence has no key. Raises KeyError for a missing note.
    """
    keys: dict[str, list[KeyPassage]] = {}
    for question in questions:
        passages = list(dict.fromkeys(_around(notes[place.document_id], place) for place in question.evidence))
        letter = (question.gold or "") if question.options else ""
        answer = question.options[letter] if question.options else question.gold or ""
        if question.category == HOLISTIC:
            question_keys = [KeyPassage(passages[0], letter, answer, tuple(passages[1:]))] if passages else []
        else:
            question_keys = [KeyPassage(passage, letter, answer) for passage in passages]
        keys.setdefault(question.text, []).extend(question_keys)
    return {text: tuple(dict.fromkeys(several)) for text, several in keys.items() if several}


def _around(text: str, place: EvidenceSpan) -> str:
    line = text.rfind("\n", 0, place.start) + 1
    ends = (match.end() for match in _ENDS.finditer(text, line, place.start + 1) if match.end() <= place.start)
    begin = max(ends, default=line)
    line_end = text.find("\n", place.end)
    line_end = len(text) if line_end < 0 else line_end
    match = _ENDS.search(text, max(place.end - 1, begin), line_end)
    return text[begin : match.start() if match else line_end].strip()


def build_voter(beliefs: Mapping[str, Mapping[str, float]], *, first: float = 0.0, seed: int = 0) -> ScriptedModel:
    """Return a model that votes for each option with the probability in `beliefs[question text][option text]`.

    With probability `first` it votes for the first option instead. Its votes depend on the seed, the seed and sample of
    the request, and the question, but not on temperature.
    """

    def read_question(request: ChatRequest) -> tuple[str, dict[str, str]]:
        """Return the question, and the letters of the options by text."""
        prompt = unescape(request.messages[-1].content)
        question = max((belief for belief in beliefs if belief in prompt), key=len)
        return question, {text: letter for letter, text in _OPTION.findall(prompt.partition(question)[2])}

    def script(request: ChatRequest) -> str:
        question, letters = read_question(request)
        place = (seed, request.seed, request.sample, question)
        if hash_to_unit_interval("first", *place) < first:
            letter = min(letters.values())
        else:
            at = hash_to_unit_interval("belief", *place)
            for text, share in beliefs[question].items():
                letter = letters[text]
                at -= share
                if at < 0:
                    break
        return json.dumps(fill(request.schema or {"type": "object"}, {"found": True, "choice": letter}, "It is so."))

    def probabilities(request: ChatRequest) -> dict[str, float]:
        question, letters = read_question(request)
        shares = {letters[text]: (1 - first) * share for text, share in beliefs[question].items()}
        first_letter = min(letters.values())
        shares[first_letter] += first
        return {letter: share for letter, share in shares.items() if share > 0}

    return ScriptedModel(script, name="voter", probabilities=probabilities)


def hash_to_unit_interval(*parts: object) -> float:
    """Return a number in [0, 1) that depends only on the parts."""
    digest = hashlib.sha256("\0".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64
