"""The format of an answer: what a reply must look like, and what it says.

The reader also accepts prose and JSON between other words. Two different choices make a reply unreadable; there is
never a default letter (errata M1, P2).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from epicrisis.answering.stated_choice import ChoiceReader
from epicrisis.answering.structured_request import EmptyReply, Unreadable, json_objects, object_schema, text_schema
from epicrisis.printable import replace_surrogates

ANSWER_CHARACTERS = 500
FINDING_CHARACTERS = 180
QUOTE_CHARACTERS = 240
MAX_QUOTES = 3
MAX_SOURCES = 3
REASONING_CHARACTERS = 1500
MAX_QUOTES_READ = 50
"""Quotations that a reply may hold. Some endpoints do not enforce the schema."""
REPLY_KEYS = frozenset({"result", "found", "choice", "answer"})


@dataclass(frozen=True, slots=True)
class ParsedReply:
    """What a reply says."""

    has_answer: bool
    text: str = ""
    choice: str | None = None
    quotes: tuple[tuple[int, str], ...] = ()
    """Each with the number of its document."""
    sources: tuple[int, ...] = ()
    """Numbers of findings."""


@dataclass(frozen=True, slots=True)
class AnswerFormat:
    """The format of a reply that answers a question or reports a finding."""

    options: Mapping[str, str]
    text_field: str = "answer"
    text_characters: int = ANSWER_CHARACTERS
    documents: int = 0
    """Number of documents to quote from; 0 for a reply without quotations."""
    sources: int = 0
    """Number of findings to choose from; 0 for a reply without sources."""
    reasoning: bool = False
    choice_may_be_null: bool = False

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema: `result` has either `found` true and all other fields, or only `found` false."""
        fields: dict[str, Any] = {"found": {"type": "boolean", "enum": [True]}}
        if self.documents:
            document = {"type": "integer", "enum": list(range(1, self.documents + 1))}
            quote = object_schema({"doc": document, "quote": text_schema(QUOTE_CHARACTERS)})
            fields["quotes"] = {"type": "array", "minItems": 1, "maxItems": MAX_QUOTES, "items": quote}
        if self.sources:
            number = {"type": "integer", "enum": list(range(1, self.sources + 1))}
            fields["sources"] = {"type": "array", "minItems": 1, "maxItems": MAX_SOURCES, "items": number}
        fields[self.text_field] = text_schema(self.text_characters)
        if self.options:
            letters: list[str | None] = list(self.options)
            fields["choice"] = {"enum": [*letters, None]} if self.choice_may_be_null else {"enum": letters}
        result = {"anyOf": [object_schema(fields), object_schema({"found": {"type": "boolean", "enum": [False]}})]}
        if not self.reasoning:
            return object_schema({"result": result})
        return object_schema({"reasoning": text_schema(REASONING_CHARACTERS), "result": result})

    @property
    def max_tokens(self) -> int:
        """Room for the longest reply of the schema: two characters per token, plus the JSON punctuation."""
        characters = self.text_characters + (REASONING_CHARACTERS if self.reasoning else 0)
        characters += MAX_QUOTES * (QUOTE_CHARACTERS + 30) if self.documents else 0
        return characters // 2 + 100

    def read(self, text: str) -> ParsedReply:
        """Return what a reply says. Raises Unreadable."""
        replies = list(map(self._read_json, json_objects(text, REPLY_KEYS)))
        for reply in replies:
            if (reply.has_answer, reply.choice) != (replies[0].has_answer, replies[0].choice):
                raise Unreadable("the reply contains several answers that differ")
        if replies:
            return replies[0]
        # In prose a reply says its choice, or for an open question the text itself is the answer.
        text = text.strip()
        if not text:
            raise EmptyReply("the reply is empty")
        in_brackets = bool(self.options) and re.fullmatch(r"\[\s*+[A-Z]\s*+\]", text)
        begins_like_json = text.startswith(("{", "[", "```")) and not in_brackets
        if begins_like_json or not re.search(r"\w", text) or re.search(r'\{\s*"', text):
            raise Unreadable("the reply is broken JSON")
        if not self.options:
            return ParsedReply(True, text)
        choices = ChoiceReader(self.options).read_prose(text)
        if len(choices) != 1:
            raise Unreadable(f"the reply states {len(choices) or 'no'} choices")
        return ParsedReply(True, text, choices.pop())

    def _read_json(self, data: Mapping[str, Any]) -> ParsedReply:
        result = data.get("result", data)
        if not isinstance(result, Mapping):
            raise Unreadable("the reply's result is not an object")
        has_answer = result.get("found", True)
        if has_answer is False:
            return ParsedReply(has_answer=False)
        if has_answer is not True:
            raise Unreadable("the reply does not say whether it found an answer")
        text = result.get(self.text_field)
        if not isinstance(text, str) or not re.search(r"\w", text):
            raise Unreadable(f"the reply has no {self.text_field}")
        choice = self._read_choice(result, text) if self.options else None
        if self.options and choice is None and not self.choice_may_be_null:
            return ParsedReply(has_answer=False, text=text)
        values = result.get("sources")
        numbers = [_number(value, self.sources) for value in values] if isinstance(values, Sequence) else []
        sources = dict.fromkeys(filter(None, numbers))
        return ParsedReply(True, text.strip(), choice, self._read_quotes(result.get("quotes")), tuple(sources))

    def _read_quotes(self, rows: object) -> tuple[tuple[int, str], ...]:
        if not isinstance(rows, Sequence) or isinstance(rows, str):
            return ()
        if len(rows) > MAX_QUOTES_READ:
            raise Unreadable(f"the reply quotes {len(rows)} places, more than {MAX_QUOTES_READ}")
        quotes: dict[tuple[int, str], None] = {}
        for row in rows:
            if isinstance(row, Mapping):
                document, quote = _number(row.get("doc"), self.documents), row.get("quote")
                if document is not None and isinstance(quote, str) and quote.strip():
                    quotes[document, quote.strip()] = None
        return tuple(quotes)

    def _read_choice(self, result: Mapping[str, Any], text: str) -> str | None:
        """Return the letter of the reply's choice, or None for null. Raises Unreadable if its text states another."""
        if "choice" not in result:
            raise Unreadable("the reply states no choice")
        value = result["choice"]
        if value is None or (isinstance(value, str) and value.strip().lower() in ("", "null", "none")):
            return None
        if not isinstance(value, str):
            raise Unreadable("the choice is neither a letter nor null")
        reader = ChoiceReader(self.options)
        choice = reader.read_words(value)
        if choice is None:
            raise Unreadable("the choice is none of the options")
        choices = reader.read_answer(text) | {choice}
        if len(choices) > 1:
            raise Unreadable(f"the reply states different choices: {', '.join(sorted(choices))}")
        return choice


