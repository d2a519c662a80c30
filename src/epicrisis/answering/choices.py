"""What a reply must look like, and reading what came back.

A reply is JSON where the endpoint can be held to a schema; the reader takes prose and fenced JSON as well. Two
different stated choices are no choice: the reply is unreadable, never a default letter (errata M1, P2).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from epicrisis.types import first_alike

ANSWER_CHARACTERS = 500
FINDING_CHARACTERS = 180
QUOTE_CHARACTERS = 240
MAX_QUOTES = 3
MAX_SOURCES = 3
"""Findings that a summing up may name."""
REASONING_CHARACTERS = 1500

_LETTER = r"\s*(?:option\s*)?[*(\"'\[]*([A-Z])\b(?!\w|')"
# "The answer is B" and "B is correct" state. "Option B" names, which counts where nothing is stated, no other option is
# named, and nothing is said of this one or against it: a finding may weigh options ("option A is wrong").
_CUE = r"(?<!wrong )(?<!incorrect )\b(?:answer|choice|option)\b[\s*_]*+(?:\bis\b|\bwould be\b|=|:)[\s:*_]*+"
_STATED = re.compile(f"(?i){_CUE}{_LETTER}")
_STATED_WORDS = re.compile(f"(?i){_CUE}([^.,;:\n]+)")
_CORRECT = re.compile(
    r"(?<![\w'])([A-Z])[)\"'*]* is (?:therefore |thus )?(?:the )?(?:correct|right|best)"
    r"(?: (?:answer|choice|option)\b|\s*[.,;\n]|\s*$)"
)
_OPTION = rf"\b(?:answer|choice|option)\b{_LETTER}"
_NAMED = re.compile(f"(?i){_OPTION}")
_WEIGHED = re.compile(
    rf"""(?ix)
    \b(?:not|no|nor|neither|than|of|out|unlike|without|exclud\w+|reject\w*|eliminat\w+|against|wrong|incorrect)\s+
        (?:the\s+)? {_OPTION}
    | {_OPTION} [)\]"'*]*\s+ (?:\w+n['’]t | is | was | be | would | could | can | cannot | may | might | must | should
        | will | does | did | has | had | seems | appears | states | says | suggests | describes | refers | means)\b
    """
)
_REPLY_KEYS = frozenset({"result", "found", "choice", "answer"})
_EDGES = "()[]\"'*. \n"


class Unreadable(ValueError):
    """The reply says nothing that can be counted; the message says why, and holds nothing of it."""


class EmptyReply(Unreadable):
    """Nothing came back: no wrong answer, and no refusal either (errata E2)."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a reply says. `quotes` are (number of the document, words), `sources` the numbers of findings."""

    found: bool
    text: str = ""
    choice: str | None = None
    quotes: tuple[tuple[int, str], ...] = ()
    sources: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ReplyForm:
    """What is asked of a reply, and so its schema and its greatest length."""

    options: Mapping[str, str]
    text_field: str = "answer"
    text_characters: int = ANSWER_CHARACTERS
    documents: int = 0
    """Documents that may be quoted; 0: no quotes are asked for."""
    sources: int = 0
    """Findings that may be named; 0: none are asked for."""
    reasoning: bool = False
    choice_may_be_null: bool = False

    def schema(self) -> dict[str, Any]:
        """JSON schema: `result` is either found with all its fields, or not found with none."""
        found: dict[str, Any] = {"found": {"type": "boolean", "enum": [True]}}
        if self.documents:
            quote = _object(
                {
                    "doc": {"type": "integer", "enum": list(range(1, self.documents + 1))},
                    "quote": {"type": "string", "minLength": 1, "maxLength": QUOTE_CHARACTERS},
                }
            )
            found["quotes"] = {"type": "array", "minItems": 1, "maxItems": MAX_QUOTES, "items": quote}
        if self.sources:
            number = {"type": "integer", "enum": list(range(1, self.sources + 1))}
            found["sources"] = {"type": "array", "minItems": 1, "maxItems": MAX_SOURCES, "items": number}
        found[self.text_field] = {"type": "string", "minLength": 1, "maxLength": self.text_characters}
        if self.options:
            letters: list[str | None] = list(self.options)
            found["choice"] = {"enum": [*letters, None]} if self.choice_may_be_null else {"enum": letters}
        result = {"anyOf": [_object(found), _object({"found": {"type": "boolean", "enum": [False]}})]}
        if not self.reasoning:
            return _object({"result": result})
        reasoning = {"type": "string", "minLength": 1, "maxLength": REASONING_CHARACTERS}
        return _object({"reasoning": reasoning, "result": result})

    @property
    def max_tokens(self) -> int:
        """Room for the longest reply the schema allows, at two characters a token and some JSON around."""
        characters = self.text_characters + (REASONING_CHARACTERS if self.reasoning else 0)
        characters += MAX_QUOTES * (QUOTE_CHARACTERS + 30) if self.documents else 0
        return characters // 2 + 100

    def read(self, text: str) -> Reply:
        """What the reply says. Raises Unreadable."""
        replies = [self._from_json(found) for found in json_objects(text)]
        if len({(reply.found, reply.choice) for reply in replies}) > 1:
            raise Unreadable("the reply holds several answers that differ")
        return replies[0] if replies else self._from_prose(text)

    def _from_json(self, data: Mapping[str, Any]) -> Reply:
        result = data.get("result", data)
        if not isinstance(result, Mapping):
            raise Unreadable("the reply's result is not an object")
        found = result.get("found", True)
        if found is False:
            return Reply(found=False)
        if found is not True:
            raise Unreadable("the reply does not say whether it found an answer")
        text = result.get(self.text_field)
        if not isinstance(text, str) or not re.search(r"\w", text):
            raise Unreadable(f"the reply has no {self.text_field}")
        choice = None
        if self.options:
            if "choice" not in result:
                raise Unreadable("the reply states no choice")
            choice = self._choice(result["choice"])
            stated = _letters(_STATED, text, self.options)
            if choice is not None and stated - {choice}:
                raise Unreadable(f"the reply states different choices: {', '.join(sorted(stated | {choice}))}")
            if choice is None and not self.choice_may_be_null:
                return Reply(found=False, text=text)
        return Reply(True, text.strip(), choice, self._quotes(result), self._sources(result))

    def _choice(self, value: object) -> str | None:
        """The letter; a letter with its text, or an option's text alone, counts as its letter."""
        if value is None or (isinstance(value, str) and value.strip().lower() in ("", "null", "none")):
            return None
        if not isinstance(value, str):
            raise Unreadable("the choice is neither a letter nor null")
        letter = self._letter(value)
        if letter is None:
            raise Unreadable("the choice is none of the options")
        return first_alike(self.options, letter)

    def _letter(self, text: str) -> str | None:
        """The option that these few words are: `B`, `(B) no`, `B: no`, or `no`. A letter goes before an option of the
        same text (blood group A). A letter with another option's text is none, nor is a text of two options that differ
        in capitals alone; of options with one text the first is meant."""
        cleaned = text.strip(_EDGES).lower()
        texts = {letter: option.strip(_EDGES).lower() for letter, option in self.options.items()}
        letters = {letter.lower(): letter for letter in self.options}
        if cleaned in letters:
            return letters[cleaned]
        same = [letter for letter, option in texts.items() if option == cleaned]
        if same:
            return same[0] if len({first_alike(self.options, letter) for letter in same}) == 1 else None
        head, separator, rest = _split_letter(cleaned)
        letter = letters.get(head) if separator else None
        contradicts = letter is not None and rest != texts[letter] and rest in texts.values()
        return None if contradicts else letter

    def _quotes(self, result: Mapping[str, Any]) -> tuple[tuple[int, str], ...]:
        raw = result.get("quotes", [])
        rows = [row for row in raw if isinstance(row, Mapping)] if isinstance(raw, Sequence) else []
        pairs = [(row.get("doc"), row.get("quote")) for row in rows]
        return tuple(
            dict.fromkeys(
                (doc, quote.strip())
                for doc, quote in pairs
                if type(doc) is int and 1 <= doc <= self.documents and isinstance(quote, str) and quote.strip()
            )
        )

    def _sources(self, result: Mapping[str, Any]) -> tuple[int, ...]:
        raw = result.get("sources", [])
        numbers = raw if isinstance(raw, Sequence) else []
        return tuple(dict.fromkeys(n for n in numbers if type(n) is int and 1 <= n <= self.sources))

    def _from_prose(self, text: str) -> Reply:
        """A reply without JSON: its stated choice, or for an open question the text itself."""
        stripped = text.strip()
        if not stripped:
            raise EmptyReply("the reply is empty")
        if not re.search(r"\w", stripped) or stripped.startswith(("{", "[", "```")) or re.search(r'\{\s*"', stripped):
            raise Unreadable("the reply is broken JSON")
        if not self.options:
            return Reply(True, stripped)
        stated = self._stated(stripped)
        if len(stated) != 1:
            raise Unreadable(f"the reply states {len(stated) or 'no'} choices")
        return Reply(True, stripped, stated.pop())

    def _stated(self, text: str) -> set[str]:
        """The letters that a prose reply states; where it states none, the one that it is, or that it names."""
        read = (self._letter(words) for words in _STATED_WORDS.findall(text))
        words = {first_alike(self.options, letter) for letter in read if letter}
        stated = words | _letters(_STATED, text, self.options) | _letters(_CORRECT, text, self.options)
        if stated:
            return stated
        if alone := self._letter(text):
            return {first_alike(self.options, alone)}
        named = _letters(_NAMED, text, self.options)
        plain = _letters(_NAMED, _WEIGHED.sub("", text), self.options)
        return named if len(named) > 1 else plain


