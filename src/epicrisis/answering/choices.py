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

ANSWER_CHARACTERS = 500
QUOTE_CHARACTERS = 240
MAX_QUOTES = 3
REASONING_CHARACTERS = 1500

_STATED = re.compile(
    r"(?i)\b(?:answer|choice|option)\b\s*(?:is|would be|=|:)?\s*(?:option\s*)?[*(\"'\[]*([A-Z])\b(?!\w|')"
)


class Unreadable(ValueError):
    """The reply says nothing that can be counted; the message says why."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a reply says. `quotes` are (number of the document, words)."""

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
    documents: int = 0
    """Documents that may be quoted; 0: no quotes are asked for."""
    sources: int = 0
    """Pieces of evidence that may be named; 0: none are asked for."""
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
            found["sources"] = {"type": "array", "minItems": 1, "maxItems": 2 * MAX_QUOTES, "items": number}
        found[self.text_field] = {"type": "string", "minLength": 1, "maxLength": ANSWER_CHARACTERS}
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
        characters = ANSWER_CHARACTERS + (REASONING_CHARACTERS if self.reasoning else 0)
        characters += MAX_QUOTES * (QUOTE_CHARACTERS + 30) if self.documents else 0
        return characters // 2 + 100

    def read(self, text: str) -> Reply:
        """What the reply says. Raises Unreadable."""
        found = _json_object(text)
        return self._from_prose(text) if found is None else self._from_json(found)

    def _from_json(self, data: Mapping[str, Any]) -> Reply:
        result = data.get("result", data)
        if not isinstance(result, Mapping):
            raise Unreadable("the reply's result is not an object")
        if result.get("found") is False:
            return Reply(found=False)
        text = result.get(self.text_field)
        if not isinstance(text, str) or not re.search(r"\w", text):
            raise Unreadable(f"the reply has no {self.text_field}")
        choice = None
        if self.options:
            if "choice" not in result:
                raise Unreadable("the reply states no choice")
            choice = self._choice(result["choice"])
            stated = _stated(text, self.options)
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
        cleaned = value.strip().strip("()[]\"'*. ")
        for letter, option in self.options.items():
            if cleaned.upper() == letter.upper() or cleaned.lower() == option.strip().lower():
                return letter
            if re.match(rf"(?i)\(?{re.escape(letter)}[).:]\s", cleaned + " "):
                return letter
        raise Unreadable(f"the choice {cleaned[:20]!r} is none of the options")

    def _quotes(self, result: Mapping[str, Any]) -> tuple[tuple[int, str], ...]:
        raw = result.get("quotes", [])
        rows = [row for row in raw if isinstance(row, Mapping)] if isinstance(raw, Sequence) else []
        pairs = [(row.get("doc"), row.get("quote")) for row in rows]
        return tuple(
            dict.fromkeys(
                (doc, quote.strip())
                for doc, quote in pairs
                if isinstance(doc, int) and 1 <= doc <= self.documents and isinstance(quote, str) and quote.strip()
            )
        )

    def _sources(self, result: Mapping[str, Any]) -> tuple[int, ...]:
        raw = result.get("sources", [])
        numbers = raw if isinstance(raw, Sequence) else []
        return tuple(dict.fromkeys(n for n in numbers if isinstance(n, int) and 1 <= n <= self.sources))

    def _from_prose(self, text: str) -> Reply:
        """A reply without JSON: its stated choice, or for an open question the text itself."""
        stripped = text.strip()
        if not stripped or stripped.startswith(("{", "[", "```")):
            raise Unreadable("the reply is broken JSON")
        if not self.options:
            return Reply(True, stripped)
        stated = _stated(stripped, self.options)
        if not stated:
            alone = stripped.strip("().*\"' ").lower()
            stated = {k for k, v in self.options.items() if alone in (k.lower(), v.strip().lower())}
        if len(stated) != 1:
            raise Unreadable(f"the reply states {len(stated) or 'no'} choices")
        return Reply(True, stripped, stated.pop())


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
        if not self._seen.lstrip().startswith(("{", "`")):
            return self._seen
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


def _stated(text: str, options: Mapping[str, str]) -> set[str]:
    """Letters that the prose says are the answer ("the answer is B", "Option C"), by pattern, not by mention."""
    return {letter for letter in _STATED.findall(text) if letter in options}


def _json_object(text: str) -> dict[str, Any] | None:
    """The first JSON object in the text, bare or between other words; None where there is none."""
    decoder = json.JSONDecoder()
    at = text.find("{")
    while at >= 0:
        try:
            value, _ = decoder.raw_decode(text, at)
        except ValueError:
            at = text.find("{", at + 1)
            continue
        if isinstance(value, dict) and value.keys() & {"result", "found", "choice", "answer"}:
            return value
        at = text.find("{", at + 1)
    return None