def _number(value: object, maximum: int) -> int | None:
    """Return the value if it is a whole number from 1 to `maximum`, else None."""
    return value if type(value) is int and 1 <= value <= maximum else None


_STRING = re.compile(
    r'(?:[^"\\]|\\u(?![dD][89abAB])[0-9a-fA-F]{4}|\\u[dD][89abAB][0-9a-fA-F]{2}(?=\\u[0-9a-fA-F]{4}|\\[^u]|[^\\])(?:\\u[dD][c-fC-F][0-9a-fA-F]{2})?+|\\[^u])*+'
)
"""Complete characters of a JSON string. Half of a surrogate pair is left for the next piece."""


class TextStream:
    """Extracts one string field from a JSON reply while it arrives. A reply in prose passes unchanged."""

    def __init__(self, text_field: str) -> None:
        self._start = re.compile(rf'"{re.escape(text_field)}"\s*:\s*"')
        self._received = ""
        self._emitted = 0
        self._at: int | None = None
        """Offset in the reply after the part of the field that was returned."""

    def feed(self, piece: str) -> str:
        """Return the new text of the field; empty before the field begins and after it ends."""
        self._received += piece
        if self._at is None:
            text = self._received.lstrip()
            if not text.startswith(("{", "`")):
                new_text = text[self._emitted :]
                self._emitted = max(self._emitted, len(text))
                return new_text
            start = self._start.search(self._received)
            if start is None:
                return ""
            self._at = start.end()
        raw = _STRING.match(self._received, self._at)
        if raw is None:
            return ""
        try:
            text = json.loads(f'"{replace_surrogates(raw[0])}"', strict=False)
        except ValueError:
            return ""
        self._at = raw.end()
        return str(text)