class TextStream:
    """Picks one string field out of a JSON reply while it streams; prose passes as it is."""

    def __init__(self, text_field: str) -> None:
        self._start = re.compile(rf'"{re.escape(text_field)}"\s*:\s*"')
        self._seen = ""
        self._shown = 0

    def feed(self, piece: str) -> str:
        """The new text of the field that this piece brought; empty while the field has not begun, or is over."""
        self._seen += piece
        text = self._text()
        new, self._shown = text[self._shown :], max(self._shown, len(text))
        return new

    def _text(self) -> str:
        begun = self._seen.lstrip()
        if not begun.startswith(("{", "`")):
            return begun
        start = self._start.search(self._seen)
        if start is None:
            return ""
        raw = re.match(r'(?:[^"\\]|\\u[0-9a-fA-F]{4}|\\[^u])*', self._seen[start.end() :])
        try:
            text = json.loads(f'"{raw.group() if raw else ""}"', strict=False)
        except ValueError:
            return ""
        # Half of a surrogate pair: its other half is still to come.
        return str(text[:-1]) if text and "\ud800" <= text[-1] <= "\udbff" else str(text)


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _letters(pattern: re.Pattern[str], text: str, options: Mapping[str, str]) -> set[str]:
    return {first_alike(options, letter) for letter in pattern.findall(text) if letter in options}


def _split_letter(text: str) -> tuple[str, str, str]:
    """`b) no` as `b`, `)` and `no`; a text that does not begin so has an empty separator."""
    found = re.match(r"(\w+)([).:])\s+(.*)", text, re.DOTALL)
    return (found[1], found[2], found[3]) if found else (text, "", "")


def json_objects(text: str, keys: frozenset[str] = _REPLY_KEYS) -> list[dict[str, Any]]:
    """The JSON objects in the text that have one of these keys, bare or between other words."""
    decoder = json.JSONDecoder(strict=False)
    objects: list[dict[str, Any]] = []
    at = text.find("{")
    while at >= 0:
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            end = at + 1
        else:
            if value.keys() & keys:
                objects.append(value)
        at = text.find("{", end)
    return objects
